"""Kernels added up: one entry for each kernel as one op launches it with one grid and block."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfperf.arrays import Column, group_sums
from tfperf.sections.kernels.devices import compute_capability
from tfperf.trace.device_work import DeviceOp, DeviceWork, trace_texts
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.kernel_details import KernelDetails, occupancy, parse_kernel
from tfperf.trace.tensor_cores import is_op_eligible, uses_tensor_cores


class Kernel(NamedTuple):
    """What tells kernels apart: texts are empty and values None where they are unknown."""

    name: str
    launch: KernelDetails
    """Without occupancy, which depends on the device too."""
    uses_tensor_cores: bool | None
    is_eligible: bool | None
    """Whether the op is of a kind that tensor cores can do."""
    op: DeviceOp


class KernelSums(NamedTuple):
    """How often a kernel runs and how long, in picoseconds; `occupancy_percent` is None where it is not one number."""

    occupancy_percent: float | None
    occurrences: int
    total_ps: int
    min_ps: int
    max_ps: int

    def plus(self, other: KernelSums) -> KernelSums:
        """Return the sums of both."""
        return KernelSums(
            self.occupancy_percent if self.occupancy_percent == other.occupancy_percent else None,
            self.occurrences + other.occurrences,
            self.total_ps + other.total_ps,
            min(self.min_ps, other.min_ps),
            max(self.max_ps, other.max_ps),
        )


Tally = dict[Kernel, KernelSums]


def add(tally: Tally, kernel: Kernel, sums: KernelSums) -> None:
    """Add sums to those of a kernel."""
    tally[kernel] = tally[kernel].plus(sums) if kernel in tally else sums


def order_of(kernel: Kernel) -> tuple[object, ...]:
    """Return the key by which TensorFlow orders kernels of equal total: name, launch, flags, op."""
    launch = kernel.launch
    numbers = (
        launch.registers,
        launch.static_shared_bytes,
        launch.dynamic_shared_bytes,
        launch.shared_bytes,
        kernel.uses_tensor_cores,
        kernel.is_eligible,
    )
    comparable = tuple(-1 if number is None else int(number) for number in numbers)
    return (kernel.name, launch.grid or (), launch.block or (), comparable, *kernel.op)


def tally_kernels(trace: HostTrace, work: DeviceWork) -> Tally:
    """Add up every kernel, also those whose launch or op is unknown."""
    kernel_at = np.flatnonzero(~work.moves)
    rows = work.rows[kernel_at]
    details, equations = (trace.number_at(stat, rows, -1) for stat in ("kernel_details", "equation"))
    columns: list[Column] = [trace.name[rows], work.op[kernel_at], details, equations, work.plane[kernel_at]]
    launches = [parse_kernel(text) for text in trace_texts(trace, "kernel_details")]
    equation_texts, ops = trace_texts(trace, "equation"), (*work.ops, DeviceOp("", ""))
    on_tensor_cores: dict[int, bool | None] = {}
    tally: Tally = {}
    for (name, op_at, detail, equation, plane), runs in group_sums(trace.duration_ps[rows], columns):
        if name not in on_tensor_cores:
            on_tensor_cores[name] = uses_tensor_cores(trace.names[name])
        op, launch = ops[op_at], launches[detail]
        percent = launch.occupancy_percent or occupancy(launch, compute_capability(trace.planes[plane]))
        kernel = Kernel(
            trace.names[name],
            launch._replace(occupancy_percent=None),
            on_tensor_cores[name],
            is_op_eligible(op.name, op.type, op.hlo_op, op.opcode, equation_texts[equation]),
            op,
        )
        add(tally, kernel, KernelSums(percent, *runs))
    return tally
