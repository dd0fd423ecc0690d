"""Roofline: utilization of the device peaks, and the bound of each op: compute, memory or latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfperf.analysis.registry import Results, SectionSpec, TableSpec
from tfperf.base.units import PS_PER_MS, percent
from tfperf.report.model import Column, Data, Ranked
from tfperf.sections.xla import LAYER, PROGRAM_ID, WORK_COLUMNS, program_ids, work_cells
from tfperf.trace.known_stats import DEVICE_OPS

if TYPE_CHECKING:
    from tfperf.sections.roofline.analysis import Roofline

_COLUMNS = (
    Column("op", "Op", str, "", "name of the HLO op or TensorFlow op"),
    Column("shapes", "Inputs", str, "", "types and shapes of the inputs of a TensorFlow op", level="data"),
    Column("module", "Program", str, "", "name of the XLA program", level="data"),
    PROGRAM_ID,
    LAYER,
    Column("runs", "Runs", int, "count", "number of runs, summed over devices", level="data"),
    Column("total_ms", "Total", float, "ms", "time of all runs", level="data"),
    Column("percent", "Time", float, "%", "share of device time"),
    *(WORK_COLUMNS[key] for key in ("precision", "intensity", "tflops_per_second", "compute_percent")),
    *(WORK_COLUMNS[key] for key in ("gb_per_second", "memory_percent", "roofline_percent", "bound")),
)


def _ops(results: Results) -> Data | None:
    roofline: Roofline | None = results["roofline"]
    if roofline is None or not roofline.ops:
        return None
    rows = roofline.ops
    return {
        "op": [row.op.op for row in rows],
        "shapes": [getattr(row.op, "shapes", None) for row in rows],
        "module": [row.op.module or None for row in rows],
        "program_id": program_ids([row.op.program_id for row in rows]),
        "layer": [row.op.layer or None for row in rows],
        "runs": [row.op.runs for row in rows],
        "total_ms": [row.work.time_ps / PS_PER_MS for row in rows],
        "percent": [percent(row.work.time_ps, roofline.whole_ps) for row in rows],
        "precision": [row.work.precision for row in rows],
        **work_cells([row.work for row in rows], [row.judged for row in rows]),
    }


ROOFLINE_OPS = TableSpec(
    name="roofline_ops",
    title="Work and peaks, by time",
    row="HLO ops and TensorFlow ops with known work",
    details=(
        "One row per HLO op, and per TensorFlow op and input shapes, with known operations or bytes. Bytes are an "
        "upper bound, so more than 100% of the bandwidth is possible if caches serve reads. "
        "[Roofline](roofline.md) has the rules."
    ),
    columns=_COLUMNS,
    data=_ops,
    name_key="op",
    ranked=Ranked("total_ms"),
)
TABLES = (ROOFLINE_OPS,)


SECTION = SectionSpec(
    name="roofline",
    title="Roofline",
    rests_on=("steps", "xla"),
    analyze="tfperf.sections.roofline.analysis:analyze",
    combine="tfperf.sections.roofline.analysis:combine",
    combines_in_tree=True,
    derive="tfperf.sections.roofline.analysis:derive",
    shorten="tfperf.sections.roofline.analysis:shorten",
    build="tfperf.sections.roofline.section:build",
    stats=DEVICE_OPS | {"equation", "shape"},
    tables=TABLES,
    without_device="No roofline: the profile has no device events, and the peaks of hosts are unknown.",
)
