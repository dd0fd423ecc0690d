"""Hosts, devices and versions that the profile, or the capture, recorded."""

from __future__ import annotations

import math

from msgspec import Struct

from tfperf.analysis.registry import HasTable, Host
from tfperf.base.arrays import percentile
from tfperf.formats.wire.capture_plane import CaptureFacts, longest_recording_s
from tfperf.trace.device.device_peaks import peaks_of
from tfperf.trace.device.tpu_runs import TpuChips, find_chips
from tfperf.trace.event_names import is_python_frame, mask
from tfperf.trace.host_trace import HostTrace, Plane
from tfperf.trace.steps.steps import Steps

_ARCHITECTURES = {2: "Fermi", 3: "Kepler", 5: "Maxwell", 6: "Pascal", 9: "Hopper", 10: "Blackwell", 12: "Blackwell"}
_BY_MINOR = {7: ("Volta", 5, "Turing"), 8: ("Ampere", 9, "Ada Lovelace")}


class HostEnvironment(Struct, frozen=True, kw_only=True):
    """One host, its devices with events, and the size of its trace."""

    host: str
    path: str
    device_type: str
    device_model: str
    device_count: int
    idle_devices: int
    """Devices listed in the trace without events."""
    device_cores: int | None
    device_memory_bytes: int | None
    event_count: int
    longest_recording_s: float
    """Upper bound on the time that recording these events took."""
    size_bytes: int
    start_ps: int
    """Start of the first event, on the clock of the trace."""
    duration_ps: int
    """From the first to the last event of any kind; 0 if unknown."""
    facts: CaptureFacts
    recorded_host: str = ""
    """Host name in a TPU profile, which may differ from the file name; empty if not recorded."""
    jax_version: str | None = None
    jaxlib_version: str | None = None
    libtpu_version: str | None = None
    chips: TpuChips | None = None
    clock_jumps: int = 0
    """Clock jumps of the TPU chip that has the most of them."""
    largest_jump_ps: int = 0
    clock_shift_ps: tuple[int, int | None] | None = None
    """Least and greatest correction of the TPU clock; None if it was not corrected."""
    cores: float | None
    """CPU time per second that the job can use, in cores."""

    def overhead_beyond_noise(self, steps: Steps) -> float:
        """Return by how many percent profiling made steps longer; 0 if noise or other load may explain it.

        Captures of earlier versions report more than recording their events can cost. The variation of steps before the
        capture is not recorded, so it is taken from the steps in the capture.
        """
        stated = self.facts.overhead_percent or 0.0
        durations = steps.duration_ps[steps.headline]
        if not stated or not len(durations) or not self.duration_ps:
            return 0.0
        first, middle, third = (percentile(durations, share) for share in (0.25, 0.5, 0.75))
        noise = 100.0 * 1.86 * math.sqrt(2.0 / len(durations)) * (third - first) / middle
        recording = min(1e12 * self.longest_recording_s / self.duration_ps, 1.0)
        return stated if stated > noise and stated / (100.0 + stated) <= recording else 0.0


class Environment(HasTable, tuple[HostEnvironment, ...]):
    """The environment of each host."""

    __slots__ = ()
    home = ("environment", "environment")


def analyze(host: Host) -> HostEnvironment:
    """Return the environment of the host of a trace."""
    trace = host.trace
    start_ps, end_ps = trace.extent_ps
    planes = [trace.planes[index] for index in trace.devices]
    first = planes[0] if planes else None
    costly = int(mask(trace.names, is_python_frame)[trace.name].sum()) + sum(plane.event_count for plane in planes)
    return HostEnvironment(
        host=trace.host,
        path=str(trace.path),
        device_type=trace.device_kind.upper() or "CPU",
        device_model=device_model(first) if first else "",
        device_count=len(planes),
        idle_devices=len(trace.empty_devices),
        device_cores=_number(first, "core_count"),
        device_memory_bytes=_number(first, "memory_size"),
        event_count=trace.event_count,
        longest_recording_s=longest_recording_s(trace.event_count, costly),
        size_bytes=trace.size_bytes,
        start_ps=start_ps,
        duration_ps=end_ps - start_ps,
        facts=trace.capture_facts,
        recorded_host=trace.recorded_host if trace.device_kind == "tpu" else "",
        jax_version=_text(trace, "jax_version"),
        jaxlib_version=_text(trace, "jaxlib_version"),
        libtpu_version=_text(trace, "tpu_version"),
        chips=find_chips(trace),
        clock_jumps=max((clock.jumps for clock in trace.device_clocks.values()), default=0),
        largest_jump_ps=max((clock.largest_jump_ps for clock in trace.device_clocks.values()), default=0),
        clock_shift_ps=_clock_shift(trace),
        cores=trace.usable_cores,
    )


def _clock_shift(trace: HostTrace) -> tuple[int, int | None] | None:
    shifted = [clock for clock in trace.device_clocks.values() if clock.shift_ps]
    if not shifted:
        return None
    least, most = max(shifted, key=lambda clock: abs(clock.shift_ps)).shift_bounds_ps
    bounds = [abs(bound) for bound in (least, most) if bound is not None]
    return (min(bounds), max(bounds) if len(bounds) > 1 else None) if bounds else None


def _text(trace: HostTrace, stat: str) -> str | None:
    texts = (" ".join(str(plane.stats[stat]).split()) for plane in trace.planes if stat in plane.stats)
    return next(filter(None, texts), None)


def _number(plane: Plane | None, stat: str) -> int | None:
    value = plane.stats.get(stat) if plane else None
    return int(value) if isinstance(value, (int, float)) and math.isfinite(value) and value else None


def device_model(plane: Plane) -> str:
    """Return the name that the driver states, else the recognized model, else type or vendor and compute capability."""
    for name in (plane.stats.get("gpu_device_name"), peaks_of(plane).model, plane.stats.get("device_type_string")):
        if name:
            return str(name)
    major, minor = _number(plane, "compute_cap_major"), _number(plane, "compute_cap_minor") or 0
    vendor = str(plane.stats.get("device_vendor", "Nvidia" if major else ""))
    if not major:
        return vendor
    if vendor.lower() != "nvidia":
        return f"{vendor} GPU"
    name = _ARCHITECTURES.get(major, "")
    if major in _BY_MINOR:
        first, since, later = _BY_MINOR[major]
        name = later if minor >= since else first
    return f"{vendor} GPU ({name + ', ' if name else ''}compute capability {major}.{minor})"
