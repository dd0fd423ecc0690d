from __future__ import annotations

from pathlib import Path

import pytest
from builders import PS_PER_US, Event, event, host, line, marks, plane, ref, trace_of

from tfperf.base.arrays import Int64s
from tfperf.sections.functions.eager import FETCHES, EagerOps, FetchKind, find_eager_ops, sum_eager_ops
from tfperf.trace.steps.find_steps import find_steps


def run_eagerly(op: str, start_us: float, duration_us: float, *, is_func: int = 0) -> Event:
    return event("EagerExecute", start_us, duration_us, is_func=is_func, eager_op=ref(op))


def in_each_step(*ops: tuple[str, float, float]) -> list[Event]:
    return [run_eagerly(op, 100 * n + start, duration) for n in range(4) for op, start, duration in ops]


def eager_ops(tmp_path: Path, *events: Event) -> EagerOps:
    trace = trace_of(tmp_path, host(*events))
    return find_eager_ops(trace, find_steps(trace))


def test_share_of_steps_and_ops(tmp_path: Path) -> None:
    """MatMul 20 us and Add 10 us in each step: 30 % of it, two ops a step; a function and a fetch are none."""
    ops = in_each_step(("IteratorGetNext", 0, 5), ("MatMul", 10, 20), ("AddV2", 40, 10))
    functions = [run_eagerly("__inference_f_3", 100 * n + 60, 30, is_func=1) for n in range(4)]
    eager = eager_ops(tmp_path, *marks(4), *ops, *functions)
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
    eager = eager_ops(tmp_path, *marks(4), *ops, *functions)
    assert eager.op_types == ("LogicalAnd",)
    assert eager.percent == pytest.approx(10.0)


def test_what_a_py_function_runs_is_no_part_of_the_step(tmp_path: Path) -> None:
    worker = line("worker", event("map/EagerPyFunc:EagerPyFunc", 0, 50), run_eagerly("Sin", 10, 20), id=9)
    main = line("python", *marks(4), run_eagerly("Cos", 310, 20), id=8)
    trace = trace_of(tmp_path, plane("/host:CPU", main, worker))
    assert find_eager_ops(trace, find_steps(trace)).op_types == ("Cos",)


def test_parallel_threads_count_once(tmp_path: Path) -> None:
    """Two threads run ops in the same 20 us of a step: 20 us of its wall time."""
    threads = [line(f"t{n}", run_eagerly("Sin", 110, 20), id=n + 2) for n in range(2)]
    trace = trace_of(tmp_path, plane("/host:CPU", line("python", *marks(4), id=1), *threads))
    eager = find_eager_ops(trace, find_steps(trace))
    assert eager.eager_ps.tolist() == [0, 20_000_000, 0, 0]
    assert eager.columns()["total_ms"] == [0.04]


def test_without_eager_events_the_share_is_unknown(tmp_path: Path) -> None:
    eager = eager_ops(tmp_path, *marks(4), event("f", 10, 20, tf_function_call=ref("notTraced-nonXla")))
    assert (eager.is_recorded, eager.percent, eager.calls_per_step) == (False, None, None)


def test_hosts_are_added_up(tmp_path: Path) -> None:
    """One host with 20 us of 400, one with none of 400: 2.5 % of all steps."""
    with_op = eager_ops(tmp_path, *marks(4), run_eagerly("Sin", 110, 20))
    with_function = eager_ops(tmp_path, *marks(4), run_eagerly("__inference_f_1", 110, 20, is_func=1))
    both = sum_eager_ops([with_op, with_function])
    assert both.percent == pytest.approx(2.5)
    assert both.calls_per_step == pytest.approx(1 / 8)
    assert both.columns()["calls"] == [1]


def test_hosts_that_recorded_nothing_do_not_count(tmp_path: Path) -> None:
    with_op, silent = eager_ops(tmp_path, *marks(4), run_eagerly("Sin", 110, 20)), eager_ops(tmp_path, *marks(4))
    assert (with_op.percent, silent.percent) == (5.0, None)
    assert sum_eager_ops([silent, with_op]).percent == 5.0
    assert sum_eager_ops([silent, silent]).percent is None


def test_steps_that_fetch_are_those_of_one_host(tmp_path: Path) -> None:
    """One host saves in three of four steps, another one in one."""
    hosts = [
        eager_ops(tmp_path, *marks(4), *(run_eagerly("SaveV2", 100 * n + 40, 20) for n in range(count)))
        for count in (1, 3)
    ]
    both = sum_eager_ops([sum_eager_ops(hosts[:1]), hosts[1]])
    percent, steps, _ = both.fetches("save")
    assert percent == pytest.approx(20.0)
    assert steps == 3


def test_without_steps_the_share_of_the_capture_is_known(tmp_path: Path) -> None:
    eager = eager_ops(tmp_path, run_eagerly("MatMul", 0, 20), run_eagerly("Add", 80, 20))
    assert (eager.percent, eager.percent_of_capture, eager.op_types) == (None, 40.0, ("Add", "MatMul"))
    assert sum_eager_ops([eager, eager]).percent_of_capture == 40.0


def microseconds(times: Int64s) -> list[float]:
    return [float(time) for time in times / PS_PER_US]


