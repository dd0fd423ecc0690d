"""Input work of the host: time per input op and per class, as thread time and as wall time.

Self times are summed over parallel threads, so they can exceed the elapsed time. Wall time is the time in which at
least one thread is active. Both exclude nested ops.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Host, Tabular
from tfperf.base.arrays import Int64s, Intervals, distinct, lookup, union, union_all
from tfperf.base.display import Plotted
from tfperf.base.units import PS_PER_MS
from tfperf.trace.event_names import Op, hands_over_batch, mask, parse_op
from tfperf.trace.host.activities import Attribution
from tfperf.trace.host.host_ops import is_input_op
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import own_parts, parents
from tfperf.trace.tfdata import CALL, FUNCTION, THREAD, Pipelines, StageWork, asynchronous_stages

InputPart = Literal["on_demand_read", "advanced_read", "preprocessing", "enqueue", "other"]
"""The five classes of TensorFlow's input-pipeline analyzer."""

INPUT_PARTS: tuple[InputPart, ...] = get_args(InputPart)

_READER = re.compile(r"::(TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|ArrayRecord)$")
_READS_AHEAD = re.compile(r"::(MemoryReader|MemoryWriter|Interleave|Prefetch|ParallelMap)")
_READS_AHEAD_TOO = re.compile(r"::(Legacy)?ParallelInterleave|::ParallelBatch|::MapAndBatch")
_HANDS_OVER = re.compile(
    r"::(Prefetch|MapAndBatch|((Legacy)?ParallelInterleave|ParallelMap|ParallelBatch|ParseExample)(V\d)?)(\[\d+\])?$"
    r"|^Iterator::Prefetch::Generator$"
)
"""Stages whose work is done by threads or by another pipeline: the call takes a ready element, or waits."""


class InputOp(Struct, frozen=True, kw_only=True):
    """An op of the input pipeline. Times are picoseconds, summed over `threads` threads, except `wall_ps`."""

    name: str
    part: InputPart
    count: int
    total_ps: int | None
    """Including nested ops; None for a row of several ops, which may be nested in each other."""
    self_ps: int
    wall_ps: int | None
    """Time in which at least one thread runs this op itself; None for a row of several ops."""
    threads: int | None


def part_of(op: Op, attribution: Attribution, *, hands_over: bool | None = None) -> InputPart:
    """Return the class of an input op.

    `corrected` differs from TensorFlow in two points: a reader inside a parallel interleave counts as reading ahead;
    and a stage whose call only passes on elements made elsewhere counts as `other`, because its time is waiting.
    `hands_over` states whether the stage is one; if it is None, its name decides.
    """
    if op.type != "Dataset":
        return "enqueue"
    if attribution == "corrected" and (hands_over or (hands_over is None and _HANDS_OVER.search(op.name))):
        return "other"
    if not _READER.search(op.name):
        return "preprocessing"
    reads_ahead = _READS_AHEAD.search(op.name) or (attribution == "corrected" and _READS_AHEAD_TOO.search(op.name))
    return "advanced_read" if reads_ahead else "on_demand_read"


_SUMMED = ("count", "total_ps", "self_ps", "wall_ps", "threads")
_OTHERS = "(other ops)"


class PartTime(Struct, frozen=True):
    """Time of one class in picoseconds; `scaled_ps` is its self time scaled to the host's own time."""

    ops: int
    self_ps: int
    scaled_ps: float
    wall_ps: int


class InputPipeline(Plotted, Tabular, frozen=True):
    """Input work on one host, or summed over hosts; `ops` is sorted by self time, largest first."""

    home = ("input", "input_ops")

    ops: tuple[InputOp, ...]
    parts: dict[InputPart, PartTime]
    enqueue_shares: tuple[float, ...]
    """Share of host time (0 to 1) in copies to the device, for each host with scaled times."""
    has_host_events: bool

    @property
    def self_ps(self) -> int:
        """Return the self time of all input ops."""
        return sum(op.self_ps for op in self.ops)

    @property
    def largest(self) -> InputPart | None:
        """Return the class that is active for most of the wall time; `other` only if no other class is active."""
        active = [part for part in INPUT_PARTS if self.parts[part].wall_ps]
        named = [part for part in active if part != "other"] or active
        return max(named, key=lambda part: self.parts[part].wall_ps, default=None)

    def columns(self) -> dict[str, list[object]]:
        """Return one row per input op; percentages are of the self time of all input ops."""
        one_percent = max(self.self_ps, 1) / 100.0
        return {
            "op_name": [op.name for op in self.ops],
            "part": [op.part for op in self.ops],
            "count": [op.count for op in self.ops],
            "total_ms": [_per(op.total_ps, PS_PER_MS) for op in self.ops],
            "total_percent": [_per(op.total_ps, one_percent) for op in self.ops],
            "self_ms": [op.self_ps / PS_PER_MS for op in self.ops],
            "self_percent": [op.self_ps / one_percent for op in self.ops],
            "wall_ms": [_per(op.wall_ps, PS_PER_MS) for op in self.ops],
            "threads": [op.threads for op in self.ops],
        }


