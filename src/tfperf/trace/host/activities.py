"""The kind of activity of each event, and when it runs: two small tables of rules over one engine.

`tensorflow` reproduces the conclusions of TensorFlow's profiler; `corrected` repairs their errors. The tables differ in
how names map to activities and in the priority of copies; docs/differences.md explains each difference.

At any moment the activity of highest priority wins. Times here are in real time; `grouped_times` attributes them group
by group, as TensorFlow does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Literal

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import (
    EMPTY,
    Bools,
    Int64s,
    Intervals,
    Uint8s,
    difference,
    distinct,
    is_any,
    union,
    union_all,
    union_sorted,
)
from tfperf.formats.wire.event_columns import OP_LINES, TRACE_ME_LINE
from tfperf.trace.device.kernels import Bits, are_integers, bits_of_inputs, bits_of_name, bits_of_type, names_integers
from tfperf.trace.device.tpu_copies import name_of_op, transfers_to_devices
from tfperf.trace.event_names import (
    compiles_program,
    concrete_function,
    is_collective_kernel,
    is_fetch,
    is_jax_compilation,
    is_jitted_call,
    is_memory,
    is_python_frame,
    mask,
    parse_op,
)
from tfperf.trace.host.launches import launch_links
from tfperf.trace.host_trace import HostTrace, once, rows_of
from tfperf.trace.nesting import hold, last_around, nest, outermost

Attribution = Literal["corrected", "tensorflow"]
Codes = Uint8s


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
    COMPUTE_UNKNOWN = 14
    """On a device, in numbers of unknown size."""
    BARRIER = 15
    """A TPU core waits for others before it exchanges data with them."""


def _activities(names: str) -> tuple[Activity, ...]:
    return tuple(Activity[name] for name in names.split())


PRIORITY: dict[Attribution, tuple[Activity, ...]] = {
    "tensorflow": _activities(
        "COMPUTE_16 COMPUTE_32 DEVICE_TO_HOST DEVICE_TO_DEVICE WAIT_INPUT COLLECTIVES KERNEL_LAUNCH HOST_TO_DEVICE "
        "HOST_TO_HOST COMPILE HOST_COMPUTE"
    ),
    "corrected": _activities(
        "COMPUTE_16 COMPUTE_32 COMPUTE_UNKNOWN DEVICE_TO_HOST HOST_TO_DEVICE DEVICE_TO_DEVICE WAIT_INPUT STAGING "
        "COLLECTIVES COMPILE KERNEL_LAUNCH HOST_COMPUTE"
    ),
}
"""Highest first."""

TPU_PRIORITY = _activities(
    "WAIT_INPUT HOST_TO_DEVICE DEVICE_TO_HOST COLLECTIVES DEVICE_TO_DEVICE COMPUTE_32 BARRIER WAIT_WHILE_IDLE"
)
"""On a TPU core, waiting ops count inside the loop around them; barriers and host work only explain idle time."""
TPU_WAITS = _activities("WAIT_INPUT HOST_TO_DEVICE DEVICE_TO_HOST DEVICE_TO_DEVICE")
"""In these ops, a TPU core does not compute: it waits for data, from the host or from another memory."""
_WAYS = {
    "to_device": Activity.HOST_TO_DEVICE,
    "to_host": Activity.DEVICE_TO_HOST,
    "on_device": Activity.DEVICE_TO_DEVICE,
    "exchange": Activity.COLLECTIVES,
}
_BARRIER = "barrier-cores"
"""Mark in a TPU program where it waits for the other cores."""

_COLLECTIVES = ("all-reduce", "all-reduce fusion", "all-to-all", "all-gather", "reduce-scatter", "collective-permute")
_TPU_CATEGORIES = {
    Activity.WAIT_INPUT: ("infeed",),
    Activity.HOST_TO_DEVICE: ("host recv", "host recv-done"),
    Activity.DEVICE_TO_HOST: ("outfeed", "host send", "host send-done"),
    Activity.COLLECTIVES: _COLLECTIVES,
    Activity.DEVICE_TO_DEVICE: ("send", "send-done", "recv", "recv-done"),
}


def tpu_activity(hlo_category: str) -> Activity:
    """Return the activity of an op of this HLO category on a TPU core."""
    category = hlo_category.lower()
    return next((activity for activity, names in _TPU_CATEGORIES.items() if category in names), Activity.COMPUTE_32)


_IGNORED_CALLS = ("EagerExecute", "EagerLocalExecute", "EagerKernelExecute", "FunctionRun")
_COPY = r"(?i)(?:(?:hip)?memcpy|copy)\s*_?(h(?:ost)?(?:2|to)d|d(?:evice)?(?:2|to)[hd]|p(?:2|to)p)"
"""ROCm also records `CopyDeviceToHost`."""
_COPY_KIND = r"(?i)(?:kind:)?\b(?:Memcpy)?(H2D|D2H|D2D|P2P|HtoD|DtoH|DtoD|PtoP)\b"
_STAGING = r"(?:.*/)?IteratorGetNext(?:/_\d+|_\d+)*:_(?:Send|HostSend|Recv|HostRecv)$"
_KERNEL = "EagerKernelExecute"
_EXECUTES = re.compile(r"\w*Executable::Execute")
_COMPILING = (
    r"tf\.function-graph_building$|Xla(?:Compil|.*Compile)|.*(?:Compiler|Client)::(?:Compile|RunBackend|RunHloPasses)"
)


def host_codes(trace: HostTrace, attribution: Attribution, *, has_device: bool) -> Codes:
    """Return the activity of host events by name (NONE: not counted); with devices, a `correlation_id` means launch."""
    code = _tensorflow_host if attribution == "tensorflow" else _corrected_host
    codes = np.array([code(name, has_device) for name in trace.names], np.uint8)
    if attribution == "corrected":
        for stat in ("tf_function_call", "step_num"):
            codes[trace.name[trace.stat(stat).event]] = Activity.NONE
    return codes


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


@lru_cache(maxsize=1 << 14)  # hosts of a run have the same names
def _corrected_host(name: str, has_device: bool) -> Activity:
    if name.startswith((*_IGNORED_CALLS, "ThreadpoolListener::")) or is_memory(name) or is_python_frame(name):
        return Activity.NONE
    if is_fetch(name):
        return Activity.WAIT_INPUT
    if ":InfeedEnqueue" in name or parse_op(name).type == "MemcpyHToD":
        return Activity.HOST_TO_DEVICE
    if has_device and re.match(_STAGING, name):
        return Activity.STAGING
    if has_device and name.startswith("ExecutorState::Process"):
        return Activity.KERNEL_LAUNCH
    return Activity.COMPILE if re.match(_COMPILING, name) else Activity.HOST_COMPUTE


def device_codes(trace: HostTrace, attribution: Attribution) -> Codes:
    """Return the activity of every event as if it ran on a GPU (rows on other planes are meaningless)."""
    return _tensorflow_device_codes(trace) if attribution == "tensorflow" else _corrected_device_codes(trace)


@once
def _corrected_device_codes(trace: HostTrace) -> Codes:
    by_name = np.full(len(trace.names), Activity.COMPUTE_UNKNOWN, np.uint8)
    on_integers = np.zeros(len(trace.names), np.bool_)
    rows = trace.device_rows
    names = distinct(trace.name[rows]).tolist()  # hosts have thousands of other names
    for index in names:
        by_name[index] = _corrected_device(trace.names[index])
        on_integers[index] = names_integers(trace.names[index])
    codes, works_on_integers = by_name[trace.name], on_integers[trace.name]
    unnamed = rows[codes[rows] == Activity.COMPUTE_UNKNOWN]
    codes[unnamed] = _by_number_type(trace, unnamed)
    shape = trace.stat("shape")
    if shape.texts:
        by_inputs = np.array([_COMPUTE[bits_of_inputs(text)] for text in shape.texts], np.uint8)[shape.value]
        codes[shape.event] = np.where(codes[shape.event] == Activity.COMPUTE_UNKNOWN, by_inputs, codes[shape.event])
        works_on_integers[shape.event] |= mask(shape.texts, are_integers)[shape.value]
    codes[(codes == Activity.COMPUTE_UNKNOWN) & works_on_integers] = Activity.COMPUTE_32
    copies = trace.stat("memcpy_details")
    if copies.texts:
        kinds = (re.search(_COPY_KIND, text) for text in copies.texts)
        kind = np.array([_copy_direction(copy[1]) if copy else 0 for copy in kinds], np.uint8)[copies.value]
        codes[copies.event] = np.where(kind > 0, kind, codes[copies.event])
    if copying := [index for index in names if _is_copying_kernel(trace.names[index])]:
        links = launch_links(trace, np.sort(rows[is_any(trace.name[rows], copying)]))
        calls = trace.name[links.host]
        by_call = np.full(len(trace.names), Activity.DEVICE_TO_DEVICE, np.uint8)
        for index in distinct(calls).tolist():
            if (copy := re.match(_COPY, trace.names[index])) is not None:
                by_call[index] = _copy_direction(copy[1])
        codes[links.device] = by_call[calls]
    return codes


def _by_number_type(trace: HostTrace, rows: Int64s) -> Codes:
    """Return the activity of GPU events of HLO ops by the number type of the op in its program."""
    from tfperf.formats.hlo.hlo_proto import read_number_types

    (program, ids), op = trace.program_at(rows), trace.number_at("hlo_op", rows, -1)
    texts, codes = trace.stat("hlo_op").texts, np.full(len(rows), Activity.COMPUTE_UNKNOWN, np.uint8)
    for index, program_id in enumerate(ids):
        serialized = (trace.hlo_protos or {}).get(program_id)
        here = np.flatnonzero((program == index) & (op >= 0))
        if serialized is None or not len(here):
            continue
        ops = distinct(op[here])
        names = [texts[each].rpartition("::")[2] for each in ops.tolist()]
        types = read_number_types(serialized, names)
        of_ops = np.array([_COMPUTE[bits_of_type(types.get(name, ""))] for name in names], np.uint8)
        codes[here] = of_ops[np.searchsorted(ops, op[here])]
    return codes


_COMPUTE: dict[Bits, Activity] = {0: Activity.COMPUTE_UNKNOWN, 16: Activity.COMPUTE_16, 32: Activity.COMPUTE_32}


def _tensorflow_device_codes(trace: HostTrace) -> Codes:
    """Return TensorFlow's activities: recorded inputs, else the name, determine whether a kernel is 16 bit."""
    codes = np.array([_tensorflow_device(name) for name in trace.names], np.uint8)[trace.name]
    shape = trace.stat("shape")
    if shape.texts:
        half = np.array(["half" in text for text in shape.texts], np.bool_)[shape.value]
        has_text = np.array([bool(text) for text in shape.texts], np.bool_)[shape.value]
        compute = has_text & (codes[shape.event] >= Activity.COMPUTE_32)
        codes[shape.event[compute]] = np.where(half[compute], Activity.COMPUTE_16, Activity.COMPUTE_32)
    return codes


