"""What the consumer of a tf.data pipeline waits for: its waiting is passed on to what is under way in other threads."""

from __future__ import annotations

from typing import Protocol

from tfperf.analyzers.pipeline import Section
from tfperf.intervals import EMPTY, Intervals, difference, intersection, union_all
from tfperf.trace.pipelines import Pipelines


class Measured(Protocol):
    """What is needed of each stage: whether it has threads of its own, when it was called, when its function ran."""

    @property
    def is_async(self) -> list[bool]:
        """Return for each stage whether it gets its elements from threads of its own."""

    @property
    def calls(self) -> list[Intervals]:
        """Return for each stage when it was called, as a flat set."""

    @property
    def functions(self) -> list[Intervals]:
        """Return for each stage when its function ran in a pool, as a flat set."""


def blocked_times(
    found: Pipelines, measured: Measured, members: list[int], sections: list[Section], waits: Intervals
) -> tuple[dict[int, int], int]:
    """Return how long the consumer waited for each stage itself, and for how long no stage can be named.

    `waits` is when it waited.
    """
    limits = {(own.kind, own.owner): own.limit_ps for own in sections}
    blocked = dict.fromkeys(members, 0)
    waiting, untold = {members[0]: intersection(waits, measured.calls[members[0]])}, 0
    for stage in members:
        left = waiting.get(stage, EMPTY)
        if not len(left.start):
            continue
        inputs = found.children(stage)
        claims = [(limits.get(("producer", stage), 0.0), child, measured.calls[child]) for child in inputs]
        if measured.is_async[stage]:
            claims.append((limits.get(("function", stage), 0.0), -1, measured.functions[stage]))
        # Where two are under way at once, the one that limits more is what the consumer waits for.
        for _, child, active in sorted(claims, key=lambda claim: -claim[0]):
            taken = intersection(left, active)
            left = difference(left, active)
            if child >= 0:
                waiting[child] = taken
            else:
                blocked[stage] += taken.total()
        if measured.is_async[stage]:
            known = union_all([measured.calls[child] for child in inputs] + [measured.functions[stage]])
            inside = _within(left, known)
            untold += left.total() - inside.total()
            left = inside
        blocked[stage] += left.total()
    return blocked, untold


def _within(times: Intervals, known: Intervals) -> Intervals:
    """Return the part from the first to the last of what is known: before and after, calls may be cut off."""
    if not len(known.start):
        return EMPTY
    span = Intervals(known.start[:1], known.end[-1:])
    return intersection(times, span)
