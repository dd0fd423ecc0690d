"""tfperf: where the step time of a TensorFlow job goes, from its profile; and how to take one.

import tfperf

with tfperf.profile("logs"):            # inside the job
    train()
tfperf.sample("localhost:6009")         # or of a running job, from outside

analysis = tfperf.load("logs")
analysis["overview"].input_percent
analysis["steps"].table
analysis["ops"].host.table
tfperf.check(analysis, max_input_bound="10%").exit_code
tfperf.diff("logs_before", analysis).summary["ratio"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfperf import keras
    from tfperf.analysis import Analysis, load
    from tfperf.capture.local import profile, start, step, stop
    from tfperf.capture.outcomes import Captured
    from tfperf.capture.server import serve
    from tfperf.compare.diff_report import diff
    from tfperf.errors import CaptureError, OutputError, TfperfError, TraceFormatError, TraceNotFoundError
    from tfperf.gate.check import check_profile as check
    from tfperf.query.engine import sql
    from tfperf.report.model import Column, Fact, Finding, Ranked, Section
    from tfperf.sampling.jobs import sample
    from tfperf.sampling.result import Sampled
    from tfperf.sections.registry import SectionSpec, TableSpec
    from tfperf.sections.results import HostResults
    from tfperf.timeline.export import write_timeline

__all__ = [
    "Analysis",
    "CaptureError",
    "Captured",
    "Column",
    "Fact",
    "Finding",
    "HostResults",
    "OutputError",
    "Ranked",
    "Sampled",
    "Section",
    "SectionSpec",
    "TableSpec",
    "TfperfError",
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
__version__ = "0.2.0"

_HOMES = {
    "Captured": "capture.outcomes",
    "Column": "report.model",
    "Fact": "report.model",
    "Finding": "report.model",
    "HostResults": "sections.results",
    "Ranked": "report.model",
    "Section": "report.model",
    "SectionSpec": "sections.registry",
    "TableSpec": "sections.registry",
    "Sampled": "sampling.result",
    "diff": "compare.diff_report",
    "profile": "capture.local",
    "sample": "sampling.jobs",
    "serve": "capture.server",
    "sql": "query.engine",
    "start": "capture.local",
    "step": "capture.local",
    "stop": "capture.local",
    "write_timeline": "timeline.export",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line must start without numpy and Arrow."""
    if name not in __all__:
        raise AttributeError(f"module 'tfperf' has no attribute {name!r}")
    from importlib import import_module

    if name == "keras":
        return import_module("tfperf.keras")
    if name == "check":
        return import_module("tfperf.gate.check").check_profile
    home = "errors" if name.endswith("Error") else _HOMES.get(name, "analysis")
    return getattr(import_module(f"tfperf.{home}"), name)
