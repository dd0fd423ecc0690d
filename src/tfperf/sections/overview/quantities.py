"""Quantities of the average step, by their keys: what every text says about step time and categories is from here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tfperf.report.model import Quantity
from tfperf.trace.steps.steps import step_word

if TYPE_CHECKING:
    from tfperf.sections.overview.summary import Summary


def of_steps(kind: str, host: str = "") -> str:
    """Return whose the quantities of steps of a kind are; without a host, they are averages over hosts."""
    step = step_word(kind)
    return f"{step} on {host}" if host else step


def step_time(summary: Summary, host: str = "") -> Quantity:
    """Return the average step time."""
    average = None if summary.step_time_ms is None else summary.step_time_ms.average
    return Quantity("step_time", average, "ms", of_steps(summary.kind, host))


class UsualStepTime(NamedTuple):
    """The step time that stands for a job: the mean, or the median where the two differ by more than a fifth."""

    time: Quantity
    statistic: str
    other: str
    """Where it is the median: the mean, in brackets."""
    quantities: tuple[Quantity, ...]


_FAR_APART = 0.2


def usual_step_time(summary: Summary, host: str = "") -> UsualStepTime:
    """Return the step time that stands for the averaged steps; the summary must have steps."""
    times, average = summary.step_time_ms, step_time(summary, host)
    if times is None or abs(times.average - times.median) <= _FAR_APART * times.median:
        return UsualStepTime(average, "mean", "", (average,))
    middle = Quantity("median_step_time", times.median, "ms", of_steps(summary.kind, host))
    return UsualStepTime(middle, "median", f" (mean {average})", (middle, average))


def step_after(change: str, low_ms: float, high_ms: float, of: str) -> tuple[Quantity, Quantity]:
    """Return the step time after a change, at best and at worst; `change` is a cause and its action."""
    return Quantity(f"{change}, at best", low_ms, "ms", of), Quantity(f"{change}, at worst", high_ms, "ms", of)


def share_of_step(summary: Summary, part: str, host: str = "") -> Quantity:
    """Return the share of a category, or of a part of input, in the step time; its key is its name."""
    value = None if part in summary.unknown else summary.percent.get(part)
    return Quantity(part, value, "%", of_steps(summary.kind, host))


def time_in_step(summary: Summary, part: str, host: str = "") -> Quantity:
    """Return the average time of a category, or of a part of input, in a step."""
    times = None if part in summary.unknown else summary.category_ms.get(part)
    return Quantity(part, None if times is None else times.average, "ms", of_steps(summary.kind, host))
