"""The longest gaps of devices, each with what the host did in it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.arrays import Int64s
from tfperf.sections.idle.device_gaps import CAUSE_OF_STATE, UNKNOWN, DeviceGaps
from tfperf.sections.idle.host_at_work import rows_at_work
from tfperf.sections.idle.tables import CAUSES, Cause
from tfperf.trace.host_state import HostStates
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps import Steps

MOST_GAPS = 1000
"""Of the gaps of all hosts together, so many are listed, the longest first."""

_TAIL = re.compile(r"^void |[<(].*$", re.DOTALL)
_MOST_LETTERS = 200


class Gap(Struct, frozen=True, kw_only=True):
    """One stretch of idle time in one step; None is unknown."""

    host: str
    device: str
    step: int | None
    flag: str
    """Why the step is left out of averages, empty if it is not."""
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
                event=_host_event(trace, row),
                launched_before_ps=lead_ps if lead_ps >= 0 else None,
                before=_device_event(trace, int(gaps.before[at])),
                after=_device_event(trace, int(gaps.after[at])),
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
    at_work = rows_at_work(trace, states, gaps.start_ps, gaps.called_ps, np.where(by_call, -1, cause))
    return np.where(by_call, gaps.launch, at_work)


def _host_event(trace: HostTrace, row: int) -> str | None:
    """Return the name of a host event; one that is named like the kernel it launches is cut like that."""
    name = trace.names[trace.name[row]] if row >= 0 else ""
    return (_TAIL.sub("", name) if name.startswith("void ") else name)[:_MOST_LETTERS] or None


def _device_event(trace: HostTrace, row: int) -> str | None:
    """Return the name of a device event without arguments of templates and functions."""
    name = trace.names[trace.name[row]] if row >= 0 else ""
    return _TAIL.sub("", name)[:_MOST_LETTERS] or None
