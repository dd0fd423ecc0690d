"""Compare the step time of a run with one or several baselines: slower, not slower, or inconclusive.

Several baselines. The steps of one capture do not show how much the machine varies between captures; several captures
of the same version do: without a change, the new run is another draw from the same distribution. Let m and s be the
mean and standard deviation of the logarithms of the step times of k baselines. The new logarithm is then within
t(k - 1) s sqrt(1 + 1/k) of m (the prediction interval of a normal sample). On each side, the wider of this interval and
the interval from the noise within the captures counts.

The interval of a ratio is from a block bootstrap. Steps of one job resemble their neighbors (caches, clocks, garbage
collection, other jobs on the machine), so single steps must not be drawn as if they were independent. Blocks of
neighbors are drawn from the series as a circle.

1. Block length: the optimum for a series with lag-1 correlation r, 1.14 (2 r / (1 - r^2))^(2/3) n^(1/3) steps (Politis
   and White 2004, with an AR(1) spectrum; r is raised by (1 + 3 r) / n to correct the bias of short series), but at
   least n^(1/3), and at most a quarter of the series.
2. Mean: average the drawn blocks. Median and 95th percentile: average the share of steps in the drawn blocks that are
   at most the statistic. That share gives a quantile of the series (Woodruff 1952; Bahadur's representation), so only
   the series is sorted, and a long one needs no more memory than its blocks.
3. Few blocks underestimate the variance. Deviations from the statistic are therefore stretched by
   sqrt(n / (n - length)) and by Student's t over the normal quantile (Hesterberg 2015, "expanded percentile"), with
   1.5 n / length - 1 degrees of freedom, 1.5 because blocks overlap.
4. The interval contains the central share of the logarithms of drawn after / drawn before.

docs/diff.md states the measured coverage and the detectable slowdown.
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
"""The compared statistic of a run's step times."""
STATISTICS: tuple[StepStatistic, ...] = get_args(StepStatistic)
MOST_STEPS_NEEDED = 20_000
"""Above this number of steps, no capture is practical: the machine must be less noisy."""
_QUANTILE: dict[StepStatistic, float] = {"median": 0.5, "p95": 0.95}


class Ratio(Struct, frozen=True):
    """Step time after / step time before, with its bootstrap interval at `confidence` (0.9: 90%)."""

    value: float
    low: float
    high: float
    confidence: float
    steps: float | None = None
    """Effective steps per run for the interval's width; None for a ratio to several runs."""

    @property
    def half_width(self) -> float:
        """Return half the width of the interval."""
        return (self.high - self.low) / 2

    def steps_needed(self, tolerance: float) -> int | None:
        """Return about how many steps per run reduce the half-width to `tolerance`, with two significant digits.

        The width decreases with their square root. None if it is narrow enough, or for over `MOST_STEPS_NEEDED`.
        """
        if self.steps is None or tolerance <= 0 or self.half_width <= tolerance:
            return None
        exact = self.steps * (self.half_width / tolerance) ** 2
        if not exact <= MOST_STEPS_NEEDED:
            return None
        unit: int = 10 ** max(len(str(int(exact))) - 2, 0)
        return math.ceil(exact / unit) * unit


def statistic(times: Sequence[float] | Float64s, stat: StepStatistic) -> float | None:
    """Return the mean, median or 95th percentile of step times, in their unit; None for no times."""
    values = np.asarray(times, np.float64)
    if not len(values):
        return None
    if stat == "mean":
        return float(values.mean())
    return median(values) if stat == "median" else percentile(values, _QUANTILE[stat])


RegressionVerdict = Literal["slower", "not slower", "inconclusive"]
"""slower: the interval is above the tolerance. not slower: it is not, and it is narrow enough to show a regression.
inconclusive: it is so wide that it could contain a regression.
"""
FEWEST_STEPS: dict[StepStatistic, int] = {"mean": 5, "median": 5, "p95": 40}
"""Minimum whole steps for an interval; with fewer, it would be too narrow (p95: fewer than two steps are above it)."""
CONFIDENCE = 0.90
"""Of the interval: 5% are above and 5% below it, and only its lower end can show a slowdown."""
STATISTIC_TITLES: dict[StepStatistic, str] = {"mean": "mean", "median": "median", "p95": "95th percentile"}


