"""A step as a model: what its time is bounded by, as it is and after a change of the input pipeline.

A step cannot be faster than what its own thread does (the consumer's work, and the pipeline's stages that run in that
thread), than the slowest segment of the pipeline, and than all work that needs the host's cores divided by their
number. A change moves work between segments, or takes it away.

On a host without a device, the step and the pipeline compute on the same cores, so each slows the other down. Where R
threads of the pipeline work beside a step on N cores, its work takes 1 + s R / N times as long as alone. What s is
depends on what the profile does not show: how many threads the ops of the step use, whether these wait for the slowest
of them, and whether two cores are halves of one. Two values stand for the least and the most of it; the trace gives R.

Work right after waiting is slower than in one go (caches, clock rates, threads that wake up). How much so, what rivals
take, what the bounds leave open, and that the same work takes more or less at another moment, are errors that do not
depend on each other: their squares add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec import Struct

from tfperf.sections.tfdata.contention import Rivals

SHARING = (0.25, 1.2)
"""The least and the most of s. Least: the step has one thread, and shares parts of a core (caches, pipelines) only.
Most: its ops use all cores, and wait for the part of them whose core a rival uses. This and what follows is from
fourteen runs of `benchmarks/whatif.py` on two cores."""
TURNS = 0.6
"""How much longer a step takes, at most, for each rival beyond one for each other core: they take turns."""
LOCK = (0.1, 2.0)
"""How much longer a step takes for each rival that computes in Python. Most: it waits several times for the lock, which
Python passes on every 5 ms, and works for a few milliseconds only."""
PARALLEL_EFFICIENCY = 0.85
OVERLAP = 0.9
STEADIEST = 0.85
"""What the work of a pipeline may take, of its time in the profile, where less goes on beside it."""
COLD = (0.25, 0.8)
"""By how much of its time work is slower after waiting, at least and at most, times the share of the step that waits.
Jobs whose input only sleeps have 0.26 to 0.65."""
NOISE = 0.12
"""Share by which the same work may take more or less at another moment than in the profile."""


class Load(Struct, frozen=True, kw_only=True):
    """What a step costs, in milliseconds: in its own thread, in segments of the pipeline, and on the host's cores."""

    consumer_ms: float
    inline_ms: float
    """Stages of the pipeline that run in the consumer's thread."""
    segments: tuple[tuple[float, float], ...]
    """Milliseconds of each other segment for a step, and how many threads share them."""
    cpu_ms: float
    """Work of the pipeline that needs a core, on all threads together."""


