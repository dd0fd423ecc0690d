"""Where the device waits: every moment in which it does nothing, by what the host was doing then.

For each device and each step window: idle is the window less the time in which any stream computes or copies. A gap is
a stretch of it without interruption, cut at the edges of windows. Each gap is split exactly:

1. What ends a gap is the next work of the device, and `correlation_id` tells which call launched it. From the begin of
   that call on, the gap is that call's: a launch, a copy, or a copy back (waiting for a result). Gaps between kernels
   that were all launched before are launching too: the device takes that long from one to the next.
2. If the work began more than `LATE_PS` after its call ended, the device waited for something itself (another stream,
   another device); which, nothing tells: unknown.
3. Before that call, what the host does counts, one state at a time (`trace/host_state.py`).

The shares of several devices are averages over the devices, each of idle time / time of its own steps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tfperf.analyzers.idle_evidence import at_work
from tfperf.analyzers.idle_pieces import (
    CAUSE_OF_STATE,
    CAUSES,
    UNKNOWN,
    Cause,
    Pieces,
    Windows,
    pieces_of,
    work_rows,
)
from tfperf.arrays import Bools, Int64s
from tfperf.intervals import overlap
from tfperf.trace.device_time import DeviceTime, device_times
from tfperf.trace.host_state import HostStates, host_states
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.launch_links import launch_links
from tfperf.trace.steps import Steps
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    import pandas as pd

MOST_GAPS = 1000
"""Of the gaps of all hosts together, so many are listed, the longest first."""


class Gap(NamedTuple):
    """One stretch of idle time in one step; None and empty texts are unknown."""

    host: str
    device: str
    step: int | None
    flag: str
    """Why the step is left out of averages, empty if it is not."""
    start_ps: int
    length_ps: int
    cause: Cause
    """The one with the largest part of the gap."""
    cause_ps: int
    """How much of the gap that is."""
    thread: str
    event: str
    """The event of that thread that was at work for that cause the longest, the innermost of equals."""
    launched_before_ps: int | None
    """How long before the end of the gap the next work had been launched, from the begin of the call."""
    before: str
    """The device's work before the gap, and after it."""
    after: str


@dataclass(frozen=True)
class DeviceIdle:
    """The idle time of one device: one entry per window, in picoseconds; `counted` tells which are in averages."""

    host: str
    device: str
    counted: Bools
    window_ps: Int64s
    busy_ps: Int64s
    time_ps: dict[Cause, Int64s]
    """Adds up to `window_ps` less `busy_ps`."""
    gaps: dict[Cause, int]
    """How many gaps in counted windows have time of that cause."""
    gap_count: int
    """Gaps in counted windows."""

    @property
    def idle_ps(self) -> Int64s:
        """Return the idle time of each window."""
        return self.window_ps - self.busy_ps

    def total_ps(self, cause: Cause) -> int:
        """Return the time of a cause in counted windows."""
        return int(self.time_ps[cause][self.counted].sum())

    @property
    def counted_idle_ps(self) -> int:
        """Return the idle time in counted windows."""
        return int(self.idle_ps[self.counted].sum())

    @property
    def counted_window_ps(self) -> int:
        """Return the length of the counted windows."""
        return int(self.window_ps[self.counted].sum())

    @property
    def is_used(self) -> bool:
        """Tell whether the device did anything in the counted windows; one that did not is not waiting for its turn."""
        return bool(self.busy_ps[self.counted].any())

    def percent(self, cause: Cause | None = None) -> float:
        """Return the share of the counted windows that is idle, for one cause or for all."""
        part = self.counted_idle_ps if cause is None else self.total_ps(cause)
        return 100.0 * part / max(self.counted_window_ps, 1)


