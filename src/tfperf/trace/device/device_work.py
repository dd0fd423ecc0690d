"""Device work: when each device was busy with compute and copies, and the op of each kernel and copy.

Streams of a device run concurrently, so their times are united, not summed, on the clock of the trace.

The profiler records the op of an event in different stats, depending on the version: `tf_op` (the framework's name of
the op), `level 0` in files of 2020 to 2022 (where `annotation` has the whole stack of names, outermost first), `hlo_op`
if XLA compiled the op. An HLO op is mapped to the framework op by the compiled program in the profile, or by the stat
`name` that JAX records.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import (
    NO_NUMBERS,
    Bools,
    Int64s,
    Intervals,
    Uint8s,
    capped_sum,
    difference,
    distinct_rows,
    touches,
    union_all,
    union_sorted,
)
from tfperf.formats.hlo.messages import NamedInstruction, NamedProgram
from tfperf.formats.wire.event_columns import OP_LINES, Line
from tfperf.trace.event_names import mask, parse_op
from tfperf.trace.host.activities import TPU_WAITS, Activity, Attribution, Codes, device_codes, tpu_codes
from tfperf.trace.host_trace import HostTrace, rows_of

COPIES = (Activity.HOST_TO_DEVICE, Activity.DEVICE_TO_HOST, Activity.DEVICE_TO_DEVICE)


class DeviceTime(Struct, frozen=True):
    """One device: flat sets of intervals in picoseconds, which may overlap. `copies` includes memsets.

    `collectives` is when it exchanges data with other devices (NCCL, RCCL), `compute` when it runs other kernels. On a
    TPU core, `copies` is when it waits in an op for data, from the host or from another memory, and `compute` is when
    it runs other ops.
    """

    plane: int
    name: str
    compute: Intervals
    collectives: Intervals
    copies: Intervals
    busy: Intervals
    kernel_sum_ps: int
    """Sum over kernels; exceeds `compute` if kernels overlap. On a TPU core, the time in any op."""
    start_ps: int
    """Start of the capture (first event); on a TPU core its first op, because the profiler starts and stops slowly."""
    end_ps: int

    @property
    def wall_ps(self) -> int:
        """Return the duration of the capture, on a TPU core from its first to its last op."""
        return self.end_ps - self.start_ps

    @property
    def collectives_alone_ps(self) -> int:
        """Return the time of collectives without compute."""
        return difference(self.collectives, self.compute).total()

    @property
    def copies_alone_ps(self) -> int:
        """Return the time of copies without compute and collectives."""
        return difference(self.copies, union_all([self.compute, self.collectives])).total()

    @property
    def idle_ps(self) -> int:
        """Return the idle time: compute + collectives alone + copies alone + idle = wall."""
        return self.wall_ps - self.busy.total()


def device_label(plane_name: str) -> str:
    """Return `GPU:0` for `/device:GPU:0`."""
    return plane_name.removeprefix("/device:") or plane_name


def is_memset(name: str) -> bool:
    """Return whether a device event fills memory, which is not a kernel."""
    return name.lower().startswith(("memset", "hipmemset"))


def is_copy_of_any_kind(name: str) -> bool:
    """Return whether the name is that of a copy, with or without its direction."""
    return name.lower().startswith(("memcpy", "hipmemcpy"))


def moves_data(trace: HostTrace, codes: Codes) -> Bools:
    """Return, as if all events were on a GPU, whether each copies or fills memory; `codes` are corrected
    `device_codes`.
    """
    by_code = np.zeros(256, np.bool_)
    by_code[list(COPIES)] = True
    by_name = mask(trace.names, lambda name: is_memset(name) or is_copy_of_any_kind(name))
    moves: Bools = by_code[codes] | by_name[trace.name]
    return moves


def work_lines(trace: HostTrace, plane: int) -> tuple[Line, ...]:
    """Return the lines with a device's work: recorded streams of a GPU, op lines of a TPU core."""
    lines = trace.device_lines(plane)
    return tuple(line for line in lines if line.name in OP_LINES) if trace.device_kind == "tpu" else lines


def work_rows(trace: HostTrace, plane: int) -> Int64s:
    """Return the rows of a device's work, in row order."""
    return rows_of(work_lines(trace, plane))


def device_times(trace: HostTrace) -> tuple[DeviceTime, ...]:
    """Return when each device that recorded anything was busy."""
    if not trace.devices:
        return ()
    if trace.device_kind == "tpu":
        codes = tpu_codes(trace)
        moves = np.isin(codes, np.array(TPU_WAITS, np.uint8))
    else:
        codes = device_codes(trace, "corrected")
        moves = moves_data(trace, codes)
    kinds = np.where(moves, _COPY, np.where(codes == Activity.COLLECTIVES, _EXCHANGE, _COMPUTE)).astype(np.uint8)
    return tuple(_device_time(trace, plane, kinds) for plane in trace.devices)


def computing(devices: tuple[DeviceTime, ...], steps: Intervals | None = None) -> tuple[DeviceTime, ...]:
    """Return the devices that run kernels, in the capture or in steps; all of them if none does."""

    def computes(device: DeviceTime) -> bool:
        kernels = (device.compute, device.collectives)
        if steps is None:
            return any(len(each.start) for each in kernels)
        return any(touches(each, steps.start, steps.end).any() for each in kernels)

    return tuple(filter(computes, devices)) or devices


_COMPUTE, _EXCHANGE, _COPY = range(3)