class StepComparison(Struct, frozen=True, kw_only=True):
    """Whether a run is slower than one or several others by more than `tolerance` (0.05: 5%).

    `ratio` is None if a run has too few steps for an interval. `steps_needed` is the number of steps per run for a
    verdict, or None if there are enough or it is unknown. `why` explains `verdict` in one sentence. The compared hosts
    are the slowest of each run.
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
    """For "example", `before_ms` and `after_ms` are per 1,000 examples."""


def compare_steps(
    before: RunSummary, after: RunSummary, *, tolerance: float, stat: StepStatistic = "mean", per: Per = "step"
) -> StepComparison:
    """Compare the steps of two runs: is `after` slower than `before` by more than `tolerance` (0.05: 5%)?

    Slower: the whole interval of the ratio is above 1 + tolerance. Not slower: its upper end is not, or half its width
    is at most the tolerance, so that a clear regression would show. Equal step times are always "not slower". Each run
    is represented by its slowest host; its times are per `per`. The interval covers the noise within the two captures,
    not changes of the machine between them.
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
    """Compare the steps of `after` with one or more baselines, with a `tolerance` (0.05: 5%)."""
    from statistics import fmean, stdev  # slower to import than the rest of this module

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
    among = f"{len(ratios)} baselines that differ by {format_percent(100 * math.expm1(spread))}%"
    times = format_times(combined.before_ms, combined.after_ms)
    advice = f"capture {f'about {combined.steps_needed:,}' if combined.steps_needed else 'more'} steps"
    if more_baselines:
        advice = "save more baselines, or reduce the noise of the machine"
    text = _conclusion(combined, f"no sign of a regression above {_percent(tolerance)}", advice)
    interval = format_interval(ratio, 1 + tolerance)
    return replace(combined, why=f"step time {times} compared with {among}, {interval}: {text}.")


def slowest_host(run: RunSummary, stat: StepStatistic) -> HostSummary | None:
    """Return the host with the longest steps, the first if equal; None if no host has steps."""
    hosts = [host for host in run.hosts if host.step_ms]
    return max(hosts, key=lambda host: statistic(host.step_ms, stat) or 0.0, default=None)


def _verdict(ratio: Ratio, tolerance: float) -> RegressionVerdict:
    if ratio.low > 1 + tolerance:
        return "slower"
    shows_regressions = ratio.high <= 1 + tolerance or ratio.half_width <= tolerance
    return "not slower" if shows_regressions else "inconclusive"


def format_interval(ratio: Ratio, bound: float = 1.0) -> str:
    """Return `ratio 1.123 (90% interval 1.091 to 1.154)`, with digits that compare correctly with `bound`."""

    def agrees(value: float, digits: int) -> bool:
        shown = float(format_ratio(value, digits))
        return (shown > bound) == (value > bound) and (shown < bound) == (value < bound)

    values = (ratio.value, ratio.low, ratio.high)
    digits = next((count for count in range(3, 12) if all(agrees(value, count) for value in values)), 12)
    value, low, high = (format_ratio(number, digits) for number in values)
    return f"ratio {value} ({100 * ratio.confidence:.3g}% interval {low} to {high})"


def format_ratio(value: float, digits: int = 3) -> str:
    """Format a ratio with some decimals, or with three digits if it is large or tiny."""
    return f"{value:.{digits}f}" if 0.1 <= value < 100 else f"{value:.3g}"


def format_times(before_ms: float | None, after_ms: float | None, unit: str = "ms") -> str:
    """Return `10.2 -> 11.4 ms`, with more digits if different times would look equal."""
    texts = [format_ms(value) for value in (before_ms, after_ms)]
    if texts[0] == texts[1] and before_ms != after_ms and before_ms and after_ms:
        longer = [[f"{value:.{digits}f}" for value in (before_ms, after_ms)] for digits in range(2, 10)]
        texts = next((pair for pair in longer if pair[0] != pair[1]), texts)
    return f"{texts[0]} -> {texts[1]} {unit}"


