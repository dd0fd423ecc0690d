from __future__ import annotations

from pathlib import Path

from builders import Event, Plane, event, host, line, plane, trace_of

from tfperf.sections.ops.analysis import op_runs
from tfperf.trace.device.device_work import device_work

CONV, RELU = "m/conv/Conv2D:Conv2D", "m/Relu:Relu"


def gpu(*kernels: Event, derived: tuple[Event, ...] = ()) -> Plane:
    return plane("/device:GPU:0", line("Stream #1", *kernels), line("TensorFlow Ops", *derived, id=-559038734))


def kernel(start: float, id: int, op: str = CONV, name: str = "gemm", **stats: str) -> Event:
    return event(name, start, 2, tf_op=op, **({"correlation_id": id} if id else {}), **stats)


def launch(start: float, id: int) -> Event:
    return event("cuLaunchKernel", start, 1, correlation_id=id)


def runs(tmp_path: Path, *planes: Plane) -> dict[str, tuple[int, bool]]:
    """op -> (runs, whether these are known)"""
    trace = trace_of(tmp_path, *planes)
    work = device_work(trace)
    found = op_runs(trace, work)
    return {
        op.hlo_op or op.name: (count, known)
        for op, count, known in zip(work.ops, found.runs.tolist(), found.is_known.tolist(), strict=True)
    }


def test_an_op_ran_as_often_as_the_host_says(tmp_path: Path) -> None:
    """Two runs of an op that launches the same kernel twice; right after them, no other op runs."""
    thread = host(
        event("ExecutorState::Process", 0, 40),
        event(CONV, 0, 10), launch(1, 1), launch(4, 2),
        event(CONV, 20, 10), launch(21, 3), launch(24, 4),
    )  # fmt: skip
    kernels = gpu(*(kernel(50 + 5 * id, id) for id in (1, 2, 3, 4)))
    assert runs(tmp_path, thread, kernels) == {"m/conv/Conv2D": (2, True)}


def test_calls_may_be_recorded_beside_the_threads_that_make_them(tmp_path: Path) -> None:
    """Two threads run the same HLO op at nearly the same time; each has a line of calls with another id."""
    threads = (
        plane("/host:CPU", line("a", event("conv.1", 0, 10), event("conv.1", 30, 10), id=101),
              line("b", event("conv.1", 5, 10), event("conv.1", 38, 10), id=102)),
        plane("/host:CUPTI", line("calls/1", launch(1, 1), launch(2, 2), launch(31, 3), id=1),
              line("calls/2", launch(12, 4), launch(39, 5), launch(45, 6), id=2)),
    )  # fmt: skip
    kernels = gpu(*(kernel(50 + 5 * id, id, hlo_op="conv.1", hlo_module="jit_f") for id in range(1, 7)))
    assert runs(tmp_path, *threads, kernels) == {"conv.1": (4, True)}


def test_in_an_executor_calls_for_one_op_that_follow_each_other_are_one_run(tmp_path: Path) -> None:
    """Conv2D launches two kernels in each run; its first run ends where Relu follows, the next with the executor."""
    thread = host(
        event("ExecutorState::Process", 0, 10), launch(1, 1), launch(2, 2), launch(3, 3), launch(4, 4), launch(5, 5),
        event("ExecutorState::Process", 20, 10), launch(21, 6), launch(22, 7),
    )  # fmt: skip
    ops = {1: CONV, 2: CONV, 3: RELU, 4: CONV, 5: CONV, 6: CONV, 7: CONV}
    kernels = (kernel(50 + 5 * id, id, op) for id, op in ops.items())
    assert runs(tmp_path, thread, gpu(*kernels)) == {"m/conv/Conv2D": (3, True), "m/Relu": (1, True)}


def test_the_order_of_launches_counts_where_streams_take_turns(tmp_path: Path) -> None:
    """Relu runs between the kernels of one run of Conv2D, so the line of ops splits that run."""
    thread = host(event("ExecutorState::Process", 0, 10), launch(1, 1), launch(2, 2), launch(3, 3))
    kernels = (kernel(50, 1), kernel(60, 2), kernel(55, 3, RELU))
    derived = (event(CONV, 50, 2), event(RELU, 55, 2), event(CONV, 60, 2))
    assert runs(tmp_path, thread, gpu(*kernels, derived=derived)) == {"m/conv/Conv2D": (1, True), "m/Relu": (1, True)}


def test_python_runs_one_op_at_a_time(tmp_path: Path) -> None:
    thread = host(*(item for n in range(3) for item in (event("EagerExecute", 10 * n, 9), launch(10 * n + 1, n + 1))))
    assert runs(tmp_path, thread, gpu(*(kernel(50 + n, n) for n in (1, 2, 3)))) == {"m/conv/Conv2D": (3, True)}


def test_a_call_of_a_graph_runs_each_op_once(tmp_path: Path) -> None:
    thread = host(event("ExecutorState::Process", 0, 10), launch(1, 1), launch(2, 2))
    kernels = [kernel(50 + at, 1 + at // 3, (CONV, RELU, CONV)[at % 3]) for at in range(6)]
    assert runs(tmp_path, thread, gpu(*kernels)) == {"m/conv/Conv2D": (2, True), "m/Relu": (2, True)}


def test_without_calls_the_line_of_ops_of_the_device_counts(tmp_path: Path) -> None:
    kernels = (kernel(0, 0), kernel(2, 0), kernel(10, 0))
    derived = (event(CONV, 0, 4), event(CONV, 10, 2))
    assert runs(tmp_path, gpu(*kernels, derived=derived)) == {"m/conv/Conv2D": (2, True)}


def test_without_any_evidence_kernels_are_counted_and_that_is_said(tmp_path: Path) -> None:
    thread = host(event("train", 0, 5), launch(1, 1), launch(2, 2), launch(3, 3))
    kernels = gpu(*(kernel(50 + n, n) for n in (1, 2, 3)))
    assert runs(tmp_path, thread, kernels) == {"m/conv/Conv2D": (3, False)}


def test_kernels_of_lost_calls_count_by_their_order_on_the_stream(tmp_path: Path) -> None:
    """The capture starts after the calls of the first two kernels, which are one run."""
    thread = host(event("ExecutorState::Process", 0, 10), launch(1, 3), launch(2, 4))
    kernels = gpu(kernel(20, 1), kernel(22, 2), kernel(50, 3), kernel(52, 4))
    assert runs(tmp_path, thread, kernels) == {"m/conv/Conv2D": (2, True)}


def test_an_op_of_which_most_calls_are_lost_is_not_counted_by_the_others(tmp_path: Path) -> None:
    thread = host(event("ExecutorState::Process", 0, 10), launch(1, 4))
    kernels = gpu(kernel(20, 1), kernel(22, 2), kernel(30, 3), kernel(50, 4))
    assert runs(tmp_path, thread, kernels) == {"m/conv/Conv2D": (4, False)}


def test_a_device_without_work_has_no_ops(tmp_path: Path) -> None:
    assert runs(tmp_path, gpu(event("gemm", 0, 5))) == {}
