"""The report section on the roofline: peaks, time by bound, steps and ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfperf.analysis.registry import Results, present
from tfperf.base.units import counted, format_number, format_percent
from tfperf.report.model import Fact, LogChart, Quantity, Section
from tfperf.sections.roofline import ROOFLINE_OPS
from tfperf.sections.roofline.analysis import Roofline
from tfperf.sections.roofline.bounds import attainable_flops, ridge_point
from tfperf.trace.device.device_peaks import STATED

_TITLE = "Roofline"
_NOTHING = (
    "The work of ops is unknown: no XLA program ran on the devices, and the profile has no shapes of TensorFlow ops "
    "(--host-tracer-level 3 records them)."
)
_UNTOLD = 3
"""Maximum number of op types with unknown work that are listed."""
_NO_PEAKS = (
    "The peaks of these devices are unknown, so utilization is unknown: pass them with --peaks FILE (docs/roofline.md)."
)
_BYTES = "Bytes are an upper bound: if caches serve reads, more than 100% of the bandwidth is possible."
_TPU_NOTES = (
    "The peak is the peak of the matrix units. They multiply float32 as bfloat16 by default; vector units have no "
    "public peak, so other operations are compared with the same peak.",
    "Bytes are HBM bytes. Copies between host and HBM have no row; their bytes count in the bandwidth of steps.",
)
_KERNELS_SHOWN = 3
_LOWEST_SHARE = 1e-3
"""The chart shows ops down to this share of the fastest op's rate."""
_MARGIN = 2.0
"""Factor by which the chart extends beyond its points."""
_NAMES = {
    "fp64": "float64",
    "fp32": "float32",
    "tf32": "TF32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "8-bit floats",
    "fp4": "4-bit floats",
}


def build(results: Results) -> Section:
    """Return the section."""
    roofline: Roofline | None = results["roofline"]
    if roofline is None or not roofline.ops:
        kernels = () if roofline is None else _kernels(roofline)
        return Section("roofline", _TITLE, notes=kernels or (_NOTHING,), level="full")
    has_peaks = bool(roofline.peaks.teraflops or roofline.peaks.memory_gb_per_second)
    notes = [*_kernels(roofline)]
    untold = sorted(roofline.untold_percent.items(), key=lambda each: (-each[1], each[0]))
    if untold:
        kinds = _largest(untold, "other type")
        notes.append(f"Input shapes do not determine the work of {kinds} (shares of device time).")
    if not has_peaks:
        notes.append(_NO_PEAKS)
    return Section(
        "roofline",
        _TITLE,
        facts=(*_peaks(roofline), *_judged(roofline), *_used(roofline)) if has_peaks else (),
        charts=charts_of(roofline),
        tables=present(ROOFLINE_OPS.build(results)),
        notes=tuple(notes),
        detail_notes=_TPU_NOTES if roofline.is_tpu else (_BYTES,),
        pointer="More: -s roofline.",
    )


def charts_of(roofline: Roofline) -> tuple[LogChart, ...]:
    """Return the chart of ops and peaks; none if no op or no peak is known."""
    used = dict.fromkeys(row.work.precision for row in roofline.ops if row.work.flops and row.work.precision)
    ridges = {precision: ridge for precision in used if (ridge := ridge_point(roofline.peaks, precision))}
    if not ridges:
        return ()
    points, weights, remark = _points(roofline)
    if not points:
        return ()
    places = [*(x for _, x, _ in points), *ridges.values()]
    first, last = min(places) / _MARGIN, max(places) * _MARGIN
    lines = {}
    for precision, ridge in ridges.items():
        roof = [(x, attainable_flops(roofline.peaks, precision, x)) for x in (first, ridge, last)]
        lines[f"peak of {_NAMES.get(precision, precision)}"] = tuple((x, y / 1e12) for x, y in roof if y is not None)
    return (
        LogChart(
            title="Device roofline",
            x_title="flop/byte",
            y_title="TFLOP/s",
            points=points,
            lines=lines,
            weights=weights,
            weight_title="device time",
            remark=remark,
            level="data",
        ),
    )


def _points(roofline: Roofline) -> tuple[tuple[tuple[str, float, float], ...], tuple[float, ...], str]:
    """Return the points of the chart, their shares of device time, and a sentence about ops without a point.

    Small ops far below the peak would stretch the axis over many decades of empty space.
    """
    floor = _LOWEST_SHARE * max(row.work.tflops_per_second or 0.0 for row in roofline.ops)
    points, shares, without, low = [], [], [], []
    for row in roofline.ops:
        share = 100.0 * row.work.time_ps / roofline.whole_ps
        x, y = row.work.intensity, row.work.tflops_per_second
        if not x or not y:
            without.append((row.op.op, share, y))
        elif y < floor:
            low.append((row.op.op, share, y))
        else:
            points.append((row.op.op, x, y))
            shares.append(share)
    idle = [each for each in without if each[2] == 0.0]
    unknown = [each for each in without if each[2] != 0.0]
    kinds = (
        (idle, "no floating-point operations"),
        (unknown, "unknown operations or bytes"),
        (low, f"below {format_number(floor)} TFLOP/s"),
    )
    texts = [f"{why}: {_largest([each[:2] for each in ops], 'more op')}" for ops, why in kinds if ops]
    remark = f"Not drawn (shares of device time): {'; '.join(texts)}." if texts else ""
    return tuple(points), tuple(shares), remark


