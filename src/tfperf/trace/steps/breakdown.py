"""The time of each step by nine categories that add up to the step.

At any moment the activity with the highest priority (`trace/host/activities.py`) determines the category. The time of
an activity is therefore the union of it and all higher ones minus the union of the higher ones; uncovered time is "all
others".
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import EMPTY, Bools, Int64s, Intervals, distinct, lookup, overlap
from tfperf.base.display import Plotted
from tfperf.base.units import PS_PER_MS, counted, percent
from tfperf.report.model import Data, DeclaredTable
from tfperf.trace.device.device_work import device_label
from tfperf.trace.device.tpu_copies import copies_own_arrays, shows_transfers
from tfperf.trace.flaw import Flaw
from tfperf.trace.host.activities import (
    Activity,
    ActivityTimes,
    Attribution,
    busy_times,
    corrected_times,
    tpu_codes,
    tpu_times,
)
from tfperf.trace.host.tasks import Task
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.categories import CATEGORIES, DEVICE_CATEGORIES, HOST_CATEGORIES, WITH_COPIES
from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.steps import OMITTED, How, Steps, plain_steps
from tfperf.trace.steps.tpu_steps import CoreWork, core_steps, core_work, has_categories, has_ops

if TYPE_CHECKING:
    pass

_KEEPS_ENDS = 5
"""With more steps than this, current xprof omits the first and the last."""
_ONE_TPU_ATTRIBUTION = (
    "TPU steps are averages over cores in both attributions; TensorFlow takes minima and maxima over cores instead"
)
CATEGORY_ACTIVITIES: dict[str, tuple[Activity, ...]] = {
    "compilation": (Activity.COMPILE,),
    "output": (Activity.DEVICE_TO_HOST,),
    "input_wait": (Activity.WAIT_INPUT, Activity.WAIT_WHILE_IDLE),
    "host_to_device": (Activity.HOST_TO_DEVICE, Activity.STAGING),
    "kernel_launch": (Activity.KERNEL_LAUNCH,),
    "host_compute": (Activity.HOST_COMPUTE,),
    "device_collectives": (Activity.COLLECTIVES, Activity.BARRIER),
    "device_to_device": (Activity.DEVICE_TO_DEVICE,),
    "device_compute": (Activity.COMPUTE_32, Activity.COMPUTE_16, Activity.COMPUTE_UNKNOWN),
}
"""The activities of each category; input has two parts, and all others has no activity."""


_FEEDS = frozenset({Activity.WAIT_INPUT, Activity.WAIT_WHILE_IDLE})
"""Activities on a TPU that show how a program gets its input."""


class Breakdown(Plotted, DeclaredTable, Struct, frozen=True, kw_only=True):
    """The time of each step by category.

    `time_ps` maps each of `CATEGORIES`, the two parts of input (`input_wait`, `host_to_device`), and the time that
    collectives wait at a barrier, as TPUs record it (`barrier`), to int64 picoseconds per step. `compute_16_ps`,
    `compute_32_ps` and `compute_unknown_ps` are device compute by precision over the whole capture
    (`trace/device/kernels.py`).
    """

    home = ("steps", "steps")

    steps: Steps
    attribution: Attribution
    time_ps: dict[str, Int64s]
    compute_16_ps: int
    compute_32_ps: int
    compute_unknown_ps: int
    input_visible: bool
    """False: the trace does not show how the program gets its input, so input time is unknown, not zero."""
    fetches: Bools
    """Whether each step fetches a batch from an input pipeline, with or without waiting for it."""
    has_device: bool
    """False: no device recorded anything, so device time is unknown, not zero."""
    host_visible: bool = True
    """False: there are no events of host threads, so host time is unknown."""
    unknown_somewhere: frozenset[str] = frozenset()
    """Categories, and parts of input, that are unknown for some of several hosts, or for TPU ops."""
    on_tpu: bool = False
    copies_are_input: bool = True
    """False: the program keeps arrays copied to a TPU in host memory, so `host_to_device` is a category of its own."""
    task: Task = Task()
    clock_start_ns: int | None = None
    """Time 0 of a single host's clock, in nanoseconds since 1970."""
    cores: tuple[CoreWork, ...] = ()
    """TPU cores whose ops have categories."""
    missing: tuple[Flaw, ...] = ()

    @property
    def categories(self) -> tuple[str, ...]:
        """Return the categories that add up to a step."""
        return CATEGORIES if self.copies_are_input else WITH_COPIES

    @property
    def averaged(self) -> Bools:
        """Return which steps are included in averages."""
        return self.steps.averaged

    def known(self, category: str, value: float | None) -> float | None:
        """Return the value of a category, or of a part of input; None if unknown."""
        return None if category in self.unknown else value

    @property
    def unknown(self) -> frozenset[str]:
        """Return the unknown categories and parts of input, for which `time_ps` holds 0, including those unknown on
        some hosts.
        """
        unknown = set(self.unknown_somewhere)
        if not self.has_device:
            unknown |= {*DEVICE_CATEGORIES, "host_to_device"}
        if not self.input_visible:
            unknown |= {"input", "input_wait"}
            # Batches must get to a device somehow, so missing copies are unknown, not 0.
            unknown |= {"host_to_device"} if not self.time_ps["host_to_device"].any() else set()
        if not self.host_visible:  # time without device events may belong to any of these
            unknown |= {*HOST_CATEGORIES, "all_others"}
        for flaw in self.missing:
            unknown |= flaw.hides
        return frozenset(unknown)

    @property
    def compute_ps(self) -> int:
        """Return the time of device compute in any precision over the whole capture."""
        return self.compute_16_ps + self.compute_32_ps + self.compute_unknown_ps

    def only(self, rows: Int64s) -> Breakdown:
        """Return the breakdown of the steps at `rows`."""
        time_ps = {category: values[rows] for category, values in self.time_ps.items()}
        cores = tuple(core.only(rows) for core in self.cores)
        fetches = np.asarray(self.fetches[rows], np.bool_)
        return replace(self, steps=self.steps.only(rows), time_ps=time_ps, fetches=fetches, cores=cores)

    def columns(self, empty: Set[str] | None = None) -> dict[str, list[object]]:
        """Return one row per step, with None for the categories in `empty` (default: unknown ones, except that device
        categories are 0 without a device).

        In attribution tensorflow, all unknown ones are 0, as in TensorFlow's output.
        """
        if empty is None:
            empty = self.unknown if self.attribution == "corrected" else frozenset()
            if not self.has_device:
                empty -= {*DEVICE_CATEGORIES, "host_to_device"} if self.input_visible else {*DEVICE_CATEGORIES}
        steps = self.steps
        return {
            "step": steps.numbers.tolist(),
            "step_name": list(steps.names),
            "kind": list(steps.kinds),
            "flag": list(steps.flags),
            "averaged": self.averaged.tolist(),
            "batches": steps.batches.tolist(),
            "start_ms": (steps.start_ps / PS_PER_MS).tolist(),
            "step_time_ms": (steps.duration_ps / PS_PER_MS).tolist(),
            **{
                f"{key}_ms": [None] * len(steps) if key in empty else (self.time_ps[key] / PS_PER_MS).tolist()
                for key in (*CATEGORIES, "input_wait", "host_to_device")
            },
        }

    def _data(self) -> Data:
        # The section adds how long hosts wait for each other.
        return {**self.columns(self.unknown), "waiting_for_hosts_ms": [None] * len(self.steps)}


