"""tfperf: where the step time of a TensorFlow job goes, from its profile; and how to take one.

import tfperf

with tfperf.profile("logs"):            # inside the job
    train()
tfperf.sample("localhost:6009")         # or of a running job, from outside

trace = tfperf.load("logs")
trace.overview().input_percent
trace.steps.table
trace.ops().host.table
tfperf.check(trace, max_input_bound="10%").exit_code
tfperf.diff("logs_before", trace).summary["ratio"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfperf import keras
    from tfperf.capture.local import profile, start, step, stop
    from tfperf.capture.outcomes import Captured
    from tfperf.capture.server import serve
    from tfperf.compare.runs import diff
    from tfperf.errors import CaptureError, OutputError, TfperfError, TraceFormatError, TraceNotFoundError
    from tfperf.gate.ask import check_profile as check
    from tfperf.query.frame import sql
    from tfperf.sampling.jobs import sample
    from tfperf.sampling.result import Sampled
    from tfperf.session import HostAnalysis, Trace, load
    from tfperf.timeline.write import write_timeline

__all__ = [
    "CaptureError",
    "Captured",
    "HostAnalysis",
    "OutputError",
    "Sampled",
    "TfperfError",
    "Trace",
    "TraceFormatError",
    "TraceNotFoundError",
    "__version__",
    "check",
    "diff",
    "keras",
    "load",
    "profile",
    "sample",
    "serve",
    "sql",
    "start",
    "step",
    "stop",
    "write_timeline",
]
__version__ = "0.1.0"

_HOMES = {
    "Captured": "capture.outcomes",
    "Sampled": "sampling.result",
    "diff": "compare.runs",
    "profile": "capture.local",
    "sample": "sampling.jobs",
    "serve": "capture.server",
    "sql": "query.frame",
    "start": "capture.local",
    "step": "capture.local",
    "stop": "capture.local",
    "write_timeline": "timeline.write",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line must start without numpy and Arrow."""
    if name not in __all__:
        raise AttributeError(f"module 'tfperf' has no attribute {name!r}")
    from importlib import import_module

    if name == "keras":
        return import_module("tfperf.keras")
    if name == "check":
        return import_module("tfperf.gate.ask").check_profile
    home = "errors" if name.endswith("Error") else _HOMES.get(name, "session")
    return getattr(import_module(f"tfperf.{home}"), name)
