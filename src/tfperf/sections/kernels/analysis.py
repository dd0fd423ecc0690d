"""GPU kernels by op and launch, copies, and device time.

A row is a kernel as launched by one op with one grid and block. Its times are summed over streams and devices. Wall
time is per device: compute, copies outside compute and idle time add up to the capture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Host, Tabular
from tfperf.base.arrays import (
    EMPTY,
    MOST,
    Bools,
    Column,
    Float64s,
    Int64s,
    Intervals,
    capped_sum,
    capped_sums,
    distinct,
    distinct_index,
    distinct_rows,
    group_equal,
    group_sums,
    median,
    medians,
    ordered_percentile,
    overlap,
    sorted_in_groups,
    text_index,
    union,
    union_all,
    union_sorted,
)
from tfperf.base.display import Plotted
from tfperf.base.units import PS_PER_MS, PS_PER_US, percent
from tfperf.sections.kernels.sequences import KernelSequence, combine_sequences, kernel_sequences
from tfperf.sections.kernels.tpu_cores import (
    AsyncCopies,
    Regions,
    async_copies,
    combine_copies,
    combine_regions,
    kernel_regions,
    narrow_copies,
    narrow_regions,
)
from tfperf.sections.xla.analysis import Xla
from tfperf.trace.device.device_work import DeviceOp, DeviceTime, DeviceWork, device_label, trace_texts
from tfperf.trace.device.families import family_of_kernel
from tfperf.trace.device.kernels import (
    NO_COPY,
    NO_DETAILS,
    TINY_PS,
    Dim,
    KernelDetails,
    bits_of_name,
    is_op_eligible,
    is_product,
    occupancy,
    parse_copy,
    parse_kernel,
    short_name,
    tensorflow_kernel,
    tensorflow_op,
    uses_tensor_cores,
)
from tfperf.trace.event_names import parse_op
from tfperf.trace.host.activities import Activity
from tfperf.trace.host.api_calls import API_KINDS, ApiKind, api_calls, api_label
from tfperf.trace.host.launches import LaunchLinks
from tfperf.trace.host_trace import HostTrace, Plane, by_line
from tfperf.trace.nesting import innermost_around
from tfperf.trace.steps.breakdown import Breakdown, CountedSteps
from tfperf.trace.steps.steps import Steps

if TYPE_CHECKING:
    from tfperf.sections.xla.instructions import HloOp

_PS_PER_NS = 1000
_ONE: Dim = (1, 1, 1)


class Kernel(Struct, frozen=True):
    """Identity of a kernel: unknown texts are empty, unknown values None."""

    name: str
    launch: KernelDetails
    """Without occupancy, which also depends on the device."""
    uses_tensor_cores: bool | None
    is_eligible: bool | None
    """Whether tensor cores can run this kind of op."""
    op: DeviceOp


class KernelSums(Struct, frozen=True):
    """Occurrences and time of a kernel, in picoseconds; `occupancy_percent` is None if it varies."""

    occupancy_percent: float | None
    occurrences: int
    total_ps: int
    min_ps: int
    max_ps: int
    median_ps: float | None
    """None if it is unknown: sums of several hosts with different medians."""
    squares: float
    """Sum of the squared differences from the mean."""


Tally = dict[Kernel, KernelSums]
NameMedians = dict[str, float | None]
"""Median durations by short name, in picoseconds; None as in `KernelSums`."""


def add(tally: Tally, kernel: Kernel, sums: KernelSums) -> None:
    """Add sums to those of a kernel."""
    before = tally.get(kernel)
    if before is not None:
        pair = ((each.occurrences, each.total_ps, each.squares) for each in (before, sums))
        occurrences, total_ps, squares = joined(*pair)
        sums = KernelSums(
            sums.occupancy_percent if sums.occupancy_percent == before.occupancy_percent else None,
            occurrences,
            total_ps,
            min(before.min_ps, sums.min_ps),
            max(before.max_ps, sums.max_ps),
            sums.median_ps if sums.median_ps == before.median_ps else None,
            squares,
        )
    tally[kernel] = sums


Moments = tuple[int, int, float]
"""Number of durations, their sum, and the sum of their squared differences from the mean."""


def joined(first: Moments, second: Moments) -> Moments:
    """Return the moments of two sets together, by the formula of Chan, Golub and LeVeque (1979)."""
    (count, total, squares), (other_count, other_total, other_squares) = first, second
    distance = other_total / other_count - total / count
    squares = squares + other_squares + distance * distance * count * other_count / (count + other_count)
    return count + other_count, total + other_total, squares


def order_of(kernel: Kernel) -> tuple[object, ...]:
    """Return the sort key of TensorFlow for kernels of equal total: name, launch, flags, op."""
    launch = kernel.launch
    shared = (launch.static_shared_bytes, launch.dynamic_shared_bytes, launch.shared_bytes)
    numbers = (launch.registers, *shared, kernel.uses_tensor_cores, kernel.is_eligible)
    comparable = tuple(-1 if number is None else int(number) for number in numbers)
    return (kernel.name, launch.grid or (), launch.block or (), comparable, *kernel.op)


class KernelRuns(Struct, frozen=True):
    """The kernels of a host and their runs: `kernel` has the kernel of each run."""

    kernels: tuple[Kernel, ...]
    occupancy_percent: tuple[float | None, ...]
    """None if it varies."""
    rows: Int64s
    """Rows of the trace."""
    kernel: Int64s
    """Index of the kernel of each row."""

    def each(self, answers: Sequence[bool]) -> Bools:
        """Return the answer for the kernel of each row, from those for all kernels."""
        return np.array(answers, np.bool_)[self.kernel]


def _kernel_runs(
    rows: Int64s, columns: Sequence[Column], kernel_of: Callable[..., tuple[Kernel, float | None]]
) -> KernelRuns:
    """Return the runs of each kernel; `kernel_of` returns the kernel, and its occupancy, of a row of the columns."""
    first, number = distinct_rows(columns)
    kernels: dict[Kernel, int] = {}
    occupancies: list[float | None] = []
    places = []
    for row in np.stack([column[first] for column in columns], axis=1).tolist():
        kernel, occupancy_percent = kernel_of(*row)
        place = kernels.setdefault(kernel, len(kernels))
        if place == len(occupancies):
            occupancies.append(occupancy_percent)
        elif occupancies[place] != occupancy_percent:
            occupancies[place] = None
        places.append(place)
    return KernelRuns(tuple(kernels), tuple(occupancies), rows, np.array(places, np.int64)[number])


def kernel_runs(trace: HostTrace, work: DeviceWork) -> KernelRuns:
    """Return the runs of all kernels, including those with unknown launch or op, in the order of `work`."""
    kernel_at = np.flatnonzero(~work.moves)
    rows = work.rows[kernel_at]
    details, equations = (trace.number_at(stat, rows, -1) for stat in ("kernel_details", "equation"))
    columns: list[Column] = [trace.name[rows], work.op[kernel_at], details, equations, work.plane[kernel_at]]
    details_of_text = [parse_kernel(text) for text in trace_texts(trace, "kernel_details")]
    launches = [(each._replace(occupancy_percent=None), each.occupancy_percent) for each in details_of_text]
    equation_texts, ops = trace_texts(trace, "equation"), (*work.ops, DeviceOp("", ""))

    def kernel_of(name: int, op_at: int, detail: int, equation: int, plane: int) -> tuple[Kernel, float | None]:
        op, (launch, occupancy_percent) = ops[op_at], launches[detail]
        kernel = Kernel(
            trace.names[name],
            launch,
            uses_tensor_cores(trace.names[name]),
            is_op_eligible(op.name, op.type, op.hlo_op, op.opcode, equation_texts[equation]),
            op,
        )
        return kernel, occupancy_percent or occupancy(launch, compute_capability(trace.planes[plane]))

    return _kernel_runs(rows, columns, kernel_of)


def kernel_runs_of_tensorflow(trace: HostTrace, work: DeviceWork) -> KernelRuns:
    """Return the runs of kernels that TensorFlow's own profiler adds up.

    It counts only kernels with launch details, with its own rules for tensor cores. It cannot read the launch details
    in files of TensorFlow 2.2 to 2.4, which contain groups.
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

    def kernel_of(name: int, detail: int, op: int, hlo: int, equation: int, place: int) -> tuple[Kernel, float | None]:
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
        # It shows 0 for unreadable values, and blocks of one thread.
        static, dynamic = details.static_shared_bytes or 0, details.dynamic_shared_bytes or 0
        grid, block = details.grid or _ONE, details.block or _ONE
        launch = KernelDetails(grid, block, details.registers or 0, static, dynamic, static + dynamic)
        kernel = Kernel(trace.names[name], launch, on_tensor_cores, is_eligible, DeviceOp(op_name, ""))
        return kernel, details.occupancy_percent

    return _kernel_runs(rows, columns, kernel_of)


