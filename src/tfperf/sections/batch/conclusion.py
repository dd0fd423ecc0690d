"""From what a trace shows to a batch size, or to the reason why it is unknown.

1. What the input of a step shows clearly (shapes of elements, the stage that makes batches, tensors that a device got)
   is the batch size, if all of it agrees.
2. Else it is what Keras was told: what a capture of tfperf states, or the marker of a step.
3. Else it is the leading dimension that nearly all layers share, if it is also that of the one part of an element, or
   if layers of different rank have no other: some models fold other dimensions into the first.

In each case, what contradicts it makes it unknown: several layers without that dimension, or Keras.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from tfperf.sections.batch.evidence import Evidence, OpOutputs
from tfperf.trace.steps.steps import Confidence

_ENOUGH_LAYERS = 3
"""So many layers without the leading dimension that the input shows contradict it."""


class Replicas(Struct, frozen=True):
    """How many replicas of the model train on a host, and in all; None: unknown, and `text` says why."""

    count: int | None
    all_workers: int | None
    text: str = ""


class Conclusion(Struct, frozen=True, kw_only=True):
    """The examples of a batch on a host, and of one replica; None: unknown, and `reason` says why."""

    size: int | None = None
    per_replica: int | None = None
    confidence: Confidence = "none"
    reason: str = ""


class Weighing(Struct, frozen=True, dict=True):
    """What shows a batch size, to be weighed."""

    evidence: Sequence[Evidence]
    ops: OpOutputs
    replicas: Replicas

    @cached_property
    def clear(self) -> list[Evidence]:
        """Return what is believed by itself; what comes behind a map is believed before what comes ahead of it."""
        clear = [each for each in self.evidence if each.is_clear]
        behind = {each.examples for each in clear if not each.may_change}
        return [each for each in clear if not each.may_change or not behind or each.examples in behind]

    @cached_property
    def told(self) -> dict[str, int | None]:
        """Return the share of one replica in what Keras was told; None where it is unknown."""
        count = self.replicas.all_workers
        return {
            each.source: each.examples // count if count and not each.examples % count else None
            for each in self.evidence
            if each.is_of_all
        }

    @cached_property
    def single(self) -> set[int]:
        """Return the leading dimensions of elements that have one part."""
        return {each.examples for each in self.evidence if each.source == "elements" and not each.is_clear}

    def conclusion(self) -> Conclusion:
        """Return what follows."""
        size, confidence = self._candidate()
        if size is None:
            return self._of_all() or Conclusion(reason=self._why_none())
        if len({each.examples for each in self.clear}) > 1 or self._is_contradicted(size):
            said = "; ".join(f"{each.examples}: {each.text}" for each in self.evidence)
            return Conclusion(reason=f"what shows it disagrees ({said})")
        if self.replicas.count is None:
            unknown = f"it is {size} for each replica, but how many there are is unknown: {self.replicas.text}"
            return Conclusion(per_replica=size, reason=unknown)
        return Conclusion(size=size * self.replicas.count, per_replica=size, confidence=confidence)

    def _candidate(self) -> tuple[int | None, Confidence]:
        if self.clear:
            return self.clear[0].examples, self._confidence()
        for source, confidence in _TOLD.items():
            if source in self.told:
                return self.told[source], confidence
        dominant = self.ops.dominant
        if dominant is not None and self.single:
            return dominant, "medium"
        ranks = {rank for _, rank in self.ops.layers.values()}
        is_only = len(self.ops.leading) == 1 and len(ranks) > 1
        return (dominant, "low") if is_only else (None, "none")

    def _confidence(self) -> Confidence:
        """Return how sure a size is that the input shows: two things agree, or nothing could change it."""
        size, sources = self.clear[0].examples, {each.source for each in self.clear}
        is_direct = any(each.source == "batch stage" and not each.may_change for each in self.clear)
        agreeing = {*self.told.values(), *self.single, self.ops.dominant}
        return "high" if len(sources) > 1 or is_direct or size in agreeing else "medium"

    def _is_contradicted(self, size: int) -> bool:
        marked = self.told.get("marker")
        return (
            (len(self.ops.layers) >= _ENOUGH_LAYERS and size not in self.ops.leading)
            or self.told.get("capture") not in (None, size)
            # What Keras was told may be for all workers, of which this is one.
            or (marked is not None and marked % size != 0)
            or (not self.clear and bool(self.single - {size}))
        )

    def _of_all(self) -> Conclusion | None:
        """Return what Keras was told, where it is unknown how many replicas share it."""
        stated = next((each for each in self.evidence if each.is_of_all), None)
        return Conclusion(size=stated.examples, confidence="medium") if stated and self.replicas.count is None else None

    def _why_none(self) -> str:
        if self.single:
            return f"elements have one part, so nothing tells whether {min(self.single)} counts their examples"
        if self.ops.layers:
            return "only outputs of ops show shapes, and ops may fold other dimensions into the first"
        if self.told:
            return "the batch size that Keras was told is no multiple of the number of replicas"
        return "no shape in the trace shows the input of a step"


_TOLD: dict[str, Confidence] = {"capture": "high", "marker": "medium"}
