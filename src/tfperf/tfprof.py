"""What a model costs, by name scope, graph, op and line of code: the questions of TensorFlow 1's tfprof, answered.

A graph, what its runs recorded (RunMetadata), and a log of who built it are joined into one `Model`; a view arranges
its nodes, and an output shows them. TensorFlow is not needed, but to collect.
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
"""Where each public name is, imported when it is first used: the command line must start without numpy."""

if not TYPE_CHECKING:  # a type checker would take any name for one that is here

    def __getattr__(name: str) -> Any:
        if name not in _PUBLIC:
            raise AttributeError(f"module 'tfperf.tfprof' has no attribute {name!r}")
        from pkgutil import resolve_name

        return resolve_name(_PUBLIC[name])


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