def attribute(trace: HostTrace, steps: Steps, busy: dict[Activity, Intervals] | None = None) -> Breakdown:
    """Attribute the time of each step window by the corrected rules; `busy` are the `busy_times` of the trace."""
    if trace.device_kind == "tpu" and len(steps):
        return _tpu(trace, steps)
    times = corrected_times(busy_times(trace) if busy is None else busy, steps.start_ps, steps.end_ps)
    # Copies without waiting by the host are not input time.
    host_visible = bool(trace.on_host.any())
    shown = times.busy.keys() & {Activity.WAIT_INPUT, Activity.HOST_TO_DEVICE, Activity.STAGING}
    return replace(
        _breakdown(steps, times, "corrected", input_visible=host_visible and bool(shown)),
        has_device=bool(trace.devices),
        host_visible=host_visible,
        on_tpu=trace.device_kind == "tpu",
    )


def _tpu(trace: HostTrace, steps: Steps) -> Breakdown:
    """Attribute the steps of each TPU core by its ops, and average over cores."""
    windows, codes = core_steps(trace, steps), tpu_codes(trace)
    times = [tpu_times(trace, plane, codes, start_ps, end_ps) for plane, start_ps, end_ps in windows]
    # One core may feed the others.
    input_visible = shows_transfers(trace) or any(of_core.busy.keys() & _FEEDS for of_core in times)
    is_own = any(copies_own_arrays(trace, *window) for window in windows)
    cores, works = [], []
    for (plane, start_ps, end_ps), of_core in zip(windows, times, strict=True):
        of_steps = replace(steps.only(np.arange(len(start_ps))), start_ps=start_ps, end_ps=end_ps)
        core = _breakdown(of_steps, of_core, "corrected", input_visible=input_visible)
        if is_own:
            core.time_ps["input"] = core.time_ps["input_wait"]
        cores.append(replace(core, copies_are_input=not is_own))
        label = device_label(trace.planes[plane].name)
        works.append(core_work(trace.host, label, of_core, core.time_ps["input"]))
    unknown = set(HOST_CATEGORIES)  # ops of a core do not show host activity
    if not has_categories(trace) or not has_ops(trace):
        unknown |= {*DEVICE_CATEGORIES, "input", "input_wait", "host_to_device"}
        unknown |= set() if has_ops(trace) else {"all_others"}
    precision_ps = {f"compute_{kind}_ps": 0 for kind in ("16", "32", "unknown")}
    whole = combine(cores)
    if steps.on_cores:  # cores drift apart, so a step is at its average position, and steps follow each other
        start_ps = np.mean([each.start_ps for each in windows], axis=0).astype(np.int64)
        end_ps = np.mean([each.end_ps for each in windows], axis=0).astype(np.int64)
        whole = replace(whole, steps=replace(steps, start_ps=start_ps, end_ps=end_ps))
    time_ps = {category: ps * (category not in unknown) for category, ps in whole.time_ps.items()}
    known = tuple(works) if "input" not in unknown else ()
    whole = replace(whole, **precision_ps, time_ps=time_ps, cores=known, on_tpu=True)
    return replace(whole, unknown_somewhere=frozenset(unknown))


