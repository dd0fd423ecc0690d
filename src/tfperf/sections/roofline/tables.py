"""The table of the roofline: instructions and ops with known work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfperf.report.model import Column, Data, Ranked
from tfperf.sections.registry import TableSpec, percent
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    from tfperf.sections.results import Results
    from tfperf.sections.roofline.analysis import Roofline

_COLUMNS = (
    Column("op", "Op", str, "", "name of the instruction of XLA, or of the op of TensorFlow"),
    Column("shapes", "Inputs", str, "", "types and shapes of the inputs of an op of TensorFlow", level="data"),
    Column("module", "Program", str, "", "name of the program of XLA", level="data"),
    Column("program_id", "Id", int, "", "id of the program in the profile", level="data"),
    Column("layer", "Layer", str, "", "layer of the model, by the name of the op", level="data"),
    Column("runs", "Runs", int, "count", "how often it ran, over all devices", level="data"),
    Column("total_ms", "Total", float, "ms", "time of all runs", level="data"),
    Column("percent", "Time", float, "%", "share of device time"),
    Column("precision", "Numbers", str, "", "numbers whose peak counts", level="data"),
    Column("intensity", "Flop/byte", float, "", "operations per byte"),
    Column("tflops_per_second", "TFLOP/s", float, "", "10^12 operations per second"),
    Column("compute_percent", "Of peak", float, "%", "operations per second / peak for these numbers"),
    Column("gb_per_second", "GB/s", float, "", "10^9 bytes per second"),
    Column("memory_percent", "Of bandw.", float, "%", "bytes per second / bandwidth of the memory"),
    Column("roofline_percent", "Of roofline", float, "%", "operations per second / what the intensity allows", "data"),
    Column("bound", "Bound by", str, "", "compute, memory, or latency where both are below 30 %; else unknown"),
)


def _ops(results: Results) -> Data | None:
    roofline: Roofline | None = results["roofline"]
    if roofline is None or not roofline.ops:
        return None
    rows = roofline.ops
    rates = ("intensity", "tflops_per_second", "gb_per_second")
    shares = ("compute_percent", "memory_percent", "roofline_percent", "bound")
    return {
        "op": [row.op.op for row in rows],
        "shapes": [getattr(row.op, "shapes", None) for row in rows],
        "module": [row.op.module or None for row in rows],
        "program_id": [None if row.op.program_id == -1 else row.op.program_id for row in rows],
        "layer": [row.op.layer or None for row in rows],
        "runs": [row.op.runs for row in rows],
        "total_ms": [row.work.time_ps / PS_PER_MS for row in rows],
        "percent": [percent(row.work.time_ps, roofline.whole_ps) for row in rows],
        "precision": [row.work.precision for row in rows],
        **{key: [rounded(getattr(row.work, key)) for row in rows] for key in rates},
        **{key: [getattr(row.judged, key) for row in rows] for key in shares},
    }


def rounded(value: float | None) -> float | None:
    """Return a rate with three digits: neither operations nor bytes are known better."""
    return None if value is None else float(f"{value:.3g}")


ROOFLINE_OPS = TableSpec(
    name="roofline_ops",
    title="Work and peaks, by time",
    row="instructions of XLA and ops of TensorFlow whose work is known",
    details=(
        "One row per instruction of XLA, and per op of TensorFlow and the shapes of its inputs, of which operations or "
        "bytes are known. Bytes are an upper bound, so more "
        "than 100 % of the bandwidth is possible where caches serve. [Roofline](roofline.md) has the rules."
    ),
    columns=_COLUMNS,
    data=_ops,
    name_key="op",
    ranked=Ranked("total_ms"),
)
TABLES = (ROOFLINE_OPS,)
