"""GPUs: how each one spends the capture, its copies by kind, and what its plane says about its units."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import MOST, Column, group_sums
from tfperf.trace.device.device_time import DeviceTime, device_label
from tfperf.trace.device.device_work import DeviceWork, trace_texts
from tfperf.trace.device.kernel_details import NO_COPY, parse_copy
from tfperf.trace.host.activities import Activity
from tfperf.trace.host_trace import HostTrace, Plane

_KINDS = {Activity.HOST_TO_DEVICE: "H2D", Activity.DEVICE_TO_HOST: "D2H", Activity.DEVICE_TO_DEVICE: "D2D"}
_ORDER = ("H2D", "D2H", "D2D", "P2P", "H2H", "Memset", "Unknown")


class DeviceTotals(Struct, frozen=True, kw_only=True):
    """How one device spends the capture: compute + copies alone + idle = wall, in picoseconds."""

    host: str
    device: str
    """`GPU:0`."""
    compute_ps: int
    copies_alone_ps: int
    idle_ps: int
    wall_ps: int
    kernel_sum_ps: int
    """Sum over kernels: more than compute where streams overlap."""
    copies_ps: int
    """Wall-clock time of copies, also of those beside compute."""

    @classmethod
    def of(cls, host: str, device: DeviceTime) -> DeviceTotals:
        """Add up the time of a device of a host."""
        same = {name: getattr(device, name) for name in ("copies_alone_ps", "idle_ps", "wall_ps", "kernel_sum_ps")}
        times = {"compute_ps": device.compute.total(), "copies_ps": device.copies.total(), **same}
        return cls(host=host, device=device_label(device.name), **times)


def compute_capability(plane: Plane) -> tuple[int, int]:
    """Return the compute capability of an NVIDIA GPU, (0, 0) for other devices and where it is unknown."""
    major, minor = (plane.stats.get(f"compute_cap_{part}") for part in ("major", "minor"))
    if not isinstance(major, int) or not isinstance(minor, int) or _vendor(plane) not in ("", "nvidia"):
        return 0, 0
    return major, minor


def has_tensor_cores(plane: Plane) -> bool | None:
    """Tell whether a GPU has tensor cores: NVIDIA's since Volta, and AMD's MI300; None where it is unknown."""
    if _vendor(plane) == "amd":
        capability = tuple(plane.stats.get(f"compute_cap_{part}") for part in ("major", "minor"))
        return True if capability == (9, 4) else None
    major, _ = compute_capability(plane)
    return major >= 7 if major else None


def _vendor(plane: Plane) -> str:
    return str(plane.stats.get("device_vendor", "")).lower()


def any_has(answers: Iterable[bool | None]) -> bool | None:
    """Tell whether the answer for any device is True; None if none is, and one is unknown or there are none."""
    distinct = set(answers)
    return True if True in distinct else None if None in distinct or not distinct else False


class Copies(Struct, frozen=True, kw_only=True):
    """Copies of one kind on one device; the `sized` ones are those of known size."""

    host: str
    device: str
    kind: str
    """H2D, D2H, D2D, P2P, H2H, Memset, or Unknown."""
    count: int
    total_ps: int
    sized: int
    sized_bytes: int
    sized_ps: int
    pageable_ps: int
    """Time of copies from or to pageable memory of the host, as far as it is recorded."""
    pinned_ps: int

    @property
    def total_bytes(self) -> int | None:
        """Return the bytes of all copies; None if the size of any is unknown."""
        return self.sized_bytes if self.sized == self.count else None

    @property
    def mean_bytes(self) -> float | None:
        """Return the mean size of the copies of known size."""
        return self.sized_bytes / self.sized if self.sized else None

    @property
    def gb_per_second(self) -> float | None:
        """Return the rate of the copies of known size, in 10^9 bytes per second of copying."""
        return 1000.0 * self.sized_bytes / self.sized_ps if self.sized_ps else None

    @property
    def memory(self) -> str | None:
        """Return which memory of the host took part; None where it is not recorded."""
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
    return tuple(
        Copies(host=trace.host, device=device_label(trace.planes[plane].name), kind=kind, **numbers)
        for (plane, kind), numbers in ordered
    )


def _kind(name: str, activity: Activity, details: str) -> str:
    """Return the kind of copy; texts are in lower case."""
    if "memset" in name[:10]:
        return "Memset"
    if activity == Activity.DEVICE_TO_DEVICE and any(part in f"{name} {details}" for part in ("p2p", "ptop")):
        return "P2P"
    return _KINDS.get(activity, "H2H" if "htoh" in name or "h2h" in name else "Unknown")
