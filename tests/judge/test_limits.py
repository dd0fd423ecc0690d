"""Limits by name, bounds as people write them, which of several counts, and what becomes of a limit."""

from __future__ import annotations

import math
from contextlib import nullcontext
from itertools import product

import pytest

from tfperf.base.units import Unit
from tfperf.judge.grammar import read_limit
from tfperf.judge.limits import (
    EXAMPLES,
    FIGURES,
    NAMED,
    Limit,
    LimitError,
    Metric,
    NamedLimits,
    Relation,
    bound_text,
    check_bound,
    merged,
    named_limit,
    named_limits,
    quoted,
    read_bound,
    regression_tolerance,
)
from tfperf.judge.measure import Measurement, unknown
from tfperf.report.model import Status

GIB = 1 << 30


# --- named limits ---


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("max-input-bound", "10%", 10.0),
        ("max-input-bound", "10", 10.0),
        ("max_input_bound", " 7.5 % ", 7.5),
        ("max-input-bound", "0%", 0.0),
        ("max-input-bound", "0.1%", 0.1),
        ("max-step-time", "50ms", 50.0),
        ("max-step-time", "0.05s", 50.0),
        ("max-step-time", "250us", 0.25),
        ("max-step-time", "1.5 min", 90_000.0),
        ("min-device-busy", "70%", 70.0),
        ("max-memory", "10GiB", 10.0 * GIB),
        ("max-memory", "500MB", 5e8),
        ("max-memory", "4096B", 4096.0),
        ("max-retraces", "0", 0.0),
        ("max-cost", "compilation=10%", 10.0),
        ("max_cost", " compilation = 7.5 % ", 7.5),
        ("fail-on", "compilation", 0.0),
    ],
)
def test_a_named_limit_has_the_bound_in_the_unit_of_its_figure(name: str, value: str, bound: float) -> None:
    limit = named_limit(name, value)
    assert limit.bound == bound
    assert limit.relation == (">=" if name.startswith("min") else "<=")
    assert limit.text == f"{name.replace('_', '-')} {value.strip()}"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max-input-bound", "0.1", "'0.1' may mean 10% or 0.1%: add the unit"),
        ("max-input-bound", "101%", "at most 100%, so 101% could never be breached"),
        ("min-device-busy", "101%", "could never pass"),
        ("max-input-bound", "10ms", "'10ms' has the wrong unit: the value is a percentage, for example 10%"),
        ("max-input-bound", "-1%", "is negative"),
        ("max-input-bound", "nan", "'nan' is not a number: use 10%"),
        ("max-input-bound", "", "'' is not a number"),
        ("max-input-bound", "1e3%", "is not a number"),
        ("max-input-bound", "10 apples", "'apples' in '10 apples' is not a unit"),
        ("max-step-time", "15", "'15' has no unit: use 15ms"),
        ("max-step-time", "0ms", "a bound of 0 is not possible here: use 50ms"),
        ("max-retraces", "5%", "has the wrong unit: the value is a count"),
        ("max-retrace", "0", "unknown limit 'max-retrace': did you mean max-retraces"),
        ("max-step-time", "9" * 200 + "ms", "is not a number"),
        ("fail-on", "compilatoin", "unknown cause 'compilatoin': did you mean compilation?"),
        ("fail-on", "zzz", "unknown cause 'zzz': the causes are input_wait, input_contention, input_copy"),
        ("fail-on", "", "unknown cause ''"),
        ("fail-on", "compilation, input_wait", "lists several causes: pass each in its own option or list item"),
        ("fail-on", "compilation=10%", "unknown cause 'compilation=10%': did you mean compilation?"),
        ("max-cost", "compilation", "compilation has no bound: use compilation=10%"),
        ("max-cost", "compilation=", "'' is not a number: use 10%"),
        ("max-cost", "10%", "unknown cause '10%'"),
        ("max-cost", "compilation=5ms", "has the wrong unit"),
    ],
)
def test_an_ambiguous_or_invalid_bound_is_refused_with_a_reason(name: str, value: str, message: str) -> None:
    with pytest.raises(LimitError, match=r"^a file: ") as raised:
        named_limit(name, value, "a file")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_every_figure_has_a_named_limit_with_an_example_that_can_be_read() -> None:
    for name, named in NAMED.items():
        assert named.help.endswith(".")
        for example in named.example.split(" or "):
            cause = "compilation" if named.of_cause else ""
            assert named_limit(name, example).metric == Metric(named.name, cause=cause)
    assert {named.name for named in NAMED.values()} == set(FIGURES)
    assert {*NamedLimits.__annotations__} == {name.replace("-", "_") for name in (*NAMED, "max-regression")}


