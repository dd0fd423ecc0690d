"""Causes in what devices compute: layouts that are converted, memory that bounds, work that is too small."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import TYPE_CHECKING, NamedTuple

from tfperf.base.units import PS_PER_MS, counted, format_ms, format_percent, without_middle
from tfperf.formats.hlo.products import ALIGNED_BYTES, off_multiple, rounded_up
from tfperf.report.model import Quantity
from tfperf.sections.diagnosis.case import LEAST_PERCENT, LONGEST_NAME, Case, in_categories
from tfperf.sections.diagnosis.cause import Action, Cause, Evidence, Range
from tfperf.sections.roofline.bounds import LOW_PERCENT
from tfperf.trace.device.kernel_details import short_name

if TYPE_CHECKING:
    from tfperf.sections.kernels.analysis import Kernels
    from tfperf.sections.roofline.analysis import Roofline, RooflineOp

_CONVERSION = re.compile(r"transpose|nchw.*nhwc|nhwc.*nchw|swapdimension", re.IGNORECASE)
_INSERTED = "LayoutOptimizer"
_CONVOLUTION = re.compile(r"conv(?!ert)", re.IGNORECASE)


class _Taken(NamedTuple):
    """What some kernels take of all kernel time: a share in percent, and the names of those, the longest first."""

    percent: float
    time_ps: int
    names: tuple[str, ...]


def layout_conversion(case: Case) -> Cause | None:
    """Judge kernels that only bring arrays of convolutions into another layout."""
    if not case.results.has_device or not case.is_headline:
        return None
    kernels: Kernels = case.results["kernels"]
    rows = [(_name_of(kernels, row), row) for row in range(len(kernels))]
    convolutions = {row for name, row in rows if _is_convolution(kernels, row)}
    beside = {_place_of(kernels, row) for row in convolutions}
    conversions = [
        (name, row)
        for name, row in rows
        if row not in convolutions and _is_conversion(kernels, row) and _is_beside(kernels, row, beside)
    ]
    if not convolutions:
        return None
    taken, convolving = _taken(kernels, conversions), _taken(kernels, [rows[row] for row in sorted(convolutions)])
    cost = _claim(case, taken.percent)
    if cost is None:
        return None
    others = len(taken.names) - 1
    what = without_middle(taken.names[0], LONGEST_NAME) + (f" and {others} more take" if others else " takes")
    took, convolved = (f"{format_ms(each.time_ps / PS_PER_MS)} ms" for each in (taken, convolving))
    return case.cause(
        "layout_conversion",
        "Converting layouts around convolutions",
        cost,
        f"{what} {took} of the capture, convolutions {convolved}",
        actions=("keep_layout",),
        rests_on=(
            in_categories("device_compute"),
            Evidence("kernels", "kernels_by_name", _kernel_of(kernels, conversions)),
        ),
    )


def _name_of(kernels: Kernels, row: int) -> str:
    kernel = kernels.kernels[row]
    return kernel.op.hlo_op or kernel.op.name or short_name(kernel.name)


def _kernel_of(kernels: Kernels, rows: list[tuple[str, int]]) -> str:
    return short_name(kernels.kernels[rows[0][1]].name)


def _is_conversion(kernels: Kernels, row: int) -> bool:
    """Tell whether a kernel only changes a layout: by the name of its op, or by its own."""
    kernel = kernels.kernels[row]
    texts = (kernel.op.hlo_op or kernel.op.name.rpartition("/")[2], short_name(kernel.name))
    return any(map(_CONVERSION.search, texts))


def _place_of(kernels: Kernels, row: int) -> str:
    """Return the program of a kernel that XLA compiled, else the name scope of its op."""
    op = kernels.kernels[row].op
    return op.hlo_module if op.hlo_op else op.name.rpartition("/")[0]


def _is_beside(kernels: Kernels, row: int, convolutions: Set[str]) -> bool:
    """Tell whether a conversion is one for convolutions: inserted by TensorFlow's optimizer, or in their place."""
    return _INSERTED in kernels.kernels[row].op.name or _place_of(kernels, row) in convolutions


