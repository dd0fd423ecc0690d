"""Is a run slower than one or several baselines? Three verdicts: slower, not slower, inconclusive.

Several baselines. The steps of one capture cannot show how much the machine changes from one capture to the next.
Several captures of the same version can: if nothing changed, the new run is one more draw from where they came from.
With k baselines whose logarithms of the step time have the mean m and the standard deviation s, the logarithm of the
new one then lies within t(k - 1) s sqrt(1 + 1/k) of m (the prediction interval of a normal sample). On each side, that
or the usual interval from the noise within the captures counts, whichever is wider.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.units import counted, format_ms, format_percent
from tfperf.judge.compare.bootstrap import MOST_STEPS_NEEDED, Ratio, StepStatistic, bootstrap_ratio, statistic, student
from tfperf.judge.compare.per_example import Per

if TYPE_CHECKING:
    from tfperf.judge.compare.run_summary import HostSummary, RunSummary

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
