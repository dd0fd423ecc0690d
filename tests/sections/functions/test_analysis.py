from __future__ import annotations

from pathlib import Path

from builders import event, host, host_of, ref, trace_of

from tfperf.sections.functions.analysis import Functions, combine


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
