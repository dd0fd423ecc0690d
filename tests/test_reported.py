"""What reports of jobs said wrongly, or harmfully, once: `expected.json` beside their traces says what is true."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest
from places import TRACES
from printed import Printed, missing

REPORTED = TRACES / "reported"
EXPECTED = REPORTED / "expected.json"
CASES: Mapping[str, Mapping[str, Any]] = json.loads(EXPECTED.read_text(encoding="utf-8")) if EXPECTED.exists() else {}
ON_SCREEN = 3
FIELDS = [(case, field) for case, fields in CASES.items() for field in fields]


@cache
def report_of(case: str) -> Printed:
    return Printed(REPORTED / case)


def shown(report: Printed) -> Any:
    """Return the causes of the first screen."""
    return report.document["diagnosis"]["causes"][:ON_SCREEN]


def wall_ms(report: Printed) -> float:
    """Return the wall time of a step, from the start of the first to the end of the last."""
    summary = report.document["summary"]
    wall = summary["wall"]
    return float((wall["ms"] - wall["before_ms"] - wall["after_ms"]) / summary["step_count"])


def said(report: Printed, forbidden: list[str], *options: str) -> list[str]:
    texts = report.text(*options), report.text("--full")
    return [each for each in forbidden if any(each in text for text in texts)]


def first_cause_text(report: Printed) -> str:
    first = shown(report)[0]
    return " ".join([first["title"], first["detail"], *(action["text"] for action in first["actions"])])


def cached_late(report: Printed, later: list[str]) -> list[str]:
    """Return the code that offers a cache after one of these stages."""
    offered = re.findall(r"[^\s]*\.cache\(\)[^\s]*", f"{report.text()} {report.text('-s', 'tfdata')}")
    return [code for code in offered if any(f"{name}(" in code.partition(".cache()")[0] for name in later)]


def outside(value: float, allowed: list[float]) -> list[float]:
    return [] if allowed[0] <= value <= allowed[1] else [value]


def differs(found: Any, expected: Any) -> list[Any]:
    return [] if found == expected else [found]


def batches_differ(report: Printed, batches: list[int]) -> list[Any]:
    """The executions of each epoch run these numbers of batches."""
    found = [row["batches"] for row in report.rows("steps", "steps")]
    return differs(found, batches * (len(found) // len(batches)))


PROBLEMS: Mapping[str, Callable[[Printed, Any], list[Any]]] = {
    "steps": lambda report, count: differs(report.document["summary"]["step_count"], count),
    "steps_by_kind": lambda report, counts: differs(
        {kind: each["step_count"] for kind, each in report.document["summary"]["kinds"].items()}, counts
    ),
    "compiling_steps": lambda report, count: differs(
        sum(row["flag"] == "retrace" for row in report.rows("steps", "steps")), count
    ),
    "first_cause": lambda report, code: differs([cause["code"] for cause in shown(report)][:1], [code]),
    "first_cause_text": lambda report, words: missing(first_cause_text(report), words),
    "fail_on_compilation": lambda report, code: differs(report.run("check", "--fail-on", "compilation")[1], code),
    "wall_per_step_ms": lambda report, allowed: outside(wall_ms(report), allowed),
    "steps_per_second": lambda report, allowed: outside(1e3 / wall_ms(report), allowed),
    "batches": batches_differ,
    "pipelines": lambda report, count: differs(
        len({row["pipeline"] for row in report.rows("tfdata", "tfdata_stages")}), count
    ),
    "cache_before": cached_late,
    "forbidden_text": said,
    "forbidden_text_tfdata": lambda report, texts: said(report, texts, "-s", "tfdata"),
    "required_text": lambda report, texts: missing(report.text(), *texts),
    "forbidden_actions": lambda report, codes: [
        action["code"] for cause in shown(report) for action in cause["actions"] if action["code"] in codes
    ],
}
"""What is wrong with a report, by the field of `expected.json`."""


@pytest.mark.skipif(not CASES, reason="needs the reported traces")
@pytest.mark.parametrize(("case", "field"), FIELDS, ids=[f"{case}-{field}" for case, field in FIELDS])
def test_reports_of_reported_jobs_are_true(case: str, field: str) -> None:
    assert PROBLEMS[field](report_of(case), CASES[case][field]) == []
