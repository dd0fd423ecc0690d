from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, event, host, line, plane, ref, trace_of

from tfperf.sections.functions.eager import EagerOps, find_eager_ops, sum_eager_ops
from tfperf.trace.find_steps import find_steps


def run_eagerly(op: str, start_us: float, duration_us: float, *, is_func: int = 0) -> Event:
    return event("EagerExecute", start_us, duration_us, is_func=is_func, eager_op=ref(op))


def steps_of(count: int = 4) -> list[Event]:
    """Marked steps of 100 us, back to back."""
    return [event("train", 100 * n, 100, step_num=n) for n in range(count)]


def eager_ops(tmp_path: Path, *events: Event) -> EagerOps:
    trace = trace_of(tmp_path, host(*events))
    return find_eager_ops(trace, find_steps(trace))


def test_share_of_steps_and_ops(tmp_path: Path) -> None:
    """MatMul 20 us and Add 10 us in each step: 30 % of it, two ops a step; a function and a fetch are none."""
    calls = []
    for n in range(4):
        calls += [
            run_eagerly("IteratorGetNext", 100 * n, 5),
            run_eagerly("MatMul", 100 * n + 10, 20),
            run_eagerly("AddV2", 100 * n + 40, 10),
            run_eagerly("__inference_f_3", 100 * n + 60, 30, is_func=1),
        ]
    eager = eager_ops(tmp_path, *steps_of(), *calls)
    assert eager.percent == pytest.approx(30.0)
    assert eager.calls_per_step == 2.0
    assert eager.columns() == {
        "op_type": ["MatMul", "AddV2"],
        "calls": [4, 4],
        "total_ms": [0.08, 0.04],
        "mean_ms": [0.02, 0.01],
    }
    assert list(eager.table["op_type"]) == ["MatMul", "AddV2"]


def test_older_traces_name_the_op_in_the_event(tmp_path: Path) -> None:
    ops = [event("EagerExecute: LogicalAnd", 100 * n, 10) for n in range(4)]
    functions = [event("EagerExecute: __inference_f_12", 100 * n + 20, 10) for n in range(4)]
    eager = eager_ops(tmp_path, *steps_of(), *ops, *functions)
    assert eager.op_types == ("LogicalAnd",)
    assert eager.percent == pytest.approx(10.0)


def test_what_a_py_function_runs_is_no_part_of_the_step(tmp_path: Path) -> None:
    worker = line("worker", event("map/EagerPyFunc:EagerPyFunc", 0, 50), run_eagerly("Sin", 10, 20), id=9)
    main = line("python", *steps_of(), run_eagerly("Cos", 310, 20), id=8)
    trace = trace_of(tmp_path, plane("/host:CPU", main, worker))
    assert find_eager_ops(trace, find_steps(trace)).op_types == ("Cos",)


def test_parallel_threads_count_once(tmp_path: Path) -> None:
    """Two threads run ops in the same 20 us of a step: 20 us of its wall time."""
    threads = [line(f"t{n}", run_eagerly("Sin", 110, 20), id=n + 2) for n in range(2)]
    trace = trace_of(tmp_path, plane("/host:CPU", line("python", *steps_of(), id=1), *threads))
    eager = find_eager_ops(trace, find_steps(trace))
    assert eager.eager_ps.tolist() == [0, 20_000_000, 0, 0]
    assert eager.columns()["total_ms"] == [0.04]


def test_without_eager_events_the_share_is_unknown(tmp_path: Path) -> None:
    eager = eager_ops(tmp_path, *steps_of(), event("f", 10, 20, tf_function_call=ref("notTraced-nonXla")))
    assert (eager.is_recorded, eager.percent, eager.calls_per_step) == (False, None, None)


def test_without_steps_there_is_no_share(tmp_path: Path) -> None:
    eager = eager_ops(tmp_path, run_eagerly("Sin", 0, 10))
    assert (eager.percent, eager.op_types) == (None, ("Sin",))


def test_hosts_are_added_up(tmp_path: Path) -> None:
    """One host with 20 us of 400, one with none of 400: 2.5 % of all steps."""
    with_op = eager_ops(tmp_path, *steps_of(), run_eagerly("Sin", 110, 20))
    with_function = eager_ops(tmp_path, *steps_of(), run_eagerly("__inference_f_1", 110, 20, is_func=1))
    both = sum_eager_ops([with_op, with_function])
    assert both.percent == pytest.approx(2.5)
    assert both.calls_per_step == pytest.approx(1 / 8)
    assert both.columns()["calls"] == [1]


def test_without_steps_the_share_of_the_capture_is_known(tmp_path: Path) -> None:
    eager = eager_ops(tmp_path, run_eagerly("MatMul", 0, 20), run_eagerly("Add", 80, 20))
    assert (eager.percent, eager.percent_of_capture) == (None, 40.0)
    assert sum_eager_ops([eager, eager]).percent_of_capture == 40.0
