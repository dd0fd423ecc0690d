"""Against TensorFlow itself: a function compiled by XLA for the CPU, profiled here, in a process of its own.

No module is called so: this is about the whole way from a capture to the table of ops.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from builders import Event, Plane, event, host, host_of, line, plane, trace_of
from job_environment import job_environment

from tfperf.analysis.load import load
from tfperf.sections.ops.analysis import Ops, OpTable, combine, op_runs
from tfperf.trace.device.device_work import device_work
from tfperf.trace.host_trace import HostTrace

US = 1_000_000


def ops_of(trace: HostTrace) -> Ops:
    ops: Ops = host_of(trace, "ops")["ops"]
    return ops


def rows(table: OpTable) -> list[tuple[str, str, int, float, float]]:
    """(name, type, occurrences, total us, self us)"""
    columns = zip(table.names, table.types, table.occurrences, table.total_ps / US, table.self_ps / US, strict=True)
    return [(name, kind, int(count), float(total), float(self_us)) for name, kind, count, total, self_us in columns]


def test_host_ops_nest_and_are_sorted_by_self_time(tmp_path: Path) -> None:
    threads = plane(
        "/host:CPU",
        line(
            "a",
            event("wrapper", 0, 100),
            event("Iterator::Root", 0, 50),
            event("Iterator::Root::Map", 10, 30),
            event("d/MatMul:MatMul", 60, 25),
        ),
        line("b", event("d/MatMul:MatMul", 0, 30)),
    )
    assert rows(ops_of(trace_of(tmp_path, threads)).host) == [
        ("d/MatMul", "MatMul", 2, 55, 55),
        ("Iterator::Root::Map", "Dataset", 1, 30, 30),
        ("Iterator::Root", "Dataset", 1, 50, 20),
    ]


def test_idle_of_host_threads_lies_between_their_ops(tmp_path: Path) -> None:
    threads = plane(
        "/host:CPU",
        line("a", event("A:A", 10, 10), event("B:B", 50, 10), event("no op", 90, 10)),
        line("b", event("A:A", 0, 10)),
    )
    table = ops_of(trace_of(tmp_path, threads)).host
    assert (table.idle_ps, table.time_ps, table.places) == (30 * US, 60 * US, 2)


def test_memory_events_are_no_runs_of_the_op_that_allocates(tmp_path: Path) -> None:
    thread = host(event("d/A:A", 0, 10), event("MemoryAllocation", 2, 1, tf_op="d/A"))
    assert rows(ops_of(trace_of(tmp_path, thread)).host) == [("d/A", "A", 1, 10, 10)]


def test_without_a_device_there_is_one_side(tmp_path: Path) -> None:
    ops = ops_of(trace_of(tmp_path, host(event("A:A", 0, 10))))
    assert (len(ops.device), ops.device.places) == (0, 0)
    assert ops.sides == (ops.host,)


def test_a_device_without_host_ops_is_the_only_side(tmp_path: Path) -> None:
    gpu = plane("/device:GPU:0", line("Stream #1", event("a", 10, 20, tf_op="m/A:A"), id=1))
    ops = ops_of(trace_of(tmp_path, gpu))
    assert ops.sides == (ops.device,)


def test_hosts_are_added_up(tmp_path: Path) -> None:
    first = ops_of(trace_of(tmp_path, host(event("A:A", 0, 10), event("B:B", 10, 15))))
    second = ops_of(trace_of(tmp_path, host(event("A:A", 0, 10))))
    both = combine([first, second])
    assert rows(both.host) == [("A", "A", 2, 20, 20), ("B", "B", 1, 15, 15)]
    assert (len(both.device), both.device.places) == (0, 0)


def test_a_host_without_a_device_adds_nothing_to_the_devices(tmp_path: Path) -> None:
    gpu = plane("/device:GPU:0", line("Stream #1", event("a", 10, 20, tf_op="m/A:A"), id=1))
    both = combine([ops_of(trace_of(tmp_path, gpu)), ops_of(trace_of(tmp_path, host(event("A:A", 0, 10))))])
    assert rows(both.device) == [("m/A", "A", 1, 20, 20)]
    assert rows(both.host) == [("A", "A", 1, 10, 10)]


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


pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(sys.platform != "linux", reason="tensorflow-cpu is installed on Linux only"),
]

_CAPTURE = """
import sys
import tensorflow as tf

weights = tf.Variable(tf.random.normal((256, 256)))

@tf.function(jit_compile=True)
def compiled(x):
    with tf.name_scope("hidden"):
        y = tf.linalg.matmul(x, weights)
    with tf.name_scope("loss"):
        return tf.reduce_sum(tf.tanh(y))

@tf.function
def interpreted(x):
    with tf.name_scope("plain"):
        return tf.linalg.matmul(x, weights)

x = tf.random.normal((256, 256))
compiled(x), interpreted(x)
tf.profiler.experimental.start(sys.argv[1])
for _ in range(3):
    compiled(x), interpreted(x)
tf.profiler.experimental.stop()
"""


def test_compiled_ops_are_shown_by_their_op_and_by_what_xla_calls_them(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _CAPTURE, str(tmp_path)]
    environment = job_environment(keras=False)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    table = load(tmp_path, sections=["ops"])["ops"].host
    compiled = {key.name: key for key in table.keys if key.hlo_op}
    assert compiled["hidden/MatMul"].type == "MatMul"
    assert any(name.startswith("loss/") for name in compiled)
    assert all("compiled" in key.hlo_module for key in compiled.values())
    plain = [key for key in table.keys if key.name == "plain/MatMul"]
    assert [key.hlo_op for key in plain] == [""]
    assert "plain/MatMul" not in compiled
