"""What a host thread does, told by the name of an event."""

from __future__ import annotations

import re
from enum import IntEnum

from tfperf.trace.event_names import is_memory, is_python_frame, parse_op


class State(IntEnum):
    """What a host thread does; at any moment the first in this order holds for the host."""

    NONE = 0
    INPUT = 1
    COMPILE = 2
    COPY = 3
    LAUNCH = 4
    COMPUTE = 5
    EXECUTOR = 6
    SYNC = 7
    CALL = 8
    PYTHON = 9
    OTHER = 10
    """An event that says nothing by its name, on a thread that is not the main one."""


_DRIVER = re.compile(r"(?:cu|hip|cuda|nccl|rccl)[A-Z]")
_POLLS = re.compile(r"(?:cu|hip|cuda)(?:Event|Stream)Query")
_LOADS = re.compile(r"(?:cu|hip|cuda)(?:Module|Library|Link)(?:Load|Complete|AddData|Get)")
_WAITS = re.compile(
    r"(?:cu|hip|cuda)(?:Stream|Ctx|Device|Event)Synchronize|TFE_TensorHandle|.*TensorHandle::(?:WaitReady|Resolve|Tensor)"
    r"|.*(?:BlockHostUntil|BlockUntilReady|block_until_ready|::Await\b|CopyToHost|ToLiteral)|np\.asarray|.*numpy\(\)$"
)
_COPY = re.compile(r".*memcpy\s*_?(h(?:to|2)d|d(?:to|2)h|d(?:to|2)d|p(?:to|2)p)", re.IGNORECASE)
_COPY_CALL = re.compile(r"(?:cu|hip|cuda)?memcpy|_?(?:InfeedEnqueue|TransferLiteral|TransferToDevice)", re.IGNORECASE)
_COPIES = re.compile(
    r".*:_(?:Host)?(?:Send|Recv)$|EagerCopyToDevice$|CopyToDevice|.*(?:BufferFromHost|TransferToDevice|CopyRawToDevice)"
    r"|.*:InfeedEnqueue"
)
_COMPILES = re.compile(
    r".*(?:PJRT_Client_Compile|backend_compile|trace_to_jaxpr|lower_jaxpr|XlaCompile)", re.IGNORECASE
)
_EXECUTES = re.compile(r".*(?:Executable_Execute|Executable::(?:Execute|Run)|ExecuteAsyncOnStream|ExecuteHelper)")
_CALLS = re.compile(
    r"TFE_|Eager(?:Local|Kernel)?Execute|EagerCopyToDeviceAndAdd|KernelAndDevice|FunctionRun|PjitFunction|PJRT_|PjRt"
)
_OF_TFDATA = re.compile(
    r"Iterator::|(?:Prefetch|ParallelMap|ParallelInterleave|MapAndBatch|ParallelBatch)\w*(?:Produce|Consume)"
    r"|InstantiatedCapturedFunction"
)
_EXECUTOR = re.compile(r"Executor(?:PropagateOutputs|DoneCallback)")
_FRAME_WAITS = re.compile(r".* (?:block_until_ready|try_to_block|numpy|_numpy|__array__|synchronize)$")
_FRAME_COMPILES = re.compile(
    r".* (?:backend_compile\w*|compile_or_get_cached|trace_to_jaxpr\w*|lower_jaxpr\w*|func_graph_from_py_func)$"
)


def state_of(name: str) -> State:
    """Return what an event of this name does; copies out of a device count as waiting for it."""
    if is_memory(name) or name.startswith("ThreadpoolListener::") or _OF_TFDATA.match(name) or _POLLS.match(name):
        return State.NONE
    if is_python_frame(name):
        return (
            State.SYNC if _FRAME_WAITS.match(name) else State.COMPILE if _FRAME_COMPILES.match(name) else State.PYTHON
        )
    for pattern, state in (
        (_WAITS, State.SYNC), (_LOADS, State.COMPILE), (_COMPILES, State.COMPILE), (_COPIES, State.COPY),
    ):  # fmt: skip
        if pattern.match(name):
            return state
    if _COPY_CALL.match(name):
        return _copy_state(name)
    for pattern, state in (
        (_DRIVER, State.LAUNCH), (_EXECUTES, State.LAUNCH), (_CALLS, State.CALL), (_EXECUTOR, State.EXECUTOR),
    ):  # fmt: skip
        if pattern.match(name):
            return state
    return State.COMPUTE if ":" in name and parse_op(name).kind in ("tensorflow", "jax") else State.OTHER


def _copy_state(name: str) -> State:
    """Return what a copy call is: handing over, waiting for a result, or (inside devices) launching work."""
    found = _COPY.match(name)
    kind = found.group(1).lower() if found else "h"
    return State.COPY if kind[0] == "h" else State.SYNC if kind[-1] == "h" else State.LAUNCH
