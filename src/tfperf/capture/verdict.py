"""Is the trace what was asked for? The causes that only its contents tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tfperf.capture.gpu import missing_gpu_message

if TYPE_CHECKING:
    from tfperf.capture.options import TracerOptions
    from tfperf.errors import Reason
    from tfperf.wire.contents import Contents


IDLE = (
    "the job did nothing that the profiler records: it is idle, or waits outside TensorFlow; "
    "try again while it works (--wait-for-activity)"
)


def judge(contents: Contents, options: TracerOptions, *, here: bool, port: int = 0) -> tuple[Reason | Literal[""], str]:
    """Return the reason and the message of what is missing; two empty texts if all is there.

    `here`: the job runs on this machine, so that its GPUs can be looked for; it listens on `port`, or is this process.
    """
    if not contents.event_count:
        return "idle", IDLE
    if options.device_tracer_level and (message := missing_gpu_message(contents, here=here, port=port)):
        return "gpu_missing", message
    if options.python_tracer_level and not contents.has_python_frames:
        return "no_python_frames", (
            "Python calls were asked for, but the trace holds none: this TensorFlow cannot record them this way"
        )
    return "", ""
