"""Kernels added up: one entry for each kernel as one op launches it with one grid and block."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Column, group_sums
from tfperf.sections.kernels.devices import compute_capability
from tfperf.trace.device.device_work import DeviceOp, DeviceWork, trace_texts
from tfperf.trace.device.kernel_details import NO_DETAILS, Dim, KernelDetails, occupancy, parse_kernel
from tfperf.trace.device.tensor_cores import (
    is_op_eligible,
    is_product,
    tensorflow_kernel,
    tensorflow_op,
    uses_tensor_cores,
)
from tfperf.trace.event_names import parse_op
from tfperf.trace.host_trace import HostTrace

_PS_PER_NS = 1000
_ONE: Dim = (1, 1, 1)


class Kernel(Struct, frozen=True):
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


Tally = dict[Kernel, KernelSums]


def add(tally: Tally, kernel: Kernel, sums: KernelSums) -> None:
    """Add sums to those of a kernel."""
    before = tally.get(kernel)
    if before is not None:
        sums = KernelSums(
            sums.occupancy_percent if sums.occupancy_percent == before.occupancy_percent else None,
            before.occurrences + sums.occurrences,
            before.total_ps + sums.total_ps,
            min(before.min_ps, sums.min_ps),
            max(before.max_ps, sums.max_ps),
        )
    tally[kernel] = sums


def order_of(kernel: Kernel) -> tuple[object, ...]:
    """Return the key by which TensorFlow orders kernels of equal total: name, launch, flags, op."""
    launch = kernel.launch
    shared = (launch.static_shared_bytes, launch.dynamic_shared_bytes, launch.shared_bytes)
    numbers = (launch.registers, *shared, kernel.uses_tensor_cores, kernel.is_eligible)
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
    tally: Tally = {}
    for (name, op_at, detail, equation, plane), runs in group_sums(trace.duration_ps[rows], columns):
        op, launch = ops[op_at], launches[detail]
        percent = launch.occupancy_percent or occupancy(launch, compute_capability(trace.planes[plane]))
        kernel = Kernel(
            trace.names[name],
            launch._replace(occupancy_percent=None),
            uses_tensor_cores(trace.names[name]),
            is_op_eligible(op.name, op.type, op.hlo_op, op.opcode, equation_texts[equation]),
            op,
        )
        add(tally, kernel, KernelSums(percent, *runs))
    return tally


def tally_as_tensorflow(trace: HostTrace, work: DeviceWork) -> Tally:
    """Add up kernels as TensorFlow's own profiler does.

    Only kernels with launch details, in whole nanoseconds, by its own rules for tensor cores. In files of TensorFlow
    2.2 to 2.4, which hold groups, it could not read the launch details.
    """
    is_old = trace.has_groups
    op_stat = "level 0" if is_old else "tf_op"
    detail_texts, op_texts, hlo_texts, equation_texts = (
        trace_texts(trace, stat) for stat in ("kernel_details", op_stat, "hlo_op", "equation")
    )
    has_details = np.array([bool(text) for text in detail_texts], np.bool_)
    rows = work.rows[has_details[trace.number_at("kernel_details", work.rows, -1)]]
    programs, ids = trace.program_at(rows)
    stats = ("kernel_details", op_stat, "hlo_op", "equation")
    columns: list[Column] = [trace.name[rows], *(trace.number_at(stat, rows, -1) for stat in stats), programs]
    duration = trace.duration_ps[rows] // _PS_PER_NS * _PS_PER_NS
    tally: Tally = {}
    for (name, detail, op, hlo, equation, place), runs in group_sums(duration, columns):
        details = NO_DETAILS if is_old else parse_kernel(detail_texts[detail])
        on_tensor_cores = tensorflow_kernel(trace.names[name], old=is_old)
        op_name, is_eligible = "", False
        if op_texts[op]:
            op_name = parse_op(op_texts[op], old_names=is_old).name
            is_eligible = is_product(equation_texts[equation]) or tensorflow_op(op_name) or on_tensor_cores
        program = trace.programs.get(ids[place]) if hlo_texts[hlo] and place >= 0 else None
        instruction = program.instructions.get(hlo_texts[hlo].split("::")[-1]) if program else None
        if instruction is not None:
            op_name = instruction.op_name
            is_eligible = tensorflow_op(op_name) or is_eligible
        # It shows 0 for what it cannot read, and blocks of one thread.
        static, dynamic = details.static_shared_bytes or 0, details.dynamic_shared_bytes or 0
        grid, block = details.grid or _ONE, details.block or _ONE
        launch = KernelDetails(grid, block, details.registers or 0, static, dynamic, static + dynamic)
        kernel = Kernel(trace.names[name], launch, on_tensor_cores, is_eligible, DeviceOp(op_name, ""))
        add(tally, kernel, KernelSums(details.occupancy_percent, *runs))
    return tally
