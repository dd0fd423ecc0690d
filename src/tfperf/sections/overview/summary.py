"""Averages over steps, and the input-bound class of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict

from tfperf.analysis.registry import Results, Tabular
from tfperf.base.arrays import Bools, ordered_percentile
from tfperf.base.display import Plotted
from tfperf.base.units import PS_PER_MS
from tfperf.report.model import Data, Quantity
from tfperf.trace.steps.breakdown import Breakdown
from tfperf.trace.steps.categories import CATEGORIES, CATEGORY_MEANINGS, CATEGORY_TITLES, TPU_MEANINGS
from tfperf.trace.steps.steps import step_word

InputClass = Literal["high", "moderate", "possible", "none", "unknown"]
ShareClass = Literal["high", "moderate", "none"]

INPUT_LIMITS = (5.0, 20.0)
OTHER_LIMITS = (3.0, 15.0)


class Statistics(Struct, frozen=True, kw_only=True):
    """Statistics over steps, with the sample standard deviation (n-1)."""

    count: int
    average: float
    standard_deviation: float | None
    """None for a single step."""
    minimum: float
    maximum: float
    median: float
    p5: float
    p95: float


def statistics(values: npt.NDArray[np.float64]) -> Statistics | None:
    """Return the statistics of the values, or None if there are none."""
    return statistics_by_row(values[np.newaxis])[0] if len(values) else None


def statistics_by_row(values: npt.NDArray[np.float64]) -> list[Statistics]:
    """Return the statistics of each row of a 2-D array. Rows are computed together, because each may be short."""
    count = values.shape[1]
    ordered = np.sort(values, axis=1)
    deviations = values.std(axis=1, ddof=1).tolist() if count > 1 else [None] * len(values)
    numbers = zip(
        values.mean(axis=1).tolist(),
        deviations,
        ordered[:, 0].tolist(),
        ordered[:, -1].tolist(),
        ((ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2).tolist(),
        ordered_percentile(ordered, 0.05).tolist(),
        ordered_percentile(ordered, 0.95).tolist(),
        strict=True,
    )
    return [
        Statistics(
            count=count,
            average=average,
            # Avoid the rounding error of equal values.
            standard_deviation=0.0 if deviation is not None and least == most else deviation,
            minimum=least,
            maximum=most,
            median=middle,
            p5=p5,
            p95=p95,
        )
        for average, deviation, least, most, middle, p5, p95 in numbers
    ]


class Summary(Plotted, Tabular, frozen=True, kw_only=True):
    """Averages over the steps of one kind on one host (or over hosts).

    `step_time_ms` is None without steps. `percent` maps each category to its share of step time (sum over sum), and
    categories in `unknown`, which the profile does not show, to 0. `input_percent` is None if input is unknown.
    """

    kind: str
    step_count: int
    averaged_count: int
    step_time_ms: Statistics | None = None
    category_ms: Mapping[str, Statistics] = {}
    percent: Mapping[str, float] = {}
    unknown: frozenset[str] = frozenset()
    input_percent: float | None = None
    input_class: InputClass = "unknown"
    on_tpu: bool = False
    categories: tuple[str, ...] = CATEGORIES
    """Categories that add up to a step (`Breakdown.categories`)."""

    home = ("overview", "categories")

    def columns(self) -> dict[str, list[object]]:
        """Return one row per category: milliseconds per step and percent of step time, None if unknown."""
        keys = self.categories if self.percent else ()
        times = [None if key in self.unknown else self.category_ms[key] for key in keys]
        meanings = CATEGORY_MEANINGS | (TPU_MEANINGS if self.on_tpu else {})
        return {
            "category": [CATEGORY_TITLES[key] for key in keys],
            "average_ms": [each and each.average for each in times],
            "standard_deviation_ms": [each and each.standard_deviation for each in times],
            "percent": [None if key in self.unknown else self.percent[key] for key in keys],
            "meaning": [meanings[key] for key in keys],
        }

    def _data(self) -> Data:
        return self.columns()


class Overview(Summary, frozen=True, kw_only=True):
    """Averages over the averaged steps of a run.

    With several hosts, the averages are over all of them, but the input share and class are from the host that waits
    longest, because the others wait for it.
    """

    by_kind: tuple[Summary, ...]
    """Summaries of each kind of step (train, eval), headline kind first."""
    by_host: tuple[Summary, ...]
    worst_host: int | None
    """Index of the host that the input share and class come from; None with a single host."""


def summarize(breakdown: Breakdown, rows: Bools | None = None, kind: str = "") -> Summary:
    """Average the steps at `rows` (default: the averaged steps)."""
    rows = breakdown.steps.headline if rows is None else rows
    kind = kind or breakdown.steps.headline_kind
    duration_ps = breakdown.steps.duration_ps[rows]
    total_ps = int(duration_ps.sum())
    if not total_ps:
        return Summary(kind=kind, step_count=breakdown.steps.kinds.count(kind), averaged_count=0)
    time_ps = np.stack([duration_ps, *(values[rows] for values in breakdown.time_ps.values())])
    of_steps, *of_categories = statistics_by_row(time_ps / PS_PER_MS)
    sums_ps = time_ps.sum(axis=1).tolist()
    percent = {key: 100.0 * sum_ps / total_ps for key, sum_ps in zip(breakdown.time_ps, sums_ps[1:], strict=True)}
    input_percent = None if "input" in breakdown.unknown else percent["input"]
    return Summary(
        kind=kind,
        step_count=breakdown.steps.kinds.count(kind),
        averaged_count=int(rows.sum()),
        step_time_ms=of_steps,
        category_ms=dict(zip(breakdown.time_ps, of_categories, strict=True)),
        percent=percent,
        unknown=breakdown.unknown,
        on_tpu=breakdown.on_tpu,
        categories=breakdown.categories,
        input_percent=input_percent,
        input_class=input_class(
            input_percent,
            None if "all_others" in breakdown.unknown else percent["all_others"],
            hides_none=breakdown.on_tpu
            or (
                breakdown.attribution == "corrected"
                and bool(np.mean(breakdown.fetches[rows]) > 0.5 or percent["all_others"] >= 100.0)
            ),
        ),
    )


def over_hosts(results: Results) -> Overview:
    """Return the overview of a run."""
    breakdown = results["steps"]
    total = summarize(breakdown)
    by_host = tuple(summarize(host) for host in results.of_hosts("steps"))
    shares = [(host.input_percent, index) for index, host in enumerate(by_host) if host.input_percent is not None]
    worst = max(shares)[1] if len(by_host) > 1 and shares else None
    fields = {**asdict(total), "by_kind": by_kind(breakdown), "by_host": by_host, "worst_host": worst}
    if worst is not None:
        fields |= {"input_percent": by_host[worst].input_percent, "input_class": by_host[worst].input_class}
    return Overview(**fields)


def by_kind(breakdown: Breakdown) -> tuple[Summary, ...]:
    """Average each kind of step (train, eval), headline kind first."""
    steps = breakdown.steps
    kinds = dict.fromkeys((steps.headline_kind, *steps.kinds)) if len(steps) else {}
    return tuple(summarize(breakdown, breakdown.averaged & steps.are(kind), kind) for kind in kinds)


def input_class(input_percent: float | None, others_percent: float | None, *, hides_none: bool = False) -> InputClass:
    """Classify a job by its input share, or else by a large share of uncategorized time, which may hide input.

    A share is None if the profile does not show it; it is then not treated as 0. `hides_none` means that uncategorized
    time cannot hide input: most steps fetch a batch from an input pipeline; or the time is idle time of TPU cores,
    where infeed and transfers would show; or steps have no events at all. TensorFlow's own rule does not check this.
    """
    if input_percent is not None and input_percent >= INPUT_LIMITS[0]:
        return "high" if input_percent >= INPUT_LIMITS[1] else "moderate"
    if others_percent is not None and others_percent >= OTHER_LIMITS[0] and not hides_none:
        return "possible"
    return "none" if input_percent is not None else "unknown"


def share_class(percent: float) -> ShareClass:
    """Classify the share of kernel launch, collectives or all others."""
    return "high" if percent >= OTHER_LIMITS[1] else "moderate" if percent >= OTHER_LIMITS[0] else "none"


def of_steps(kind: str, host: str = "") -> str:
    """Return the `of` of quantities about steps of a kind; without a host, they are averages over hosts."""
    step = step_word(kind)
    return f"{step} on {host}" if host else step


def step_time(summary: Summary, host: str = "") -> Quantity:
    """Return the average step time."""
    average = None if summary.step_time_ms is None else summary.step_time_ms.average
    return Quantity("step_time", average, "ms", of_steps(summary.kind, host))


class UsualStepTime(NamedTuple):
    """Representative step time: the mean, or the median if the two differ by more than a fifth."""

    time: Quantity
    statistic: str
    other: str
    """The mean in brackets, if the value is the median."""
    quantities: tuple[Quantity, ...]


_FAR_APART = 0.2


def usual_step_time(summary: Summary, host: str = "") -> UsualStepTime:
    """Return the representative time of the averaged steps; the summary must have steps."""
    times, average = summary.step_time_ms, step_time(summary, host)
    if times is None or abs(times.average - times.median) <= _FAR_APART * times.median:
        return UsualStepTime(average, "mean", "", (average,))
    middle = Quantity("median_step_time", times.median, "ms", of_steps(summary.kind, host))
    return UsualStepTime(middle, "median", f" (mean {average})", (middle, average))


def step_after(change: str, low_ms: float, high_ms: float, of: str) -> tuple[Quantity, Quantity]:
    """Return the lowest and highest step time after a change; `change` is a cause and its action."""
    return Quantity(f"{change}, at best", low_ms, "ms", of), Quantity(f"{change}, at worst", high_ms, "ms", of)


def share_of_step(summary: Summary, part: str, host: str = "") -> Quantity:
    """Return the share of a category, or of a part of input, in the step time, with its name as key."""
    value = None if part in summary.unknown else summary.percent.get(part)
    return Quantity(part, value, "%", of_steps(summary.kind, host))


def time_in_step(summary: Summary, part: str, host: str = "") -> Quantity:
    """Return the average time of a category, or of a part of input, in a step."""
    times = None if part in summary.unknown else summary.category_ms.get(part)
    return Quantity(part, None if times is None else times.average, "ms", of_steps(summary.kind, host))
