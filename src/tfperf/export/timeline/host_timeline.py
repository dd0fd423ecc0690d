"""Timelines as columns: groups of tracks with events, arguments, arrows and counters; input of both formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import NO_NUMBERS, Bools, Int32s, Int64s, Uint8s, ranges
from tfperf.formats.wire.event_columns import StatKind

PS_PER_NS, PS_PER_US = 1000, 1_000_000
EncodeJob = Callable[[], bytes]  # may run in any thread


class Track(Struct, frozen=True):
    """Rows `start` to `stop` of a group on one track; `extra` if its events do not nest on the previous one."""

    name: str
    start: int
    stop: int
    extra: bool = False


class EventArguments(Struct, frozen=True, kw_only=True):
    """Stats of events, one entry each, in row order; the entries of row i end at `stop[i + 1]`.

    `kind` is a `StatKind` and gives the meaning of `value`: a number, the bits of a uint64 or float64, an index into
    `texts`, or a number of bytes. `key` is an index into `keys`.
    """

    stop: Int64s
    key: Int32s
    kind: Uint8s
    value: Int64s
    keys: Sequence[str]
    texts: Sequence[str]

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the argument names: the keys, then the keys of byte values, which are reported by length only."""
        return (*self.keys, *(f"{key} (bytes)" for key in self.keys))

    def label(self, entries: slice) -> Int64s:
        """Return the index into `labels` of these entries."""
        is_bytes = self.kind[entries] == StatKind.BYTES
        return np.asarray(self.key[entries] + len(self.keys) * is_bytes, np.int64)

    def of(self, rows: Int64s) -> EventArguments:
        """Return the arguments of these rows in this order."""
        start = self.stop[rows]
        counts = self.stop[rows + 1] - start
        if len(rows) and bool((np.diff(rows) == 1).all()):
            items: slice | Int64s = slice(int(start[0]), int(start[0] + counts.sum()))
        else:
            items = ranges(start, counts)
        stop = np.concatenate(([0], np.cumsum(counts)))
        return replace(self, stop=stop, key=self.key[items], kind=self.kind[items], value=self.value[items])

    @classmethod
    def none(cls, count: int) -> EventArguments:
        """Return empty arguments for `count` rows."""
        ends = np.zeros(count + 1, np.int64)
        return cls(
            stop=ends, key=np.empty(0, np.int32), kind=np.empty(0, np.uint8), value=NO_NUMBERS, keys=(), texts=()
        )

    @classmethod
    def of_columns(
        cls, columns: Sequence[tuple[str, StatKind, Int64s, Bools | None]], texts: Sequence[str] = ()
    ) -> EventArguments:
        """Return arguments from their keys, kinds and values per row; a mask marks the rows that have one."""
        count = len(columns[0][2])
        there = np.stack([np.ones(count, np.bool_) if mask is None else mask for *_, mask in columns], axis=1)
        key = np.tile(np.arange(len(columns), dtype=np.int32), (count, 1))
        kinds = np.array([kind for _, kind, _, _ in columns], np.uint8)
        return cls(
            stop=np.concatenate(([0], np.cumsum(there.sum(axis=1)))),
            key=key[there],
            kind=kinds[key][there],
            value=np.stack([values for _, _, values, _ in columns], axis=1)[there],
            keys=tuple(name for name, *_ in columns),
            texts=texts,
        )


class ArrowEnds(Struct, frozen=True):
    """Ends of arrows: the row in the group (ascending), and the arrow number, which both ends share."""

    row: Int64s
    arrow: Int64s


NO_ARROWS = ArrowEnds(NO_NUMBERS, NO_NUMBERS)


class Counter(Struct, frozen=True):
    """A quantity over time, in ticks of its group."""

    name: str
    time: Int64s
    value: Int64s
    unit: Literal["bytes", "elements", "%"] = "bytes"


class TrackGroup(Struct, frozen=True, kw_only=True):
    """Related tracks, called a process in viewers: a plane of the profile, or the steps of a host.

    Times are non-negative picoseconds unless `ticks_per_us` is set. `name` is an index into `names`. Rows are ordered
    by track, then by start, the longer first; all events of a track nest.
    """

    title: str
    category: str
    tracks: tuple[Track, ...]
    start: Int64s
    end: Int64s
    name: Int64s
    names: Sequence[str]
    arguments: EventArguments
    leaving: ArrowEnds = NO_ARROWS
    arriving: ArrowEnds = NO_ARROWS
    counters: tuple[Counter, ...] = ()
    ticks_per_us: int = PS_PER_US

    @property
    def track_of_row(self) -> Int64s:
        """Return the index of the track of each row."""
        return np.repeat(np.arange(len(self.tracks)), [track.stop - track.start for track in self.tracks])


class GroupIds(Struct, frozen=True):
    """Ids of a group in a file: its own and the first of its tracks, and its time unit."""

    group: int
    track: int
    ticks_per_us: int


class HostTimeline(Struct, frozen=True, kw_only=True):
    """All groups of a host in display order.

    `steps`, `copies` (of TPUs, each made of two events), `derived` (events of GPUs' derived tracks) and `arrows` count
    displayed items, `events` all events of the profile. `omitted` counts hidden events by reason, `cut_arrows` the
    arrows that lost an end with them, `backward_arrows` the arrows reversed because the target starts before the
    source.
    """

    groups: tuple[TrackGroup, ...]
    steps: int
    copies: int
    derived: int
    events: int
    omitted: dict[str, int]
    arrows: int
    cut_arrows: int
    backward_arrows: int
