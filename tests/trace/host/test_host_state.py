"""What the threads of a host do; which state a name stands for, and whole gaps, are in the tests of idle time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import event, host, line, plane, trace_of, u64

from tfperf.trace.host.host_state import State, host_states, state_of
from tfperf.trace.host.launches import launch_links

US = 1_000_000


def test_states_of_the_main_thread_and_of_a_worker(tmp_path: Path) -> None:
    """Python runs around the calls of the main thread; the worker launches the kernel; tf.data says nothing."""
    main = line("python", event("TFE_Py_Execute", 0, 40), event("cuStreamSynchronize", 60, 30), id=1)
    worker = line("worker", event("x/MatMul:MatMul", 10, 20), event("cuLaunchKernel", 15, 5, correlation_id=3), id=2)
    data = line("tf_data_prefetch", event("y/Cast:Cast", 0, 100), id=3)
    gpu = plane("/device:GPU:0", line("Stream #1", event("k", 50, 40, correlation_id=3)))
    trace = trace_of(tmp_path, plane("/host:CPU", main, worker, data), gpu)
    states = host_states(trace, launch_links(trace, np.array([5])))
    assert [State(code) for code in states.code[:5]] == [State.CALL, State.SYNC, State.LAUNCH, State.LAUNCH, State.NONE]
    assert (states.main, states.drives) == (0, {1: frozenset({1})})
    until = {state: covered.total() // US for state, covered in states.until(1)}
    assert until == {State.LAUNCH: 20, State.SYNC: 50, State.CALL: 70, State.PYTHON: 100}


def test_waiting_until_a_tpu_has_room_is_neither_launching_nor_waiting_for_results(tmp_path: Path) -> None:
    worker = line("w", event("TpuExecutable::ExecutePrepare", 0, 100), event("Acquire semaphore", 10, 70), id=1)
    trace = trace_of(tmp_path, plane("/host:CPU", worker))
    (times,) = host_states(trace, launch_links(trace, np.empty(0, np.int64))).lines.values()
    assert {state: covered.total() // US for state, covered in times.items()} == {State.LAUNCH: 30}


def test_a_host_without_a_recorded_call_has_no_main_thread(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, plane("/host:CPU", line("t", event("x/MatMul:MatMul", 0, 10))))
    assert host_states(trace, launch_links(trace, np.empty(0, np.int64))).main is None


STATES = {
    State.SYNC: [
        "cuStreamSynchronize", "hipStreamSynchronize", "MemcpyD2H", "cuMemcpyDtoHAsync_v2", "$ops.py:395 numpy",
        "XlaDelinearize", "tpu::System::TransferFromDevice", "PCIe/Memcpy Dispatch", "ArrayImpl.copy_to_host_async",
        "block_until_ready",
    ],
    State.NONE: [
        "cuEventQuery", "MemoryAllocation", "Iterator::Root::Prefetch", "tpu::System::Execute=>Done", "ReadSyncFlag",
        "CompleteCallbacks", "Acquire semaphore", "MutexLock::Acquire",
    ],
    State.COPY: [
        "MemcpyH2D", "cuMemcpyHtoDAsync_v2", "IteratorGetNext/_1:_Send", "tpu::System::TransferToDevice=>IssueEvent",
        "MapDmaBuffer", "XlaLinearize",
    ],
    State.LAUNCH: [
        "hipMemcpyDtoDAsync", "cuLaunchKernel", "hipModuleLaunchKernel", "PJRT_LoadedExecutable_Execute",
        "TfrtTpuLoadedExecutable::ExecuteLaunch", "tpu::System::Execute=>IssueSequencedEvent", "DoEnqueueProgram",
    ],
    State.COMPILE: ["cuModuleLoadData", "LoadProgram", "TfrtTpuCompiler::Compile"],
    State.CALL: ["PjitFunction(f)", "EagerExecute: MatMul", "EagerService:Enqueue"],
    State.COMPUTE: ["MatMul:MatMul"],
    State.OTHER: ["", "\x1b[31m" * 1000],
}  # fmt: skip


@pytest.mark.parametrize(("name", "state"), [(name, state) for state, names in STATES.items() for name in names])
def test_names_tell_states(name: str, state: State) -> None:
    assert state_of(name) == state


# --- launches ---


def test_work_is_linked_by_correlation_id(tmp_path: Path) -> None:
    """Rows 0 to 3 are on the host: two calls of id 7, one of id 9, and one without an id; 0 is no id."""
    ids = {"once": 7, "again": 7, "graph": 9}
    calls = [event(name, start, 1, correlation_id=id) for start, (name, id) in enumerate(ids.items())]
    kernels = [
        event("of two calls", 5, 1, correlation_id=7),
        event("linked", 6, 1, correlation_id=9),
        event("unknown", 7, 1, correlation_id=8),
        event("without", 8, 1),
        event("zero", 9, 1, correlation_id=0),
        event("of the same call", 10, 1, correlation_id=9),
    ]
    gpu = plane("/device:GPU:0", line("Stream #1", *kernels))
    trace = trace_of(tmp_path, host(*calls, event("other", 4, 1, correlation_id=0)), gpu)
    links = launch_links(trace, np.arange(4, 10))
    assert (links.device.tolist(), links.host.tolist()) == ([5, 9], [2, 2])
    assert links.of(np.arange(4, 10)).tolist() == [-1, 2, -1, -1, -1, 2]


def test_ids_may_have_64_bits(tmp_path: Path) -> None:
    """An id from 2^63 on is negative in the columns, and no less an id."""
    call, kernel = (event(name, 0, 1, correlation_id=u64((1 << 64) - 2)) for name in ("launch", "kernel"))
    trace = trace_of(tmp_path, host(call), plane("/device:GPU:0", line("Stream #1", kernel)))
    assert launch_links(trace, np.array([1])).of(np.array([1])).tolist() == [0]


def test_a_trace_without_ids_has_no_links(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("a", 0, 1)), plane("/device:GPU:0", line("Stream #1", event("k", 1, 1))))
    assert launch_links(trace, np.array([1])).of(np.array([1])).tolist() == [-1]
