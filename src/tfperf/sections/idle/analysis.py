"""Idle time of devices, by what the host does meanwhile.

For each device and step window, idle time is the window minus the time in which any stream computes or copies
(`gaps_of` splits it by cause). Shares of several devices are averages over those that work, each of its idle time / the
time of its own steps. Unused devices are excluded, because their idle time does not show what the others wait for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from tfperf.analysis.registry import Tabular
from tfperf.base.arrays import NO_NUMBERS, Bools, Int64s, distinct, overlap, ranges, union, union_all
from tfperf.base.display import Plotted
from tfperf.base.units import PS_PER_MS, percent
from tfperf.trace.device.device_work import DeviceTime, device_label, work_rows
from tfperf.trace.device.kernels import short_name
from tfperf.trace.event_names import without_frame_mark
from tfperf.trace.host.api_calls import api_calls
from tfperf.trace.host.host_state import HostStates, State
from tfperf.trace.host.launches import LaunchLinks
from tfperf.trace.host.python_frames import profiler_times
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import parents
from tfperf.trace.steps.steps import Steps
from tfperf.trace.steps.tpu_steps import core_steps

if TYPE_CHECKING:
    from tfperf.analysis.registry import Host
    from tfperf.trace.steps.breakdown import Breakdown

Cause = Literal["input", "compile", "synchronise", "copy", "launch", "python", "host_compute", "unknown"]
CAUSES: tuple[Cause, ...] = get_args(Cause)
"""In display order for equal values."""


class CauseTexts(Struct, frozen=True):
    """Texts of a cause of idle time: row label, column title, and meaning."""

    title: str
    short_title: str
    meaning: str


CAUSE_TEXTS: dict[Cause, CauseTexts] = {
    "input": CauseTexts("Waiting for input", "Input", "the step waits for input"),
    "compile": CauseTexts("Tracing, compiling", "Compile", "tracing or compiling functions"),
    "synchronise": CauseTexts("Synchronizing", "Sync", "the program waits for a result"),
    "copy": CauseTexts("Copying", "Copy", "copying tensors to the device"),
    "launch": CauseTexts("Launching", "Launch", "preparing and launching work"),
    "python": CauseTexts("Python between calls", "Python", "Python runs outside any framework call"),
    "host_compute": CauseTexts("Other host compute", "Compute", "ops on host threads"),
    "unknown": CauseTexts("Unknown", "Unknown", "not shown by the profile"),
}
Use = Literal["works", "copies", "outside", "no kernel", "silent"]


class Idle(Plotted, Tabular, frozen=True, kw_only=True, dict=True):
    """Idle time of the devices of one or several hosts; without a device, all fields are empty."""

    home = ("idle", "idle_causes")

    listed: tuple[tuple[str, str], ...]
    """Host and plane of each device in the trace, with or without work."""
    devices: tuple[DeviceIdle, ...]
    """The listed devices with recorded work."""
    longest: tuple[Gap, ...]
    """The longest gaps, in all windows, of the devices that were in the averages when the profile was read."""
    without_steps: str
    """Why there are no steps, so that the whole capture is one window; empty if there are steps."""
    no_main_thread: bool
    """Whether a host with a device has no recorded call of its program, so Python time cannot be separated from
    unknown."""

    @cached_property
    def averaged(self) -> tuple[DeviceIdle, ...]:
        """Return the devices in averages and gaps: devices that compute in steps, else devices that copy, else all."""
        by_use = ([device for device in self.devices if device.use == use] for use in ("works", "copies"))
        return tuple(next(filter(None, by_use), self.devices))

    @property
    def uses(self) -> tuple[DeviceUse, ...]:
        """Return the use of each listed device."""
        recorded = {(device.host, device.device): device for device in self.devices}
        return tuple(use_of(host, name, recorded.get((host, name))) for host, name in self.listed)

    @property
    def idle_devices(self) -> tuple[DeviceUse, ...]:
        """Return the unused listed devices: without recorded work, or with copies outside of steps only."""
        return tuple(device for device in self.uses if device.use in DOES_NOTHING)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Return the longest gaps of the averaged devices."""
        averaged = {(device.host, device.device) for device in self.averaged}
        return tuple(gap for gap in self.longest if (gap.host, gap.device) in averaged)

    @property
    def gap_count(self) -> int:
        """Return the number of gaps of the averaged devices, in all windows."""
        return sum(device.all_gap_count for device in self.averaged)

    @property
    def idle_percent(self) -> float | None:
        """Return the idle share of the step time, averaged over devices; None without a device."""
        return _average([device.percent() for device in self.averaged])

    @property
    def waited_percent(self) -> float:
        """Return the share of the step time that is idle because of API calls that wait, averaged over devices."""
        return _average([device.waited_percent for device in self.averaged]) or 0.0

    @cached_property
    def percents(self) -> Mapping[Cause, float]:
        """Return the idle share of the step time by cause, averaged over devices."""
        return {cause: _average([device.percent(cause) for device in self.averaged]) or 0.0 for cause in CAUSES}

    @property
    def ranked(self) -> tuple[Cause, ...]:
        """Return the causes with any time, largest share of the step first."""
        return tuple(
            sorted((cause for cause in CAUSES if self.percents[cause]), key=lambda cause: -self.percents[cause])
        )

    def columns(self) -> dict[str, list[object]]:
        """Return one row per cause, largest first; `per_step_ms` is the average per step of a device."""
        devices, ranked, idle_percent = self.averaged, self.ranked, self.idle_percent or 0.0
        steps = sum(device.step_count for device in devices)
        total_ps = [sum(device.total_ps(cause) for device in devices) for cause in ranked]
        return {
            "cause": list(ranked),
            "total_ms": [total / PS_PER_MS for total in total_ps],
            "per_step_ms": [total / PS_PER_MS / max(steps, 1) for total in total_ps],
            "step_percent": [self.percents[cause] for cause in ranked],
            "idle_percent": [100.0 * self.percents[cause] / idle_percent for cause in ranked],  # not 0 if ranked
            "gaps": [sum(device.gap_counts[cause] for device in devices) for cause in ranked],
        }

    def device_columns(self) -> dict[str, list[object]]:
        """Return one row per device with recorded work; times are averages over its steps, in milliseconds."""
        steps = [max(device.step_count, 1) for device in self.devices]
        step_ps = [device.counted_window_ps for device in self.devices]
        idle_ps = [device.counted_idle_ps for device in self.devices]
        return {
            "host": [device.host for device in self.devices],
            "device": [device_label(device.device) for device in self.devices],
            "steps": [device.step_count for device in self.devices],
            "step_ms": [total / PS_PER_MS / count for total, count in zip(step_ps, steps, strict=True)],
            "idle_ms": [total / PS_PER_MS / count for total, count in zip(idle_ps, steps, strict=True)],
            "idle_percent": [device.percent() for device in self.devices],
            "gaps": [device.gap_count for device in self.devices],
            **{f"{cause}_percent": [device.percent(cause) for device in self.devices] for cause in CAUSES},
            "waited_percent": [device.waited_percent for device in self.devices],
        }

    def gap_columns(self) -> dict[str, list[object]]:
        """Return one row per listed gap, longest first; times in milliseconds."""
        launched_before_ps = [gap.launched_before_ps for gap in self.gaps]
        same = ("host", "step", "flag", "cause", "thread_name", "thread", "event", "before", "after")
        return {
            "device": [device_label(gap.device) for gap in self.gaps],
            **{key: [getattr(gap, key) for gap in self.gaps] for key in same},
            "start_ms": [gap.start_ps / PS_PER_MS for gap in self.gaps],
            "duration_ms": [gap.duration_ps / PS_PER_MS for gap in self.gaps],
            "cause_percent": [100.0 * gap.cause_ps / gap.duration_ps for gap in self.gaps],
            "launched_before_ms": [None if time is None else time / PS_PER_MS for time in launched_before_ps],
        }