@dataclass(frozen=True)
class Idle:
    """The idle time of the devices of one host, or of several."""

    devices: tuple[DeviceIdle, ...]
    gaps: tuple[Gap, ...]
    """The longest, of all windows."""
    gap_count: int
    """All gaps, of all windows."""
    hosts: int
    hosts_without_device: tuple[str, ...]
    without_steps: str
    """Why there are no steps, so that the whole capture is one window; empty if there are."""
    no_main_thread: bool
    """True: a host with a device recorded no call of its program, so time in Python cannot be told from unknown."""

    @property
    def averaged(self) -> tuple[DeviceIdle, ...]:
        """Return the devices that count in averages: those that did anything in the steps, else all."""
        return tuple(own for own in self.devices if own.is_used) or self.devices

    @property
    def idle_percent(self) -> float | None:
        """Return the idle share of the step time, averaged over devices; None without a device."""
        return _average([own.percent() for own in self.averaged])

    def percent(self, cause: Cause) -> float:
        """Return the share of the step time that is idle for this cause, averaged over devices."""
        return _average([own.percent(cause) for own in self.averaged]) or 0.0

    @property
    def ranked(self) -> tuple[Cause, ...]:
        """Return the causes that took any time, the largest share of the step first."""
        found = [cause for cause in CAUSES if self.percent(cause)]
        return tuple(sorted(found, key=lambda cause: -self.percent(cause)))

    @property
    def table(self) -> pd.DataFrame:
        """Return one row per cause, the largest first, times in milliseconds."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def columns(self) -> dict[str, list[object]]:
        """Return the columns of `table` without pandas; `per_step_ms` is of an average step of a device."""
        whole = self.idle_percent or 0.0
        windows = sum(int(own.counted.sum()) for own in self.averaged)
        total = {cause: sum(own.total_ps(cause) for own in self.averaged) for cause in CAUSES}
        return {
            "cause": list(self.ranked),
            "total_ms": [total[cause] / PS_PER_MS for cause in self.ranked],
            "per_step_ms": [total[cause] / PS_PER_MS / max(windows, 1) for cause in self.ranked],
            "step_percent": [self.percent(cause) for cause in self.ranked],
            "idle_percent": [100.0 * self.percent(cause) / whole for cause in self.ranked],  # ranked: whole is not 0
            "gaps": [sum(own.gaps[cause] for own in self.averaged) for cause in self.ranked],
        }

    def device_columns(self) -> dict[str, list[object]]:
        """Return one row per device."""
        return {
            "host": [own.host for own in self.devices],
            "device": [own.device for own in self.devices],
            "steps": [int(own.counted.sum()) for own in self.devices],
            "step_ms": [own.counted_window_ps / PS_PER_MS / max(int(own.counted.sum()), 1) for own in self.devices],
            "idle_ms": [own.counted_idle_ps / PS_PER_MS / max(int(own.counted.sum()), 1) for own in self.devices],
            "idle_percent": [own.percent() for own in self.devices],
            "gaps": [own.gap_count for own in self.devices],
            **{f"{cause}_percent": [own.percent(cause) for own in self.devices] for cause in CAUSES},
        }

    def gap_columns(self) -> dict[str, list[object]]:
        """Return one row per listed gap, the longest first."""
        return {
            "host": [gap.host for gap in self.gaps],
            "device": [gap.device for gap in self.gaps],
            "step": [gap.step for gap in self.gaps],
            "flag": [gap.flag for gap in self.gaps],
            "start_ms": [gap.start_ps / PS_PER_MS for gap in self.gaps],
            "length_ms": [gap.length_ps / PS_PER_MS for gap in self.gaps],
            "cause": [gap.cause for gap in self.gaps],
            "cause_percent": [100.0 * gap.cause_ps / gap.length_ps for gap in self.gaps],
            "thread": [gap.thread for gap in self.gaps],
            "event": [gap.event for gap in self.gaps],
            "launched_before_ms": [
                None if gap.launched_before_ps is None else gap.launched_before_ps / PS_PER_MS for gap in self.gaps
            ],
            "before": [gap.before for gap in self.gaps],
            "after": [gap.after for gap in self.gaps],
        }


def _average(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def analyze(trace: HostTrace, steps: Steps, times: Sequence[DeviceTime] | None = None) -> Idle:
    """Attribute the idle time of each device of a host; without steps, of the whole capture as one window.

    `times` is what `device_times` returns for this trace, where that was done before.
    """
    reason = "" if len(steps) else steps.explanation
    devices = tuple(own for own in (device_times(trace) if times is None else times) if len(own.busy.start))
    if not devices:
        return Idle((), (), 0, 1, (trace.host,), reason, no_main_thread=False)
    windows = _windows(steps, devices[0])
    rows = {own.plane: work_rows(trace, own.plane) for own in devices}
    links = launch_links(trace, np.sort(np.concatenate(list(rows.values()))))
    states = host_states(trace, links)
    pieces = [pieces_of(trace, own, windows, rows[own.plane], links, states) for own in devices]
    found = [_device(trace, own, windows, cut) for own, cut in zip(devices, pieces, strict=True)]
    gaps = _longest(trace, devices, steps, pieces, states)
    count = sum(len(cut.start) for cut in pieces)
    return Idle(tuple(found), gaps, count, 1, (), reason, no_main_thread=states.main is None)


def combine(found: list[Idle]) -> Idle:
    """Put the devices of several hosts side by side, and rank their gaps together."""
    if len(found) == 1:
        return found[0]
    gaps = sorted((gap for host in found for gap in host.gaps), key=lambda gap: -gap.length_ps)
    reasons = [host.without_steps for host in found if host.devices]
    return Idle(
        tuple(own for host in found for own in host.devices), tuple(gaps[:MOST_GAPS]),
        sum(host.gap_count for host in found), sum(host.hosts for host in found),
        tuple(name for host in found for name in host.hosts_without_device), next(filter(None, reasons), ""),
        any(host.no_main_thread for host in found),
    )  # fmt: skip


def _windows(steps: Steps, device: DeviceTime) -> Windows:
    if not len(steps):
        whole = np.array([device.start_ps], np.int64), np.array([device.end_ps], np.int64)
        return Windows(*whole, np.ones(1, np.bool_))
    headline = steps.headline_kind
    main = np.array([kind == headline for kind in steps.kinds], np.bool_)
    return Windows(steps.start_ps, steps.end_ps, np.asarray(steps.averaged & main, np.bool_))


def _device(trace: HostTrace, device: DeviceTime, windows: Windows, cut: Pieces) -> DeviceIdle:
    """Add up the pieces of a device by window."""
    time = np.zeros((len(CAUSES), len(windows.start)), np.int64)
    for row, own in zip(time, cut.time, strict=True):
        np.add.at(row, cut.window, own)
    counted = windows.counted[cut.window]
    holds = (cut.time[:, counted] > 0).sum(axis=1).tolist()
    return DeviceIdle(
        trace.host, device.name, windows.counted, windows.end - windows.start,
        overlap(device.busy, windows.start, windows.end), dict(zip(CAUSES, time, strict=True)),
        dict(zip(CAUSES, holds, strict=True)), int(counted.sum()),
    )  # fmt: skip


def _longest(
    trace: HostTrace, devices: tuple[DeviceTime, ...], steps: Steps, pieces: list[Pieces], states: HostStates
) -> tuple[Gap, ...]:
    """Return the longest gaps of all devices, with what the host did in them."""
    length = np.concatenate([cut.end - cut.start for cut in pieces])
    owner = np.repeat(np.arange(len(pieces)), [len(cut.start) for cut in pieces])
    index = np.concatenate([np.arange(len(cut.start)) for cut in pieces])
    chosen = np.argsort(-length, kind="stable")[:MOST_GAPS]
    gaps: list[Gap] = []
    for number, (device, cut) in enumerate(zip(devices, pieces, strict=True)):
        which = np.sort(index[chosen[owner[chosen] == number]])
        gaps += _described(trace, device, steps, _taken(cut, which), states)
    return tuple(sorted(gaps, key=lambda gap: -gap.length_ps))


def _taken(cut: Pieces, which: Int64s) -> Pieces:
    return Pieces(*(column[..., which] for column in cut))


def _described(
    trace: HostTrace, device: DeviceTime, steps: Steps, cut: Pieces, states: HostStates
) -> list[Gap]:  # at most MOST_GAPS, so rows may be plain Python
    cause = cut.time.argmax(axis=0)
    cause_ps = cut.time.max(axis=0)
    # The call that ends a gap is the evidence where most of the cause's time comes from it.
    by_call = (cut.launch >= 0) & (2 * (cut.end - cut.called) >= cause_ps) & (
        (CAUSE_OF_STATE[states.code[np.maximum(cut.launch, 0)]] == cause) | (cause == UNKNOWN)
    )  # fmt: skip
    wanted = np.where(by_call, -1, cause)
    row = np.where(by_call, cut.launch, at_work(trace, states, CAUSE_OF_STATE, cut.start, cut.called, wanted))
    before_end = np.where(cut.launch >= 0, cut.gap_end - trace.start_ps[np.maximum(cut.launch, 0)], -1)
    names = [_short(trace, rows) for rows in (cut.before, cut.after)]
    main = trace.lines[states.main].name if states.main is not None else ""
    is_main = (cause == CAUSES.index("python")).tolist()
    columns = zip(
        cut.window.tolist(), cut.start.tolist(), (cut.end - cut.start).tolist(), cause.tolist(), cause_ps.tolist(),
        row.tolist(), is_main, before_end.tolist(), *names, strict=True,
    )  # fmt: skip
    return [
        Gap(
            trace.host, device.name, int(steps.numbers[window]) if len(steps) else None,
            steps.flags[window] if len(steps) else "", begin, length, CAUSES[why], own,
            trace.lines[int(trace.line_of[at])].name if at >= 0 else main if python else "",
            _event(trace, at), lead if lead >= 0 else None, left, right,
        )
        for window, begin, length, why, own, at, python, lead, left, right in columns
    ]  # fmt: skip


def _event(trace: HostTrace, row: int) -> str:
    """Return the name of a host event; one that is named like the kernel it launches is cut like that."""
    name = trace.names[trace.name[row]] if row >= 0 else ""
    return _TAIL.sub("", name)[:_MOST_LETTERS] if name.startswith("void ") else name[:_MOST_LETTERS]


def _short(trace: HostTrace, rows: Int64s) -> list[str]:
    """Return the names of device rows without arguments of templates and functions."""
    return [_TAIL.sub("", trace.names[trace.name[row]])[:_MOST_LETTERS] if row >= 0 else "" for row in rows.tolist()]


_TAIL = re.compile(r"^void |[<(].*$", re.DOTALL)
_MOST_LETTERS = 200