def _device_time(trace: HostTrace, plane: int, kinds: Uint8s) -> DeviceTime:
    sets: tuple[list[Intervals], ...] = ([], [], [])
    kernel_sum_ps = 0
    for line in work_lines(trace, plane):
        of_line = kinds[line.start : line.stop]
        for kind in np.flatnonzero(np.bincount(of_line, minlength=1)).tolist():
            rows = np.flatnonzero(of_line == kind) + line.start
            sets[kind].append(union_sorted(trace.start_ps[rows], trace.end_ps[rows]))
            kernel_sum_ps += 0 if kind == _COPY else capped_sum(trace.duration_ps[rows])
    compute, exchanged, copied = (union_all(parts) for parts in sets)
    name, busy = trace.planes[plane].name, union_all([compute, exchanged, copied])
    span = trace.extent_ps
    if trace.device_kind == "tpu":  # ops nest: a loop waits while an op in it does
        exchanged = difference(exchanged, copied)
        compute, kernel_sum_ps = difference(compute, union_all([exchanged, copied])), busy.total()
        span = (int(busy.start[0]), int(busy.end[-1])) if len(busy.start) else span
    return DeviceTime(plane, name, compute, exchanged, copied, busy, kernel_sum_ps, *span)


# --- ops ---

NO_TYPE = "Unknown"


class DeviceOp(NamedTuple):
    """The op of device events: the framework's name and type, and the HLO op if XLA compiled it (else empty)."""

    name: str
    type: str
    hlo_op: str = ""
    hlo_module: str = ""
    opcode: str = ""


class DeviceWork(Struct, frozen=True):
    """Device work: one row per recorded event with a duration, in the order of the trace.

    `rows` are rows of the trace, `plane` and `line` indices into its planes and lines; `op` is an index into `ops`, or
    -1 if unknown. `moves` marks copies and fills (`is_memset`) of memory; all other rows are kernels.
    """

    rows: Int64s
    plane: Int64s
    line: Int64s
    activity: Codes
    is_memset: Bools
    moves: Bools
    op: Int64s
    ops: tuple[DeviceOp, ...]


_NONE = np.empty(0, np.bool_)
NO_WORK = DeviceWork(NO_NUMBERS, NO_NUMBERS, NO_NUMBERS, _NONE.astype(np.uint8), _NONE, _NONE, NO_NUMBERS, ())


def device_work(trace: HostTrace, attribution: Attribution = "corrected") -> DeviceWork:
    """Return the work of GPUs (the ops of a TPU have their own names, see `sections/ops`)."""
    if trace.device_kind != "gpu":
        return NO_WORK
    rows = rows_of(line for line in trace.lines if line.plane in trace.devices and not line.derived)
    rows = rows[trace.duration_ps[rows] > 0]
    of_line = trace.line_of[rows].astype(np.int64)
    plane_of = np.array([line.plane for line in trace.lines], np.int64)
    codes = device_codes(trace, "corrected")
    moves = moves_data(trace, codes)
    codes = codes if attribution == "corrected" else device_codes(trace, attribution)
    op, ops = _ops(trace, rows, old=attribution == "tensorflow" and trace.has_groups)
    memset = mask(trace.names, is_memset)[trace.name[rows]]
    return DeviceWork(rows, plane_of[of_line], of_line, codes[rows], memset, moves[rows], op, ops)


def trace_texts(trace: HostTrace, stat: str) -> tuple[str, ...]:
    """Return the texts of a stat, followed by an empty one: index -1 is an event without the stat."""
    return (*trace.stat(stat).texts, "")


_ANNOTATIONS = ("hlo_op", "hlo_module", "name", "annotation", "level 0", "tf_op")


def _ops(trace: HostTrace, rows: Int64s, *, old: bool) -> tuple[Int64s, tuple[DeviceOp, ...]]:
    """Return the index of each row's op (-1: unknown), and the ops, parsed once per distinct annotation."""
    texts_of = {stat: trace_texts(trace, stat) for stat in _ANNOTATIONS}
    programs, ids = trace.program_at(rows)
    values = [*(trace.number_at(stat, rows, -1) for stat in _ANNOTATIONS), programs]
    first, number = distinct_rows(values)
    index_of: dict[DeviceOp, int] = {}
    index = []
    for *values_of_op, program in np.stack([column[first] for column in values], axis=1).tolist():
        texts = {stat: texts_of[stat][value] for stat, value in zip(_ANNOTATIONS, values_of_op, strict=True)}
        op = _op(texts, trace.programs.get(ids[program]) if program >= 0 else None, old=old)
        index.append(-1 if op is None else index_of.setdefault(op, len(index_of)))
    return np.array(index, np.int64)[number], tuple(index_of)


def _op(texts: dict[str, str], program: NamedProgram | None, *, old: bool) -> DeviceOp | None:
    """Return the op from the stats of an event; XLA writes the name of the module into `tf_op` if it has no op name."""
    outermost = "" if old else re.split("#|::", texts["annotation"], maxsplit=1)[0]
    candidates = (texts["tf_op"], texts["level 0"], outermost)
    annotation = next((text for text in candidates if text and not text.startswith("XlaModule:")), "")
    hlo_op = texts["hlo_op"].split("::")[-1]
    if not hlo_op:
        if not annotation:
            return None
        op = parse_op(annotation, old_names=old)
        return DeviceOp(op.name, op.type or NO_TYPE)
    program = program or NamedProgram("", {})
    instruction = program.instructions.get(hlo_op, NamedInstruction("", "", ""))
    module = texts["hlo_module"] or program.module
    opcode = instruction.opcode
    name = instruction.op_name or texts["name"] or annotation
    op = parse_op(name)
    kind = instruction.op_type or op.type or opcode or "HLO op"
    return DeviceOp(op.name or hlo_op, kind if name else opcode or "HLO op", hlo_op, module, opcode)
