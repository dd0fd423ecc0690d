"""What the job ran on, as far as the trace tells."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tfperf.trace.host_trace import HostTrace, Plane
from tfperf.trace.steps import Steps

_ARCHITECTURES = {2: "Fermi", 3: "Kepler", 5: "Maxwell", 6: "Pascal", 9: "Hopper", 10: "Blackwell", 12: "Blackwell"}


@dataclass(frozen=True)
class HostEnvironment:
    """One host: its devices (those that recorded events), and the size of its trace."""

    host: str
    path: str
    device_type: str
    """`CPU`, `GPU`, or `TPU`."""
    device_model: str
    device_count: int
    """Devices that recorded events."""
    idle_devices: int
    """Devices that the trace lists without a single event."""
    device_cores: int | None
    device_memory_bytes: int | None
    event_count: int
    size_bytes: int
    duration_ps: int
    """From the first to the last event."""

    @property
    def planes(self) -> int:
        """Return the number of devices listed, idle ones included (what TensorFlow counts)."""
        return self.device_count + self.idle_devices


def analyze(trace: HostTrace) -> HostEnvironment:
    """Describe the host of a trace."""
    planes = [trace.planes[index] for index in trace.devices]
    first = planes[0] if planes else None
    span = int(trace.end_ps.max() - trace.start_ps.min()) if len(trace.name) else 0
    return HostEnvironment(
        trace.host, str(trace.path), trace.device_kind.upper() or "CPU", device_model(first) if first else "",
        len(planes), len(trace.empty_devices), _number(first, "core_count"), _number(first, "memory_size"),
        trace.event_count, trace.size_bytes, span,
    )  # fmt: skip


def _number(plane: Plane | None, stat: str) -> int | None:
    value = plane.stats.get(stat) if plane else None
    return int(value) if isinstance(value, (int, float)) and math.isfinite(value) and value else None


def device_model(plane: Plane) -> str:
    """Name a device: by its own name if the trace holds it, else by vendor and compute capability."""
    for stat in ("gpu_device_name", "device_type_string"):
        if plane.stats.get(stat):
            return str(plane.stats[stat])
    major, minor = _number(plane, "compute_cap_major"), _number(plane, "compute_cap_minor") or 0
    vendor = str(plane.stats.get("device_vendor", "Nvidia" if major else ""))
    if not major:
        return vendor
    if vendor.lower() != "nvidia":
        return f"{vendor} GPU"
    name = _ARCHITECTURES.get(major, "")
    if major == 7:
        name = "Turing" if minor >= 5 else "Volta"
    elif major == 8:
        name = "Ada Lovelace" if minor >= 9 else "Ampere"
    return f"{vendor} GPU ({name + ', ' if name else ''}compute capability {major}.{minor})"


def gaps(trace: HostTrace, steps: Steps) -> tuple[str, ...]:
    """Say what the file of a host cannot tell, and why."""
    found = [] if len(steps) else [f"Steps: {steps.explanation}."]
    if not trace.event_count:
        found.append("Everything: the file holds no events.")
    elif not any(plane.kind == "host" and plane.event_count for plane in trace.planes):
        found.append("Host time: there is no event of a host thread (host tracer off?).")
    if trace.empty_devices:
        listed = ", ".join(trace.empty_devices[:4])
        found.append(
            f"Device time of {len(trace.empty_devices)} device(s) ({listed}): the trace lists them, but holds no event "
            "of theirs (unused, or not traced)."
        )
    elif not trace.devices:
        found.append("Device time: no device is in the trace (a CPU job, or the device was not traced).")
    if trace.malformed_events:
        found.append(f"{trace.malformed_events} event(s) with impossible times were left out.")
    if any(plane.name == "/host:metadata" for plane in trace.planes) and not trace.stat("tf_function_call").event.size:
        found.append("tf.functions: this looks like a JAX trace; TensorFlow's own sections stay empty.")
    found += [f"The profiler reported an error: {message}" for message in trace.errors[:5]]
    found += [f"The profiler warned: {message}" for message in trace.warnings[:5]]
    return tuple(found)
