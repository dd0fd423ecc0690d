"""A step as a model: what its time is bounded by, as it is and after a change of the input pipeline.

Operational bounds: a step cannot be faster than what its own thread does (the consumer's work, and the pipeline's
stages that run in that thread), than the slowest segment of the pipeline, and than all work that needs the host's cores
divided by their number. A change moves work between segments, or takes it away. The low end of a range is the largest
of these bounds. The high end allows for what the bounds leave out: parallel work is less than perfectly efficient, and
what should overlap does so only in part.
"""

from __future__ import annotations

from msgspec import Struct

PARALLEL_EFFICIENCY = 0.85
OVERLAP = 0.9
UNDISTURBED, DISTURBED = 0.93, 1.1
"""What the same work may take at another moment, of what it takes in the profile."""
STEADIEST = 0.75
"""What ops may take, of their time in the profile, where some of the same name are faster: else they had more to do."""
SIBLING = 0.4
"""How much faster a thread is whose core runs no other one beside it: what is called a core is often half of one."""
HARDLY_WAITS = 0.95
"""A step that works for so much of its time may gain nothing from whatever is done to the pipeline."""
NOISE = 1.05
"""How much longer than in the profile a step may take at another moment."""


class Load(Struct, frozen=True, kw_only=True):
    """What a step costs, in milliseconds: in its own thread, in segments of the pipeline, and on the host's cores."""

    consumer_ms: float
    inline_ms: float
    """Stages of the pipeline that run in the consumer's thread."""
    segments: tuple[tuple[float, int], ...]
    """Milliseconds of each other segment for a step, and how many threads share them."""
    cpu_ms: float
    """Work of the pipeline on all threads together."""
    overlapped_ms: float
    """The part of it that is done while the consumer works."""
    steadiness: float
    """As that of a pipeline."""
    busy_threads: float
    """How many threads of the pipeline work, on average, while the consumer does."""


class StepModel(Struct, frozen=True, kw_only=True):
    """The step as it is, and how a changed load is turned into a range.

    On a host without a device, the step and the pipeline compute on the same cores. Whoever is beside the other is
    slowed down, by how much depends on how many threads the step has, which the profile does not show: one, or as many
    as there are cores. Both are tried.
    """

    now: Load
    step_ms: float
    cores: int
    steadiness: float
    """Of the ops of the program outside its pipelines, as that of a pipeline."""
    has_device: bool

    def range_ms(self, best: Load, worst: Load, slowdown: float) -> tuple[float, float]:
        """Return the range of the step time; at worst, threads slow each other down by the factor `slowdown`."""
        threads = (0.0,) if self.has_device else (1.0, float(self.cores))
        low = UNDISTURBED * min(self.shortest_ms(best, number) for number in threads)
        high = max(self.longest_ms(worst, number) for number in (threads[0], sum(threads) / len(threads)))
        if self.now.consumer_ms > HARDLY_WAITS * self.step_ms:
            high = self.step_ms * NOISE
        return low, max(min(high, self.step_ms * NOISE) * slowdown, low)

    def input_percent(self, step_ms: float) -> float:
        """Return the share of input in a step of this duration, whose own work stays as it is."""
        return 100.0 * max(1.0 - self.now.consumer_ms / step_ms, 0.0) if step_ms else 0.0

    def shortest_ms(self, load: Load, threads: float) -> float:
        """Return the largest of the bounds, for work that nothing slows down; the step has so many `threads`."""
        slowed = self._slowed(threads)
        # All ops of the step may be as fast as they sometimes are, if it is the pipeline that slows them down.
        undisturbed = 1.0 if self.has_device or not self.now.busy_threads else self.steadiness
        consumer = load.consumer_ms * min(1.0 / slowed, undisturbed)
        alone = 1.0  # Which share of its time the pipeline takes alone.
        if self.now.cpu_ms:
            waited_for_cores_ms = self.now.overlapped_ms * (1.0 - 1.0 / slowed)
            alone = min(1.0 - waited_for_cores_ms / self.now.cpu_ms, max(self.now.steadiness, STEADIEST))
        segments = [work * alone / min(workers, self.cores) for work, workers in load.segments]
        shared = (load.cpu_ms * alone + threads * consumer) / self.cores
        return max(consumer + load.inline_ms, *segments, shared)

    def longest_ms(self, load: Load, threads: float) -> float:
        """Return the bound for parallel work that is not efficient, and for what overlaps only in part."""
        relief = 0.0  # To what degree siblings of the cores in use get free, if the pipeline has less to do.
        if threads and self.now.cpu_ms:
            half = self.cores / 2.0
            shared = min(max((threads + self.now.busy_threads - half) / half, 0.0), 1.0)
            relief = shared * max(1.0 - load.cpu_ms / self.now.cpu_ms, 0.0)
        consumer = load.consumer_ms / self._slowed(threads) / (1.0 + SIBLING * relief)
        segments = [
            work / (1.0 if workers == 1 else min(workers, self.cores) * PARALLEL_EFFICIENCY)
            for work, workers in load.segments
        ]
        in_step, slowest = consumer + load.inline_ms, max(segments, default=0.0)
        together = max(in_step, slowest) + (1.0 - OVERLAP) * min(in_step, slowest)
        return max(together, (load.cpu_ms + threads * consumer) / self.cores) * DISTURBED

    def _slowed(self, threads: float) -> float:
        """Return how much longer than alone the consumer takes, if it has so many threads."""
        return max((threads + self.now.busy_threads) / self.cores, 1.0) if threads else 1.0
