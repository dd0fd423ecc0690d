"""What a host thread does, by the names of its events."""

from __future__ import annotations

import pytest

from tfperf.trace.host_state_names import State, state_of


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("cuStreamSynchronize", State.SYNC),
        ("hipStreamSynchronize", State.SYNC),
        ("MemcpyD2H", State.SYNC),
        ("cuMemcpyDtoHAsync_v2", State.SYNC),
        ("$ops.py:395 numpy", State.SYNC),
        ("cuEventQuery", State.NONE),
        ("MemcpyH2D", State.COPY),
        ("cuMemcpyHtoDAsync_v2", State.COPY),
        ("IteratorGetNext/_1:_Send", State.COPY),
        ("hipMemcpyDtoDAsync", State.LAUNCH),
        ("cuLaunchKernel", State.LAUNCH),
        ("hipModuleLaunchKernel", State.LAUNCH),
        ("cuModuleLoadData", State.COMPILE),
        ("PJRT_LoadedExecutable_Execute", State.LAUNCH),
        ("PjitFunction(f)", State.CALL),
        ("EagerExecute: MatMul", State.CALL),
        ("MemoryAllocation", State.NONE),
        ("Iterator::Root::Prefetch", State.NONE),
        ("MatMul:MatMul", State.COMPUTE),
        ("", State.OTHER),
        ("\x1b[31m" * 1000, State.OTHER),
    ],
)
def test_names_tell_states(name: str, state: State) -> None:
    assert state_of(name) == state
