"""Where the time of each step goes: nine categories that add up to the step.

At any moment one category holds: that of the activity with the highest priority (`trace/activities.py`). The time of an
activity is therefore what the union of it and all higher ones covers, less what the union of the higher ones covers;
what nothing covers is "all others".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tfperf.arrays import Bools, Int64s, distinct
from tfperf.intervals import EMPTY, overlap, union_all
from tfperf.trace.activities import Activity, Attribution
from tfperf.trace.activity_times import ActivityTimes, corrected_times, grouped_times, tpu_times
from tfperf.trace.find_steps import find_steps
from tfperf.trace.group_by_links import group_trace
from tfperf.trace.group_spans import group_spans, stored_groups
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.step_stored import step_line
from tfperf.trace.steps import OMITTED, Confidence, How, Steps, plain_steps
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    import pandas as pd

CATEGORIES = (
    "compilation", "output", "input", "kernel_launch", "host_compute", "device_collectives", "device_to_device",
    "device_compute", "all_others",
)  # fmt: skip
"""Keys of the nine categories, in the order in which they are shown."""

_KEEPS_ENDS = 5
"""Of more steps than this, current xprof leaves out the first and the last."""

_ONE_TPU_ATTRIBUTION = (
    "TPU steps are averages over cores in both attributions; TensorFlow takes minima and maxima over cores instead"
)

_PARTS: dict[str, tuple[Activity, ...]] = {
    "compilation": (Activity.COMPILE,),
    "output": (Activity.DEVICE_TO_HOST,),
    "input_wait": (Activity.WAIT_INPUT, Activity.WAIT_WHILE_IDLE),
    "host_to_device": (Activity.HOST_TO_DEVICE, Activity.STAGING),
    "kernel_launch": (Activity.KERNEL_LAUNCH,),
    "host_compute": (Activity.HOST_COMPUTE,),
    "device_collectives": (Activity.COLLECTIVES,),
    "device_to_device": (Activity.DEVICE_TO_DEVICE,),
    "device_compute": (Activity.COMPUTE_32, Activity.COMPUTE_16),
}


@dataclass(frozen=True)
class Breakdown:
    """The time of each step by category.

    `time_ps` maps each of `CATEGORIES`, and the two parts of input (`input_wait`, `host_to_device`), to int64
    picoseconds per step. `compute_16_ps` and `compute_32_ps` are device compute by precision over the whole capture.
    """

    steps: Steps
    attribution: Attribution
    time_ps: dict[str, Int64s]
    compute_16_ps: int
    compute_32_ps: int
    input_visible: bool
    """False: nothing in the trace shows how the program gets its input, so input time is unknown, not zero."""
    has_device: bool
    """False: no device recorded anything, so device time is not zero but unknown."""

    @property
    def averaged(self) -> Bools:
        """Tell which steps count in averages."""
        return self.steps.averaged

    @property
    def headline(self) -> Bools:
        """Tell which steps the headline figures are about: averaged ones of the main kind."""
        kind = np.array(self.steps.kinds, object) == self.steps.headline_kind
        return np.asarray(self.averaged & kind, np.bool_)

    def only(self, rows: Int64s) -> Breakdown:
        """Return the breakdown of the steps at `rows`."""
        return replace(self, steps=self.steps.only(rows), time_ps={k: v[rows] for k, v in self.time_ps.items()})

    @property
    def table(self) -> pd.DataFrame:
        """Return one row per step, times in milliseconds."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def columns(self) -> dict[str, object]:
        """Return the columns of `table` without pandas."""
        steps, parts = self.steps, {key: values / PS_PER_MS for key, values in self.time_ps.items()}
        return {
            "step": steps.numbers.tolist(),
            "step_name": list(steps.names),
            "kind": list(steps.kinds),
            "flag": list(steps.flags),
            "averaged": self.averaged.tolist(),
            "batches": steps.batches.tolist(),
            "start_ms": (steps.start_ps / PS_PER_MS).tolist(),
            "step_time_ms": (steps.duration_ps / PS_PER_MS).tolist(),
            **{f"{key}_ms": parts[key].tolist() for key in CATEGORIES},
            "input_wait_ms": parts["input_wait"].tolist(),
            "host_to_device_ms": parts["host_to_device"].tolist(),
        }