def _why_of_two(comparison: StepComparison) -> str:
    ratio, tolerance, stat = comparison.ratio, comparison.tolerance, comparison.stat
    counts = comparison.before_steps, comparison.after_steps
    if ratio is None and min(counts) >= FEWEST_STEPS[stat]:
        return "the step times of the two runs are too different for a ratio."
    if ratio is None:
        return (
            f"the runs have {counts[0]:,} and {counted(counts[1], 'whole step')}, but the {STATISTIC_TITLES[stat]} "
            f"requires at least {FEWEST_STEPS[stat]} in each run; capture {max(FEWEST_STEPS[stat], 20)} or more."
        )
    limit = _percent(tolerance)
    fine = f"the interval overlaps the {limit} tolerance, but is narrow enough that a clear regression would show"
    if ratio.high <= 1 + tolerance:
        fine = f"the whole interval is within the {limit} tolerance"
    if _verdict(ratio, tolerance) == "inconclusive":
        fine = "all step times are equal, so both runs are the same capture, which is not slower"
    advice = f"more than {MOST_STEPS_NEEDED:,} steps would be needed, so reduce the noise (idle machine, fixed clocks)"
    if comparison.steps_needed:
        advice = f"capture about {counted(comparison.steps_needed, 'step')} in each run"
    return f"{measured_ratio(comparison, ratio)}: {_conclusion(comparison, fine, advice)}."


def measured_ratio(comparison: StepComparison, ratio: Ratio) -> str:
    """Return the step times of two runs and their ratio as text."""
    is_of_step = comparison.per == "step"
    # Milliseconds per 1,000 examples are microseconds per example.
    times = format_times(comparison.before_ms, comparison.after_ms, "ms" if is_of_step else "us")
    interval = format_interval(ratio, 1 + comparison.tolerance)
    counts = f"from {comparison.before_steps:,} and {counted(comparison.after_steps, 'step')}"
    what = "step time" if is_of_step else "time per example"
    return f"{STATISTIC_TITLES[comparison.stat]} {what} {times}, {interval}, {counts}"


def _conclusion(comparison: StepComparison, fine: str, advice: str) -> str:
    """Return the conclusion from the interval: `fine` if the run is not slower, `advice` if unknown."""
    limit = _percent(comparison.tolerance)
    return {
        "slower": f"the whole interval is above the {limit} tolerance",
        "not slower": fine,
        "inconclusive": f"the interval is too wide to rule out a regression above {limit}; {advice}",
    }[comparison.verdict]


def _percent(share: float) -> str:
    return f"{100 * share:.10g}%"


_RESAMPLES = 2000
_SEED = 20_170_314
_AT_ONCE = 1 << 20
"""Blocks drawn at once, to limit memory."""
_LONGEST_CORRELATION = 0.95
_SAME = 1 + 1e-9
"""Smaller differences are rounding, which depends on the unit."""


def bootstrap_ratio(
    before: Sequence[float] | Float64s,
    after: Sequence[float] | Float64s,
    stat: StepStatistic = "mean",
    confidence: float = 0.95,
) -> Ratio | None:
    """Return statistic(after) / statistic(before) with its bootstrap interval; deterministic.

    None if a series has fewer than two steps, or times that are not positive and finite.
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
    """Return each resample's log ratio to the series' statistic, stretched for few blocks."""
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
    """Return each resample's mean of whole blocks, with the deviation corrected for their number."""
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
    """Return the number of neighbors to draw together (see above)."""
    count = len(times)
    away = times - times.mean()
    total = float(away @ away)
    lag = float(away[1:] @ away[:-1]) / total if total else 0.0
    lag = min(abs(lag + (1 + 3 * lag) / count), _LONGEST_CORRELATION)
    best = 1.14 * (2 * lag / (1 - lag * lag)) ** (2 / 3) * count ** (1 / 3)
    return int(min(max(round(best), round(count ** (1 / 3)), 1), max(count // 4, 1)))


def _normal(confidence: float) -> float:
    # Imported here, because it takes longer than the rest of this module and only comparisons need it.
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + confidence) / 2)


def student(confidence: float, freedom: float) -> float:
    """Return Student's two-sided quantile: exact for one degree, else Cornish-Fisher, within 2% (for 0.9)."""
    if freedom == 1:
        return math.tan(math.pi * confidence / 2)
    z, v = _normal(confidence), freedom
    return float(
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )
