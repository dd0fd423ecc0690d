"""Stats as arguments of events: those of the event itself, and those that stand on its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tfperf.arrays import Int32s, Int64s, Uint8s
from tfperf.timeline.model import Arguments
from tfperf.trace.host_trace import HostTrace
from tfperf.wire.event_columns import StatKind, StatRows

INTERNAL = frozenset({"_pt", "_p", "_ct", "_c", "_r", "_a"})
"""Stats that link events; viewers get arrows for them."""

LONG_NAME = 128
"""A name longer than that gives way to the display name, where there is one."""

NO_STATS = StatRows(
    np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.uint8), np.empty(0, np.int64), keys=(), texts=()
)


@dataclass(frozen=True, slots=True)
class TraceArguments:
    """All arguments of a trace, ordered by row; `stop[row]` is where those of the rows before it end."""

    stop: Int64s
    key: Int32s
    kind: Uint8s
    value: Int64s
    keys: tuple[str, ...]
    texts: tuple[str, ...]

    def of(self, rows: Int64s) -> Arguments:
        """Return the arguments of these rows, in that order."""
        start = self.stop[rows]
        counts = self.stop[rows + 1] - start
        if len(rows) and bool((np.diff(rows) == 1).all()):
            items: slice | Int64s = slice(int(start[0]), int(start[0] + counts.sum()))
        else:
            before = np.cumsum(counts) - counts
            items = np.arange(counts.sum()) + np.repeat(start - before, counts)
        stop = np.concatenate(([0], np.cumsum(counts)))
        return Arguments(stop, self.key[items], self.kind[items], self.value[items], self.keys, self.texts)


def shown_names(trace: HostTrace) -> tuple[str, ...]:
    """Return what to call events, by index of their name."""
    return tuple(
        shown if shown and (len(name) > LONG_NAME or not name) else name
        for name, shown in zip(trace.names, trace.display_names, strict=True)
    )


def trace_arguments(trace: HostTrace) -> TraceArguments:
    """Return the arguments of all events of a trace that was read with everything."""
    every = trace.every_stat or NO_STATS
    wanted = np.array([key not in INTERNAL for key in every.keys], np.bool_)
    which = np.flatnonzero(wanted[every.key]) if len(every.keys) else np.empty(0, np.int64)
    columns = (every.event[which], every.key[which], every.kind[which], every.value[which])
    keys, texts = list(every.keys), list(every.texts)
    parts = [columns, *(_on_names(trace, stat, values, keys, texts) for stat, values in _of_names(trace).items())]
    if len(parts) > 1:
        joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        columns = (joined[0][order], joined[1][order], joined[2][order], joined[3][order])
    stop = np.concatenate(([0], np.cumsum(np.bincount(columns[0], minlength=len(trace.name)))))
    return TraceArguments(stop, columns[1], columns[2], columns[3], tuple(keys), tuple(texts))


def _of_names(trace: HostTrace) -> dict[str, Mapping[int, int | float | str]]:
    """Return what stands on names, and the full name where another is shown."""
    shown = shown_names(trace)
    long = {i: name for i, name in enumerate(trace.names) if name != shown[i] and name}
    named: dict[str, Mapping[int, int | float | str]] = {
        stat: values for stat, values in trace.name_stats.items() if values and stat not in INTERNAL
    }
    return named | ({"long_name": long} if long else {})


def _on_names(
    trace: HostTrace, stat: str, values: Mapping[int, int | float | str], keys: list[str], texts: list[str]
) -> tuple[Int32s, Int32s, Uint8s, Int64s]:
    """Return arguments for all events whose names carry a stat; adds its key and texts to the lists."""
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
