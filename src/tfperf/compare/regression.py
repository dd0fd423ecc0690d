"""Is a run slower than the one before it? Three answers: slower, holds, cannot tell."""

from __future__ import annotations

from collections.abc import Sequence

from tfperf.compare.model import Change, Comparison, Ratio, Stat
from tfperf.compare.resample import MOST_STEPS_NEEDED, resample, statistic
from tfperf.compare.snapshot import HostSnapshot, Snapshot
from tfperf.units import format_ms

FEWEST_STEPS: dict[Stat, int] = {"mean": 5, "median": 5, "p95": 40}
"""Fewer whole steps in a run give no interval: it would be too narrow (for p95: fewer than two steps lie above it)."""

CONFIDENCE = 0.90
"""Of the interval: 5 % lie above it and 5 % below, and only the lower end can call a run slower."""

STAT_WORDS: dict[Stat, str] = {"mean": "mean", "median": "median", "p95": "95th percentile"}


def compare_steps(
    before: Snapshot, after: Snapshot, *, tolerance: float, stat: Stat = "mean", confidence: float = CONFIDENCE
) -> Comparison:
    """Tell whether `after` is slower per step than `before` by more than `tolerance` (0.05: 5 %).

    Slower: the whole interval of the ratio lies above 1 + tolerance. Holds: its upper end does not, or half of its
    width is at most the tolerance, so that a clear regression would have shown. Each run is that of its slowest host.
    The interval knows the noise inside the two captures, not how the machine changed between them.
    """
    one, other = slowest(before, stat), slowest(after, stat)
    times = (one.step_ms if one else (), other.step_ms if other else ())
    fewest = min(map(len, times))
    found = resample(times[0], times[1], stat, confidence) if fewest >= FEWEST_STEPS[stat] else None
    change = judged(found.ratio, tolerance) if found else "cannot tell"
    needed = None
    if change == "cannot tell":
        needed = found.steps_needed(tolerance) if found else FEWEST_STEPS[stat] if fewest < FEWEST_STEPS[stat] else None
    return Comparison(
        change=change, ratio=found.ratio if found else None, tolerance=tolerance, stat=stat,
        before_ms=statistic(times[0], stat), after_ms=statistic(times[1], stat),
        before_steps=len(times[0]), after_steps=len(times[1]),
        before_host=one.host if one else "", after_host=other.host if other else "", steps_needed=needed,
        why=_why(change, found.ratio if found else None, tolerance, stat, times, needed),
    )  # fmt: skip


def slowest(run: Snapshot, stat: Stat) -> HostSnapshot | None:
    """Return the host whose steps take longest, the first of equals; None if no host has steps."""
    found = [host for host in run.hosts if host.step_ms]
    return max(found, key=lambda host: statistic(host.step_ms, stat) or 0.0, default=None)


def judged(ratio: Ratio, tolerance: float) -> Change:
    """Tell what an interval says about a tolerance."""
    if ratio.low > 1 + tolerance:
        return "slower"
    tells = ratio.high <= 1 + tolerance or ratio.half_width <= tolerance
    return "holds" if tells else "cannot tell"


# --- in words ---


def interval_words(ratio: Ratio, bound: float = 1.0) -> str:
    """Return `ratio 1.123 (90% interval 1.091 to 1.154)`, in digits that stand to `bound` as the numbers do."""
    values = (ratio.value, ratio.low, ratio.high)
    digits = next((own for own in range(3, 12) if all(_told(value, bound, own) for value in values)), 12)
    value, low, high = (shown_ratio(one, digits) for one in values)
    return f"ratio {value} ({100 * ratio.confidence:.3g}% interval {low} to {high})"


def _told(value: float, bound: float, digits: int) -> bool:
    shown = float(shown_ratio(value, digits))
    return (shown > bound) == (value > bound) and (shown < bound) == (value < bound)


def shown_ratio(value: float, digits: int = 3) -> str:
    """Return a ratio with some digits behind the point, with three digits in all where it is large or tiny."""
    return f"{value:.{digits}f}" if 0.1 <= value < 100 else f"{value:.3g}"


def times_words(before_ms: float | None, after_ms: float | None) -> str:
    """Return `10.2 -> 11.4 ms`, with more digits where few would make different times look equal."""
    texts = [format_ms(value) for value in (before_ms, after_ms)]
    if texts[0] == texts[1] and before_ms != after_ms and before_ms and after_ms:
        longer = [[f"{value:.{digits}f}" for value in (before_ms, after_ms)] for digits in range(2, 10)]
        texts = next((pair for pair in longer if pair[0] != pair[1]), texts)
    return f"{texts[0]} -> {texts[1]} ms"


def _why(
    change: Change, ratio: Ratio | None, tolerance: float, stat: Stat, times: Sequence[Sequence[float]],
    needed: int | None,
) -> str:  # fmt: skip
    counts = [len(own) for own in times]
    limit = f"{100 * tolerance:.3g}%"
    if ratio is None:
        return _too_few(counts, stat)
    step = f"the {STAT_WORDS[stat]} step time went {times_words(statistic(times[0], stat), statistic(times[1], stat))}"
    seen = f"{step}: {interval_words(ratio, 1 + tolerance)}, from {counts[0]:,} and {counts[1]:,} steps"
    if change == "slower":
        return f"{seen}; all of the interval is above the tolerance of {limit}."
    if change == "holds" and ratio.high <= 1 + tolerance:
        return f"{seen}; none of the interval is above the tolerance of {limit}."
    if change == "holds":
        return f"{seen}; it reaches below the tolerance of {limit}, and is narrow enough to tell."
    advice = f"about {needed:,} steps in each run would tell" if needed else (
        f"more than {MOST_STEPS_NEEDED:,} steps would be needed: make the runs steadier (a quiet machine, fixed clocks)"
    )  # fmt: skip
    return f"{seen}; a regression above {limit} could hide in so wide an interval: {advice}."


def _too_few(counts: Sequence[int], stat: Stat) -> str:
    fewest = FEWEST_STEPS[stat]
    if min(counts) < fewest:
        return (
            f"there are {counts[0]:,} and {counts[1]:,} whole steps, and the {STAT_WORDS[stat]} of fewer than {fewest} "
            f"in a run tells nothing certain; capture {max(fewest, 20)} or more."
        )
    return "the step times of the two runs are so far apart that there is no ratio of them."
