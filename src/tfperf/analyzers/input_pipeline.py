"""What the host does for input: time per input op and per class, summed over threads and on the wall clock.

Self times of parallel threads add up to more than the time that passes. So each figure has its wall-clock time beside
it: the time in which at least one thread was at work, each without the ops inside.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from tfperf.analyzers.step_breakdown import Breakdown
from tfperf.arrays import Int64s
from tfperf.intervals import union
from tfperf.trace.activities import Attribution
from tfperf.trace.event_names import Op
from tfperf.trace.host_ops import HostOps, Work, host_ops, is_input_op
from tfperf.trace.host_trace import HostTrace
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    import pandas as pd

Part = Literal["on_demand_read", "advanced_read", "preprocessing", "enqueue", "other"]
"""The five classes of TensorFlow's input-pipeline analyzer."""

PARTS: tuple[Part, ...] = get_args(Part)

_READER = re.compile(r"::(TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|ArrayRecord)$")
_AHEAD = re.compile(r"::(MemoryReader|MemoryWriter|Interleave|Prefetch|ParallelMap)")
_AHEAD_TOO = re.compile(r"::(Legacy)?ParallelInterleave|::ParallelBatch|::MapAndBatch")
_HANDS_OVER = re.compile(r"::(Prefetch|(Legacy)?ParallelInterleave(V\d)?)(\[\d+\])?$")
"""Stages of which only the threads work: the call itself takes an element that is there, or waits for one."""


@dataclass(frozen=True)
class InputOp:
    """An op of the input pipeline; times are picoseconds, summed over `threads` threads, but for `wall_ps`."""

    name: str
    part: Part
    count: int
    total_ps: int
    self_ps: int
    wall_ps: int
    """Time in which at least one thread ran this op itself."""
    threads: int


@dataclass(frozen=True)
class PartTime:
    """The time of one class, in picoseconds; `scaled_ps` is what remains after scaling to the host's own time."""

    ops: int
    self_ps: int
    scaled_ps: float
    wall_ps: int