def _copy_direction(kind: str) -> Activity:
    ends = (kind[0] + kind[-1]).lower()
    return {"hd": Activity.HOST_TO_DEVICE, "dh": Activity.DEVICE_TO_HOST}.get(ends, Activity.DEVICE_TO_DEVICE)


def _tensorflow_device(name: str) -> Activity:
    if (kind := parse_op(name).type) in ("MemcpyHToD", "MemcpyDToH", "MemcpyDToD"):
        return _copy_direction(kind.removeprefix("Memcpy"))
    if name.lower().startswith("nccl"):
        return Activity.COLLECTIVES
    return Activity.COMPUTE_16 if "half" in name or "fp16" in name else Activity.COMPUTE_32


def _corrected_device(name: str) -> Activity:
    if (copy := re.match(_COPY, name)) is not None:
        return _copy_direction(copy[1])
    if is_collective_kernel(name):
        return Activity.COLLECTIVES
    if _is_copying_kernel(name):
        return Activity.DEVICE_TO_DEVICE
    return _COMPUTE[bits_of_name(name)]


def _is_copying_kernel(name: str) -> bool:
    """Return whether the kernel is ROCm's copy of a buffer, within a device or from or to a host."""
    return "__amd_rocclr_copybuffer" in name.lower()


class ActivityTimes(Struct, frozen=True):
    """Flat intervals per activity, and the windows of the steps on the same time axis."""

    priority: tuple[Activity, ...]
    busy: dict[Activity, Intervals]
    start: Int64s
    end: Int64s
    origin: Int64s
    """Start of the section of time of each window (in real time, of the window itself)."""

    def covered(self) -> Iterator[tuple[Activity, Intervals]]:
        """Yield each activity that occurs, in order of priority, and the times that it and all higher ones cover."""
        covered = EMPTY
        for activity in self.priority:
            if activity in self.busy:
                covered = union_all([covered, self.busy[activity]])
                yield activity, covered


