"""Eager execution: the events of ops that Python runs one at a time, and the steps of a loop of them.

`EagerExecute` is the host side of running an op or a function; the stat `is_func` distinguishes them, and the events
that it runs are nested inside on its thread. TensorFlow up to 2.4 has no such stat, but a distinguishing name. The
innermost event decides: ops of a graph inside an eager op (the functions of a tf.data pipeline inside
`IteratorGetNext`) are not eager, and an op of a `py_function` inside a graph is.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from tfperf.base.arrays import Bools, Int64s, covers, distinct, text_index, union
from tfperf.base.units import counted, listed
from tfperf.trace.event_names import is_eager_call, is_gradient, is_python_op, mask, runs_keras_function
from tfperf.trace.host_trace import HostTrace, once
from tfperf.trace.nesting import last_around, nest, outermost
from tfperf.trace.steps.steps import ITERATION, PARTIAL, How, Steps, plain_steps
from tfperf.trace.steps.turns import nearly_periodic_turns

NAMED, _NAMED_FUNCTION = "EagerExecute: ", "EagerExecute: __inference_"
_GRAPHS = ("ExecutorState::Process", "InstantiatedCapturedFunction")


def notes_running(trace: HostTrace) -> bool:
    """Return whether the trace records ops or functions that Python runs."""
    return bool(len(trace.stat("is_func").event)) or any(name.startswith(NAMED) for name in trace.names)


@once
def eager_calls(trace: HostTrace) -> Int64s:
    """Return the rows in which Python runs an op (not a function), ascending."""
    eager = np.zeros(len(trace.name), np.bool_)
    named = mask(trace.names, lambda name: name.startswith(NAMED) and not name.startswith(_NAMED_FUNCTION))
    eager[trace.host_events(named)] = True
    is_func = trace.stat("is_func")
    eager[is_func.event] = is_func.value == 0
    return np.flatnonzero(eager & trace.on_host)


@once
def runs_keras_eagerly(trace: HostTrace) -> bool:
    """Return whether Keras runs its loop without calling functions: `compile(run_eagerly=True)`.

    Keras 3 wraps the result of a step into an `Optional`, which otherwise happens in the function of the step. Keras 2
    marks its steps, with the batch size that it was given.
    """
    if any(map(runs_keras_function, trace.names)):
        return False
    if {"OptionalFromValue", "OptionalHasValue"} <= set(trace.stat("eager_op").texts):
        return True
    marks = trace.host_events(mask(trace.names, lambda name: name in ("train", "TraceContext")))
    return bool((trace.number_at("batch_size", marks, -1) >= 0).any()) and bool(len(eager_calls(trace)))


def run_from_python(trace: HostTrace) -> Bools | None:
    """Return whether each event is in an eager op on its thread (executor threads run graphs); None if not recorded."""
    if not notes_running(trace):
        return None
    rows = eager_calls(trace)
    eager = np.zeros(len(trace.name), np.bool_)
    eager[rows] = True
    graph = mask(trace.names, lambda name: name.startswith((*_GRAPHS, _NAMED_FUNCTION)))
    inside = np.zeros(len(trace.name), np.bool_)
    for index in distinct(trace.line_of[rows]).tolist():
        line = trace.lines[index]
        calls = rows[(rows >= line.start) & (rows < line.stop)]
        near = np.arange(line.start, line.stop)
        near = near[covers(union(trace.start_ps[calls], trace.end_ps[calls]), trace.start_ps[near])]
        is_graph = (graph[trace.name[near]] | (trace.number_at("is_func", near) == 1)) & ~eager[near]
        parent = nest(trace.start_ps[near], trace.end_ps[near]).parent
        count = len(parent)
        marks = np.append(eager[near] | is_graph, True)  # the last entry means "nothing around it" (-1)
        around = np.append(np.where(parent >= 0, parent, count), count)
        while not marks[around].all():
            around = np.where(marks[around], around, around[around])
        inside[near] = np.asarray(np.append(eager[near], False)[around[:count]], np.bool_)
    return inside


# --- steps ---

SOURCE = "eager ops"


def from_eager_ops(trace: HostTrace) -> Steps | None:
    """Return the turns of the repeated op sequence on the thread with most eager ops."""
    rows = eager_calls(trace)
    # Ops of a pipeline's py_function are not part of the loop.
    rows = rows[last_around(trace, trace.host_events(mask(trace.names, is_python_op)), rows) < 0]
    if not len(rows):
        return None
    line = np.bincount(trace.line_of[rows]).argmax()
    rows = rows[trace.line_of[rows] == line]
    # The op type is in a stat, or in the name of the call.
    texts = trace.stat("eager_op").texts
    names, number = text_index((*texts, *(name.removeprefix(NAMED) for name in trace.names)))
    noted = trace.number_at("eager_op", rows, -1)
    token = number[np.where(noted >= 0, noted, trace.name[rows] + len(texts))]
    turns = nearly_periodic_turns(token)
    if turns is None:
        return None
    first, period = turns.starts, turns.period
    # Ops after the loop, or longer than a turn between two turns, belong to no step.
    last = np.minimum(np.append(first[1:], first[-1] + period) - 1, first + 2 * period - 1)
    is_cut = last[-1] >= len(rows)
    last[-1] = min(int(last[-1]), len(rows) - 1)
    types = set(token[first[0] : last[-1]].tolist())
    kind = "train" if any(is_gradient(f"/{names[op]}") for op in types) else ITERATION
    most = np.argsort(-np.bincount(token, weights=trace.duration_ps[rows]), kind="stable")
    ops = listed([names[op] for op in most[:3].tolist()], 3)
    explanation = (
        f"{counted(len(first), 'iteration')} of a sequence of {period} eager ops ({ops}, ...), without function "
        "calls or tf.data fetches"
    )
    how: How = (SOURCE, "low", explanation)
    # A step starts with the Python call around its first op.
    calls = np.sort(outermost(trace, trace.host_events(mask(trace.names, is_eager_call))))
    around = last_around(trace, calls, rows[first])
    start = trace.start_ps[np.where(around >= 0, np.append(calls, -1)[around], rows[first])]
    steps = plain_steps(
        how,
        (start, trace.end_ps[rows[last]]),
        np.arange(len(first)),
        tuple(f"{kind} {number}" for number in range(len(first))),
        (kind,) * len(first),
    )
    return replace(steps, flags=(*steps.flags[:-1], PARTIAL if is_cut else ""))
