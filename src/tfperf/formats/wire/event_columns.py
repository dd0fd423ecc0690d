"""Events as columns: one row per event, a column per stat, lines as ranges of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import NO_NUMBERS, Bools, Int32s, Int64s, Uint8s, distinct_index

StatType = Literal["number", "real", "text", "bytes"]
"""From narrowest to widest: every number can become text. Bytes are text with characters up to 255 (Latin-1)."""
Scalar = TypeVar("Scalar", bound=np.generic)

STEPS_LINE = -559038737
"""Reserved id of a device's derived line of steps; ids of other derived lines follow."""
_DERIVED_COUNT = 390
OP_LINES = ("XLA Ops", "Framework Ops", "TensorFlow Ops")
"""Lines of a TPU core with its ops."""
MODULE_LINE = "XLA Modules"
"""Line of a TPU core with its program runs."""
TRACE_ME_LINE = "XLA TraceMe"
"""Line of a TPU core with markers of its programs: barriers, and regions of kernels."""
ASYNC_LINE = "Async XLA Ops"
"""Line of a TPU core with asynchronous ops, from their start until they are waited for."""
COUNTER_LINE = "_counters_"
"""Line of a TPU core with the compiler's estimates of its programs, which are not measured."""


def unsigned(bits: int) -> int:
    """Return the unsigned number with the bits of an int64, to display a program or run id."""
    return bits % (1 << 64)


def signed(number: int) -> int:
    """Return the int64 with the bits of an unsigned number, as stored in columns and keys."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def is_derived(line_id: int) -> bool:
    """Return whether the id is reserved for derived lines."""
    return STEPS_LINE <= line_id < STEPS_LINE + _DERIVED_COUNT


class Line(Struct, frozen=True):
    """A timeline (host thread, device stream): rows `start` to `stop` of the event columns.

    `plane` is the index of its plane in the trace. In the file, event times count from `timestamp_ns`.
    """

    plane: int
    id: int
    raw_name: str
    start: int
    stop: int
    display_name: str = ""
    timestamp_ns: int = 0

    @property
    def name(self) -> str:
        """Return the display name."""
        return self.display_name or self.raw_name

    @property
    def derived(self) -> bool:
        """Return whether the line is computed (steps, name scopes, ops, compiler counters) rather than recorded."""
        return is_derived(self.id) or self.raw_name == COUNTER_LINE

    def continued_by(self, more: Line) -> Line:
        """Return the line extended by another piece, which may contain fields written after the events."""
        return replace(
            self,
            id=more.id or self.id,
            raw_name=more.raw_name or self.raw_name,
            display_name=more.display_name or self.display_name,
            timestamp_ns=more.timestamp_ns or self.timestamp_ns,
            stop=more.stop,
        )


class Stat(Struct, frozen=True):
    """One stat: its rows (ascending) and values.

    `value` is int64: a number (a uint64 keeps its bits), the bits of a float64, or an index into `texts`.
    """

    event: Int32s
    value: Int64s
    type: StatType = "number"
    texts: tuple[str, ...] = ()

    def text(self, position: int) -> str:
        """Return the text at this position of `event`."""
        return self.texts[int(self.value[position])]

    def by_event(self) -> dict[int, int | float | str]:
        """Return the value of each row with the stat."""
        values: list[Any] = (self.value.view(np.float64) if self.type == "real" else self.value).tolist()
        shown = [self.texts[value] for value in values] if self.type in ("text", "bytes") else values
        return dict(zip(self.event.tolist(), shown, strict=True))

    def moved(self, new_row: Int32s) -> Stat:
        """Return the stat with rows mapped to new ones; rows mapped to -1 are dropped."""
        which, event = _moved(self.event, new_row)
        return replace(self, event=event, value=self.value[which])

    def converted(self, wanted: StatType) -> Stat:
        """Return the stat in a wider type: numbers as reals, any type as text."""
        if self.type == wanted:
            return self
        if self.type == "text":
            return replace(self, type=wanted)
        values = self.value.view(np.float64) if self.type == "real" else self.value
        if wanted == "real":
            return Stat(self.event, values.astype(np.float64).view(np.int64), "real")
        numbers, index = distinct_index(values)
        return Stat(self.event, index, wanted, tuple(map(str, numbers.tolist())))


NO_STAT = Stat(np.empty(0, np.int32), NO_NUMBERS)


class StatKind(IntEnum):
    """How a stat's value is stored."""

    INT = 0
    UNSIGNED = 1
    REAL = 2
    TEXT = 3
    BYTES = 4


