"""Iterations of a loop that runs its ops one by one: Python calls no function and fetches nothing from tf.data."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from tfperf.base.arrays import Int64s
from tfperf.base.units import counted, listed
from tfperf.trace.event_names import is_eager_call, is_gradient, is_python_op, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import last_around, outermost
from tfperf.trace.steps.eager_events import NAMED, eager_calls
from tfperf.trace.steps.steps import ITERATION, PARTIAL, How, Steps, plain_steps
from tfperf.trace.steps.turns import nearly_periodic_turns

SOURCE = "eager ops"


def from_eager_ops(trace: HostTrace) -> Steps | None:
    """Take the turns of the sequence of ops that repeats on the thread with most eager ops."""
    rows = eager_calls(trace)
    # What a py_function of a pipeline runs is not part of the loop.
    rows = rows[last_around(trace, trace.host_events(mask(trace.names, is_python_op)), rows) < 0]
    if not len(rows):
        return None
    line = np.bincount(trace.line_of[rows]).argmax()
    rows = rows[trace.line_of[rows] == line]
    token, names = _op_types(trace, rows)
    turns = nearly_periodic_turns(token)
    if turns is None:
        return None
    first, period = turns.starts, turns.period
    # What follows the loop, or comes between two turns and is longer than one, belongs to none.
    last = np.minimum(np.append(first[1:], first[-1] + period) - 1, first + 2 * period - 1)
    is_cut = last[-1] >= len(rows)
    last[-1] = min(int(last[-1]), len(rows) - 1)
    types = set(token[first[0] : last[-1]].tolist())
    kind = "train" if any(is_gradient(f"/{names[op]}") for op in types) else ITERATION
    most = np.argsort(-np.bincount(token, weights=trace.duration_ps[rows]), kind="stable")
    ops = listed([names[op] for op in most[:3].tolist()], 3)
    explanation = (
        f"{counted(len(first), 'turn')} of a sequence of {period} ops that Python runs one by one ({ops}, ...); no "
        "function is called, and nothing is fetched from tf.data"
    )
    how: How = (SOURCE, "low", explanation)
    steps = plain_steps(
        how,
        (_start_of_call(trace, rows[first]), trace.end_ps[rows[last]]),
        np.arange(len(first)),
        tuple(f"{kind} {number}" for number in range(len(first))),
        (kind,) * len(first),
    )
    return replace(steps, flags=(*steps.flags[:-1], PARTIAL if is_cut else ""))


def _op_types(trace: HostTrace, rows: Int64s) -> tuple[Int64s, tuple[str, ...]]:
    """Return for each eager call a number for the type of its op, and the types: from a stat, or from its name."""
    texts = trace.stat("eager_op").texts
    types = (*texts, *(name.removeprefix(NAMED) for name in trace.names))
    index = {text: number for number, text in enumerate(dict.fromkeys(types))}
    number = np.array([index[text] for text in types], np.int64)
    noted = trace.number_at("eager_op", rows, -1)
    return number[np.where(noted >= 0, noted, trace.name[rows] + len(texts))], tuple(index)


def _start_of_call(trace: HostTrace, rows: Int64s) -> Int64s:
    """Return where the call of Python around each op starts."""
    calls = np.sort(outermost(trace, trace.host_events(mask(trace.names, is_eager_call))))
    around = last_around(trace, calls, rows)
    return np.asarray(trace.start_ps[np.where(around >= 0, np.append(calls, -1)[around], rows)], np.int64)
