"""What a program does over and over: calls of tf.functions, and fetches of elements from tf.data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfperf.arrays import NO_NUMBERS, Bools, Int64s, lookup
from tfperf.trace.event_names import is_fetch, is_root_iterator, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import outermost


class FunctionCalls(NamedTuple):
    """Outermost tf.function calls in time order; `name` indexes `names`."""

    start: Int64s
    end: Int64s
    name: Int64s
    names: tuple[str, ...]
    traced: Bools

    @property
    def dominant(self) -> int:
        """Return the name with the largest total time."""
        return int(np.bincount(self.name, weights=(self.end - self.start).astype(np.float64)).argmax())


NO_CALLS = FunctionCalls(NO_NUMBERS, NO_NUMBERS, NO_NUMBERS, (), np.empty(0, np.bool_))


class Fetches(NamedTuple):
    """Fetches of an element by the program, in time order; `iterator` tells the pipelines apart."""

    start: Int64s
    end: Int64s
    iterator: Int64s


def find_calls(trace: HostTrace) -> FunctionCalls:
    """Return the tf.function calls that are not inside another call on their thread."""
    stat = trace.stat("tf_function_call")
    rows = stat.event.astype(np.int64)
    rows = outermost(trace, rows[trace.on_host[rows] & (trace.duration_ps[rows] > 0)])
    if not len(rows):
        return NO_CALLS
    texts = [trace.names[name] for name in trace.name[rows].tolist()]
    index = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    traced = np.array([text.startswith("traced") for text in stat.texts], np.bool_)
    return FunctionCalls(
        start=trace.start_ps[rows],
        end=trace.end_ps[rows],
        name=np.array([index[text] for text in texts], np.int64),
        names=tuple(index),
        traced=traced[stat.value[lookup(stat.event, rows)]],
    )


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
        iterator = np.where(inside, trace.number_at("id", next_root), 0)
    order = np.argsort(trace.start_ps[rows], kind="stable")
    rows = rows[order]
    return Fetches(trace.start_ps[rows], trace.end_ps[rows], iterator[order])


def dominant_calls(trace: HostTrace) -> tuple[Int64s, Int64s]:
    """Return start and end of the calls of the dominant function."""
    calls = find_calls(trace)
    if not len(calls.name):
        return NO_NUMBERS, NO_NUMBERS
    is_dominant = calls.name == calls.dominant
    return calls.start[is_dominant], calls.end[is_dominant]


def calls_traced(calls: FunctionCalls, start: Int64s, end: Int64s) -> Bools:
    """Tell in which spans a call traced Python again."""
    times = calls.start[calls.traced]
    return np.searchsorted(times, end) > np.searchsorted(times, start)