def test_limits_on_causes_can_be_given_several_times() -> None:
    first, second = named_limits("max-cost", ["compilation=10%", "input_wait=5%"])
    assert (first.metric, first.bound) == (Metric("cause_cost", cause="compilation"), 10.0)
    assert (second.metric, second.bound) == (Metric("cause_cost", cause="input_wait"), 5.0)
    assert named_limits("fail-on", "eager_ops") == (named_limit("fail-on", "eager_ops"),)
    assert named_limits("fail-on", []) == ()
    with pytest.raises(LimitError, match=r"^a file, check: takes one value, for example 10%$"):
        named_limits("max_input_bound", ["10%", "20%"], "a file", place="a file, check")
    with pytest.raises(LimitError, match="unknown limit 'max-costs': did you mean max-cost"):
        named_limits("max_costs", ["compilation=10%"])


def test_limits_on_other_causes_are_other_limits() -> None:
    of_file = [*named_limits("fail-on", ["compilation", "warm_up"], "file"), named_limit("max-cost", "warm_up=5%")]
    of_command_line = [named_limit("fail-on", "warm_up"), named_limit("max-cost", "warm_up=9%")]
    texts = [(limit.text, limit.origin) for limit in merged(of_file, of_command_line)]
    assert texts == [
        ("fail-on compilation", "file"),
        ("fail-on warm_up", "command line"),
        ("max-cost warm_up=9%", "command line"),
    ]


def test_only_skew_is_a_percentage_above_100() -> None:
    percentages = {name for name, figure in FIGURES.items() if figure.unit == "%"}
    assert percentages - {name for name, figure in FIGURES.items() if figure.is_share} == {"skew"}
    assert named_limit("max-skew", "101%").bound == 101.0


def test_a_tolerance_is_a_share() -> None:
    assert regression_tolerance("5%") == 0.05
    assert regression_tolerance("7%") == 0.07  # 7 / 100 in floats too, and not 0.07000000000000001
    assert regression_tolerance("0") == 0.0
    with pytest.raises(LimitError, match=r"max-regression: '0\.05' may mean 5% or 0\.05%"):
        regression_tolerance("0.05")


# --- limits of a file and of the command line ---


@pytest.mark.parametrize(
    ("origin", "place", "said"),
    [
        ("a file called max-skew", "", "a file called max-skew: max-skew: "),
        ("tfperf.toml, check.max_skew", "tfperf.toml, check.max_skew", "tfperf.toml, check.max_skew: "),
    ],
)
def test_a_message_says_the_place_as_it_is_given(origin: str, place: str, said: str) -> None:
    with pytest.raises(LimitError, match=f"^{said}'5 ms' "):
        named_limit("max-skew", "5 ms", origin, place=place)


def limits(*texts: str, origin: str = "file") -> list[Limit]:
    return [read_limit(text, origin) for text in texts]


def test_the_command_line_replaces_limits_of_the_file_on_the_same_metric() -> None:
    of_file = [
        named_limit("max-input-bound", "10%", "file"),
        named_limit("max-retraces", "0", "file"),
        *limits("steps.step_time_ms < 5", "input_bound >= 1%"),
    ]
    of_command_line = [named_limit("max-input-bound", "20%"), *limits("steps.step_time_ms <= 9", origin="command line")]
    assert [(limit.text, limit.origin) for limit in merged(of_file, of_command_line)] == [
        ("max-retraces 0", "file"),
        ("input_bound >= 1%", "file"),
        ("max-input-bound 20%", "command line"),
        ("steps.step_time_ms <= 9", "command line"),
    ]
    of_command_line = limits("memory < 5GiB", "memory <= 4GiB")
    assert merged((), of_command_line) == tuple(of_command_line), "all of these stay"


