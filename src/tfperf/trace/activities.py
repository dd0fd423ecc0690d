"""Which kind of activity an event stands for: two small rule tables over one engine.

`tensorflow` reproduces what TensorFlow's profiler concluded; `corrected` repairs what is wrong there. The tables
differ in how names map to activities and in the priority of copies; docs/differences.md explains each difference.

At any moment the activity of highest priority wins (see `analyzers/step_breakdown.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
import numpy.typing as npt

from tfperf.trace.event_names import is_fetch, is_memory, is_python_frame, parse_op
from tfperf.trace.host_trace import HostTrace

Attribution = Literal["corrected", "tensorflow"]
Codes = npt.NDArray[np.uint8]


class Activity(IntEnum):
    """Kinds of activity; the value is only an identity, priorities are in `PRIORITY`."""

    NONE = 0
    HOST_COMPUTE = 1
    COMPILE = 2
    HOST_TO_HOST = 3
    HOST_TO_DEVICE = 4
    KERNEL_LAUNCH = 5
    COLLECTIVES = 6
    STAGING = 7
    WAIT_INPUT = 8
    DEVICE_TO_DEVICE = 9
    DEVICE_TO_HOST = 10
    COMPUTE_32 = 11
    COMPUTE_16 = 12
    WAIT_WHILE_IDLE = 13


PRIORITY: dict[Attribution, tuple[Activity, ...]] = {
    "tensorflow": (
        Activity.COMPUTE_16, Activity.COMPUTE_32, Activity.DEVICE_TO_HOST, Activity.DEVICE_TO_DEVICE,
        Activity.WAIT_INPUT, Activity.COLLECTIVES, Activity.KERNEL_LAUNCH, Activity.HOST_TO_DEVICE,
        Activity.HOST_TO_HOST, Activity.COMPILE, Activity.HOST_COMPUTE,
    ),
    "corrected": (
        Activity.COMPUTE_16, Activity.COMPUTE_32, Activity.DEVICE_TO_HOST, Activity.HOST_TO_DEVICE,
        Activity.DEVICE_TO_DEVICE, Activity.WAIT_INPUT, Activity.STAGING, Activity.COLLECTIVES,
        Activity.KERNEL_LAUNCH, Activity.COMPILE, Activity.HOST_COMPUTE,
    ),
}  # fmt: skip
"""Highest first."""

TPU_PRIORITY = (
    Activity.WAIT_INPUT, Activity.HOST_TO_DEVICE, Activity.DEVICE_TO_HOST, Activity.COLLECTIVES,
    Activity.DEVICE_TO_DEVICE, Activity.COMPUTE_32, Activity.WAIT_WHILE_IDLE,
)  # fmt: skip
"""On a TPU core: an op that waits holds inside the loop around it; the host's waiting explains idle time only."""

_TPU_CATEGORIES = {
    "infeed": Activity.WAIT_INPUT,
    "host recv": Activity.HOST_TO_DEVICE, "host recv-done": Activity.HOST_TO_DEVICE,
    "outfeed": Activity.DEVICE_TO_HOST,
    "host send": Activity.DEVICE_TO_HOST, "host send-done": Activity.DEVICE_TO_HOST,
    "all-reduce": Activity.COLLECTIVES, "all-reduce fusion": Activity.COLLECTIVES, "all-to-all": Activity.COLLECTIVES,
    "all-gather": Activity.COLLECTIVES, "reduce-scatter": Activity.COLLECTIVES,
    "collective-permute": Activity.COLLECTIVES,
    "send": Activity.DEVICE_TO_DEVICE, "send-done": Activity.DEVICE_TO_DEVICE,
    "recv": Activity.DEVICE_TO_DEVICE, "recv-done": Activity.DEVICE_TO_DEVICE,
}  # fmt: skip


def tpu_activity(hlo_category: str) -> Activity:
    """Return what an op of this HLO category does on a TPU core."""
    return _TPU_CATEGORIES.get(hlo_category.lower(), Activity.COMPUTE_32)


_IGNORED_CALLS = ("EagerExecute", "EagerLocalExecute", "EagerKernelExecute", "FunctionRun")
_COPY_KINDS = {
    "h2d": Activity.HOST_TO_DEVICE, "htod": Activity.HOST_TO_DEVICE,
    "d2h": Activity.DEVICE_TO_HOST, "dtoh": Activity.DEVICE_TO_HOST,
    "d2d": Activity.DEVICE_TO_DEVICE, "dtod": Activity.DEVICE_TO_DEVICE,
    "p2p": Activity.DEVICE_TO_DEVICE, "ptop": Activity.DEVICE_TO_DEVICE,
}  # fmt: skip
_COPY = re.compile(r"(?:hip)?memcpy\s*_?(h2d|htod|d2h|dtoh|d2d|dtod|p2p|ptop)", re.IGNORECASE)
_STAGING = re.compile(r"(?:.*/)?IteratorGetNext(?:/_\d+|_\d+)*:_(?:Send|HostSend|Recv|HostRecv)$")
_COMPILING = re.compile(
    r"tf\.function-graph_building$|Xla(?:Compil|.*Compile)|.*(?:Compiler|Client)::(?:Compile|RunBackend|RunHloPasses)"
)


