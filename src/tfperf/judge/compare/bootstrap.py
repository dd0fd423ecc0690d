"""How much slower one series of step times is than another, and how sure that is: a block bootstrap of the ratio.

Steps of one job resemble their neighbours (caches, clocks, the garbage collector, other jobs on the machine), so single
steps must not be drawn as if they were independent. The series is laid in a circle, and blocks of neighbours are drawn.

1. Block length: what is best for a series whose lag-1 correlation is r, 1.14 (2 r / (1 - r^2))^(2/3) n^(1/3) steps
   (Politis and White 2004, with an AR(1) for the spectrum; r is raised by (1 + 3 r) / n, since short series hide it),
   but at least n^(1/3), and at most a quarter of the series.
2. Mean: average the drawn blocks. Median and 95th percentile: average, in the drawn blocks, how many steps lie at or
   below the statistic. That fraction leads to a quantile of the series (Woodruff 1952; Bahadur's representation), so
   nothing is sorted but the series itself, and a long one costs no more memory than its blocks.
3. Few blocks vary less than the truth. So deviations from the statistic are stretched by sqrt(n / (n - length)) and by
   Student's t over normal quantile (Hesterberg 2015, "expanded percentile"), with 1.5 n / length - 1 degrees of
   freedom, 1.5 because blocks overlap.
4. The interval holds the middle share of the logarithms of drawn after / drawn before.

docs/diff.md says how often such an interval held the truth, and what slowdown it sees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Float64s, median, percentile

StepStatistic = Literal["mean", "median", "p95"]
"""The statistic of the step times of a run that is compared."""
STATISTICS: tuple[StepStatistic, ...] = get_args(StepStatistic)

MOST_STEPS_NEEDED = 20_000
"""Nobody captures more steps than this for a comparison; where more are needed, the machine has to be calmer."""
_RESAMPLES = 2000
_SEED = 20_170_314
_AT_ONCE = 1 << 20
"""Blocks drawn at the same time, which bounds memory."""
_QUANTILE: dict[StepStatistic, float] = {"median": 0.5, "p95": 0.95}
_LONGEST_CORRELATION = 0.95
_SAME = 1 + 1e-9
"""Times that differ by less are the same, but for rounding, which depends on their unit."""


class Ratio(Struct, frozen=True):
    """Step time after / step time before, with its bootstrap interval at `confidence` (0.9: 90 %)."""

    value: float
    low: float
    high: float
    confidence: float
    steps: float | None = None
    """How many steps each run had, as far as the width goes: with different numbers of steps, the run that adds more to
    the width counts more. None for a ratio to several runs."""

    @property
    def half_width(self) -> float:
        """Return half the width of the interval."""
        return (self.high - self.low) / 2

    def steps_needed(self, tolerance: float) -> int | None:
        """Return about how many steps in each run bring the half-width to `tolerance`, in two digits.

        The width falls with the square root of the number of steps. None where it is that narrow already, and where
        more than `MOST_STEPS_NEEDED` are needed.
        """
        if self.steps is None or tolerance <= 0 or self.half_width <= tolerance:
            return None
        exact = self.steps * (self.half_width / tolerance) ** 2
        if not exact <= MOST_STEPS_NEEDED:
            return None
        unit: int = 10 ** max(len(str(int(exact))) - 2, 0)
        return math.ceil(exact / unit) * unit


def statistic(times: Sequence[float] | Float64s, stat: StepStatistic) -> float | None:
    """Return the mean, the median or the 95th percentile of step times, in their unit; None of none."""
    values = np.asarray(times, np.float64)
    if not len(values):
        return None
    if stat == "mean":
        return float(values.mean())
    return median(values) if stat == "median" else percentile(values, _QUANTILE[stat])


def bootstrap_ratio(
    before: Sequence[float] | Float64s,
    after: Sequence[float] | Float64s,
    stat: StepStatistic = "mean",
    confidence: float = 0.95,
) -> Ratio | None:
    """Return statistic(after) / statistic(before) with its bootstrap interval; always the same for the same series.

    Times are positive, in any unit. None with fewer than two steps in a series, or with times that are not positive
    and finite.
    """
    series = [np.asarray(times, np.float64) for times in (before, after)]
    if not all(len(times) > 1 and bool((times > 0).all()) and bool(np.isfinite(times).all()) for times in series):
        return None
    random = np.random.default_rng(_SEED)
    deviations = [_log_deviations(times / times.max(), stat, confidence, random) for times in series]
    first, second = (statistic(times / times.max(), stat) or 0.0 for times in series)
    value = second / first * (float(series[1].max()) / float(series[0].max()))
    if not (0 < value < math.inf):
        return None
    logarithms, tail = deviations[1] - deviations[0], (1 - confidence) / 2
    low, high = (value * math.exp(percentile(logarithms, share)) for share in (tail, 1 - tail))
    counts, weights = [len(times) for times in series], [float(logs.var()) for logs in deviations]
    steps = float(np.average(counts, weights=weights)) if any(weights) else float(min(counts))
    return Ratio(value, low, high, confidence, steps)


def _log_deviations(times: Float64s, stat: StepStatistic, confidence: float, random: np.random.Generator) -> Float64s:
    """Return, for each resample, the logarithm of its statistic over that of the series, stretched for few blocks."""
    count, length = len(times), block_length(times)
    freedom = max(1.5 * count / length - 1, 2.0)
    stretch = student(confidence, freedom) / _normal(confidence) * math.sqrt(count / (count - length))
    if stat == "mean":
        mean = float(times.mean())
        return stretch * np.log(_block_means(times, length, random) / mean)
    share, ordered = _QUANTILE[stat], np.sort(times)
    middle = percentile(ordered, share)
    below = (times <= middle * _SAME).astype(np.float64)
    fractions = share + stretch * (float(below.mean()) - _block_means(below, length, random))
    quantiles = np.interp(np.clip(fractions, 0.0, 1.0) * (count - 1), np.arange(count), ordered)
    return np.log(quantiles / middle)


def _block_means(values: Float64s, length: int, random: np.random.Generator) -> Float64s:
    """Return, for each resample, the mean of whole drawn blocks, with the deviation corrected for their number."""
    count = max(round(len(values) / length), 1)
    sums = np.concatenate(([0.0], np.cumsum(np.concatenate((values, values[: length - 1])))))
    blocks = (sums[length:] - sums[:-length]) / length
    rows = max(_AT_ONCE // count, 1)
    parts = [
        blocks[random.integers(0, len(blocks), (min(rows, _RESAMPLES - at), count))].mean(axis=1)
        for at in range(0, _RESAMPLES, rows)
    ]
    mean = float(values.mean())
    return mean + (np.concatenate(parts) - mean) * math.sqrt(count * length / len(values))


def block_length(times: Float64s) -> int:
    """Return how many neighbours are drawn together (see above)."""
    count = len(times)
    away = times - times.mean()
    total = float(away @ away)
    lag = float(away[1:] @ away[:-1]) / total if total else 0.0
    lag = min(abs(lag + (1 + 3 * lag) / count), _LONGEST_CORRELATION)
    best = 1.14 * (2 * lag / (1 - lag * lag)) ** (2 / 3) * count ** (1 / 3)
    return int(min(max(round(best), round(count ** (1 / 3)), 1), max(count // 4, 1)))


def _normal(confidence: float) -> float:
    # Imported here: it takes longer than the rest of this module, and only a comparison needs it.
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + confidence) / 2)


def student(confidence: float, freedom: float) -> float:
    """Return Student's quantile on both sides of the middle share `confidence`.

    Exact for one degree of freedom, else the expansion of Cornish and Fisher: within 2 % from 2 on (for 0.9).
    """
    if freedom == 1:
        return math.tan(math.pi * confidence / 2)
    z, v = _normal(confidence), freedom
    return float(
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )
