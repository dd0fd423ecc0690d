"""Options and results of a capture, and missing data in the trace, above all GPU events, with the fix.

Evidence that a job uses a GPU: errors of the profiler, host events that occur only with a GPU and, on this machine,
the GPU devices that the job has open.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from tfperf.base.display import Shown
from tfperf.base.errors import CaptureError, Reason, TfperfError
from tfperf.base.units import counted, format_bytes
from tfperf.capture.machine import UNKNOWN, Machine
from tfperf.formats.wire.untraced_gpu import (
    PERMISSION_FIX,
    ROCM_FIX,
    SILENT_FIX,
    MissingGpu,
    missing_gpu_work,
    report_of_failure,
)

if TYPE_CHECKING:
    from tfperf.formats.wire.contents import Contents

ENOUGH_SECONDS = 4.0
"""Default duration: 40 steps of 100 ms or 200 steps of 20 ms, which are enough for a comparison."""


class TracerOptions(Struct, frozen=True):
    """Levels of the tracers of TensorFlow and JAX.

    `host_tracer_level` is 0 (off), 1 (events that the program marks itself), 2 (also expensive operations) or 3 (also
    cheap ones); `device_tracer_level` is 0 or 1; `python_tracer_level` is 0 or 1 (every Python call, which slows the
    job down a lot). `advanced` is passed on as `advanced_configuration` of `jax.profiler.ProfileOptions`; TensorFlow's
    profiler takes it from a client only. Raises TfperfError for any other level.
    """

    host_tracer_level: int = 2
    device_tracer_level: int = 1
    python_tracer_level: int = 0
    advanced: dict[str, bool | int | str] = {}

    def __post_init__(self) -> None:
        limits = {"host_tracer_level": 3}
        for name, level in self.levels.items():
            if not 0 <= int(level) <= (limit := limits.get(name, 1)):
                raise TfperfError(f"{name} is {level}; use 0 to {limit}")

    @property
    def levels(self) -> dict[str, int]:
        """Return the levels by the names that TensorFlow and JAX give them."""
        return {name: value for name, value in asdict(self).items() if name != "advanced"}


Status = Literal["ok", "warn", "fail"]


class Captured(Shown, Struct, frozen=True, kw_only=True):
    """The result of profiling one worker.

    `path` is the trace file, None if none was kept. `reason` is empty if the trace is complete, else one of the words
    in docs/capture.md; `message` then states the problem and a fix. A result may have both a trace and a reason, for
    example without GPU events. `overhead_percent` is the slowdown of steps by profiling; None if not measured.
    """

    worker: str
    path: Path | None = None
    size_bytes: int | None = None
    event_count: int | None = None
    reason: Reason | Literal[""] = ""
    message: str = ""
    overhead_percent: float | None = None
    start_time_us: int | None = None
    """Start of the session, in microseconds since 1970 on the worker's clock; None if unknown."""

    def describe(self) -> str:
        """Return one line with the path, size and cost of the trace, or the reason why there is none."""
        if self.path is None:
            return f"no profile was captured: {self.message}"
        facts = [format_bytes(self.size_bytes or 0), counted(self.event_count or 0, "event")]
        if self.overhead_percent is not None:
            slower = self.overhead_percent
            facts.append(
                f"profiling made steps {slower:.0f}% longer" if slower >= 1 else "profiling did not slow steps down"
            )
        return f"wrote {self.path} ({', '.join(facts)})" + (self.message and f"; {self.message}")


def start_spread_ms(captured: Iterable[Captured]) -> float | None:
    """Return the time between the first and the last start of sessions, by their clocks; None unless two are known."""
    starts = [result.start_time_us for result in captured if result.start_time_us is not None]
    return (max(starts) - min(starts)) / 1e3 if len(starts) > 1 else None