def corrected_times(busy: dict[Activity, Intervals], start: Int64s, end: Int64s) -> ActivityTimes:
    """Return the activities in real time (`busy_times`), for step windows [start, end)."""
    return ActivityTimes(PRIORITY["corrected"], busy, start, end, origin=start)


def busy_times(trace: HostTrace) -> dict[Activity, Intervals]:
    """Return when each activity runs, in real time."""
    codes = host_codes(trace, "corrected", has_device=bool(trace.devices))[trace.name]
    compiling_in_call = trace.host_events(mask(trace.names, is_jax_compilation))
    calls = trace.host_events(mask(trace.names, is_jitted_call))
    codes[calls[hold(trace, calls, compiling_in_call)]] = Activity.COMPILE  # before that, the call traces Python
    if trace.devices:
        codes[trace.stat("correlation_id").event] = Activity.KERNEL_LAUNCH
    parts: dict[Activity, list[Intervals]] = {}
    compiling = [times for times in (tracing_calls(trace), xla_compilations(trace)) if len(times.start)]
    if compiling:
        parts[Activity.COMPILE] = compiling
    for line in trace.host_lines:
        _add_line(parts, trace, codes, slice(line.start, line.stop))
    if trace.device_kind == "gpu":
        on_device = device_codes(trace, "corrected")
        for line in (line for plane in trace.devices for line in trace.device_lines(plane)):
            _add_line(parts, trace, on_device, slice(line.start, line.stop))
    return {activity: union_all(sets) for activity, sets in parts.items()}


