"""Calls of the CUDA and HIP APIs on host threads, by kind.

The profiler names most calls after the API function (`cuGraphLaunch (CudaGraph:2)`, `hipModuleLaunchKernel`). It names
a call that launches a CUDA kernel after the kernel, and a copy after its direction (`MemcpyH2D`): such an event is a
call because it has the correlation id of device work.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int64s, distinct
from tfperf.trace.event_names import mask
from tfperf.trace.host.launches import launching_calls
from tfperf.trace.host_trace import HostTrace, once

ApiKind = Literal[
    "launch",
    "graph launch",
    "copy",
    "fill",
    "synchronize",
    "allocate",
    "free",
    "load code",
    "build graph",
    "host function",
    "other",
]
API_KINDS: tuple[ApiKind, ...] = get_args(ApiKind)
KERNEL_LAUNCH = "(kernel launch)"
"""Label of calls that the profile names after their kernel."""

_API = r"(?:cuda|cu|hip)[A-Z]"
_KINDS: tuple[tuple[str, ApiKind], ...] = (
    (r"\w*Synchronize", "synchronize"),
    # A copy to the host returns after the copy, unless it is asynchronous.
    (r"(?:cu|hip)Memcpy(?:2D|3D)?DtoH(?!\w*Async)", "synchronize"),
    (r"\w*GraphLaunch", "graph launch"),
    (r"\w*Graph", "build graph"),
    (r"\w*LaunchHostFunc", "host function"),
    (r"\w*Launch", "launch"),
    (r"(?i)\w*memcpy", "copy"),
    (r"(?i)\w*memset", "fill"),
    (r"\w*(?:Free|Unregister)", "free"),
    (r"\w*(?:Malloc|Alloc|HostRegister|MemCreate|MemMap)", "allocate"),
    (r"\w*(?:Module|Library|Link|Kernel|Func)(?:Load|Complete|Add|Get|Set|Create|Destroy|Unload)", "load code"),
)


class ApiCalls(Struct, frozen=True, eq=False):
    """Calls of one host: `rows` of the trace (ascending), and the index of the kind of each in `API_KINDS`."""

    rows: Int64s
    kind: Int64s

    def of(self, kind: ApiKind) -> Int64s:
        """Return the rows of a kind."""
        rows: Int64s = self.rows[self.kind == API_KINDS.index(kind)]
        return rows


@lru_cache(maxsize=1 << 12)
def api_kind(name: str) -> ApiKind | None:
    """Return the kind of API call by the name of an event; None if the name does not belong to an API function."""
    if not re.match(_API, name):
        return None
    return next((kind for pattern, kind in _KINDS if re.match(pattern, name)), "other")


def api_label(name: str) -> str:
    """Return the name of an API call in tables: without the object in parentheses, and without the name of a kernel."""
    if api_kind(name) is not None:
        return name.partition(" (")[0]
    return name if re.match("(?i)mem(?:cpy|set)", name) else KERNEL_LAUNCH


@once
def api_calls(trace: HostTrace) -> ApiCalls:
    """Return the API calls of all host threads."""
    named = trace.host_events(mask(trace.names, api_kind))
    launching = launching_calls(trace)[0]
    rows = distinct(np.concatenate((named, launching)))
    of_name = np.zeros(len(trace.names), np.int64)
    for name in np.flatnonzero(np.bincount(trace.name[rows], minlength=len(trace.names))).tolist():
        text = trace.names[name]
        kind = api_kind(text)
        if kind is None:
            kind = "copy" if re.match("(?i)memcpy", text) else "fill" if re.match("(?i)memset", text) else "launch"
        of_name[name] = API_KINDS.index(kind)
    return ApiCalls(rows, of_name[trace.name[rows]])
