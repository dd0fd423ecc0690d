"""Kernels of GPUs by op and launch, copies, and how each device spends the capture.

A row is a kernel as one op launches it with one grid and block. Its times are sums over streams and devices;
wall-clock time is given per device, where compute, copies alone and idle add up to the capture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from tfperf.analysis.tabular import Tabular
from tfperf.base.arrays import MOST, Int64s
from tfperf.base.display import Plotted
from tfperf.base.units import PS_PER_MS
from tfperf.sections.kernels import async_copies as asynchronous
from tfperf.sections.kernels import regions as marked
from tfperf.sections.kernels.async_copies import AsyncCopies, async_copies
from tfperf.sections.kernels.devices import Copies, DeviceTotals, any_has, copies_of, has_tensor_cores
from tfperf.sections.kernels.launches import DeviceLaunches, launches_of
from tfperf.sections.kernels.precision import DevicePrecision, precision_of
from tfperf.sections.kernels.regions import Regions, kernel_regions
from tfperf.sections.kernels.tables import PS_PER_US
from tfperf.sections.kernels.tally import Kernel, KernelSums, Tally, add, order_of, tally_as_tensorflow, tally_kernels
from tfperf.trace.device.device_work import DeviceOp
from tfperf.trace.device.kernel_details import Dim, KernelDetails, short_name

if TYPE_CHECKING:
    from tfperf.analysis.results import Host
    from tfperf.trace.steps.breakdown import Breakdown


OTHERS = Kernel("(other kernels)", KernelDetails(), uses_tensor_cores=None, is_eligible=None, op=DeviceOp("", ""))


class Kernels(Plotted, Tabular, frozen=True, kw_only=True):
    """Kernels, the one with the largest total first, as columns of equal length; times are int64 picoseconds.

    Without a device that recorded anything, all is empty.
    """

    home = ("kernels", "kernels")

    kernels: tuple[Kernel, ...]
    occupancy_percent: tuple[float | None, ...]
    occurrences: Int64s
    total_ps: Int64s
    min_ps: Int64s
    max_ps: Int64s
    copies: tuple[Copies, ...]
    devices: tuple[DeviceTotals, ...]
    launches: tuple[DeviceLaunches, ...]
    """One entry per device that ran kernels."""
    precision: tuple[DevicePrecision, ...]
    """One entry per device that ran kernels."""
    has_tensor_cores: bool | None
    """Whether any device has tensor cores (on AMD: matrix cores); None where it is unknown."""
    async_copies: AsyncCopies = AsyncCopies()
    """What TPU cores copy and exchange beside their work."""
    regions: Regions = Regions()
    """What kernels of TPU cores mark."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.kernels)

    @property
    def whole_ps(self) -> float:
        """Return the time of all kernels, summed over streams and devices; a float, since it may be beyond int64."""
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
        }

    def by_name(self) -> dict[str, list[object]]:
        """Return the sums per short name, the one with the largest total first."""
        counts, totals_ps = Counter[str](), Counter[str]()
        rows = zip(self.kernels, self.occurrences.tolist(), self.total_ps.tolist(), strict=True)
        for kernel, count, total_ps in rows:
            name = short_name(kernel.name)
            counts[name] += count
            totals_ps[name] += total_ps
        names = sorted(counts, key=lambda name: (-totals_ps[name], name))
        whole_ps = max(sum(totals_ps.values()), 1)
        return {
            "kernel": [*names],
            "occurrences": [counts[name] for name in names],
            "total_ms": [totals_ps[name] / PS_PER_MS for name in names],
            "percent": [100.0 * totals_ps[name] / whole_ps for name in names],
        }

    def time_by_tensor_cores_ps(self, uses_tensor_cores: bool | None) -> int:
        """Return the time of kernels on tensor cores (True), elsewhere (False), or whose name does not tell (None)."""
        rows = zip(self.kernels, self.total_ps.tolist(), strict=True)
        return sum(total_ps for kernel, total_ps in rows if kernel.uses_tensor_cores is uses_tensor_cores)

    def missed_tensor_cores(self) -> dict[str, int]:
        """Return the ops that tensor cores could do and that no kernel does there, and their time; longest first.

        An op is omitted if the name of any of its kernels does not show where it runs.
        """
        sums = Counter[DeviceOp]()
        on_tensor_cores = {kernel.op for kernel in self.kernels if kernel.uses_tensor_cores is not False}
        for kernel, total_ps in zip(self.kernels, self.total_ps.tolist(), strict=True):
            if kernel.is_eligible and kernel.op not in on_tensor_cores:
                sums[kernel.op] += total_ps
        ops = sorted(sums, key=lambda op: (-sums[op], op))
        return {op.hlo_op or op.name: sums[op] for op in ops}