def test_python_between_ops_belongs_to_running_them_one_by_one(tmp_path: Path) -> None:
    """From 10 to 50 us of each step; the call of a function ends that, and a single op follows."""
    ops = in_each_step(("MatMul", 10, 10), ("Tanh", 40, 10), ("Add", 90, 5))
    functions = [run_eagerly("__inference_f_3", 100 * n + 60, 20, is_func=1) for n in range(4)]
    kernels = [event("EagerKernelExecute", 100 * n + 12, 6) for n in range(4)]
    kernels += [event("EagerKernelExecute", 100 * n + 62, 10) for n in range(4)]
    eager = eager_ops(tmp_path, *marks(4), *ops, *functions, *kernels)
    assert microseconds(eager.stretch_ps) == [45.0] * 4
    assert eager.stretch_percent == pytest.approx(45.0)
    assert eager.stretch_calls_per_step == 3.0
    assert eager.percent_of("kernel_ps") == pytest.approx(6.0), "only those of ops"
    assert eager.percent == pytest.approx(25.0)


def test_a_long_pause_between_ops_is_the_programs_own(tmp_path: Path) -> None:
    ops = [run_eagerly("Sin", 50_000 * n + start, 1000) for n in range(4) for start in (1000, 20_000, 24_000)]
    assert microseconds(eager_ops(tmp_path, *marks(4, 50_000), *ops).stretch_ps) == [6000.0] * 4


def test_many_ops_are_one_program_with_longer_pauses_and_python_around_them(tmp_path: Path) -> None:
    """20 ops in 40 ms, of which one pause takes 20 ms, and an eighth of that before and after them."""
    starts = [*range(30_000, 40_000, 1000), *range(60_000, 70_000, 1000)]
    ops = [run_eagerly("Sin", 100_000 * n + start, 1000) for n in range(4) for start in starts]
    assert microseconds(eager_ops(tmp_path, *marks(4, 100_000), *ops).stretch_ps) == [50_000.0] * 4


def test_where_keras_runs_eagerly_all_python_between_ops_is_its_own(tmp_path: Path) -> None:
    names = ("OptionalFromValue", 1000), ("OptionalHasValue", 20_000), ("OptionalGetValue", 24_000)
    ops = [run_eagerly(name, 50_000 * n + start, 1000) for n in range(4) for name, start in names]
    eager = eager_ops(tmp_path, *marks(4, 50_000), *ops)
    assert microseconds(eager.stretch_ps) == [24_000.0] * 4
    assert "OptionalFromValue" in eager.op_types


def test_the_ops_of_keras_own_loop_are_not_the_programs(tmp_path: Path) -> None:
    """What ends an epoch makes iterators and averages metrics; the table has these ops all the same."""
    calls = [event("multi_step_on_iterator", 100 * n, 50, tf_function_call=ref("notTraced-nonXla")) for n in range(4)]
    own = ("OptionalHasValue", 60, 5), ("MakeIterator", 70, 5), ("PrefetchDataset", 80, 5), ("DivNoNan", 90, 5)
    eager = eager_ops(tmp_path, *marks(4), *calls, *in_each_step(*own))
    assert (eager.percent, eager.stretch_percent, eager.own_types) == (0.0, 0.0, ())
    assert len(eager.op_types) == 4


@pytest.mark.parametrize(
    ("ops", "kind"),
    [
        (("ReadVariableOp", "ReadVariableOp", "SaveV2"), "save"),
        (("ReadVariableOp", "WriteHistogramSummary"), "summary"),
        (("ReadVariableOp", "ReadVariableOp", "DivNoNan"), "metrics"),
        (("ReadVariableOp", "Identity", "ReadVariableOp", "Identity"), "variables"),
    ],
)
def test_runs_of_ops_that_read_or_save_are_told_by_their_types(
    tmp_path: Path, ops: tuple[str, ...], kind: FetchKind
) -> None:
    """20 us from the first op to the last one, and 10 us before and after it, in half of the steps."""
    made = [
        run_eagerly(op, 100 * n + 40 + 20 * place / len(ops), 20 / len(ops))
        for n in (0, 2)
        for place, op in enumerate(ops)
    ]
    eager = eager_ops(tmp_path, *marks(4), *made)
    percent, count, variables = eager.fetches(kind)
    assert percent == pytest.approx(20.0)
    assert (count, variables) == (2, ops.count("ReadVariableOp"))
    assert sum(eager.fetches(each)[1] for each in FETCHES) == 2
    assert eager.stretch_percent == 0.0
    assert eager.percent == pytest.approx(10.0)


def test_what_is_written_after_the_last_step_is_no_part_of_it(tmp_path: Path) -> None:
    """Ops that follow each other, but the step ends between them: 5 us in four steps of 100 us."""
    eager = eager_ops(tmp_path, *marks(4), run_eagerly("LogicalAnd", 390, 5), run_eagerly("WriteSummary", 405, 20))
    assert eager.fetches("summary") == (0.0, 0, 0.0)
    assert eager.stretch_percent == pytest.approx(100 * 5 / 400)


@pytest.mark.parametrize(
    "ops", [("ReadVariableOp", "MatMul"), ("ReadVariableOp",), ("ReluGrad", "DivNoNan"), ("DivNoNan", "MatMul")]
)
def test_runs_that_compute_read_no_results(tmp_path: Path, ops: tuple[str, ...]) -> None:
    made = [run_eagerly(op, 100 * n + 40 + 10 * place, 10) for n in range(4) for place, op in enumerate(ops)]
    eager = eager_ops(tmp_path, *marks(4), *made)
    assert not eager.fetch_ps.any()
    assert eager.stretch_percent == pytest.approx(10.0 * len(ops))
