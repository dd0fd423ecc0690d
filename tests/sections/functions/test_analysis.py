from __future__ import annotations

from pathlib import Path

import hlo_builders
import pytest
from builders import event, host, host_of, ref, trace_of
from hlo_builders import F32, shape
from protobytes import field

from tfperf.sections.functions.analysis import Functions, changed_arguments, combine, count_calls, sum_calls
from tfperf.sections.functions.eager import find_eager_ops
from tfperf.trace.steps.steps import no_steps


def functions_of(tmp_path: Path) -> Functions:
    """A function that is traced and then called, and one op that Python runs itself."""
    thread = host(
        event("train", 0, 100, tf_function_call=ref("traced-nonXla"), tracing_count=1),
        event("train", 200, 300, tf_function_call=ref("notTraced-xla"), tracing_count=1),
        event("EagerExecute", 600, 20, is_func=0, eager_op=ref("Sin")),
    )
    functions: Functions = host_of(trace_of(tmp_path, thread), "functions")["functions"]
    return functions


def test_functions_and_eager_ops_are_one_result(tmp_path: Path) -> None:
    functions = functions_of(tmp_path)
    assert functions.columns() == {
        "function": ["train"],
        "calls": [2],
        "traced_calls": [1],
        "not_traced_calls": [1],
        "eager_calls": [0],
        "concrete_calls": [0],
        "tracing_count": [1],
        "compiler": ["XLA"],
        "compiling_calls": [0],
        "self_ms": [0.4],
        "expensive_call_percent": [25.0],
    }
    assert list(functions.table["function"]) == ["train"]
    assert functions.eager.op_types == ("Sin",)


def test_hosts_are_added_up(tmp_path: Path) -> None:
    functions = functions_of(tmp_path)
    both = combine([functions, functions])
    assert [(row.name, row.call_count) for row in both.functions] == [("train", 4)]
    assert both.eager.columns()["calls"] == [2]


def test_calls_are_counted_by_mode_with_self_time(tmp_path: Path) -> None:
    """train: traced 100 us with a helper of 40 inside, then 20 us not traced."""
    thread = host(
        event("train", 0, 100, tf_function_call=ref("traced-nonXla"), tracing_count=2),
        event("helper", 10, 40, tf_function_call=ref("traced-nonXla"), tracing_count=1),
        event("train", 200, 20, tf_function_call=ref("notTraced-nonXla"), tracing_count=2),
    )
    train, helper = count_calls(trace_of(tmp_path, thread))
    assert (train.name, train.calls) == ("train", {"notTraced": 1, "traced": 1})
    assert (train.tracing_count, train.is_compiled) == (2, False)
    assert train.total_self_ps == 80_000_000
    assert train.expensive_percent == pytest.approx(75.0)
    assert (helper.name, helper.expensive_percent) == ("helper", 100.0)


def test_compiled_and_eager_calls(tmp_path: Path) -> None:
    thread = host(
        event("f", 0, 10, tf_function_call="notTraced-xla"),
        event("g", 20, 30, tf_function_call="eager"),
        event("g", 60, 10, tf_function_call="concrete"),
    )
    trace = trace_of(tmp_path, thread)
    g, f = count_calls(trace)
    assert f.is_compiled
    assert g.expensive_percent == pytest.approx(75.0)
    assert Functions((g, f), find_eager_ops(trace, no_steps(""))).columns()["tracing_count"] == [None, None]


def test_equal_functions_are_added_up(tmp_path: Path) -> None:
    call = event("f", 0, 10, tf_function_call="traced-nonXla", tracing_count=3)
    calls = count_calls(trace_of(tmp_path, host(call)))
    (f,) = sum_calls([*calls, *calls])
    assert (f.name, f.call_count, f.total_self_ps, f.tracing_count) == ("f", 2, 20_000_000, 3)


def test_a_function_without_duration_is_not_expensive(tmp_path: Path) -> None:
    (f,) = count_calls(trace_of(tmp_path, host(event("f", 0, 0, tf_function_call="traced-nonXla")), instants=True))
    assert (f.call_count, f.expensive_percent) == (1, 0.0)


def test_no_functions(tmp_path: Path) -> None:
    assert count_calls(trace_of(tmp_path, host(event("A:A", 0, 1)))) == ()


def compiled(*shapes: bytes) -> bytes:
    """A program with parameters of these shapes."""
    made = [
        hlo_builders.instruction(1 + at, f"p{at}", "parameter", each, extra=field(9, at))
        for at, each in enumerate(shapes)
    ]
    return hlo_builders.program(hlo_builders.computation("main", *made))


def test_programs_of_one_function_say_which_argument_changes() -> None:
    batch, longer, weights = (shape(F32, *dims) for dims in ((64, 8), (70, 8), (8, 8)))
    first, second = compiled(weights, batch), compiled(weights, longer)
    assert changed_arguments([first, second, first]) == "an argument is f32[64,8] or f32[70,8]"
    assert changed_arguments([first, first]).startswith("its arguments have the same shapes, so a static value")
    assert changed_arguments([first]) == "", "nothing to compare"
    assert changed_arguments([first, compiled(weights)]) == "", "other arguments"
    assert changed_arguments([first, b"damaged"]) == ""