def as_tensorflow(trace: HostTrace) -> Breakdown:
    """Find steps and attribute their time as TensorFlow's profiler did for the same file; TPUs have one attribution."""
    from tfperf.trace.steps.tensorflow_groups import group_spans, group_trace, grouped_times

    if trace.device_kind == "tpu":
        breakdown = attribute(trace, find_steps(trace))
        notes = (*breakdown.steps.notes, _ONE_TPU_ATTRIBUTION)
        return replace(breakdown, attribution="tensorflow", steps=replace(breakdown.steps, notes=notes))
    is_stored = trace.has_groups
    trace = trace if is_stored else group_trace(trace)
    group = trace.number("group_id", -1)
    spans = group_spans(trace, group)
    times = grouped_times(trace, group, spans)
    steps = _group_steps(spans.group, spans.start, spans.end, spans.names)
    breakdown = replace(
        _breakdown(steps, times, "tensorflow", input_visible=True),
        has_device=bool(trace.devices),
        host_visible=bool(trace.on_host.any()),
    )
    needed = (Activity.COMPUTE_16, Activity.COMPUTE_32) if len(spans.device_groups) else (Activity.HOST_COMPUTE,)
    rows = np.flatnonzero((_time_in_groups(times, needed) > 0) & (steps.duration_ps > 0))
    breakdown = breakdown.only(rows)
    if not len(rows):
        return replace(breakdown, steps=_group_steps(rows, rows, rows, {}))
    if is_stored or len(rows) <= _KEEPS_ENDS:
        return breakdown
    flags = (OMITTED, *breakdown.steps.flags[1:-1], OMITTED)
    return replace(breakdown, steps=replace(breakdown.steps, flags=flags))


