"""Which steps train and which evaluate."""

from __future__ import annotations

import numpy as np

from tfperf.arrays import Int64s
from tfperf.trace.event_names import concrete_function, is_gradient, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps import UNLABELLED


def label_kinds(trace: HostTrace, start: Int64s, end: Int64s, names: list[str]) -> tuple[str, ...]:
    """Label steps of the same name `train` or `eval` by whether gradient or optimizer ops run in them.

    The label belongs to the concrete function (most of its steps decide), since an op of an asynchronous step may run
    late. Where no step shows such an op (an XLA-compiled function hides them) steps keep their name.
    """
    plain = tuple(name if name in ("train", "test", "eval") else UNLABELLED for name in names)
    rows = trace.host_events(mask(trace.names, is_gradient))
    if not len(rows) or not len(start):
        return plain if len(set(names)) == 1 else tuple(names)
    times = np.sort(trace.start_ps[rows])
    training = np.searchsorted(times, end) > np.searchsorted(times, start)
    functions = _functions(trace, start, end, names)
    votes: dict[str, list[bool]] = {}
    for function, vote in zip(functions, training.tolist(), strict=True):
        votes.setdefault(function, []).append(vote)
    label = {function: "train" if 2 * sum(some) >= len(some) else "eval" for function, some in votes.items()}
    return tuple(label[function] for function in functions)


def _functions(trace: HostTrace, start: Int64s, end: Int64s, names: list[str]) -> list[str]:
    """Return, per step, its name and the concrete function that it runs first."""
    rows = trace.host_events(mask(trace.names, concrete_function))
    rows = rows[np.argsort(trace.start_ps[rows], kind="stable")]
    first = np.searchsorted(trace.start_ps[rows], start)
    functions = []
    for index, name, stop in zip(first.tolist(), names, end.tolist(), strict=True):
        runs_one = index < len(rows) and trace.start_ps[rows[index]] < stop
        functions.append(f"{name} {concrete_function(trace.names[trace.name[rows[index]]])}" if runs_one else name)
    return functions
