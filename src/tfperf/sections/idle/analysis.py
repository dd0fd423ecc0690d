"""Where the device waits: every moment in which it does nothing, by what the host was doing then.

For each device and each step window: idle is the window less the time in which any stream computes or copies
(`device_gaps.py` says how it is split by cause). The shares of several devices are averages over those that work
(`devices.py`), each of idle time / time of its own steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from tfperf.analysis.tabular import Tabular
from tfperf.base.arrays import overlap
from tfperf.base.units import PS_PER_MS
from tfperf.sections.idle.device_gaps import DeviceGaps, Windows, gaps_of
from tfperf.sections.idle.devices import DOES_NOTHING, DeviceIdle, DeviceUse, use_of
from tfperf.sections.idle.longest_gaps import Gap, longest_first, longest_gaps
from tfperf.sections.idle.tables import CAUSES, Cause
from tfperf.trace.host.python_frames import profiler_times
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.tpu_steps import core_steps

if TYPE_CHECKING:
    from tfperf.analysis.results import Host
    from tfperf.trace.device.device_time import DeviceTime
    from tfperf.trace.steps.breakdown import Breakdown
    from tfperf.trace.steps.steps import Steps


class Idle(Tabular, frozen=True, kw_only=True, dict=True):
    """The idle time of the devices of one host, or of several; without a device, all is empty."""

    home = ("idle", "idle_causes")

    listed: tuple[tuple[str, str], ...]
    """Host and plane of each device that the trace lists, with or without work."""
    devices: tuple[DeviceIdle, ...]
    """Those of them that recorded work."""
    longest: tuple[Gap, ...]
    """The longest gaps, of all windows, of the devices that counted in averages when the profile was read."""
    without_steps: str
    """Why there are no steps, so that the whole capture is one window; empty if there are."""
    no_main_thread: bool
    """True: a host with a device recorded no call of its program, so time in Python cannot be told from unknown."""

    @cached_property
    def averaged(self) -> tuple[DeviceIdle, ...]:
        """Return the devices that averages and gaps are of: those that work in the steps.

        Where none does, those that copy there; else all that recorded work.
        """
        by_use = ([device for device in self.devices if device.use == use] for use in ("works", "copies"))
        return tuple(next(filter(None, by_use), self.devices))

    @property
    def uses(self) -> tuple[DeviceUse, ...]:
        """Return what each listed device did."""
        recorded = {(device.host, device.device): device for device in self.devices}
        return tuple(use_of(host, name, recorded.get((host, name))) for host, name in self.listed)

    @property
    def idle_devices(self) -> tuple[DeviceUse, ...]:
        """Return the listed devices that do nothing: without recorded work, or with copies outside of steps only."""
        return tuple(device for device in self.uses if device.use in DOES_NOTHING)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Return the longest gaps of the devices that averages are of."""
        averaged = {(device.host, device.device) for device in self.averaged}
        return tuple(gap for gap in self.longest if (gap.host, gap.device) in averaged)

    @property
    def gap_count(self) -> int:
        """Return the number of gaps of these devices, in all windows."""
        return sum(device.all_gap_count for device in self.averaged)

    @property
    def idle_percent(self) -> float | None:
        """Return the idle share of the step time, averaged over devices; None without a device."""
        return _average([device.percent() for device in self.averaged])

    @cached_property
    def percents(self) -> Mapping[Cause, float]:
        """Return the share of the step time that is idle, by cause, averaged over devices."""
        return {cause: _average([device.percent(cause) for device in self.averaged]) or 0.0 for cause in CAUSES}

    @property
    def ranked(self) -> tuple[Cause, ...]:
        """Return the causes that took any time, the largest share of the step first."""
        return tuple(
            sorted((cause for cause in CAUSES if self.percents[cause]), key=lambda cause: -self.percents[cause])
        )

    def columns(self) -> dict[str, list[object]]:
        """Return one row per cause, the largest first; `per_step_ms` is of an average step of a device."""
        devices, ranked, idle_percent = self.averaged, self.ranked, self.idle_percent or 0.0
        steps = sum(device.step_count for device in devices)
        total_ps = [sum(device.total_ps(cause) for device in devices) for cause in ranked]
        return {
            "cause": list(ranked),
            "total_ms": [total / PS_PER_MS for total in total_ps],
            "per_step_ms": [total / PS_PER_MS / max(steps, 1) for total in total_ps],
            "step_percent": [self.percents[cause] for cause in ranked],
            "idle_percent": [100.0 * self.percents[cause] / idle_percent for cause in ranked],  # ranked: it is not 0
            "gaps": [sum(device.gap_counts[cause] for device in devices) for cause in ranked],
        }

    def device_columns(self) -> dict[str, list[object]]:
        """Return one row per device that recorded work; times are averages over its steps, in milliseconds."""
        steps = [max(device.step_count, 1) for device in self.devices]
        step_ps = [device.counted_window_ps for device in self.devices]
        idle_ps = [device.counted_idle_ps for device in self.devices]
        return {
            "host": [device.host for device in self.devices],
            "device": [device.device for device in self.devices],
            "steps": [device.step_count for device in self.devices],
            "step_ms": [total / PS_PER_MS / count for total, count in zip(step_ps, steps, strict=True)],
            "idle_ms": [total / PS_PER_MS / count for total, count in zip(idle_ps, steps, strict=True)],
            "idle_percent": [device.percent() for device in self.devices],
            "gaps": [device.gap_count for device in self.devices],
            **{f"{cause}_percent": [device.percent(cause) for device in self.devices] for cause in CAUSES},
        }

    def gap_columns(self) -> dict[str, list[object]]:
        """Return one row per listed gap, the longest first; times in milliseconds."""
        launched_before_ps = [gap.launched_before_ps for gap in self.gaps]
        same = ("host", "device", "step", "flag", "cause", "thread_name", "thread", "event", "before", "after")
        return {
            **{key: [getattr(gap, key) for gap in self.gaps] for key in same},
            "start_ms": [gap.start_ps / PS_PER_MS for gap in self.gaps],
            "duration_ms": [gap.duration_ps / PS_PER_MS for gap in self.gaps],
            "cause_percent": [100.0 * gap.cause_ps / gap.duration_ps for gap in self.gaps],
            "launched_before_ms": [None if time is None else time / PS_PER_MS for time in launched_before_ps],
        }


