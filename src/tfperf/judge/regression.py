"""Is a run slower than one or several baselines? Three verdicts: slower, not slower, inconclusive.

Several baselines. The steps of one capture cannot show how much the machine changes from one capture to the next.
Several captures of the same version can: if nothing changed, the new run is one more draw from where they came from.
With k baselines whose logarithms of the step time have the mean m and the standard deviation s, the logarithm of the
new one then lies within t(k - 1) s sqrt(1 + 1/k) of m (the prediction interval of a normal sample). On each side, that
or the usual interval from the noise within the captures counts, whichever is wider.

The interval of a ratio is that of a block bootstrap. Steps of one job resemble their neighbours (caches, clocks, the
garbage collector, other jobs on the machine), so single steps must not be drawn as if they were independent. The series
is laid in a circle, and blocks of neighbours are drawn.

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
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import Float64s, median, percentile
from tfperf.base.units import counted, format_ms, format_percent
from tfperf.judge.run_summary import Per

if TYPE_CHECKING:
    from tfperf.judge.run_summary import HostSummary, RunSummary

StepStatistic = Literal["mean", "median", "p95"]
"""The statistic of the step times of a run that is compared."""
STATISTICS: tuple[StepStatistic, ...] = get_args(StepStatistic)
MOST_STEPS_NEEDED = 20_000
"""Nobody captures more steps than this for a comparison; where more are needed, the machine has to be calmer."""
_QUANTILE: dict[StepStatistic, float] = {"median": 0.5, "p95": 0.95}


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


RegressionVerdict = Literal["slower", "not slower", "inconclusive"]
"""slower: the interval lies above the tolerance. not slower: it does not, and it is narrow enough to show a regression.
inconclusive: it is so wide that a regression could hide in it."""
FEWEST_STEPS: dict[StepStatistic, int] = {"mean": 5, "median": 5, "p95": 40}
"""Fewer whole steps in a run give no interval: it would be too narrow (for p95: fewer than two steps lie above it)."""
CONFIDENCE = 0.90
"""Of the interval: 5 % lie above it and 5 % below, and only the lower end can call a run slower."""
STATISTIC_TITLES: dict[StepStatistic, str] = {"mean": "mean", "median": "median", "p95": "95th percentile"}


class StepComparison(Struct, frozen=True, kw_only=True):
    """Whether one run is slower than one or several others by more than `tolerance` (0.05: 5 %).

    `ratio` is None where a run has too few steps for any interval. `steps_needed` is how many steps in each run would
    give a verdict, None where enough are there or nothing can be said. `why` explains `verdict` in one sentence. Hosts
    are those that were compared: the slowest of each run.
    """

    verdict: RegressionVerdict
    ratio: Ratio | None
    tolerance: float
    stat: StepStatistic
    before_ms: float | None
    after_ms: float | None
    before_steps: int
    after_steps: int
    before_host: str
    after_host: str
    steps_needed: int | None
    why: str
    per: Per = "step"
    """What times are of; for an example, `before_ms` and `after_ms` are of 1,000."""


def compare_steps(
    before: RunSummary, after: RunSummary, *, tolerance: float, stat: StepStatistic = "mean", per: Per = "step"
) -> StepComparison:
    """Judge whether `after` is slower per step than `before` by more than `tolerance` (0.05: 5 %).

    A run with the step times of the other, to the last digit, is the other: not slower, whatever the interval. `per` is
    what the times of the runs are of.

    Slower: the whole interval of the ratio lies above 1 + tolerance. Not slower: its upper end does not, or half of its
    width is at most the tolerance, so that a clear regression would show. Each run is that of its slowest host. The
    interval covers the noise within the two captures, not how the machine changed between them.
    """
    hosts = slowest_host(before, stat), slowest_host(after, stat)
    before_ms, after_ms = (host.step_ms if host else () for host in hosts)
    enough = min(len(before_ms), len(after_ms)) >= FEWEST_STEPS[stat]
    ratio = bootstrap_ratio(before_ms, after_ms, stat, CONFIDENCE) if enough else None
    needed = None if enough else FEWEST_STEPS[stat]
    verdict: RegressionVerdict = "inconclusive"
    if ratio is not None:
        # A capture is not slower than itself, however noisy it is.
        verdict = "not slower" if before_ms == after_ms else _verdict(ratio, tolerance)
        needed = ratio.steps_needed(tolerance) if verdict == "inconclusive" else None
    comparison = StepComparison(
        verdict=verdict,
        ratio=ratio,
        tolerance=tolerance,
        stat=stat,
        before_ms=statistic(before_ms, stat),
        after_ms=statistic(after_ms, stat),
        before_steps=len(before_ms),
        after_steps=len(after_ms),
        before_host=hosts[0].host if hosts[0] else "",
        after_host=hosts[1].host if hosts[1] else "",
        steps_needed=needed,
        why="",
        per=per,
    )
    return replace(comparison, why=_why_of_two(comparison))


def compare_with_baselines(
    baselines: Sequence[RunSummary], after: RunSummary, *, tolerance: float, stat: StepStatistic = "mean"
) -> StepComparison:
    """Judge whether `after` is slower per step than one or more baselines, by more than `tolerance` (0.05: 5 %)."""
    from statistics import fmean, stdev  # takes longer than the rest of this module

    comparisons = [compare_steps(baseline, after, tolerance=tolerance, stat=stat) for baseline in baselines]
    ratios = [comparison.ratio for comparison in comparisons if comparison.ratio is not None]
    if len(comparisons) == 1:
        return comparisons[0]
    if len(ratios) < len(comparisons):
        return next(comparison for comparison in comparisons if comparison.ratio is None)
    logarithms = [math.log(ratio.value) for ratio in ratios]
    middle, spread = fmean(logarithms), stdev(logarithms)
    between = student(CONFIDENCE, len(ratios) - 1) * spread * math.sqrt(1 + 1 / len(ratios))
    below = fmean(math.log(ratio.value / ratio.low) for ratio in ratios)
    above = fmean(math.log(ratio.high / ratio.value) for ratio in ratios)
    low, high = math.exp(middle - max(below, between)), math.exp(middle + max(above, between))
    ratio = Ratio(math.exp(middle), low, high, CONFIDENCE)
    verdict = _verdict(ratio, tolerance)
    more_baselines = between > max(below, above)
    needed = max(comparison.steps_needed or 0 for comparison in comparisons)
    first = comparisons[0]
    combined = replace(
        first,
        verdict=verdict,
        ratio=ratio,
        before_ms=first.after_ms / ratio.value if first.after_ms else None,
        before_steps=sum(comparison.before_steps for comparison in comparisons),
        steps_needed=needed if needed and verdict == "inconclusive" and not more_baselines else None,
    )
    among = f"{len(ratios)} baselines that differ by {format_percent(100 * math.expm1(spread))}% among themselves"
    times = format_times(combined.before_ms, combined.after_ms)
    advice = f"capture {f'about {combined.steps_needed:,}' if combined.steps_needed else 'more'} steps"
    if more_baselines:
        advice = "save more baselines, or reduce the noise of the machine"
    text = _conclusion(combined, f"no sign of a regression above {_percent(tolerance)}", advice)
    interval = format_interval(ratio, 1 + tolerance)
    return replace(combined, why=f"step time {times} against {among}, {interval}: {text}.")


def slowest_host(run: RunSummary, stat: StepStatistic) -> HostSummary | None:
    """Return the host whose steps take longest, the first of equals; None if no host has steps."""
    hosts = [host for host in run.hosts if host.step_ms]
    return max(hosts, key=lambda host: statistic(host.step_ms, stat) or 0.0, default=None)


def _verdict(ratio: Ratio, tolerance: float) -> RegressionVerdict:
    if ratio.low > 1 + tolerance:
        return "slower"
    shows_regressions = ratio.high <= 1 + tolerance or ratio.half_width <= tolerance
    return "not slower" if shows_regressions else "inconclusive"


def format_interval(ratio: Ratio, bound: float = 1.0) -> str:
    """Return `ratio 1.123 (90% interval 1.091 to 1.154)`, in digits that stand to `bound` as the numbers do."""

    def agrees(value: float, digits: int) -> bool:
        shown = float(format_ratio(value, digits))
        return (shown > bound) == (value > bound) and (shown < bound) == (value < bound)

    values = (ratio.value, ratio.low, ratio.high)
    digits = next((count for count in range(3, 12) if all(agrees(value, count) for value in values)), 12)
    value, low, high = (format_ratio(number, digits) for number in values)
    return f"ratio {value} ({100 * ratio.confidence:.3g}% interval {low} to {high})"


def format_ratio(value: float, digits: int = 3) -> str:
    """Return a ratio with some digits behind the point, with three digits in all where it is large or tiny."""
    return f"{value:.{digits}f}" if 0.1 <= value < 100 else f"{value:.3g}"


def format_times(before_ms: float | None, after_ms: float | None, unit: str = "ms") -> str:
    """Return `10.2 -> 11.4 ms`, with more digits where few would make different times look equal."""
    texts = [format_ms(value) for value in (before_ms, after_ms)]
    if texts[0] == texts[1] and before_ms != after_ms and before_ms and after_ms:
        longer = [[f"{value:.{digits}f}" for value in (before_ms, after_ms)] for digits in range(2, 10)]
        texts = next((pair for pair in longer if pair[0] != pair[1]), texts)
    return f"{texts[0]} -> {texts[1]} {unit}"


def _why_of_two(comparison: StepComparison) -> str:
    ratio, tolerance, stat = comparison.ratio, comparison.tolerance, comparison.stat
    counts = comparison.before_steps, comparison.after_steps
    if ratio is None and min(counts) >= FEWEST_STEPS[stat]:
        return "the step times of the two runs are too far apart for a ratio."
    if ratio is None:
        return (
            f"there are {counts[0]:,} and {counted(counts[1], 'whole step')}, but the {STATISTIC_TITLES[stat]} needs "
            f"at least {FEWEST_STEPS[stat]} in each run; capture {max(FEWEST_STEPS[stat], 20)} or more."
        )
    limit = _percent(tolerance)
    fine = f"the interval overlaps the tolerance of {limit} and is narrow enough to show a regression"
    if ratio.high <= 1 + tolerance:
        fine = f"the whole interval is within the tolerance of {limit}"
    if _verdict(ratio, tolerance) == "inconclusive":
        fine = "every step time is the same, so this is one capture twice, and not slower than itself"
    advice = f"more than {MOST_STEPS_NEEDED:,} steps are needed, so reduce the noise (a quiet machine, fixed clocks)"
    if comparison.steps_needed:
        advice = f"capture about {counted(comparison.steps_needed, 'step')} in each run"
    return f"{measured_ratio(comparison, ratio)}: {_conclusion(comparison, fine, advice)}."


def measured_ratio(comparison: StepComparison, ratio: Ratio) -> str:
    """Say what the step times of two runs are, and how they compare."""
    is_of_step = comparison.per == "step"
    # The milliseconds of 1,000 examples are the microseconds of one.
    times = format_times(comparison.before_ms, comparison.after_ms, "ms" if is_of_step else "us")
    interval = format_interval(ratio, 1 + comparison.tolerance)
    counts = f"from {comparison.before_steps:,} and {counted(comparison.after_steps, 'step')}"
    what = "step time" if is_of_step else "time per example"
    return f"{STATISTIC_TITLES[comparison.stat]} {what} {times}, {interval}, {counts}"


def _conclusion(comparison: StepComparison, fine: str, advice: str) -> str:
    """Say what the interval shows: `fine` if the run is not slower, `advice` if that is unknown."""
    limit = _percent(comparison.tolerance)
    return {
        "slower": f"the whole interval is above the tolerance of {limit}",
        "not slower": fine,
        "inconclusive": f"the interval is too wide to rule out a regression above {limit}; {advice}",
    }[comparison.verdict]


def _percent(share: float) -> str:
    return f"{100 * share:.10g}%"


_RESAMPLES = 2000
_SEED = 20_170_314
_AT_ONCE = 1 << 20
"""Blocks drawn at the same time, which bounds memory."""
_LONGEST_CORRELATION = 0.95
_SAME = 1 + 1e-9
"""Times that differ by less are the same, but for rounding, which depends on their unit."""


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
