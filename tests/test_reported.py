"""What reports of jobs said wrongly, or harmfully, once: `expected.json` beside their traces says what is true."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest
from click.testing import CliRunner
from places import SHARED

from tfperf.cli import main

REPORTED = SHARED / "traces" / "reported"
EXPECTED = REPORTED / "expected.json"
CASES: Mapping[str, Mapping[str, Any]] = json.loads(EXPECTED.read_text(encoding="utf-8")) if EXPECTED.exists() else {}
ON_SCREEN = 3
FIELDS = [(case, field) for case, fields in CASES.items() for field in fields]


def run(command: str, case: str, *options: str) -> tuple[str, int]:
    done = CliRunner().invoke(main, [command, *options, str(REPORTED / case)])
    return done.stdout, done.exit_code


@cache
def document(case: str) -> Any:
    return json.loads(run("analyze", case, "--format", "json")[0])


@cache
def text(case: str, *options: str) -> str:
    """Return a report on one line, so that no phrase is broken."""
    return " ".join(run("analyze", case, "--color", "never", *options)[0].split())


def shown(case: str) -> list[Any]:
    """Return the causes of the first screen."""
    causes: list[Any] = document(case)["diagnosis"]["causes"][:ON_SCREEN]
    return causes


def rows(case: str, section: str, table: str) -> list[Any]:
    found: list[Any] = document(case)["sections"][section]["tables"][table]["rows"]
    return found


def wall_ms(case: str) -> float:
    """Return the wall time of a step, from the start of the first to the end of the last."""
    summary = document(case)["summary"]
    wall = summary["wall"]
    return float((wall["ms"] - wall["before_ms"] - wall["after_ms"]) / summary["step_count"])


def assert_texts(case: str, forbidden: list[str], *options: str) -> None:
    reports = {"brief": text(case, *options), "full": text(case, "--full")}
    said = {name: each for name, report in reports.items() for each in forbidden if each in report}
    assert not said


def check_required(case: str, required: list[str]) -> None:
    assert [each for each in required if each not in text(case)] == []


def check_first_cause(case: str, code: str) -> None:
    assert [cause["code"] for cause in shown(case)][:1] == [code]


def check_first_cause_text(case: str, words: str) -> None:
    first = shown(case)[0]
    assert words in " ".join([first["title"], first["detail"], *(action["text"] for action in first["actions"])])


def check_forbidden_actions(case: str, codes: list[str]) -> None:
    assert [action["code"] for cause in shown(case) for action in cause["actions"] if action["code"] in codes] == []


def check_cache(case: str, later: list[str]) -> None:
    """Any code that offers a cache has it before these stages."""
    report = " ".join([text(case), text(case, "-s", "tfdata")])
    offered = re.findall(r"[^\s]*\.cache\(\)[^\s]*", report)
    for code in offered:
        before, _, _ = code.partition(".cache()")
        assert [name for name in later if f"{name}(" in before] == [], code


def check_range(value: float, allowed: list[float]) -> None:
    low, high = allowed
    assert low <= value <= high


def check_batches(case: str, batches: list[int]) -> None:
    """The executions of each epoch run these numbers of batches."""
    found = [row["batches"] for row in rows(case, "steps", "steps")]
    assert found == batches * (len(found) // len(batches))


def check_equal(found: Any, expected: Any) -> None:
    assert found == expected


CHECKS: Mapping[str, Callable[[str, Any], None]] = {
    "steps": lambda case, count: check_equal(document(case)["summary"]["step_count"], count),
    "steps_by_kind": lambda case, counts: check_equal(
        {kind: each["step_count"] for kind, each in document(case)["summary"]["kinds"].items()}, counts
    ),
    "compiling_steps": lambda case, count: check_equal(
        sum(row["flag"] == "retrace" for row in rows(case, "steps", "steps")), count
    ),
    "first_cause": check_first_cause,
    "first_cause_text": check_first_cause_text,
    "fail_on_compilation": lambda case, code: check_equal(run("check", case, "--fail-on", "compilation")[1], code),
    "wall_per_step_ms": lambda case, allowed: check_range(wall_ms(case), allowed),
    "steps_per_second": lambda case, allowed: check_range(1e3 / wall_ms(case), allowed),
    "batches": check_batches,
    "pipelines": lambda case, count: check_equal(
        len({row["pipeline"] for row in rows(case, "tfdata", "tfdata_stages")}), count
    ),
    "cache_before": check_cache,
    "forbidden_text": assert_texts,
    "forbidden_text_tfdata": lambda case, texts: assert_texts(case, texts, "-s", "tfdata"),
    "required_text": check_required,
    "forbidden_actions": check_forbidden_actions,
}
"""How each field of `expected.json` is checked."""


@pytest.mark.skipif(not CASES, reason="needs the reported traces")
@pytest.mark.parametrize(("case", "field"), FIELDS, ids=[f"{case}-{field}" for case, field in FIELDS])
def test_reports_of_reported_jobs_are_true(case: str, field: str) -> None:
    CHECKS[field](case, CASES[case][field])
