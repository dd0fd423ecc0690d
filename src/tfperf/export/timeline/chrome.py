"""Chrome's JSON trace format, which chrome://tracing and most other viewers read: one object per event.

Groups are processes, tracks are threads. Times are microseconds; times in picoseconds have six decimals, so nothing is
rounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tfperf.base.arrays import Int64s
from tfperf.export.timeline.host_timeline import PS_PER_US, ArrowEnds, Counter, EncodeJob, GroupIds, TrackGroup
from tfperf.formats.wire import json_lines as text
from tfperf.formats.wire.event_columns import StatKind

BATCH = 1 << 16  # maximum number of events

_BATCH_BYTES = 1 << 28  # limit for the sum of the longest texts

_END = ",\n"


def head() -> bytes:
    """Return the start of the file."""
    return b'{"displayTimeUnit":"ns","traceEvents":[\n'


def tail(event_count: int) -> bytes:
    """Return the end of the file; a metadata event comes last, because JSON allows no comma before the bracket."""
    return json.dumps({"ph": "M", "pid": 0, "name": "tfperf", "args": {"events": event_count}}).encode() + b"]}\n"


def track_count(group: TrackGroup) -> int:
    """Return the number of threads of a group."""
    return len(group.tracks)


def encode_jobs(groups: Iterable[TrackGroup], process: int = 1, thread: int = 1) -> Iterator[EncodeJob]:
    """Yield jobs that encode the events of groups, in order; each event ends with a comma and a newline."""
    for group in groups:
        ids = GroupIds(process, thread, group.ticks_per_us)
        yield partial(_descriptions, group, ids)
        track = group.track_of_row
        # Smaller batches if texts are huge, because texts are repeated in every event.
        arguments = group.arguments
        most_arguments = int(np.diff(arguments.stop).max(initial=0))
        longest_argument = max(map(len, (*arguments.keys, *arguments.texts)), default=0)
        longest = max(map(len, group.names), default=0) + most_arguments * longest_argument
        size = max(1, min(BATCH, _BATCH_BYTES // (1 + longest)))
        for start in range(0, len(track), size):
            yield partial(_events, group, ids, track[start : start + size], start)
        for ends, head in ((group.leaving, '{"ph":"s",'), (group.arriving, '{"ph":"f","bp":"e",')):
            for start in range(0, len(ends.row), BATCH):
                part = slice(start, start + BATCH)
                yield partial(_arrows, group, ids, track, ArrowEnds(ends.row[part], ends.arrow[part]), head)
        for counter in group.counters:
            yield partial(_counter, counter, ids)
        process, thread = process + 1, thread + len(group.tracks)


def _descriptions(group: TrackGroup, ids: GroupIds) -> bytes:
    """Return the events that name and order the process and its threads."""
    events = [
        {"ph": "M", "pid": ids.group, "name": "process_name", "args": {"name": group.title}},
        {"ph": "M", "pid": ids.group, "name": "process_sort_index", "args": {"sort_index": ids.group}},
    ]
    for thread, track in enumerate(group.tracks, ids.track):
        for name, args in (("thread_name", {"name": track.name}), ("thread_sort_index", {"sort_index": thread})):
            events.append({"ph": "M", "pid": ids.group, "tid": thread, "name": name, "args": args})
    return "".join(json.dumps(event) + _END for event in events).encode()


def _events(group: TrackGroup, ids: GroupIds, track: Int64s, first_row: int) -> bytes:
    rows = slice(first_row, first_row + len(track))
    start, duration = group.start[rows], group.end[rows] - group.start[rows]
    names, name = np.unique(group.name[rows], return_inverse=True)
    is_slice = duration > 0
    heads = text.chosen(text.plain(['{"ph":"i","s":"t",', '{"ph":"X",']), is_slice.astype(np.int64))
    durations = text.where(is_slice, text.line(',"dur":', _time(duration, ids)))
    labels = text.chosen(text.quoted([group.names[i] for i in names.tolist()]), name.reshape(-1))
    category = f',"cat":{json.dumps(group.category)},"name":'
    times, arguments = _time(start, ids), _arguments(group, rows)
    places, tail = _threads(ids, track), "}}" + _END
    return text.to_bytes(text.line(heads, places, times, durations, category, labels, ',"args":{', arguments, tail))


def _time(ticks: Int64s, ids: GroupIds) -> Any:
    """Return times in microseconds: picoseconds with six decimals, other ticks as integers."""
    return text.microseconds(ticks) if ids.ticks_per_us == PS_PER_US else text.whole(ticks // ids.ticks_per_us)


def _threads(ids: GroupIds, track: Int64s) -> Any:
    """Return the process and thread fields of each track, up to the time."""
    first = int(track.min(initial=0))
    count = int(track.max(initial=0)) - first + 1
    fields = [f'"pid":{ids.group},"tid":{ids.track + first + i},"ts":' for i in range(count)]
    return text.chosen(text.plain(fields), track - first)


def _arguments(group: TrackGroup, rows: slice) -> Any:
    arguments = group.arguments
    stops = arguments.stop[rows.start : rows.stop + 1]
    items = slice(int(stops[0]), int(stops[-1]))
    kind, value = arguments.kind[items], arguments.value[items]
    is_text = kind == StatKind.TEXT
    used, place = np.unique(value[is_text], return_inverse=True)
    index = np.zeros(len(value), np.int64)
    index[is_text] = place.reshape(-1)
    labels = text.plain([json.dumps(label) + ":" for label in arguments.labels])
    shown = text.first_present(
        text.whole(value, (kind == StatKind.INT) | (kind == StatKind.BYTES)),
        text.whole(value.view(np.uint64), kind == StatKind.UNSIGNED),
        text.real(value.view(np.float64), kind == StatKind.REAL),
        text.chosen(text.quoted([arguments.texts[i] for i in used.tolist()]), index, is_text),
    )
    return text.listed(stops, text.line(text.chosen(labels, arguments.label(items)), shown))


def _arrows(group: TrackGroup, ids: GroupIds, track: Int64s, ends: ArrowEnds, head: str) -> bytes:
    """Return the ends of arrows, which belong to the slice that starts at their time."""
    time, number = _time(group.start[ends.row], ids), text.whole(ends.arrow)
    threads = _threads(ids, track[ends.row])
    return text.to_bytes(text.line(head, threads, time, ',"cat":"link","name":"link","id":', number, "}" + _END))


def _counter(counter: Counter, ids: GroupIds) -> bytes:
    head = f'{{"ph":"C","pid":{ids.group},"name":{json.dumps(counter.name)},"ts":'
    time, value = _time(counter.time, ids), text.whole(counter.value)
    return text.to_bytes(text.line(head, time, f',"args":{{"{counter.unit}":', value, "}}" + _END))