@dataclass(frozen=True)
class InputPipeline:
    """The host's side of input, on one host or summed over hosts; `ops` has the largest self time first."""

    ops: tuple[InputOp, ...]
    parts: dict[Part, PartTime]
    wall_ps: int
    """Time in which at least one thread ran an input op."""
    enqueue_shares: tuple[float, ...]
    """For each host whose times were scaled: the share of its time (0 to 1) that handing over to the device takes."""
    has_host_events: bool
    """False: the trace holds no event of a host thread at all."""

    @property
    def self_ps(self) -> int:
        """Return the self time of all input ops."""
        return sum(op.self_ps for op in self.ops)

    @property
    def largest(self) -> Part | None:
        """Return the class that is at work for most of the wall time; `other` only if there is nothing else."""
        at_work = [part for part in PARTS if self.parts[part].wall_ps]
        known = [part for part in at_work if part != "other"] or at_work
        return max(known, key=lambda part: self.parts[part].wall_ps, default=None)

    @property
    def threads(self) -> int:
        """Return on how many threads the op of most threads ran."""
        return max((op.threads for op in self.ops), default=0)

    @property
    def table(self) -> pd.DataFrame:
        """Return one row per input op, times in milliseconds."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def columns(self) -> dict[str, list[object]]:
        """Return the columns of `table` without pandas; percentages are of the self time of all input ops."""
        whole = max(self.self_ps, 1) / 100.0
        return {
            "op_name": [op.name for op in self.ops],
            "part": [op.part for op in self.ops],
            "count": [op.count for op in self.ops],
            "total_ms": [op.total_ps / PS_PER_MS for op in self.ops],
            "total_percent": [op.total_ps / whole for op in self.ops],
            "self_ms": [op.self_ps / PS_PER_MS for op in self.ops],
            "self_percent": [op.self_ps / whole for op in self.ops],
            "wall_ms": [op.wall_ps / PS_PER_MS for op in self.ops],
            "threads": [op.threads for op in self.ops],
        }


def analyze(trace: HostTrace, breakdown: Breakdown, host: HostOps | None = None) -> InputPipeline:
    """Find the input ops of one host; `host` saves the search for its ops where that was done before."""
    attribution = breakdown.attribution
    host = host or host_ops(trace, attribution)
    names = [at for at in np.flatnonzero(host.count).tolist() if is_input_op(host.ops[at])]
    known: dict[Op, int] = {}
    row_of = np.zeros(len(host.ops), np.int64)
    for at in names:
        row_of[at] = known.setdefault(host.ops[at]._replace(kind=""), len(known))
    parts = [part_of(op, attribution) for op in known]
    row = row_of[host.input_work.name]
    count, total, own, threads = (
        _by_op(sums, names, row_of, len(known)) for sums in (host.count, host.total_ps, host.self_ps, host.threads)
    )
    wall = _wall(host.input_work, row, len(known))
    ops = [
        InputOp(op.name, parts[at], count[at], total[at], own[at], wall[at], threads[at]) for at, op in enumerate(known)
    ]
    part_number = np.array([PARTS.index(part) for part in parts], np.int64)
    part_wall = _wall(host.input_work, part_number[row], len(PARTS))
    times, scaled_by = _parts(ops, part_wall, _enqueue_share(trace, host, breakdown), attribution)
    wall_ps = union(host.input_work.start, host.input_work.end).total()
    has_events = any(line.stop > line.start for line in trace.host_lines)
    return InputPipeline(_sorted(ops), times, wall_ps, scaled_by, has_events)


def part_of(op: Op, attribution: Attribution) -> Part:
    """Return the class of an input op.

    `corrected` differs in two points: a reader inside a parallel interleave reads ahead too; and a stage whose call
    only hands over what its own threads made counts as `other`, since its time is waiting for them.
    """
    if op.type != "Dataset":
        return "enqueue"
    if _READER.search(op.name):
        ahead = _AHEAD.search(op.name) or (attribution == "corrected" and _AHEAD_TOO.search(op.name))
        return "advanced_read" if ahead else "on_demand_read"
    return "other" if attribution == "corrected" and _HANDS_OVER.search(op.name) else "preprocessing"


def _by_op(sums: Int64s, names: list[int], row_of: Int64s, count: int) -> list[int]:
    """Add up names that are the same op."""
    found = [0] * count
    for name, row in zip(names, row_of[names].tolist(), strict=True):
        found[row] += int(sums[name])
    return found


def _sorted(ops: list[InputOp]) -> tuple[InputOp, ...]:
    return tuple(sorted(ops, key=lambda op: (-op.self_ps, op.name)))


def _wall(work: Work, group: Int64s, count: int) -> list[int]:
    """Return for each group how much time its stretches of work cover."""
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=count)).tolist()
    begin, end = work.start[order], work.end[order]
    return [union(begin[a:b], end[a:b]).total() for a, b in zip([0, *ends], ends, strict=False)]


def _parts(
    ops: list[InputOp], wall: list[int], share: float, attribution: Attribution
) -> tuple[dict[Part, PartTime], tuple[float, ...]]:
    """Return the time of each class, and the share by which it was scaled, if it was."""
    own: dict[Part, int] = {part: sum(op.self_ps for op in ops if op.part == part) for part in PARTS}
    is_scaled = bool(share) and bool(own["enqueue"] or attribution == "tensorflow")
    scaled = _scaled(own, share) if is_scaled else own
    found = {
        part: PartTime(sum(op.part == part for op in ops), own[part], scaled[part], wall[at])
        for at, part in enumerate(PARTS)
    }
    return found, (share,) * is_scaled


def _scaled(own: dict[Part, int], share: float) -> dict[Part, float]:
    """Scale everything but enqueue so that enqueue gets this share of the whole.

    The host enqueues one batch after the other, but prepares them on many threads at once; so the sum of all threads
    says nothing about what part of the host's time they take.
    """
    enqueue, rest = own["enqueue"], sum(own.values()) - own["enqueue"]
    wanted = enqueue * (1.0 - share) / share
    scaled = {part: wanted * value / rest if rest else 0.0 for part, value in own.items()}
    if not rest:
        scaled["other"] = wanted
    return {**scaled, "enqueue": float(enqueue)}


def _enqueue_share(trace: HostTrace, host: HostOps, breakdown: Breakdown) -> float:
    """Return the share of the host's time that handing batches to the device takes, 0 if nothing tells.

    By the infeed where there is one: from each enqueue to the next, how long the enqueue takes. Else by the steps.
    """
    infeed = np.array([op.type.startswith("InfeedEnqueue") for op in host.ops], np.bool_)
    busy = apart = 0
    for line in trace.host_lines if infeed.any() else ():
        rows = np.flatnonzero(infeed[trace.name[line.start : line.stop]]) + line.start
        busy += int(trace.duration_ps[rows[:-1]].sum())
        apart += int(np.diff(trace.start_ps[rows]).sum())
    if apart:
        return min(1.0, busy / apart)
    counted = breakdown.headline
    steps = int(breakdown.steps.duration_ps[counted].sum())
    return min(1.0, int(breakdown.time_ps["host_to_device"][counted].sum()) / steps) if steps else 0.0


def combine(found: list[InputPipeline]) -> InputPipeline:
    """Add up hosts, wall-clock times too: it is time of a host in both cases."""
    if len(found) == 1:
        return found[0]
    rows: defaultdict[tuple[str, Part], list[InputOp]] = defaultdict(list)
    for host in found:
        for op in host.ops:
            rows[op.name, op.part].append(op)
    ops = [
        InputOp(name, part, *(sum(getattr(op, key) for op in own) for key in _SUMMED))
        for (name, part), own in rows.items()
    ]
    parts = {
        part: PartTime(
            sum(op.part == part for op in ops), sum(host.parts[part].self_ps for host in found),
            sum(host.parts[part].scaled_ps for host in found), sum(host.parts[part].wall_ps for host in found),
        )
        for part in PARTS
    }  # fmt: skip
    return InputPipeline(
        _sorted(ops), parts, sum(host.wall_ps for host in found),
        tuple(share for host in found for share in host.enqueue_shares), any(host.has_host_events for host in found),
    )  # fmt: skip


_SUMMED = ("count", "total_ps", "self_ps", "wall_ps", "threads")