def _is_convolution(kernels: Kernels, row: int) -> bool:
    """Tell whether a kernel is one of a convolution: a call into the library, or an op of that type."""
    op = kernels.kernels[row].op
    if op.hlo_op:
        return bool(_CONVOLUTION.search(op.hlo_op)) and not _CONVERSION.search(op.hlo_op)
    return bool(_CONVOLUTION.search(op.type))


def _taken(kernels: Kernels, rows: Iterable[tuple[str, int]]) -> _Taken:
    times: dict[str, int] = {}
    for name, row in rows:
        times[name] = times.get(name, 0) + int(kernels.total_ps[row])
    whole = sum(times.values())
    names = tuple(sorted(times, key=lambda name: -times[name]))
    return _Taken(100.0 * whole / kernels.whole_ps if kernels.whole_ps else 0.0, whole, names)


def _claim(case: Case, percent_of_kernels: float) -> Range | None:
    """Blame a share of the time of kernels for what is left of device compute; None if that is too little."""
    share = min(percent_of_kernels / 100.0 * case.share("device_compute"), case.ledger.left("device_compute"))
    return case.ledger.claim("device_compute", most=share) if share >= LEAST_PERCENT else None


def memory_bound(case: Case) -> Cause | None:
    """Judge ops that move data faster than they compute with it: no products, and bound by memory."""
    rows = _bound(case, "memory")
    cost = _claim_of(case, rows)
    if cost is None:
        return None
    of_bandwidth, quantities = _of_bandwidth(case, rows)
    return case.cause(
        "memory_bound",
        "Moving data in the device's memory",
        cost,
        f"{_first_of(rows)}: little is computed for each byte{of_bandwidth}",
        actions=(_fewer_bytes(case, rows, cost),),
        rests_on=_row_of(rows),
        confidence="medium",
        quantities=quantities,
    )


def _of_bandwidth(case: Case, rows: list[RooflineOp]) -> tuple[str, tuple[Quantity, ...]]:
    """Return which share of the bandwidth of a TPU ops reach, on average over their time: a clause, and its number."""
    known = [(row.work.time_ps, row.judged.memory_percent) for row in rows if row.judged.memory_percent is not None]
    whole = sum(time_ps for time_ps, _ in known)
    if not case.program.is_tpu or not whole:
        return "", ()
    reached = Quantity("bandwidth", sum(time_ps * share for time_ps, share in known) / whole, of=rows[0].op.op)
    return f", at {reached} of the bandwidth", (reached,)


