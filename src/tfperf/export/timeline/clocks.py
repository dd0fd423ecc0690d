"""How far the events of each host must be moved so that all hosts stand on one axis of time."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.units import format_ms, listed
from tfperf.trace.device.collectives import ClockOffset, Collectives, clock_offsets, find_collectives, match_collectives
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.known_stats import COLLECTIVES
from tfperf.trace.logdir import HostFile
from tfperf.trace.read import read_host
from tfperf.trace.steps.find_steps import find_steps

_NS_PER_MS = 1e6
_WRONG_NS = 5_000_000
"""Clocks that differ by less are as good as equal: so far apart are the ends of a collective."""
_NO_SHIFT = 0


class ClockShifts(Struct, frozen=True):
    """For each host, picoseconds to add to its times; `sentence` says what was done, empty for one host."""

    shifts_ps: tuple[int, ...]
    sentence: str = ""


def clock_shifts(files: Sequence[HostFile]) -> ClockShifts:
    """Return what brings hosts to one axis: their clocks, corrected by the ends of collectives that they share.

    Hosts of which a clock is unknown are not moved. One host is not read.
    """
    if len(files) < 2:
        return ClockShifts((_NO_SHIFT,) * len(files))
    starts_ns: list[int | None] = []
    collectives: dict[int, Collectives] = {}
    for place, file in enumerate(files):
        trace = read_host(file.path, file.host, stats=COLLECTIVES)
        starts_ns.append(trace.clock_start_ns)
        found = find_collectives(trace, find_steps(trace))
        if found is not None:
            collectives[place] = found
    known = [start for start in starts_ns if start is not None]
    if len(known) < len(files):
        return ClockShifts((_NO_SHIFT,) * len(files), "clocks of hosts are unknown, so each host starts at 0")
    hosts = list(collectives.values())
    ahead = dict(zip(collectives, clock_offsets(hosts, match_collectives(hosts)), strict=True))
    ahead_ns = [_wrong_by(ahead.get(place)) for place in range(len(files))]
    at_ns = [start - wrong for start, wrong in zip(known, ahead_ns, strict=True)]
    wrong = [f"{file.host} by {format_ms(-ns / _NS_PER_MS)} ms" for file, ns in zip(files, ahead_ns, strict=True) if ns]
    sentence = "hosts are shown by their own clocks"
    if wrong:
        sentence += f", corrected by the collectives that they share: {listed(wrong)}"
    return ClockShifts(tuple((at - min(at_ns)) * 1000 for at in at_ns), sentence)


def _wrong_by(offset: ClockOffset | None) -> int:
    return offset.ahead_ns if offset is not None and abs(offset.ahead_ns) >= _WRONG_NS else 0


def shifted(trace: HostTrace, shift_ps: int) -> HostTrace:
    """Return a trace whose times are all later by so much."""
    if not shift_ps:
        return trace
    memory = trace.allocations
    return replace(
        trace,
        start_ps=trace.start_ps + shift_ps,
        device_clocks={plane: clock.later(shift_ps) for plane, clock in trace.device_clocks.items()},
        extent_ps=(trace.extent_ps[0] + shift_ps, trace.extent_ps[1] + shift_ps),
        allocations=None if memory is None else replace(memory, start_ps=memory.start_ps + shift_ps),
    )