def analyze(trace: HostTrace, steps: Steps) -> Breakdown:
    """Attribute the time of each step window, by the corrected rules."""
    if trace.device_kind == "tpu" and steps.source == "device steps":
        return _tpu(trace, steps)
    timeline = corrected_times(trace, steps.start_ps, steps.end_ps)
    visible = bool(timeline.busy.keys() & {Activity.WAIT_INPUT, Activity.HOST_TO_DEVICE, Activity.STAGING})
    return _breakdown(steps, timeline, "corrected", input_visible=visible, has_device=bool(trace.devices))


def _tpu(trace: HostTrace, steps: Steps) -> Breakdown:
    """Attribute the steps of each TPU core by what its ops do, and average over cores."""
    cores = []
    for plane in trace.devices:
        line = step_line(trace, plane)
        if line is not None:
            rows = slice(line.start, line.stop)
            begin, end = trace.start_ps[rows], trace.end_ps[rows]
            count = min(len(steps), len(begin))
            own = steps.only(np.arange(count))
            own = replace(own, start_ps=begin[:count], end_ps=end[:count])
            timeline = tpu_times(trace, plane, own.start_ps, own.end_ps)
            visible = bool(timeline.busy.keys() & {Activity.WAIT_INPUT, Activity.WAIT_WHILE_IDLE})
            cores.append(_breakdown(own, timeline, "corrected", input_visible=visible, has_device=True))
    return replace(combine(cores), compute_16_ps=0, compute_32_ps=0)


def as_tensorflow(trace: HostTrace) -> Breakdown:
    """Find steps and attribute their time as TensorFlow's own profiler did for the same file.

    For a TPU there is one attribution only; a note says so.
    """
    if trace.device_kind == "tpu":
        found = analyze(trace, find_steps(trace))
        notes = (*found.steps.notes, _ONE_TPU_ATTRIBUTION)
        return replace(found, attribution="tensorflow", steps=replace(found.steps, notes=notes))
    stored = stored_groups(trace) is not None
    trace = trace if stored else group_trace(trace)
    group = trace.number("group_id", -1)
    spans = group_spans(trace, group)
    timeline = grouped_times(trace, group, spans)
    found = _breakdown(
        _group_steps(spans.group, spans.start, spans.end, spans.names), timeline, "tensorflow", input_visible=True,
        has_device=bool(trace.devices),
    )  # fmt: skip
    needed = (Activity.COMPUTE_16, Activity.COMPUTE_32) if len(spans.device_groups) else (Activity.HOST_COMPUTE,)
    complete = _net(timeline, needed) > 0
    rows = np.flatnonzero(complete & (found.steps.duration_ps > 0))
    found = found.only(rows)
    if not len(rows):
        return replace(found, steps=_group_steps(rows, rows, rows, {}))
    if stored or len(found.steps) <= _KEEPS_ENDS:
        return found
    flags = (OMITTED, *found.steps.flags[1:-1], OMITTED)
    return replace(found, steps=replace(found.steps, flags=flags))


def _group_steps(group: Int64s, begin: Int64s, end: Int64s, names: dict[int, str]) -> Steps:
    shown = tuple(names.get(key, "") or f"step {key}" for key in group.tolist())
    count = len(group)
    explanation = f"TensorFlow's profiler grouped the events into {count} steps" if count else (
        "TensorFlow's profiler finds no step marker in this trace; --attribution corrected infers steps"
    )  # fmt: skip
    confidence: Confidence = "high" if count else "none"
    how: How = ("groups" if count else "none", confidence, explanation)
    return plain_steps(how, (begin, end), group, shown, ("step",) * count)