def tally_runs(runs: KernelRuns, duration_ps: Int64s) -> tuple[Tally, NameMedians]:
    """Add up the runs of each kernel, and return the median of the kernels with each short name."""
    if not len(runs.rows):
        return {}, {}
    ordered, begins = sorted_in_groups(runs.kernel, duration_ps)
    counts, totals = np.diff(begins, append=len(ordered)), capped_sums(ordered, begins)
    differences = ordered - np.repeat(totals / counts, counts)
    numbers = (
        counts,
        totals,
        np.minimum.reduceat(ordered, begins),
        np.maximum.reduceat(ordered, begins),
        medians(ordered, begins),
        np.add.reduceat(differences * differences, begins),
    )
    rows = zip(runs.kernels, runs.occupancy_percent, *(column.tolist() for column in numbers), strict=True)
    names, of_name = text_index([short_name(kernel.name) for kernel in runs.kernels])
    by_name = medians(*sorted_in_groups(np.repeat(of_name, counts), ordered)).tolist()
    return {kernel: KernelSums(*sums) for kernel, *sums in rows}, dict(zip(names, by_name, strict=True))


OTHERS = Kernel("(other kernels)", KernelDetails(), uses_tensor_cores=None, is_eligible=None, op=DeviceOp("", ""))


class Kernels(Plotted, Tabular, frozen=True, kw_only=True):
    """Kernels, the largest total first, in columns (int64 picoseconds); all empty without device events."""

    home = ("kernels", "kernels")

    kernels: tuple[Kernel, ...]
    occupancy_percent: tuple[float | None, ...]
    occurrences: Int64s
    total_ps: Int64s
    min_ps: Int64s
    max_ps: Int64s
    median_ps: tuple[float | None, ...]
    squares: Float64s
    """Sum of the squared differences from the mean of each kernel."""
    name_median_ps: NameMedians
    copies: tuple[Copies, ...]
    devices: tuple[DeviceTotals, ...]
    launches: tuple[DeviceLaunches, ...]
    precision: tuple[DevicePrecision, ...]
    """One entry per device that ran kernels, as in `launches`."""
    has_tensor_cores: bool | None
    """Whether any device has tensor cores (AMD: matrix cores); None if unknown."""
    on_amd: bool = False
    async_copies: AsyncCopies = AsyncCopies()
    regions: Regions = Regions()
    api_calls: tuple[ApiCallSums, ...] = ()
    sequences: tuple[KernelSequence, ...] = ()

    def __len__(self) -> int:
        return len(self.kernels)

    @property
    def whole_ps(self) -> float:
        """Return the time of all kernels, summed over streams and devices; a float, because it may exceed int64."""
        return float(self.total_ps.sum(dtype=np.float64))

    def columns(self) -> dict[str, list[object]]:
        """Return one row per kernel and launching op, times in microseconds."""
        kernels, launches = self.kernels, [kernel.launch for kernel in self.kernels]
        return {
            "rank": list(range(1, len(self) + 1)),
            "percent": (100.0 * (self.total_ps / max(self.whole_ps, 1.0))).tolist(),
            "kernel": [short_name(kernel.name) for kernel in kernels],
            "kernel_name": [kernel.name for kernel in kernels],
            "op_name": [kernel.op.name or None for kernel in kernels],
            "op_type": [kernel.op.type or None for kernel in kernels],
            "hlo_op": [kernel.op.hlo_op or None for kernel in kernels],
            "hlo_module": [kernel.op.hlo_module or None for kernel in kernels],
            "grid_dim": [_dim_text(launch.grid) for launch in launches],
            "block_dim": [_dim_text(launch.block) for launch in launches],
            "registers_per_thread": [launch.registers for launch in launches],
            "static_shared_bytes": [launch.static_shared_bytes for launch in launches],
            "dynamic_shared_bytes": [launch.dynamic_shared_bytes for launch in launches],
            "shared_bytes": [launch.shared_bytes for launch in launches],
            "occupancy_percent": list(self.occupancy_percent),
            "is_op_tensor_core_eligible": [kernel.is_eligible for kernel in kernels],
            "is_kernel_using_tensor_core": [kernel.uses_tensor_cores for kernel in kernels],
            "occurrences": self.occurrences.tolist(),
            "total_us": (self.total_ps / PS_PER_US).tolist(),
            "mean_us": (self.total_ps / np.maximum(self.occurrences, 1) / PS_PER_US).tolist(),
            "min_us": (self.min_ps / PS_PER_US).tolist(),
            "max_us": (self.max_ps / PS_PER_US).tolist(),
            "median_us": [None if ps is None else ps / PS_PER_US for ps in self.median_ps],
            "stdev_us": [*map(_stdev_us, self.occurrences.tolist(), self.squares.tolist())],
        }

    def by_name(self) -> dict[str, list[object]]:
        """Return sums per short name, the largest total first."""
        sums: dict[str, Moments] = {}
        columns = (self.occurrences, self.total_ps, self.squares)
        moments = zip(*(column.tolist() for column in columns), strict=True)
        for kernel, added in zip(self.kernels, moments, strict=True):
            name = short_name(kernel.name)
            before = sums.get(name)
            sums[name] = added if before is None else joined(before, added)
        names = sorted(sums, key=lambda name: (-sums[name][1], name))
        counts, totals_ps, squares = zip(*(sums[name] for name in names), strict=True) if names else ((), (), ())
        whole_ps = max(sum(totals_ps), 1)
        return {
            "kernel": [*names],
            "occurrences": [*counts],
            "total_ms": [total_ps / PS_PER_MS for total_ps in totals_ps],
            "percent": [100.0 * total_ps / whole_ps for total_ps in totals_ps],
            "mean_us": [total_ps / count / PS_PER_US for total_ps, count in zip(totals_ps, counts, strict=True)],
            "median_us": [
                None if value is None else value / PS_PER_US for value in map(self.name_median_ps.get, names)
            ],
            "stdev_us": [*map(_stdev_us, counts, squares)],
        }

    def by_family(self, ops: Iterable[HloOp] = ()) -> dict[str, list[object]]:
        """Return sums per family, the largest total first; `ops` are the HLO ops of the programs that ran."""
        of_ops = {(op.module, op.op): op.family for op in ops}
        counts, totals_ps, of_names = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
        rows = zip(self.kernels, self.occurrences.tolist(), self.total_ps.tolist(), strict=True)
        for kernel, count, total_ps in rows:
            of_op = of_ops.get((kernel.op.hlo_module, kernel.op.hlo_op))
            family = family_of_kernel(kernel.name, kernel.op.type, kernel.op.hlo_op, of_op)
            counts[family] += count
            totals_ps[family] += total_ps
            of_names[family, short_name(kernel.name)] += total_ps
        largest = {family: name for (family, name), _ in reversed(of_names.most_common())}
        families = sorted(counts, key=lambda family: (-totals_ps[family], family))
        whole_ps = max(sum(totals_ps.values()), 1)
        return {
            "family": [*families],
            "occurrences": [counts[family] for family in families],
            "total_ms": [totals_ps[family] / PS_PER_MS for family in families],
            "percent": [100.0 * totals_ps[family] / whole_ps for family in families],
            "kernel": [largest[family] for family in families],
        }

    def time_by_tensor_cores_ps(self, uses_tensor_cores: bool | None) -> int:
        """Return the time of kernels on tensor cores (True), not on them (False), or with an unclear name (None)."""
        rows = zip(self.kernels, self.total_ps.tolist(), strict=True)
        return sum(total_ps for kernel, total_ps in rows if kernel.uses_tensor_cores is uses_tensor_cores)

    @property
    def tensor_cores(self) -> str:
        """Return the vendor's name of tensor cores."""
        return "matrix cores" if self.on_amd else "tensor cores"

    def missed_tensor_cores(self) -> dict[str, int]:
        """Return eligible ops without a kernel on tensor cores, and their time; longest first.

        An op is omitted if the name of any of its kernels does not show whether it uses tensor cores.
        """
        sums = Counter[DeviceOp]()
        on_tensor_cores = {kernel.op for kernel in self.kernels if kernel.uses_tensor_cores is not False}
        for kernel, total_ps in zip(self.kernels, self.total_ps.tolist(), strict=True):
            if kernel.is_eligible and kernel.op not in on_tensor_cores:
                sums[kernel.op] += total_ps
        ops = sorted(sums, key=lambda op: (-sums[op], op))
        return {op.hlo_op or op.name: sums[op] for op in ops}


