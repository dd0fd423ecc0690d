"""The table of what shows the batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfperf.analysis.registry import TableSpec
from tfperf.report.model import Column, Data

if TYPE_CHECKING:
    from tfperf.analysis.results import Results

_COLUMNS = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column("source", "Source", str, "", "capture, elements, batch stage, copied input, op outputs or marker"),
    Column("examples", "Examples", int, "count", "examples that it shows"),
    Column("counts", "Counts", str, "", "whether these are of one replica, or of all on all workers"),
    Column("shown_by", "Shown by", str, "", "what shows it"),
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
    title="What shows the batch size",
    row="what shows how many examples a batch has",
    details="One row for each thing in the trace that shows a batch size. Rows that disagree make it unknown.",
    columns=_COLUMNS,
    data=_evidence,
    name_key="source",
    about_steps=True,
)
TABLES = (BATCH_EVIDENCE,)
