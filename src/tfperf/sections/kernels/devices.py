"""GPUs: how each one spends the capture, and what its plane says about its units."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from tfperf.trace.device_time import DeviceTime, device_label
from tfperf.trace.host_trace import Plane


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
