"""What a program does over and over: calls of tf.functions, and fetches of elements from tf.data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfperf.arrays import Bools, Int64s, distinct
from tfperf.trace.event_names import is_fetch, is_root_iterator, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest
from tfperf.trace.steps import RETRACE


@dataclass(frozen=True)
class Calls:
    """Outermost tf.function calls in time order; `name` indexes `names`."""

    begin: Int64s
    end: Int64s
    name: Int64s
    names: tuple[str, ...]
    traced: Bools

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def dominant(self) -> int:
        """Return the name with the largest total time."""
        return int(np.bincount(self.name, weights=(self.end - self.begin).astype(np.float64)).argmax())


@dataclass(frozen=True)
class Fetches:
    """Fetches of an element by the program, in time order; `iterator` tells the pipelines apart."""

    begin: Int64s
    end: Int64s
    iterator: Int64s

    def __len__(self) -> int:
        return len(self.begin)


def find_calls(trace: HostTrace) -> Calls:
    """Return the tf.function calls that are not inside another call on their thread."""
    stat = trace.stat("tf_function_call")
    rows, traced = stat.event.astype(np.int64), np.array([text.startswith("traced") for text in stat.texts], np.bool_)
    on_host = trace.on_host[rows] & (trace.duration_ps[rows] > 0)
    rows, value = rows[on_host], stat.value[on_host]
    keep = np.zeros(len(rows), np.bool_)
    line_of = trace.line_of[rows] if len(rows) else rows
    for line in distinct(line_of):
        mine = np.flatnonzero(line_of == line)
        keep[mine] = nest(trace.start_ps[rows[mine]], trace.end_ps[rows[mine]]).parent < 0
    kept = np.flatnonzero(keep)
    kept = kept[np.argsort(trace.start_ps[rows[kept]], kind="stable")]
    texts = [trace.names[name] for name in trace.name[rows[kept]].tolist()]
    known = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    name = np.array([known[text] for text in texts], np.int64)
    at = rows[kept]
    return Calls(trace.start_ps[at], trace.end_ps[at], name, tuple(known), traced[value[kept]] if len(kept) else keep)


def find_fetches(trace: HostTrace) -> Fetches:
    """Return the fetches, each with the id of the pipeline that it asked."""
    rows = trace.host_events(mask(trace.names, is_fetch))
    rows = rows[trace.duration_ps[rows] > 0]
    roots = trace.host_events(mask(trace.names, is_root_iterator))
    iterator = np.zeros(len(rows), np.int64)
    if len(roots) and len(rows):
        next_root = roots[np.minimum(np.searchsorted(roots, rows), len(roots) - 1)]
        inside = (next_root > rows) & (trace.line_of[next_root] == trace.line_of[rows])
        inside &= trace.start_ps[next_root] < trace.end_ps[rows]
        iterator = np.where(inside, trace.number("id", 0)[next_root], 0)
    order = np.argsort(trace.start_ps[rows], kind="stable")
    rows = rows[order]
    return Fetches(trace.start_ps[rows], trace.end_ps[rows], iterator[order])


def dominant_calls(trace: HostTrace) -> tuple[Int64s, Int64s]:
    """Return begin and end of the calls of the dominant function."""
    calls = find_calls(trace)
    if not len(calls):
        return calls.begin, calls.end
    mine = calls.name == calls.dominant
    return calls.begin[mine], calls.end[mine]


def retraced_flags(calls: Calls, begin: Int64s, end: Int64s) -> tuple[str, ...]:
    """Flag the spans in which a call traced Python again."""
    traced = calls.begin[calls.traced]
    count = np.searchsorted(traced, end) - np.searchsorted(traced, begin)
    return tuple(RETRACE if n else "" for n in count.tolist())