def combine(parts: list[Breakdown]) -> Breakdown:
    """Average the steps of several hosts, step by step; hosts without steps do not take part.

    Steps are matched by number where every host counted them itself, else in order.
    """
    found = [part for part in parts if len(part.steps)]
    if len(found) <= 1:
        return (found or parts)[0]
    rows = _matched([part.steps for part in found])
    aligned = [part.only(chosen) for part, chosen in zip(found, rows, strict=True)]
    first = aligned[0]
    duration = np.mean([part.steps.duration_ps for part in aligned], axis=0).astype(np.int64)
    flags = tuple(
        next((flag for flag in given if flag), "") for given in zip(*(p.steps.flags for p in aligned), strict=True)
    )
    steps = replace(
        first.steps, end_ps=first.steps.start_ps + duration, flags=flags, notes=_combined_notes(found, aligned)
    )
    time = {key: np.mean([part.time_ps[key] for part in aligned], axis=0).astype(np.int64) for key in first.time_ps}
    return replace(
        first, steps=steps, time_ps=time, compute_16_ps=sum(part.compute_16_ps for part in found),
        compute_32_ps=sum(part.compute_32_ps for part in found), input_visible=all(part.input_visible for part in
        found), has_device=any(part.has_device for part in found),
    )  # fmt: skip


def _combined_notes(found: list[Breakdown], aligned: list[Breakdown]) -> tuple[str, ...]:
    """Say how steps were matched, and how many were left out."""
    notes = dict.fromkeys(note for part in found for note in part.steps.notes)
    compared, most = len(aligned[0].steps), max(len(part.steps) for part in found)
    if compared < most:
        notes[f"hosts have up to {most} steps; only the {compared} that all of them have are combined"] = None
    if any(part.steps.numbers.tolist() != aligned[0].steps.numbers.tolist() for part in aligned):
        notes["the step numbers of the hosts differ, so steps were matched in order"] = None
    return tuple(notes)


def _matched(all_steps: list[Steps]) -> list[Int64s]:
    """Return, for each host, which of its steps belong together."""
    numbers = [steps.numbers for steps in all_steps]
    counted = all(steps.source == "markers" and len(distinct(steps.numbers)) == len(steps) for steps in all_steps)
    shared = numbers[0]
    for other in numbers[1:]:
        shared = np.intersect1d(shared, other)
    if counted and len(shared):
        return [np.flatnonzero(np.isin(own, shared)) for own in numbers]
    return [np.arange(min(len(steps) for steps in all_steps))] * len(all_steps)


def _breakdown(
    steps: Steps, timeline: ActivityTimes, attribution: Attribution, *, input_visible: bool, has_device: bool
) -> Breakdown:
    time: dict[Activity, Int64s] = {}
    covered, before = EMPTY, np.zeros(len(steps), np.int64)
    everywhere: dict[Activity, int] = {}
    for activity in timeline.priority:
        covered_before = covered.total()
        if activity in timeline.busy:
            covered = union_all([covered, timeline.busy[activity]])
        inside = overlap(covered, timeline.start, timeline.end)
        time[activity], before = inside - before, inside
        everywhere[activity] = covered.total() - covered_before
    nothing = np.zeros(len(steps), np.int64)
    parts = {key: sum((time.get(a, nothing) for a in kinds), nothing) for key, kinds in _PARTS.items()}
    parts["input"] = parts["input_wait"] + parts["host_to_device"]
    parts["all_others"] = timeline.end - timeline.start - before
    return Breakdown(
        steps, attribution, parts, everywhere.get(Activity.COMPUTE_16, 0), everywhere.get(Activity.COMPUTE_32, 0),
        input_visible, has_device,
    )  # fmt: skip


def _net(timeline: ActivityTimes, activities: tuple[Activity, ...]) -> Int64s:
    """Return how long the activities hold in each group, also outside its step window."""
    order = np.argsort(timeline.start)
    begin = np.empty_like(timeline.start)
    end = np.empty_like(timeline.end)
    starts = timeline.origin[order]
    begin[order], end[order] = starts, np.append(starts[1:], np.iinfo(np.int64).max // 2)
    higher, total = EMPTY, np.zeros(len(begin), np.int64)
    for activity in timeline.priority:
        if activity not in timeline.busy:
            continue
        both = union_all([higher, timeline.busy[activity]])
        if activity in activities:
            total = total + overlap(both, begin, end) - overlap(higher, begin, end)
        higher = both
    return total
