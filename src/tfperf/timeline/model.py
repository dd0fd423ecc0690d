"""What a trace viewer gets to see, as columns: groups of tracks with events, arguments, arrows and counters.

A group is what viewers call a process: a plane of the profile, or the steps of a host. Both formats are written from
this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfperf.arrays import Int32s, Int64s, Uint8s


@dataclass(frozen=True, slots=True)
class Selection:
    """What to show: steps of these numbers (both included), lines or planes of these names (`*` is a wildcard), and
    events at least that long. By default everything.
    """

    steps: tuple[int, int] | None = None
    threads: tuple[str, ...] = ()
    min_duration_ps: int = 0


@dataclass(frozen=True, slots=True)
class Track:
    """Rows `start` to `stop` of a group, on one track; `extra` if it takes what did not nest on the one before."""

    name: str
    start: int
    stop: int
    extra: bool = False


@dataclass(frozen=True, slots=True)
class Arguments:
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


@dataclass(frozen=True, slots=True)
class ArrowEnds:
    """Ends of arrows: the row of the group (ascending), and the number of the arrow, which its other end has too."""

    row: Int64s
    arrow: Int64s


@dataclass(frozen=True, slots=True)
class Counter:
    """A quantity in bytes over time."""

    name: str
    time_ps: Int64s
    value: Int64s


@dataclass(frozen=True, slots=True)
class Group:
    """Tracks that belong together. Times are picoseconds, never negative; `name` is an index into `names`.

    Rows are ordered by track, in a track by begin, the longer first; on each track all events nest.
    """

    title: str
    category: str
    tracks: tuple[Track, ...]
    start_ps: Int64s
    end_ps: Int64s
    name: Int32s
    names: Sequence[str]
    arguments: Arguments
    leaving: ArrowEnds
    arriving: ArrowEnds
    counters: tuple[Counter, ...] = ()


@dataclass(frozen=True, slots=True)
class HostTimeline:
    """All groups of a host, in the order to show them.

    `left_out` says why how many events are not there, `cut_arrows` how many arrows went with them. `arrows` counts
    those that are there, `backwards` those of them that had to be turned because the target begins before the source.
    """

    groups: tuple[Group, ...]
    events: int
    left_out: dict[str, int]
    arrows: int
    cut_arrows: int
    backwards: int
