"""Events of Chrome's trace format, put in order of time batch by batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tfperf.arrays import Int64s
from tfperf.wire import json_lines as text

LATEST = 1 << 52
"""In microseconds since 1970; a time behind it was not recorded, but made by damage."""

_BATCH = 1 << 16


class Events(Struct, frozen=True):
    """Events of one kind: when each happens (microseconds), and what makes the lines of some of them."""

    micros: Int64s
    lines: Callable[[Int64s], Any]


class Timeline(Struct, frozen=True, kw_only=True):
    """What a file shows: processes by their numbers, events, and what to say about it."""

    processes: list[tuple[int, str]]
    events: list[Events]
    notes: list[str]

    def chunks(self) -> Iterator[bytes]:
        """Iterate over the bytes of the file: who has events, then the events, in order of time."""
        yield b'{"displayTimeUnit":"ns","traceEvents":['
        described = (
            {"ph": "M", "pid": pid, "name": kind, "args": args}
            for pid, name in self.processes
            for kind, args in (("process_name", {"name": name}), ("process_sort_index", {"sort_index": pid}))
        )
        yield ",\n".join(json.dumps(event) for event in described).encode()
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
