"""Chrome's JSON: one object for each event, as chrome://tracing reads it and most other viewers do.

Groups are processes, tracks threads. Times are microseconds, of picoseconds with six digits, so nothing is rounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tfperf.base.arrays import Bools, Int64s, Numbers
from tfperf.export.timeline.host_timeline import PS_PER_US, ArrowEnds, Counter, EncodeJob, GroupIds, TrackGroup
from tfperf.formats.wire.decoder import bytes_of, offsets
from tfperf.formats.wire.event_columns import StatKind

_BATCH_BYTES = 1 << 28
"""What the longest texts of a batch may add up to."""

_END = ",\n"


def head() -> bytes:
    """Return what starts the file."""
    return b'{"displayTimeUnit":"ns","traceEvents":[\n'


def tail(event_count: int) -> bytes:
    """Return what ends the file: JSON allows no comma before the bracket, so an event of metadata comes last."""
    return json.dumps({"ph": "M", "pid": 0, "name": "tfperf", "args": {"events": event_count}}).encode() + b"]}\n"


def track_count(group: TrackGroup) -> int:
    """Return how many thread numbers a group takes."""
    return len(group.tracks)


def encode_jobs(groups: Iterable[TrackGroup], process: int = 1, thread: int = 1) -> Iterator[EncodeJob]:
    """Iterate over what makes the events of groups, in order; each event ends with a comma and a new line."""
    for group in groups:
        ids = GroupIds(process, thread, group.ticks_per_us)
        yield partial(_descriptions, group, ids)
        track = group.track_of_row
        # Few at once if their texts are huge, because these are written with every event.
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
    """Name the process and its threads, and say in which order to show them."""
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
    heads = chosen(plain(['{"ph":"i","s":"t",', '{"ph":"X",']), is_slice.astype(np.int64))
    durations = where(is_slice, line(',"dur":', _time(duration, ids)))
    labels = chosen(quoted([group.names[i] for i in names.tolist()]), name.reshape(-1))
    category = f',"cat":{json.dumps(group.category)},"name":'
    times, arguments = _time(start, ids), _arguments(group, rows)
    places, tail = _threads(ids, track), "}}" + _END
    return to_bytes(line(heads, places, times, durations, category, labels, ',"args":{', arguments, tail))


def _time(ticks: Int64s, ids: GroupIds) -> Any:
    """Return times in microseconds: of picoseconds with six digits, else whole ones."""
    return microseconds(ticks) if ids.ticks_per_us == PS_PER_US else whole(ticks // ids.ticks_per_us)


def _threads(ids: GroupIds, track: Int64s) -> Any:
    """Return for each track number the fields of its process and thread, up to the time."""
    first = int(track.min(initial=0))
    count = int(track.max(initial=0)) - first + 1
    fields = [f'"pid":{ids.group},"tid":{ids.track + first + i},"ts":' for i in range(count)]
    return chosen(plain(fields), track - first)


def _arguments(group: TrackGroup, rows: slice) -> Any:
    arguments = group.arguments
    stops = arguments.stop[rows.start : rows.stop + 1]
    items = slice(int(stops[0]), int(stops[-1]))
    kind, value = arguments.kind[items], arguments.value[items]
    is_text = kind == StatKind.TEXT
    used, place = np.unique(value[is_text], return_inverse=True)
    index = np.zeros(len(value), np.int64)
    index[is_text] = place.reshape(-1)
    labels = plain([json.dumps(label) + ":" for label in arguments.labels])
    shown = first_present(
        whole(value, (kind == StatKind.INT) | (kind == StatKind.BYTES)),
        whole(value.view(np.uint64), kind == StatKind.UNSIGNED),
        real(value.view(np.float64), kind == StatKind.REAL),
        chosen(quoted([arguments.texts[i] for i in used.tolist()]), index, is_text),
    )
    return listed(stops, line(chosen(labels, arguments.label(items)), shown))


def _arrows(group: TrackGroup, ids: GroupIds, track: Int64s, ends: ArrowEnds, head: str) -> bytes:
    """Return ends of arrows: they belong to the slice that starts at their time."""
    time, number = _time(group.start[ends.row], ids), whole(ends.arrow)
    threads = _threads(ids, track[ends.row])
    return to_bytes(line(head, threads, time, ',"cat":"link","name":"link","id":', number, "}" + _END))


def _counter(counter: Counter, ids: GroupIds) -> bytes:
    head = f'{{"ph":"C","pid":{ids.group},"name":{json.dumps(counter.name)},"ts":'
    time, value = _time(counter.time, ids), whole(counter.value)
    return to_bytes(line(head, time, ',"args":{"bytes":', value, "}}" + _END))


# --- lines of JSON as Arrow columns: each function returns a text per row ---

_LARGEST_EXACT = 1 << 53
"""JSON readers take numbers for float64, which holds no larger ones exactly; those are written as text."""


def quoted(texts: Sequence[str]) -> Any:
    """Return texts as JSON strings."""
    return pa.array([json.dumps(text) for text in texts], pa.string())


def plain(texts: Sequence[str]) -> Any:
    """Return texts as they are: pieces of JSON."""
    return pa.array(texts, pa.string())


def chosen(texts: Any, index: Numbers, present: Bools | None = None) -> Any:
    """Return for each row the text at an index; none where it is not."""
    return texts.take(pa.array(index, mask=None if present is None else ~present))


def whole(values: Numbers, present: Bools | None = None) -> Any:
    """Return whole numbers, those that JSON readers would round as text."""
    numbers = pa.array(values, mask=None if present is None else ~present)
    text = numbers.cast(pa.string())
    signed = values.dtype.kind == "i"
    large = (values > _LARGEST_EXACT) | (values < -_LARGEST_EXACT if signed else False)
    return pc.if_else(pa.array(large), line('"', text, '"'), text) if large.any() else text


def real(values: npt.NDArray[np.float64], present: Bools) -> Any:
    """Return real numbers; JSON has no infinity and no NaN, so these are texts."""
    text = pa.array(values, mask=~present).cast(pa.string())
    return pc.if_else(pa.array(np.isfinite(values)), text, line('"', text, '"'))


def microseconds(time_ps: Numbers) -> Any:
    """Return picoseconds, none of them negative, as microseconds with all six digits."""
    full, rest = np.divmod(time_ps, 1_000_000)
    digits = pc.utf8_slice_codeunits(pa.array(rest + 1_000_000).cast(pa.string()), 1)
    return line(pa.array(full).cast(pa.string()), ".", digits)


def first_present(*columns: Any) -> Any:
    """Return for each row the text of the first column that has one."""
    return pc.coalesce(*columns)


def where(mask: Bools, text: Any) -> Any:
    """Return the text where the mask holds, else an empty one."""
    return pc.if_else(pa.array(mask), text, "")


def line(*parts: Any) -> Any:
    """Return for each row its parts, one after the other; a part is a column or a text for all rows."""
    return pc.binary_join_element_wise(*parts, "")


def listed(stops: Numbers, items: Any) -> Any:
    """Return for each row its items with commas between them; row i has those from `stops[i]` to `stops[i + 1]`."""
    lists = pa.ListArray.from_arrays(pa.array((stops - stops[0]).astype(np.int32)), items)
    return pc.binary_join(lists, ",")


def interleaved(parts: Sequence[Any], place: Numbers) -> Any:
    """Return the rows of all parts, in an order: row i of all, as they follow each other, comes to `place[i]`."""
    order = np.empty(len(place), np.int64)
    order[place] = np.arange(len(place))
    return pa.concat_arrays(
        [part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part for part in parts]
    ).take(pa.array(order))


def to_bytes(lines: Any) -> bytes:
    """Return all lines, one after the other."""
    ends = offsets(lines)
    return bytes_of(lines)[ends[0] : ends[-1]].tobytes()


BATCH = 1 << 16
"""Events that are made at once, at most."""