def _average(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def analyze(host: Host) -> Idle:
    """Attribute the idle time of each device of a host; without steps, of the whole capture as one window."""
    trace, steps = host.trace, host.step_windows
    without_steps = "" if len(steps) else steps.explanation
    devices = [device for device in host.device_times if len(device.busy.start)]
    listed = tuple((trace.host, plane.name) for plane in trace.planes if plane.kind == trace.device_kind)
    idle = Idle(listed=listed, devices=(), longest=(), without_steps=without_steps, no_main_thread=False)
    if not devices:
        return idle
    states = host.host_states
    windows = [_windows(trace, steps, device) for device in devices] if len(steps) else [_program(trace)] * len(devices)
    pairs = zip(devices, windows, strict=True)
    gaps = [gaps_of(trace, device, of_device, host.launch_links, states) for device, of_device in pairs]
    of_devices = tuple(_device_idle(trace, *each) for each in zip(windows, gaps, strict=True))
    idle = replace(idle, devices=of_devices, no_main_thread=states.main is None)
    averaged = {id(device) for device in idle.averaged}
    of_averaged = [pieces for pieces, device in zip(gaps, of_devices, strict=True) if id(device) in averaged]
    return replace(idle, longest=longest_gaps(trace, of_averaged, steps, states))


def _program(trace: HostTrace) -> Windows:
    """Return the capture as one window, without the starting and stopping of the profiler.

    That takes most of a second on a TPU, and the program does nothing meanwhile.
    """
    begin = max((trace.extent_ps[0], *profiler_times(trace, "start").end.tolist()))
    end = min((trace.extent_ps[1], *profiler_times(trace, "stop").start.tolist()))
    begin, end = (begin, end) if begin < end else trace.extent_ps
    return Windows(np.array([begin], np.int64), np.array([end], np.int64), np.ones(1, np.bool_))


def _windows(trace: HostTrace, steps: Steps, device: DeviceTime) -> Windows:
    """Return the steps as windows, of which the headline ones count. A TPU core has its own."""
    # Steps of the breakdown are on the clock of the chips, which their runs or the line of steps tell more exactly.
    if steps.on_cores or steps.source == "device steps":
        own = next((core for core in core_steps(trace, steps) if core.plane == device.plane), None)
        if own is not None:
            return Windows(own.start_ps, own.end_ps, steps.headline[: len(own.start_ps)])
    return Windows(steps.start_ps, steps.end_ps, steps.headline)


def _device_idle(trace: HostTrace, windows: Windows, gaps: DeviceGaps) -> DeviceIdle:
    """Add up the gaps of a device by window."""
    time_ps = np.zeros((len(CAUSES), len(windows.start_ps)), np.int64)
    for sums, values in zip(time_ps, gaps.time_ps, strict=True):
        np.add.at(sums, gaps.window, values)
    is_counted = windows.counted[gaps.window]
    gap_counts = (gaps.time_ps[:, is_counted] > 0).sum(axis=1).tolist()
    return DeviceIdle(
        host=trace.host,
        device=gaps.device.name,
        counted=windows.counted,
        window_ps=windows.end_ps - windows.start_ps,
        busy_ps=overlap(gaps.device.busy, windows.start_ps, windows.end_ps),
        compute_ps=overlap(gaps.device.compute, windows.start_ps, windows.end_ps),
        all_compute_ps=gaps.device.compute.total(),
        time_ps=dict(zip(CAUSES, time_ps, strict=True)),
        gap_counts=dict(zip(CAUSES, gap_counts, strict=True)),
        gap_count=int(is_counted.sum()),
        all_gap_count=len(gaps.window),
    )


def combine(parts: list[Idle]) -> Idle:
    """Put the devices of several hosts side by side, and rank their gaps together."""
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
    """Average the idle time of a host over the steps of `after`, which are some of those of `before`.

    The steps of attribution tensorflow are not the windows that idle time is cut by, so there nothing changes.
    """
    if before.attribution == "tensorflow":
        return idle
    counted = np.isin(before.steps.start_ps, after.steps.start_ps[after.steps.headline])
    devices = (replace(each, counted=counted) if len(each.window_ps) == len(counted) else each for each in idle.devices)
    return replace(idle, devices=tuple(devices))
