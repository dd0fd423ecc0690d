"""Model cost by name scope, graph, op and line of code: the views of TensorFlow 1's tfprof.

A `Model` joins a graph, the records of its runs (RunMetadata), and a log with the stack that built each node. A view
arranges the nodes, and an output prints them. Only collecting requires TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfperf.capture.graph_collector import Collected, Collector, write_op_log
    from tfperf.models.tfprof.options import ProfileOptionBuilder
    from tfperf.models.tfprof.profiler import ProfileNode, Profiler, profile
    from tfperf.models.tfprof.sources import read_folder

__all__ = [
    "Collected",
    "Collector",
    "ProfileNode",
    "ProfileOptionBuilder",
    "Profiler",
    "profile",
    "read_folder",
    "write_op_log",
]

_PUBLIC = {
    "Collected": "tfperf.capture.graph_collector:Collected",
    "Collector": "tfperf.capture.graph_collector:Collector",
    "ProfileNode": "tfperf.models.tfprof.profiler:ProfileNode",
    "ProfileOptionBuilder": "tfperf.models.tfprof.options:ProfileOptionBuilder",
    "Profiler": "tfperf.models.tfprof.profiler:Profiler",
    "profile": "tfperf.models.tfprof.profiler:profile",
    "write_op_log": "tfperf.capture.graph_collector:write_op_log",
    "read_folder": "tfperf.models.tfprof.sources:read_folder",
}
"""Module of each public name. Names are imported at first use: the command line must start without numpy."""

if not TYPE_CHECKING:  # otherwise a type checker accepts any name

    def __getattr__(name: str) -> Any:
        if name not in _PUBLIC:
            raise AttributeError(f"module 'tfperf.tfprof' has no attribute {name!r}")
        from pkgutil import resolve_name

        return resolve_name(_PUBLIC[name])


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
