"""Whether a trace holds what was asked for: the problems that only its contents tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tfperf.capture.missing_gpu import missing_gpu_message

if TYPE_CHECKING:
    from tfperf.capture.tracer_options import TracerOptions
    from tfperf.errors import Reason
    from tfperf.wire.contents import Contents


IDLE = (
    "the job did nothing that the profiler records: it is idle, or waits outside TensorFlow; "
    "try again while it works (--wait-for-activity)"
)


def trace_problem(
    contents: Contents, options: TracerOptions, *, is_here: bool, port: int = 0
) -> tuple[Reason | Literal[""], str]:
    """Return reason and message for what a trace lacks; two empty texts if it lacks nothing.

    `is_here`: the job runs on this machine, so that its GPUs can be looked for; it listens on `port`, or without a
    port is this process.
    """
    if not contents.event_count:
        return "idle", IDLE
    if options.device_tracer_level and (message := missing_gpu_message(contents, is_here=is_here, port=port)):
        return "gpu_missing", message
    if options.python_tracer_level and not contents.has_python_frames:
        return "no_python_frames", "the trace has no Python calls: this TensorFlow cannot record them this way"
    return "", ""
