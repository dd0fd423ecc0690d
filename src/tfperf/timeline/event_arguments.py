"""Stats as arguments of events: those of the event itself, and those that belong to its name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tfperf.arrays import Int32s, Int64s, Uint8s
from tfperf.timeline.host_timeline import EventArguments
from tfperf.trace.host_trace import HostTrace
from tfperf.wire.event_columns import StatKind, StatRows

_LINKS = frozenset({"_pt", "_p", "_ct", "_c", "_r", "_a"})
"""Stats that link events; viewers get arrows for them."""

_LONG_NAME = 128
"""A name longer than that gives way to the display name, where there is one."""

_NO_STATS = StatRows(
    np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.uint8), np.empty(0, np.int64), keys=(), texts=()
)


def shown_names(trace: HostTrace) -> tuple[str, ...]:
    """Return the names that viewers show for events, by index of the event's name."""
    return tuple(
        display_name if display_name and (len(name) > _LONG_NAME or not name) else name
        for name, display_name in zip(trace.names, trace.display_names, strict=True)
    )


def trace_arguments(trace: HostTrace) -> EventArguments:
    """Return the arguments of all events, in order of rows, of a trace that was read with everything."""
    stats = trace.every_stat or _NO_STATS
    shown = np.array([key not in _LINKS for key in stats.keys], np.bool_)
    which = np.flatnonzero(shown[stats.key]) if len(stats.keys) else np.empty(0, np.int64)
    event, key, kind, value = stats.event[which], stats.key[which], stats.kind[which], stats.value[which]
    keys, texts = list(stats.keys), list(stats.texts)
    by_name = [_of_events(trace, stat, values, keys, texts) for stat, values in _stats_of_names(trace).items()]
    if by_name:
        event, key, kind, value = (
            np.concatenate(columns) for columns in zip((event, key, kind, value), *by_name, strict=True)
        )
        order = np.argsort(event, kind="stable")
        event, key, kind, value = event[order], key[order], kind[order], value[order]
    stop = np.concatenate(([0], np.cumsum(np.bincount(event, minlength=len(trace.name)))))
    return EventArguments(stop=stop, key=key, kind=kind, value=value, keys=tuple(keys), texts=tuple(texts))


def _stats_of_names(trace: HostTrace) -> dict[str, Mapping[int, int | float | str]]:
    """Return the stats of names, and the full name where another is shown, by index of the name."""
    shown = shown_names(trace)
    long = {i: name for i, name in enumerate(trace.names) if name != shown[i] and name}
    stats: dict[str, Mapping[int, int | float | str]] = {
        stat: values for stat, values in trace.name_stats.items() if values and stat not in _LINKS
    }
    return stats | ({"long_name": long} if long else {})


def _of_events(
    trace: HostTrace, stat: str, values: Mapping[int, int | float | str], keys: list[str], texts: list[str]
) -> tuple[Int32s, Int32s, Uint8s, Int64s]:
    """Return events, keys, kinds and values for all events whose names carry a stat; adds its key and texts."""
    value_of = np.zeros(len(trace.names), np.int64)
    kind_of = np.full(len(trace.names), len(StatKind), np.uint8)
    for name, value in values.items():
        if isinstance(value, str):
            value_of[name], kind_of[name] = len(texts), StatKind.TEXT
            texts.append(value)
        else:
            value_of[name], kind_of[name] = value, StatKind.INT
    keys.append(stat)
    rows = np.flatnonzero(kind_of[trace.name] < len(StatKind)).astype(np.int32)
    names = trace.name[rows]
    return rows, np.full(len(rows), len(keys) - 1, np.int32), kind_of[names], value_of[names]
