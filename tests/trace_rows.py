"""A trace as plain Python: rows, lines and stats, to stand beside what a test expects."""

from __future__ import annotations

from typing import Any

import numpy as np
from builders import Event, event

from tfperf.trace.host_trace import HostTrace

US = 1_000_000


def rows(trace: HostTrace) -> list[tuple[str, float, float]]:
    """Name, start and duration (in microseconds) of each event, in row order."""
    names = [trace.names[name] for name in trace.name.tolist()]
    return list(zip(names, (trace.start_ps / US).tolist(), (trace.duration_ps / US).tolist(), strict=True))


def lines(trace: HostTrace) -> list[tuple[int, str, list[str]]]:
    """Id, name and event names of each line."""
    return [
        (row.id, row.name, [trace.names[name] for name in trace.name[row.start : row.stop].tolist()])
        for row in trace.lines
    ]


def numbers(trace: HostTrace, stat_name: str) -> dict[int, int]:
    """Row -> value of a stat."""
    stat = trace.stat(stat_name)
    return dict(zip(stat.event.tolist(), stat.value.tolist(), strict=True))


def texts(trace: HostTrace, stat_name: str) -> dict[int, str]:
    """Row -> text of a stat."""
    stat = trace.stat(stat_name)
    return {row: stat.text(position) for position, row in enumerate(stat.event.tolist())}


def plain(value: Any) -> Any:
    """A value as lists, which can be compared: arrays, structs and dictionaries among them."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if hasattr(value, "__struct_fields__"):
        return [(name, plain(getattr(value, name))) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return [(key, plain(item)) for key, item in value.items()]
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def memory(start_us: float, *, allocates: bool = True, **stats: object) -> Event:
    """An allocation or deallocation, which takes no time."""
    return event("MemoryAllocation" if allocates else "MemoryDeallocation", start_us, 0, **stats)
