"""What the host does for input: time per input op and per class, summed over threads and on the wall clock.

Self times of parallel threads add up to more than the time that passes. So each has its wall time beside it: the time
in which at least one thread was active, each without the ops inside.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from msgspec import Struct

from tfperf.arrays import Int64s, union
from tfperf.sections.host import Host
from tfperf.sections.registry import Tabular
from tfperf.trace.activities import Attribution
from tfperf.trace.event_names import Op
from tfperf.trace.host_ops import HostOps, Work, is_input_op
from tfperf.units import PS_PER_MS

InputPart = Literal["on_demand_read", "advanced_read", "preprocessing", "enqueue", "other"]
"""The five classes of TensorFlow's input-pipeline analyzer."""

INPUT_PARTS: tuple[InputPart, ...] = get_args(InputPart)
_SUMMED = ("count", "total_ps", "self_ps", "wall_ps", "threads")

_READER = re.compile(r"::(TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|ArrayRecord)$")
_READS_AHEAD = re.compile(r"::(MemoryReader|MemoryWriter|Interleave|Prefetch|ParallelMap)")
_READS_AHEAD_TOO = re.compile(r"::(Legacy)?ParallelInterleave|::ParallelBatch|::MapAndBatch")
_HANDS_OVER = re.compile(r"::(Prefetch|(Legacy)?ParallelInterleave(V\d)?)(\[\d+\])?$")
"""Stages of which only the threads work: the call itself takes an element that is ready, or waits for one."""


class InputOp(Struct, frozen=True, kw_only=True):
    """An op of the input pipeline; times are picoseconds, summed over `threads` threads, but for `wall_ps`."""

    name: str
    part: InputPart
    count: int
    total_ps: int
    self_ps: int
    wall_ps: int
    """Time in which at least one thread ran this op itself."""
    threads: int


class PartTime(Struct, frozen=True):
    """The time of one class, in picoseconds; `scaled_ps` is its self time, scaled to the host's own time."""

    ops: int
    self_ps: int
    scaled_ps: float
    wall_ps: int


class InputPipeline(Tabular, frozen=True):
    """The host's side of input, on one host or summed over hosts; `ops` has the largest self time first."""

    ops: tuple[InputOp, ...]
    parts: dict[InputPart, PartTime]
    enqueue_shares: tuple[float, ...]
    """For each host whose times were scaled: the share of its time (0 to 1) that copies to the device take."""
    has_host_events: bool
    """False: the trace holds no event of a host thread at all."""

    @property
    def self_ps(self) -> int:
        """Return the self time of all input ops."""
        return sum(op.self_ps for op in self.ops)

    @property
    def largest(self) -> InputPart | None:
        """Return the class that is active for most of the wall time; `other` only if there is nothing else."""
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
            "total_ms": [op.total_ps / PS_PER_MS for op in self.ops],
            "total_percent": [op.total_ps / one_percent for op in self.ops],
            "self_ms": [op.self_ps / PS_PER_MS for op in self.ops],
            "self_percent": [op.self_ps / one_percent for op in self.ops],
            "wall_ms": [op.wall_ps / PS_PER_MS for op in self.ops],
            "threads": [op.threads for op in self.ops],
        }


def analyze(host: Host) -> InputPipeline:
    """Find the input ops of a host, and add them up by class."""
    work = host.host_ops.input_work
    ops, row_of = _input_ops(host.host_ops, host.attribution)
    part_number = np.array([INPUT_PARTS.index(op.part) for op in ops], np.int64)
    wall_ps = _wall_ps(work, part_number[row_of[work.name]], len(INPUT_PARTS))
    self_ps = {part: sum(op.self_ps for op in ops if op.part == part) for part in INPUT_PARTS}
    share = _enqueue_share(host)
    is_scaled = bool(share) and bool(self_ps["enqueue"] or host.as_tensorflow)
    scaled_ps = _scaled(self_ps, share) if is_scaled else self_ps
    parts = {
        part: PartTime(sum(op.part == part for op in ops), self_ps[part], scaled_ps[part], wall_ps[number])
        for number, part in enumerate(INPUT_PARTS)
    }
    return InputPipeline(
        _by_self_time(ops),
        parts,
        enqueue_shares=(share,) if is_scaled else (),
        has_host_events=any(line.stop > line.start for line in host.trace.host_lines),
    )


def _input_ops(host_ops: HostOps, attribution: Attribution) -> tuple[list[InputOp], Int64s]:
    """Return the input ops, and for each entry of `host_ops` which of them it is; several names may be one op."""
    entries_of: dict[Op, list[int]] = {}
    for entry in np.flatnonzero(host_ops.count).tolist():
        if is_input_op(host_ops.ops[entry]):
            entries_of.setdefault(host_ops.ops[entry]._replace(kind=""), []).append(entry)
    row_of = np.zeros(len(host_ops.ops), np.int64)
    for row, entries in enumerate(entries_of.values()):
        row_of[entries] = row
    wall_ps = _wall_ps(host_ops.input_work, row_of[host_ops.input_work.name], len(entries_of))
    ops = [
        InputOp(
            name=op.name,
            part=part_of(op, attribution),
            count=sum(host_ops.count[entries].tolist()),
            total_ps=sum(host_ops.total_ps[entries].tolist()),
            self_ps=sum(host_ops.self_ps[entries].tolist()),
            wall_ps=wall_ps[row],
            threads=sum(host_ops.threads[entries].tolist()),
        )
        for row, (op, entries) in enumerate(entries_of.items())
    ]
    return ops, row_of


def part_of(op: Op, attribution: Attribution) -> InputPart:
    """Return the class of an input op.

    `corrected` differs in two points: a reader inside a parallel interleave reads ahead too; and a stage whose call
    only hands over what its own threads made counts as `other`, since its time is waiting for them.
    """
    if op.type != "Dataset":
        return "enqueue"
    if _READER.search(op.name):
        reads_ahead = _READS_AHEAD.search(op.name) or (attribution == "corrected" and _READS_AHEAD_TOO.search(op.name))
        return "advanced_read" if reads_ahead else "on_demand_read"
    return "other" if attribution == "corrected" and _HANDS_OVER.search(op.name) else "preprocessing"


def _by_self_time(ops: Sequence[InputOp]) -> tuple[InputOp, ...]:
    return tuple(sorted(ops, key=lambda op: (-op.self_ps, op.name)))


def _wall_ps(work: Work, group: Int64s, count: int) -> list[int]:
    """Return for each group how much time its stretches of work cover."""
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=count)).tolist()
    start, end = work.start[order], work.end[order]
    return [union(start[a:b], end[a:b]).total() for a, b in zip([0, *ends], ends, strict=False)]


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
    """Return the share of the host's time that copies to the device take: by the infeed, else by steps."""
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
    """Add up hosts, wall times too: they are time of a host in both cases."""
    if len(hosts) == 1:
        return hosts[0]
    same: defaultdict[tuple[str, InputPart], list[InputOp]] = defaultdict(list)
    for host in hosts:
        for op in host.ops:
            same[op.name, op.part].append(op)
    ops = [
        InputOp(name=name, part=part, **{key: sum(getattr(op, key) for op in of_hosts) for key in _SUMMED})
        for (name, part), of_hosts in same.items()
    ]
    parts = {
        part: PartTime(
            sum(op.part == part for op in ops),
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