def _largest(shares: Sequence[tuple[str, float]], others: str) -> str:
    first = ", ".join(f"{name} {format_percent(share)}%" for name, share in shares[:_UNTOLD])
    more = f" and {counted(len(shares) - _UNTOLD, others)}" if len(shares) > _UNTOLD else ""
    return f"{first}{more}"


def _kernels(roofline: Roofline) -> tuple[str, ...]:
    notes = []
    least = [op for op in roofline.kernels if op.is_least]
    if least:
        others = f" and {counted(len(least) - _KERNELS_SHOWN, 'more kernel')}" if len(least) > _KERNELS_SHOWN else ""
        notes.append(
            f"{', '.join(op.op for op in least[:_KERNELS_SHOWN])}{others}: flops are derived from the matrix "
            "product that name and shapes imply, and bytes count each operand and result once, so the true "
            "bandwidth may be higher."
        )
    passes = [(op.op, op.pass_flops) for op in roofline.kernels if not op.is_least and op.pass_flops]
    notes += [
        f"{name}: the profile states {format_number(flops / 1e9)} GFLOP for one pass of the kernel; the true number is "
        "unknown, so it has no utilization."
        for name, flops in passes[:_KERNELS_SHOWN]
    ]
    return tuple(notes)


def _peaks(roofline: Roofline) -> tuple[Fact, ...]:
    """Return the peaks with their sources, and the values that a TPU plane states."""
    peaks, facts = roofline.peaks, []
    if peaks.model:
        facts.append(Fact("device_model", "Device", peaks.model))
    if peaks.teraflops:
        stated = None if peaks.stated_teraflops is None else f"bf16 {peaks.stated_teraflops:,.4g}"
        rates = ", ".join(f"{precision} {format_number(peak)}" for precision, peak in peaks.teraflops.items())
        facts.append(Fact("peak_flops", "Peak", f"{rates} TFLOP/s", note=_source(peaks.compute_source, stated)))
    if peaks.memory_gb_per_second is not None:
        text = f"{format_number(peaks.memory_gb_per_second)} GB/s"
        stated = None if peaks.stated_gb_per_second is None else f"{peaks.stated_gb_per_second:,.4g}"
        facts.append(Fact("peak_bandwidth", "Memory", text, note=_source(peaks.memory_source, stated)))
    ridge = ridge_point(peaks, roofline.precision)
    if ridge is not None and roofline.precision is not None:
        numbers = _NAMES.get(roofline.precision, roofline.precision)
        note = f"flop/byte in {numbers}: ops below it are memory-bound"
        facts.append(Fact("ridge_point", "Ridge point", float(f"{ridge:.4g}"), "", note))
    return tuple(facts)


def _source(source: str, stated: str | None) -> str:
    return source if stated is None or source == STATED else f"{source}; {STATED} states {stated}"


def _judged(roofline: Roofline) -> tuple[Fact, ...]:
    share = Quantity("judged", roofline.judged_percent, of="device time")
    facts = [Fact("judged_percent", "Evaluated", share.value, "%", "of device time", quantities=(share,))]
    for bound in ("compute", "memory", "latency"):
        part = Quantity(f"bound_{bound}", roofline.bound_percent.get(bound), of="device time")
        if part.value is not None:
            note = "of device time" + (": far from both peaks" if bound == "latency" else "")
            title = f"{bound.capitalize()}-bound"
            facts.append(Fact(f"bound_{bound}_percent", title, part.value, "%", note, quantities=(part,)))
    return tuple(facts)


def _used(roofline: Roofline) -> Iterator[Fact]:
    hosts = f" of {roofline.host_count} hosts" if roofline.host_count > 1 else ""
    in_steps = f"of the peak, in {counted(roofline.step_count, 'step')}{hosts}"
    titles = {"step_model": "MFU", "step_hardware": "HFU", "step_bandwidth": "Bandwidth"}
    titles |= {"busy_hardware": "HFU (busy)", "busy_bandwidth": "Bandwidth (busy)"}
    for key, title in titles.items():
        when, _, name = key.partition("_")
        share = getattr(roofline.steps if when == "step" else roofline.busy, name)
        note = in_steps if when == "step" else "of the peak, while known work runs"
        if share is not None:
            yield Fact(f"{key}_percent", title, share, "%", note, quantities=(Quantity(key, share),))