class StepModel(Struct, frozen=True, kw_only=True):
    """The step as it is, and how a changed load is turned into a range."""

    now: Load
    step_ms: float
    cores: int
    rivals: Rivals
    """None where the step computes on a device."""
    has_device: bool
    busy_ms: float = 0.0
    """How long cores are busy for a step, all together; 0: unknown."""

    def range_ms(self, best: Load, worst: Load, slowdown: float = 1.0) -> tuple[float, float]:
        """Return the range of the step time at another moment; threads may slow each other down by `slowdown`.

        No change of the pipeline makes the step itself slower, but another step is as likely slower as faster. None
        leads below the step without input work.
        """

        def bounds(slowed: float, cold: float) -> tuple[float, float]:
            shortest, longest = self.shortest_ms(best, slowed, cold), self.longest_ms(worst, slowed, cold)
            return min(shortest, self.step_ms), min(longest, self.step_ms) * slowdown

        low, high = with_noise(*self._united(bounds))
        return max(low, min(self.free_ms()[0], high)), high

    def free_ms(self) -> tuple[float, float]:
        """Return the range of the step time without any input work, at another moment.

        Its top may be above the step time of today: where input costs nothing, another step is as likely slower.
        """
        return with_noise(*self.alone_ms)

    @property
    def alone_ms(self) -> tuple[float, float]:
        """Return the range of what the step's own work would take at the same moment, without any input work."""

        def alone(slowed: float, cold: float) -> tuple[float, float]:
            alone_ms = self.now.consumer_ms / slowed * self._warm(0.0, cold)
            return alone_ms, alone_ms

        low, high = self._united(alone)
        return low, min(high, self.now.consumer_ms)

    @property
    def slowed_ms(self) -> tuple[float, float]:
        """Return what rivals add to the step's own work at least, and what they and the waiting add at most."""
        consumer_ms = self.now.consumer_ms
        return consumer_ms * (1.0 - 1.0 / self.slowdowns[0]), consumer_ms - self.alone_ms[0]

    def _united(self, bounds: Callable[[float, float], tuple[float, float]]) -> tuple[float, float]:
        """Unite what three unknowns that do not depend on each other leave open: the squares of their shares add up.

        `bounds` returns the range that is left if it is known how much slower the step is beside the pipeline's
        threads, and how much slower after waiting.
        """
        slowed, cold = math.sqrt(math.prod(self.slowdowns)), sum(COLD) / 2.0
        low, high = bounds(slowed, cold)
        if not 0.0 < low <= high:
            return min(low, high), high
        by_slowed = [math.prod(bounds(each, cold)) for each in self.slowdowns]
        by_cold = [math.prod(bounds(slowed, each)) for each in COLD]
        shares = [math.log(max(pair) / min(pair)) / 4.0 for pair in (by_slowed, by_cold) if min(pair) > 0.0]
        return _spread(math.sqrt(low * high), math.log(high / low) / 2.0, *shares)

    def _warm(self, input_percent: float, cold: float) -> float:
        """Return what the step's work takes if less of the step is input, as a share of its time today."""
        less_percent = 0.0 if self.has_device else max(self.input_percent(self.step_ms) - input_percent, 0.0)
        return 1.0 - cold * less_percent / 100.0

    @property
    def slowdowns(self) -> tuple[float, float]:
        """Return how much longer than alone the consumer takes today, at least and at most."""
        if self.has_device:
            return 1.0, 1.0
        native, python = self.rivals.native, self.rivals.python
        least = 1.0 + SHARING[0] * native / self.cores + LOCK[0] * python
        turns = TURNS * max(native - (self.cores - 1), 0.0)
        return least, 1.0 + SHARING[1] * native / self.cores + LOCK[1] * python + turns

    def input_percent(self, step_ms: float) -> float:
        """Return the share of input in a step of this duration, whose own work stays as it is."""
        return 100.0 * max(1.0 - self.now.consumer_ms / step_ms, 0.0) if step_ms else 0.0

    def shortest_ms(self, load: Load, slowed: float, cold: float) -> float:
        """Return the largest of the bounds.

        The consumer takes `slowed` times as long as alone today; for `cold` see `_warm`.
        """
        segments = [STEADIEST * work / min(workers, self.cores) for work, workers in load.segments]
        threads = 0.0 if self.has_device else 1.0
        shared = (STEADIEST * load.cpu_ms + threads * self.now.consumer_ms / slowed) / self.cores
        return max(self._in_step(load, slowed, cold), *segments, shared, self._busy_ms(load, STEADIEST))

    def longest_ms(self, load: Load, slowed: float, cold: float) -> float:
        """Return the bound for parallel work that is not efficient, and for what overlaps only in part."""
        in_step = self._in_step(load, slowed, cold)
        segments = [work / max(min(workers, self.cores) * PARALLEL_EFFICIENCY, 1.0) for work, workers in load.segments]
        slowest = max(segments, default=0.0)
        together = max(in_step, slowest) + (1.0 - OVERLAP) * min(in_step, slowest)
        threads = 0.0 if self.has_device else (1.0 + self.cores) / 2.0
        shared = (load.cpu_ms + threads * self.now.consumer_ms / slowed) / self.cores
        return max(together, shared, self._busy_ms(load, 1.0) / PARALLEL_EFFICIENCY)

    def _busy_ms(self, load: Load, share: float) -> float:
        """Return how long all cores are busy for a share of what they do today; 0 where the pipeline has less work.

        What the process does for a pipeline is more than the trace shows, so it is unknown how much of it is left.
        """
        return 0.0 if load.cpu_ms < self.now.cpu_ms else share * self.busy_ms / self.cores

    def _in_step(self, load: Load, slowed: float, cold: float) -> float:
        """Return how long the step's own thread takes beside the pipeline, after less waiting than today."""
        in_step = self._with_rivals(load, slowed)
        return in_step - (1.0 - self._warm(self.input_percent(in_step), cold)) * self.now.consumer_ms / slowed

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

    def _most_workers(self, load: Load) -> float:
        return max((min(workers, self.cores) for _, workers in load.segments), default=1.0)


def faster_without(share: float, rest_ms: float) -> float:
    """Return the least time that the rest of a step on a host takes, if a share (0 to 1) of the step goes away.

    `rest_ms` is its time today, after waiting or other work.
    """
    return rest_ms * (1.0 - COLD[1] * share)


def with_noise(low: float, high: float) -> tuple[float, float]:
    """Return a range of times that holds at another moment, too."""
    if not 0.0 < low <= high:
        return min(low, high), high
    return _spread(math.sqrt(low * high), math.log(high / low) / 2.0, NOISE)


def _spread(middle: float, *shares: float) -> tuple[float, float]:
    """Return the range around a time whose logarithm has these errors, which do not depend on each other."""
    factor = math.exp(math.hypot(*shares))
    return middle / factor, middle * factor
