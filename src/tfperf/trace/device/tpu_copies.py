"""Asynchronous copies and exchanges of TPU cores, and how long the core waits for them.

A core begins such an operation in one op (`copy-start`), runs others, and waits for it in a second op (`copy-done`),
both on its op line. The line of asynchronous ops is not used: only one core of a host may have it, and its times are on
another clock. `S(5)` in a layout is memory of the host, which determines the direction.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import NO_NUMBERS, Bools, Int64s, Intervals, covers, distinct, group_equal, union, union_all
from tfperf.formats.hlo.model import BITS
from tfperf.formats.wire.event_columns import MODULE_LINE, OP_LINES
from tfperf.trace.event_names import is_transfer_to_tpu, mask
from tfperf.trace.host_trace import HostTrace, rows_of

Way = Literal["to_device", "to_host", "on_device", "exchange"]
"""From the memory of the host to the device, or back; between memories of the device; or between devices."""

_HLO = re.compile(r"%?(\S+) = (.*?) ([a-z][a-z0-9-]*)-(start|done)\((.*)", re.DOTALL)
_NAME = re.compile(r"%?(.*?([a-z][a-z0-9-]*)-(start|done)[.\d]*)$")
_OPERAND = re.compile(r"%([^\s,()]+)\)")
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([\d,]*)\]")
_ON_HOST = "S(5)"
_COPIES = frozenset({"copy", "slice", "dynamic-slice", "dynamic-update-slice"})
_EXCHANGES = ("all-", "collective-", "reduce-scatter", "ragged-all-to-all")


class AsyncOp(NamedTuple):
    """An instruction of a pair: `start` or `done`; `begun` is the name of the one that starts it."""

    part: Literal["start", "done"]
    way: Way
    instruction: str
    begun: str
    shape: str
    """Its result shape, in XLA's notation; empty if unknown."""


def async_op(text: str, shape: str = "") -> AsyncOp | None:
    """Return the operation that an op begins or awaits, a copy or an exchange; None for other ops.

    `text` is the instruction in XLA's notation, or only its name; `shape` is its result shape from another stat.
    """
    if "-start" not in text and "-done" not in text:
        return None
    found = _HLO.match(text)
    if found is not None:
        instruction, shape, opcode, part, operands = found.groups()
        operand = _OPERAND.search(operands)
        begun = operand[1] if operand else ""
    else:
        name = _NAME.match(text)
        if name is None:
            return None
        instruction, opcode, part = name.groups()
        operands, begun = "", instruction[::-1].replace("enod-", "trats-", 1)[::-1]
    is_start = part == "start"
    way = _way(opcode, shape, operands, is_start=is_start)
    if way is None:
        return None
    return AsyncOp("start" if is_start else "done", way, instruction, instruction if is_start else begun, shape)


def _way(opcode: str, shape: str, operands: str, *, is_start: bool) -> Way | None:
    if opcode.startswith(_EXCHANGES):
        return "exchange"
    if opcode not in _COPIES:
        return None
    if is_start and _ON_HOST in operands and opcode != "dynamic-update-slice":
        return "to_device"
    if _ON_HOST in shape:
        return "to_host"
    return "to_device" if _ON_HOST in operands else "on_device"


def bytes_of(shape: str) -> int | None:
    """Return the bytes of the arrays in an XLA shape; None without arrays, or with an unknown type."""
    sizes = []
    for kind, dims in _ARRAY.findall(shape):
        if kind not in BITS:
            return None
        lengths = [int(length) for length in dims.split(",") if length]
        sizes.append((int(np.prod(lengths, dtype=object)) * BITS[kind] + 7) // 8)
    return sum(sizes) if sizes else None


class AsyncKind(NamedTuple):
    """A pair of instructions of a program; `program` is its id, -1 if unknown."""

    program: int
    start: str
    done: str
    way: Way
    shape: str


class AsyncRuns(Struct, frozen=True, eq=False):
    """Waits of cores for asynchronous operations, one row each, as columns of equal length.

    `kind` indexes `kinds`, `rows` are the ops that wait. A core waits from `awaited_ps` to `end_ps`; the operation
    began at `begun_ps`, known only if `is_paired`. Times are picoseconds on the clock of the core.
    """

    kinds: tuple[AsyncKind, ...]
    rows: Int64s
    kind: Int64s
    plane: Int64s
    begun_ps: Int64s
    awaited_ps: Int64s
    end_ps: Int64s
    is_paired: Bools

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.kind)