def analyze(host: Host) -> InputPipeline:
    """Find the input ops of a host, and add them up by class."""
    found = ops_by_event(host) if host.as_tensorflow else ops_by_stage(host)
    ops = [op for op, _ in found]
    wall_ps = {
        part: union_all([stretches for op, stretches in found if op.part == part]).total() for part in INPUT_PARTS
    }
    self_ps = {part: sum(op.self_ps for op in ops if op.part == part) for part in INPUT_PARTS}
    share = _enqueue_share(host)
    # TensorFlow's profiler scales by enqueue ops; the share of steps is not valid for other ops.
    pairs = zip(host.host_ops.ops, host.host_ops.count.tolist(), strict=True)
    has_enqueue = any(count and op.kind and is_input_op(op) and op.type != "Dataset" for op, count in pairs)
    is_scaled = bool(share) and (has_enqueue or host.as_tensorflow)
    scaled_ps = _scaled(self_ps, share) if is_scaled else self_ps
    parts = {
        part: PartTime(sum(op.part == part for op in ops), self_ps[part], scaled_ps[part], wall_ps[part])
        for part in INPUT_PARTS
    }
    return InputPipeline(
        _by_self_time(ops),
        parts,
        enqueue_shares=(share,) if is_scaled else (),
        has_host_events=any(line.stop > line.start for line in host.trace.host_lines),
    )


