"""How long each host of a run waits in collectives for the others, and how far their clocks are apart.

A collective lasts on each host from when the host is ready until the exchange is done, and it is done on all hosts at
about the same time. So the host on which it is shortest came last; that long the exchange itself takes, and what it
lasts longer elsewhere is waiting. This compares durations only, so clocks need not agree. It holds to about 1 ms for
a collective, because ends differ by that much.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s, group_equal, median
from tfperf.trace.device.collectives import Collectives


class Waits(Struct, frozen=True, eq=False, kw_only=True):
    """The collectives of one host beside those of the others: one row for each, in the order of `Collectives`.

    `run` numbers the collectives of the whole run: two rows of it on different hosts are the same one. Where a
    collective is not in the traces of all its participants, `matched` is False and `wait_ps` is 0.
    """

    run: Int64s
    matched: Bools
    wait_ps: Int64s
    """How long the host waits until the last one takes part. The rest of the duration is the exchange."""


class ClockOffset(Struct, frozen=True):
    """How far the clock of a host is ahead of that of the reference host: ends of shared collectives tell.

    The times are nanoseconds. `spread_ns` is the median distance of single collectives from `ahead_ns`.
    """

    ahead_ns: int
    spread_ns: int
    collectives: int


def match_collectives(hosts: Sequence[Collectives]) -> tuple[Waits, ...]:
    """Return how long each host waits in each of its collectives.

    The participants of a collective are all hosts that have any of the same label. One that a capture of any of them
    does not hold is not matched.
    """
    sizes = [len(host) for host in hosts]
    labels = {
        label: place for place, label in enumerate(dict.fromkeys(label for host in hosts for label in host.labels))
    }
    of_label = [np.array([labels[label] for label in host.labels], np.int64)[host.label] for host in hosts]
    label = np.concatenate([np.zeros(0, np.int64), *of_label])
    instance, occurrence, duration_ps = (
        np.concatenate([np.zeros(0, np.int64), *(getattr(host, key) for host in hosts)])
        for key in ("instance", "occurrence", "duration_ps")
    )
    members = np.zeros(len(labels), np.int64)
    for each in of_label:
        members[np.unique(each)] += 1
    order, firsts = group_equal([label, instance, occurrence])
    group = np.zeros(len(order), np.int64)
    group[firsts[1:]] = 1
    group = np.cumsum(group)
    run, shortest_ps, matched = np.empty_like(order), np.empty_like(order), np.empty(len(order), np.bool_)
    if len(order):
        counts = np.diff(firsts, append=len(order))
        is_whole = (counts == members[label[order[firsts]]]) & (counts > 1)
        run[order] = group
        shortest_ps[order] = np.minimum.reduceat(duration_ps[order], firsts)[group]
        matched[order] = is_whole[group]
    wait_ps = np.where(matched, duration_ps - shortest_ps, 0)
    stops = np.cumsum([0, *sizes])
    spans = [slice(start, stop) for start, stop in zip(stops[:-1].tolist(), stops[1:].tolist(), strict=True)]
    return tuple(Waits(run=run[span], matched=matched[span], wait_ps=wait_ps[span]) for span in spans)


def clock_offsets(hosts: Sequence[Collectives], waits: Sequence[Waits]) -> tuple[ClockOffset | None, ...]:
    """Return how far the clock of each host is ahead of that of the first host that shares collectives with it.

    A collective ends on all hosts at about the same time. None for a host that shares none, or whose clock is unknown.
    """
    ends: dict[int, int] = {}
    offsets: list[ClockOffset | None] = []
    for host, wait in zip(hosts, waits, strict=True):
        if host.clock_start_ns is None:
            offsets.append(None)
            continue
        rows = np.flatnonzero(wait.matched)
        end_ns = (host.end_ps[rows] // 1000 + host.clock_start_ns).tolist()
        shared = [(end, ends[run]) for run, end in zip(wait.run[rows].tolist(), end_ns, strict=True) if run in ends]
        if not ends or shared:
            ahead_ns = np.array([end - reference for end, reference in shared], np.int64)
            middle = round(median(ahead_ns))
            offsets.append(ClockOffset(middle, round(median(np.abs(ahead_ns - middle))), len(shared)))
            new = zip(wait.run[rows].tolist(), end_ns, strict=True)
            ends.update({run: end - middle for run, end in new if run not in ends})
        else:
            offsets.append(None)
    return tuple(offsets)