@once
def xla_compilations(trace: HostTrace) -> Intervals:
    """Return when XLA compiles for TensorFlow, on any host thread, once per combination of shapes.

    A compilation lasts from the end of the op before (or the start of the event around it) until the program runs. Only
    its last part, `RunBackend`, has an event.
    """
    compiles = mask(trace.names, compiles_program)
    if not compiles.any():
        return EMPTY
    rows = trace.host_events(compiles)
    executes = mask(trace.names, _EXECUTES.match)
    is_op = mask(trace.names, lambda name: ":" in name and parse_op(name).kind == "tensorflow")
    may_hold = mask(trace.names, lambda name: ":" in name and not is_python_frame(name))
    parts = []
    for index in distinct(trace.line_of[rows]).tolist():
        line = trace.lines[index]
        on_line = rows[(rows >= line.start) & (rows < line.stop)] - line.start
        parts.append(_on_line(trace, slice(line.start, line.stop), on_line, (executes, is_op, may_hold)))
    return union_all(parts)


def _on_line(trace: HostTrace, line: slice, rows: Int64s, masks: tuple[Bools, ...]) -> Intervals:
    """Return the compilations of one line; `rows` are those of `RunBackend`, relative to its first event."""
    name, start, end = trace.name[line], trace.start_ps[line], trace.end_ps[line]
    executes, is_op, may_hold = (each[name] for each in masks)
    parent = nest(start, end).parent
    order = np.argsort(parent, kind="stable")  # siblings follow each other in time order
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    places = np.arange(len(order))
    before = np.maximum.accumulate(np.where((executes | is_op)[order], places, -1))[place[rows]]
    after = np.minimum.accumulate(np.where(executes[order], places, len(order))[::-1])[::-1][place[rows]]
    above = parent[rows]
    held = (above >= 0) & may_hold[above]
    previous, following = order[before], np.append(order, -1)[after]
    has_previous, runs = (before >= 0) & (parent[previous] == above), (following >= 0) & (parent[following] == above)
    begun = np.where(has_previous, end[previous], start[above])
    return union(np.where(held, begun, start[rows]), np.where(held & runs, start[following], end[rows]))


