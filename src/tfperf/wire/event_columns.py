"""Events as columns: one row per event, stats as columns of their own, lines as ranges of rows."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tfperf.arrays import NO_NUMBERS, Bools, Int32s, Int64s, Uint8s, distinct_index

StatType = Literal["number", "real", "text", "bytes"]
"""From the narrowest to the widest: every number can be a text. Bytes are texts of characters up to 255 (Latin-1)."""
Scalar = TypeVar("Scalar", bound=np.generic)

STEPS_LINE = -559038737
"""Reserved id of the line of steps that the profiler derives for a device; ids of other derived lines follow it."""
_DERIVED_COUNT = 390
OP_LINES = ("XLA Ops", "Framework Ops", "TensorFlow Ops")
"""Names of the lines of a TPU core that hold its ops."""
MODULE_LINE = "XLA Modules"
"""Name of the line of a TPU core that holds the runs of its programs."""
TRACE_ME_LINE = "XLA TraceMe"
"""Name of the line of a TPU core that holds what its programs mark themselves: barriers, and regions of kernels."""
ASYNC_LINE = "Async XLA Ops"
"""Name of the line of a TPU core that holds what ran beside its ops, from their start to when they were waited for."""
COUNTER_LINE = "_counters_"
"""Name of the line of a TPU core that holds what the compiler reckoned of its programs, which is no measurement."""


def unsigned(bits: int) -> int:
    """Return the number without a sign whose bits an int64 keeps: an id of a program or of a run, to be shown."""
    return bits % (1 << 64)


def signed(number: int) -> int:
    """Return the int64 that keeps the bits of a number without a sign, as columns and keys hold ids."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def is_derived(line_id: int) -> bool:
    """Tell whether the id is one of those reserved for derived lines."""
    return STEPS_LINE <= line_id < STEPS_LINE + _DERIVED_COUNT


