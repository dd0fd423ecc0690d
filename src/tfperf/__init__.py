"""tfperf: where the step time of a TensorFlow job goes, from its profile on disk.

import tfperf

trace = tfperf.load("logs")
trace.overview().input_percent
trace.steps.table
trace.ops().host.table
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfperf.errors import OutputError, TfperfError, TraceFormatError, TraceNotFoundError
    from tfperf.session import HostAnalysis, Trace, load

__all__ = [
    "HostAnalysis",
    "OutputError",
    "TfperfError",
    "Trace",
    "TraceFormatError",
    "TraceNotFoundError",
    "__version__",
    "load",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line must start without numpy and Arrow."""
    if name not in __all__:
        raise AttributeError(f"module 'tfperf' has no attribute {name!r}")
    from importlib import import_module

    module = import_module("tfperf.errors" if name.endswith("Error") else "tfperf.session")
    return getattr(module, name)