def _group_steps(group: Int64s, start: Int64s, end: Int64s, names: dict[int, str]) -> Steps:
    step_names = tuple(names.get(key, "") or f"step {key}" for key in group.tolist())
    count = len(group)
    how: How = ("groups", "high", f"TensorFlow's profiler grouped the events into {counted(count, 'step')}")
    if not count:
        explanation = "TensorFlow's profiler finds no step marker; use --attribution corrected to infer steps"
        how = ("none", "none", explanation)
    return plain_steps(how, (start, end), group, step_names, ("step",) * count)


def combine(hosts: Sequence[Breakdown]) -> Breakdown:
    """Average the steps of several hosts, matched by `matched_rows`; hosts without steps do not take part."""
    with_steps = [host for host in hosts if len(host.steps)]
    if len(with_steps) <= 1:
        return (with_steps or list(hosts))[0]
    rows, matched_by = matched_rows(with_steps)
    aligned = [host.only(matched) for host, matched in zip(with_steps, rows, strict=True)]
    first = aligned[0]
    duration_ps = np.mean([host.steps.duration_ps for host in aligned], axis=0).astype(np.int64)
    flags_of_hosts = zip(*(host.steps.flags for host in aligned), strict=True)
    steps = replace(
        first.steps,
        end_ps=first.steps.start_ps + duration_ps,
        flags=tuple(next((flag for flag in flags if flag), "") for flags in flags_of_hosts),
        notes=_combined_notes(with_steps, aligned, matched_by),
    )
    time_ps = {
        category: np.mean([host.time_ps[category] for host in aligned], axis=0).astype(np.int64)
        for category in first.time_ps
    }
    copies_are_input = all(host.copies_are_input for host in aligned)
    if not copies_are_input:
        time_ps["input"] = time_ps["input_wait"]
    return replace(
        first,
        steps=steps,
        time_ps=time_ps,
        fetches=np.all([host.fetches for host in aligned], axis=0),
        compute_16_ps=sum(host.compute_16_ps for host in with_steps),
        compute_32_ps=sum(host.compute_32_ps for host in with_steps),
        compute_unknown_ps=sum(host.compute_unknown_ps for host in with_steps),
        input_visible=all(host.input_visible for host in with_steps),
        copies_are_input=copies_are_input,
        has_device=any(host.has_device for host in with_steps),
        host_visible=all(host.host_visible for host in with_steps),
        unknown_somewhere=frozenset().union(*(host.unknown for host in with_steps)),
        cores=tuple(core for host in aligned for core in host.cores),
        missing=tuple(flaw for host in with_steps for flaw in host.missing),
    )


def _combined_notes(hosts: Sequence[Breakdown], aligned: Sequence[Breakdown], matched_by: str) -> tuple[str, ...]:
    notes = dict.fromkeys(note for host in hosts for note in host.steps.notes)
    compared, most = len(aligned[0].steps), max(len(host.steps) for host in hosts)
    if compared < most:
        are = "is" if compared == 1 else "are"
        notes[f"hosts have up to {most} steps; only the {compared} that all hosts have {are} combined"] = None
    if any(host.steps.numbers.tolist() != aligned[0].steps.numbers.tolist() for host in aligned):
        notes[f"the step numbers of the hosts differ, so steps were matched {matched_by}"] = None
    return tuple(notes)


