"""Events of Chrome's trace format, put in order of time batch by batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int64s
from tfperf.formats.wire import json_lines as text

LATEST = 1 << 52
"""In microseconds since 1970; a time behind it was not recorded, but made by damage."""

_BATCH = 1 << 16


class Events(Struct, frozen=True):
    """Events of one kind: when each happens (microseconds), and what makes the lines of some of them."""

    micros: Int64s
    lines: Callable[[Int64s], Any]


class Process(Struct, frozen=True):
    """What has lanes, or counters: a device, or a view. Lanes are numbered from 1."""

    number: int
    title: str
    lanes: int = 0

    def described(self) -> Iterator[dict[str, Any]]:
        """Iterate over the events that name it and its lanes, and say where it stands."""
        yield {"ph": "M", "pid": self.number, "name": "process_name", "args": {"name": self.title}}
        yield {"ph": "M", "pid": self.number, "name": "process_sort_index", "args": {"sort_index": self.number}}
        for lane in range(1, self.lanes + 1):
            name = {"name": f"lane {lane}"}
            yield {"ph": "M", "pid": self.number, "tid": lane, "name": "thread_name", "args": name}


class Timeline(Struct, frozen=True, kw_only=True):
    """What a file shows, and what to say about it."""

    processes: list[Process]
    events: list[Events]
    notes: list[str]

    def chunks(self) -> Iterator[bytes]:
        """Iterate over the bytes of the file: who has events, then the events, in order of time."""
        yield b'{"displayTimeUnit":"ns","traceEvents":['
        yield ",\n".join(json.dumps(event) for each in self.processes for event in each.described()).encode()
        kind = np.repeat(np.arange(len(self.events)), [len(events.micros) for events in self.events])
        row = np.concatenate([np.arange(len(events.micros)) for events in self.events])
        order = np.argsort(np.concatenate([events.micros for events in self.events]), kind="stable")
        for start in range(0, len(order), _BATCH):
            part = order[start : start + _BATCH]
            of_kind = [np.flatnonzero(kind[part] == number) for number in range(len(self.events))]
            lines = [
                events.lines(row[part[places]])
                for events, places in zip(self.events, of_kind, strict=True)
                if len(places)
            ]
            yield text.to_bytes(text.interleaved(lines, np.concatenate(of_kind)))
        yield b"]}\n"


def names_at(names: Sequence[str], index: Int64s) -> Any:
    """Return for each row the name at an index, as JSON."""
    used, place = np.unique(index, return_inverse=True)
    return text.chosen(text.quoted([names[number] for number in used.tolist()]), place.reshape(-1))