def _per(value: int | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _by_self_time(ops: Sequence[InputOp]) -> tuple[InputOp, ...]:
    return tuple(sorted(ops, key=lambda op: (-op.self_ps, op.name)))


def _scaled(self_ps: dict[InputPart, int], share: float) -> dict[InputPart, float]:
    """Scale all but enqueue so that enqueue gets this share: batches are prepared on many threads, enqueued on one."""
    enqueue = self_ps["enqueue"]
    rest = sum(self_ps.values()) - enqueue
    wanted = enqueue * (1.0 - share) / share
    scaled = {part: wanted * value / rest if rest else 0.0 for part, value in self_ps.items()}
    if not rest:
        scaled["other"] = wanted
    return {**scaled, "enqueue": float(enqueue)}


def _enqueue_share(host: Host) -> float:
    """Return the share of host time in copies to the device, from the infeed or else from steps."""
    trace = host.trace
    infeed = np.array([op.type.startswith("InfeedEnqueue") for op in host.host_ops.ops], np.bool_)
    enqueuing_ps = between_ps = 0
    for line in trace.host_lines if infeed.any() else ():
        rows = np.flatnonzero(infeed[trace.name[line.start : line.stop]]) + line.start
        enqueuing_ps += int(trace.duration_ps[rows[:-1]].sum())
        between_ps += int(np.diff(trace.start_ps[rows]).sum())
    if between_ps:
        return min(1.0, enqueuing_ps / between_ps)
    breakdown = host["steps"]
    counted = breakdown.steps.headline
    steps_ps = int(breakdown.steps.duration_ps[counted].sum())
    return min(1.0, int(breakdown.time_ps["host_to_device"][counted].sum()) / steps_ps) if steps_ps else 0.0


def combine(hosts: Sequence[InputPipeline]) -> InputPipeline:
    """Add up hosts. Wall times are added too, because they count time per host."""
    if len(hosts) == 1:
        return hosts[0]
    same: defaultdict[tuple[str, InputPart], list[InputOp]] = defaultdict(list)
    for host in hosts:
        for op in host.ops:
            same[op.name, op.part].append(op)
    ops = [_added(of_hosts) for of_hosts in same.values()]
    parts = {
        part: PartTime(
            # A host may have merged some of its ops into one row.
            max(sum(op.part == part for op in ops), *(host.parts[part].ops for host in hosts)),
            *(sum(getattr(host.parts[part], key) for host in hosts) for key in ("self_ps", "scaled_ps", "wall_ps")),
        )
        for part in INPUT_PARTS
    }
    return InputPipeline(
        _by_self_time(ops),
        parts,
        enqueue_shares=tuple(share for host in hosts for share in host.enqueue_shares),
        has_host_events=any(host.has_host_events for host in hosts),
    )


def _added(ops: Sequence[InputOp]) -> InputOp:
    values = {key: [getattr(op, key) for op in ops] for key in _SUMMED}
    return replace(ops[0], **{key: None if None in each else sum(each) for key, each in values.items()})


def shorten(pipeline: InputPipeline, most: int) -> InputPipeline:
    """Return the `most` ops with the largest self time, and one row per class for all others."""
    if len(pipeline.ops) <= most:
        return pipeline
    rest = [replace(op, name=_OTHERS, total_ps=None, wall_ps=None, threads=None) for op in pipeline.ops[most:]]
    others = [_added(ops) for part in INPUT_PARTS if (ops := [op for op in rest if op.part == part])]
    return replace(pipeline, ops=_by_self_time([*pipeline.ops[:most], *others]))


FoundOp = tuple[InputOp, Intervals]
"""An op, and the intervals of its work; those of several threads overlap."""


def ops_by_event(host: Host) -> list[FoundOp]:
    """Return the input ops as TensorFlow does: by event name, each without nested ops."""
    host_ops, work = host.host_ops, host.host_ops.input_work
    entries_of: dict[Op, list[int]] = {}
    for entry in np.flatnonzero(host_ops.count).tolist():
        if is_input_op(host_ops.ops[entry]):
            entries_of.setdefault(replace(host_ops.ops[entry], kind=""), []).append(entry)
    found = []
    for op, entries in entries_of.items():
        rows = np.isin(work.name, entries)
        stretches = Intervals(work.start[rows], work.end[rows])
        input_op = InputOp(
            name=op.name,
            part=part_of(op, "tensorflow"),
            count=sum(host_ops.count[entries].tolist()),
            total_ps=sum(host_ops.total_ps[entries].tolist()),
            self_ps=sum(host_ops.self_ps[entries].tolist()),
            wall_ps=union(*stretches).total(),
            threads=sum(host_ops.threads[entries].tolist()),
        )
        found.append((input_op, stretches))
    return found


class _Piece(NamedTuple):
    """Part of an op: its events, and the intervals of its self time with the event that contains each."""

    events: Int64s
    rows: Int64s
    start: Int64s
    end: Int64s


_Label = tuple[str, InputPart]
_PASSING_ON = ("Prefetch", "ParallelInterleave", "LegacyParallelInterleave")
"""Stages whose threads only pull elements from others."""


def ops_by_stage(host: Host) -> list[FoundOp]:
    """Return the input ops by stage: its calls, threads and function. Waiting for a function elsewhere is not work."""
    trace, recorded, work = host.trace, host.pipelines, host.stage_work
    pieces: dict[_Label, list[_Piece]] = {}
    for label, piece in _of_no_stage(trace, recorded):
        pieces.setdefault(label, []).append(piece)
    if recorded is not None and work is not None:
        for label, piece in _of_stages(recorded, work):
            if len(piece.events) or len(piece.rows):
                pieces.setdefault(label, []).append(piece)
    return [_whole(trace, label, parts) for label, parts in pieces.items()]


def _of_no_stage(trace: HostTrace, recorded: Pipelines | None) -> Iterator[tuple[_Label, _Piece]]:
    """Yield copies to devices, and calls without a link to a pipeline; each without nested ops."""
    rows = trace.host_events(mask(trace.names, lambda name: is_input_op(parse_op(name)) or hands_over_batch(name)))
    wanted = np.ones(len(rows), np.bool_) if recorded is None else lookup(recorded.calls.row, rows) < 0
    part, start, end = own_parts(trace.start_ps[rows], trace.end_ps[rows], parents(trace, rows), wanted)
    events, inside = rows[wanted], rows[part]
    for name in distinct(trace.name[events]).tolist():
        op, is_part = parse_op(trace.names[name]), trace.name[inside] == name
        label = op.name if is_input_op(op) else trace.names[name]
        piece = _Piece(events[trace.name[events] == name], inside[is_part], start[is_part], end[is_part])
        yield (label, part_of(op, "corrected")), piece


def _of_stages(recorded: Pipelines, work: StageWork) -> Iterator[tuple[_Label, _Piece]]:
    """Yield the work of each stage; calls that only pass on elements of other threads or pipelines are waiting."""
    calls, produced, runs = recorded.calls, recorded.produced, recorded.runs
    is_async = asynchronous_stages(recorded)

    def piece(stage: int, place: int, events: Int64s) -> _Piece:
        rows = work.at(stage, place)
        return _Piece(events, work.row[rows].astype(np.int64), work.start[rows], work.end[rows])

    for index, stage in enumerate(recorded.stages):
        for_device = stage.name == "Generator" and recorded.device[stage.pipeline]
        part = part_of(Op("tf.data", stage.path, "Dataset"), "corrected", hands_over=is_async[index] or for_device)
        yield (stage.path, part), piece(index, CALL, calls.row[calls.stage == index])
        part = "other" if for_device or stage.name.startswith(_PASSING_ON) else "preprocessing"
        yield (f"threads of {stage.path}", part), piece(index, THREAD, produced.row[produced.stage == index])
        part = "other" if for_device else "preprocessing"
        yield (f"function of {stage.path}", part), piece(index, FUNCTION, runs.row[runs.stage == index])
    yield ("functions of unknown stages", "preprocessing"), piece(-1, FUNCTION, runs.row[runs.stage < 0])


def _whole(trace: HostTrace, label: _Label, parts: list[_Piece]) -> FoundOp:
    """Add up the pieces of an op. The piece of a function is the work of executors on any thread."""
    events, rows, start, end = (np.concatenate(each) for each in zip(*parts, strict=True))
    stretches = Intervals(start, end)
    name, part = label
    total_ps = stretches.total() if name.startswith("function") else int(trace.duration_ps[events].sum())
    input_op = InputOp(
        name=name,
        part=part,
        count=len(events),
        total_ps=max(total_ps, stretches.total()),
        self_ps=stretches.total(),
        wall_ps=union(start, end).total(),
        threads=len(distinct(trace.line_of[rows if len(rows) else events])),
    )
    return input_op, stretches
