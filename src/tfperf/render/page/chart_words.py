"""A chart in words: the names and numbers that a reader needs who does not see it."""

from __future__ import annotations

from collections.abc import Sequence

from tfperf.render.page.chart_data import MOST_STEPS, cut_limit, numbers, short_name, step_totals, steps_per_bar
from tfperf.render.values import cell_text, measure_text
from tfperf.report.model import Chart, GroupedBars, Sparkline, StepChart

_NAMED = 5
"""How many names a sentence lists."""


def chart_words(chart: Chart) -> str:
    """Return the chart in words."""
    if isinstance(chart, StepChart):
        return _step_words(chart)
    if isinstance(chart, Sparkline):
        return _line_words(chart)
    if isinstance(chart, GroupedBars):
        groups = [
            f"{short_name(name)}: {_bar_words(chart.labels, values, chart.unit)}"
            for name, values in chart.series.items()
        ]
        return "; ".join(groups) + "."
    return _bar_words(chart.labels, chart.values, chart.unit) + "."


def _bar_words(labels: Sequence[str], values: Sequence[float | None], unit: str) -> str:
    """Return the first labels with their values, and how many more there are."""
    texts = [
        f"{short_name(label)} {measure_text(value, unit)}"
        for label, value in zip(labels[:_NAMED], values[:_NAMED], strict=True)
    ]
    return _listed(texts, len(labels)) or "nothing to show"


def _listed(texts: Sequence[str], count: int) -> str:
    """Return the first texts of `count`, and how many more there are."""
    more = count - len(texts[:_NAMED])
    return ", ".join(texts[:_NAMED]) + (f", and {more:,} more" if more > 0 else "")


def _line_words(chart: Sparkline) -> str:
    """Return how many values there are and between which they lie."""
    count = len(chart.times)
    if not count:
        return "No values."
    values = [value for value in numbers(chart.values) if value is not None]
    if not values:
        return f"{count:,} values, all unknown."
    low, high = (measure_text(value, chart.unit) for value in (min(values), max(values)))
    return f"{count:,} values between {low} and {high}; each holds until the next."


def _step_words(chart: StepChart) -> str:
    """Return the shortest and the longest step, and what their time goes to."""
    count = len(chart.labels)
    if not count:
        return "No steps."
    totals = step_totals(chart)
    unflagged = [step for step in range(count) if not (chart.flags and chart.flags[step])]
    counted = unflagged or list(range(count))

    def time_of(step: int) -> str:
        return f"{cell_text(totals[step], 'ms')} ms (step {short_name(chart.labels[step])})"

    sentences = [_which_steps(count, len(unflagged))]
    shortest, longest = min(counted, key=totals.__getitem__), max(counted, key=totals.__getitem__)
    if len(counted) == 1:
        sentences[0] += f": it takes {time_of(longest)}."
    else:
        sentences[0] += f": the shortest takes {time_of(shortest)}, the longest {time_of(longest)}."
    shares = _shares(chart, counted)
    if shares:
        sentences.append(f"Of {'its' if len(counted) == 1 else 'their'} time: {shares}.")
    limit = cut_limit(chart, totals)
    if limit is not None:
        cut = [time_of(step) for step, total in enumerate(totals) if total > limit]
        sentences.append(f"Cut off at {limit:g} ms: {_listed(cut, len(cut))}.")
    if count > MOST_STEPS:
        sentences.append(f"Of every {steps_per_bar(count)} steps in a row, the longest is drawn.")
    return " ".join(sentences)


def _which_steps(count: int, unflagged: int) -> str:
    """Return which steps the words are about."""
    steps = "1 step" if count == 1 else f"{count:,} steps"
    if unflagged == count:
        return steps
    return f"{unflagged:,} of {steps} (flagged ones left out)" if unflagged else f"{steps}, all flagged"


def _shares(chart: StepChart, steps: Sequence[int]) -> str:
    """Return the categories by their share of the time of the steps, the largest first."""
    sums = {}
    for name, values in chart.series.items():
        known = numbers(values)
        sums[name] = sum(known[step] or 0.0 for step in steps)
    whole = sum(sums.values())
    ranked = sorted((name for name in sums if sums[name] > 0), key=lambda name: -sums[name])
    return ", ".join(f"{short_name(name)} {cell_text(100 * sums[name] / whole, '%')}%" for name in ranked[:_NAMED])
