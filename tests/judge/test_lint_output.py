"""Findings of rules for CI systems, and as failures of tests."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from lint_builders import fed, graph, linted, op

import tfperf
from tfperf.judge.lint_output import LintFindingsError, exit_code, github_text, junit_text
from tfperf.models.linter.rules import RULES

WASTEFUL = [fed("x", 30, 56, 56, 20), fed("k", 3, 3, 20, 60), op("c::\n", "Conv2D", "x", "k", out=(30, 56, 56, 60))]
FINE = [fed("x", 128, 56, 56, 64), fed("k", 3, 3, 64, 64), op("c", "Conv2D", "x", "k", out=(128, 56, 56, 64))]
OPEN = [fed("x", -1, 4), op("c", "Softmax", "x", out=(-1, 4))]


def test_a_test_fails_for_what_matters(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"1 finding in 1 op evaluated \(1 high\)") as raised:
        tfperf.lint(graph(*WASTEFUL), device="tpu")
    assert isinstance(raised.value, LintFindingsError)
    assert isinstance(raised.value, tfperf.TfperfError)
    assert raised.value.result.violations[0].rule == "TPU-CV-1"
    assert "TPU-CV-1 (high) c::" in str(raised.value)
    path = tmp_path / "graph.pb"
    path.write_bytes(graph(*FINE))
    assert tfperf.lint(path, device="tpu").violations == ()


def test_findings_are_returned_where_they_are_allowed() -> None:
    assert len(tfperf.lint(graph(*WASTEFUL), fail_on=None).violations) == 1
    assert tfperf.lint(graph(*WASTEFUL), ignore=["TPU-CV-1"]).violations == ()


def test_missing_data_never_passes() -> None:
    with pytest.raises(tfperf.TfperfError, match="no op could be checked"):
        tfperf.lint(graph(*OPEN))


def test_exit_codes() -> None:
    wasteful, fine = linted(*WASTEFUL), linted(*FINE)
    assert [exit_code(wasteful, limit) for limit in (None, "high", "info")] == [0, 3, 3]
    assert [exit_code(fine, limit) for limit in (None, "info")] == [0, 0]
    assert exit_code(linted(*OPEN), None) == 1


def test_annotations() -> None:
    (line,) = github_text(linted(*WASTEFUL), "high").splitlines()
    assert line.startswith("::error title=TPU-CV-1 Padding of a convolution::c")
    assert github_text(linted(*WASTEFUL), None).startswith("::warning ")
    assert github_text(linted(*FINE), "high") == "0 findings in 1 op evaluated, 2 not evaluable because the graph " + (
        "does not show whether the host passes this argument in each step\n"
    )
    assert github_text(linted(*OPEN), None).startswith("::error title=no op could be checked")


def test_junit_has_a_test_for_each_rule() -> None:
    suite = ElementTree.fromstring(junit_text(linted(*WASTEFUL), "high").encode())[0]
    names = [case.attrib["name"].split()[0] for case in suite.iter("testcase")]
    assert names == [id for id, rule in RULES.items() if rule.device == "tpu" and "graph" in rule.reads]
    assert (suite.attrib["failures"], suite.attrib["errors"]) == ("1", "0")
    (failure,) = suite.iter("failure")
    assert "30x56x56x20 becomes 32x56x56x128" in failure.attrib["message"]
    errors = ElementTree.fromstring(junit_text(linted(*OPEN), None).encode())[0].attrib["errors"]
    assert errors == str(len(names))


def test_junit_has_no_test_for_a_rule_that_was_not_applied() -> None:
    result = linted(*WASTEFUL, rules=("TPU-CV-1", "TPU-MM-3"), ignore=("TPU-MM-3",))
    assert [
        case.attrib["name"].split()[0] for case in ElementTree.fromstring(junit_text(result, None)).iter("testcase")
    ] == ["TPU-CV-1"]
