"""What the report of a gate says: the verdict, the limits, the baseline, and why."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from fractions import Fraction

import pytest
from builders import known
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tfperf.base.units import Unit
from tfperf.judge.limits import Limit, Metric, Relation
from tfperf.judge.outcome import (
    Judged,
    Outcome,
    check_report,
    headline,
    not_judged,
    open_questions,
    sentence,
    shown_together,
)
from tfperf.judge.regression import Ratio, RegressionVerdict, StepComparison
from tfperf.report.model import Finding, Status
from tfperf.report.render import FORMATS, render

ADVICE = Finding("wait", "problem", "Steps wait 60% of their time for tf.data, in Map.", "use AUTOTUNE")


def judged(
    text: str, measured: float | None, unit: Unit, status: Status = "pass", *, bound: float, relation: Relation = "<="
) -> Judged:
    """A judged limit, whose title is the first word of its text."""
    name = text.split()[0]
    limit = Limit(text, Metric(name), relation, bound)
    return Judged(limit=limit, status=status, title=name, measured=measured, unit=unit, host="")


def step_time(measured_ms: float, status: Status = "pass") -> Judged:
    return judged("max-step-time 50ms", measured_ms, "ms", status, bound=50.0)


def device_busy(measured: float | None, status: Status) -> Judged:
    return judged("min-device-busy 80%", measured, "%", status, bound=80.0, relation=">=")


INPUT = replace(judged("max-input-bound 10%", 63.4, "%", "breach", bound=10.0), title="Input-bound", evidence=(ADVICE,))
STEP = step_time(42.0)
BUSY = replace(device_busy(None, "unknown"), why="no device: leave the limit out")
OVER, OPEN = "max-input-bound 10%", "min-device-busy 80%"


def outcome(*several: Judged, hosts: tuple[str, ...] = ("a",), notes: tuple[str, ...] = ()) -> Outcome:
    return Outcome(judged=several, run="2026_01_01", folder="/logs/run", hosts=hosts, step_count=12, notes=notes)


def test_the_line_of_an_outcome_begins_with_what_it_came_to() -> None:
    assert repr(outcome(INPUT)).startswith("Outcome(exit_code=3, judged=<1>")


def compared(verdict: RegressionVerdict, low: float, high: float, tolerance: float = 0.05) -> Judged:
    """A judged regression, of which the interval of the ratio is known."""
    ratio = Ratio((low + high) / 2, low, high, 0.95)
    comparison = StepComparison(
        verdict=verdict,
        ratio=ratio,
        tolerance=tolerance,
        stat="mean",
        before_ms=40.0,
        after_ms=40.0 * ratio.value,
        before_steps=30,
        after_steps=50,
        before_host="a",
        after_host="b",
        steps_needed=None,
        why="the reason",
    )
    status: dict[RegressionVerdict, Status] = {"slower": "breach", "not slower": "pass", "inconclusive": "unknown"}
    return Judged(
        limit=Limit("max-regression 5%", Metric("regression"), "<=", 100.0 * tolerance),
        status=status[verdict],
        title="Regression",
        measured=100.0 * (ratio.value - 1),
        unit="%",
        host="",
        why="the reason",
        comparison=comparison,
    )


def limit_row(one: Judged) -> dict[str, object]:
    """The row of the table of limits for one limit."""
    (table,) = check_report(outcome(one)).sections[0].tables
    return {key: values[0] for key, values in table.data.items()}


def baseline_row(one: Judged) -> dict[str, object]:
    section = next(section for section in check_report(outcome(one)).sections if section.name == "baseline")
    return {key: values[0] for key, values in section.tables[0].data.items()}


@pytest.mark.parametrize(
    ("several", "verdict", "exit_code", "text"),
    [
        ((STEP,), "pass", 0, "PASS. The limit passed."),
        ((STEP, STEP), "pass", 0, "PASS. All 2 limits passed."),
        ((STEP, INPUT), "breach", 3, f"FAIL: {OVER}. 1 of 2 limits passed."),
        ((STEP, BUSY), "unknown", 1, f"UNKNOWN: {OPEN}. 1 of 2 limits passed."),
        ((INPUT, BUSY), "breach", 3, f"FAIL: {OVER}. UNKNOWN: {OPEN}. 0 of 2 limits passed."),
        ((), "unknown", 1, "UNKNOWN. No limits were given, so nothing was checked."),
        ((INPUT,) * 7, "breach", 3, f"FAIL: {', '.join([OVER] * 5)} and 2 more. 0 of 7 limits passed."),
    ],
)
def test_the_verdict_comes_first(several: tuple[Judged, ...], verdict: str, exit_code: int, text: str) -> None:
    report = check_report(outcome(*several))
    (finding,) = report.sections[0].findings
    assert (report.sections[0].name, finding.text, finding.code) == ("check", text, verdict)
    assert (report.summary["verdict"], report.summary["exit_code"]) == (verdict, exit_code)
    assert headline(outcome(*several)) == text


def test_the_summary_counts() -> None:
    report = check_report(outcome(STEP, STEP, INPUT, BUSY))
    assert report.summary == {
        "verdict": "breach",
        "exit_code": 3,
        "limits": 4,
        "passed": 2,
        "breached": 1,
        "unknown": 1,
        "despite_doubt": 0,
        "step_count": 12,
        "step_kind": None,
        "other_step_kinds": {},
    }
    assert report.source == {"run": "2026_01_01", "folder": "/logs/run", "hosts": ["a"]}


@pytest.mark.parametrize(
    ("one", "measured", "margin_text", "margin"),
    [
        (INPUT, "63.4%", "53.4 points over", -53.4),
        (STEP, "42.0 ms", "8.00 ms left", 8.0),
        (step_time(50.0), "50.0 ms", "at the bound", 0.0),
        (step_time(50.001, "breach"), "50.001 ms", "0.001 ms over", -0.001),
        (replace(INPUT, measured=10.0004), "10.0004%", "<0.1 points over", -0.0004),
        (device_busy(60.0, "breach"), "60.0%", "20.0 points short", -20.0),
        (device_busy(85.0, "pass"), "85.0%", "5.0 points left", 5.0),
        (judged("max-memory 1GiB", 2.0**31, "bytes", "breach", bound=2.0**30), "2.15 GB", "1.07 GB over", -(2.0**30)),
        (judged("max-retraces 0", 2.0, "count", "breach", bound=0.0), "2", "2 over", -2.0),
        (judged("x <= 5", 1234572.0, "count", "breach", bound=5.0), "1,234,572", "1,234,567 over", -1234567.0),
        (judged("sum(x) < 5us", 3.0, "us", bound=5.0, relation="<"), "3.00 us", "2.00 us left", 2.0),
        (judged("sum(x) < 5", 3e6, "ps", bound=5e6, relation="<"), "3000000 ps", "2000000 ps left", 2e6),
        (BUSY, None, None, None),
    ],
)
def test_each_row_has_what_was_measured_and_the_margin(
    one: Judged, measured: str | None, margin_text: str | None, margin: float | None
) -> None:
    row = limit_row(one)
    assert (row["measured_text"], row["margin_text"]) == (measured, margin_text)
    assert row["margin"] == (None if margin is None else pytest.approx(margin))
    assert (row["measured"], row["bound"], row["result"]) == (one.measured, one.limit.bound, one.status)


@pytest.mark.parametrize("absurd", [float("nan"), float("inf"), -float("inf")])
def test_a_value_that_is_not_a_number_is_not_shown(absurd: float) -> None:
    one = replace(BUSY, measured=absurd)
    assert {limit_row(one)[key] for key in ("measured_text", "margin_text", "margin")} == {None}
    for name in ("table", "markdown", "csv", "json"):
        text = render(check_report(outcome(one)), name).lower()
        assert not re.search(r"\b(nan|inf|infinity)\b", text)


def test_the_host_is_named_where_there_are_several() -> None:
    slow = replace(step_time(61.0, "breach"), host="worker-1")
    alone, several = (render(check_report(outcome(slow, hosts=hosts)), "table") for hosts in (("a",), ("a", "b")))
    assert "on worker-1" not in alone.splitlines()[1]
    assert "61.0 ms on worker-1" in several.splitlines()[1]
    assert "Steps checked  12  on the host with the fewest" in several
    assert sentence(slow) == "max-step-time is 61.0 ms on host worker-1; the limit is at most 50.0 ms."


@pytest.mark.parametrize(
    ("relation", "demand"), [("<", "less than"), ("<=", "at most"), (">", "more than"), (">=", "at least")]
)
def test_a_sentence_says_what_is_allowed(relation: Relation, demand: str) -> None:
    one = judged("x 5", 5.0, "count", "breach", bound=5.0, relation=relation)
    assert sentence(one) == f"x is 5; the limit is {demand} 5."


def test_each_breach_has_its_evidence_and_each_unknown_its_reason() -> None:
    again = replace(ADVICE, text="The same advice in other words.")
    also = replace(STEP, status="breach", measured=61.0, evidence=(again,), why="of 12 steps.")
    section = check_report(outcome(INPUT, also, BUSY)).sections[-1]
    assert section.name == "why"
    assert [(finding.severity, finding.text) for finding in section.findings] == [
        ("problem", "Input-bound is 63.4%; the limit is at most 10.0%."),
        ("problem", ADVICE.text),
        ("problem", "max-step-time is 61.0 ms; the limit is at most 50.0 ms (of 12 steps)."),
        ("hint", "min-device-busy 80% could not be checked: no device: leave the limit out"),
    ]
    assert check_report(outcome(BUSY)).sections[-1].findings[0].severity == "problem"
    assert [section.name for section in check_report(outcome(STEP)).sections] == ["check"]


def test_without_a_trace_every_limit_is_unknown() -> None:
    without_trace = not_judged([INPUT.limit, STEP.limit], "logs/ does not exist")
    assert open_questions(without_trace) == [
        ("max-input-bound 10%, max-step-time 50ms could not be checked", "logs/ does not exist")
    ]
    assert (without_trace.exit_code, without_trace.hosts, without_trace.step_count) == (1, (), 0)
    assert [(one.status, one.why) for one in without_trace.judged] == [("unknown", "logs/ does not exist")] * 2
    assert check_report(without_trace).source == {}
    assert check_report(without_trace).sections[0].facts == ()


def test_the_baseline_is_shown_with_its_interval() -> None:
    slower = compared("slower", 1.081, 1.142)
    row = baseline_row(slower)
    assert (row["interval"], row["allowed"], row["result"]) == ("8.1% to 14.2%", "5%", "breach")
    assert (row["before_ms"], row["ratio_low"], row["before_steps"], row["after_host"]) == (40.0, 1.081, 30, "b")
    assert check_report(outcome(slower)).sections[1].tables[0].note == "the reason"
    assert limit_row(slower)["measured_text"] == "11.1% (8.1% to 14.2%)"
    assert limit_row(slower)["margin_text"] is None


def test_a_regression_in_a_sentence() -> None:
    assert sentence(compared("slower", 1.0504, 1.1496)) == (
        "Steps take 10.0% longer than in the baseline (95% confidence interval: 5.04% to 15.0%); the tolerance is 5%."
    )


def test_runs_that_cannot_be_compared_have_no_ratio() -> None:
    unfair = replace(compared("slower", 1.3, 1.5), status="unknown", measured=None, why="The devices differ.")
    row = baseline_row(unfair)
    assert (row["result"], row["verdict"], row["before_ms"]) == ("unknown", "inconclusive", 40.0)
    assert (row["change_percent"], row["interval"], row["ratio"], row["ratio_low"]) == (None, None, None, None)
    assert check_report(outcome(unfair)).sections[1].tables[0].note == "The devices differ."


def test_the_digits_of_an_interval_never_contradict_the_result() -> None:
    """The interval decides: 1.0504 lies above 5 %, although it is 5.0 % in the usual form."""
    assert "(5.04% to 9.0%)" in str(limit_row(compared("slower", 1.0504, 1.09))["measured_text"])
    assert "4.9996%" in str(limit_row(compared("not slower", 0.98, 1.049996))["measured_text"])
    assert "(0.0% to 5.0%)" in str(limit_row(compared("not slower", 1.0, 1.05))["measured_text"])
    assert limit_row(compared("not slower", 0.9996, 1.0))["measured_text"] == "0.0% (0.0% to 0.0%)"


def test_a_comparison_without_an_interval() -> None:
    one = compared("inconclusive", 1.0, 1.1)
    bare = replace(one, measured=None, comparison=replace(known(one.comparison), ratio=None, before_ms=None))
    assert {baseline_row(bare)[key] for key in ("interval", "change_percent", "before_ms", "ratio")} == {None}
    for name in FORMATS:
        assert render(check_report(outcome(bare)), name)


# --- formats ---

HOSTILE = "</script>|`x`\x1b[31m\r\n::error::" + "long/name:" * 400


def test_it_fits_80_columns() -> None:
    several = (replace(INPUT, host=HOSTILE, why=HOSTILE), STEP, BUSY, compared("slower", 1.08, 1.14))
    text = render(check_report(outcome(*several, hosts=("a", HOSTILE), notes=(HOSTILE,))), "table")
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_all_formats_hold_the_same_figures() -> None:
    report = check_report(outcome(INPUT, STEP, BUSY, notes=("a note",)))
    document = json.loads(render(report, "json"))
    (row, *_) = document["sections"]["check"]["tables"]["limits"]["rows"]
    assert (row["measured"], row["unit"], row["relation"], row["bound"]) == (63.4, "%", "<=", 10.0)
    assert row["evidence"] == "Steps wait 60% of their time for tf.data, in Map. use AUTOTUNE"
    (first, *_) = csv.DictReader(io.StringIO(render(report, "csv")))
    assert (first["measured"], first["margin"], first["result"]) == ("63.4", "-53.4", "breach")
    assert "| max-input-bound 10% | 63.4%" in render(report, "markdown")
    assert "a note" in render(report, "table")


# --- digits that agree with the result ---

UNITS: tuple[Unit, ...] = ("ms", "us", "ps", "%", "count", "bytes", "")
SIZES = {"B": 1, **{f"{letter}B": 1000**power for power, letter in enumerate("kMGTPE", start=1)}}


@pytest.mark.parametrize(
    ("measured", "bound", "unit", "texts"),
    [
        (63.4123, 10.0, "%", ("63.4", "10.0")),
        (10.0, 10.0, "%", ("10.0", "10.0")),
        (10.004, 10.0, "%", ("10.004", "10.000")),
        (9.96, 10.0, "%", ("9.96", "10.00")),
        (100.0, 99.99, "%", ("100.00", "99.99")),
        (0.0, 0.001, "%", ("0.000", "0.001")),
        (0.04, 0.05, "%", ("0.04", "0.05")),
        (63.4, 12.34, "%", ("63.40", "12.34")),
        (49.96, 50.0, "ms", ("49.96", "50.00")),
        (1234.5, 50.0, "ms", ("1234", "50.0")),
        (0.0001, 0.0002, "us", ("0.0001", "0.0002")),
        (2.0, 0.0, "count", ("2", "0")),
        (1234567.0, 1000.0, "count", ("1,234,567", "1,000")),
        (0.5, 1.0, "count", ("0.5", "1")),
        (1536.0, 2048.0, "bytes", ("1.54 kB", "2.05 kB")),
        (10.0 * 2**30 + 1, 10.0 * 2**30, "bytes", ("10.737418241 GB", "10.737418240 GB")),
        (1e-300, 2e-300, "", ("1e-300", "2e-300")),
        (math.nan, 10.0, "%", ("-", "10.0")),
    ],
)
def test_as_many_digits_are_shown_as_it_takes_to_compare(
    measured: float, bound: float, unit: Unit, texts: tuple[str, str]
) -> None:
    assert shown_together(measured, bound, unit) == texts


def number_seen(text: str) -> Fraction:
    """The number that a reader sees; `<` and `>` put it just below or above."""
    number, _, unit = text.replace(",", "").partition(" ")
    side = {"<": -1, ">": 1}.get(text[0], 0)
    seen: Fraction = Fraction(number.lstrip("<>")) * SIZES.get(unit, 1) + side * Fraction(1, 10**400)
    return seen


NUMBERS = st.floats(-1e15, 1e15) | st.floats(0, 200) | st.integers(0, 10**9).map(float) | st.just(0.0)


@given(NUMBERS, st.floats(-1e-3, 1e-3) | st.just(0.0), st.sampled_from(UNITS))
@example(10.0, 5e-324, "%")
@example(100.0, -1e-16, "%")
@example(999500000000000.0, 0.0, "bytes")
def test_texts_compare_as_their_numbers_do(bound: float, change: float, unit: Unit) -> None:
    for measured in (bound * (1 + change), math.nextafter(bound, math.inf), math.nextafter(bound, -math.inf)):
        left, right = (number_seen(text) for text in shown_together(measured, bound, unit))
        assert (left > right, left < right) == (measured > bound, measured < bound)


def gauges(*several: Judged) -> list[str]:
    lines = render(check_report(outcome(*several)), "table").splitlines()
    return lines[: lines.index("")]


def test_the_first_line_is_the_result_and_each_limit_has_a_gauge() -> None:
    lines = gauges(STEP, INPUT, BUSY)
    assert lines[0].startswith(f"FAIL: {OVER}. ")
    assert lines[-1] == "| marks the limit."
    words = {line.split()[0]: line for line in lines[-4:-1]}
    assert set(words) == {"PASS", "FAIL", "UNKNOWN"}
    assert re.search(r"42.0 ms  #+[.]+\|[.]+$", words["PASS"])
    assert re.search(r"63.4%  #+\|#+$", words["FAIL"])
    assert words["UNKNOWN"].endswith(" -")
    assert max(map(len, lines)) <= 80
    assert gauges(STEP)[0] == "PASS. The limit passed."
    assert gauges(BUSY)[0].startswith(f"UNKNOWN: {OPEN}. ")


@pytest.mark.parametrize("measured", [0.0, -5.0, 1e300, math.inf, math.nan])
def test_gauges_of_unusual_values_fit_a_line(measured: float) -> None:
    long = replace(judged(f"x{'y' * 100} <= 0", measured, "ms", bound=0.0), host="worker")
    assert max(map(len, gauges(long, STEP))) <= 80
