"""What a trace viewer shows, as columns: groups of tracks with events, arguments, arrows and counters.

Both formats are written from this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import Int32s, Int64s, Uint8s, ranges
from tfperf.formats.wire.event_columns import StatKind

PS_PER_NS = 1000
EncodeJob = Callable[[], bytes]
"""Makes the bytes of some events, in whichever thread calls it."""


class Track(Struct, frozen=True):
    """Rows `start` to `stop` of a group, on one track; `extra` if it takes what did not nest on the one before."""

    name: str
    start: int
    stop: int
    extra: bool = False


class EventArguments(Struct, frozen=True, kw_only=True):
    """Stats to show beside events, one entry each, in order of rows; those of row i end at `stop[i + 1]`.

    `kind` is a `StatKind` and says what `value` is: a number, the bits of a uint64 or of a float64, an index into
    `texts`, or how many bytes there are. `key` is an index into `keys`.
    """

    stop: Int64s
    key: Int32s
    kind: Uint8s
    value: Int64s
    keys: Sequence[str]
    texts: Sequence[str]

    @property
    def labels(self) -> tuple[str, ...]:
        """Return what to call arguments: the keys, then the keys of bytes, of which only the number is known."""
        return (*self.keys, *(f"{key} (bytes)" for key in self.keys))

    def label(self, entries: slice) -> Int64s:
        """Return the index into `labels` of these entries."""
        is_bytes = self.kind[entries] == StatKind.BYTES
        return np.asarray(self.key[entries] + len(self.keys) * is_bytes, np.int64)

    def of(self, rows: Int64s) -> EventArguments:
        """Return the arguments of these rows, in that order."""
        start = self.stop[rows]
        counts = self.stop[rows + 1] - start
        if len(rows) and bool((np.diff(rows) == 1).all()):
            items: slice | Int64s = slice(int(start[0]), int(start[0] + counts.sum()))
        else:
            items = ranges(start, counts)
        stop = np.concatenate(([0], np.cumsum(counts)))
        return replace(self, stop=stop, key=self.key[items], kind=self.kind[items], value=self.value[items])


class ArrowEnds(Struct, frozen=True):
    """Ends of arrows: the row of the group (ascending), and the number of the arrow, which its other end has too."""

    row: Int64s
    arrow: Int64s


class Counter(Struct, frozen=True):
    """A quantity in bytes over time."""

    name: str
    time_ps: Int64s
    value: Int64s


class TrackGroup(Struct, frozen=True, kw_only=True):
    """Tracks that belong together, which viewers call a process: a plane of the profile, or the steps of a host.

    Times are picoseconds, never negative; `name` is an index into `names`. Rows are ordered by track, in a track by
    start, the longer first; on each track all events nest.
    """

    title: str
    category: str
    tracks: tuple[Track, ...]
    start_ps: Int64s
    end_ps: Int64s
    name: Int32s
    names: Sequence[str]
    arguments: EventArguments
    leaving: ArrowEnds
    arriving: ArrowEnds
    counters: tuple[Counter, ...] = ()

    @property
    def track_of_row(self) -> Int64s:
        """Return the index of the track of each row."""
        return np.repeat(np.arange(len(self.tracks)), [track.stop - track.start for track in self.tracks])


class GroupIds(Struct, frozen=True):
    """The numbers of a group in a file: its own, and the first of its tracks."""

    group: int
    track: int


class HostTimeline(Struct, frozen=True, kw_only=True):
    """All groups of a host, in the order to show them.

    `steps`, `copies` (of TPUs, each made of two events) and `arrows` count what is shown, `events` what is in the
    profile. `omitted` counts by reason the events that are not shown, `cut_arrows` the arrows that lost an end with
    them, `backward_arrows` those that are turned around because the target starts before the source.
    """

    groups: tuple[TrackGroup, ...]
    steps: int
    copies: int
    events: int
    omitted: dict[str, int]
    arrows: int
    cut_arrows: int
    backward_arrows: int
