"""The outcome as JUnit XML."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from tfperf.gate.junit import junit_text, write_junit
from tfperf.gate.model import Judged, Limit, Metric, Outcome
from tfperf.gate.report import not_judged

from tfperf.errors import OutputError
from tfperf.report.model import Finding

INPUT = Limit("max-input-bound 10%", Metric("input_bound"), "<=", 10.0)
STEP = Limit("max-step-time 50ms", Metric("step_time"), "<=", 50.0, "tfperf.toml")
ADVICE = Finding("wait", "problem", "Steps wait for tf.data.", "use AUTOTUNE")
BREACH = Judged(INPUT, "breach", "Input-bound", 63.4, "%", "b", "of 12 steps", (ADVICE,))
PASS = Judged(STEP, "pass", "Step time", 42.0, "ms", "")
UNKNOWN = Judged(STEP, "unknown", "Step time", None, "ms", "", why="no steps; profile longer")

# The schema that Jenkins' xunit plugin publishes, as far as this document uses it:
# element -> (its children, required attributes, optional attributes).
SCHEMA: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": ({"testsuite"}, set(), {"name", "time", "tests", "failures", "errors"}),
    "testsuite": (
        {"properties", "testcase"}, {"name", "tests", "failures", "errors"},
        {"group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"},
    ),
    "properties": ({"property"}, set(), set()),
    "property": (set(), {"name", "value"}, set()),
    "testcase": ({"failure", "error", "skipped"}, {"name"}, {"time", "classname", "group"}),
    "failure": (set(), set(), {"type", "message"}),
    "error": (set(), set(), {"type", "message"}),
}  # fmt: skip


def outcome(*judged: Judged) -> Outcome:
    return Outcome(judged, "run", "/logs", ("a", "b"), 12)


def read(text: str) -> ElementTree.Element:
    """Parse a document and hold it against the schema; return its only suite."""
    root = ElementTree.fromstring(text.encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        children, required, optional = SCHEMA[element.tag]
        assert {child.tag for child in element} <= children
        assert required <= set(element.attrib) <= required | optional
    (suite,) = root
    return suite


def test_one_case_for_each_limit() -> None:
    suite = read(junit_text(outcome(PASS, BREACH, UNKNOWN)))
    counts = {key: suite.get(key) for key in ("name", "tests", "failures", "errors", "skipped")}
    assert counts == {"name": "tfperf check", "tests": "3", "failures": "1", "errors": "1", "skipped": "0"}
    cases = suite.findall("testcase")
    assert [case.get("classname") for case in cases] == ["tfperf.check"] * 3
    assert [case.get("name") for case in cases] == [
        "max-step-time 50ms", "max-input-bound 10%", "max-step-time 50ms",
    ]  # fmt: skip
    assert [[child.tag for child in case] for case in cases] == [[], ["failure"], ["error"]]


def test_a_failure_says_both_numbers_and_why() -> None:
    (failure,) = read(junit_text(outcome(BREACH))).iter("failure")
    assert failure.attrib == {
        "type": "breach",
        "message": "Input-bound is 63.4% on host b; at most 10.0% is allowed.",
    }
    assert failure.text == (
        "limit: max-input-bound 10% (command line)\nof 12 steps\nSteps wait for tf.data.\ntry: use AUTOTUNE"
    )


def test_an_error_says_what_is_missing() -> None:
    (error,) = read(junit_text(outcome(UNKNOWN))).iter("error")
    assert error.get("message") == "max-step-time 50ms could not be judged: no steps; profile longer"
    assert error.text == "limit: max-step-time 50ms (tfperf.toml)"


def test_what_was_looked_at_are_properties() -> None:
    found = {one.get("name"): one.get("value") for one in read(junit_text(outcome(PASS))).iter("property")}
    assert found == {"run": "run", "folder": "/logs", "hosts": "a, b", "verdict": "The limit holds."}


def test_without_a_trace_every_limit_is_an_error() -> None:
    suite = read(junit_text(not_judged([INPUT, STEP], "logs/ does not exist")))
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures")) == ("2", "2", "0")
    assert [error.get("message") for error in suite.iter("error")] == [
        "max-input-bound 10% could not be judged: logs/ does not exist",
        "max-step-time 50ms could not be judged: logs/ does not exist",
    ]


HOSTILE = "]]></failure><x a=\"'&amp;\x00\x08\x1b\ud800\udfff\ufffe\uffff\u2028\r\n\t\x85" + "é" * 100_000


def test_no_name_breaks_the_document() -> None:
    limit = Limit(HOSTILE, Metric(HOSTILE), "<=", 1.0, HOSTILE)
    finding = Finding("c", "info", HOSTILE, HOSTILE)
    judged = (
        Judged(limit, "breach", HOSTILE, 2.0, "count", HOSTILE, HOSTILE, (finding,)),
        Judged(limit, "unknown", HOSTILE, None, "count", HOSTILE, HOSTILE),
    )
    text = junit_text(Outcome(judged, HOSTILE, HOSTILE, (HOSTILE,), 1))
    suite = read(text)
    assert len(text) < 250_000
    assert str(suite[1].get("name")).startswith(r"""]]></failure><x a="'&amp;\x00\x08\x1b\ud800\udfff\ufffe\uffff""")


def test_a_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    write_junit(outcome(PASS), file, force=False)
    with pytest.raises(OutputError, match=r"junit\.xml exists; pass --force to replace it"):
        write_junit(outcome(BREACH), file, force=False)
    assert file.read_text() == junit_text(outcome(PASS))
    write_junit(outcome(BREACH), file, force=True)
    assert file.read_text() == junit_text(outcome(BREACH))
