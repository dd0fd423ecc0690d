"""Averages over steps, and the verdict on them.

Thresholds are those of TensorFlow's profiler, in percent of step time and inclusive: input 5 and 20, all others, kernel
launch and collectives 3 and 15.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from tfperf.analyzers.step_breakdown import CATEGORIES, Breakdown
from tfperf.arrays import Bools, median, percentile
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    import pandas as pd

InputClass = Literal["high", "moderate", "possible", "none", "unknown"]
Level = Literal["high", "moderate", "none"]

INPUT_LIMITS = (5.0, 20.0)
OTHER_LIMITS = (3.0, 15.0)


@dataclass(frozen=True)
class Statistics:
    """Over steps: average, sample standard deviation (n-1), minimum and maximum, median, 95th percentile."""

    count: int
    average: float
    standard_deviation: float
    minimum: float
    maximum: float
    median: float
    p95: float


def statistics(values: npt.NDArray[np.float64]) -> Statistics | None:
    """Return the statistics of some values, or None if there are none. One value has deviation 0."""
    if not len(values):
        return None
    deviation = float(values.std(ddof=1)) if len(values) > 1 and float(np.ptp(values)) > 0 else 0.0
    return Statistics(
        len(values), float(values.mean()), deviation, float(values.min()), float(values.max()),
        median(values), percentile(values, 0.95),
    )  # fmt: skip


@dataclass(frozen=True)
class Summary:
    """Averages over the steps of one kind on one host (or over hosts).

    `step_time_ms` is None without steps. `percent` maps each category to its share of step time (sum over sum).
    `input_percent` is None where the trace cannot show input.
    """

    kind: str
    step_count: int
    averaged_count: int
    step_time_ms: Statistics | None
    category_ms: dict[str, Statistics]
    percent: dict[str, float]
    input_percent: float | None
    input_class: InputClass
    worst_host: int | None = None
    """With several hosts: whose input share and class these are (the largest), as an index."""

    @property
    def table(self) -> pd.DataFrame:
        """Return one row per category: milliseconds per step, and percent of step time."""
        import pandas as pd

        rows = [(key, self.category_ms[key], self.percent[key]) for key in CATEGORIES if self.percent]
        return pd.DataFrame(
            {
                "category": [key for key, _, _ in rows],
                "average_ms": [found.average for _, found, _ in rows],
                "standard_deviation_ms": [found.standard_deviation for _, found, _ in rows],
                "minimum_ms": [found.minimum for _, found, _ in rows],
                "maximum_ms": [found.maximum for _, found, _ in rows],
                "percent": [percent for _, _, percent in rows],
            }
        )


def summarize(found: Breakdown, rows: Bools | None = None, kind: str = "") -> Summary:
    """Average the steps at `rows` (default: the headline steps)."""
    rows = found.headline if rows is None else rows
    kind = kind or found.steps.headline_kind
    of_kind = found.steps.kinds.count(kind)
    times = {key: values[rows] for key, values in found.time_ps.items()}
    duration = found.steps.duration_ps[rows]
    total = int(duration.sum())
    if not total:
        return Summary(kind, of_kind, 0, None, {}, {}, None, "unknown")
    stats = {key: statistics(values / PS_PER_MS) for key, values in times.items()}
    percent = {key: 100.0 * int(values.sum()) / total for key, values in times.items()}
    share = percent["input"] if found.input_visible else None
    return Summary(
        kind, of_kind, int(rows.sum()), statistics(duration / PS_PER_MS), {k: s for k, s in stats.items() if s},
        percent,
        share, input_class(share, percent["all_others"]),
    )  # fmt: skip


def over_hosts(combined: Breakdown, hosts: list[Breakdown]) -> Summary:
    """Average over hosts, but take input share and class from the host that waits most: the others wait for it."""
    found = summarize(combined)
    each = [(index, summarize(host)) for index, host in enumerate(hosts)]
    shares = [(own.input_percent, index) for index, own in each if own.input_percent is not None]
    if len(hosts) < 2 or not shares:
        return found
    share, worst = max(shares)
    return replace(found, input_percent=share, input_class=each[worst][1].input_class, worst_host=worst)


def by_kind(found: Breakdown) -> list[Summary]:
    """Average each kind of step (train, eval) by itself, the headline kind first."""
    kinds = list(dict.fromkeys((found.steps.headline_kind, *found.steps.kinds))) if len(found.steps) else []
    of, counted = np.array(found.steps.kinds, object), found.averaged
    return [summarize(found, np.asarray(counted & (of == kind), np.bool_), kind) for kind in kinds]


def input_class(input_percent: float | None, others_percent: float | None) -> InputClass:
    """Classify a job: input share first; else a large share of unexplained time may hide input.

    None for the input share means that the trace does not show it; then its absence is not concluded.
    """
    if input_percent is not None and input_percent >= INPUT_LIMITS[0]:
        return "high" if input_percent >= INPUT_LIMITS[1] else "moderate"
    if others_percent is not None and not math.isnan(others_percent) and others_percent >= OTHER_LIMITS[0]:
        return "possible"
    return "none" if input_percent is not None else "unknown"


def level(percent: float) -> Level:
    """Classify the share of kernel launch, collectives or all others."""
    return "high" if percent >= OTHER_LIMITS[1] else "moderate" if percent >= OTHER_LIMITS[0] else "none"