def _breakdown(steps: Steps, times: ActivityTimes, attribution: Attribution, *, input_visible: bool) -> Breakdown:
    activity_ps: dict[Activity, Int64s] = {}
    everywhere_ps: dict[Activity, int] = {}
    covered_ps, total_before = np.zeros(len(steps), np.int64), 0
    for activity, covered in times.covered():
        inside_ps = overlap(covered, times.start, times.end)
        activity_ps[activity], covered_ps = inside_ps - covered_ps, inside_ps
        everywhere_ps[activity], total_before = covered.total() - total_before, covered.total()
    nothing = np.zeros(len(steps), np.int64)
    time_ps = {
        category: sum((activity_ps.get(activity, nothing) for activity in activities), nothing)
        for category, activities in CATEGORY_ACTIVITIES.items()
    }
    time_ps["input"] = time_ps["input_wait"] + time_ps["host_to_device"]
    time_ps["barrier"] = activity_ps.get(Activity.BARRIER, nothing)
    time_ps["all_others"] = times.end - times.start - covered_ps
    fetches = (times.busy.get(activity, EMPTY) for activity in CATEGORY_ACTIVITIES["input_wait"])
    return Breakdown(
        steps=steps,
        attribution=attribution,
        time_ps=time_ps,
        compute_16_ps=everywhere_ps.get(Activity.COMPUTE_16, 0),
        compute_32_ps=everywhere_ps.get(Activity.COMPUTE_32, 0),
        compute_unknown_ps=everywhere_ps.get(Activity.COMPUTE_UNKNOWN, 0),
        input_visible=input_visible,
        fetches=np.any([overlap(times_of, times.start, times.end) > 0 for times_of in fetches], axis=0),
        has_device=True,
    )


