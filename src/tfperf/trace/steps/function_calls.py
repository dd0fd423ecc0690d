"""Which function of the program something on a host runs for.

Python calls a tf.function (`EagerLocalExecute: __inference_train_step_12`); inside is a run (`FunctionRun`) with an id,
and events of executors on other threads bear the same id (`ExecutorState::Process`). So the innermost of these around
an op says whose it is. A function that tf.data runs has no name in the trace.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int64s, lookup
from tfperf.trace.event_names import (
    JITTED_CALL,
    concrete_function,
    is_eager_call,
    is_input_function,
    is_jitted_call,
    mask,
    runs_function,
)
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import innermost_around

NO_FUNCTION, OF_INPUT, EAGERLY = "(no function)", "(function of tf.data)", "(run eagerly)"
_CONCRETE_NAME = re.compile(r"__inference_(.+)_\d+")
_EXECUTOR = "ExecutorState::Process"


class FunctionCalls(Struct, frozen=True, eq=False, kw_only=True):
    """Rows of the trace in which a function is called or worked on, ascending, and the index of its name."""

    trace: HostTrace
    names: tuple[str, ...]
    rows: Int64s
    function: Int64s

    def of(self, rows: Int64s) -> Int64s:
        """Return for each host row the index of the function that it runs for, -1 where nothing tells; -1 for -1."""
        found = np.full(len(rows), -1, np.int64)
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        for line in self.trace.host_lines:
            first, last = np.searchsorted(ordered, (line.start, line.stop)).tolist()
            begin, end = np.searchsorted(self.rows, (line.start, line.stop)).tolist()
            if last > first and end > begin:
                around = innermost_around(self.trace, self.rows[begin:end], ordered[first:last])
                found[order[first:last]] = np.append(self.function, -1)[lookup(self.rows, around)]
        return found


def function_calls(trace: HostTrace) -> FunctionCalls:
    """Find where functions are called, and where executors work on them."""
    numbers: dict[str, int] = {}
    of_name = np.array([_number(name, numbers) for name in trace.names], np.int64)
    calls = trace.host_events(of_name >= 0)
    named = FunctionCalls(trace=trace, names=tuple(numbers), rows=calls, function=of_name[trace.name[calls]])
    runs = trace.host_events(mask(trace.names, lambda name: runs_function(name) or is_input_function(name)))
    # A run is of the function whose call is around it; those of tf.data say themselves that they are.
    of_run = np.where(of_name[trace.name[runs]] >= 0, of_name[trace.name[runs]], named.of(runs))
    ids = trace.number_at("id", runs)
    order = np.argsort(ids, kind="stable")
    work = trace.host_events(mask(trace.names, _EXECUTOR.__eq__))
    id_of_work = trace.number_at("id", work)
    place = np.where(id_of_work != 0, lookup(ids[order], id_of_work), -1)
    work, of_work = work[place >= 0], of_run[order[place[place >= 0]]]
    rows, function = (
        np.concatenate((calls, work[of_work >= 0])),
        np.concatenate((named.function, of_work[of_work >= 0])),
    )
    by_row = np.argsort(rows, kind="stable")
    return FunctionCalls(trace=trace, names=tuple(numbers), rows=rows[by_row], function=function[by_row])


def _number(name: str, numbers: dict[str, int]) -> int:
    """Return the index of the function that an event of this name calls, -1 if it calls none."""
    text = _called(name)
    return numbers.setdefault(text, len(numbers)) if text else -1


def _called(name: str) -> str:
    if is_input_function(name):
        return OF_INPUT
    if is_jitted_call(name):
        return name.removeprefix(JITTED_CALL).rstrip(")")
    if not is_eager_call(name) or ": " not in name:
        return ""
    concrete = _CONCRETE_NAME.fullmatch(concrete_function(name))
    return concrete[1] if concrete else EAGERLY
