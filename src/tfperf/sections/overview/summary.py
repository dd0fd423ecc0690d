"""Overview: averages over steps, and the section that says whether the job is input-bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict

from tfperf.arrays import Bools, median, percentile
from tfperf.report.model import Fact, Finding, Section, Severity
from tfperf.sections.overview.quantities import share_of_step, step_time
from tfperf.sections.overview.tables import CATEGORY_TABLE, KINDS, STEPS_BY_HOST
from tfperf.sections.registry import present
from tfperf.sections.results import Results
from tfperf.sections.steps.breakdown import Breakdown
from tfperf.sections.steps.section import CATEGORIES
from tfperf.trace.steps import UNLABELLED
from tfperf.units import PS_PER_MS, counted

if TYPE_CHECKING:
    import pandas as pd

    from tfperf.sections.overview.input_cost import InputCost

InputClass = Literal["high", "moderate", "possible", "none", "unknown"]
ShareClass = Literal["high", "moderate", "none"]

INPUT_LIMITS = (5.0, 20.0)
OTHER_LIMITS = (3.0, 15.0)


class Statistics(Struct, frozen=True, kw_only=True):
    """Over steps: average, sample standard deviation (n-1), minimum and maximum, median, 95th percentile."""

    count: int
    average: float
    standard_deviation: float | None
    """None for one step: n-1 is 0."""
    minimum: float
    maximum: float
    median: float
    p95: float


def statistics(values: npt.NDArray[np.float64]) -> Statistics | None:
    """Return the statistics of some values, or None if there are none."""
    if not len(values):
        return None
    deviation = float(values.std(ddof=1)) if len(values) > 1 else None
    return Statistics(
        count=len(values),
        average=float(values.mean()),
        # Equal values deviate by nothing, not by what rounding leaves.
        standard_deviation=0.0 if deviation is not None and not np.ptp(values) else deviation,
        minimum=float(values.min()),
        maximum=float(values.max()),
        median=median(values),
        p95=percentile(values, 0.95),
    )


class Summary(Struct, frozen=True, kw_only=True):
    """Averages over the steps of one kind on one host (or over hosts).

    `step_time_ms` is None without steps. `percent` maps each category to its share of step time (sum over sum); for
    those in `unknown`, which the trace cannot show, it holds 0. `input_percent` is None where input is among them.
    """

    kind: str
    step_count: int
    averaged_count: int
    step_time_ms: Statistics | None = None
    category_ms: dict[str, Statistics] = {}
    percent: dict[str, float] = {}
    unknown: frozenset[str] = frozenset()
    input_percent: float | None = None
    input_class: InputClass = "unknown"

    @property
    def table(self) -> pd.DataFrame:
        """Return one row per category: milliseconds per step, and percent of step time."""
        import pandas as pd

        keys = [key for key in CATEGORIES if self.percent]
        known_ms = [None if key in self.unknown else self.category_ms[key] for key in keys]
        columns = {
            **{
                f"{time}_ms": [getattr(times, time, None) for times in known_ms]
                for time in ("average", "standard_deviation", "minimum", "maximum")
            },
            "percent": [None if key in self.unknown else self.percent[key] for key in keys],
        }
        return pd.DataFrame(
            {"category": keys, **{name: pd.Series(values, dtype=float) for name, values in columns.items()}}
        )


class Overview(Summary, frozen=True, kw_only=True):
    """Averages over the headline steps of a run.

    With several hosts, steps are averaged over them, but the input share and class are those of the host that waits
    longest: the others wait for it.
    """

    by_kind: tuple[Summary, ...]
    """Of each kind of step (train, eval), the headline kind first."""
    by_host: tuple[Summary, ...]
    worst_host: int | None
    """The host whose input share and class these are, as an index; None for a single host."""


def summarize(breakdown: Breakdown, rows: Bools | None = None, kind: str = "") -> Summary:
    """Average the steps at `rows` (default: the headline steps)."""
    rows = breakdown.steps.headline if rows is None else rows
    kind = kind or breakdown.steps.headline_kind
    duration_ps = breakdown.steps.duration_ps[rows]
    total_ps = int(duration_ps.sum())
    if not total_ps:
        return Summary(kind=kind, step_count=breakdown.steps.kinds.count(kind), averaged_count=0)
    time_ps = {key: values[rows] for key, values in breakdown.time_ps.items()}
    by_category = {key: statistics(values / PS_PER_MS) for key, values in time_ps.items()}
    percent = {key: 100.0 * int(values.sum()) / total_ps for key, values in time_ps.items()}
    input_percent = percent["input"] if breakdown.input_visible else None
    return Summary(
        kind=kind,
        step_count=breakdown.steps.kinds.count(kind),
        averaged_count=int(rows.sum()),
        step_time_ms=statistics(duration_ps / PS_PER_MS),
        category_ms={key: times for key, times in by_category.items() if times},
        percent=percent,
        unknown=breakdown.unknown,
        input_percent=input_percent,
        input_class=input_class(input_percent, None if "all_others" in breakdown.unknown else percent["all_others"]),
    )


def over_hosts(results: Results) -> Overview:
    """Return the overview of a run."""
    breakdown: Breakdown = results["steps"]
    total = summarize(breakdown)
    by_host = tuple(summarize(host) for host in results.of_hosts("steps"))
    shares = [(host.input_percent, index) for index, host in enumerate(by_host) if host.input_percent is not None]
    worst = max(shares)[1] if len(by_host) > 1 and shares else None
    fields = {**asdict(total), "by_kind": by_kind(breakdown), "by_host": by_host, "worst_host": worst}
    if worst is not None:
        fields |= {"input_percent": by_host[worst].input_percent, "input_class": by_host[worst].input_class}
    return Overview(**fields)


def by_kind(breakdown: Breakdown) -> tuple[Summary, ...]:
    """Average each kind of step (train, eval) by itself, the headline kind first."""
    steps = breakdown.steps
    kinds = dict.fromkeys((steps.headline_kind, *steps.kinds)) if len(steps) else {}
    kind_of = np.array(steps.kinds, object)
    return tuple(
        summarize(breakdown, np.asarray(breakdown.averaged & (kind_of == kind), np.bool_), kind) for kind in kinds
    )


def input_class(input_percent: float | None, others_percent: float | None) -> InputClass:
    """Classify a job: input share first; else a large share of unexplained time may hide input.

    None means that the trace does not show a share; then its absence is not concluded.
    """
    if input_percent is not None and input_percent >= INPUT_LIMITS[0]:
        return "high" if input_percent >= INPUT_LIMITS[1] else "moderate"
    if others_percent is not None and others_percent >= OTHER_LIMITS[0]:
        return "possible"
    return "none" if input_percent is not None else "unknown"


def share_class(percent: float) -> ShareClass:
    """Classify the share of kernel launch, collectives or all others."""
    return "high" if percent >= OTHER_LIMITS[1] else "moderate" if percent >= OTHER_LIMITS[0] else "none"


_OTHER_THRESHOLDS = f"moderate from {OTHER_LIMITS[0]:.0f}%, high from {OTHER_LIMITS[1]:.0f}%"
_INPUT_THRESHOLDS = f"moderate from {INPUT_LIMITS[0]:.0f}%, high from {INPUT_LIMITS[1]:.0f}%"
SEVERITIES: dict[str, Severity] = {"high": "problem", "moderate": "hint", "possible": "hint", "none": "info"}
"""How grave each class of input-bound jobs is."""


def build(results: Results) -> Section:
    """Build the section: the verdict, facts about steps, and where their time goes."""
    breakdown: Breakdown = results["steps"]
    summary: Summary = results["overview"]
    time = summary.step_time_ms
    if time is None:
        return Section("overview", "Overview", findings=(verdict_of(results),))
    steps = breakdown.steps
    batches = int(steps.batches.max())
    label = "" if summary.kind == UNLABELLED else f"{summary.kind} "
    deviation = time.standard_deviation
    notes = ["average over hosts"] if results.has_several_hosts else []
    notes += [] if deviation is None else [f"± {deviation:.3g} ms over steps"]
    average, over_hosts_note = step_time(summary), " (average over hosts)" * results.has_several_hosts
    facts = [
        Fact("average_step_time", "Average step time", average.value, "ms", ", ".join(notes), quantities=(average,)),
        Fact("minimum_step_time", "Shortest step", time.minimum, "ms"),
        Fact("maximum_step_time", "Longest step", time.maximum, "ms"),
        Fact(
            "steps",
            "Steps averaged",
            summary.averaged_count,
            "count",
            f"of {counted(summary.step_count, f'{label}step')}",
        ),
        Fact("step_source", "Steps found by", steps.source, "", f"confidence {steps.confidence}"),
    ]
    if batches > 1:
        note = f"{batches} batches in a step"
        facts.append(Fact("batch_time", "Average per batch", time.average / batches, "ms", note))
    facts += [*_rate_facts(results), *_precision_facts(breakdown)]
    return Section(
        "overview",
        "Overview",
        findings=(verdict_of(results), *_cost_of_input(results)),
        facts=tuple(facts),
        tables=present(
            CATEGORY_TABLE.build(results, title=CATEGORY_TABLE.title + over_hosts_note, bar_key="percent"),
            KINDS.build(results, title=KINDS.title + over_hosts_note),
            STEPS_BY_HOST.build(results),
        ),
    )


def _precision_facts(breakdown: Breakdown) -> list[Fact]:
    """Return the shares of device compute by precision; that of unknown precision only if there is any."""
    if not breakdown.compute_ps:
        return []
    parts_ps = {"16": breakdown.compute_16_ps, "32": breakdown.compute_32_ps, "unknown": breakdown.compute_unknown_ps}
    percents = {kind: 100.0 * part_ps / breakdown.compute_ps for kind, part_ps in parts_ps.items()}
    of_what = "of the capture's device compute"
    facts = [
        Fact(f"compute_{bits}_bit", f"Device compute {bits}-bit", percents[bits], "%", of_what) for bits in ("16", "32")
    ]
    if breakdown.compute_unknown_ps:
        note = "kernels that do not show what they compute in"
        facts.append(Fact("compute_unknown", "Device compute unknown", percents["unknown"], "%", note))
    return facts


def _cost_of_input(results: Results) -> tuple[Finding, ...]:
    """Return what input costs, where that is more than its category."""
    if "tfdata" not in results.sections:
        return ()
    from tfperf.sections.overview.input_cost import cost_finding

    return cost_finding(results)


def _cost(results: Results) -> InputCost | None:
    """Return what input costs; None also where tf.data was not analyzed, for other sections hardly need it."""
    if "tfdata" not in results.sections:
        return None
    from tfperf.sections.overview.input_cost import input_cost

    return input_cost(results)


def _rate_facts(results: Results) -> tuple[Fact, ...]:
    """Return what the section batch adds; nothing where it was not analyzed, for other sections hardly need it."""
    if "batch" not in results.sections:
        return ()
    from tfperf.sections.batch.section import rate_facts

    return rate_facts(results)


def _rate_summary(results: Results) -> dict[str, Any]:
    """Return the JSON keys about the batch: unknown where the section was not analyzed."""
    if "batch" not in results.sections:
        return {"batch_size": None, "batch_size_confidence": "none", "examples_per_second": None}
    from tfperf.sections.batch.section import rate_summary

    return rate_summary(results)


def report_summary(results: Results) -> dict[str, Any]:
    """Return the fixed JSON keys of every report."""
    breakdown: Breakdown = results["steps"]
    steps, summary = breakdown.steps, results["overview"]
    cost = _cost(results)
    return {
        "step_count": len(steps),
        "averaged_step_count": summary.averaged_count,
        "step_kind": summary.kind if len(steps) else None,
        "step_source": steps.source,
        "step_confidence": steps.confidence,
        "step_explanation": steps.explanation,
        "step_notes": list(steps.notes),
        "step_time_ms": _times(summary),
        "input_percent": summary.input_percent,
        "input_class": summary.input_class,
        "input_cost_percent": {"low": getattr(cost, "low", None), "high": getattr(cost, "high", None)},
        "verdict": verdict_of(results).text,
        "category_percent": {key: breakdown.known(key, summary.percent.get(key)) for key in CATEGORIES},
        "input_wait_percent": breakdown.known("input_wait", summary.percent.get("input_wait")),
        "host_to_device_percent": breakdown.known("host_to_device", summary.percent.get("host_to_device")),
        "kinds": {
            kind.kind: {
                "step_count": kind.step_count,
                "averaged_step_count": kind.averaged_count,
                "step_time_ms": _times(kind),
                "input_percent": kind.input_percent,
                "input_class": kind.input_class,
            }
            for kind in summary.by_kind
        },
        "worst_host": results.hosts[summary.worst_host].host if summary.worst_host is not None else None,
        **_rate_summary(results),
    }


def _times(summary: Summary) -> dict[str, float | None]:
    keys = ("average", "standard_deviation", "minimum", "maximum", "median", "p95")
    return {key: getattr(summary.step_time_ms, key, None) for key in keys}


def verdict_of(results: Results) -> Finding:
    """Return the verdict on a run; of several hosts, it is about the one that waits longest for input."""
    summary: Overview = results["overview"]
    if summary.worst_host is None:
        return verdict(summary, results["steps"])
    return verdict(summary.by_host[summary.worst_host], results["steps"], results.hosts[summary.worst_host].host)


def verdict(summary: Summary, breakdown: Breakdown, host: str = "") -> Finding:
    """Say in one sentence whether the job is input-bound. `host` names the worst of several hosts."""
    if summary.step_time_ms is None:
        named = ", or name the events that are steps with --step-marker NAME" * (breakdown.attribution == "corrected")
        return Finding(
            "input_unknown",
            "problem",
            f"Cannot tell whether the job is input-bound: no step time was measured ({breakdown.steps.explanation}).",
            f"profile at least five steps of a running job{named}",
        )
    of_input, of_others = (share_of_step(summary, part, host) for part in ("input", "all_others"))
    share = f"{of_input} of the step time goes to input"
    share += f" on host {host}" if host else ""
    others = f"{of_others} is in 'All others' ({_OTHER_THRESHOLDS})"
    texts = {
        "high": f"HIGHLY input-bound: {share} ({_INPUT_THRESHOLDS}).",
        "moderate": f"MODERATELY input-bound: {share} ({_INPUT_THRESHOLDS}).",
        "possible": f"POSSIBLY input-bound: {share} ({_INPUT_THRESHOLDS}), but {others}: Python work or I/O?",
        "none": f"NOT input-bound: {share} ({_INPUT_THRESHOLDS}).",
        "unknown": "Cannot tell whether the job is input-bound: the trace does not show where its input comes from.",
    }
    text = texts[summary.input_class]
    if summary.input_percent is None and summary.input_class == "possible":
        text = f"POSSIBLY input-bound: the trace does not show where input comes from, and {others}."
    stated = {"unknown": (), "possible": (of_input, of_others)}.get(summary.input_class, (of_input,))
    quantities = tuple(quantity for quantity in stated if quantity.value is not None)
    return Finding(
        f"input_{summary.input_class}", SEVERITIES.get(summary.input_class, "hint"), text, quantities=quantities
    )