def _time_in_groups(times: ActivityTimes, activities: tuple[Activity, ...]) -> Int64s:
    """Return the time of the activities per group, including time outside its step window."""
    order = np.argsort(times.start)
    start, end = np.empty_like(times.start), np.empty_like(times.end)
    origins = times.origin[order]
    start[order], end[order] = origins, np.append(origins[1:], np.iinfo(np.int64).max // 2)
    higher_ps, total_ps = np.zeros(len(start), np.int64), np.zeros(len(start), np.int64)
    for activity, covered in times.covered():
        inside_ps = overlap(covered, start, end)
        if activity in activities:
            total_ps = total_ps + inside_ps - higher_ps
        higher_ps = inside_ps
    return total_ps


# --- hosts ---


def matched_rows(hosts: Sequence[Breakdown]) -> tuple[list[Int64s], str]:
    """Return, for each host, the rows of the steps that all hosts have, and how they were matched.

    They are matched by number if every host counted its steps itself and they share any; else by time, if all clocks
    are known and steps of all hosts overlap; else in order.
    """
    numbers = [distinct(host.steps.numbers) for host in hosts]
    are_numbered = all(
        host.steps.source == "markers" and len(of_host) == len(host.steps)
        for host, of_host in zip(hosts, numbers, strict=True)
    )
    if are_numbered:
        shared = numbers[0]
        for other in numbers[1:]:
            shared = shared[lookup(other, shared) >= 0]
        if len(shared):
            return [np.flatnonzero(lookup(shared, host.steps.numbers) >= 0) for host in hosts], "by number"
    by_time = _by_time(hosts)
    if by_time is not None and len(by_time[0]):
        return by_time, "by time"
    return [np.arange(min(len(host.steps) for host in hosts))] * len(hosts), "in order"


def _by_time(hosts: Sequence[Breakdown]) -> list[Int64s] | None:
    """Return the rows of steps that run at the middle of a step of the first host; None without clocks."""
    starts_ns = [host.clock_start_ns for host in hosts if host.clock_start_ns is not None]
    if len(starts_ns) < len(hosts):
        return None
    first = hosts[0].steps
    middle_ps = first.start_ps + first.duration_ps // 2
    rows = []
    for host, start_ns in zip(hosts, starts_ns, strict=True):
        at_ps = middle_ps + (starts_ns[0] - start_ns) * 1000
        row = host.steps.at(at_ps)
        # A long step that contains several of them belongs to the first.
        row[1:][row[1:] == row[:-1]] = -1
        rows.append(row)
    are_whole = np.all([row >= 0 for row in rows], axis=0)
    return [row[are_whole] for row in rows]


# --- what is unknown ---

NO_DEVICE = "the profile has no device events, so device time is unknown"
_NO_HOST = "the profile has no events of host threads, so host activity is unknown: profile with host tracer level 2"
_NO_INPUT = (
    "the profile does not show the source of the input (neither tf.data fetches nor copies to a device), so its "
    "share is unknown, not 0: profile with host tracer level 2"
)

_NO_CATEGORIES = (
    "the TPU cores recorded no ops with a category (line XLA Ops, stat hlo_category): profile with device tracer "
    "level 1, or with another version of the runtime"
)
_NOT_OF_THE_HOST = "the steps are TPU core steps, and their ops do not show host activity"


def why_unknown(breakdown: Breakdown, category: str) -> str:
    """Return why a category or part of input is unknown, and how to record it."""
    hiding = next((flaw for flaw in breakdown.missing if category in flaw.hides), None)
    if hiding is not None:
        return f"{hiding.text}: {hiding.fix}"
    if not breakdown.has_device and category in (*DEVICE_CATEGORIES, "host_to_device"):
        return NO_DEVICE
    if breakdown.on_tpu and "device_compute" in breakdown.unknown and category not in HOST_CATEGORIES:
        return _NO_CATEGORIES
    if breakdown.host_visible and category in ("input", "input_wait", "host_to_device"):
        return _NO_INPUT
    return _NOT_OF_THE_HOST if category in breakdown.unknown_somewhere else _NO_HOST


def why_devices_unknown(breakdown: Breakdown) -> str:
    """Return why device work is unknown although the job uses a device; empty if it is known, or there is no device."""
    return why_unknown(breakdown, "device_compute") if lacks_devices(breakdown) else ""


def lacks_devices(breakdown: Breakdown) -> bool:
    """Return whether events of devices that the job uses are missing."""
    return any("device_compute" in flaw.hides for flaw in breakdown.missing)


# --- steps that count ---


class CountedSteps(Struct, frozen=True, eq=False):
    """The steps for which a result has times, and which of them it includes: initially the headline steps."""

    start_ps: Int64s
    duration_ps: Int64s
    counted: Bools

    @classmethod
    def of(cls, steps: Steps) -> CountedSteps:
        """Return the steps of a host."""
        return cls(steps.start_ps, steps.duration_ps, steps.headline)

    @classmethod
    def joined(cls, parts: Sequence[CountedSteps]) -> CountedSteps:
        """Return the steps of several hosts."""
        columns = zip(*((part.start_ps, part.duration_ps, part.counted) for part in parts), strict=True)
        return cls(*map(np.concatenate, columns))

    def counting(self, after: Breakdown) -> CountedSteps:
        """Return the same steps, including only the headline steps of `after`."""
        return replace(self, counted=np.isin(self.start_ps, after.steps.start_ps[after.steps.headline]))

    @property
    def count(self) -> int:
        """Return the number of included steps."""
        return int(self.counted.sum())

    @property
    def total_ps(self) -> int:
        """Return the total duration of the included steps."""
        return self.sum(self.duration_ps)

    def sum(self, values: Int64s) -> int:
        """Return the sum of a value per step over the included steps."""
        return int(values[self.counted].sum())

    def percent(self, times_ps: Int64s) -> float | None:
        """Return the share of times per step in the included steps; None without any."""
        return percent(self.sum(times_ps), self.total_ps)