def _average(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def analyze(host: Host) -> Idle:
    """Attribute the idle time of each device of a host; without steps, the whole capture is one window."""
    trace, steps = host.trace, host.step_windows
    without_steps = "" if len(steps) else steps.explanation
    devices = [device for device in host.device_times if len(device.busy.start)]
    listed = tuple((trace.host, plane.name) for plane in trace.planes if plane.kind == trace.device_kind)
    idle = Idle(listed=listed, devices=(), longest=(), without_steps=without_steps, no_main_thread=False)
    if not devices:
        return idle
    states = host.host_states
    if len(steps):
        windows = [_windows(trace, steps, device) for device in devices]
    else:
        # Without profiler start and stop, which take most of a second on a TPU.
        begin = max((trace.extent_ps[0], *profiler_times(trace, "start").end.tolist()))
        end = min((trace.extent_ps[1], *profiler_times(trace, "stop").start.tolist()))
        begin, end = (begin, end) if begin < end else trace.extent_ps
        capture = Windows(np.array([begin], np.int64), np.array([end], np.int64), np.ones(1, np.bool_))
        windows = [capture] * len(devices)
    pairs = zip(devices, windows, strict=True)
    gaps = [gaps_of(trace, device, of_device, host.launch_links, states) for device, of_device in pairs]
    waits = outermost_by_line(trace, api_calls(trace).of("synchronize"))
    of_devices = tuple(_device_idle(trace, *each, waits) for each in zip(windows, gaps, strict=True))
    idle = replace(idle, devices=of_devices, no_main_thread=states.main is None)
    averaged = {id(device) for device in idle.averaged}
    of_averaged = [pieces for pieces, device in zip(gaps, of_devices, strict=True) if id(device) in averaged]
    return replace(idle, longest=longest_gaps(trace, of_averaged, steps, states))


def _windows(trace: HostTrace, steps: Steps, device: DeviceTime) -> Windows:
    """Return the steps as windows, counting the averaged ones. A TPU core has its own windows."""
    # Steps of the breakdown are on the clock of the chips, which their runs or the line of steps give more precisely.
    if steps.on_cores or steps.source == "device steps":
        own = next((core for core in core_steps(trace, steps) if core.plane == device.plane), None)
        if own is not None:
            return Windows(own.start_ps, own.end_ps, steps.headline[: len(own.start_ps)])
    return Windows(steps.start_ps, steps.end_ps, steps.headline)


def _device_idle(trace: HostTrace, windows: Windows, gaps: DeviceGaps, waits: Mapping[int, Int64s]) -> DeviceIdle:
    time_ps = np.zeros((len(CAUSES), len(windows.start_ps)), np.int64)
    for sums, values in zip(time_ps, gaps.time_ps, strict=True):
        np.add.at(sums, gaps.window, values)
    waited_ps = np.zeros(len(windows.start_ps), np.int64)
    np.add.at(waited_ps, gaps.window, idle_after_waits(trace, gaps, waits))
    is_counted = windows.counted[gaps.window]
    kernels = union_all([gaps.device.compute, gaps.device.collectives])
    gap_counts = (gaps.time_ps[:, is_counted] > 0).sum(axis=1).tolist()
    return DeviceIdle(
        host=trace.host,
        device=gaps.device.name,
        counted=windows.counted,
        window_ps=windows.end_ps - windows.start_ps,
        busy_ps=overlap(gaps.device.busy, windows.start_ps, windows.end_ps),
        compute_ps=overlap(gaps.device.compute, windows.start_ps, windows.end_ps),
        kernel_ps=overlap(kernels, windows.start_ps, windows.end_ps),
        all_kernel_ps=kernels.total(),
        time_ps=dict(zip(CAUSES, time_ps, strict=True)),
        waited_ps=waited_ps,
        gap_counts=dict(zip(CAUSES, gap_counts, strict=True)),
        gap_count=int(is_counted.sum()),
        all_gap_count=len(gaps.window),
    )


def combine(parts: list[Idle]) -> Idle:
    """Concatenate the devices of several hosts, and rank their gaps together."""
    if len(parts) == 1:
        return parts[0]
    reasons = [part.without_steps for part in parts if part.devices and part.without_steps]
    return Idle(
        listed=tuple(device for part in parts for device in part.listed),
        devices=tuple(device for part in parts for device in part.devices),
        longest=longest_first([gap for part in parts for gap in part.longest]),
        without_steps=reasons[0] if reasons else "",
        no_main_thread=any(part.no_main_thread for part in parts),
    )


def narrow(idle: Idle, before: Breakdown, after: Breakdown) -> Idle:
    """Average idle time over the steps of `after`; not for attribution tensorflow, where steps are not windows."""
    if before.attribution == "tensorflow":
        return idle
    counted = np.isin(before.steps.start_ps, after.steps.start_ps[after.steps.headline])
    devices = (replace(each, counted=counted) if len(each.window_ps) == len(counted) else each for each in idle.devices)
    return replace(idle, devices=tuple(devices))


DOES_NOTHING: frozenset[Use] = frozenset({"no kernel", "silent"})
"""Uses of an unused device. A device that works outside of the averaged steps is not unused."""


class DeviceUse(Struct, frozen=True, kw_only=True):
    """A listed device, and its use in the averaged steps (without steps: in the capture)."""

    host: str
    device: str
    """Plane name, such as `/device:GPU:0`."""
    use: Use
    busy_percent: float | None
    """Share of the counted windows in which it works or copies; None if it has no recorded work."""
    compute_percent: float | None

    @property
    def label(self) -> str:
        """Return the short name, such as `GPU:0`."""
        return device_label(self.device)


class DeviceIdle(Struct, frozen=True, kw_only=True, dict=True):
    """Idle time of one device: one entry per window, in picoseconds; `counted` marks the windows in averages."""

    host: str
    device: str
    counted: Bools
    window_ps: Int64s
    busy_ps: Int64s
    compute_ps: Int64s
    """The part of `busy_ps` in which kernels (on a TPU, ops) run that are not collectives."""
    kernel_ps: Int64s
    """The part in which any kernels (on a TPU, ops that do not wait for data) run."""
    all_kernel_ps: int
    """This time in the whole capture, also outside of windows."""
    time_ps: dict[Cause, Int64s]
    """By cause; adds up to `window_ps` minus `busy_ps`."""
    waited_ps: Int64s
    """Part of all causes that follows from API calls that wait for the device (`idle_after_waits`)."""
    gap_counts: dict[Cause, int]
    """Number of gaps in counted windows with time of that cause."""
    gap_count: int
    """Gaps in counted windows."""
    all_gap_count: int

    @cached_property
    def step_count(self) -> int:
        """Return the number of counted windows."""
        return int(self.counted.sum())

    def total_ps(self, cause: Cause) -> int:
        """Return the time of a cause in counted windows."""
        return int(self.time_ps[cause][self.counted].sum())

    @cached_property
    def counted_idle_ps(self) -> int:
        """Return the idle time in counted windows."""
        return int((self.window_ps - self.busy_ps)[self.counted].sum())

    @cached_property
    def counted_window_ps(self) -> int:
        """Return the duration of the counted windows."""
        return int(self.window_ps[self.counted].sum())

    @property
    def waited_percent(self) -> float:
        """Return the share of the counted windows that is idle because of API calls that wait for the device."""
        return 100.0 * int(self.waited_ps[self.counted].sum()) / max(self.counted_window_ps, 1)

    @property
    def works_percent(self) -> float:
        """Return the share of the counted windows in which it works or copies; a TPU waiting for data does not."""
        works_ps = self.kernel_ps if self.device.startswith("/device:TPU:") else self.busy_ps
        return 100.0 * int(works_ps[self.counted].sum()) / max(self.counted_window_ps, 1)

    @cached_property
    def use(self) -> Use:
        """Return the use of the device in the counted windows."""
        if self.kernel_ps[self.counted].any():
            return "works"
        if self.busy_ps[self.counted].any():
            return "copies"
        return "outside" if self.all_kernel_ps else "no kernel"

    def percent(self, cause: Cause | None = None) -> float:
        """Return the idle share of the counted windows, for one cause or for all."""
        part = self.counted_idle_ps if cause is None else self.total_ps(cause)
        return 100.0 * part / max(self.counted_window_ps, 1)


def use_of(host: str, name: str, device: DeviceIdle | None) -> DeviceUse:
    """Return the use of a listed device; `device` is its idle time, None if it has no recorded work."""
    if device is None:
        return DeviceUse(host=host, device=name, use="silent", busy_percent=None, compute_percent=None)
    whole_ps = device.counted_window_ps
    busy, compute = (percent(int(part[device.counted].sum()), whole_ps) for part in (device.busy_ps, device.compute_ps))
    return DeviceUse(host=host, device=name, use=device.use, busy_percent=busy, compute_percent=compute)


LATE_PS = 100_000_000
"""A launch takes some microseconds to reach the device; after 100 us, the launch is not the reason."""

_CAUSE_OF: dict[State, Cause] = {
    State.INPUT: "input",
    State.COMPILE: "compile",
    State.COPY: "copy",
    State.LAUNCH: "launch",
    State.COMPUTE: "host_compute",
    State.EXECUTOR: "launch",
    State.SYNC: "synchronise",
    State.CALL: "launch",
    State.PYTHON: "python",
    State.OTHER: "host_compute",
    State.NONE: "launch",
}
"""A call that launched device work counts as launching, whatever its name."""
CAUSE_OF_STATE = np.array([CAUSES.index(_CAUSE_OF[state]) for state in State], np.int64)
LAUNCH, UNKNOWN = CAUSES.index("launch"), CAUSES.index("unknown")


class Windows(Struct, frozen=True):
    """Disjoint windows in time order, and whether each is in averages."""

    start_ps: Int64s
    end_ps: Int64s
    counted: Bools


class DeviceGaps(Struct, frozen=True, kw_only=True):
    """Gaps of one device, cut at window edges: columns of equal length, int64 picoseconds on the clock of the host."""

    device: DeviceTime
    window: Int64s
    """Index of the window that contains the piece."""
    start_ps: Int64s
    end_ps: Int64s
    gap_start_ps: Int64s
    """Start and end of the whole gap, which may extend beyond the window."""
    gap_end_ps: Int64s
    launch: Int64s
    """Host row of the call that launched the next work, -1 if unknown."""
    called_ps: Int64s
    """Time at which that call starts; `end_ps` if unknown."""
    before: Int64s
    """Device rows before and after the gap, -1 at the ends of the capture."""
    after: Int64s
    time_ps: Int64s
    """[cause, piece]: columns add up to the duration of the piece."""

    @property
    def duration_ps(self) -> Int64s:
        """Return the duration of each piece."""
        return self.end_ps - self.start_ps

    def only(self, pieces: Int64s) -> DeviceGaps:
        """Return the given pieces."""
        columns = {key: column[..., pieces] for key, column in asdict(self).items() if key != "device"}
        return replace(self, **columns)


def gaps_of(
    trace: HostTrace, device: DeviceTime, windows: Windows, links: LaunchLinks, states: HostStates
) -> DeviceGaps:
    """Cut the idle time of a device at windows, and split each piece by cause.

    A gap is an interval in which the device neither computes nor copies. Each piece of it is split exactly:

    1. The next work of the device ends a gap, and `correlation_id` identifies the call that launched it. From the start
       of that call, the gap belongs to the call: a launch, a copy, or a copy back (waiting for a result). Gaps between
       kernels that were all launched before are launching too, because the device takes that long between kernels.
    2. If the work starts more than `LATE_PS` after its call ended, the device itself waited for another stream or
       device. The trace does not record which, so the cause is unknown.
    3. Before that call, the state of the host decides, one at a time (`trace/host/host_state.py`).
    """
    first = min(device.start_ps, int(windows.start_ps.min()))
    last = max(device.end_ps, int(windows.end_ps.max()))
    gap_start, gap_end = np.append(first, device.busy.end), np.append(device.busy.start, last)
    first_window = np.searchsorted(windows.end_ps, gap_start, side="right")
    count = np.where(gap_end > gap_start, np.maximum(np.searchsorted(windows.start_ps, gap_end) - first_window, 0), 0)
    gap = np.repeat(np.arange(len(gap_start)), count)
    window = ranges(first_window, count)
    start = np.maximum(gap_start[gap], windows.start_ps[window])
    end = np.minimum(gap_end[gap], windows.end_ps[window])
    keep = end > start
    gap, window, start, end = gap[keep], window[keep], start[keep], end[keep]
    gap_start, gap_end = gap_start[gap], gap_end[gap]
    before, after = _around(trace, work_rows(trace, device.plane), gap_start, gap_end)
    # Host activity is on the host's own clock; a gap is too short for drift to matter.
    ahead = trace.on_host_clock(device.plane, start) - start
    start, end, gap_start, gap_end = start + ahead, end + ahead, gap_start + ahead, gap_end + ahead
    launch = np.where(after >= 0, links.of(np.maximum(after, 0)), -1)
    called = np.where(launch >= 0, np.clip(trace.start_ps[np.maximum(launch, 0)], start, end), end)
    pieces = DeviceGaps(
        device=device,
        window=window,
        start_ps=start,
        end_ps=end,
        gap_start_ps=gap_start,
        gap_end_ps=gap_end,
        launch=launch,
        called_ps=called,
        before=before,
        after=after,
        time_ps=np.zeros((len(CAUSES), len(start)), np.int64),
    )
    return replace(pieces, time_ps=_time_by_cause(trace, pieces, states))


def _around(trace: HostTrace, rows: Int64s, gap_start: Int64s, gap_end: Int64s) -> tuple[Int64s, Int64s]:
    """Return the device rows that end where gaps start and that start where gaps end, -1 if there is none."""
    by_end = rows[np.argsort(trace.end_ps[rows], kind="stable")]
    by_start = rows[np.argsort(trace.start_ps[rows], kind="stable")]
    left = np.searchsorted(trace.end_ps[by_end], gap_start, side="right") - 1
    right = np.searchsorted(trace.start_ps[by_start], gap_end)
    before, after = by_end[np.maximum(left, 0)], by_start[np.minimum(right, len(rows) - 1)]
    return (
        np.where((left >= 0) & (trace.end_ps[before] == gap_start), before, -1),
        np.where((right < len(rows)) & (trace.start_ps[after] == gap_end), after, -1),
    )


def outermost_by_line(trace: HostTrace, rows: Int64s) -> dict[int, Int64s]:
    """Return the rows (ascending) that are not inside another one, by the index of their line, in time order."""
    outer = rows[parents(trace, rows) < 0]
    lines = trace.line_of[outer]
    return {line: outer[lines == line] for line in distinct(lines).tolist()}


def idle_after_waits(trace: HostTrace, gaps: DeviceGaps, waits: Mapping[int, Int64s]) -> Int64s:
    """Return how much of each piece follows from API calls that wait for the device (`waits`: rows by line).

    A thread that waits launches the next work later, by at most the time that it waited. Work of the device during the
    wait is not lost: only the idle time between the start of the wait and the next work counts, if the same thread
    launched that work after the wait, and if the work began soon after its launch.
    """
    saved = np.zeros(len(gaps.window), np.int64)
    call = np.maximum(gaps.launch, 0)
    called, returned = trace.start_ps[call], trace.end_ps[call]
    is_prompt = (gaps.launch >= 0) & (gaps.gap_end_ps - np.maximum(returned, gaps.gap_start_ps) <= LATE_PS)
    line = np.where(is_prompt, trace.line_of[call], -1)
    for launching, rows in waits.items():
        at = np.flatnonzero(line == launching)
        start, end = trace.start_ps[rows], trace.end_ps[rows]
        first = np.searchsorted(end, gaps.gap_start_ps[at], side="right")
        last = np.searchsorted(end, called[at], side="right")
        at, first, last = at[last > first], first[last > first], last[last > first]
        waited = np.append(0, np.cumsum(end - start))
        gap_end = gaps.gap_end_ps[at]
        begin = np.maximum(gaps.gap_start_ps[at], start[first])
        begin = np.maximum(begin, gap_end - (waited[last] - waited[first]))
        saved[at] = np.maximum(np.minimum(gaps.end_ps[at], gap_end) - np.maximum(gaps.start_ps[at], begin), 0)
    return saved


def _time_by_cause(trace: HostTrace, pieces: DeviceGaps, states: HostStates) -> Int64s:
    time = pieces.time_ps.copy()
    covered = np.zeros(len(pieces.window), np.int64)
    for state, until in states.until(pieces.device.plane):
        covered_so_far = overlap(until, pieces.start_ps, pieces.called_ps)
        time[CAUSE_OF_STATE[state]] += covered_so_far - covered
        covered = covered_so_far
    time[UNKNOWN] += pieces.called_ps - pieces.start_ps - covered
    is_launched, call = pieces.launch >= 0, np.maximum(pieces.launch, 0)
    returned = np.where(is_launched, np.clip(trace.end_ps[call], pieces.called_ps, pieces.end_ps), pieces.end_ps)
    is_late = is_launched & (pieces.gap_end_ps - np.maximum(trace.end_ps[call], pieces.gap_start_ps) > LATE_PS)
    call_end = np.where(is_late, returned, pieces.end_ps)
    cause = np.where(is_launched, CAUSE_OF_STATE[states.code[call]], LAUNCH)
    time[cause, np.arange(len(cause))] += call_end - pieces.called_ps
    time[UNKNOWN] += pieces.end_ps - call_end
    return time


MOST_GAPS = 1000
"""Maximum number of gaps listed, over all hosts; the longest are kept."""

_MOST_LETTERS = 200
_MOSTLY = 0.5


class Gap(Struct, frozen=True, kw_only=True):
    """An interval of idle time in one step; None is unknown."""

    host: str
    device: str
    step: int | None
    flag: str
    """Why the step is excluded from averages; empty if it is not."""
    start_ps: int
    duration_ps: int
    cause: Cause
    """The cause with the largest part of the gap."""
    cause_ps: int
    thread: str | None
    event: str | None
    """The event of that thread with most time for that cause, the innermost of equals."""
    launched_before_ps: int | None
    """Time between the start of the call that launched the next work and the end of the gap."""
    before: str | None
    """Device work before and after the gap."""
    after: str | None

    @property
    def thread_name(self) -> str | None:
        """Return the name of the thread without the number that makes it unique."""
        return (self.thread or "").partition("/")[0] or None


def longest_first(gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    """Return the `MOST_GAPS` longest gaps."""
    return tuple(sorted(gaps, key=lambda gap: -gap.duration_ps)[:MOST_GAPS])


def longest_gaps(
    trace: HostTrace, gaps_of_devices: Sequence[DeviceGaps], steps: Steps, states: HostStates
) -> tuple[Gap, ...]:
    """Return the longest gaps of all devices of a host, longest first."""
    duration = np.concatenate([gaps.duration_ps for gaps in gaps_of_devices])
    sizes = [len(gaps.window) for gaps in gaps_of_devices]
    device, piece = np.repeat(np.arange(len(sizes)), sizes), np.concatenate([np.arange(size) for size in sizes])
    longest = np.argsort(-duration, kind="stable")[:MOST_GAPS]
    listed: list[Gap] = []
    for index, gaps in enumerate(gaps_of_devices):
        chosen = np.sort(piece[longest[device[longest] == index]])
        listed += _described(trace, gaps.only(chosen), steps, states)
    return longest_first(listed)


def _described(trace: HostTrace, gaps: DeviceGaps, steps: Steps, states: HostStates) -> list[Gap]:
    """Describe the gaps of a device. There are at most `MOST_GAPS`, so rows can be plain Python."""
    cause, cause_ps = gaps.time_ps.argmax(axis=0), gaps.time_ps.max(axis=0)
    evidence = _evidence(trace, gaps, states).tolist()
    launched_before = np.where(gaps.launch >= 0, gaps.gap_end_ps - trace.start_ps[np.maximum(gaps.launch, 0)], -1)
    main_thread = trace.lines[states.main].name if states.main is not None else ""
    duration_ps = gaps.duration_ps.tolist()
    described = []
    for at, window in enumerate(gaps.window.tolist()):
        name = CAUSES[cause[at]]
        row, lead_ps = evidence[at], int(launched_before[at])
        thread = trace.lines[int(trace.line_of[row])].name if row >= 0 else main_thread if name == "python" else ""
        described.append(
            Gap(
                host=trace.host,
                device=gaps.device.name,
                step=int(steps.numbers[window]) if len(steps) else None,
                flag=steps.flags[window] if len(steps) else "",
                start_ps=int(gaps.start_ps[at]),
                duration_ps=duration_ps[at],
                cause=name,
                cause_ps=int(cause_ps[at]),
                thread=thread or None,
                event=_event_name(trace, row, on_device=False),
                launched_before_ps=lead_ps if lead_ps >= 0 else None,
                before=_event_name(trace, int(gaps.before[at]), on_device=True),
                after=_event_name(trace, int(gaps.after[at]), on_device=True),
            )
        )
    return described


def _evidence(trace: HostTrace, gaps: DeviceGaps, states: HostStates) -> Int64s:
    """Return the host row that shows the cause of each gap (the call that ends it, if most comes from it), or -1."""
    cause, cause_ps = gaps.time_ps.argmax(axis=0), gaps.time_ps.max(axis=0)
    cause_of_call = CAUSE_OF_STATE[states.code[np.maximum(gaps.launch, 0)]]
    by_call = (
        (gaps.launch >= 0)
        & (2 * (gaps.end_ps - gaps.called_ps) >= cause_ps)
        & ((cause_of_call == cause) | (cause == UNKNOWN))
    )
    at_work = _rows_at_work(trace, states, gaps.start_ps, gaps.called_ps, np.where(by_call, -1, cause))
    return np.where(by_call, gaps.launch, at_work)


def _rows_at_work(trace: HostTrace, states: HostStates, start_ps: Int64s, end_ps: Int64s, cause: Int64s) -> Int64s:
    """Return, for each gap, the host row with most time for its cause; -1 if none.

    Gaps [start_ps, end_ps) are disjoint and ascend; `cause` is an index into `CAUSES`, -1 to skip a gap. Among the
    events of that thread that cover at least `_MOSTLY` as much, the innermost is returned, because it is more specific.
    """
    at_work = np.full(len(start_ps), -1, np.int64)
    gaps = union(start_ps[cause >= 0], end_ps[cause >= 0])
    if not len(gaps.start):
        return at_work
    parts = []
    for host_line in trace.host_lines:
        rows = np.flatnonzero(states.code[host_line.start : host_line.stop]) + host_line.start
        last = np.searchsorted(gaps.start, trace.end_ps[rows]) - 1
        parts.append(rows[(last >= 0) & (gaps.end[np.maximum(last, 0)] > trace.start_ps[rows])])
    rows = np.concatenate([NO_NUMBERS, *parts])
    first = np.searchsorted(end_ps, trace.start_ps[rows], side="right")
    count = np.maximum(np.searchsorted(start_ps, trace.end_ps[rows]) - first, 0)
    gap = ranges(first, count)
    rows = np.repeat(rows, count)
    is_of_cause = CAUSE_OF_STATE[states.code[rows]] == cause[gap]
    gap, rows = gap[is_of_cause], rows[is_of_cause]
    shared = np.minimum(trace.end_ps[rows], end_ps[gap]) - np.maximum(trace.start_ps[rows], start_ps[gap])
    gap, rows, shared = gap[shared > 0], rows[shared > 0], shared[shared > 0]
    order = np.lexsort((-trace.duration_ps[rows], shared, gap))
    most, line = np.zeros(len(start_ps), np.int64), np.zeros(len(start_ps), np.int64)
    # For a repeated index, the last value written stays: the largest share, then the shortest event, because it is more
    # specific; then the innermost event.
    most[gap[order]], line[gap[order]] = shared[order], trace.line_of[rows[order]]
    is_close = (trace.line_of[rows] == line[gap]) & (shared >= _MOSTLY * most[gap])
    gap, rows = gap[is_close], rows[is_close]
    order = np.argsort(rows, kind="stable")
    at_work[gap[order]] = rows[order]
    return at_work


def _event_name(trace: HostTrace, row: int, *, on_device: bool) -> str | None:
    """Return the name of an event, shortened for a kernel (files before 2021 name its launch after it)."""
    name = trace.names[trace.name[row]] if row >= 0 else ""
    is_kernel = on_device or name.startswith("void ")
    return (short_name(name) if is_kernel else without_frame_mark(name))[:_MOST_LETTERS] or None
