"""Events of ops, one by one: on host threads and on devices, with the time that each took itself."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import NO_NUMBERS, Int64s
from tfperf.formats.wire.event_columns import OP_LINES
from tfperf.trace.device.device_work import device_work
from tfperf.trace.event_names import Op, is_python_frame, parse_op
from tfperf.trace.host.host_ops import Hlo, compiled_ops
from tfperf.trace.host.launches import launch_links
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest, self_time

NO_FRAMEWORK_OP = "(no framework op)"
"""The scope of what a device runs without an op of the framework behind it, such as copies from the host's memory."""


class OpEvents(Struct, frozen=True, kw_only=True):
    """Events of ops of the framework: `op` indexes `ops`, which are names of nodes and types of their kernels.

    `start` is when the host ran the op, or what it launched on a device if that is known, else when the device worked;
    `self_ps` is without ops inside, and `plane` is where it ran. Times are picoseconds on the clock of the trace.
    """

    ops: tuple[tuple[str, str], ...]
    op: Int64s
    start: Int64s
    begin: Int64s
    end: Int64s
    """When it began and ended where it ran."""
    self_ps: Int64s
    plane: Int64s


class HostOpRows(Struct, frozen=True, kw_only=True):
    """Events of ops on host threads, by line: `name` indexes `ops`, `parent` these events (-1: in none of them)."""

    ops: tuple[Op, ...]
    hlo: dict[int, Hlo]
    """Of ops that XLA compiled, by their index in `ops`."""
    row: Int64s
    name: Int64s
    parent: Int64s
    self_ps: Int64s


def host_op_rows(trace: HostTrace) -> HostOpRows:
    """Return the ops that ran on host threads; what is inside an op on its thread is not its time."""
    named = [parse_op(name) if not is_python_frame(name) else parse_op("") for name in trace.names]
    name_of, compiled, hlo = compiled_ops(trace)
    ops = (*named, *compiled)
    is_op = np.array([bool(op.kind) for op in ops], np.bool_)
    rows, above, count = [NO_NUMBERS], [NO_NUMBERS], 0
    for line in trace.host_lines:
        on_line = np.flatnonzero(is_op[name_of[line.start : line.stop]]) + line.start
        parent = nest(trace.start_ps[on_line], trace.end_ps[on_line]).parent
        rows.append(on_line)
        above.append(np.where(parent >= 0, parent + count, -1))
        count += len(on_line)
    row, parent = np.concatenate(rows), np.concatenate(above)
    return HostOpRows(
        ops=ops,
        hlo=hlo,
        row=row,
        name=name_of[row].astype(np.int64),
        parent=parent,
        self_ps=self_time(trace.duration_ps[row], parent),
    )


def host_op_events(trace: HostTrace) -> OpEvents:
    """Return the ops of the framework that ran on host threads; what is inside an op on its thread is not its time."""
    found = host_op_rows(trace)
    of_framework = np.array([op.kind == "tensorflow" for op in found.ops], np.bool_)[found.name]
    name, row, self_ps = (column[of_framework] for column in (found.name, found.row, found.self_ps))
    return _events([(op.name, op.type) for op in found.ops], trace, name, row, self_ps)


def device_op_events(trace: HostTrace) -> OpEvents:
    """Return what devices did of which the op is known: kernels and copies of GPUs, ops of TPU cores."""
    if trace.device_kind == "tpu":
        return _tpu(trace)
    work = device_work(trace)
    known = work.op >= 0
    rows = work.rows[known]
    events = _events([(op.name, op.type) for op in work.ops], trace, work.op[known], rows, trace.duration_ps[rows])
    call = launch_links(trace, np.sort(rows)).of(rows)
    start = np.where(call >= 0, trace.start_ps[call], trace.start_ps[rows])
    return replace(events, start=start)


def _tpu(trace: HostTrace) -> OpEvents:
    """Return the ops of TPU cores; a loop is without its body. What the framework has no name for keeps its own."""
    lines = [line for line in trace.lines if line.plane in trace.devices and line.name in OP_LINES]
    rows, times = [NO_NUMBERS], [NO_NUMBERS]
    for line in lines:
        start, end = (times_of[line.start : line.stop] for times_of in (trace.start_ps, trace.end_ps))
        rows.append(np.arange(line.start, line.stop))
        times.append(self_time(end - start, nest(start, end).parent))
    row, self_ps = np.concatenate(rows), np.concatenate(times)
    named, categories = trace.name_stat("tf_op"), trace.name_stat("hlo_category")
    ops = []
    for name, text in enumerate(trace.display_names):
        op, category = parse_op(str(named.get(name, ""))), str(categories.get(name, ""))
        ops.append((op.name or f"{NO_FRAMEWORK_OP}/{text or trace.names[name]}", op.type or category))
    return _events(ops, trace, trace.name[row].astype(np.int64), row, self_ps)


def _events(names: list[tuple[str, str]], trace: HostTrace, which: Int64s, rows: Int64s, self_ps: Int64s) -> OpEvents:
    """Return the events, each op once: several names of a trace may be the same op."""
    number: dict[tuple[str, str], int] = {}
    of_name = np.zeros(len(names), np.int64)
    for name in np.flatnonzero(np.bincount(which, minlength=len(names))).tolist():
        of_name[name] = number.setdefault(names[name], len(number))
    planes = np.array([line.plane for line in trace.lines], np.int64)
    start = trace.start_ps[rows]
    return OpEvents(
        ops=tuple(number),
        op=of_name[which],
        start=start,
        begin=start,
        end=trace.end_ps[rows],
        self_ps=self_ps,
        plane=planes[trace.line_of[rows]] if len(rows) else NO_NUMBERS,
    )
