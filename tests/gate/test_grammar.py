from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfperf.gate.bounds import bound_text
from tfperf.gate.catalogue import NAME_COLUMNS, TABLES, column_of, type_of, unit_of
from tfperf.gate.errors import LimitError
from tfperf.gate.figures import FIGURES
from tfperf.gate.model import Condition, Metric

from tfperf.gate.grammar import FUNCTIONS, metric_text, unit_measured
from tfperf.gate.limits import parse_limit


@pytest.mark.parametrize(
    ("text", "metric", "relation", "bound", "unit"),
    [
        ("input_bound <= 10%", Metric("input_bound"), "<=", 10, "%"),
        ("step_time<50ms", Metric("step_time"), "<", 50, "ms"),
        ("p95 ( step_time ) < 0.05s", Metric("step_time", function="p95"), "<", 50, "ms"),
        ("device_busy>=70", Metric("device_busy"), ">=", 70, "%"),
        ("retraces<=0", Metric("retraces"), "<=", 0, "count"),
        ("memory < 1.5GiB", Metric("memory"), "<", 1.5 * (1 << 30), "bytes"),
        (
            "kernels.total_us[name~nccl]<500",
            Metric("total_us", "kernels", "", (Condition("kernel_name", "~", "nccl"),)), "<", 500, "us",
        ),
        (
            " sum( kernels.total_us [ kernel ~ nccl , occurrences > 1 ] ) <= 0.5ms ",
            Metric("total_us", "kernels", "sum", (
                Condition("kernel", "~", "nccl"), Condition("occurrences", ">", 1.0),
            )), "<=", 500, "us",
        ),
        (
            "p95(steps.step_time_ms[kind=train,averaged=yes])<20ms",
            Metric("step_time_ms", "steps", "p95", (
                Condition("kind", "=", "train"), Condition("averaged", "=", "true"),
            )), "<", 20, "ms",
        ),
        (
            "count(functions.function[traced_calls>1])<=0",
            Metric("function", "functions", "count", (Condition("traced_calls", ">", 1.0),)), "<=", 0, "count",
        ),
        (
            """ops.self_percent[op_name !~ "a, \\d+ ""b"" ]", op_type != 'it''s'] < 3 %""",
            Metric("self_percent", "ops", "", (
                Condition("op_name", "!~", 'a, \\d+ "b" ]'), Condition("op_type", "!=", "it's"),
            )), "<", 3, "%",
        ),
        ("launches.delay_median_us>-5", Metric("delay_median_us", "launches"), ">", -5, "us"),
        (
            "memory_allocators.peak_bytes[peak_bytes>1MB] < 2kB",
            Metric("peak_bytes", "memory_allocators", "", (Condition("peak_bytes", ">", 1e6),)), "<", 2000, "bytes",
        ),
    ],
)  # fmt: skip
def test_limits(text: str, metric: Metric, relation: str, bound: float, unit: str) -> None:
    limit = parse_limit(text, "here")
    assert (limit.metric, limit.relation, limit.bound) == (metric, relation, bound)
    assert unit_measured(limit.metric) == unit
    assert (limit.text, limit.origin) == (text.strip(), "here")


