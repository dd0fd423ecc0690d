"""Which steps of several hosts belong together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfperf.base.arrays import Int64s, distinct, lookup

if TYPE_CHECKING:
    from tfperf.trace.steps.breakdown import Breakdown


def matched_rows(hosts: Sequence[Breakdown]) -> tuple[list[Int64s], str]:
    """Return, for each host, the rows of its steps that all hosts have, and how they were matched.

    By number where every host counted its steps itself and they share any; else by time, where all clocks are known and
    any steps of all hosts hold the same moment; else in order.
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
    """Return the rows of steps that run while the middle of a step of the first host passes; None without clocks."""
    starts_ns = [host.clock_start_ns for host in hosts if host.clock_start_ns is not None]
    if len(starts_ns) < len(hosts):
        return None
    first = hosts[0].steps
    middle_ps = first.start_ps + first.duration_ps // 2
    rows = []
    for host, start_ns in zip(hosts, starts_ns, strict=True):
        at_ps = middle_ps + (starts_ns[0] - start_ns) * 1000
        row = np.searchsorted(host.steps.start_ps, at_ps, side="right") - 1
        row[(row >= 0) & (at_ps >= host.steps.end_ps[np.maximum(row, 0)])] = -1
        # A long step that holds several of them belongs to the first.
        row[1:][row[1:] == row[:-1]] = -1
        rows.append(row)
    are_whole = np.all([row >= 0 for row in rows], axis=0)
    return [row[are_whole] for row in rows]
