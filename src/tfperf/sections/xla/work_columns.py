"""What the tables `hlo_ops` and `roofline_ops` say alike: which program and layer, work, rates and what bounds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tfperf.formats.wire.event_columns import unsigned
from tfperf.report.model import Column, Data

if TYPE_CHECKING:
    from tfperf.sections.roofline.bounds import Judged, Work
    from tfperf.sections.xla.op_events import Place

PROGRAM_ID = Column("program_id", "Id", int, "", "id of the program in the profile", level="data", is_id=True)
LAYER = Column("layer", "Layer", str, "", "layer of the model, by the name of the op", level="data")
_COLUMNS = (
    Column("precision", "Numbers", str, "", "numbers whose peak counts", level="data"),
    Column("intensity", "Flop/byte", float, "", "operations per byte"),
    Column("tflops_per_second", "TFLOP/s", float, "", "10^12 operations per second"),
    Column("gb_per_second", "GB/s", float, "", "10^9 bytes per second"),
    Column("compute_percent", "Of peak", float, "%", "operations per second / peak for these numbers"),
    Column("memory_percent", "Of bandw.", float, "%", "bytes per second / bandwidth of the memory"),
    Column("roofline_percent", "Of roofline", float, "%", "operations per second / what the intensity allows", "data"),
    Column("bound", "Bound by", str, "", "compute, memory, or latency where both are below 30 %; else unknown"),
)
WORK_COLUMNS: Mapping[str, Column] = {column.key: column for column in _COLUMNS}
_RATES = ("intensity", "tflops_per_second", "gb_per_second")
_JUDGED = ("compute_percent", "memory_percent", "roofline_percent", "bound")


def work_cells(works: Sequence[Work | None], judged: Sequence[Judged]) -> Data:
    """Return the cells of rates and bounds; None where the work of a row is not known."""
    return {
        **{key: [None if work is None else _rounded(getattr(work, key)) for work in works] for key in _RATES},
        **{key: [getattr(each, key) for each in judged] for key in _JUDGED},
    }


def main_memory(place: Place | None) -> str:
    """Return the memory where programs have their data unless they say otherwise, by what they run on."""
    return {"tpu": "HBM", "gpu": "device memory"}.get(place or "", "memory")


def program_ids(ids: Sequence[int | None]) -> list[int | None]:
    """Return the ids of programs as cells: without a sign, up to 2^64 - 1."""
    return [None if each is None else unsigned(each) for each in ids]


def _rounded(value: float | None) -> float | None:
    """Return a rate with three digits: neither operations nor bytes are known better."""
    return None if value is None else float(f"{value:.3g}")