@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        ("", 1, "what is limited"),
        ("<= 10%", 1, "write it like input_bound <= 10%"),
        ("input_bond <= 10%", 1, "there is no figure input_bond: did you mean input_bound?"),
        ("max-input-bound <= 10%", 1, "max is a function: write max(table.column)"),
        ("kernls.total_us < 5", 1, "there is no table kernls: did you mean kernels"),
        ("zzzzqq.total_us < 5", 1, "tfperf query --schema lists those that there are"),
        ("events.duration_ps < 5", 1, "events holds what was recorded"),
        ("host_steps.step_time_ms < 5", 1, "its steps are in the table steps"),
        ("kernels < 5", 1, "kernels is a table: write kernels.COLUMN, where COLUMN is rank, percent"),
        ("kernels. < 5", 10, "the name of a column is missing"),
        ("kernels.totl_us < 5", 9, "kernels has no column totl_us: did you mean total_us?"),
        ("kernels.kernel < 5", 9, "kernels.kernel holds no numbers; only count(kernels.kernel)"),
        ("steps.averaged < 5", 9 - 2, "holds no numbers"),
        ("avg(step_time) < 5ms", 1, "there is no function avg: there are sum, max"),
        ("maxx(step_time) < 5ms", 1, "did you mean max or mean?"),
        ("sum(memory) < 5GiB", 5, "memory is one number for a host"),
        ("max(step_time < 5ms", 15, "a ) is missing"),
        ("max() < 5ms", 5, "a figure or table.column is missing"),
        ("input_bound", 12, "one of < <= > >= is missing"),
        ("input_bound = 10%", 13, "= is none of < <= > >="),
        ("input_bound <=", 15, "a number is missing after the relation"),
        ("input_bound <= 0.1", 16, "may mean 10% or 0.1%: write which"),
        ("input_bound <= 300%", 16, "could never be broken"),
        ("input_bound >= 300%", 16, "could never hold"),
        ("input_bound <= 10% or so", 16, "'10% or so' is no number"),
        ("input_bound <= nan", 16, "'nan' is no number"),
        ("step_time < 50", 13, "has no unit; write 50ms"),
        ("kernels.percent < 0.5", 19, "may mean 50% or 0.5%"),
        ("kernels.total_us < 5%", 20, "kernels.total_us: '5%' is given where the value is in us; write 500us"),
        ("count(kernels.kernel) < 5ms", 25, "where the value is a count"),
        ("count(kernels.kernel) < -1", 25, "is negative"),
        ("kernels.total_us[] < 5", 18, "the column of a condition is missing"),
        ("kernels.total_us[name] < 5", 22, "a condition needs one of ~ !~ = != < <= > >="),
        ("kernels.total_us[name~] < 5", 23, "the value of a condition is missing"),
        ("kernels.total_us[name~a b] < 5", 25, "put values with spaces, commas or brackets into quotes"),
        ("kernels.total_us[name~a < 5", 25, "a , or ] is missing"),
        ("kernels.total_us[name~'a] < 5", 23, "put odd characters into quotes"),
        ("kernels.total_us[name~(] < 5", 23, "'(' is no regular expression: missing )"),
        ("kernels.total_us[name~a{99999999999}] < 5", 23, "is no regular expression: it is too large"),
        ("kernels.total_us[name>3] < 5", 22, "holds no numbers: compare it with ~ !~ = or !="),
        ("kernels.total_us[occurrences~3] < 5", 29, "holds numbers: compare it with"),
        ("kernels.total_us[occurrences=x] < 5", 30, "occurrences: 'x' is no number"),
        ("kernels.total_us[total_us>5%] < 5", 27, "total_us: '5%' is given where the value is in us"),
        ("steps.step_time_ms[averaged~true] < 5", 28, "compare it with = or !="),
        ("steps.step_time_ms[averaged=maybe] < 5", 29, "averaged is true or false, not 'maybe'"),
        ("x" * 3000, 1, "longer than 2000 characters"),
    ],
)
def test_what_is_no_limit(text: str, at: int, words: str) -> None:
    with pytest.raises(LimitError) as caught:
        parse_limit(text, "here")
    message = str(caught.value)
    assert message.startswith("here: limit ")
    assert words in message
    assert f"character {at}:" in message
    assert len(message) < 500


def test_control_characters_never_reach_the_message() -> None:
    for text in ("input\n_bound", "\x1b[31m < 5", 'kernels.total_us[name~"\n("] < 5', "step_time < 5\nm s", "a.b\r<3"):
        with pytest.raises(LimitError) as caught:
            parse_limit(text)
        assert str(caught.value).isprintable()


def test_every_table_has_a_column_that_names_its_rows() -> None:
    assert set(NAME_COLUMNS) == set(TABLES)
    for table, column in NAME_COLUMNS.items():
        assert column_of(table, column) is not None, (table, column)


@given(st.text(max_size=60) | st.text("inpt_boudkers.al[]()~!<>=0123456789%ms, \"'", max_size=60))
def test_any_text_is_a_limit_or_a_limit_error(text: str) -> None:
    limit, message = None, ""
    try:
        limit = parse_limit(text)
    except LimitError as error:
        message = str(error)
    assert message.isprintable()
    assert limit is None or parse_limit(limit.text) == limit


NUMBERS = st.floats(0, 1e12).filter(lambda value: value == 0 or value > 1e-12)
COLUMNS = [(name, column) for name, table in TABLES.items() for column in table.columns]


@st.composite
def conditions(draw: st.DrawFn, table: str) -> Condition:
    column = draw(st.sampled_from(TABLES[table].columns))
    kind = type_of(column)
    if kind == "number":
        return Condition(column.name, draw(st.sampled_from(("=", "!=", "<", "<=", ">", ">="))), draw(NUMBERS))
    if kind == "truth":
        return Condition(column.name, draw(st.sampled_from(("=", "!="))), draw(st.sampled_from(("true", "false"))))
    return Condition(column.name, draw(st.sampled_from(("=", "!="))), draw(st.text(max_size=20)))


@st.composite
def metrics(draw: st.DrawFn) -> Metric:
    if draw(st.booleans()):
        name = draw(st.sampled_from(sorted(FIGURES)))
        return Metric(name, function=draw(st.sampled_from(("", *FIGURES[name].functions))))
    table, column = draw(st.sampled_from(COLUMNS))
    functions = ("", *FUNCTIONS) if type_of(column) == "number" else ("count",)
    kept = tuple(draw(st.lists(conditions(table), max_size=3)))
    return Metric(column.name, table, draw(st.sampled_from(functions)), kept)


@given(metrics(), st.sampled_from(("<", "<=", ">", ">=")), st.floats(1, 100))
def test_what_a_limit_says_can_be_read_again(metric: Metric, relation: str, bound: float) -> None:
    text = f"{metric_text(metric)} {relation} {bound_text(bound, unit_measured(metric))}"
    limit = parse_limit(text)
    assert (limit.metric, limit.relation, limit.bound) == (metric, relation, bound)


def test_units_are_those_that_the_report_declares() -> None:
    column = column_of("kernels", "total_us")
    assert column is not None
    assert unit_of(column) == "us"
