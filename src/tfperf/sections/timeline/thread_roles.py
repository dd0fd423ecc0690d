"""Which role each line of a trace has in a picture: the thread of the program, threads of tf.data, streams, ..."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from msgspec import Struct

from tfperf.analysis.results import Host
from tfperf.base.arrays import Int64s, distinct_index
from tfperf.sections.timeline.window import Window
from tfperf.trace.device.device_time import device_label, work_lines
from tfperf.trace.host.host_state import main_line
from tfperf.trace.host.launches import launching_calls
from tfperf.trace.host_trace import HostTrace

Role = Literal["program", "tf.data", "launching", "other"]
TITLES: dict[Role, str] = {
    "program": "Program",
    "tf.data": "tf.data",
    "launching": "Launching threads",
    "other": "Other threads",
}
"""The roles of host threads, in the order in which they are drawn."""
_TF_DATA_SHARE = 0.5
"""Of the busy time of a thread; if stages of tf.data work longer, it is theirs."""


class LineRole(Struct, frozen=True):
    """A line, which group of lanes it belongs to, and its title."""

    line: int
    group: str
    title: str


def line_roles(host: Host, busy_ps: Int64s, window: Window) -> Iterator[LineRole]:
    """Yield the lines to draw, group by group; `busy_ps` is how long each line is busy in the window."""
    trace = host.trace
    main, launching, stages = main_line(trace), _launching_lines(trace), _stage_of_lines(host, busy_ps, window)
    by_role: dict[Role, list[LineRole]] = {role: [] for role in TITLES}
    for index, line in enumerate(trace.lines):
        if trace.planes[line.plane].kind != "host" or line.derived or not busy_ps[index]:
            continue
        role: Role = "other"
        title = line.name
        if index == main:
            role = "program"
        elif index in stages:
            role, title = "tf.data", f"{stages[index]} ({line.name})"
        elif line.name.startswith("tf_data_"):
            role = "tf.data"
        elif index in launching:
            role = "launching"
        by_role[role].append(LineRole(index, TITLES[role], title))
    for roles in by_role.values():
        yield from roles
    yield from _streams(trace, busy_ps)


def _streams(trace: HostTrace, busy_ps: Int64s) -> Iterator[LineRole]:
    """Yield the lines of devices that hold their work."""
    for plane in trace.devices:
        label = device_label(trace.planes[plane].name)
        streams = {(line.id, line.start) for line in work_lines(trace, plane)}
        for index, line in enumerate(trace.lines):
            if line.plane == plane and (line.id, line.start) in streams and busy_ps[index]:
                yield LineRole(index, label, line.name)


def _launching_lines(trace: HostTrace) -> frozenset[int]:
    """Return the threads that launch work of devices."""
    calls, _ = launching_calls(trace)
    return frozenset(np.flatnonzero(np.bincount(trace.line_of[calls], minlength=1)).tolist())


def _stage_of_lines(host: Host, busy_ps: Int64s, window: Window) -> dict[int, str]:
    """Return the threads that mostly work for stages of tf.data, with the stage for which each works longest."""
    work, pipelines = host.stage_work, host.pipelines
    if work is None or pipelines is None:
        return {}
    start, end = np.maximum(work.start, window.start_ps), np.minimum(work.end, window.end_ps)
    rows = np.flatnonzero((end > start) & (work.stage >= 0))
    if not len(rows):
        return {}
    count = len(pipelines.stages)
    line = host.trace.line_of[work.row[rows]].astype(np.int64)
    pairs, pair = distinct_index(line * count + work.stage[rows])
    worked = np.bincount(pair, weights=(end - start)[rows].astype(np.float64))
    by_line: dict[int, list[tuple[float, int]]] = {}
    for key, time_ps in zip(pairs.tolist(), worked.tolist(), strict=True):
        by_line.setdefault(key // count, []).append((time_ps, key % count))
    main = main_line(host.trace)
    return {
        index: pipelines.stages[max(parts)[1]].name
        for index, parts in by_line.items()
        if index != main and sum(time_ps for time_ps, _ in parts) > _TF_DATA_SHARE * busy_ps[index]
    }