class Line(Struct, frozen=True):
    """A timeline (host thread, device stream): rows `start` to `stop` of the event columns.

    `plane` is the position of its plane in the file. The times of its events count from `timestamp_ns` in the file.
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
        """Return the name to show."""
        return self.display_name or self.raw_name

    @property
    def derived(self) -> bool:
        """Tell whether the line was computed (steps, name scopes, ops; counters by the compiler), and not recorded."""
        return is_derived(self.id) or self.raw_name == COUNTER_LINE

    def continued_by(self, more: Line) -> Line:
        """Return the line after one more piece of it, which may hold fields that a writer puts behind the events."""
        return replace(
            self,
            id=more.id or self.id,
            raw_name=more.raw_name or self.raw_name,
            display_name=more.display_name or self.display_name,
            timestamp_ns=more.timestamp_ns or self.timestamp_ns,
            stop=more.stop,
        )


class Stat(Struct, frozen=True):
    """One stat: the rows that carry it (ascending), and its values.

    `value` is int64 whatever the type: a number (a uint64 keeps its bits), the bits of a float64, or an index into
    `texts`.
    """

    event: Int32s
    value: Int64s
    type: StatType = "number"
    texts: tuple[str, ...] = ()

    def text(self, position: int) -> str:
        """Return the text of the stat at this position of `event`."""
        return self.texts[int(self.value[position])]

    def moved(self, new_row: Int32s) -> Stat:
        """Return the stat with each row replaced by its new one; rows that become -1 are omitted."""
        which, event = _moved(self.event, new_row)
        return replace(self, event=event, value=self.value[which])

    def converted(self, wanted: StatType) -> Stat:
        """Return the stat as one of a wider type: numbers as real numbers, any as texts."""
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
    """How a stat is stored, and so what its value means."""

    INT = 0
    UNSIGNED = 1
    REAL = 2
    TEXT = 3
    BYTES = 4


class StatRows(Struct, frozen=True):
    """Every stat of every event, one row per stat, ordered by event.

    `event` is the row of the event, `key` an index into `keys`. What `value` is depends on `kind` (a `StatKind`): a
    number, the bits of a uint64 or of a float64, an index into `texts`, or how many bytes there are.
    """

    event: Int32s
    key: Int32s
    kind: Uint8s
    value: Int64s
    keys: tuple[str, ...]
    texts: tuple[str, ...]

    def moved(self, new_row: Int32s) -> StatRows:
        """Return the stats with each row of an event replaced by its new one; rows that become -1 are omitted."""
        which, event = _moved(self.event, new_row)
        return replace(self, event=event, key=self.key[which], kind=self.kind[which], value=self.value[which])


NO_STAT_ROWS = StatRows(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.uint8), NO_NUMBERS, (), ())


class EventColumns(Struct, frozen=True):
    """Events of some lines, in the order of the file.

    `name` indexes the names of events; `start_ps` counts from the timestamp of the line. `aggregated` marks events
    that stand for several without a time of their own. `continued`: the first line is the one that the columns before
    ended with. `every` holds all stats, where they are wanted. `stat_names` are the names of all stats of the events
    that were read, `nameless_stats` counts those whose name the file does not say.
    """

    lines: tuple[Line, ...]
    name: Int32s
    start_ps: Int64s
    duration_ps: Int64s
    aggregated: Bools
    stats: dict[str, Stat]
    every: StatRows | None = None
    continued: bool = False
    stat_names: frozenset[str] = frozenset()
    nameless_stats: int = 0

    def only(self, keep: Bools) -> EventColumns:
        """Return the rows to keep; lines stay, even without any row."""
        if keep.all():
            return self
        before = np.zeros(len(keep) + 1, np.int32)
        np.cumsum(keep, dtype=np.int32, out=before[1:])
        new_row = np.where(keep, before[:-1], np.int32(-1))
        lines = (replace(line, start=int(before[line.start]), stop=int(before[line.stop])) for line in self.lines)
        stats = self.stats if before[-1] else {}
        return replace(self, lines=tuple(lines), stats=stats)._moved(keep, new_row)

    def ordered(self, order: Int64s, lines: tuple[Line, ...]) -> EventColumns:
        """Return the rows in another order, which are those of other lines by then."""
        new_row = np.empty(len(order), np.int32)
        new_row[order] = np.arange(len(order), dtype=np.int32)
        return replace(self, lines=lines)._moved(order, new_row)

    def _moved(self, rows: Bools | Int64s, new_row: Int32s) -> EventColumns:
        """Return the events at `rows`, with their stats at their new rows."""
        return replace(
            self,
            name=self.name[rows],
            start_ps=self.start_ps[rows],
            duration_ps=self.duration_ps[rows],
            aggregated=self.aggregated[rows],
            stats={stat_name: stat.moved(new_row) for stat_name, stat in self.stats.items()},
            every=self.every and self.every.moved(new_row),
        )


def _moved(event: Int32s, new_row: Int32s) -> tuple[Int64s, Int32s]:
    """Return which stats stay, in the order of their new rows, and these rows."""
    row = new_row[event]
    which: Int64s = np.flatnonzero(row >= 0)
    row = row[which]
    if (row[1:] < row[:-1]).any():
        order = np.argsort(row, kind="stable")
        which, row = which[order], row[order]
    return which, row


def join_columns(parts: list[EventColumns]) -> EventColumns:
    """Join columns that follow each other in a file. Empties the list, so that no column is held twice."""
    lines: list[Line] = []
    stats: dict[str, list[tuple[int, Stat]]] = {}
    every: list[tuple[int, StatRows]] = []
    first = 0
    for part in parts:
        for index, line in enumerate(part.lines):
            placed = replace(line, start=line.start + first, stop=line.stop + first)
            lines.append(lines.pop().continued_by(placed) if index == 0 and part.continued else placed)
        for stat_name, stat in part.stats.items():
            stats.setdefault(stat_name, []).append((first, stat))
        if part.every is not None:
            every.append((first, part.every))
        first += len(part.name)
    names, starts = [part.name for part in parts], [part.start_ps for part in parts]
    durations, aggregated = [part.duration_ps for part in parts], [part.aggregated for part in parts]
    parts.clear()
    return EventColumns(
        lines=tuple(lines),
        name=_joined(names, np.int32),
        start_ps=_joined(starts, np.int64),
        duration_ps=_joined(durations, np.int64),
        aggregated=_joined(aggregated, np.bool_),
        stats={stat_name: _joined_stat(pieces) for stat_name, pieces in stats.items()},
        every=_joined_rows(every) if every else None,
    )


def _joined(pieces: list[npt.NDArray[Scalar]], kind: type[Scalar]) -> npt.NDArray[Scalar]:
    """Return the pieces as one array, and let go of them: keeping both would double the memory."""
    joined = np.concatenate([np.empty(0, kind), *pieces])
    pieces.clear()
    return joined


def _joined_stat(pieces: list[tuple[int, Stat]]) -> Stat:
    """Join the pieces of a stat, each with the row that it starts at; of several types the widest holds for all."""
    if len(pieces) == 1 and pieces[0][0] == 0 and not pieces[0][1].texts:
        return pieces[0][1]
    widest = max((stat.type for _, stat in pieces), key=get_args(StatType).index)
    stats = [stat.converted(widest) for _, stat in pieces]
    values = [stat.value for stat in stats]
    texts: tuple[str, ...] = ()
    if widest in ("text", "bytes"):
        texts, places = _united([stat.texts for stat in stats])
        values = [place[value] for place, value in zip(places, values, strict=True)]
    return Stat(_shifted([(first, stat.event) for first, stat in pieces]), np.concatenate(values), widest, texts)


def merge_stats(parts: Sequence[Stat]) -> Stat:
    """Return stats of the same rows as one; of several types the widest holds for all."""
    merged = _joined_stat([(0, part) for part in parts])
    return merged if len(parts) == 1 else merged.moved(np.arange(int(merged.event.max()) + 1, dtype=np.int32))


def _joined_rows(pieces: list[tuple[int, StatRows]]) -> StatRows:
    keys, key_places = _united([rows.keys for _, rows in pieces])
    texts, text_places = _united([rows.texts for _, rows in pieces])
    values = []
    for (_, rows), place in zip(pieces, text_places, strict=True):
        value, is_text = rows.value.copy(), rows.kind == StatKind.TEXT
        value[is_text] = place[value[is_text]]
        values.append(value)
    key = [place[rows.key] for place, (_, rows) in zip(key_places, pieces, strict=True)]
    event = _shifted([(first, rows.event) for first, rows in pieces])
    kind = np.concatenate([rows.kind for _, rows in pieces])
    return StatRows(event, np.concatenate(key).astype(np.int32), kind, np.concatenate(values), keys, texts)


def _shifted(pieces: list[tuple[int, Int32s]]) -> Int32s:
    """Return row numbers in one piece, those of each piece counted from its first row."""
    return np.concatenate([event + np.int32(first) for first, event in pieces])


def _united(pieces: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], list[Int64s]]:
    """Return the distinct texts of all pieces, and for each piece where among them its texts are."""
    index: dict[str, int] = {}
    places = [np.array([index.setdefault(text, len(index)) for text in piece], np.int64) for piece in pieces]
    return tuple(index), places
