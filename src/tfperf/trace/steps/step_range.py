"""A range of steps, and the trace of a host cut to it, so that every section covers only these steps.

An event that crosses an end of the range keeps its name and stats, and counts with its part inside. Steps are found in
the whole trace, so a step has the same times, flags and kind in every range.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import Bools, Int64s, Intervals
from tfperf.base.errors import StepsNotFoundError
from tfperf.formats.wire.event_columns import NO_STAT, EventColumns, Stat
from tfperf.trace.host.activities import Activity
from tfperf.trace.host.python_activity import Pauses, PythonActivity
from tfperf.trace.host_trace import TPU_KINDS, GraphOps, HostTrace, MemoryEvents
from tfperf.trace.read import in_order
from tfperf.trace.steps.breakdown import Breakdown, attribute
from tfperf.trace.steps.steps import Steps
from tfperf.trace.steps.tpu_steps import core_steps

StepRange = tuple[int | None, int | None]
"""Numbers of the first and the last step, both included; None: without this limit."""
_GRAPH_RUN = "tfperf_graph_run"
"""Carries `GraphOps` along with the events."""


class StepPart(Struct, frozen=True, kw_only=True):
    """The selected steps of a host, and their time: from the start of the first to the end of the last.

    `first_row` and `stop_row` are rows of all steps of the host (`all_count`); `first` and `last` are the numbers of
    the first and the last selected step. Times are picoseconds on the clock of the trace, `on_chips` (start and end by
    index of the plane) on those of TPU chips. `capture_ps` is the duration of the capture.
    """

    first_row: int
    stop_row: int
    all_count: int
    first: int
    last: int
    start_ps: int
    end_ps: int
    capture_ps: int
    on_chips: Mapping[int, tuple[int, int]] = {}

    @property
    def count(self) -> int:
        """Return the number of selected steps."""
        return self.stop_row - self.first_row

    @property
    def duration_ps(self) -> int:
        """Return the duration of the part."""
        return self.end_ps - self.start_ps


def in_range(numbers: Int64s, wanted: StepRange) -> Bools:
    """Return which step numbers are in a range."""
    first, last = wanted
    is_late = np.ones(len(numbers), np.bool_) if first is None else numbers >= first
    return np.asarray(is_late if last is None else is_late & (numbers <= last), np.bool_)


def range_text(wanted: StepRange) -> str:
    """Return a range as typed: `10..20`, `10..`, `..20` or `12`."""
    first, last = ("" if number is None else str(number) for number in wanted)
    return first if first and first == last else f"{first}..{last}"


def no_such_steps(numbers: Int64s, wanted: StepRange) -> str:
    """Return the text of an error: the profile does not have these steps, but others with these numbers."""
    if not len(numbers):
        return "the profile has no steps; omit --steps, or name the step events with --step-marker"
    text, low, high = range_text(wanted), int(numbers.min()), int(numbers.max())
    missing = f"steps {text} do not exist" if ".." in text else f"step {text} does not exist"
    if low == high:
        return f"{missing}; {'the only step is' if len(numbers) == 1 else 'all steps have the number'} {low}"
    return f"{missing}; the steps are {low}..{high}"


def selected_rows(steps: Steps, wanted: StepRange) -> tuple[int, int]:
    """Return the first row of the selected steps, and the row after the last.

    Numbers are those of the headline kind, and of other kinds only if it has none in the range; steps of other kinds
    between the selected ones belong to them, and without a limit, all steps before or after. If numbers repeat, the
    first ones count. Raises StepsNotFoundError.
    """
    is_wanted = in_range(steps.numbers, wanted)
    if not is_wanted.any():
        raise StepsNotFoundError(no_such_steps(steps.numbers, wanted), has_others=len(steps) > 0)
    of_kind = steps.are(steps.headline_kind)
    pool = np.flatnonzero(of_kind if (is_wanted & of_kind).any() else np.ones(len(steps), np.bool_))
    inside = is_wanted[pool]
    first = int(inside.argmax())
    stop = first + int(np.append(inside[first:], False).argmin())
    return (0 if wanted[0] is None else int(pool[first]), len(steps) if wanted[1] is None else int(pool[stop - 1]) + 1)


def part_of(trace: HostTrace, steps: Steps, wanted: StepRange) -> StepPart:
    """Return the part of a trace with the selected ones of its `steps`. Raises StepsNotFoundError."""
    first, stop = selected_rows(steps, wanted)
    start_ps, end_ps = steps.start_ps[first : first + 1], steps.end_ps[stop - 1 : stop]
    on_chips = {}
    if trace.device_kind == "tpu":
        if steps.on_cores or steps.source == "device steps":  # on the clock of the first chip
            start_ps, end_ps = (trace.on_host_clock(trace.devices[0], each) for each in (start_ps, end_ps))
        for place, plane in enumerate(trace.planes):
            if plane.kind in TPU_KINDS:
                start, end = (trace.on_device_clock(place, each) for each in (start_ps, end_ps))
                on_chips[place] = int(start[0]), int(end[0])
        for core in core_steps(trace, steps):
            on_chips[core.plane] = int(core.start_ps[first]), int(core.end_ps[stop - 1])
    return StepPart(
        first_row=first,
        stop_row=stop,
        all_count=len(steps),
        first=int(steps.numbers[first]),
        last=int(steps.numbers[stop - 1]),
        start_ps=int(start_ps[0]),
        end_ps=int(end_ps[0]),
        capture_ps=trace.extent_ps[1] - trace.extent_ps[0],
        on_chips=on_chips,
    )


def cut_trace(trace: HostTrace, part: StepPart) -> HostTrace:
    """Return the events in the time of a part, cut off at its ends, as a trace whose capture is this time.

    Stats of planes, event names and XLA programs stay, and so do the profiler's messages and the counts of the file.
    """
    span = part.start_ps, part.end_ps
    spans = np.array([part.on_chips.get(line.plane, span) for line in trace.lines], np.int64).reshape(-1, 2)
    counts = [line.stop - line.start for line in trace.lines]
    first_ps, last_ps = np.repeat(spans[:, 0], counts), np.repeat(spans[:, 1], counts)
    start_ps, end_ps = np.maximum(trace.start_ps, first_ps), np.minimum(trace.end_ps, last_ps)
    is_instant = (trace.duration_ps == 0) & (trace.start_ps >= first_ps) & (trace.start_ps < last_ps)
    graph = Stat(trace.graph_ops.rows.astype(np.int32), trace.graph_ops.run)
    events = EventColumns(
        lines=trace.lines,
        name=trace.name,
        start_ps=start_ps,
        duration_ps=np.maximum(end_ps - start_ps, 0),
        aggregated=np.zeros(len(trace.name), np.bool_),
        stats={**trace.stats, _GRAPH_RUN: graph},
        every=trace.every_stat,
    )
    events = in_order(events.only((end_ps > start_ps) | is_instant))
    stats = {**events.stats}
    graph = stats.pop(_GRAPH_RUN, NO_STAT)
    return replace(
        trace,
        lines=events.lines,
        name=events.name,
        start_ps=events.start_ps,
        duration_ps=events.duration_ps,
        stats=stats,
        every_stat=events.every,
        extent_ps=span,
        allocations=None if trace.allocations is None else _allocations(trace.allocations, *span),
        python_activity=_python_activity(trace.python_activity, *span),
        graph_ops=GraphOps(graph.event.astype(np.int64), graph.value),
        is_part=True,
    )


def _allocations(memory: MemoryEvents, start_ps: int, end_ps: int) -> MemoryEvents:
    events = EventColumns((), memory.line, memory.start_ps, memory.start_ps, memory.allocates, memory.stats)
    events = events.only((memory.start_ps >= start_ps) & (memory.start_ps < end_ps))
    return MemoryEvents(events.start_ps, events.aggregated, events.name, events.stats)


def _python_activity(activity: PythonActivity, start_ps: int, end_ps: int) -> PythonActivity:
    """Return the pauses and CPU times inside; only pauses are cut off, because it is unknown when a thread ran."""
    pauses, cpu = activity.pauses, activity.cpu
    if pauses is not None:
        rows = np.flatnonzero((pauses.end_ps > start_ps) & (pauses.start_ps < end_ps))
        starts, ends = np.maximum(pauses.start_ps[rows], start_ps), np.minimum(pauses.end_ps[rows], end_ps)
        places = tuple(pauses.places[row] for row in rows.tolist())
        pauses = Pauses(starts, ends, pauses.generation[rows], places)
    if cpu is not None:
        rows = np.flatnonzero((cpu.end_ps > start_ps) & (cpu.start_ps < end_ps))
        cpu = replace(
            cpu,
            start_ps=cpu.start_ps[rows],
            end_ps=cpu.end_ps[rows],
            cpu_ps=cpu.cpu_ps[rows],
            queued_ps=cpu.queued_ps[rows],
        )
    return PythonActivity(pauses, cpu)


def breakdown_of(whole: Breakdown, trace: HostTrace, part: StepPart, busy: dict[Activity, Intervals]) -> Breakdown:
    """Return the breakdown of the selected steps: their times in the `whole`, and totals over the cut `trace`.

    `busy` are the `busy_times` of the cut trace.
    """
    kept = whole.only(np.arange(part.first_row, part.stop_row))
    start_ps, end_ps = kept.steps.start_ps[0], kept.steps.end_ps[-1]
    pauses = tuple(each for each in whole.steps.pauses if each.start_ps >= start_ps and each.end_ps <= end_ps)
    kept = replace(kept, steps=replace(kept.steps, pauses=pauses))
    totals = attribute(trace, kept.steps, busy)
    cores = tuple(
        replace(core, duty_ps=inside.duty_ps, span_ps=inside.span_ps)
        for core, inside in zip(kept.cores, totals.cores, strict=False)
    )
    return replace(
        kept,
        cores=cores,
        compute_16_ps=totals.compute_16_ps,
        compute_32_ps=totals.compute_32_ps,
        compute_unknown_ps=totals.compute_unknown_ps,
    )