class StatRows(Struct, frozen=True):
    """All stats of all events, one row per stat, ordered by event.

    `event` is the event's row, `key` an index into `keys`. `kind` (a `StatKind`) defines `value`: a number, the bits of
    a uint64 or float64, an index into `texts`, or the number of bytes.
    """

    event: Int32s
    key: Int32s
    kind: Uint8s
    value: Int64s
    keys: tuple[str, ...]
    texts: tuple[str, ...]

    def moved(self, new_row: Int32s) -> StatRows:
        """Return the stats with event rows mapped to new ones; rows mapped to -1 are dropped."""
        which, event = _moved(self.event, new_row)
        return replace(self, event=event, key=self.key[which], kind=self.kind[which], value=self.value[which])


NO_STAT_ROWS = StatRows(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.uint8), NO_NUMBERS, (), ())


class EventColumns(Struct, frozen=True):
    """Events of some lines, in file order.

    `name` indexes the event names; `start_ps` counts from the line's timestamp. `aggregated` marks events that
    represent several without their own times. `continued`: the first line continues the last line of the previous
    columns. `every` contains all stats, if requested. `stat_names` are the names of all stats on these events;
    `nameless_stats` counts those whose name is not in the file.
    """

    lines: tuple[Line, ...]
    name: Int64s
    start_ps: Int64s
    duration_ps: Int64s
    aggregated: Bools
    stats: dict[str, Stat]
    every: StatRows | None = None
    continued: bool = False
    stat_names: frozenset[str] = frozenset()
    nameless_stats: int = 0

    def only(self, keep: Bools) -> EventColumns:
        """Return the rows to keep; lines without rows stay."""
        if keep.all():
            return self
        before = np.zeros(len(keep) + 1, np.int32)
        np.cumsum(keep, dtype=np.int32, out=before[1:])
        new_row = np.where(keep, before[:-1], np.int32(-1))
        lines = (replace(line, start=int(before[line.start]), stop=int(before[line.stop])) for line in self.lines)
        return replace(self, lines=tuple(lines))._moved(keep, new_row)

    def ordered(self, order: Int64s, lines: tuple[Line, ...]) -> EventColumns:
        """Return the rows in another order, which belong to `lines`."""
        new_row = np.empty(len(order), np.int32)
        new_row[order] = np.arange(len(order), dtype=np.int32)
        return replace(self, lines=lines)._moved(order, new_row)

    def _moved(self, rows: Bools | Int64s, new_row: Int32s) -> EventColumns:
        """Return the events at `rows` with their stats, at their new rows."""
        moved = ((stat_name, stat.moved(new_row)) for stat_name, stat in self.stats.items())
        return replace(
            self,
            name=self.name[rows],
            start_ps=self.start_ps[rows],
            duration_ps=self.duration_ps[rows],
            aggregated=self.aggregated[rows],
            stats={name: stat for name, stat in moved if len(stat.event)},
            every=self.every and self.every.moved(new_row),
        )


def _moved(event: Int32s, new_row: Int32s) -> tuple[Int64s, Int32s]:
    """Return the indices of remaining stats, ordered by new row, and these rows."""
    row = new_row[event]
    which: Int64s = (row >= 0).nonzero()[0]
    row = row[which]
    if (row[1:] < row[:-1]).any():
        order = np.argsort(row, kind="stable")
        which, row = which[order], row[order]
    return which, row


class Rows(NamedTuple):
    """Rows `start` to `stop` of the columns of a part."""

    part: int
    start: int
    stop: int


def lines_of(parts: Sequence[EventColumns]) -> list[tuple[Line, list[Rows]]]:
    """Return the lines of consecutive columns, each whole, with its rows."""
    lines: list[tuple[Line, list[Rows]]] = []
    for number, part in enumerate(parts):
        for index, line in enumerate(part.lines):
            rows = Rows(number, line.start, line.stop)
            if index == 0 and part.continued:
                before, pieces = lines.pop()
                lines.append((before.continued_by(line), pieces))
                pieces.append(rows)
            else:
                lines.append((line, [rows]))
    return lines


def join_columns(parts: list[EventColumns], order: Sequence[int] | None = None) -> EventColumns:
    """Join consecutive columns and empty the list to save memory; `order` indexes `lines_of`, None: file order."""
    found = lines_of(parts)
    lines, pieces, first = [], list[Rows](), 0
    for index in range(len(found)) if order is None else order:
        line, rows = found[index]
        length = sum(each.stop - each.start for each in rows)
        lines.append(replace(line, start=first, stop=first + length))
        first += length
        for each in rows:
            # Adjacent rows are moved together.
            if pieces and (each.part, each.start) == (pieces[-1].part, pieces[-1].stop):
                each = pieces.pop()._replace(stop=each.stop)
            pieces.append(each)
    stats: dict[str, dict[int, Stat]] = {}
    for number, part in enumerate(parts):
        for stat_name, stat in part.stats.items():
            stats.setdefault(stat_name, {})[number] = stat
    every = {number: part.every for number, part in enumerate(parts) if part.every is not None}
    columns = [
        [getattr(parts[part], column)[start:stop] for part, start, stop in pieces]
        for column in ("name", "start_ps", "duration_ps", "aggregated")
    ]
    parts.clear()
    return EventColumns(
        lines=tuple(lines),
        name=_joined(columns[0], np.int64),
        start_ps=_joined(columns[1], np.int64),
        duration_ps=_joined(columns[2], np.int64),
        aggregated=_joined(columns[3], np.bool_),
        stats={stat_name: _joined_stat(of_parts, pieces) for stat_name, of_parts in stats.items()},
        every=_joined_rows(every, pieces) if every else None,
    )


