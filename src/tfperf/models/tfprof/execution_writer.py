"""What steps recorded of nodes, as tfprof stores it (ExecProfile): columns to bytes, no Python per record."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int64s, ranges
from tfperf.formats.wire.encode import Cells, below, beside, constant, prefixed, sums, varint
from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.run_metadata import is_all_streams

_ROWS = 100_000
"""So many records are written at a time, which bounds memory."""
# Tags of protobuf: the number of a field, and its kind (0 for a number, 2 for what has a length).
_EXECS, _KEY, _VALUE = b"\x62", b"\x08", b"\x12"
_RUN_COUNT, _START, _END, _DEVICES, _MEMORY = b"\x08", b"\x10", b"\x18", b"\x32", b"\x3a"
_ACCELERATOR_EXECS, _CPU_EXECS, _DEVICE, _TIMES = 0x22, 0x2A, b"\x0a", b"\x0a"
_BYTES = (b"\x30", b"\x38", b"\x40", b"\x48")


class _Rows(Struct, frozen=True):
    """A record for each node and step that has one, by node, and then by step."""

    node: Int64s
    step: Int64s
    runs: Int64s
    memory: Int64s


class _Singles(Struct, frozen=True):
    """Single executions, in order of the records that they belong to (`row`), and of devices."""

    row: Int64s
    device: Int64s
    start: Int64s
    duration: Int64s


def execution_bytes(model: Model) -> Iterator[bytes]:
    """Yield for each node the field `execs` of its ProfileNode, serialized."""
    rows, singles = _sorted(model)
    ends = np.searchsorted(rows.node, np.arange(len(model.names) + 1))
    first = 0
    while first < len(model.names):
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + _ROWS, side="right")) - 1)
        last = min(last, len(model.names))
        data, stops = _serialized(model, rows, singles, slice(int(ends[first]), int(ends[last])))
        at = stops[ends[first : last + 1] - ends[first]].tolist()
        yield from (data[start:stop] for start, stop in itertools.pairwise(at))
        first = last


def _sorted(model: Model) -> tuple[_Rows, _Singles]:
    steps = [*model.steps.values()]
    none = np.zeros(0, np.int64)
    numbers = np.repeat(np.array([*model.steps], np.int64), [len(each.node) for each in steps])
    node = np.concatenate([none, *(each.node for each in steps)])
    order = np.lexsort((numbers, node))
    place = np.empty(len(node), np.int64)
    place[order] = np.arange(len(node))
    memory = np.concatenate([np.zeros((4, 0), np.int64), *(each.memory for each in steps)], axis=1)
    runs = np.concatenate([none, *(each.runs for each in steps)])
    rows = _Rows(node[order], numbers[order], runs[order], memory[:, order])
    starts = np.cumsum([0, *(len(each.node) for each in steps)])
    owners = [
        place[start + np.searchsorted(each.node, each.intervals.node)]
        for start, each in zip(starts.tolist(), steps, strict=False)
    ]
    row = np.concatenate([none, *owners])
    device, start, duration = (
        np.concatenate([none, *(getattr(each.intervals, name) for each in steps)])
        for name in ("device", "start", "duration")
    )
    order = np.lexsort((device, row))
    return rows, _Singles(row[order], device[order], start[order], duration[order])


def _serialized(model: Model, rows: _Rows, singles: _Singles, part: slice) -> tuple[bytes, Int64s]:
    """Return some records, and where each of them starts; one more for the end."""
    count = part.stop - part.start
    inside = slice(*np.searchsorted(singles.row, [part.start, part.stop]).tolist())
    row, device = singles.row[inside] - part.start, singles.device[inside]
    start, duration = singles.start[inside], singles.duration[inside]
    is_first = np.ones(len(row), np.bool_)
    is_first[1:] = (row[1:] != row[:-1]) | (device[1:] != device[:-1])
    groups = np.flatnonzero(is_first)
    each = np.diff(np.append(groups, len(row)))
    times = prefixed(_TIMES, prefixed(_TIMES, beside(varint(start), varint(duration))))
    heads = _heads(model, device[groups], sums(each, times))
    stream = _interleaved(heads, each, times)
    in_row = np.bincount(row[groups], minlength=count) + np.bincount(row, minlength=count)
    length = sums(in_row, stream)
    scalars = _scalars(rows, part, _spans(row, start, duration, count))
    key = beside(constant(_KEY, count), varint(rows.step[part]))
    value = beside(constant(_VALUE, count), varint(scalars.size + length), scalars)
    records = prefixed(_EXECS, beside(key, value), length)
    return below(records, (in_row, stream)), np.concatenate(([0], np.cumsum(records.size + length)))


def _spans(row: Int64s, start: Int64s, duration: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """Return when the first execution of each record starts and its last one ends; 0 where there is none."""
    first, last = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(first, row, start)
    np.maximum.at(last, row, start + duration)
    return np.where(last > 0, first, 0), last


def _scalars(rows: _Rows, part: slice, span: tuple[Int64s, Int64s]) -> Cells:
    """Return what a record has once: runs, start, end, and memory."""
    fields = zip((_RUN_COUNT, _START, _END), (rows.runs[part], *span), strict=True)
    count = part.stop - part.start
    memory = [
        beside(constant(tag, count), varint(column)) for tag, column in zip(_BYTES, rows.memory[:, part], strict=True)
    ]
    return beside(
        *(beside(constant(tag, count), varint(column)) for tag, column in fields), prefixed(_MEMORY, beside(*memory))
    )


def _heads(model: Model, device: Int64s, length: Int64s) -> Cells:
    """Return what comes before the executions on a device, which take so many bytes: the device, named twice."""
    names = [name.encode() for name in model.devices] or [b""]
    width = max(map(len, names))
    table = np.array([list(name.ljust(width)) for name in names], np.uint8).reshape(len(names), width)
    sizes = np.array([*map(len, names)], np.int64)
    name = Cells.of(table[device], np.arange(width) < sizes[device][:, None], sizes[device])
    is_stream = np.array([is_all_streams(each) for each in model.devices], np.bool_)
    kinds = np.where(is_stream[device], _ACCELERATOR_EXECS, _CPU_EXECS).astype(np.uint8)[:, None]
    tag = Cells.of(kinds, np.ones_like(kinds, np.bool_), np.ones(len(device), np.int64))
    body = beside(prefixed(_DEVICE, name), constant(_VALUE, len(device)), varint(length))
    return beside(prefixed(_DEVICES, name), tag, varint(body.size + length), body)


def _interleaved(heads: Cells, counts: Int64s, items: Cells) -> Cells:
    """Return the heads as rows, each followed by its items."""
    width = max(heads.width, items.width)
    first = np.cumsum(counts + 1) - (counts + 1)
    place = np.concatenate((first, ranges(first + 1, counts)))
    order = np.empty(len(place), np.int64)
    order[place] = np.arange(len(place))
    data, used = (
        np.concatenate(parts)[order] for parts in zip(heads.laid_out(width), items.laid_out(width), strict=True)
    )
    return Cells.of(data, used.view(np.bool_), np.concatenate((heads.size, items.size))[order])
