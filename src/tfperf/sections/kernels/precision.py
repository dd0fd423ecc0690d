"""How much of the steps of each device goes to kernels in 16 and in 32 bit, and how much 16 bit could make faster.

Eligible for 16 bit is the time in which a kernel of a matrix product or a convolution runs in 32 bit, and not on
tensor cores. That is what mixed precision changes most; what it gains depends on the shapes, and on the device being
what the step waits for. Kernels of which the precision or the op is unknown may be eligible too.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.arrays import EMPTY, Bools, Int64s, Intervals, distinct, overlap, union, union_all
from tfperf.sections.kernels.devices import has_tensor_cores
from tfperf.sections.registry import percent
from tfperf.trace.activities import Activity
from tfperf.trace.device_time import device_label
from tfperf.trace.device_work import DeviceOp, DeviceWork, trace_texts
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps import Steps
from tfperf.trace.tensor_cores import is_op_eligible, uses_tensor_cores


class DevicePrecision(Struct, frozen=True, kw_only=True):
    """The kernels of one device by precision: wall-clock picoseconds, summed over the averaged steps.

    Where kernels run side by side, 16 bit comes before 32 bit, and 32 bit before unknown.
    """

    host: str
    device: str
    """`GPU:0`."""
    steps: int
    """0: there are no averaged steps, and no times."""
    steps_ps: int
    compute_16_ps: int
    compute_32_ps: int
    compute_unknown_ps: int
    eligible_ps: int | None
    """Surely eligible for 16 bit; None: the device has no tensor cores."""
    most_eligible_ps: int | None
    """With the kernels that may be."""

    @property
    def eligible_percent(self) -> float | None:
        """Return the share of the step time that is surely eligible for 16 bit."""
        return None if self.eligible_ps is None else percent(self.eligible_ps, self.steps_ps)

    @property
    def most_eligible_percent(self) -> float | None:
        """Return the share of the step time that may be eligible for 16 bit."""
        return None if self.most_eligible_ps is None else percent(self.most_eligible_ps, self.steps_ps)


def precision_of(trace: HostTrace, work: DeviceWork, steps: Steps) -> tuple[DevicePrecision, ...]:
    """Return the precision of each device that runs kernels, over all of `steps`."""
    kernels = np.flatnonzero(~work.moves)
    surely, perhaps = _eligible(trace, work, kernels)
    planes = work.plane[kernels]
    return tuple(
        _of_device(trace, work, kernels[planes == plane], (surely[planes == plane], perhaps[planes == plane]), steps)
        for plane in distinct(planes).tolist()
    )


def _eligible(trace: HostTrace, work: DeviceWork, kernels: Int64s) -> tuple[Bools, Bools]:
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
        is_product.append(is_op_eligible(op.name, op.type, op.hlo_op, op.opcode, texts[equation_at - 1]))
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

    def in_steps(busy: Intervals) -> int:
        return int(overlap(busy, steps.start_ps, steps.end_ps).sum())

    covered, sums = EMPTY, [0]
    for kind in (Activity.COMPUTE_16, Activity.COMPUTE_32, Activity.COMPUTE_UNKNOWN):
        covered = union_all([covered, when(activity == kind)])
        sums.append(in_steps(covered))
    compute_16, compute_32, compute_unknown = np.diff(sums).tolist()
    can_gain = has_tensor_cores(plane) is not False
    surely, perhaps = (in_steps(when(which)) if can_gain else None for which in eligible)
    return DevicePrecision(
        host=trace.host,
        device=device_label(plane.name),
        steps=len(steps),
        steps_ps=int(steps.duration_ps.sum()),
        compute_16_ps=compute_16,
        compute_32_ps=compute_32,
        compute_unknown_ps=compute_unknown,
        eligible_ps=surely,
        most_eligible_ps=perhaps,
    )
