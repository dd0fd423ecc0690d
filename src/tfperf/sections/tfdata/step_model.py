"""A step as a model: what its time is bounded by, as it is and after a change of the input pipeline.

A step cannot be faster than what its own thread does (the consumer's work, and the pipeline's stages that run in that
thread), than the slowest segment of the pipeline, and than all work that needs the host's cores divided by their
number. A change moves work between segments, or takes it away.

On a host without a device, the step and the pipeline compute on the same cores, so each slows the other down. Where R
threads of the pipeline work beside a step on N cores, its work takes 1 + s R / N times as long as alone. What s is
depends on what the profile does not show: how many threads the ops of the step use, whether these wait for the slowest
of them, and whether two cores are halves of one. Two values stand for the least and the most of it; the trace gives R.

What the bounds leave open, and that the same work takes more or less at another moment, are errors that do not depend
on each other: their squares add up.
"""

from __future__ import annotations

import math

from msgspec import Struct

from tfperf.sections.tfdata.contention import Rivals

SHARING = (0.25, 1.2)
"""The least and the most of s. Least: the step has one thread, and shares parts of a core (caches, pipelines) only.
Most: its ops use all cores, and wait for the part of them whose core a rival uses. From seven runs of
`benchmarks/whatif.py` on two cores."""
LOCK = (0.0, 2.5)
"""How much longer a step takes for each rival that computes in Python. Most: it waits several times for the lock, which
Python passes on every 5 ms, and works for a few milliseconds only."""
PARALLEL_EFFICIENCY = 0.85
OVERLAP = 0.9
STEADIEST = 0.85
"""What the work of a pipeline may take, of its time in the profile, where less goes on beside it."""
COLD = 0.6
"""By how much work may be slower after waiting (caches, clock rates), times the share of the step that waits."""
NOISE = 0.1
"""Share by which the same work may take more or less at another moment than in the profile."""


class Load(Struct, frozen=True, kw_only=True):
    """What a step costs, in milliseconds: in its own thread, in segments of the pipeline, and on the host's cores."""

    consumer_ms: float
    inline_ms: float
    """Stages of the pipeline that run in the consumer's thread."""
    segments: tuple[tuple[float, int], ...]
    """Milliseconds of each other segment for a step, and how many threads share them."""
    cpu_ms: float
    """Work of the pipeline on all threads together."""


class StepModel(Struct, frozen=True, kw_only=True):
    """The step as it is, and how a changed load is turned into a range."""

    now: Load
    step_ms: float
    cores: int
    rivals: Rivals
    """None where the step computes on a device."""
    has_device: bool

    def range_ms(self, best: Load, worst: Load, slowdown: float = 1.0) -> tuple[float, float]:
        """Return the range of the step time at another moment; threads may slow each other down by `slowdown`.

        No change of the pipeline makes the step itself slower, but another step is as likely slower as faster. None
        leads below the step without input work.
        """
        low = min(self.shortest_ms(best, slowed) for slowed in self.slowdowns)
        high = max(self.longest_ms(worst, slowed) for slowed in self.slowdowns)
        low, high = with_noise(min(low, self.step_ms), min(high, self.step_ms) * slowdown)
        return max(low, min(self.free_ms()[0], high)), high

    def free_ms(self) -> tuple[float, float]:
        """Return the range of the step time without any input work, at another moment.

        Its top may be above the step time of today: where input costs nothing, another step is as likely slower.
        """
        return with_noise(*self.alone_ms)

    @property
    def alone_ms(self) -> tuple[float, float]:
        """Return the range of what the step's own work would take at the same moment, without any input work."""
        least, most = self.slowdowns
        return self.now.consumer_ms / most * self._warm(0.0), self.now.consumer_ms / least

    def _warm(self, input_percent: float) -> float:
        """Return the least that the step's work may take if less of the step is input, as a share of its time today."""
        less_percent = 0.0 if self.has_device else max(self.input_percent(self.step_ms) - input_percent, 0.0)
        return 1.0 - COLD * less_percent / 100.0

    @property
    def slowdowns(self) -> tuple[float, float]:
        """Return how much longer than alone the consumer takes today, at least and at most."""
        if self.has_device:
            return 1.0, 1.0
        least, most = (
            1.0 + sharing * self.rivals.native / self.cores + lock * self.rivals.python
            for sharing, lock in zip(SHARING, LOCK, strict=True)
        )
        return least, most

    def input_percent(self, step_ms: float) -> float:
        """Return the share of input in a step of this duration, whose own work stays as it is."""
        return 100.0 * max(1.0 - self.now.consumer_ms / step_ms, 0.0) if step_ms else 0.0

    def shortest_ms(self, load: Load, slowed: float) -> float:
        """Return the largest of the bounds, if the consumer takes `slowed` times as long as alone today."""
        segments = [STEADIEST * work / min(workers, self.cores) for work, workers in load.segments]
        threads = 0.0 if self.has_device else 1.0
        shared = (STEADIEST * load.cpu_ms + threads * load.consumer_ms / slowed) / self.cores
        in_step = self._with_rivals(load, slowed)
        in_step -= (1.0 - self._warm(self.input_percent(in_step))) * load.consumer_ms / slowed
        return max(in_step, *segments, shared)

    def longest_ms(self, load: Load, slowed: float) -> float:
        """Return the bound for parallel work that is not efficient, and for what overlaps only in part."""
        in_step = self._with_rivals(load, slowed)
        segments = [
            work / (1.0 if workers == 1 else min(workers, self.cores) * PARALLEL_EFFICIENCY)
            for work, workers in load.segments
        ]
        slowest = max(segments, default=0.0)
        together = max(in_step, slowest) + (1.0 - OVERLAP) * min(in_step, slowest)
        threads = 0.0 if self.has_device else (1.0 + self.cores) / 2.0
        return max(together, (load.cpu_ms + threads * load.consumer_ms / slowed) / self.cores)

    def _with_rivals(self, load: Load, slowed: float) -> float:
        """Return how long the step's own thread takes: it has as many rivals as the pipeline has work in that time.

        With the work of today, and in the time of today, they slow it down by the factor `slowed`. A shorter step has
        more of them, t = alone + rivals_ms alone / t, but no more than today unless the pipeline gets more threads.
        """
        alone = load.consumer_ms / slowed
        kept = load.cpu_ms / self.now.cpu_ms if self.now.cpu_ms else 0.0
        rivals_ms = (slowed - 1.0) * kept * self.step_ms
        least = alone + load.inline_ms
        with_all = least + (slowed - 1.0) * alone * max(self._most_workers(load) / self._most_workers(self.now), 1.0)
        return min((least + math.sqrt(least * least + 4.0 * alone * rivals_ms)) / 2.0, with_all)

    def _most_workers(self, load: Load) -> int:
        return max((min(workers, self.cores) for _, workers in load.segments), default=1)


def with_noise(low: float, high: float) -> tuple[float, float]:
    """Return a range of times that holds at another moment, too."""
    if not 0.0 < low <= high:
        return min(low, high), high
    middle, spread = math.sqrt(low * high), math.hypot(math.log(high / low) / 2.0, NOISE)
    return middle * math.exp(-spread), middle * math.exp(spread)
