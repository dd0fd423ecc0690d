"""What the host does for input: time per input op and per class, summed over threads and on the wall clock.

Self times of parallel threads add up to more than the time that passes. So each has its wall time beside it: the time
in which at least one thread was active, each without the ops inside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.results import Host
from tfperf.analysis.tabular import Tabular
from tfperf.base.arrays import union_all
from tfperf.base.units import PS_PER_MS
from tfperf.sections.input.classes import INPUT_PARTS, InputOp, InputPart
from tfperf.sections.input.found_ops import ops_by_event, ops_by_stage
from tfperf.trace.host.host_ops import is_input_op

_SUMMED = ("count", "total_ps", "self_ps", "wall_ps", "threads")
_OTHERS = "(other ops)"


class PartTime(Struct, frozen=True):
    """The time of one class, in picoseconds; `scaled_ps` is its self time, scaled to the host's own time."""

    ops: int
    self_ps: int
    scaled_ps: float
    wall_ps: int


class InputPipeline(Tabular, frozen=True):
    """The host's side of input, on one host or summed over hosts; `ops` has the largest self time first."""

    home = ("input", "input_ops")

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
    is_scaled = bool(share) and (_has_enqueue(host) or host.as_tensorflow)
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


def _has_enqueue(host: Host) -> bool:
    """Tell whether there are ops that TensorFlow's profiler scales by; of others, shares of steps are no measure."""
    pairs = zip(host.host_ops.ops, host.host_ops.count.tolist(), strict=True)
    return any(count and op.kind and is_input_op(op) and op.type != "Dataset" for op, count in pairs)


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
    ops = [_added(of_hosts) for of_hosts in same.values()]
    parts = {
        part: PartTime(
            # A host may have put some of its ops into one row.
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
    """Add up what several hosts say of one op."""
    values = {key: [getattr(op, key) for op in ops] for key in _SUMMED}
    return replace(ops[0], **{key: None if None in each else sum(each) for key, each in values.items()})


def shorten(pipeline: InputPipeline, most: int) -> InputPipeline:
    """Return so many ops, those with the largest self time, and one row for all others of each class."""
    if len(pipeline.ops) <= most:
        return pipeline
    rest = [replace(op, name=_OTHERS, total_ps=None, wall_ps=None, threads=None) for op in pipeline.ops[most:]]
    others = [_added(ops) for part in INPUT_PARTS if (ops := [op for op in rest if op.part == part])]
    return replace(pipeline, ops=_by_self_time([*pipeline.ops[:most], *others]))
