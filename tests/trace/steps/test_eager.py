"""Which events Python runs op by op."""

from __future__ import annotations

from pathlib import Path

from builders import Event, event, host, known, trace_of

from tfperf.trace.steps.eager import eager_calls, run_from_python


def test_the_innermost_of_eager_ops_and_graphs_decides(tmp_path: Path) -> None:
    """A fetch that Python runs, the graph of the pipeline inside it, and a py_function inside that."""
    events = [
        event("EagerExecute", 0, 100, is_func=0),
        event("IteratorGetNext:IteratorGetNext", 1, 90),
        event("InstantiatedCapturedFunction::Run", 2, 80),
        event("map/Cast:Cast", 3, 5),
        event("EagerExecute", 20, 50, is_func=0),
        event("py/Add:AddV2", 21, 5),
    ]
    trace = trace_of(tmp_path, host(*events))
    assert eager_calls(trace).tolist() == [0, 4]
    assert known(run_from_python(trace)).tolist() == [False, True, True, False, False, True]


def test_older_versions_say_in_the_name_what_is_run(tmp_path: Path) -> None:
    events: list[Event] = [event("EagerExecute: Add", 0, 10), event("EagerExecute: __inference_f_1", 20, 10)]
    assert eager_calls(trace_of(tmp_path, host(*events))).tolist() == [0]


def test_a_trace_that_notes_nothing_tells_nothing(tmp_path: Path) -> None:
    assert run_from_python(trace_of(tmp_path, host(event("x/MatMul:MatMul", 0, 10)))) is None
