"""What ops, kernels, copies, functions and stages add up to in the averaged steps of each kind: for comparisons.

Runs are compared per step of one kind. Evaluation, steps that are not averaged (because they compile, say), and time
between steps are not in these sums. Time is cut at the edges of steps; only kernels and copies count whole, in the step
in which they start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import SectionSpec
from tfperf.base.arrays import MOST, Intervals, covers, intersection, union
from tfperf.sections.kernels.analysis import copies_of, tally_kernels
from tfperf.sections.ops.sums import Sums, own_time_in, sums_in
from tfperf.sections.tfdata.analysis import (
    blocked_times,
    cut_into_segments,
    elements_by_stage,
    measure_stages,
    waiting_times,
)
from tfperf.trace.device.device_work import DeviceWork
from tfperf.trace.known_stats import DEVICE_OPS, HOST_OPS, TFDATA
from tfperf.trace.nesting import parents
from tfperf.trace.tfdata import asynchronous_stages

if TYPE_CHECKING:
    from tfperf.analysis.registry import Host
    from tfperf.trace.host_trace import HostTrace
    from tfperf.trace.steps.steps import Steps

STEP_SUMS = SectionSpec(
    name="step_sums",
    title="Sums over steps",
    rests_on=("steps",),
    analyze="tfperf.judge.compare.step_sums:analyze",
    combine="tfperf.judge.compare.step_sums:combine",
    combines_in_tree=True,
    shorten="tfperf.judge.compare.step_sums:shorten",
    stats=HOST_OPS
    | DEVICE_OPS
    | TFDATA
    | {"id", "tf_function_call", "equation", "kernel_details", "memcpy_details", "memset_details"},
    build="tfperf.sections.ops.section:build",  # which nobody calls: no report has it
)

Rows = dict[tuple[str, str], tuple[int, float]]
"""(name, detail): (picoseconds, count). The details are types of ops, and names of stages, which go by their paths."""


class StepSums(Struct, frozen=True):
    """Sums over the `step_count` averaged steps of one kind, of all hosts, by `RankingName`.

    Stages: time in which the steps wait for the stage. Ops and functions: self time.
    """

    step_count: int
    rankings: dict[str, Rows]


def analyze(host: Host) -> dict[str, StepSums]:
    """Add up what is in the steps of each kind."""
    steps: Steps = host["steps"].steps
    return {
        kind: _sums(host, steps.only(np.flatnonzero(steps.averaged & steps.are(kind))))
        for kind in dict.fromkeys(steps.kinds)
    }


def combine(hosts: Sequence[dict[str, StepSums]]) -> dict[str, StepSums]:
    """Add up the sums of several hosts."""
    parts: dict[str, list[StepSums]] = {}
    for host in hosts:
        for kind, sums in host.items():
            parts.setdefault(kind, []).append(sums)
    return {kind: _combined(of_kind) for kind, of_kind in parts.items()}


def _combined(parts: list[StepSums]) -> StepSums:
    rankings = {
        name: _added((key, ps, count) for part in parts for key, (ps, count) in part.rankings[name].items())
        for name in parts[0].rankings
    }
    return StepSums(sum(part.step_count for part in parts), rankings)


def shorten(sums: dict[str, StepSums], most: int) -> dict[str, StepSums]:
    """Return the sums with so many rows each, those with most time: comparisons list far fewer."""
    if all(len(rows) <= most for each in sums.values() for rows in each.rankings.values()):
        return sums
    return {
        kind: replace(each, rankings={name: _longest(rows, most) for name, rows in each.rankings.items()})
        for kind, each in sums.items()
    }


def _longest(rows: Rows, most: int) -> Rows:
    return dict(sorted(rows.items(), key=lambda row: -row[1][0])[:most])


def _added(rows: Iterable[tuple[tuple[str, str], int, float]]) -> Rows:
    """Add up rows (key, picoseconds, count) of the same key."""
    sums: Rows = {}
    for key, ps, count in rows:
        before = sums.get(key, (0, 0.0))
        sums[key] = min(before[0] + ps, MOST), before[1] + count
    return sums


def _sums(host: Host, steps: Steps) -> StepSums:
    trace, counted = host.trace, union(steps.start_ps, steps.end_ps)
    ops, work = sums_in(host, steps), _starting_in(host, counted)
    kernels = tally_kernels(trace, work)
    rankings = {
        "device_ops": _op_rows(ops.device),
        "host_ops": _op_rows(ops.host),
        "kernels": _added(((kernel.name, ""), runs.total_ps, runs.occurrences) for kernel, runs in kernels.items()),
        "copies": _added(((copies.kind, ""), copies.total_ps, copies.count) for copies in copies_of(trace, work)),
        "stages": _stage_rows(host, counted),
        "functions": _function_rows(trace, counted),
    }
    return StepSums(len(steps), rankings)


def _op_rows(sums: Sums) -> Rows:
    """Return ops by name and type: HLO ops of one framework op, and runs for several functions, are one row."""
    return _added(
        ((op.name or op.hlo_op, op.type), each.step_self_ps, each.step_calls)
        for (op, _), each in sums.items()
        if each.step_calls or each.step_self_ps
    )


def _starting_in(host: Host, counted: Intervals) -> DeviceWork:
    """Return the work of devices that starts in `counted`."""
    work = host.device_work
    starts = covers(counted, host.trace.start_ps[work.rows])
    columns = ("rows", "plane", "line", "activity", "is_memset", "moves", "op")
    return replace(work, **{column: getattr(work, column)[starts] for column in columns})


def _function_rows(trace: HostTrace, counted: Intervals) -> Rows:
    """Return the tf.functions that are called or run in `counted`, nested calls apart from the call around them."""
    rows = trace.stat("tf_function_call").event.astype(np.int64)
    start, end, names = trace.start_ps[rows], trace.end_ps[rows], trace.name[rows].tolist()
    self_ps = own_time_in(start, end, parents(trace, rows), counted).tolist()
    calls = zip(names, self_ps, covers(counted, start).tolist(), strict=True)
    return _added(((trace.names[name], ""), ps, is_here) for name, ps, is_here in calls if ps or is_here)


def _stage_rows(host: Host, counted: Intervals) -> Rows:
    """Return the stages that `counted` waits for or calls; those of pipelines of one shape are one row."""
    recorded, work = host.pipelines, host.stage_work
    if recorded is None or work is None:
        return {}
    is_async = asynchronous_stages(recorded)
    times = measure_stages(recorded, work.without_waiting(is_async), is_async)
    called = np.bincount(
        recorded.calls.stage[covers(counted, recorded.calls.start)], minlength=len(recorded.stages)
    ).tolist()
    rows: list[tuple[tuple[str, str], int, float]] = []
    for number in range(len(recorded.roots)):
        members = recorded.members(number)
        segments = cut_into_segments(recorded, times, members, elements_by_stage(recorded, times, members))
        waits = intersection(waiting_times(recorded, times, number), counted)
        blocked_ps, _ = blocked_times(recorded, times, members=members, segments=segments, waits=waits)
        for stage in members:
            if blocked_ps[stage] or called[stage]:
                key = recorded.stages[stage].path, recorded.stages[stage].name
                rows.append((key, blocked_ps[stage], called[stage]))
    return _added(rows)