def async_runs(trace: HostTrace, plane: int | None = None) -> AsyncRuns:
    """Return the waits of all cores of a host, or of the core of a plane.

    In a run of a program, the first op that awaits an operation belongs to the first op that began it, and so on. If
    the numbers of both differ in a run, because the capture began or ended in it, the beginnings are unknown.
    """
    cores = trace.devices if plane is None else (plane,)
    lines = [line for core in cores for line in trace.device_lines(core) if line.name in OP_LINES]
    rows = rows_of(lines)
    kind_of, is_done, kinds = _kinds(trace, distinct(trace.name[rows]).tolist())
    rows = rows[kind_of[trace.name[rows]] >= 0]
    kind, done = kind_of[trace.name[rows]], is_done[trace.name[rows]]
    line_of = trace.line_of[rows].astype(np.int64)
    run = np.zeros(len(rows), np.int64)
    for line in lines:
        here = slice(*np.searchsorted(rows, (line.start, line.stop)).tolist())
        for modules in (other for other in trace.device_lines(line.plane) if other.name == MODULE_LINE):
            begins = trace.start_ps[modules.start : modules.stop]
            run[here] = np.searchsorted(begins, trace.start_ps[rows[here]], side="right")
    order = np.concatenate((np.flatnonzero(~done), np.flatnonzero(done)))
    grouped, first = group_equal([column[order] for column in (line_of, run, kind)])
    order = order[grouped]
    length = np.diff(first, append=len(order))
    dones = np.add.reduceat(done[order].astype(np.int64), first) if len(first) else NO_NUMBERS
    is_even = np.repeat(length == 2 * dones, length)[done[order]]
    of_done = np.flatnonzero(done[order])
    begun = order[np.where(is_even, of_done - np.repeat(dones, length)[of_done], of_done)]
    awaited = order[of_done]
    is_paired = is_even & (trace.start_ps[rows[begun]] <= trace.start_ps[rows[awaited]])
    back = np.argsort(awaited)
    awaited, begun, is_paired = awaited[back], begun[back], is_paired[back]
    return AsyncRuns(
        kinds=kinds,
        rows=rows[awaited],
        kind=kind[awaited],
        plane=trace.plane_of(rows[awaited]),
        begun_ps=np.where(is_paired, trace.start_ps[rows[begun]], trace.start_ps[rows[awaited]]),
        awaited_ps=trace.start_ps[rows[awaited]],
        end_ps=trace.end_ps[rows[awaited]],
        is_paired=is_paired,
    )


def _kinds(trace: HostTrace, names: list[int]) -> tuple[Int64s, Bools, tuple[AsyncKind, ...]]:
    """Return for each name its pair (-1: none) and whether it awaits one, and the pairs."""
    kind_of, is_done = np.full(len(trace.names), -1, np.int64), np.zeros(len(trace.names), np.bool_)
    programs = trace.name_stat("program_id")
    found: dict[int, tuple[int, AsyncOp]] = {}
    for name in names:
        op = name_of_op(trace, name)
        if op is not None:
            program = programs.get(name, -1)
            found[name] = (program if isinstance(program, int) else -1, op)
    index: dict[tuple[int, str], int] = {}
    kinds: list[AsyncKind] = []
    for program, op in found.values():
        if op.part == "done" and (program, op.begun) not in index:
            index[program, op.begun] = len(kinds)
            kinds.append(AsyncKind(program, op.begun, op.instruction, op.way, op.shape))
    for name, (program, op) in found.items():
        kind_of[name], is_done[name] = index.get((program, op.begun), -1), op.part == "done"
    return kind_of, is_done, tuple(kinds)


def name_of_op(trace: HostTrace, name: int) -> AsyncOp | None:
    """Return the operation that ops with this name index begin or await; None for other ops."""
    shape = str(trace.name_stats.get("shape_with_layout", {}).get(name, ""))
    return async_op(trace.names[name], shape) or async_op(trace.display_names[name], shape)


_RUNTIME, _TRANSFER = "tpu::System::", "tpu::System::TransferToDevice"
_INPUT_SHARE = 0.5
"""Share of the bytes that a core copies from the host: they are input if the host transfers more, and fewer go back."""


def transfers_to_devices(trace: HostTrace) -> Intervals:
    """Return when the host itself copies to TPUs, on the clock of the host.

    The begin and the end of a copy are separate events on different threads. While more have begun than have ended, a
    copy is in progress; the events need not be matched.
    """
    shows = mask(trace.names, lambda name: name.startswith((_TRANSFER, "H2D Dispatch")) or "BufferFromHost" in name)
    rows = trace.host_events(shows)
    if not len(rows):
        return Intervals(NO_NUMBERS, NO_NUMBERS)
    spans = [union(trace.start_ps[rows], trace.end_ps[rows])]
    begins, ends = (
        np.sort(trace.start_ps[rows[mask(trace.names, wanted)[trace.name[rows]]]])
        for wanted in (is_transfer_to_tpu, lambda name: name.startswith(_TRANSFER) and "=>Done" in name)
    )
    if len(begins) == len(ends) and bool((begins <= ends).all()):
        spans.append(union(begins, ends))
    return union_all(spans)


def shows_transfers(trace: HostTrace) -> bool:
    """Return whether the host recorded its TPU runtime, which records copies to TPUs."""
    return bool(mask(trace.names, lambda name: name.startswith(_RUNTIME)).any())


def copies_own_arrays(trace: HostTrace, plane: int, start: Int64s, end: Int64s) -> bool:
    """Return whether the data that a core copies from host memory in time windows are arrays that stay there.

    Batches do not go back, so the arrays are the program's if half as many bytes are copied back. Batches must also be
    transferred to that memory, so they are the program's if the host transfers less than half the bytes, all known.
    """
    runs = async_runs(trace, plane)
    sizes = np.array([bytes_of(kind.shape) or 0 for kind in runs.kinds], np.float64)[runs.kind]
    windows = union(start, end)
    is_here = covers(windows, runs.awaited_ps)
    copied, returned = (
        float(sizes[is_here & np.array([kind.way == way for kind in runs.kinds], np.bool_)[runs.kind]].sum())
        for way in ("to_device", "to_host")
    )
    if not copied:
        return False
    if returned > _INPUT_SHARE * copied:
        return True
    rows = trace.host_events(mask(trace.names, is_transfer_to_tpu))
    of_host = Intervals(*(trace.on_host_clock(plane, times) for times in windows))
    rows = rows[covers(of_host, trace.start_ps[rows])]
    size = trace.number_at("size", rows, -1)
    return bool((size >= 0).all()) and float(size.sum()) < _INPUT_SHARE * copied