def _joined(pieces: list[npt.NDArray[Scalar]], kind: type[Scalar]) -> npt.NDArray[Scalar]:
    """Concatenate the pieces and free them: keeping both would double the memory."""
    joined = np.concatenate([np.empty(0, kind), *pieces])
    pieces.clear()
    return joined


def _alike(stats: Sequence[Stat]) -> list[Stat]:
    """Return stats converted to their widest type, with shared, sorted texts."""
    widest = max((stat.type for stat in stats), key=get_args(StatType).index)
    converted = [stat.converted(widest) for stat in stats]
    if widest not in ("text", "bytes"):
        return converted
    texts, places = _united([stat.texts for stat in converted])
    return [Stat(stat.event, place[stat.value], widest, texts) for stat, place in zip(converted, places, strict=True)]


def _joined_stat(of_parts: Mapping[int, Stat], pieces: Sequence[Rows]) -> Stat:
    """Join a stat of some parts; `pieces` are the rows of all parts in their new order."""
    stats = _alike([*of_parts.values()])
    if len(pieces) == len(stats) == 1 and pieces[0].start == 0:
        return stats[0]
    events = dict(zip(of_parts, (stat.event for stat in stats), strict=True))
    values = dict(zip(of_parts, (stat.value for stat in stats), strict=True))
    event, (value,) = _placed(events, [values], pieces)
    return Stat(event, value, stats[0].type, stats[0].texts)


def merge_stats(parts: Sequence[Stat]) -> Stat:
    """Merge stats of the same rows, converted to their widest type."""
    if len(parts) == 1:
        return parts[0]
    alike = _alike(parts)
    event, value = np.concatenate([stat.event for stat in alike]), np.concatenate([stat.value for stat in alike])
    return replace(alike[0], event=event, value=value).moved(np.arange(int(event.max()) + 1, dtype=np.int32))


def _joined_rows(of_parts: Mapping[int, StatRows], pieces: Sequence[Rows]) -> StatRows:
    parts = [*of_parts.values()]
    keys, key_places = _united([rows.keys for rows in parts])
    texts, text_places = _united([rows.texts for rows in parts])
    values = []
    for rows, place in zip(parts, text_places, strict=True):
        value, is_text = rows.value.copy(), rows.kind == StatKind.TEXT
        value[is_text] = place[value[is_text]]
        values.append(value)
    keyed = [place[rows.key].astype(np.int32) for place, rows in zip(key_places, parts, strict=True)]
    columns = (keyed, [rows.kind for rows in parts], values)
    events = {part: rows.event for part, rows in of_parts.items()}
    event, (key, kind, value) = _placed(events, [dict(zip(of_parts, each, strict=True)) for each in columns], pieces)
    return StatRows(event, key, kind, value, keys, texts)


def _placed(
    events: Mapping[int, Int32s], columns: Sequence[Mapping[int, npt.NDArray[Any]]], pieces: Sequence[Rows]
) -> tuple[Int32s, list[npt.NDArray[Any]]]:
    """Return rows with a stat (by part) and their columns, in the order of the pieces."""
    edges: dict[int, list[int]] = {}
    for part, start, stop in pieces:
        edges.setdefault(part, []).extend((start, stop))
    bounds = {part: iter(np.searchsorted(event, edges[part]).tolist()) for part, event in events.items()}
    slices, shifts, first = list[tuple[int, slice]](), list[int](), 0
    for part, start, stop in pieces:
        if part in bounds:
            chosen = slice(next(bounds[part]), next(bounds[part]))
            if chosen.stop > chosen.start:
                slices.append((part, chosen))
                shifts.append(first - start)
        first += stop - start
    event = np.concatenate([np.empty(0, np.int32), *(events[part][chosen] for part, chosen in slices)])
    event += np.repeat(np.array(shifts, np.int32), [chosen.stop - chosen.start for _, chosen in slices])
    some = next(iter(events))
    return event, [
        np.concatenate([column[some][:0], *(column[part][chosen] for part, chosen in slices)]) for column in columns
    ]


def _united(pieces: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], list[Int64s]]:
    """Return the sorted distinct texts of all pieces, and the index of each piece's texts."""
    texts = sorted({text for piece in pieces for text in piece})
    index = {text: place for place, text in enumerate(texts)}
    return tuple(texts), [np.array([index[text] for text in piece], np.int64) for piece in pieces]
