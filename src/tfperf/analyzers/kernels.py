"""Kernels of GPUs by op and launch, copies, and where the time of each device goes.

A row is a kernel as one op launches it with one grid and block. Its times are sums over streams and devices; what is
wall-clock time is said per device, where compute, copies alone and idle add up to the length of the capture.

Attribution `tensorflow` reproduces the kernel table of TensorFlow's profiler: whole nanoseconds, its rules for tensor
cores, and for files of TensorFlow 2.2 to 2.4 (which it stored groups in) no launch sizes, since it could not read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from tfperf.analyzers import launches
from tfperf.analyzers.copies import Copies, copies_of
from tfperf.analyzers.launches import Launches
from tfperf.arrays import MOST, Column, Int64s, group_sums
from tfperf.trace.activities import Attribution
from tfperf.trace.device_time import DeviceTime, device_label, device_times
from tfperf.trace.device_work import DeviceOp, DeviceWork, device_work, trace_texts
from tfperf.trace.event_names import parse_op
from tfperf.trace.group_spans import stored_groups
from tfperf.trace.host_trace import HostTrace, Plane
from tfperf.trace.kernel_details import NO_DETAILS, Dim, KernelDetails, occupancy, parse_kernel
from tfperf.trace.kernel_names import short_name
from tfperf.trace.steps import Steps
from tfperf.trace.tensor_cores import (
    is_op_eligible,
    is_product,
    tensorflow_kernel,
    tensorflow_op,
    uses_tensor_cores,
)  # fmt: skip
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    import pandas as pd

_PS_PER_US, _PS_PER_NS = 1e6, 1000
_ONE: Dim = (1, 1, 1)


class Kernel(NamedTuple):
    """What a row of kernels is: texts are empty and values None where they are not known."""

    name: str
    launch: KernelDetails
    """Without occupancy, which depends on the device too."""
    uses_tensor_cores: bool | None
    is_eligible: bool | None
    """Whether the op is of a kind that tensor cores can do."""
    op: DeviceOp


class DeviceUse(NamedTuple):
    """Where the capture went on one device: compute + copies alone + idle = wall, in picoseconds."""

    host: str
    device: str
    compute_ps: int
    copies_alone_ps: int
    idle_ps: int
    wall_ps: int
    kernel_sum_ps: int
    """Sum over kernels: more than compute where streams overlap."""
    copies_ps: int
    """Wall-clock time of copies, also of those beside compute."""


@dataclass(frozen=True)
class Kernels:
    """Kernels, the one with the largest total first, as columns of equal length; times are int64 picoseconds."""

    kernels: tuple[Kernel, ...]
    occupancy_percent: tuple[float | None, ...]
    occurrences: Int64s
    total_ps: Int64s
    min_ps: Int64s
    max_ps: Int64s
    copies: tuple[Copies, ...]
    devices: tuple[DeviceUse, ...]
    launches: Launches
    has_tensor_cores: bool | None
    """Whether any device has tensor cores (on AMD: matrix cores); None where the trace does not tell."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.kernels)

    @property
    def share(self) -> npt.NDArray[np.float64]:
        """Return the part of each row of the time of all kernels (0 to 1)."""
        return self.total_ps / max(float(self.total_ps.sum(dtype=np.float64)), 1.0)

    @property
    def table(self) -> pd.DataFrame:
        """Return one row per kernel and launching op, times in microseconds."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def columns(self) -> dict[str, list[object]]:
        """Return the columns of `table` without pandas."""
        rows, details = self.kernels, [row.launch for row in self.kernels]
        return {
            "rank": list(range(1, len(self) + 1)),
            "percent": (100.0 * self.share).tolist(),
            "kernel": [short_name(row.name) for row in rows],
            "kernel_name": [row.name for row in rows],
            "op_name": [row.op.name or None for row in rows],
            "op_type": [row.op.type or None for row in rows],
            "hlo_op": [row.op.hlo_op or None for row in rows],
            "hlo_module": [row.op.hlo_module or None for row in rows],
            "grid_dim": [_dim_text(own.grid) for own in details],
            "block_dim": [_dim_text(own.block) for own in details],
            "registers_per_thread": [own.registers for own in details],
            "static_shared_bytes": [own.static_shared_bytes for own in details],
            "dynamic_shared_bytes": [own.dynamic_shared_bytes for own in details],
            "shared_bytes": [own.shared_bytes for own in details],
            "occupancy_percent": list(self.occupancy_percent),
            "is_op_tensor_core_eligible": [row.is_eligible for row in rows],
            "is_kernel_using_tensor_core": [row.uses_tensor_cores for row in rows],
            "occurrences": self.occurrences.tolist(),
            "total_us": (self.total_ps / _PS_PER_US).tolist(),
            "mean_us": (self.total_ps / np.maximum(self.occurrences, 1) / _PS_PER_US).tolist(),
            "min_us": (self.min_ps / _PS_PER_US).tolist(),
            "max_us": (self.max_ps / _PS_PER_US).tolist(),
        }

    def on_tensor_cores_ps(self) -> tuple[int, int]:
        """Return the time of kernels on tensor cores, and of those whose name does not tell."""
        flags = [row.uses_tensor_cores for row in self.kernels]
        sums = (
            sum(total for flag, total in zip(flags, self.total_ps.tolist(), strict=True) if flag is wanted)
            for wanted in (True, None)
        )
        return next(sums), next(sums)

    def missed_tensor_cores(self) -> dict[str, int]:
        """Return ops that tensor cores could do and that no kernel does there, and their time; longest first.

        An op with a kernel whose name does not tell is left out.
        """
        sums: dict[DeviceOp, int] = {}
        elsewhere = {row.op for row in self.kernels if row.uses_tensor_cores is not False}
        for row, total in zip(self.kernels, self.total_ps.tolist(), strict=True):
            if row.is_eligible and row.op not in elsewhere:
                sums[row.op] = sums.get(row.op, 0) + total
        names = sorted(sums, key=lambda op: (-sums[op], op))
        return {op.hlo_op or op.name: sums[op] for op in names}

    def by_name(self) -> dict[str, list[object]]:
        """Return the sums per short name, the one with the largest total first."""
        sums: dict[str, list[int]] = {}
        for row, count, total in zip(self.kernels, self.occurrences.tolist(), self.total_ps.tolist(), strict=True):
            own = sums.setdefault(short_name(row.name), [0, 0])
            own[0], own[1] = own[0] + count, own[1] + total
        order = sorted(sums, key=lambda name: (-sums[name][1], name))
        whole = max(sum(total for _, total in sums.values()), 1)
        return {
            "kernel": [*order],
            "occurrences": [sums[name][0] for name in order],
            "total_ms": [sums[name][1] / PS_PER_MS for name in order],
            "percent": [100.0 * sums[name][1] / whole for name in order],
        }


def _dim_text(dim: Dim | None) -> str | None:
    return ",".join(str(size) for size in dim) if dim else None


def analyze(
    trace: HostTrace,
    steps: Steps,
    attribution: Attribution = "corrected",
    work: DeviceWork | None = None,
    times: Sequence[DeviceTime] | None = None,
) -> Kernels:
    """Sum kernels and copies of a host's GPUs, and say where the time of its devices went.

    `work` and `times` are what `device_work` and `device_times` return for this trace, where that was done before.
    """
    work = work or device_work(trace)
    times = device_times(trace) if times is None else times
    find = _as_tensorflow if attribution == "tensorflow" else _corrected
    return _sorted(
        find(trace, work), copies_of(trace, work), tuple(_use(trace.host, own) for own in times),
        launches.analyze(trace, steps, work), _any(_tensor_cores(trace.planes[at]) for at in trace.devices),
    )  # fmt: skip


def combine(parts: list[Kernels]) -> Kernels:
    """Merge rows that are equal but for the host, and list the devices of all hosts."""
    merged: _Rows = {}
    for part in parts:
        numbers = (part.occurrences, part.total_ps, part.min_ps, part.max_ps)
        for row, percent, *own in zip(
            part.kernels, part.occupancy_percent, *(values.tolist() for values in numbers), strict=True
        ):
            _add(merged, row, percent, *own)
    return _sorted(
        merged, tuple(row for part in parts for row in part.copies),
        tuple(row for part in parts for row in part.devices),
        launches.combine([part.launches for part in parts]), _any(part.has_tensor_cores for part in parts),
    )  # fmt: skip


# --- rows ---


class _Sums(NamedTuple):
    occupancy: float | None
    occurrences: int
    total_ps: int
    min_ps: int
    max_ps: int


_Rows = dict[Kernel, _Sums]


def _add(rows: _Rows, row: Kernel, percent: float | None, count: int, total: int, least: int, most: int) -> None:
    """Add to a row; where devices differ in occupancy, there is no single one."""
    old = rows.get(row)
    if old is None:
        rows[row] = _Sums(percent, count, total, least, most)
    else:
        rows[row] = _Sums(
            percent if percent == old.occupancy else None, count + old.occurrences, total + old.total_ps,
            min(least, old.min_ps), max(most, old.max_ps),
        )  # fmt: skip


def _sorted(
    rows: _Rows, copies: tuple[Copies, ...], devices: tuple[DeviceUse, ...], found: Launches, has_cores: bool | None
) -> Kernels:
    """Order rows by total, then as TensorFlow does by name, launch, flags and op."""
    ordered = sorted(rows.items(), key=lambda item: (-item[1].total_ps, _order(item[0])))
    numbers = np.array([[min(value, MOST) for value in own[1:]] for _, own in ordered], np.int64).reshape(-1, 4)
    return Kernels(
        tuple(row for row, _ in ordered), tuple(own.occupancy for _, own in ordered), numbers[:, 0], numbers[:, 1],
        numbers[:, 2], numbers[:, 3], copies, devices, found, has_cores,
    )  # fmt: skip


def _order(row: Kernel) -> tuple[object, ...]:
    own = row.launch
    sizes = (own.registers, own.static_shared_bytes, own.dynamic_shared_bytes, own.shared_bytes)
    flags = (row.uses_tensor_cores, row.is_eligible)
    numbers = tuple(-1 if value is None else int(value) for value in (*sizes, *flags))
    return (row.name, own.grid or (), own.block or (), numbers, *row.op)


def _corrected(trace: HostTrace, work: DeviceWork) -> _Rows:
    """Sum every kernel, also those of which the trace tells no launch size and no op."""
    at = np.flatnonzero(~work.moves)
    rows = work.rows[at]
    details, equations = (trace.number_at(stat, rows, -1) for stat in ("kernel_details", "equation"))
    columns: list[Column] = [trace.name[rows], work.op[at], details, equations, work.plane[at]]
    parsed = [parse_kernel(text) for text in trace_texts(trace, "kernel_details")]
    equation_texts, ops = trace_texts(trace, "equation"), (*work.ops, DeviceOp("", ""))
    on_cores: dict[int, bool | None] = {}
    merged: _Rows = {}
    for (name, op, detail, equation, plane), sums in group_sums(trace.duration_ps[rows], columns):
        if name not in on_cores:
            on_cores[name] = uses_tensor_cores(trace.names[name])
        own = ops[op]
        eligible = is_op_eligible(own.name, own.type, own.hlo_op, own.opcode, equation_texts[equation])
        launch = parsed[detail]
        percent = launch.occupancy_percent or occupancy(launch, _capability(trace.planes[plane]))
        row = Kernel(trace.names[name], launch._replace(occupancy_percent=None), on_cores[name], eligible, own)
        _add(merged, row, percent, *sums)
    return merged


def _as_tensorflow(trace: HostTrace, work: DeviceWork) -> _Rows:
    """Sum the kernels that have launch details, as TensorFlow's profiler does."""
    old = stored_groups(trace) is not None
    texts = trace_texts(trace, "kernel_details")
    telling = np.array([bool(text) for text in texts], np.bool_)
    rows = work.rows[telling[trace.number_at("kernel_details", work.rows, -1)]]
    stats = ("kernel_details", "level 0" if old else "tf_op", "hlo_op", "program_id", "equation")
    columns: list[Column] = [trace.name[rows], *(trace.number_at(stat, rows, -1) for stat in stats)]
    duration = trace.duration_ps[rows] // _PS_PER_NS * _PS_PER_NS
    known = {stat: trace_texts(trace, stat) for stat in stats if stat != "program_id"}
    merged: _Rows = {}
    for (name, detail, told, hlo, program, equation), sums in group_sums(duration, columns):
        details = NO_DETAILS if old else parse_kernel(texts[detail])
        on_cores = tensorflow_kernel(trace.names[name], old=old)
        op_name, eligible = "", False
        if known[stats[1]][told]:
            op_name = parse_op(known[stats[1]][told], old_names=old).name
            eligible = is_product(known["equation"][equation]) or tensorflow_op(op_name) or on_cores
        own = trace.programs.get(program) if known["hlo_op"][hlo] else None
        instruction = own.instructions.get(known["hlo_op"][hlo].split("::")[-1]) if own else None
        if instruction is not None:
            op_name = instruction.op_name
            eligible = tensorflow_op(op_name) or eligible
        row = Kernel(trace.names[name], _with_defaults(details), on_cores, eligible, DeviceOp(op_name, ""))
        _add(merged, row, details.occupancy_percent, *sums)
    return merged


