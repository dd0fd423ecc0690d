"""One step, to be drawn: lanes of blocks, the categories of its time, and what links one block to another.

Times are whole nanoseconds from the start of the step. All columns of one object have one length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from tfperf.base.arrays import Int32s, Int64s
else:  # reports are made without numpy, too
    Int32s = Int64s = Any


class Ribbon(Struct, frozen=True, kw_only=True):
    """The time of a step by category, one stretch after the other; `category` is an index into `titles`."""

    title: str
    titles: tuple[str, ...]
    category: Int64s
    start_ns: Int64s
    end_ns: Int64s

    def title_at(self, start_ns: int) -> str:
        """Return the category of the stretch that starts then, and not of an empty one before it."""
        return self.titles[int(self.category[self.start_ns.searchsorted(start_ns, side="right") - 1])]


class Lane(Struct, frozen=True, kw_only=True):
    """A thread, a stream or the like: so many `rows` of blocks, those inside others below them."""

    title: str
    rows: int
    busy_percent: float


class LaneGroup(Struct, frozen=True, kw_only=True):
    """Lanes of one role, the busiest first. `load` is how busy they are in equal stretches of the step, in percent."""

    title: str
    lanes: tuple[Lane, ...]
    is_open: bool
    load: tuple[int, ...]
    omitted: int = 0
    """How many lanes are not drawn."""


class Blocks(Struct, frozen=True, eq=False, kw_only=True):
    """All blocks at one level of detail: events shorter than `finest_ns` that follow one another are one block.

    `row` counts the rows of all lanes of all groups. A block of several events (`count`) has the name of what takes
    most of it, and `self_ns` is how long they last in all; of one event, its time without those inside it.
    """

    finest_ns: int
    row: Int32s
    start_ns: Int64s
    duration_ns: Int64s
    name: Int32s
    count: Int64s
    self_ns: Int64s
    note: Int32s
    """Index into the notes of the picture; -1: none."""


class BlockName(Struct, frozen=True):
    """What blocks of a name have in common: their `kind`, which gives the colour, the type and the name of their op."""

    name: str
    kind: str
    type: str = ""
    op: str = ""


class Links(Struct, frozen=True, eq=False, kw_only=True):
    """Links from one event to another: `kind` is an index into `kinds`, ends are a row and a time inside the event."""

    kinds: tuple[str, ...]
    kind: Int64s
    from_row: Int32s
    from_ns: Int64s
    to_row: Int32s
    to_ns: Int64s
    omitted: int = 0


class MemoryCurve(Struct, frozen=True):
    """Bytes in use of an allocator; each value holds until the next time."""

    title: str
    times_ns: Int64s
    used_bytes: Int64s


class StepPicture(Struct, frozen=True, eq=False, kw_only=True):
    """A step as swim lanes. `levels` are from coarse to fine; `places` say where in the step a cause costs most.

    A place is the start and the end of a stretch, and the time of all such stretches in the step.
    """

    title: str
    host: str
    step: int
    """Its number."""
    duration_ns: int
    categories: Mapping[str, int]
    """Nanoseconds of each category, by its title, as in the table of steps; unknown ones are not there."""
    ribbons: tuple[Ribbon, ...]
    groups: tuple[LaneGroup, ...]
    levels: tuple[Blocks, ...]
    names: tuple[BlockName, ...]
    notes: tuple[str, ...]
    links: Links
    memory: tuple[MemoryCurve, ...] = ()
    places: Mapping[str, tuple[int, int, int]] = {}
    remarks: tuple[str, ...] = ()
    """What is not drawn, and why."""
    level: Literal["brief", "full", "data"] = "brief"
