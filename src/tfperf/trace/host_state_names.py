"""What a host thread does, told by the name of an event. Works on the distinct names of a trace, never on events."""

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


# Patterns are texts, compiled at their first use: a job without a device needs none of them.
_NOT_OF_THE_STEP = (
    r"Iterator::|(?:Prefetch|ParallelMap|ParallelInterleave|MapAndBatch|ParallelBatch)\w*(?:Produce|Consume)"
    r"|InstantiatedCapturedFunction|ThreadpoolListener::|(?:cu|hip|cuda)(?:Event|Stream)Query"
)
"""tf.data's own threads, and polling."""
_FRAMES = (
    (r".* (?:block_until_ready|try_to_block|numpy|_numpy|__array__|synchronize)$", State.SYNC),
    (
        r".* (?:backend_compile\w*|compile_or_get_cached|trace_to_jaxpr\w*|lower_jaxpr\w*|func_graph_from_py_func)$",
        State.COMPILE,
    ),
)
_WAITS = (
    r"(?:cu|hip|cuda)(?:Stream|Ctx|Device|Event)Synchronize|TFE_TensorHandle|.*TensorHandle::(?:WaitReady|Resolve|Tensor)"
    r"|.*(?:BlockHostUntil|BlockUntilReady|block_until_ready|::Await\b|CopyToHost|ToLiteral)|np\.asarray|.*numpy\(\)$"
)
_COPIES = (
    r".*:_(?:Host)?(?:Send|Recv)$|EagerCopyToDevice$|CopyToDevice|.*(?:BufferFromHost|TransferToDevice|CopyRawToDevice)"
    r"|.*:InfeedEnqueue"
)
_COPY_CALL = r"(?i)(?:cu|hip|cuda)?memcpy|_?(?:InfeedEnqueue|TransferLiteral|TransferToDevice)"
_COPY_KIND = r"(?i).*memcpy\s*_?(h(?:to|2)d|d(?:to|2)h|d(?:to|2)d|p(?:to|2)p)"
_CALLS = (
    r"TFE_|Eager(?:Local|Kernel)?Execute|EagerCopyToDeviceAndAdd|KernelAndDevice|FunctionRun|PjitFunction|PJRT_|PjRt"
)
_BEFORE_COPY_CALLS = (
    (_WAITS, State.SYNC),
    (r"(?:cu|hip|cuda)(?:Module|Library|Link)(?:Load|Complete|AddData|Get)", State.COMPILE),
    (r"(?i).*(?:PJRT_Client_Compile|backend_compile|trace_to_jaxpr|lower_jaxpr|XlaCompile)", State.COMPILE),
    (_COPIES, State.COPY),
)
_AFTER_COPY_CALLS = (
    (r"(?:cu|hip|cuda|nccl|rccl)[A-Z]", State.LAUNCH),
    (r".*(?:Executable_Execute|Executable::(?:Execute|Run)|ExecuteAsyncOnStream|ExecuteHelper)", State.LAUNCH),
    (_CALLS, State.CALL),
    (r"Executor(?:PropagateOutputs|DoneCallback)", State.EXECUTOR),
)


def state_of(name: str) -> State:
    """Return what an event of this name does; copies out of a device count as waiting for it."""
    if is_memory(name) or re.match(_NOT_OF_THE_STEP, name):
        return State.NONE
    if is_python_frame(name):
        return _first_match(name, _FRAMES) or State.PYTHON
    if state := _first_match(name, _BEFORE_COPY_CALLS):
        return state
    if re.match(_COPY_CALL, name):  # handing over, waiting for a result, or (inside devices) launching work
        copy = re.match(_COPY_KIND, name)
        kind = copy.group(1).lower() if copy else "h"
        return State.COPY if kind[0] == "h" else State.SYNC if kind[-1] == "h" else State.LAUNCH
    if state := _first_match(name, _AFTER_COPY_CALLS):
        return state
    return State.COMPUTE if ":" in name and parse_op(name).kind in ("tensorflow", "jax") else State.OTHER


def _first_match(name: str, patterns: tuple[tuple[str, State], ...]) -> State | None:
    return next((state for pattern, state in patterns if re.match(pattern, name)), None)