def _with_defaults(details: KernelDetails) -> KernelDetails:
    """Return what TensorFlow shows of a launch: where it reads nothing it shows 0, and blocks of one thread."""
    static, dynamic = details.static_shared_bytes or 0, details.dynamic_shared_bytes or 0
    grid, block = details.grid or _ONE, details.block or _ONE
    return KernelDetails(grid, block, details.registers or 0, static, dynamic, static + dynamic)


# --- devices ---


def _capability(plane: Plane) -> tuple[int, int]:
    """Return the compute capability of an NVIDIA GPU, (0, 0) if it is none or the trace does not tell."""
    major, minor = (plane.stats.get(f"compute_cap_{part}") for part in ("major", "minor"))
    if not isinstance(major, int) or not isinstance(minor, int) or _vendor(plane) not in ("", "nvidia"):
        return 0, 0
    return major, minor


def _vendor(plane: Plane) -> str:
    return str(plane.stats.get("device_vendor", "")).lower()


def _tensor_cores(plane: Plane) -> bool | None:
    """Tell whether a GPU has tensor cores: NVIDIA's since Volta, and AMD's MI300."""
    if _vendor(plane) == "amd":
        both = tuple(plane.stats.get(f"compute_cap_{part}") for part in ("major", "minor"))
        return True if both == (9, 4) else None
    major, _ = _capability(plane)
    return major >= 7 if major else None


def _any(values: Iterator[bool | None]) -> bool | None:
    found = set(values)
    return True if True in found else None if None in found or not found else False


def _use(host: str, own: DeviceTime) -> DeviceUse:
    return DeviceUse(
        host, device_label(own.name), own.compute.total(), own.copies_alone_ps, own.idle_ps, own.wall_ps,
        own.kernel_sum_ps, own.copies.total(),
    )  # fmt: skip
