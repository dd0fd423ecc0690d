"""Overview: the average step, and whether the job is input-bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfperf.analysis.registry import Results, SectionSpec, TableSpec
from tfperf.report.model import Column, Data, Ranked

if TYPE_CHECKING:
    from tfperf.sections.overview.summary import Summary

_TIMES = (
    Column("steps", "Steps", int, "count", "steps of this kind"),
    Column("averaged_steps", "Averaged", int, "count", "averaged steps"),
    Column("average_ms", "Average", float, "ms", "average step time"),
    Column("standard_deviation_ms", "Std dev", float, "ms", "sample standard deviation"),
    Column("minimum_ms", "Min", float, "ms", "shortest step"),
    Column("maximum_ms", "Max", float, "ms", "longest step"),
    Column("input_percent", "Input", float, "%", "share of step time spent on input"),
    Column("input_class", "Input-bound", str, "", "high, moderate, possible, none or unknown"),
)


def _summaries(results: Results, key: str, named: Sequence[tuple[str, Summary]]) -> Data | None:
    """Return one row for each of several summaries; None for one, or where no step time was measured."""
    if len(named) < 2 or results["overview"].step_time_ms is None:
        return None
    summaries = [summary for _, summary in named]
    keys = ("average", "standard_deviation", "minimum", "maximum")
    return {
        key: [name for name, _ in named],
        "steps": [summary.step_count for summary in summaries],
        "averaged_steps": [summary.averaged_count for summary in summaries],
        **{f"{key}_ms": [getattr(summary.step_time_ms, key, None) for summary in summaries] for key in keys},
        "input_percent": [summary.input_percent for summary in summaries],
        "input_class": [summary.input_class for summary in summaries],
    }


CATEGORY_TABLE = TableSpec(
    name="categories",
    title="Step time by category",
    row="categories of an average step",
    details="The averages of the overview: one row per category, over the averaged steps of the main kind.",
    columns=(
        Column("category", "Category", str, "", "category of step time"),
        Column("average_ms", "Average", float, "ms", "mean over the averaged steps"),
        Column("standard_deviation_ms", "Std dev", float, "ms", "sample standard deviation over steps"),
        Column("percent", "Share", float, "%", "sum over steps / sum of step times"),
        Column("meaning", "Meaning", str, "", "definition of the category"),
    ),
    data=lambda results: results["overview"].columns() if results["overview"].step_time_ms else None,
    name_key="category",
    about_steps=True,
)
KINDS = TableSpec(
    name="kinds",
    title="By kind of step",
    row="kinds of steps, if there are several",
    details="One row per kind of step, such as train and eval. Only if there are several kinds.",
    columns=(Column("kind", "Kind", str, "", "kind of step"), *_TIMES),
    data=lambda results: _summaries(results, "kind", [(each.kind, each) for each in results["overview"].by_kind]),
    name_key="kind",
    about_steps=True,
)
STEPS_BY_HOST = TableSpec(
    name="steps_by_host",
    title="By host",
    row="step times of each host, if there are several",
    details="One row per host. Only with several hosts.",
    columns=(Column("host", "Host", str, "", "name of the trace file"), *_TIMES),
    data=lambda results: _summaries(
        results,
        "host",
        [(host.host, each) for host, each in zip(results.hosts, results["overview"].by_host, strict=True)],
    ),
    name_key="host",
    ranked=Ranked("input_percent", each="hosts"),
    about_steps=True,
    over_hosts=True,
)
TABLES = (CATEGORY_TABLE, KINDS, STEPS_BY_HOST)


SECTION = SectionSpec(
    name="overview",
    title="Overview",
    rests_on=("steps", "batch"),
    derive="tfperf.sections.overview.summary:over_hosts",
    build="tfperf.sections.overview.section:build",
    summarize="tfperf.sections.overview.section:report_summary",
    tables=TABLES,
)
