"""What a trace lacks of what was asked for, above all GPU events although the job uses a GPU, and the exact fix.

That a job uses a GPU shows in what the profiler reports as failed, in host events that occur only with a GPU, and, if
the job runs on this machine, in the devices that it has open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from tfperf.capture.machine import UNKNOWN, Machine
from tfperf.capture.outcomes import Captured
from tfperf.formats.wire.untraced_gpu import (
    PERMISSION_FIX,
    ROCM_FIX,
    SILENT_FIX,
    MissingGpu,
    missing_gpu_work,
    report_of_failure,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tfperf.base.errors import Reason
    from tfperf.capture.tracer_options import TracerOptions
    from tfperf.formats.wire.contents import Contents

IDLE = (
    "the job did nothing that the profiler records: it is idle, or waits outside TensorFlow; "
    "try again while it works (--wait-for-activity)"
)
_PLANE = "/device:GPU:"


def captured_trace(
    worker: str, path: Path | None, contents: Contents, options: TracerOptions, *, is_here: bool, port: int = 0
) -> Captured:
    """Return the result of a worker that gave a trace, with reason and message for what the trace lacks.

    `is_here`: the job runs on this machine, so that its GPUs can be looked for; it listens on `port`, or without a
    port is this process.
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
            "the trace has no Python calls: none was made while it was taken, or this TensorFlow cannot record them; "
            "profile while Python works, with a newer TensorFlow"
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
    """Return cause and fix for missing GPU events; empty if none are missing.

    `is_here`: the job runs on this machine; it is the process that listens on `port`, or without a port this one.
    """
    machine = Machine() if is_here else None
    process: int | str = "self"
    if machine and port:
        listener = machine.find_listener(port) if machine.nvidia_devices() or machine.has_rocm() else None
        process = listener.process if listener else UNKNOWN
    missing = missing_gpu(contents, machine, process)
    return f"the trace has no GPU events: {missing.cause}; {missing.fix}" if missing else ""


def missing_gpu(contents: Contents, machine: Machine | None, process: int | str = "self") -> MissingGpu | None:
    """Return why GPU events are missing; None if there are some, or the job uses no GPU.

    `machine` is the one that the job runs on, None if it cannot be looked at; `process` is the job, if that is known.
    """
    if gpu_event_count(contents):
        return None
    if report := report_of_failure((*contents.errors, *contents.warnings)):
        return report[1]
    if work := missing_gpu_work(contents.event_names):
        return replace(work, fix=_silent_fix(machine, process)) if work.fix == SILENT_FIX else work
    if machine and machine.uses_gpu(process) and not has_gpu_plane(contents):
        # A tracer that runs makes a plane for each GPU, even for an idle one.
        fix = _silent_fix(machine, process) if machine.nvidia_devices() else ROCM_FIX
        return MissingGpu("the job has a GPU open, but its tracer did not start", fix)
    return None


def gpu_event_count(contents: Contents) -> int:
    """Return the number of events on GPUs."""
    return sum(count for plane, count in contents.events_by_plane.items() if plane.startswith(_PLANE))


def has_gpu_plane(contents: Contents) -> bool:
    """Whether the GPU's tracer ran, even if the GPU did nothing."""
    return any(plane.startswith(_PLANE) for plane in contents.events_by_plane)


def _silent_fix(machine: Machine | None, process: int | str) -> str:
    """Return the fix where nothing tells which of the two usual causes it is."""
    if machine and machine.profiling_is_restricted() and not machine.may_profile(process):
        return f"the driver of this machine allows profiling only for administrators: {PERMISSION_FIX}"
    return SILENT_FIX