@dataclass(frozen=True)
class HostRules:
    """How host events of a trace are typed: a code per name, and what a `correlation_id` means."""

    by_name: Codes
    launches: bool
    """True: an event with a `correlation_id` is a kernel launch (only where there is a device)."""


def host_rules(trace: HostTrace, attribution: Attribution, *, has_device: bool) -> HostRules:
    """Return the activity of host events by name; 0 marks events that count as none (markers, wrappers)."""
    code = _tensorflow_host if attribution == "tensorflow" else _corrected_host
    codes = np.array([code(name, has_device) for name in trace.names], np.uint8)
    if attribution == "corrected":
        for stat in ("tf_function_call", "step_num"):
            codes[trace.name[trace.stat(stat).event]] = Activity.NONE
    return HostRules(codes, has_device)


def _tensorflow_host(name: str, has_device: bool) -> Activity:
    if name.startswith(_IGNORED_CALLS):
        return Activity.NONE
    op = parse_op(name)
    if op.type == "MemcpyHToD" or (op.kind == "tensorflow" and op.type.startswith("InfeedEnqueue")):
        return Activity.HOST_TO_DEVICE
    if op.type == "MemcpyHToH":
        return Activity.HOST_TO_HOST
    lowered = name.lower()
    if has_device and lowered.startswith("executorstate::process"):
        return Activity.KERNEL_LAUNCH
    return Activity.WAIT_INPUT if lowered.startswith("iteratorgetnext") else Activity.HOST_COMPUTE


def _corrected_host(name: str, has_device: bool) -> Activity:
    if name.startswith((*_IGNORED_CALLS, "ThreadpoolListener::")) or is_memory(name) or is_python_frame(name):
        return Activity.NONE
    if is_fetch(name):
        return Activity.WAIT_INPUT
    if ":InfeedEnqueue" in name or parse_op(name).type == "MemcpyHToD":
        return Activity.HOST_TO_DEVICE
    if has_device and _STAGING.match(name):
        return Activity.STAGING
    if has_device and name.startswith("ExecutorState::Process"):
        return Activity.KERNEL_LAUNCH
    return Activity.COMPILE if _COMPILING.match(name) else Activity.HOST_COMPUTE


def device_codes(trace: HostTrace, attribution: Attribution) -> Codes:
    """Return the activity of every event as if it ran on a GPU (rows on other planes mean nothing)."""
    if attribution == "tensorflow":
        by_name = np.array([_tensorflow_device(name) for name in trace.names], np.uint8)
        return _with_shapes(trace, by_name[trace.name])
    codes = np.array([_corrected_device(name) for name in trace.names], np.uint8)[trace.name]
    codes = _with_shapes(trace, codes)
    details = trace.stat("memcpy_details")
    kind = np.array([_copy_kind(text) for text in details.texts], np.uint8)
    if len(kind):
        told = kind[details.value]
        codes[details.event] = np.where(told > 0, told, codes[details.event])
    return codes


def _tensorflow_device(name: str) -> Activity:
    copies = {"MemcpyHToD": Activity.HOST_TO_DEVICE, "MemcpyDToH": Activity.DEVICE_TO_HOST,
              "MemcpyDToD": Activity.DEVICE_TO_DEVICE}  # fmt: skip
    if (kind := parse_op(name).type) in copies:
        return copies[kind]
    if name.lower().startswith("nccl"):
        return Activity.COLLECTIVES
    return Activity.COMPUTE_16 if "half" in name or "fp16" in name else Activity.COMPUTE_32


def _with_shapes(trace: HostTrace, codes: Codes) -> Codes:
    """Let a `shape` stat decide about 16 bit, where a kernel has one."""
    shape = trace.stat("shape")
    half = np.array(["half" in text for text in shape.texts], np.bool_)
    told = np.array([bool(text) for text in shape.texts], np.bool_)
    for row, value in ((shape.event, shape.value),) if len(half) else ():
        compute = told[value] & (codes[row] >= Activity.COMPUTE_32)
        codes[row[compute]] = np.where(half[value[compute]], Activity.COMPUTE_16, Activity.COMPUTE_32)
    return codes


def _corrected_device(name: str) -> Activity:
    if (found := _COPY.match(name)) is not None:
        return _COPY_KINDS[found.group(1).lower()]
    lowered = name.lower()
    if lowered.startswith(("nccl", "rccl", "void nccl", "mscclkernel")):
        return Activity.COLLECTIVES
    if "__amd_rocclr_copybuffer" in lowered:
        return Activity.DEVICE_TO_DEVICE
    half = "half" in lowered or "fp16" in lowered or "bf16" in lowered or "bfloat16" in lowered
    return Activity.COMPUTE_16 if half or "h884" in lowered or "h1688" in lowered else Activity.COMPUTE_32


def _copy_kind(details: str) -> Activity:
    found = re.search(r"(?:kind:)?\b(?:Memcpy)?(H2D|D2H|D2D|P2P|HtoD|DtoH|DtoD|PtoP)\b", details, re.IGNORECASE)
    return _COPY_KINDS[found.group(1).lower()] if found else Activity.NONE
