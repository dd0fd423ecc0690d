"""Batch size: examples per step, and the evidence for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tfperf.analysis.registry import SectionSpec, TableSpec, present
from tfperf.base.units import counted, format_number
from tfperf.report.model import Column, Data, Fact, Level, Section, Table, at_levels
from tfperf.sections.wall import DIFFERENT, wall_step_ms
from tfperf.trace.known_stats import BATCH

if TYPE_CHECKING:
    from tfperf.analysis.registry import Results
    from tfperf.sections.batch.analysis import Batch as Batch

_US_PER_MS = 1000.0
_MOST_EVIDENCE = 10


def build(results: Results) -> Section:
    """Build the section: batch size, replicas and batches per step, with the evidence."""
    batch = results["batch"]
    facts = (
        Fact("batch_size", "Batch size", batch.size, "count", f"{batch.confidence} confidence" * bool(batch.size)),
        Fact("per_replica_batch_size", "Per replica", batch.per_replica, "count"),
        Fact("replicas", "Replicas", batch.replicas, "count"),
        Fact("batches_per_step", "Batches per step", batch.batches_per_step, "count"),
    )
    host: Level = "brief" if results.has_several_hosts else "data"
    table = BATCH_EVIDENCE.build(results, columns=at_levels(BATCH_EVIDENCE.columns, {"host": host}))
    table = table and _without_repeats(table)
    notes = (f"Batch size is unknown: {batch.reason}.",) if batch.reason else ()
    return Section("batch", "Batch size", level="full", facts=facts, tables=present(table), notes=notes)


def _without_repeats(table: Table) -> Table:
    """Return the table with one visible row for hosts with the same evidence."""
    shown = zip(*(table.data[column.key] for column in table.columns if column.key != "host"), strict=True)
    first: dict[tuple[object, ...], int] = {}
    for row, evidence in enumerate(shown):
        first.setdefault(evidence, row)
    rows = tuple(first.values())[:_MOST_EVIDENCE]
    more = len(table) - len(rows)
    note = f"{counted(more, 'more row')} in JSON and CSV, mostly for hosts with the same values." if more else ""
    return replace(table, rows_for_people=rows, note_for_people=note)


def time_per_example_ms(results: Results) -> float | None:
    """Return the average step time per example, or None if the step time or its examples are unknown."""
    time, examples = results["overview"].step_time_ms, results["batch"].examples_per_step
    return time.average / examples if time is not None and examples else None


def examples_per_second(results: Results) -> float | None:
    """Return the examples per second of wall time; within steps if the wall time of a step is unknown."""
    examples, example_ms = results["batch"].examples_per_step, time_per_example_ms(results)
    step_ms = wall_step_ms(results["wall"]) if "wall" in results.sections else None
    if examples and example_ms and step_ms:
        return 1000.0 * examples / step_ms
    return 1000.0 / example_ms if example_ms else None


def rate_facts(results: Results) -> tuple[Fact, ...]:
    """Return the facts for the overview: batch size, examples per second, time per example; empty if not analyzed."""
    batch = results["batch"] if "batch" in results.sections else None
    if batch is None or batch.size is None:
        return ()
    example_ms = time_per_example_ms(results)
    replicas = f"{batch.per_replica} per replica, {batch.replicas} replicas" if (batch.replicas or 1) > 1 else ""
    note = "; ".join(filter(None, (f"{batch.confidence} confidence", replicas)))
    size = Fact("batch_size", "Batch size", batch.size, "count", note)
    if not example_ms:
        return (size,)
    per_second = examples_per_second(results)
    is_wall = per_second is not None and abs(per_second * example_ms / 1000.0 - 1.0) > DIFFERENT
    within = f"of wall time; {format_number(1000.0 / example_ms)} within steps" * is_wall
    rate = Fact("examples_per_second", "Examples per second", per_second, "count", within)
    if example_ms < 1:
        return size, rate, Fact("time_per_example", "Time per example", example_ms * _US_PER_MS, "us")
    return size, rate, Fact("time_per_example", "Time per example", example_ms, "ms")


def rate_summary(results: Results) -> dict[str, Any]:
    """Return the JSON keys about the batch; unknown if it was not analyzed."""
    if "batch" not in results.sections:
        return {"batch_size": None, "batch_size_confidence": "none", "examples_per_second": None}
    batch = results["batch"]
    return {
        "batch_size": batch.size,
        "batch_size_confidence": batch.confidence,
        "examples_per_second": examples_per_second(results),
    }


_COLUMNS = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column("source", "Source", str, "", "capture, elements, batch stage, copied input, op outputs or marker"),
    Column("examples", "Examples", int, "count", "batch size that it shows"),
    Column("counts", "Counts", str, "", "whether it is the size of one replica, or of all replicas on all workers"),
    Column("shown_by", "Shown by", str, "", "evidence"),
)


def _evidence(results: Results) -> Data | None:
    rows = [(host.host, each) for host in results["batch"].hosts for each in host.evidence]
    if not rows:
        return None
    return {
        "host": [host for host, _ in rows],
        "source": [each.source for _, each in rows],
        "examples": [each.examples for _, each in rows],
        "counts": ["all replicas" if each.is_of_all else "one replica" for _, each in rows],
        "shown_by": [each.text for _, each in rows],
    }


BATCH_EVIDENCE = TableSpec(
    name="batch_evidence",
    title="Evidence for the batch size",
    row="evidence for the batch size",
    details="One row per item in the profile that shows a batch size. If rows disagree, the batch size is unknown.",
    columns=_COLUMNS,
    data=_evidence,
    name_key="source",
    about_steps=True,
)
TABLES = (BATCH_EVIDENCE,)


SECTION = SectionSpec(
    name="batch",
    title="Batch size",
    rests_on=("steps",),
    analyze="tfperf.sections.batch.analysis:analyze",
    combine="tfperf.sections.batch.analysis:combine",
    stats=BATCH,
    build="tfperf.sections.batch:build",
    tables=TABLES,
)
