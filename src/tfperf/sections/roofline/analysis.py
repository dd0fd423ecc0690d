"""How near devices come to their peaks: work that is known, time by what bounds it, and whole steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from tfperf.analysis.tabular import Tabular
from tfperf.base.units import percent
from tfperf.sections.roofline.bounds import Bound, Judged, Work, judge, time_by_bound
from tfperf.trace.device.device_peaks import DevicePeaks, Precision

if TYPE_CHECKING:
    from tfperf.analysis.results import Results
    from tfperf.sections.roofline.framework_ops import FrameworkOp, FrameworkWork
    from tfperf.sections.xla.analysis import Xla
    from tfperf.sections.xla.instructions import HloOp

_AGAIN = ("rematted_computation", "checkpoint/", "/remat")
"""What the name of an op has that is worked out a second time."""


class RooflineOp(Struct, frozen=True, kw_only=True):
    """An instruction of XLA or an op of TensorFlow whose work is known."""

    op: HloOp | FrameworkOp
    work: Work
    judged: Judged


class Utilisation(Struct, frozen=True, kw_only=True):
    """Shares of the peaks that steps reach, in percent; None: unknown.

    `hardware` counts all operations in products of matrices and convolutions (HFU), `model` those that the model needs
    (MFU): of a training step three times those of the forward pass, without what is worked out again.
    """

    hardware: float | None = None
    model: float | None = None
    bandwidth: float | None = None


class Roofline(Tabular, frozen=True, kw_only=True):
    """Instructions and ops with known work, the ones that take longest first."""

    home = ("roofline", "roofline_ops")

    ops: tuple[RooflineOp, ...] = ()
    peaks: DevicePeaks = DevicePeaks()
    precision: Precision | None = None
    """Numbers in which most operations of matrix products are."""
    bound_percent: Mapping[str, float] = {}
    """Shares of the time of devices: compute, memory, latency, unknown."""
    busy: Utilisation = Utilisation()
    """While devices work on what is known."""
    steps: Utilisation = Utilisation()
    step_count: int = 0
    host_count: int = 0
    """Hosts whose steps these are."""
    whole_ps: int = 0
    untold_percent: Mapping[str, float] = {}
    """Ops of TensorFlow whose shapes are recorded and do not tell their work: share of device time by type of op."""
    kernels: tuple[HloOp, ...] = ()
    """Kernels that programs bring along for a TPU, of which only one pass or a lower bound is known."""
    is_tpu: bool = False

    @property
    def judged_percent(self) -> float | None:
        """Return the share of device time of which it is known what bounds it."""
        return 100.0 - self.bound_percent["unknown"] if self.bound_percent else None


def derive(results: Results) -> Roofline:
    """Judge what the section xla found, and the ops of TensorFlow that have shapes."""
    if not results.has_device:
        return Roofline()
    xla: Xla = results["xla"]
    framework: FrameworkWork = results.combined("roofline")
    compiled: tuple[HloOp, ...] = () if xla.place in (None, "cpu") else xla.ops
    ops: list[RooflineOp] = []
    every: tuple[HloOp | FrameworkOp, ...] = (*compiled, *framework.ops)
    for op in every:
        work = op.work
        if work is not None and (work.flops is not None or work.bytes is not None):
            ops.append(RooflineOp(op=op, work=work, judged=judge(work, framework.peaks)))
    if framework.ops:
        ops.sort(key=lambda row: -row.work.time_ps)
    whole_ps = framework.whole_ps
    if not whole_ps:
        return Roofline()
    kernels = tuple(op for op in compiled if op.pass_flops is not None or op.is_least)
    times = Counter[Bound | None]()
    for row in ops:
        times[row.judged.bound] += row.work.time_ps
    times[None] += max(0, whole_ps - sum(times.values()))
    peaks, precision = framework.peaks, _main_precision(every)
    peak, bandwidth = peaks.flops_per_second(precision), peaks.bytes_per_second
    known_ps = sum(row.work.time_ps for row in ops)
    run = [(row.op, float(row.op.runs)) for row in ops]
    # What moves data between host and HBM, or between chips, is work of neither, but moves bytes of HBM.
    copies = [op for op in compiled if op.work is None and op.counted_by == "trace"]
    stepped = [(op, op.runs_in_steps) for op in (*(row.op for row in ops), *copies)]
    return Roofline(
        ops=tuple(ops),
        peaks=peaks,
        precision=precision,
        bound_percent={key: share for key, share in time_by_bound(times).items() if share or key == "unknown"},
        busy=_utilisation(run, known_ps, peak, bandwidth),
        steps=_utilisation(stepped, framework.step_ps, peak, bandwidth) if framework.step_count else Utilisation(),
        step_count=framework.step_count,
        host_count=framework.host_count,
        whole_ps=whole_ps,
        untold_percent={kind: 100.0 * time_ps / whole_ps for kind, time_ps in framework.untold_ps.items()},
        kernels=kernels,
        is_tpu=xla.place == "tpu",
    )


def _main_precision(ops: Iterable[HloOp | FrameworkOp]) -> Precision | None:
    sums = Counter[Precision | None]()
    for op in ops:
        sums[op.precision] += int((op.matrix_flops or 0) * op.runs)
    (precision, flops), *_ = sums.most_common(1) or [(None, 0)]
    return precision if flops else None


def _utilisation(
    runs: list[tuple[HloOp | FrameworkOp, float]], time_ps: int, peak: float | None, bandwidth: float | None
) -> Utilisation:
    """Return the shares of the peaks that these runs reach in this time of devices."""
    flops = sum((op.matrix_flops or 0) * count for op, count in runs)
    moved = sum((op.bytes or 0) * count for op, count in runs)
    seconds = time_ps / 1e12
    return Utilisation(
        hardware=percent(flops, peak * seconds) if peak and flops else None,
        model=percent(_model_flops(runs), peak * seconds) if peak and flops else None,
        bandwidth=percent(moved, bandwidth * seconds) if bandwidth and moved else None,
    )


def _model_flops(runs: list[tuple[HloOp | FrameworkOp, float]]) -> float:
    """Return the operations that the model needs: with gradients, three times those of the forward pass.

    They are never more than those that ran.
    """
    products = [(op, op.matrix_flops * count) for op, count in runs if op.matrix_flops]
    forward = sum(flops for op, flops in products if not is_gradient(op) and not _is_again(op))
    trains = any(is_gradient(op) for op, _ in products)
    return min(3.0 * forward, sum(flops for _, flops in products)) if trains else forward


def is_gradient(op: HloOp | FrameworkOp) -> bool:
    """Tell whether an instruction is of the backward pass, by the name of its op."""
    return any(part in op.framework_op for part in ("transpose(", "gradient_tape", "gradients/"))


def _is_again(op: HloOp | FrameworkOp) -> bool:
    return any(part in op.framework_op for part in _AGAIN)