def test_another_function_of_the_step_time_is_another_metric() -> None:
    for first, second in product(limits("step_time < 5ms", "p95(step_time) < 9ms"), repeat=2):
        assert len(merged([first], [second])) == (1 if first == second else 2)


def limit_of(relation: Relation, bound: float = 10.0) -> Limit:
    return Limit(f"input_bound {relation} {bound}%", Metric("input_bound"), relation, bound)


@pytest.mark.parametrize(
    ("relation", "value", "result"),
    [
        ("<", 10.0, False),
        ("<", math.nextafter(10.0, 0), True),
        ("<=", 10.0, True),
        ("<=", math.nextafter(10.0, 11), False),
        (">", 10.0, False),
        (">", math.nextafter(10.0, 11), True),
        (">=", 10.0, True),
        (">=", math.nextafter(10.0, 0), False),
    ],
)
def test_values_are_compared_unrounded(relation: Relation, value: float, result: bool) -> None:
    assert Measurement(value).status(limit_of(relation)) == ("pass" if result else "breach")


@pytest.mark.parametrize("relation", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_a_number_is_neither_a_pass_nor_a_breach(relation: Relation, value: float | None) -> None:
    assert Measurement(value).status(limit_of(relation)) == "unknown"


@pytest.mark.parametrize(("value", "status"), [(9.0, "unknown"), (11.0, "breach")])
def test_a_value_with_a_gap_can_only_breach_a_limit(value: float, status: Status) -> None:
    assert Measurement(value, gap="1 row is missing").status(limit_of("<=")) == status


def test_the_reason_is_the_gap_or_that_there_is_no_number() -> None:
    assert unknown("no steps").reason == "no steps"
    assert Measurement(math.nan).reason == "the measured value is not a number"


# --- bounds as people write them ---


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("5", "us", 5.0),
        ("2ms", "us", 2000.0),
        ("5", "ps", 5.0),
        ("2us", "ps", 2e6),
        ("-2us", "ms", -0.002),
        ("1.5", "", 1.5),
    ],
)
def test_a_bound_on_a_column_may_be_bare_or_negative(text: str, unit: Unit, value: float) -> None:
    assert read_bound(text, unit, bare=True, signed=True) == value


@pytest.mark.parametrize("unit", EXAMPLES)
def test_a_bound_is_written_as_it_can_be_read(unit: Unit) -> None:
    for value in (0.0, 3.0, 12.5, 1e6):
        assert read_bound(bound_text(value, unit), unit, bare=True) == value


@pytest.mark.parametrize(
    ("value", "unit", "relation", "is_share", "message"),
    [
        (100, "%", "<=", True, ""),
        (101, "%", "<=", True, "a share is at most 100%, so 101% could never be breached"),
        (101, "%", ">=", True, "a share is at most 100%, so 101% could never pass"),
        (150, "%", "<=", False, ""),
        (0, "%", "<=", True, ""),
        (0, "count", "<=", False, ""),
        (0, "ms", "<=", False, "a bound of 0 is not possible here: use 50ms"),
        (0, "bytes", "<=", False, "a bound of 0 is not possible here: use 10GiB"),
    ],
)
def test_a_bound_that_decides_nothing_is_refused(
    value: float, unit: Unit, relation: str, is_share: bool, message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$") if message else nullcontext():
        check_bound(value, unit, relation, is_share=is_share)


def test_long_texts_are_cut_in_messages() -> None:
    assert quoted("a\nb") == r"'a\nb'"
    assert quoted("x" * 200) == f"'{'x' * 80}...'"
