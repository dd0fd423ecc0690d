"""The longest gaps of devices, each with what the host did in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import NO_NUMBERS, Int64s, ranges, union
from tfperf.sections.idle.device_gaps import CAUSE_OF_STATE, UNKNOWN, DeviceGaps
from tfperf.sections.idle.tables import CAUSES, Cause
from tfperf.trace.device.kernel_details import short_name
from tfperf.trace.host.host_state import HostStates
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.steps import Steps

MOST_GAPS = 1000
"""Of the gaps of all hosts together, so many are listed, the longest first."""

_MOST_LETTERS = 200
_MOSTLY = 0.5


class Gap(Struct, frozen=True, kw_only=True):
    """One stretch of idle time in one step; None is unknown."""

    host: str
    device: str
    step: int | None
    flag: str
    """Why the step is omitted from averages, empty if it is not."""
    start_ps: int
    duration_ps: int
    cause: Cause
    """The one with the largest part of the gap."""
    cause_ps: int
    """How much of the gap that is."""
    thread: str | None
    event: str | None
    """The event of that thread that was at work for that cause the longest, the innermost of equals."""
    launched_before_ps: int | None
    """How long before the end of the gap the next work had been launched, from the start of the call."""
    before: str | None
    """The device's work before the gap, and after it."""
    after: str | None

    @property
    def thread_name(self) -> str | None:
        """Return the name of the thread without the number that makes it unique."""
        return (self.thread or "").partition("/")[0] or None


def longest_first(gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    """Return the longest of some gaps, at most `MOST_GAPS`."""
    return tuple(sorted(gaps, key=lambda gap: -gap.duration_ps)[:MOST_GAPS])


def longest_gaps(
    trace: HostTrace, gaps_of_devices: Sequence[DeviceGaps], steps: Steps, states: HostStates
) -> tuple[Gap, ...]:
    """Return the longest gaps of all devices of a host, the longest first."""
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
    """Describe the gaps of a device, of which there are at most `MOST_GAPS`, so rows may be plain Python."""
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
    """Return the host row that shows the cause of each gap, -1: none.

    The call that ends a gap is the evidence where most of the cause's time comes from it.
    """
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
    """Return, for each gap, the host row that was at work for its cause the longest; -1: none.

    Gaps [start_ps, end_ps) are disjoint and ascend; `cause` is an index into `CAUSES`, -1 asks for nothing. Of the
    events of that thread, the innermost is taken that covers at least half as much (`_MOSTLY`), since it tells more.
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
    # Where an index comes several times, the value written last stays: the largest share, of equal ones that of the
    # shortest event, since it tells more; the innermost event.
    most[gap[order]], line[gap[order]] = shared[order], trace.line_of[rows[order]]
    is_close = (trace.line_of[rows] == line[gap]) & (shared >= _MOSTLY * most[gap])
    gap, rows = gap[is_close], rows[is_close]
    order = np.argsort(rows, kind="stable")
    at_work[gap[order]] = rows[order]
    return at_work


def _event_name(trace: HostTrace, row: int, *, on_device: bool) -> str | None:
    """Return the name of an event, of a kernel the short one (files before 2021 name its launch like it)."""
    name = trace.names[trace.name[row]] if row >= 0 else ""
    is_kernel = on_device or name.startswith("void ")
    return (short_name(name) if is_kernel else name)[:_MOST_LETTERS] or None
