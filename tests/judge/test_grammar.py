"""Limits as text: what they mean, where a mistake stands, and that they can be written as they were read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tfperf.base.units import Unit
from tfperf.judge.grammar import (
    FUNCTIONS,
    column_of,
    holds_numbers,
    limit_tables,
    metric_text,
    read_limit,
    unit_measured,
)
from tfperf.judge.limits import FIGURES, Condition, LimitError, Metric, bound_text
from tfperf.sections.diagnosis.diagnose import NEEDS

GIB = 1 << 30


def column(table: str, name: str, function: str = "", *conditions: tuple[Any, Any, Any]) -> Metric:
    return Metric(name, table, function, tuple(Condition(*condition) for condition in conditions))


@pytest.mark.parametrize(
    ("text", "metric", "bound"),
    [
        ("input_bound <= 10%", Metric("input_bound"), ("<=", 10, "%")),
        ("step_time<50ms", Metric("step_time"), ("<", 50, "ms")),
        ("p95 ( step_time ) < 0.05s", Metric("step_time", function="p95"), ("<", 50, "ms")),
        ("device_busy>=70", Metric("device_busy"), (">=", 70, "%")),
        ("retraces<=0", Metric("retraces"), ("<=", 0, "count")),
        ("input_cost < 20%", Metric("input_cost"), ("<", 20, "%")),
        ("cause_cost[compilation] <= 10%", Metric("cause_cost", cause="compilation"), ("<=", 10, "%")),
        ("cause [ warm_up ] <= 0", Metric("cause", cause="warm_up"), ("<=", 0, "")),
        ("memory < 1.5GiB", Metric("memory"), ("<", 1.5 * GIB, "bytes")),
        (
            "kernels.total_us[name~nccl]<500",
            column("kernels", "total_us", "", ("kernel_name", "~", "nccl")),
            ("<", 500, "us"),
        ),
        (
            " sum( kernels.total_us [ kernel ~ nccl , occurrences > 1 ] ) <= 0.5ms ",
            column("kernels", "total_us", "sum", ("kernel", "~", "nccl"), ("occurrences", ">", 1.0)),
            ("<=", 500, "us"),
        ),
        (
            "p95(steps.step_time_ms[kind=train,averaged=yes])<20ms",
            column("steps", "step_time_ms", "p95", ("kind", "=", "train"), ("averaged", "=", "true")),
            ("<", 20, "ms"),
        ),
        (
            """ops.self_percent[op_name !~ "a, \\d+ ""b"" ]", op_type != 'it''s'] < 3 %""",
            column("ops", "self_percent", "", ("op_name", "!~", 'a, \\d+ "b" ]'), ("op_type", "!=", "it's")),
            ("<", 3, "%"),
        ),
        ("launches.delay_median_us>-5", column("launches", "delay_median_us"), (">", -5, "us")),
        (
            "count(memory_allocators.peak_bytes[peak_bytes>1MB]) < 2",
            column("memory_allocators", "peak_bytes", "count", ("peak_bytes", ">", 1e6)),
            ("<", 2, "count"),
        ),
    ],
)
def test_a_limit_is_read_into_its_parts(text: str, metric: Metric, bound: tuple[str, float, Unit]) -> None:
    limit = read_limit(text, "here")
    assert limit.metric == metric
    assert (limit.relation, limit.bound, unit_measured(limit.metric)) == bound
    assert not limit.or_none
    assert (limit.text, limit.origin) == (text.strip(), "here")


@pytest.mark.parametrize("end", [" or none", "  or\tnone ", "\nor none"])
def test_a_limit_may_hold_where_there_is_no_row(end: str) -> None:
    text = "kernels.total_us[name~'x or none'] < 5us"
    plain, with_end = read_limit(text), read_limit(text + end)
    assert (plain.or_none, with_end.or_none) == (False, True)
    assert with_end == replace(plain, or_none=True, text=(text + end).strip())


@pytest.mark.parametrize(
    ("text", "character", "message"),
    [
        # What is limited.
        ("", 1, "a figure or table.column is missing"),
        ("<= 10%", 1, "write, for example, input_bound <= 10%"),
        ("input_bond <= 10%", 1, "unknown figure input_bond: did you mean input_bound?"),
        ("max-input-bound <= 10%", 1, "max is a function: write max(table.column)"),
        ("kernls.total_us < 5", 1, "unknown table kernls: did you mean kernels"),
        ("zzzzqq.total_us < 5", 1, "tfperf query --schema lists all tables"),
        ("events.duration_ps < 5", 1, "events contains recorded events: use a table of the analysis"),
        ("host_steps.step_time_ms < 5", 1, "use the table steps"),
        ("kernels < 5", 1, "kernels is a table: write kernels.COLUMN, where COLUMN is rank, percent"),
        ("kernels. < 5", 10, "the name of a column is missing"),
        ("kernels.totl_us < 5", 9, "kernels has no column totl_us: did you mean total_us?"),
        ("kernels.kernel < 5", 9, "kernels.kernel is not numeric: use count(kernels.kernel)"),
        ("avg(step_time) < 5ms", 1, "unknown function avg: choose one of sum, max"),
        ("maxx(step_time) < 5ms", 1, "did you mean max?"),
        ("sum(memory) < 5GiB", 5, "sum(memory) is not possible: memory has one value per host"),
        ("max(step_time < 5ms", 15, "a ) is missing"),
        ("cause_cost <= 10%", 12, "cause_cost requires a cause: write cause_cost[compilation]"),
        ("cause_cost[compile] <= 10%", 12, "unknown cause 'compile': did you mean compilation"),
        ("cause_cost[compilation <= 10%", 24, "a ] is missing"),
        ("input_cost[compilation] <= 10%", 11, "one of < <= > >= is missing"),
        # Relation and bound.
        ("input_bound", 12, "one of < <= > >= is missing"),
        ("input_bound = 10%", 13, "= is not one of < <= > >="),
        ("input_bound <=", 15, "the bound is missing"),
        ("input_bound <= 300%", 16, "could never be breached"),
        ("input_bound <= 10% or so", 16, "'10% or so' is not a number"),
        ("input_bound <= 10% or none", 19, "`or none` applies only to limits on a table column"),
        ("kernels.total_us < or none", 20, "'or none' is not a number"),
        ("kernels.percent < 0.5", 19, "may mean 50% or 0.5%"),
        ("kernels.total_us < 5%", 20, "kernels.total_us: '5%' has the wrong unit: the value is in us"),
        ("count(kernels.kernel) < 5ms", 25, "the value is a count"),
        # Conditions.
        ("kernels.total_us[] < 5", 18, "the column of a condition is missing"),
        ("kernels.total_us[name] < 5", 22, "a condition requires one of ~ !~ = != < <= > >="),
        ("kernels.total_us[name~] < 5", 23, "the value of the condition is missing"),
        ("kernels.total_us[name~a b] < 5", 25, "put values with spaces, commas or brackets in quotes"),
        ("kernels.total_us[name~a < 5", 25, "a , or ] is missing"),
        ("kernels.total_us[name~'a] < 5", 23, "put special characters in quotes"),
        ("kernels.total_us[name~(] < 5", 23, "'(' is not a regular expression: missing )"),
        ("kernels.total_us[name~a{2000}] < 5", 23, "is not a regular expression: invalid repetition size"),
        ("kernels.total_us[name>3] < 5", 22, "is not numeric: compare it with ~ !~ = or !="),
        ("kernels.total_us[occurrences~3] < 5", 29, "is numeric: compare it with"),
        ("kernels.total_us[occurrences=x] < 5", 30, "occurrences: 'x' is not a number"),
        ("kernels.total_us[total_us>5%] < 5", 27, "total_us: '5%' has the wrong unit: the value is in us"),
        ("steps.step_time_ms[averaged~true] < 5", 28, "compare it with = or !="),
        ("steps.step_time_ms[averaged=maybe] < 5", 29, "averaged is true or false, not 'maybe'"),
        ("x" * 3000, 1, "longer than 2000 characters"),
    ],
)
def test_a_mistake_is_reported_with_its_place_and_what_to_write(text: str, character: int, message: str) -> None:
    with pytest.raises(LimitError) as raised:
        read_limit(text, "here")
    error = str(raised.value)
    assert error.startswith("here: limit ")
    assert message in error
    assert f"character {character}:" in error
    assert len(error) < 500


def test_control_characters_never_reach_the_message() -> None:
    for text in ("input\n_bound", "\x1b[31m < 5", 'steps.step_time_ms[name~"\n("] < 5', "step_time < 5\nm s"):
        with pytest.raises(LimitError) as raised:
            read_limit(text)
        assert str(raised.value).isprintable()


def test_limits_are_on_tables_of_the_analysis_by_all_their_names() -> None:
    assert {"steps", "steps_by_host", "kernels", "functions", "tf_functions", "iterators"} <= limit_tables().keys()
    assert not {"events", "host_files", "host_steps"} & limit_tables().keys()
    assert [name for name, table in limit_tables().items() if column_of(name, table.name_key) is None] == []


@pytest.mark.parametrize("table", ["memory_allocators", "launches", "idle_devices"])
def test_bounds_on_columns_have_the_unit_that_the_table_declares(table: str) -> None:
    for column in limit_tables()[table].columns:
        if holds_numbers(column):
            assert unit_measured(Metric(column.key, table)) == column.unit
        assert unit_measured(Metric(column.key, table, "count")) == "count"


@given(st.text(max_size=60) | st.text("inpt_boudkers.al[]()~!<>=0123456789%ms, \"'", max_size=60))
def test_any_text_is_a_limit_or_a_limit_error(text: str) -> None:
    limit, message = None, ""
    try:
        limit = read_limit(text)
    except LimitError as error:
        message = str(error)
    assert message.isprintable()
    assert limit is None or read_limit(limit.text) == limit


NUMBERS = st.floats(0, 1e12).filter(lambda value: value == 0 or value > 1e-12)
COLUMNS = [(name, column) for name, table in limit_tables().items() for column in table.columns]


@st.composite
def conditions(draw: st.DrawFn, table: str) -> Condition:
    column = draw(st.sampled_from(limit_tables()[table].columns))
    if holds_numbers(column):
        return Condition(column.key, draw(st.sampled_from(("=", "!=", "<", "<=", ">", ">="))), draw(NUMBERS))
    values = st.sampled_from(("true", "false")) if column.dtype is bool else st.text(max_size=20)
    return Condition(column.key, draw(st.sampled_from(("=", "!="))), draw(values))


@st.composite
def metrics(draw: st.DrawFn) -> Metric:
    if draw(st.booleans()):
        name = draw(st.sampled_from(sorted(FIGURES)))
        cause = draw(st.sampled_from(sorted(NEEDS))) if FIGURES[name].of_cause else ""
        return Metric(name, function=draw(st.sampled_from(("", *FIGURES[name].functions))), cause=cause)
    table, column = draw(st.sampled_from(COLUMNS))
    functions = ("", *FUNCTIONS) if holds_numbers(column) else ("count",)
    chosen = tuple(draw(st.lists(conditions(table), max_size=3)))
    return Metric(column.key, table, draw(st.sampled_from(functions)), chosen)


@given(metrics(), st.sampled_from(("<", "<=", ">", ">=")), st.floats(1, 100))
def test_a_limit_is_written_as_it_can_be_read(metric: Metric, relation: str, bound: float) -> None:
    text = f"{metric_text(metric)} {relation} {bound_text(bound, unit_measured(metric))}"
    limit = read_limit(text)
    assert (limit.metric, limit.relation, limit.bound) == (metric, relation, bound)
