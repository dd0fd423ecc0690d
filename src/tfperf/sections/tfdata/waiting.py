"""What the consumer of a tf.data pipeline waits for: its waiting is passed on to what is under way in other threads."""

from __future__ import annotations

from tfperf.intervals import EMPTY, Intervals, difference, intersection, union_all
from tfperf.sections.tfdata.pipeline import Segment
from tfperf.sections.tfdata.stage_times import StageTimes
from tfperf.trace.pipelines import Pipelines


def waiting_times(recorded: Pipelines, times: StageTimes, number: int) -> Intervals:
    """Return when somebody waits for a pipeline: calls of it, or of the device pipelines that it is handed on to."""
    if not recorded.handed_on[number]:
        return times.calls[recorded.roots[number]]
    devices = [root for root, is_device in zip(recorded.roots, recorded.device, strict=True) if is_device]
    return union_all([times.calls[root] for root in devices])


def blocked_times(
    recorded: Pipelines, times: StageTimes, *, members: list[int], segments: list[Segment], waits: Intervals
) -> tuple[dict[int, int], int]:
    """Return how long the consumer waited for each stage itself, and for how long no stage can be named.

    Both are picoseconds. `members` are the stages of the pipeline, `waits` is when the consumer waited.
    """
    limits = {(segment.kind, segment.owner): segment.limit_ps for segment in segments}
    blocked_ps, unattributed_ps = dict.fromkeys(members, 0), 0
    waiting = {members[0]: intersection(waits, times.calls[members[0]])}
    for stage in members:
        rest = waiting.get(stage, EMPTY)
        if not len(rest.start):
            continue
        inputs = recorded.children(stage)
        claims = [(limits.get(("producer", stage), 0.0), child, times.calls[child]) for child in inputs]
        if times.is_async[stage]:
            claims.append((limits.get(("function", stage), 0.0), -1, times.functions[stage]))
        # Where two are under way at once, the one that limits more is what the consumer waits for.
        for _, child, active in sorted(claims, key=lambda claim: -claim[0]):
            claimed, rest = intersection(rest, active), difference(rest, active)
            if child >= 0:
                waiting[child] = claimed
            else:
                blocked_ps[stage] += claimed.total()
        if times.is_async[stage]:
            attributable = _within(rest, union_all([active for _, _, active in claims]))
            unattributed_ps += rest.total() - attributable.total()
            rest = attributable
        blocked_ps[stage] += rest.total()
    return blocked_ps, unattributed_ps


def _within(times: Intervals, recorded: Intervals) -> Intervals:
    """Return the part from the first to the last of what is recorded: before and after, calls may be cut off."""
    if not len(recorded.start):
        return EMPTY
    return intersection(times, Intervals(recorded.start[:1], recorded.end[-1:]))