def tracing_calls(trace: HostTrace) -> Intervals:
    """Return the calls of functions that trace Python, without the runs of the traced functions (`EagerKernelExecute`).

    The rest of the call builds the function: Python is traced, the graph is optimized, placed and instantiated. A call
    without a run in the trace is omitted, because it would hide that run.
    """
    stat = trace.stat("tf_function_call")
    traced = np.array([text.startswith("traced") for text in stat.texts], np.bool_)
    if not traced.any():
        return EMPTY
    calls = np.sort(outermost(trace, stat.event[traced[stat.value]].astype(np.int64)))
    runs = trace.host_events(mask(trace.names, concrete_function))
    runs = runs[last_around(trace, calls, runs) >= 0]
    kernels = trace.host_events(mask(trace.names, lambda name: name == _KERNEL))
    kernels = kernels[last_around(trace, runs, kernels) >= 0]
    calls = calls[hold(trace, calls, kernels)]
    return difference(
        union(trace.start_ps[calls], trace.end_ps[calls]), union(trace.start_ps[kernels], trace.end_ps[kernels])
    )


def tpu_times(trace: HostTrace, plane: int, codes: Codes, start: Int64s, end: Int64s) -> ActivityTimes:
    """Return the activities of one TPU core for its step windows; `codes` are those of `tpu_codes`.

    Without an infeed op, time in which the core idles while the host waits for input or copies to devices is input.
    """
    parts: dict[Activity, list[Intervals]] = {}
    for line in (line for line in trace.lines if line.plane == plane):
        rows = slice(line.start, line.stop)
        if line.name in OP_LINES:
            _add_line(parts, trace, codes, rows)
        elif line.name == TRACE_ME_LINE:
            waits = mask(trace.names, lambda name: name == _BARRIER)[trace.name[rows]]
            parts[Activity.BARRIER] = [union_sorted(trace.start_ps[rows][waits], trace.end_ps[rows][waits])]
    fetches = trace.host_events(mask(trace.names, is_fetch))
    fed = union_all([union(trace.start_ps[fetches], trace.end_ps[fetches]), transfers_to_devices(trace)])
    if Activity.WAIT_INPUT not in parts and len(fed.start):
        parts[Activity.WAIT_WHILE_IDLE] = [Intervals(*(trace.on_device_clock(plane, times) for times in fed))]
    busy = {activity: union_all(sets) for activity, sets in parts.items()}
    busy = {activity: times for activity, times in busy.items() if len(times.start)}
    return ActivityTimes(TPU_PRIORITY, busy, start, end, origin=start)


def tpu_codes(trace: HostTrace) -> Codes:
    """Return the activity of every event by the HLO category of the event or its name.

    Awaiting a copy is not computing: the instruction determines its direction (`tpu_copies.py`).
    """
    by_name = np.full(len(trace.names), Activity.COMPUTE_32, np.uint8)
    for name, category in trace.name_stat("hlo_category").items():
        by_name[name] = tpu_activity(str(category))
    codes = by_name[trace.name]
    stat = trace.stat("hlo_category")
    if len(stat.event):
        codes[stat.event] = np.array([tpu_activity(text) for text in stat.texts], np.uint8)[stat.value]
    copies = np.full(len(trace.names), Activity.NONE, np.uint8)
    rows = rows_of(line for line in trace.lines if line.plane in trace.devices and line.name in OP_LINES)
    for name in distinct(trace.name[rows]).tolist():
        op = name_of_op(trace, name)
        copies[name] = _WAYS[op.way] if op is not None else Activity.NONE
    return np.where(copies[trace.name] == Activity.NONE, codes, copies[trace.name])


def _add_line(parts: dict[Activity, list[Intervals]], trace: HostTrace, codes: Codes, rows: slice) -> None:
    of_line, start, end = codes[rows], trace.start_ps[rows], trace.end_ps[rows]
    for code in np.flatnonzero(np.bincount(of_line, minlength=1)).tolist():
        if code != Activity.NONE:
            which = of_line == code
            parts.setdefault(Activity(code), []).append(union_sorted(start[which], end[which]))