_MULTIPLES = {"fp16": ALIGNED_BYTES // 2, "bf16": ALIGNED_BYTES // 2}
"""By precision: what tensor cores want. Products in float32 need not run on them, and 16 bit comes first then."""
_TPU_MULTIPLES = {"M": 8, "N": 128, "K": 128, "input channels": 128, "output channels": 128}
"""Arrays of a TPU are made of tiles of 8 x 128 numbers, and its matrix units multiply 128 x 128 or more at a time."""


def unaligned_shapes(case: Case) -> Cause | None:
    """Compare matrix products with unaligned sizes to those with aligned sizes.

    On a GPU, that is about products in 16 bit. A TPU multiplies all on its matrix units.
    """
    aligned, rows = _by_alignment(case)
    cost = _claim_of(case, rows)
    if cost is None:
        return None
    reached, others = _roofline_percent(rows), _roofline_percent(aligned)
    first = rows[0]
    odd = _odd_sizes(case, first)
    text = ", ".join(f"{name} = {size} (to {rounded_up(size, multiple)})" for name, (size, multiple) in odd.items())
    compared = f"{format_percent(reached)}% of the roofline, against {format_percent(others)}% with aligned sizes"
    most = 1.0 - reached / others
    return case.cause(
        "unaligned_shapes",
        "Computing products of unaligned sizes",
        cost,
        f"{_first_of(rows)}: {text}; {compared}",
        actions=(case.action("aligned_sizes", cost, Range(0.0, most)),),
        rests_on=_row_of(rows),
        confidence="medium",
    )


def _by_alignment(case: Case) -> tuple[list[RooflineOp], list[RooflineOp]]:
    """Return products of aligned and of unaligned sizes; the second are empty if they do as well as the first."""
    roofline: Roofline | None = case.results["roofline"]
    if roofline is None or not case.is_headline or not roofline.whole_ps:
        return [], []
    rows = [row for row in roofline.ops if row.op.sizes and _reached(row)]
    if case.program.is_tpu:
        rows = [row for row in rows if row.op.runs_in_steps]
    else:
        rows = [row for row in rows if row.work.precision in _MULTIPLES]
    unaligned = [row for row in rows if _odd_sizes(case, row)]
    aligned = [row for row in rows if not _odd_sizes(case, row)]
    if not aligned or not unaligned or _roofline_percent(unaligned) >= _roofline_percent(aligned):
        return aligned, []
    return aligned, unaligned


def _odd_sizes(case: Case, row: RooflineOp) -> dict[str, tuple[int, int]]:
    """Return the sizes of a product that are no multiple of what matrix units want, each with that."""
    if not case.program.is_tpu:
        multiple = _MULTIPLES[str(row.work.precision)]
        return {name: (size, multiple) for name, size in off_multiple(row.op.sizes, multiple).items()}
    multiples = ((name, size, _TPU_MULTIPLES.get(name, 1)) for name, size in row.op.sizes.items())
    return {name: (size, multiple) for name, size, multiple in multiples if off_multiple({name: size}, multiple)}


def _reached(row: RooflineOp) -> float:
    return row.judged.roofline_percent or 0.0


def _roofline_percent(rows: Iterable[RooflineOp]) -> float:
    """Return the share of the roofline that ops reach on average over their time."""
    times = [(row.work.time_ps, min(_reached(row), 100.0)) for row in rows]
    whole = sum(time_ps for time_ps, _ in times)
    return sum(time_ps * reached for time_ps, reached in times) / whole if whole else 0.0


def low_utilisation(case: Case) -> Cause | None:
    """Judge products of matrices and convolutions that come near neither peak: shapes too small for the device."""
    _, unaligned = _by_alignment(case)
    named = {id(row) for row in unaligned}
    rows = [row for row in _bound(case, "latency") if id(row) not in named]
    cost = _claim_of(case, rows)
    if cost is None:
        return None
    return case.cause(
        "low_utilisation",
        "Computing small products",
        cost,
        f"{_first_of(rows)}: far from both peaks",
        actions=(_larger_products(case, rows, cost),),
        rests_on=_row_of(rows),
        confidence="medium",
    )


def _bound(case: Case, bound: str) -> list[RooflineOp]:
    """Return the ops with this bound: products if it is latency, else what is no product and converts no layout."""
    roofline: Roofline | None = case.results["roofline"]
    if roofline is None or not case.is_headline or not roofline.whole_ps:
        return []
    is_product = bound == "latency"
    rows = (row for row in roofline.ops if row.judged.bound == bound and bool(row.op.matrix_flops) == is_product)
    rows = (row for row in rows if row.op.runs_in_steps or not case.program.is_tpu)
    return [row for row in rows if not _CONVERSION.search(row.op.op)]


def _claim_of(case: Case, rows: list[RooflineOp]) -> Range | None:
    """Blame what ops take of device compute; of a TPU, whose ops wait too, as much as they take in the steps."""
    if not rows:
        return None
    if not case.program.is_tpu:
        return _claim(case, 100.0 * _time_ps(rows) / case.results["roofline"].whole_ps)
    in_steps_ps = sum(row.work.time_ps * row.op.runs_in_steps / row.op.runs for row in rows)
    share = min(100.0 * in_steps_ps / max(case.results["xla"].step_ps, 1), case.ledger.left("device_compute"))
    return case.ledger.claim("device_compute", most=share) if share >= LEAST_PERCENT else None


def _time_ps(rows: Iterable[RooflineOp]) -> int:
    return sum(row.work.time_ps for row in rows)


def _first_of(rows: list[RooflineOp]) -> str:
    return f"{counted(len(rows), 'op')}, first {_place(rows[0])}"


def _row_of(rows: list[RooflineOp]) -> tuple[Evidence]:
    return (Evidence("roofline", "roofline_ops", rows[0].op.op),)


_WIDE = re.compile(r"\b(?:f32|f64|s64|u64|c64|c128|float|double|int64|complex\d+)\[")


def _fewer_bytes(case: Case, rows: list[RooflineOp], cost: Range) -> Action | None:
    """Return the advice to move fewer bytes: 16 bit halves those of 32-bit numbers, which take so long at most."""
    wide = [row for row in rows if not row.op.array_types or _WIDE.search(row.op.array_types)]
    if not wide:
        return case.without_estimate("fewer_bytes")
    part = _time_ps(wide) / _time_ps(rows)
    text = f"{format_percent(100.0 * part)}% of that is in ops on 32-bit numbers; 16 bit halves their bytes at most"
    return case.action("fewer_bytes", cost, Range(0.0, 0.5 * part), text)


def _larger_products(case: Case, rows: list[RooflineOp], cost: Range) -> Action | None:
    """Return the advice to make products larger, until they are not small any more."""
    roofs = [row.judged.roofline_percent for row in rows]
    known = [(row.work.time_ps, roof / LOW_PERCENT) for row, roof in zip(rows, roofs, strict=True) if roof is not None]
    if len(known) < len(rows):
        return case.without_estimate("larger_products")
    parts = [1.0] * len(rows) if not case.program.is_tpu else [_part_of_product(row) for row in rows]
    gains = (part * time_ps * (1.0 - min(roof, 1.0)) for part, (time_ps, roof) in zip(parts, known, strict=True))
    most = sum(gains) / _time_ps(rows)
    text = (
        f"for as many examples as now; at {LOW_PERCENT:.0f} % of the roofline, from where on they are not small, they "
        f"take {format_percent(100.0 * most)}% less"
    )
    text += "; of a fusion, half of its time" * (min(parts) < 1.0)
    return case.action("larger_products", cost, Range(0.0, most), text)


def _part_of_product(row: RooflineOp) -> float:
    """Return which share of the time of an instruction of a TPU its product takes: of a fusion, that is not known."""
    return 0.5 if "fusion" in getattr(row.op, "category", "") else 1.0


def _place(row: RooflineOp) -> str:
    """Return where an instruction is: its name, and the layer or the line if they are known."""
    where = row.op.layer or row.op.source
    name = without_middle(row.op.op, LONGEST_NAME)
    return f"{name} ({without_middle(where, LONGEST_NAME)})" if where else name


def time_in_16_bit(roofline: Roofline | None) -> float | None:
    """Return which share (0 to 1) of their time products in float32 must take in 16 bit at least, by the roofline.

    None: no work of such products is known, or not all peaks.
    """
    if roofline is None or not roofline.peaks.bytes_per_second:
        return None
    peaks = [roofline.peaks.flops_per_second(precision) for precision in ("fp16", "bf16")]
    peak, bandwidth = max((each for each in peaks if each), default=None), roofline.peaks.bytes_per_second
    rows = [row for row in roofline.ops if row.op.matrix_flops and row.work.precision == "fp32" and row.work.bytes]
    now_ps = sum(row.work.time_ps for row in rows)
    if not now_ps or peak is None:
        return None
    least = sum(max((row.work.flops or 0.0) / peak, (row.work.bytes or 0.0) / 2 / bandwidth) for row in rows)
    return min(least * 1e12 / now_ps, 1.0)
