"""Whether the traces of several hosts can be of one capture: none is a copy of another, all overlap in time, and all
run the same program.

A file says when it was captured (newer profilers), so a copy says the same to the nanosecond. Without that, two hosts
with many events that start and last equally are copies: by chance, no two processes do. Clocks of hosts differ; a
capture that begins after all others have ended is taken for another one all the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b

from msgspec import Struct

from tfperf.base.units import counted
from tfperf.trace.event_names import called_function, canonical, concrete_function, is_jitted_call
from tfperf.trace.flaw import Flaw
from tfperf.trace.host_trace import HostTrace

_ENOUGH_EVENTS = 200
"""Of so many events, two processes never share all starts and durations."""
_MOST_EVENTS = 1 << 16
"""Only so many are compared."""
_NS_PER_S = 1_000_000_000

FOREIGN = frozenset({"copied_host", "other_capture", "other_profiler", "other_program"})
"""Codes of what `foreign_hosts` finds."""

Span = tuple[int, int]


class CaptureIdentity(Struct, frozen=True, kw_only=True):
    """What tells the capture of one host from others.

    `start_ns` and `span_ns` (start and end) are nanoseconds since 1970, None where the file does not say them. `digest`
    is equal for files of one size with equal events, and empty where there are none, or too few to tell. `functions`
    are those that Python calls, without the numbers that each process gives them; empty for a host without steps.
    """

    start_ns: int | None
    span_ns: Span | None
    digest: bytes
    functions: frozenset[str]


def capture_identity(trace: HostTrace, *, has_steps: bool) -> CaptureIdentity:
    """Return what tells the capture of a host from others."""
    count, start_ns = len(trace.name), trace.clock_start_ns
    span_ns = None
    if start_ns is not None:
        first_ps, last_ps = trace.extent_ps
        stop_ns = trace.session_stats.get("profile_stop_time")
        span_ns = start_ns + first_ps // 1000, start_ns + last_ps // 1000
        if isinstance(stop_ns, int) and stop_ns > start_ns and not trace.clock_zero_ns:
            span_ns = start_ns, stop_ns
    digest = b""
    if count and (start_ns is not None or count >= _ENOUGH_EVENTS):
        rows = slice(0, _MOST_EVENTS)
        events = trace.start_ps[rows].tobytes() + trace.duration_ps[rows].tobytes()
        digest = blake2b(events, digest_size=16).digest() + f"{count} {trace.size_bytes}".encode()
    names = trace.names if has_steps else ()
    called = {canonical(called_function(name)) for name in names if is_jitted_call(name)}
    called |= {re.sub(r"_\d+$", "", name) for name in map(concrete_function, names) if name}
    return CaptureIdentity(start_ns=start_ns, span_ns=span_ns, digest=digest, functions=frozenset(called))


def foreign_hosts(names: Sequence[str], captures: Sequence[CaptureIdentity]) -> dict[int, Flaw]:
    """Return which hosts cannot be of the same capture as the others, and why; of each kind of capture, most stay."""
    found = {place: _flaw("copied_host", text) for place, text in _copies(names, captures).items()}
    for code, of_others in (("other_capture", _apart), ("other_profiler", _undated), ("other_program", _strangers)):
        rest = [place for place in range(len(names)) if place not in found]
        texts = of_others([captures[place] for place in rest])
        found |= {rest[place]: _flaw(code, text) for place, text in texts.items()}
    return found


def _flaw(code: str, text: str) -> Flaw:
    return Flaw(code, f"{text}: its figures are not of this run")


def _copies(names: Sequence[str], captures: Sequence[CaptureIdentity]) -> dict[int, str]:
    first: dict[tuple[int | None, bytes], int] = {}
    copies: dict[int, str] = {}
    for place, capture in enumerate(captures):
        if capture.digest:
            original = first.setdefault((capture.start_ns, capture.digest), place)
            if original != place:
                copies[place] = f"the file is a copy of that of host {names[original]}"
    return copies


def _apart(captures: Sequence[CaptureIdentity]) -> dict[int, str]:
    """Return the captures that do not overlap with most of the others."""
    spans = {place: capture.span_ns for place, capture in enumerate(captures) if capture.span_ns is not None}
    groups: list[list[int]] = []
    end_ns = 0
    for place, (start_ns, stop_ns) in sorted(spans.items(), key=lambda item: item[1]):
        if not groups or start_ns > end_ns:
            groups.append([])
        groups[-1].append(place)
        end_ns = max(end_ns, stop_ns)
    most = max(groups, key=len, default=[])
    first_ns, last_ns = (pick([spans[place][end] for place in most], default=0) for end, pick in ((0, min), (1, max)))
    texts = {}
    for place in (place for group in groups if group is not most for place in group):
        start_ns, stop_ns = spans[place]
        away, when = (start_ns - last_ns, "after") if start_ns > last_ns else (first_ns - stop_ns, "before")
        texts[place] = f"the capture is {away / _NS_PER_S:.1f} s {when} those of other hosts, or a clock is wrong"
    return texts


def _undated(captures: Sequence[CaptureIdentity]) -> dict[int, str]:
    """Return captures that do not say when they were made, where others do, or the other way round."""
    dated = [place for place, capture in enumerate(captures) if capture.digest and capture.start_ns is not None]
    undated = [place for place, capture in enumerate(captures) if capture.digest and capture.start_ns is None]
    if not dated or not undated:
        return {}
    odd, is_dated = (undated, "does not say") if len(undated) <= len(dated) else (dated, "says")
    others = counted(max(len(dated), len(undated)), "other")
    return dict.fromkeys(odd, f"the file {is_dated} when it was captured, unlike {others}, so its profiler is another")


def _strangers(captures: Sequence[CaptureIdentity]) -> dict[int, str]:
    """Return the captures that call no function that most of the others call, directly or through others."""
    groups: list[tuple[frozenset[str], list[int]]] = []
    for place, capture in enumerate(captures):
        if not capture.functions:
            continue
        joined = [group for group in groups if group[0] & capture.functions]
        groups = [group for group in groups if not group[0] & capture.functions]
        functions = capture.functions.union(*(each for each, _ in joined))
        groups.append((functions, sorted([place, *(member for _, members in joined for member in members)])))
    most = max(groups, key=lambda group: (len(group[1]), -group[1][0]), default=(frozenset[str](), [0]))
    return {
        place: f"the host runs another program ({min(captures[place].functions)}, which other hosts do not call)"
        for _, places in groups
        if places is not most[1]
        for place in places
    }