@lru_cache(maxsize=4096)
def _dim_text(dim: Dim | None) -> str | None:
    return ",".join(map(str, dim)) if dim else None


def _stdev_us(count: int, squares: float) -> float | None:
    """Return the standard deviation of a sample in microseconds; None for one value."""
    return sqrt(squares / (count - 1)) / PS_PER_US if count > 1 else None


def analyze(host: Host) -> Kernels:
    """Add up kernels and copies of a host's GPUs, and the time of its devices."""
    trace, work, breakdown = host.trace, host.device_work, host["steps"]
    counted_steps = breakdown.steps.only(np.flatnonzero(breakdown.steps.headline))
    runs = kernel_runs(trace, work)
    if host.as_tensorflow:
        counted = kernel_runs_of_tensorflow(trace, work)
        tally, name_median_ps = tally_runs(counted, trace.duration_ps[counted.rows] // _PS_PER_NS * _PS_PER_NS)
    else:
        tally, name_median_ps = tally_runs(runs, trace.duration_ps[runs.rows])
    names_and_ops = [(each.name, each.op) for each in runs.kernels]
    return _kernels(
        tally,
        name_median_ps=name_median_ps,
        api_calls=sum_api_calls(host),
        copies=copies_of(trace, work),
        devices=tuple(DeviceTotals.of(trace.host, device) for device in host.device_times),
        launches=launches_of(host, counted_steps),
        precision=precision_of(host, runs, breakdown.steps),
        has_tensor_cores=any_has(has_tensor_cores(trace.planes[plane]) for plane in trace.devices),
        on_amd=any(_vendor(trace.planes[plane]) == "amd" for plane in trace.devices),
        async_copies=combine_copies([async_copies(host)]),
        regions=combine_regions([kernel_regions(host)]),
        sequences=combine_sequences(kernel_sequences(host, names_and_ops, runs.kernel)),
    )


def combine(parts: list[Kernels]) -> Kernels:
    """Merge rows that differ only in the host, and list the devices of all hosts."""
    if len(parts) == 1:
        return parts[0]
    tally: Tally = {}
    for part in parts:
        _add_rows(tally, part, part.kernels)
    name_median_ps: NameMedians = {}
    for part in parts:
        for name, value in part.name_median_ps.items():
            name_median_ps[name] = value if name_median_ps.get(name, value) == value else None
    return _kernels(
        tally,
        name_median_ps=name_median_ps,
        api_calls=tuple(calls for part in parts for calls in part.api_calls),
        copies=tuple(copies for part in parts for copies in part.copies),
        devices=tuple(device for part in parts for device in part.devices),
        launches=tuple(device for part in parts for device in part.launches),
        precision=tuple(device for part in parts for device in part.precision),
        has_tensor_cores=any_has(part.has_tensor_cores for part in parts if part.devices),
        on_amd=any(part.on_amd for part in parts),
        async_copies=combine_copies([part.async_copies for part in parts]),
        regions=combine_regions([part.regions for part in parts]),
        sequences=combine_sequences(row for part in parts for row in part.sequences),
    )


def narrow(kernels: Kernels, _: Breakdown, after: Breakdown) -> Kernels:
    """Restrict precision, waits for copies and waits in kernels to the steps of `after`; the rest is unchanged."""
    devices = (replace(each, averaged=each.averaged.counting(after)) for each in kernels.precision)
    copies, regions = narrow_copies(kernels.async_copies, after), narrow_regions(kernels.regions, after)
    return replace(kernels, precision=tuple(devices), async_copies=copies, regions=regions)


def shorten(kernels: Kernels, most: int) -> Kernels:
    """Return the `most` kernels with the largest time, and one row for all others."""
    if len(kernels) <= most:
        return kernels
    tally: Tally = {}
    _add_rows(tally, kernels, (*kernels.kernels[:most], *[OTHERS] * (len(kernels) - most)))
    others = (
        *("copies", "devices", "launches", "precision", "has_tensor_cores", "on_amd", "async_copies", "regions"),
        *("api_calls", "sequences"),
    )
    kept = {short_name(kernel.name) for kernel in kernels.kernels[:most]}
    cut = {short_name(kernel.name) for kernel in kernels.kernels[most:]}
    by_name = kernels.name_median_ps.items()
    name_median_ps = {name: None if name in cut else median_ps for name, median_ps in by_name if name in kept}
    return _kernels(tally, name_median_ps=name_median_ps, **{name: getattr(kernels, name) for name in others})


def _add_rows(tally: Tally, kernels: Kernels, keys: Sequence[Kernel]) -> None:
    columns = (kernels.occurrences, kernels.total_ps, kernels.min_ps, kernels.max_ps)
    numbers = (*(values.tolist() for values in columns), kernels.median_ps, kernels.squares.tolist())
    for key, *sums in zip(keys, kernels.occupancy_percent, *numbers, strict=True):
        add(tally, key, KernelSums(*sums))


def _kernels(tally: Tally, **others: Any) -> Kernels:
    with_total = Counter(sums.total_ps for sums in tally.values())

    def rank(item: tuple[Kernel, KernelSums]) -> tuple[object, ...]:
        kernel, sums = item
        return (-sums.total_ps, order_of(kernel) if with_total[sums.total_ps] > 1 else ())

    ordered = dict(sorted(tally.items(), key=rank))
    numbers = [(sums.occurrences, min(sums.total_ps, MOST), sums.min_ps, sums.max_ps) for sums in ordered.values()]
    occurrences, total_ps, min_ps, max_ps = np.minimum(np.array(numbers, np.int64).reshape(-1, 4), MOST).T
    return Kernels(
        kernels=tuple(ordered),
        occupancy_percent=tuple(sums.occupancy_percent for sums in ordered.values()),
        occurrences=occurrences,
        total_ps=total_ps,
        min_ps=min_ps,
        max_ps=max_ps,
        median_ps=tuple(sums.median_ps for sums in ordered.values()),
        squares=np.array([sums.squares for sums in ordered.values()], np.float64),
        **others,
    )


_KINDS = {Activity.HOST_TO_DEVICE: "H2D", Activity.DEVICE_TO_HOST: "D2H", Activity.DEVICE_TO_DEVICE: "D2D"}
_ORDER = ("H2D", "D2H", "D2D", "P2P", "H2H", "Memset", "Unknown")


class DeviceTotals(Struct, frozen=True, kw_only=True):
    """Capture time of one device in picoseconds: compute + collectives alone + copies alone + idle = wall."""

    host: str
    device: str
    compute_ps: int
    collectives_alone_ps: int
    """Time of collectives outside compute."""
    copies_alone_ps: int
    """Time of copies outside compute and collectives."""
    idle_ps: int
    wall_ps: int
    kernel_sum_ps: int
    """Sum over kernels, collectives included, which exceeds their wall time if kernels overlap."""
    collectives_ps: int
    """Wall time of collectives, including those that overlap compute."""
    copies_ps: int
    """Wall time of copies, including those that overlap compute or collectives."""

    @classmethod
    def of(cls, host: str, device: DeviceTime) -> DeviceTotals:
        """Return the totals of a device of a host."""
        same = ("collectives_alone_ps", "copies_alone_ps", "idle_ps", "wall_ps", "kernel_sum_ps")
        times = {f"{name}_ps": getattr(device, name).total() for name in ("compute", "collectives", "copies")}
        return cls(
            host=host, device=device_label(device.name), **times, **{name: getattr(device, name) for name in same}
        )


def compute_capability(plane: Plane) -> tuple[int, int]:
    """Return the compute capability of an NVIDIA GPU; (0, 0) for other devices and if unknown."""
    major, minor = (plane.stats.get(f"compute_cap_{part}") for part in ("major", "minor"))
    if not isinstance(major, int) or not isinstance(minor, int) or _vendor(plane) not in ("", "nvidia"):
        return 0, 0
    return major, minor


def has_tensor_cores(plane: Plane) -> bool | None:
    """Return whether a GPU has tensor cores: NVIDIA since Volta, and AMD MI300; None if unknown."""
    if _vendor(plane) == "amd":
        capability = tuple(plane.stats.get(f"compute_cap_{part}") for part in ("major", "minor"))
        return True if capability == (9, 4) else None
    major, _ = compute_capability(plane)
    return major >= 7 if major else None


def _vendor(plane: Plane) -> str:
    return str(plane.stats.get("device_vendor", "")).lower()


def any_has(answers: Iterable[bool | None]) -> bool | None:
    """Return whether any answer is True; None if none is but one is unknown, or without answers."""
    distinct = set(answers)
    return True if True in distinct else None if None in distinct or not distinct else False


class Copies(Struct, frozen=True, kw_only=True):
    """Copies of one kind on one device; the `sized` ones have a known size."""

    host: str
    device: str
    kind: str
    count: int
    total_ps: int
    sized: int
    sized_bytes: int
    sized_ps: int
    pageable_ps: int
    """Time of copies from or to pageable host memory, as far as recorded."""
    pinned_ps: int

    @property
    def total_bytes(self) -> int | None:
        """Return the bytes of all copies; None if the size of any is unknown."""
        return self.sized_bytes if self.sized == self.count else None

    @property
    def mean_bytes(self) -> float | None:
        """Return the mean size of copies of known size."""
        return self.sized_bytes / self.sized if self.sized else None

    @property
    def gb_per_second(self) -> float | None:
        """Return the rate of copies of known size, in 10^9 bytes per second of copying."""
        return 1000.0 * self.sized_bytes / self.sized_ps if self.sized_ps else None

    @property
    def memory(self) -> str | None:
        """Return the kind of host memory that took part; None if not recorded."""
        kinds = [kind for kind, time_ps in (("pageable", self.pageable_ps), ("pinned", self.pinned_ps)) if time_ps]
        return " and ".join(kinds) or None


def copies_of(trace: HostTrace, work: DeviceWork) -> tuple[Copies, ...]:
    """Add up copies and fills per device and kind."""
    move_at = np.flatnonzero(work.moves)
    rows = work.rows[move_at]
    stats = ("memcpy_details", "memset_details")
    columns: list[Column] = [work.plane[move_at], trace.name[rows], work.activity[move_at].astype(np.int64)]
    columns += [trace.number_at(stat, rows, -1) for stat in stats]
    copy_texts, fill_texts = (trace_texts(trace, stat) for stat in stats)
    sums: dict[tuple[int, str], dict[str, int]] = {}
    for (plane, name, activity, copy, fill), (count, total_ps, _, _) in group_sums(trace.duration_ps[rows], columns):
        text = copy_texts[copy] or fill_texts[fill]
        kind = _kind(trace.names[name].lower(), Activity(activity), text.lower())
        details = parse_copy(text) if text else NO_COPY
        is_sized = details.size_bytes is not None
        memory = (details.source, details.destination)
        is_pageable = "pageable" in memory
        added = {
            "count": count,
            "total_ps": total_ps,
            "sized": count * is_sized,
            "sized_bytes": count * (details.size_bytes or 0),
            "sized_ps": total_ps * is_sized,
            "pageable_ps": total_ps * is_pageable,
            "pinned_ps": total_ps * ("pinned" in memory and not is_pageable),
        }
        before = sums.get((plane, kind), {})
        sums[plane, kind] = {key: min(value + before.get(key, 0), MOST) for key, value in added.items()}
    ordered = sorted(sums.items(), key=lambda item: (item[0][0], _ORDER.index(item[0][1])))
    labels = {plane: device_label(trace.planes[plane].name) for (plane, _), _ in ordered}
    return tuple(Copies(host=trace.host, device=labels[at], kind=kind, **sums) for (at, kind), sums in ordered)


def _kind(name: str, activity: Activity, details: str) -> str:
    if "memset" in name[:10]:
        return "Memset"
    if activity == Activity.DEVICE_TO_DEVICE and any(part in f"{name} {details}" for part in ("p2p", "ptop")):
        return "P2P"
    return _KINDS.get(activity, "H2H" if "htoh" in name or "h2h" in name else "Unknown")


# --- kernel launches: host cost, delay and queueing ---
# One call may start many kernels (a CUDA graph); its delay is then the delay of the first kernel.

ThreadMode = Literal["gpu_private", "gpu_shared", "global"]


class Spread(Struct, frozen=True):
    """Median, 95th percentile and maximum, in picoseconds; None without values."""

    median_ps: float | None = None
    p95_ps: float | None = None
    max_ps: float | None = None


class DeviceLaunches(Struct, frozen=True, kw_only=True):
    """The kernels of one device, and the calls that launched them."""

    host: str
    device: str
    kernels: int
    tiny_kernel_percent: float | None
    """Share of kernels shorter than `TINY_PS`."""
    tiny_time_percent: float | None
    """Share of kernel time in kernels shorter than `TINY_PS`."""
    launches: int
    """Calls on the host that launched at least one of these kernels."""
    unmatched_kernels: int
    """Kernels whose call is missing in the trace, or shares its id with another call."""
    delay: Spread
    """From the end of the call to the start of its first kernel; negative if the kernel starts earlier."""
    queued: Spread
    """Part of the delay in which the stream was busy with earlier work."""
    unqueued_percent: float | None
    """Share of calls whose kernel found its stream idle; None without calls."""
    kernel: Spread
    call: Spread
    thread_mode: ThreadMode | None
    """Threads that launch GPU ops (TF_GPU_THREAD_MODE); None if thread names do not show it."""
    early: int
    """Calls that returned after their kernel started, which is normal."""
    before: int
    """Calls whose first kernel starts before them, which means that host and device clocks disagree."""
    shorter_than_call_percent: float | None
    """Share of kernels shorter than their call, among calls that launch one kernel."""
    kernels_per_step: float | None
    launches_per_step: float | None
    call_ps_per_step: float | None


def launches_of(host: Host, steps: Steps) -> tuple[DeviceLaunches, ...]:
    """Match kernels with the calls that launched them, per device; medians per step are over all of `steps`."""
    work = host.device_work
    kernels = np.flatnonzero(~work.moves)
    planes = work.plane[kernels]
    return tuple(
        _launches_of_device(host.trace, work, kernels[planes == plane], host.launch_links, steps)
        for plane in distinct(planes).tolist()
    )


def _launches_of_device(
    trace: HostTrace, work: DeviceWork, kernels: Int64s, links: LaunchLinks, steps: Steps
) -> DeviceLaunches:
    """Return the launches of one device; `kernels` are indices into `work`."""
    rows = work.rows[kernels]
    duration = trace.duration_ps[rows]
    is_tiny = duration < TINY_PS
    call = links.of(rows)
    matched = np.flatnonzero(call >= 0)
    order = matched[np.lexsort((trace.start_ps[rows[matched]], call[matched]))]
    first = np.flatnonzero(np.diff(call[order], prepend=-1) != 0)
    call, first_kernel, kernel_count = call[order[first]], order[first], np.diff(first, append=len(order))
    start, call_end = trace.start_ps[rows[first_kernel]], trace.end_ps[call]
    call_start, call_ps = trace.start_ps[call], trace.duration_ps[call]
    is_before = start < call_start
    queued = _queued(trace, work.line[kernels[first_kernel]], call_end, start)
    is_single, is_shorter = kernel_count == 1, duration[first_kernel] < call_ps
    return DeviceLaunches(
        host=trace.host,
        device=device_label(trace.planes[int(work.plane[kernels[0]])].name),
        kernels=len(rows),
        tiny_kernel_percent=percent(int(is_tiny.sum()), len(rows)),
        tiny_time_percent=percent(capped_sum(duration[is_tiny]), capped_sum(duration)),
        launches=len(call),
        unmatched_kernels=len(rows) - int(kernel_count.sum()),
        delay=_spread(start - call_end),
        queued=_spread(queued),
        unqueued_percent=percent(int((queued == 0).sum()), len(call)),
        kernel=_spread(duration),
        call=_spread(call_ps),
        thread_mode=thread_mode(trace, call),
        early=int(((start < call_end) & ~is_before).sum()),
        before=int(is_before.sum()),
        shorter_than_call_percent=percent(int((is_single & is_shorter).sum()), int(is_single.sum())),
        kernels_per_step=_per_step(trace.start_ps[rows], steps),
        launches_per_step=_per_step(call_start, steps) if len(call) else None,
        call_ps_per_step=_per_step(call_start, steps, call_ps) if len(call) else None,
    )


def thread_mode(trace: HostTrace, calls: Int64s) -> ThreadMode | None:
    """Return the threads on which TensorFlow runs GPU ops, from the names of the host's threads.

    The pool of one GPU is `gpu_private_0` and the shared pool of all GPUs is `gpu_shared`; each exists only in its
    mode. By default (`global`), ops of GPUs launch from the pool `Compute`, which they share with those of the CPU.
    """
    names = {line.name.removeprefix("tf_") for line in trace.host_lines if line.stop > line.start}
    modes: tuple[ThreadMode, ...] = ("gpu_private", "gpu_shared")
    special = next((mode for mode in modes if any(name.startswith(mode) for name in names)), None)
    launching = {trace.lines[line].name for line in distinct(trace.line_of[calls]).tolist()}
    is_global = any(name.startswith("tf_Compute") for name in launching)
    return special or ("global" if is_global else None)


def _queued(trace: HostTrace, line: Int64s, call_end: Int64s, start: Int64s) -> Int64s:
    """Return how long the stream `line` was busy from the end of the call to the start of its kernel."""
    queued = np.zeros(len(line), np.int64)
    for stream in distinct(line).tolist():
        rows = slice(trace.lines[stream].start, trace.lines[stream].stop)
        busy = union_sorted(trace.start_ps[rows], trace.end_ps[rows])
        on_stream = line == stream
        queued[on_stream] = overlap(busy, call_end[on_stream], start[on_stream])
    return queued


def _spread(values: Int64s) -> Spread:
    if not len(values):
        return Spread()
    ordered = np.sort(values).astype(np.float64)
    return Spread(*(float(ordered_percentile(ordered, share)) for share in (0.5, 0.95, 1.0)))


def _per_step(start: Int64s, steps: Steps, weight: Int64s | None = None) -> float | None:
    """Return the median over steps of the events that start in a step, or of the sum of their weights.

    None without steps, and if all events lie outside them, because they then do not belong to these steps.
    """
    order = np.argsort(start, kind="stable")
    ordered = start[order]
    first, last = np.searchsorted(ordered, steps.start_ps), np.searchsorted(ordered, steps.end_ps)
    if not (last > first).any():
        return None
    if weight is None:
        return median(last - first)
    sums = np.concatenate(([0], np.cumsum(weight[order])))
    return median(sums[last] - sums[first])


# --- precision of compute: time of 16-bit and 32-bit kernels in the steps of each device ---
# Eligible for 16 bit is the time with a kernel of a matrix product or convolution in 32 bit, not on tensor cores. Mixed
# precision changes this time most; the gain depends on the shapes, and on whether the step waits for the device.
# Kernels of unknown precision or op may be eligible too, and kernels whose program has the precision, not their name:
# they may multiply 32-bit numbers on tensor cores (TF32). An XLA matrix product is not eligible if its program computes
# in 16 bit or TF32, or if it is faster than the device's 32-bit peak.

Part = Literal["compute_16", "compute_32", "compute_unknown", "eligible", "most_eligible"]
"""Kernels by precision; those certainly eligible for 16 bit; those including possibly eligible ones."""
_PRECISIONS: Mapping[Part, Activity] = {
    "compute_16": Activity.COMPUTE_16,
    "compute_32": Activity.COMPUTE_32,
    "compute_unknown": Activity.COMPUTE_UNKNOWN,
}


class DevicePrecision(Struct, frozen=True, eq=False, kw_only=True):
    """The kernels of one device by precision: wall time per step in picoseconds, and the averaged steps.

    If kernels overlap, 16 bit takes precedence over 32 bit, and 32 bit over unknown. A device without tensor cores has
    no eligible time.
    """

    host: str
    device: str
    averaged: CountedSteps
    by_step_ps: Mapping[Part, Int64s]

    @property
    def steps(self) -> int:
        """Return the number of averaged steps; 0 if there are no times."""
        return self.averaged.count

    def total_ps(self, part: Part) -> int | None:
        """Return the time of a part in the averaged steps; None if the device has no tensor cores."""
        return self.averaged.sum(self.by_step_ps[part]) if part in self.by_step_ps else None

    @property
    def eligible_percent(self) -> float | None:
        """Return the share of step time certainly eligible for 16 bit, in percent."""
        return self._percent("eligible")

    @property
    def most_eligible_percent(self) -> float | None:
        """Return the share of step time possibly eligible for 16 bit, in percent."""
        return self._percent("most_eligible")

    def _percent(self, part: Part) -> float | None:
        return self.averaged.percent(self.by_step_ps[part]) if part in self.by_step_ps else None


def precision_of(host: Host, runs: KernelRuns, steps: Steps) -> tuple[DevicePrecision, ...]:
    """Return the precision of each device that runs kernels."""
    work = host.device_work
    kernels, eligible = np.flatnonzero(~work.moves), _eligible(host, runs)
    planes, found = work.plane[kernels], []
    for plane in distinct(planes).tolist():
        here = planes == plane
        found.append(_precision_of_device(host.trace, work, kernels[here], [each[here] for each in eligible], steps))
    return tuple(found)


def _eligible(host: Host, runs: KernelRuns) -> tuple[Bools, Bools]:
    """Return which runs certainly are eligible for 16 bit, and which may be."""
    xla: Xla = host["xla"]
    peak, products = xla.peaks.flops_per_second("fp32"), [op for op in xla.ops if op.matrix_flops]
    faster, others = set[tuple[str, str]](), set[tuple[str, str]]()
    for op in products:
        rate = op.work.tflops_per_second if op.work is not None else None
        is_faster = peak is not None and rate is not None and rate * 1e12 > peak
        is_faster = is_faster or op.precision in ("tf32", "fp16", "bf16", "fp8", "fp4", "int8")
        (faster if is_faster else others).add((op.module, op.op))
    closed, certain, possible = faster - others, list[bool](), list[bool]()
    for kernel in runs.kernels:
        is_open = kernel.uses_tensor_cores is not True and (kernel.op.hlo_module, kernel.op.hlo_op) not in closed
        certain.append(is_open and kernel.is_eligible is True and bits_of_name(kernel.name) == 32)
        possible.append(is_open and kernel.is_eligible is not False)
    activity = host.device_work.activity[~host.device_work.moves]
    may_be_32 = (activity == Activity.COMPUTE_32) | (activity == Activity.COMPUTE_UNKNOWN)
    return runs.each(certain), runs.each(possible) & may_be_32


def _precision_of_device(
    trace: HostTrace, work: DeviceWork, kernels: Int64s, eligible: Iterable[Bools], steps: Steps
) -> DevicePrecision:
    """Return the precision of one device; `kernels` are indices into `work`."""
    rows, activity = work.rows[kernels], work.activity[kernels]
    plane = trace.planes[int(work.plane[kernels[0]])]

    def when(which: Bools) -> Intervals:
        return union(trace.start_ps[rows[which]], trace.end_ps[rows[which]])

    def in_steps(busy: Intervals) -> Int64s:
        return overlap(busy, steps.start_ps, steps.end_ps)

    parts: dict[Part, Int64s] = {}
    covered, covered_ps = EMPTY, np.zeros(len(steps), np.int64)
    for part, kind in _PRECISIONS.items():
        is_kind = activity == kind
        if is_kind.any():
            covered = union_all([covered, when(is_kind)])
        inside_ps = in_steps(covered)
        parts[part], covered_ps = inside_ps - covered_ps, inside_ps
    if has_tensor_cores(plane) is not False:
        certain, possible = (when(which) for which in eligible)
        parts |= {"eligible": in_steps(certain), "most_eligible": in_steps(possible)}
    return DevicePrecision(
        host=trace.host, device=device_label(plane.name), averaged=CountedSteps.of(steps), by_step_ps=parts
    )


# --- calls of the CUDA and HIP APIs ---

_NAMED_CALLERS: tuple[ApiKind, ...] = ("synchronize", "allocate", "free")


class ApiCallSums(Struct, frozen=True, kw_only=True):
    """Calls of one API function by the threads of one name, in picoseconds."""

    host: str
    call: str
    kind: ApiKind
    thread: str
    """Name of the threads, without the number of each."""
    threads: int
    count: int
    total_ps: int
    """Including calls inside of these calls."""
    median_ps: float
    max_ps: int
    steps: int
    """Averaged steps; the next two are about calls that begin in them."""
    in_steps: int
    in_steps_ps: int
    outside: int
    """Calls that begin outside of all steps."""
    caller: str | None
    """Event around most of the time of these calls, for calls that wait or allocate; None if there is none."""


def sum_api_calls(host: Host) -> tuple[ApiCallSums, ...]:
    """Add up the API calls of a host by function and thread name, the longest total first."""
    trace, calls, steps = host.trace, api_calls(host.trace), host["steps"].steps
    rows = calls.rows
    if not len(rows):
        return ()
    names, name = distinct_index(trace.name[rows])
    labels, label_of = text_index([api_label(trace.names[each]) for each in names.tolist()])
    pools, of_line = text_index([line.name.partition("/")[0] for line in trace.lines])
    line, label, duration = trace.line_of[rows], label_of[name], trace.duration_ps[rows]
    order, starts = group_equal([label, of_line[line], calls.kind])
    group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    ordered, begins = sorted_in_groups(group, duration[order])
    step = steps.at(trace.start_ps[rows[order]])
    counted = (step >= 0) & np.append(steps.headline, False)[step]
    found = []
    ends = [*starts[1:].tolist(), len(order)]
    for first, last, median_ps in zip(starts.tolist(), ends, medians(ordered, begins).tolist(), strict=True):
        places = order[first:last]
        one = int(places[0])
        kind = API_KINDS[int(calls.kind[one])]
        inside = counted[first:last]
        found.append(
            ApiCallSums(
                host=trace.host,
                call=labels[label[one]],
                kind=kind,
                thread=pools[of_line[line[one]]],
                threads=len(distinct(line[places])),
                count=last - first,
                total_ps=capped_sum(duration[places]),
                median_ps=median_ps,
                max_ps=int(ordered[last - 1]),
                steps=int(steps.headline.sum()),
                in_steps=int(inside.sum()),
                in_steps_ps=capped_sum(duration[places[inside]]),
                outside=int((step[first:last] < 0).sum()) if len(steps) else 0,
                caller=_caller(trace, rows, np.sort(rows[places])) if kind in _NAMED_CALLERS else None,
            )
        )
    return tuple(sorted(found, key=lambda each: (-each.total_ps, each.call, each.thread)))


def _caller(trace: HostTrace, calls: Int64s, rows: Int64s) -> str | None:
    """Return the innermost event around the rows that is not an API call; of several names, that with most time."""
    sums = Counter[int]()
    for line, places in by_line(trace.host_lines, rows):
        is_other = np.ones(line.stop - line.start, np.bool_)
        is_other[calls[(calls >= line.start) & (calls < line.stop)] - line.start] = False
        others = np.flatnonzero(is_other) + line.start
        if not len(others):
            continue
        around = innermost_around(trace, others, trace.start_ps[rows[places]])
        inside = rows[places][around >= 0]
        for (name,), (_, total_ps, _, _) in group_sums(trace.duration_ps[inside], [trace.name[around[around >= 0]]]):
            sums[name] += total_ps
    return trace.names[sums.most_common(1)[0][0]] if sums else None
