"""Kernels as TensorFlow's own profiler adds them up.

Only kernels with launch details, in whole nanoseconds, by its own rules for tensor cores. In files of TensorFlow 2.2
to 2.4, which hold groups, it could not read the launch details.
"""

from __future__ import annotations

import numpy as np

from tfperf.arrays import Column, group_sums
from tfperf.sections.kernels.tally import Kernel, KernelSums, Tally, add
from tfperf.trace.device_work import DeviceOp, DeviceWork, trace_texts
from tfperf.trace.event_names import parse_op
from tfperf.trace.group_spans import stored_groups
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.kernel_details import NO_DETAILS, Dim, KernelDetails, parse_kernel
from tfperf.trace.tensor_cores import is_product, tensorflow_kernel, tensorflow_op

_PS_PER_NS = 1000
_ONE: Dim = (1, 1, 1)


def tally_as_tensorflow(trace: HostTrace, work: DeviceWork) -> Tally:
    """Add up the kernels that have launch details."""
    is_old = stored_groups(trace) is not None
    op_stat = "level 0" if is_old else "tf_op"
    detail_texts, op_texts, hlo_texts, equation_texts = (
        trace_texts(trace, stat) for stat in ("kernel_details", op_stat, "hlo_op", "equation")
    )
    has_details = np.array([bool(text) for text in detail_texts], np.bool_)
    rows = work.rows[has_details[trace.number_at("kernel_details", work.rows, -1)]]
    stats = ("kernel_details", op_stat, "hlo_op", "program_id", "equation")
    columns: list[Column] = [trace.name[rows], *(trace.number_at(stat, rows, -1) for stat in stats)]
    duration = trace.duration_ps[rows] // _PS_PER_NS * _PS_PER_NS
    tally: Tally = {}
    for (name, detail, op, hlo, program_id, equation), runs in group_sums(duration, columns):
        details = NO_DETAILS if is_old else parse_kernel(detail_texts[detail])
        on_tensor_cores = tensorflow_kernel(trace.names[name], old=is_old)
        op_name, is_eligible = "", False
        if op_texts[op]:
            op_name = parse_op(op_texts[op], old_names=is_old).name
            is_eligible = is_product(equation_texts[equation]) or tensorflow_op(op_name) or on_tensor_cores
        program = trace.programs.get(program_id) if hlo_texts[hlo] else None
        instruction = program.instructions.get(hlo_texts[hlo].split("::")[-1]) if program else None
        if instruction is not None:
            op_name = instruction.op_name
            is_eligible = tensorflow_op(op_name) or is_eligible
        kernel = Kernel(trace.names[name], _with_defaults(details), on_tensor_cores, is_eligible, DeviceOp(op_name, ""))
        add(tally, kernel, KernelSums(details.occupancy_percent, *runs))
    return tally


def _with_defaults(details: KernelDetails) -> KernelDetails:
    """Return what TensorFlow shows of a launch: 0 for what it cannot read, and blocks of one thread."""
    static, dynamic = details.static_shared_bytes or 0, details.dynamic_shared_bytes or 0
    grid, block = details.grid or _ONE, details.block or _ONE
    return KernelDetails(grid, block, details.registers or 0, static, dynamic, static + dynamic)
