"""Links between drawn events: from a launch to its work, from a send to what receives, from a fetch to its stages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tfperf.analysis.results import Host
from tfperf.base.arrays import NO_NUMBERS, Int64s, lookup
from tfperf.report.step_picture import Links
from tfperf.sections.timeline.lanes import LaneEvents
from tfperf.trace.event_names import is_fetch, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import last_around

KINDS = ("launches", "sends to", "gets the element of")
_MOST_LINKS = 4_000
"""Links of a picture: those to the longest events are kept."""

_Pairs = tuple[Int64s, Int64s]
"""Rows of the trace: where each link starts and ends."""


def links_of(host: Host, drawn: LaneEvents) -> Links:
    """Return the links of which both ends are drawn."""
    of_trace = np.argsort(drawn.trace_row, kind="stable")
    rows = drawn.trace_row[of_trace]
    sources, targets, kinds = [NO_NUMBERS], [NO_NUMBERS], [NO_NUMBERS]
    for number, (from_rows, to_rows) in enumerate(_pairs(host, rows[rows >= 0])):
        places = lookup(rows, from_rows), lookup(rows, to_rows)
        are_drawn = (places[0] >= 0) & (places[1] >= 0)
        sources.append(of_trace[places[0][are_drawn]])
        targets.append(of_trace[places[1][are_drawn]])
        kinds.append(np.full(int(are_drawn.sum()), number, np.int64))
    source, target, kind = (np.concatenate(parts) for parts in (sources, targets, kinds))
    events = drawn.events
    longest = np.argsort(-(events.end_ns - events.start_ns)[target], kind="stable")[:_MOST_LINKS]
    kept = np.sort(longest)
    return Links(
        kinds=KINDS,
        kind=kind[kept],
        from_row=events.row[source[kept]],
        from_ns=events.start_ns[source[kept]],
        to_row=events.row[target[kept]],
        to_ns=events.start_ns[target[kept]],
        omitted=len(target) - len(kept),
    )


def _pairs(host: Host, drawn: Int64s) -> Iterator[_Pairs]:
    """Yield the pairs of each of `KINDS`; `drawn` are rows of the trace, ascending."""
    links = host.launch_links
    near = np.flatnonzero(lookup(drawn, links.device) >= 0)
    yield links.host[near], links.device[near]
    yield _sends(host.trace, drawn)
    yield _fetched(host, drawn)


def _sends(trace: HostTrace, drawn: Int64s) -> _Pairs:
    """Pair sends with receives of the same tensor (`x/_5:_Send`, `x/_5:_Recv`) that end after the send starts."""
    sends, receives = (_ending(trace, suffix, drawn) for suffix in (":_Send", ":_Recv"))
    tensors: dict[str, int] = {}
    sent, received = (
        np.array([tensors.setdefault(_tensor(trace.names[name]), len(tensors)) for name in trace.name[rows]], np.int64)
        for rows in (sends, receives)
    )
    order = np.lexsort((trace.start_ps[sends], sent))
    sends, sent = sends[order], sent[order]
    span = int(trace.end_ps.max(initial=0)) + 1
    if len(tensors) * span >= 1 << 62:
        return NO_NUMBERS, NO_NUMBERS
    # The last send of a tensor that starts before the receive ends is the one that it waits for.
    at = np.searchsorted(sent * span + trace.start_ps[sends], received * span + trace.end_ps[receives]) - 1
    is_same = (at >= 0) & (np.append(sent, -1)[at] == received)
    return sends[at[is_same]], receives[is_same]


def _ending(trace: HostTrace, suffix: str, drawn: Int64s) -> Int64s:
    """Return the drawn events of host threads whose names end so."""
    rows = trace.host_events(mask(trace.names, lambda name: name.endswith(suffix)))
    return rows[lookup(drawn, rows) >= 0]


def _tensor(name: str) -> str:
    """Return what a send and its receive have in common: ops at both ends are numbered one after the other."""
    return name.rpartition(":")[0].rpartition("/_")[0]


def _fetched(host: Host, drawn: Int64s) -> _Pairs:
    """Link each fetch with the stage that makes its element on another thread, where the trace surely tells it.

    A stage that hands elements over in order, and says how many were waiting when it was asked, gives the oldest of
    those: of the hand-overs that ended before, that many from the last.
    """
    pipelines, trace = host.pipelines, host.trace
    fetches = trace.host_events(mask(trace.names, is_fetch))
    if pipelines is None or not len(fetches) or not len(pipelines.produced.row):
        return NO_NUMBERS, NO_NUMBERS
    calls, produced = pipelines.calls, pipelines.produced
    around = last_around(trace, fetches, calls.row)
    waiting = trace.number_at("buffered_elements", calls.row, -1)
    sources, targets = [NO_NUMBERS], [NO_NUMBERS]
    for stage in np.flatnonzero(np.bincount(produced.stage[produced.stage >= 0], minlength=1)).tolist():
        if not pipelines.stages[stage].name.startswith("Prefetch"):
            continue
        asked = np.flatnonzero((calls.stage == stage) & (around >= 0) & (waiting >= 0))
        made = np.flatnonzero(produced.stage == stage)
        made = made[np.argsort(produced.end[made], kind="stable")]
        before = np.searchsorted(produced.end[made], calls.start[asked], side="right")
        place = before - waiting[asked]
        is_known = (place >= 0) & (place < len(made))
        sources.append(fetches[around[asked[is_known]]])
        targets.append(produced.row[made[place[is_known]]])
    source, target = np.concatenate(sources), np.concatenate(targets)
    near = (lookup(drawn, source) >= 0) & (lookup(drawn, target) >= 0)
    return source[near], target[near]