def _dim_text(dim: Dim | None) -> str | None:
    return ",".join(str(size) for size in dim) if dim else None


def analyze(host: Host) -> Kernels:
    """Add up kernels and copies of a host's GPUs, and how its devices spend the capture."""
    trace, work, breakdown = host.trace, host.device_work, host["steps"]
    counted_steps = breakdown.steps.only(np.flatnonzero(breakdown.steps.headline))
    return _kernels(
        tally_as_tensorflow(trace, work) if host.as_tensorflow else tally_kernels(trace, work),
        copies=copies_of(trace, work),
        devices=tuple(DeviceTotals.of(trace.host, device) for device in host.device_times),
        launches=launches_of(trace, work, counted_steps),
        precision=precision_of(trace, work, breakdown.steps, host["xla"]),
        has_tensor_cores=any_has(has_tensor_cores(trace.planes[plane]) for plane in trace.devices),
        async_copies=async_copies(host),
        regions=kernel_regions(host),
    )


def combine(parts: list[Kernels]) -> Kernels:
    """Merge rows that are equal but for the host, and list the devices of all hosts."""
    tally: Tally = {}
    for part in parts:
        _add_rows(tally, part, part.kernels)
    return _kernels(
        tally,
        copies=tuple(copies for part in parts for copies in part.copies),
        devices=tuple(device for part in parts for device in part.devices),
        launches=tuple(device for part in parts for device in part.launches),
        precision=tuple(device for part in parts for device in part.precision),
        has_tensor_cores=any_has(part.has_tensor_cores for part in parts if part.devices),
        async_copies=asynchronous.combine([part.async_copies for part in parts]),
        regions=marked.combine([part.regions for part in parts]),
    )


def narrow(kernels: Kernels, _: Breakdown, after: Breakdown) -> Kernels:
    """Count kernels by precision, and waiting for copies and in kernels, in the steps of `after`; else nothing."""
    devices = (replace(each, averaged=each.averaged.counting(after)) for each in kernels.precision)
    copies, regions = asynchronous.narrow(kernels.async_copies, after), marked.narrow(kernels.regions, after)
    return replace(kernels, precision=tuple(devices), async_copies=copies, regions=regions)


def shorten(kernels: Kernels, most: int) -> Kernels:
    """Return so many kernels, those that take most time, and one row for all others."""
    if len(kernels) <= most:
        return kernels
    tally: Tally = {}
    _add_rows(tally, kernels, (*kernels.kernels[:most], *[OTHERS] * (len(kernels) - most)))
    others = ("copies", "devices", "launches", "precision", "has_tensor_cores", "async_copies", "regions")
    return _kernels(tally, **{name: getattr(kernels, name) for name in others})


def _add_rows(tally: Tally, kernels: Kernels, keys: Sequence[Kernel]) -> None:
    """Add the rows of a host, each under the key given for it."""
    columns = (kernels.occurrences, kernels.total_ps, kernels.min_ps, kernels.max_ps)
    rows = zip(keys, kernels.occupancy_percent, *(values.tolist() for values in columns), strict=True)
    for key, *sums in rows:
        add(tally, key, KernelSums(*sums))


def _kernels(tally: Tally, **others: Any) -> Kernels:
    """Order kernels by total, then as TensorFlow does; `others` are the remaining fields."""
    ordered = sorted(tally.items(), key=lambda item: (-item[1].total_ps, order_of(item[0])))
    numbers = np.array([[min(number, MOST) for number in sums[1:]] for _, sums in ordered], np.int64).reshape(-1, 4)
    occurrences, total_ps, min_ps, max_ps = numbers.T
    return Kernels(
        kernels=tuple(kernel for kernel, _ in ordered),
        occupancy_percent=tuple(sums.occupancy_percent for _, sums in ordered),
        occurrences=occurrences,
        total_ps=total_ps,
        min_ps=min_ps,
        max_ps=max_ps,
        **others,
    )
