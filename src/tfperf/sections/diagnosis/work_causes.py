"""Causes in what devices compute: layouts that are converted, memory that bounds, work that is too small."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import TYPE_CHECKING, NamedTuple

from tfperf.programs.products import ALIGNED_BYTES, off_multiple, rounded_up
from tfperf.sections.diagnosis.case import LEAST_PERCENT, LONGEST_NAME, Case, in_categories
from tfperf.sections.diagnosis.cause import Action, Cause, Evidence, Range
from tfperf.sections.roofline.bounds import LOW_PERCENT
from tfperf.trace.kernel_details import short_name
from tfperf.units import PS_PER_MS, counted, format_ms, format_percent, without_middle

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
    return case.cause(
        "memory_bound",
        "Moving data in the device's memory",
        cost,
        f"{_first_of(rows)}: little is computed for each byte",
        actions=(_fewer_bytes(case, rows, cost),),
        rests_on=_row_of(rows),
        confidence="medium",
    )


_MULTIPLES = {"fp16": ALIGNED_BYTES // 2, "bf16": ALIGNED_BYTES // 2}
"""By precision: what tensor cores want. Products in float32 need not run on them, and 16 bit comes first then."""


def unaligned_shapes(case: Case) -> Cause | None:
    """Judge 16-bit products whose sizes tensor cores are not made for, beside others whose sizes suit them."""
    aligned, rows = _by_alignment(case)
    cost = _claim_of(case, rows)
    if cost is None:
        return None
    reached, others = _roofline_percent(rows), _roofline_percent(aligned)
    first = rows[0]
    sizes = off_multiple(first.op.sizes, _multiple_of(first))
    text = ", ".join(f"{name} = {size} (to {rounded_up(size, _multiple_of(first))})" for name, size in sizes.items())
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
    if roofline is None or not case.is_headline or not roofline.whole_ps or case.program.is_tpu:
        return [], []
    rows = [row for row in roofline.ops if row.op.sizes and row.work.precision in _MULTIPLES and _reached(row)]
    unaligned = [row for row in rows if off_multiple(row.op.sizes, _multiple_of(row))]
    aligned = [row for row in rows if not off_multiple(row.op.sizes, _multiple_of(row))]
    if not aligned or not unaligned or _roofline_percent(unaligned) >= _roofline_percent(aligned):
        return aligned, []
    return aligned, unaligned


def _multiple_of(row: RooflineOp) -> int:
    return _MULTIPLES[str(row.work.precision)]


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
    return [row for row in rows if not _CONVERSION.search(row.op.op)]


def _claim_of(case: Case, rows: list[RooflineOp]) -> Range | None:
    return _claim(case, 100.0 * _time_ps(rows) / case.results["roofline"].whole_ps) if rows else None


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
    most = 1.0 - sum(time_ps * min(part, 1.0) for time_ps, part in known) / _time_ps(rows)
    text = (
        f"for as many examples as now; at {LOW_PERCENT:.0f} % of the roofline, from where on they are not small, they "
        f"take {format_percent(100.0 * most)}% less"
    )
    return case.action("larger_products", cost, Range(0.0, most), text)


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
