"""Is a run slower than several earlier ones, which differ among themselves? Then that is noise too.

The steps of one capture cannot tell how much the machine changes from one capture to the next. Several captures of the
same version can: if nothing changed, the new run is one more draw from where they came from. With k baselines whose
logarithms of the step time have the mean m and the standard deviation s, the logarithm of the new one then lies within
t(k - 1) s sqrt(1 + 1/k) of m (the prediction interval of a normal sample). On each side, that or the usual interval
from the noise inside the captures counts, whichever is wider.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev

from tfperf.compare.model import Comparison, Ratio, Snapshot, Stat
from tfperf.compare.regression import CONFIDENCE, compare_steps, interval_words, judged, times_words
from tfperf.compare.resample import student
from tfperf.units import format_percent


def compare_with(
    baselines: Sequence[Snapshot], after: Snapshot, *, tolerance: float, stat: Stat = "mean",
    confidence: float = CONFIDENCE,
) -> Comparison:  # fmt: skip
    """Tell whether `after` is slower per step than one or more baselines, by more than `tolerance` (0.05: 5 %)."""
    found = [compare_steps(own, after, tolerance=tolerance, stat=stat, confidence=confidence) for own in baselines]
    ratios = [own.ratio for own in found if own.ratio is not None]
    if len(found) == 1:
        return found[0]
    if len(ratios) < len(found):
        return next(own for own in found if own.ratio is None)
    between = _between([ratio.value for ratio in ratios], confidence)
    ratio, noisy = _combined(ratios, between, confidence)
    change = judged(ratio, tolerance)
    needed = None if noisy or change != "cannot tell" else max((own.steps_needed or 0 for own in found), default=0)
    before_ms = found[0].after_ms / ratio.value if found[0].after_ms else None
    spread = math.expm1(stdev(math.log(own.value) for own in ratios))
    compared = replace(
        found[0], change=change, ratio=ratio, before_ms=before_ms, before_steps=sum(own.before_steps for own in found),
        steps_needed=needed or None,
    )  # fmt: skip
    return replace(compared, why=_why(compared, ratio, len(found), 100 * spread, noisy=noisy))


def _between(values: Sequence[float], confidence: float) -> float:
    """Return how far, as a logarithm, one more capture of the same may lie from the mean of these."""
    count = len(values)
    return student(confidence, count - 1) * stdev(map(math.log, values)) * math.sqrt(1 + 1 / count)


def _combined(ratios: Sequence[Ratio], between: float, confidence: float) -> tuple[Ratio, bool]:
    """Return the ratio to the mean of the baselines, and whether their own differences make its interval."""
    middle = fmean(math.log(own.value) for own in ratios)
    below = fmean(math.log(own.value / own.low) for own in ratios)
    above = fmean(math.log(own.high / own.value) for own in ratios)
    ends = math.exp(middle - max(below, between)), math.exp(middle + max(above, between))
    return Ratio(math.exp(middle), *ends, confidence), between > max(below, above)


def _why(found: Comparison, ratio: Ratio, count: int, spread_percent: float, *, noisy: bool) -> str:
    limit, bound = f"{100 * found.tolerance:.3g}%", 1 + found.tolerance
    among = f"{count} baselines, which differ by {format_percent(spread_percent)}% among themselves"
    times = times_words(found.before_ms, found.after_ms)
    seen = f"the step time went {times} against {among}: {interval_words(ratio, bound)}"
    if found.change == "slower":
        return f"{seen}; all of the interval is above the tolerance of {limit}."
    if found.change == "holds":
        return f"{seen}; there is no sign of a regression above {limit}."
    advice = "save more baselines, or calm the machine" if noisy else (
        f"about {found.steps_needed:,} steps in each run would tell" if found.steps_needed else "capture more steps"
    )  # fmt: skip
    return f"{seen}; a regression above {limit} could hide in so wide an interval: {advice}."
