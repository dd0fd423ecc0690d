"""How much of the steps of each device goes to kernels in 16 and in 32 bit, and how much 16 bit could make faster.

Eligible for 16 bit is the time in which a kernel of a matrix product or a convolution runs in 32 bit, and not on
tensor cores. That is what mixed precision changes most; what it gains depends on the shapes, and on the device being
what the step waits for. Kernels of which the precision or the op is unknown may be eligible too. A product of XLA is
not eligible if its program says that it computes in 16 bit, or if it is faster than the device's peak in 32 bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import EMPTY, Bools, Int64s, Intervals, distinct, overlap, union, union_all
from tfperf.sections.kernels.devices import has_tensor_cores
from tfperf.trace.device.device_time import device_label
from tfperf.trace.device.device_work import DeviceOp, DeviceWork, trace_texts
from tfperf.trace.device.tensor_cores import is_op_eligible, uses_tensor_cores
from tfperf.trace.host.activities import Activity
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.counted import CountedSteps
from tfperf.trace.steps.steps import Steps

if TYPE_CHECKING:
    from tfperf.sections.xla.analysis import Xla
    from tfperf.sections.xla.instructions import HloOp

Part = Literal["compute_16", "compute_32", "compute_unknown", "eligible", "most_eligible"]
"""Kernels by precision; those surely eligible for 16 bit; with those that may be."""
_PRECISIONS: Mapping[Part, Activity] = {
    "compute_16": Activity.COMPUTE_16,
    "compute_32": Activity.COMPUTE_32,
    "compute_unknown": Activity.COMPUTE_UNKNOWN,
}


class DevicePrecision(Struct, frozen=True, eq=False, kw_only=True):
    """The kernels of one device by precision: wall-clock picoseconds in each step, and which steps count.

    Where kernels run side by side, 16 bit comes before 32 bit, and 32 bit before unknown. A device without tensor cores
    has no eligible time.
    """

    host: str
    device: str
    """`GPU:0`."""
    averaged: CountedSteps
    by_step_ps: Mapping[Part, Int64s]

    @property
    def steps(self) -> int:
        """Return how many steps count; 0: there are no times."""
        return self.averaged.count

    def total_ps(self, part: Part) -> int | None:
        """Return the time of a part in the steps that count; None: the device has no tensor cores."""
        return self.averaged.sum(self.by_step_ps[part]) if part in self.by_step_ps else None

    @property
    def eligible_percent(self) -> float | None:
        """Return the share of the step time that is surely eligible for 16 bit."""
        return self._percent("eligible")

    @property
    def most_eligible_percent(self) -> float | None:
        """Return the share of the step time that may be eligible for 16 bit."""
        return self._percent("most_eligible")

    def _percent(self, part: Part) -> float | None:
        return self.averaged.percent(self.by_step_ps[part]) if part in self.by_step_ps else None


def precision_of(trace: HostTrace, work: DeviceWork, steps: Steps, xla: Xla) -> tuple[DevicePrecision, ...]:
    """Return the precision of each device that runs kernels; `xla` are the instructions of the host."""
    kernels = np.flatnonzero(~work.moves)
    surely, perhaps = _eligible(trace, work, kernels, _in_16_bit(xla))
    planes = work.plane[kernels]
    return tuple(
        _of_device(trace, work, kernels[planes == plane], (surely[planes == plane], perhaps[planes == plane]), steps)
        for plane in distinct(planes).tolist()
    )


def _in_16_bit(xla: Xla) -> set[tuple[str, str]]:
    """Return module and name of the products that compute in 16 bit, or on tensor cores: faster than in 32 bit."""
    peak, products = xla.peaks.flops_per_second("fp32"), [op for op in xla.ops if op.matrix_flops]
    found = {(op.module, op.op) for op in products if _is_in_16_bit(op, peak)}
    return found - {(op.module, op.op) for op in products if not _is_in_16_bit(op, peak)}


def _is_in_16_bit(product: HloOp, peak_32: float | None) -> bool:
    rate = product.work.tflops_per_second if product.work is not None else None
    is_faster = peak_32 is not None and rate is not None and rate * 1e12 > peak_32
    return is_faster or product.precision in ("fp16", "bf16", "fp8", "int8")


def _eligible(
    trace: HostTrace, work: DeviceWork, kernels: Int64s, in_16_bit: Set[tuple[str, str]]
) -> tuple[Bools, Bools]:
    """Return which kernels are surely eligible for 16 bit, and which are or may be."""
    rows = work.rows[kernels]
    names = distinct(trace.name[rows])
    answers = np.array([uses_tensor_cores(trace.names[name]) is True for name in names.tolist()], np.bool_)
    on_tensor_cores = answers[np.searchsorted(names, trace.name[rows])]
    texts, ops = trace_texts(trace, "equation"), (*work.ops, DeviceOp("", ""))
    equation = trace.number_at("equation", rows, -1)
    # Few ops have an equation, so pairs of both are few.
    key = (work.op[kernels] + 1) * len(texts) + equation + 1
    keys = distinct(key)
    is_product = []
    for op_at, equation_at in zip(*(part.tolist() for part in np.divmod(keys, len(texts))), strict=True):
        op = ops[op_at - 1]
        is_open = (op.hlo_module, op.hlo_op) not in in_16_bit
        is_product.append(is_open and is_op_eligible(op.name, op.type, op.hlo_op, op.opcode, texts[equation_at - 1]))
    place = np.searchsorted(keys, key)
    is_surely, is_perhaps = (
        np.array([answer in wanted for answer in is_product], np.bool_)[place] for wanted in ((True,), (True, None))
    )
    activity = work.activity[kernels]
    is_32 = activity == Activity.COMPUTE_32
    surely = is_surely & is_32 & ~on_tensor_cores
    perhaps = is_perhaps & (is_32 | (activity == Activity.COMPUTE_UNKNOWN)) & ~on_tensor_cores
    return surely, perhaps


def _of_device(
    trace: HostTrace, work: DeviceWork, kernels: Int64s, eligible: tuple[Bools, Bools], steps: Steps
) -> DevicePrecision:
    """Add up the kernels of one device, which are indices into `work`."""
    rows, activity = work.rows[kernels], work.activity[kernels]
    plane = trace.planes[int(work.plane[kernels[0]])]

    def when(which: Bools) -> Intervals:
        return union(trace.start_ps[rows[which]], trace.end_ps[rows[which]])

    def in_steps(busy: Intervals) -> Int64s:
        return overlap(busy, steps.start_ps, steps.end_ps)

    parts: dict[Part, Int64s] = {}
    covered, covered_ps = EMPTY, np.zeros(len(steps), np.int64)
    for part, kind in _PRECISIONS.items():
        covered = union_all([covered, when(activity == kind)])
        inside_ps = in_steps(covered)
        parts[part], covered_ps = inside_ps - covered_ps, inside_ps
    if has_tensor_cores(plane) is not False:
        surely, perhaps = eligible
        parts |= {"eligible": in_steps(when(surely)), "most_eligible": in_steps(when(perhaps))}
    return DevicePrecision(
        host=trace.host, device=device_label(plane.name), averaged=CountedSteps.of(steps), by_step_ps=parts
    )