class Check(Struct, frozen=True):
    """A check of `tfperf doctor`: the finding and a fix on one line."""

    name: str
    status: Status
    found: str
    fix: str = ""

    @classmethod
    def of_error(cls, name: str, error: CaptureError) -> Check:
        """Return the failed check for an error; the part of its message after the semicolon is the fix."""
        found, _, fix = str(error).partition("; ")
        # A job with another profiling session, or with traces on its own disk, is not at fault.
        return cls(name, "warn" if error.reason in ("busy", "written_remotely") else "fail", found, fix)


IDLE = (
    "no events were recorded: the job is idle or waiting outside TensorFlow and JAX; try again while it is running "
    "steps (--wait-for-activity)"
)
_PLANE = "/device:GPU:"


def captured_trace(
    worker: str, path: Path | None, contents: Contents, options: TracerOptions, *, is_here: bool, port: int = 0
) -> Captured:
    """Return the result for a worker's trace, with reason and message if data is missing.

    `is_here`: the job runs on this machine, so that its GPUs are visible, at `port`, or as this process without one.
    """
    reason: Reason | Literal[""] = ""
    message = ""
    if not contents.event_count:
        reason, message = "idle", IDLE
    elif options.device_tracer_level and (missing := missing_gpu_message(contents, is_here=is_here, port=port)):
        reason, message = "gpu_missing", missing
    elif options.python_tracer_level and not contents.has_python_frames:
        reason = "no_python_frames"
        message = (
            "the trace has no Python calls: the job made none, or this TensorFlow or JAX cannot record them; profile "
            "while Python code is running, with a newer version"
        )
    size, count = contents.size_bytes if path else None, contents.event_count
    return Captured(
        worker=worker,
        path=path,
        size_bytes=size,
        event_count=count,
        reason=reason,
        message=message,
        start_time_us=contents.start_ns // 1000 if path and contents.start_ns else None,
    )


def missing_gpu_message(contents: Contents, *, is_here: bool, port: int = 0) -> str:
    """Return cause and fix for missing GPU events, empty if none are missing; arguments are as in `captured_trace`."""
    machine = Machine() if is_here else None
    process: int | str = "self"
    if machine and port:
        listener = machine.find_listener(port) if machine.nvidia_devices() or machine.has_rocm() else None
        process = listener.process if listener else UNKNOWN
    missing = missing_gpu(contents, machine, process)
    return f"the trace has no GPU events: {missing.cause}; {missing.fix}" if missing else ""


def missing_gpu(contents: Contents, machine: Machine | None, process: int | str = "self") -> MissingGpu | None:
    """Return why GPU events are missing, None if not or without a GPU; `machine` is the job's, if accessible."""
    if gpu_event_count(contents):
        return None
    if report := report_of_failure((*contents.errors, *contents.warnings)):
        return report[1]
    if work := missing_gpu_work(contents.event_names):
        return replace(work, fix=_silent_fix(machine, process)) if work.fix == SILENT_FIX else work
    if machine and machine.uses_gpu(process) and not has_gpu_plane(contents):
        # A running tracer creates a plane for each GPU, even for an idle one.
        fix = _silent_fix(machine, process) if machine.nvidia_devices() else ROCM_FIX
        return MissingGpu("the job uses a GPU, but the GPU tracer did not start", fix)
    return None


def gpu_event_count(contents: Contents) -> int:
    """Return the number of events on GPUs."""
    return sum(count for plane, count in contents.events_by_plane.items() if plane.startswith(_PLANE))


def has_gpu_plane(contents: Contents) -> bool:
    """Return whether the GPU's tracer ran, even if the GPU did nothing."""
    return any(plane.startswith(_PLANE) for plane in contents.events_by_plane)


def _silent_fix(machine: Machine | None, process: int | str) -> str:
    """Return the fix if the evidence does not show which of the two usual causes applies."""
    if machine and machine.profiling_is_restricted() and not machine.may_profile(process):
        return f"the driver of this machine allows only administrators to profile: {PERMISSION_FIX}"
    return SILENT_FIX
