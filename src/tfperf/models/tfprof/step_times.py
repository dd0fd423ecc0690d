"""Times over steps: in nanoseconds, their median, and the check of the first traced step."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int64s, median
from tfperf.base.units import counted, format_ms
from tfperf.models.tfprof import OptionError
from tfperf.models.tfprof.model import AVERAGE, Model
from tfperf.models.tfprof.options import PLACE, Options
from tfperf.report.model import Finding

_NS_PER_MS = 1e6
_NS_PER_US = 1000
_FAR = 10.0
"""A first step that is more than this times the median of the others includes one-time work."""
_LEAST_SHARE = 0.01
"""Share of the first step below which a node's deviation does not change the mean."""
_TIMES = ("micros", "accelerator_micros", "cpu_micros")


def nano_values(model: Model, step: int) -> Int64s:
    """Return `Model.values` with times in ns, as exact as the records; raises OptionError for an unrecorded step."""
    values = model.values(step)
    count = np.zeros(len(model.names), np.int64)
    accelerator, cpu = np.zeros_like(count), np.zeros_like(count)
    for each in model.averaged(step):
        count[each.node] += 1
        accelerator[each.node] += each.accelerator_nanos
        cpu[each.node] += each.cpu_nanos
    by = np.maximum(count, 1)
    for name, total in zip(_TIMES, (accelerator + cpu, accelerator, cpu), strict=True):
        values[PLACE[name]] = (total + by // 2) // by
    return values


def in_nanos(options: Options) -> Options:
    """Return options whose minimum times are converted from microseconds to nanoseconds."""
    return msgspec.structs.replace(
        options, **{f"min_{name}": _NS_PER_US * getattr(options, f"min_{name}") for name in _TIMES}
    )


def skip_first(model: Model, count: int) -> Model:
    """Return the model without its first `count` steps and without its own mean; OptionError if no step is left."""
    if not count:
        return model
    check_skipped(count, len(model.steps))
    kept = sorted(model.steps)[count:]
    return msgspec.structs.replace(
        model,
        steps={step: model.steps[step] for step in kept},
        hosts=[each for each in model.hosts if each.step in kept],
        skipped=model.skipped + count,
    )


def check_skipped(count: int, steps: int) -> None:
    """Raise OptionError if `count` leading steps cannot be skipped."""
    if count < 0 or 0 < count >= steps:
        raise OptionError(f"cannot skip the first {count} of {counted(steps, 'step')}: at least one step must remain")


def median_times(model: Model) -> Int64s:
    """Return the median total, accelerator and CPU time of each node over the steps that recorded it, in ns.

    Shape (3, nodes); 0 for a node that no step recorded.
    """
    steps, none = [*model.steps.values()], np.zeros(0, np.int64)
    node, accelerator, cpu = (
        np.concatenate([none, *(getattr(each, name) for each in steps)])
        for name in ("node", "accelerator_nanos", "cpu_nanos")
    )
    columns = (accelerator + cpu, accelerator, cpu)
    return np.stack([_medians(node, column, len(model.names)) for column in columns])


class FirstStep(Struct, frozen=True, kw_only=True):
    """The first traced step and the median of the later ones; times in ns."""

    step: int
    nanos: int  # time of all nodes in the first step
    median_nanos: float  # median of that time over the later steps
    nodes: list[tuple[str, int, int]]
    """Nodes that took more than ten times their own median: name, time, and median of the later steps."""

    @property
    def ratio(self) -> float:
        """Return the time as a multiple of the median; 0 if it is unknown."""
        return self.nanos / self.median_nanos if self.median_nanos else 0.0

    @property
    def is_far(self) -> bool:
        """Return whether the step, or a node in it, took more than ten times the median."""
        return self.ratio > _FAR or bool(self.nodes)


def first_step(model: Model) -> FirstStep | None:
    """Compare the first traced step with the others; None if fewer than two steps are recorded.

    The median excludes the first step: with two steps, a median over both would hide it. Only nodes that lengthen the
    step by at least one percent count.
    """
    if len(model.steps) < 2:
        return None
    first, *later = sorted(model.steps)
    one = model.steps[first]
    own = one.accelerator_nanos + one.cpu_nanos
    totals = np.array(
        [int((each.accelerator_nanos + each.cpu_nanos).sum()) for each in map(model.steps.get, later) if each]
    )
    others = median_times(msgspec.structs.replace(model, steps={step: model.steps[step] for step in later}))[0][
        one.node
    ]
    far = np.flatnonzero((others > 0) & (own > _FAR * others) & (own - others >= _LEAST_SHARE * own.sum()))
    order = far[np.argsort(others[far] - own[far], kind="stable")].tolist()
    return FirstStep(
        step=first,
        nanos=int(own.sum()),
        median_nanos=median(totals),
        nodes=[(model.names[one.node[row]], int(own[row]), int(others[row])) for row in order],
    )


def first_step_finding(model: Model, step: int = AVERAGE) -> Finding | None:
    """Return the warning that the mean includes an outlier first step, or None."""
    first = first_step(model) if step == AVERAGE else None
    if first is None or not first.is_far:
        return None
    took = f"step {first.step}" if model.skipped else f"the first traced step ({first.step})"
    text = f"the mean includes {took}, "
    if first.ratio > _FAR:
        text += f"{format_ms(first.nanos / _NS_PER_MS)} ms, {first.ratio:.0f} times the median of the others"
    else:
        name, nanos, usual = first.nodes[0]
        more = f", and {counted(len(first.nodes) - 1, 'other node')}" if len(first.nodes) > 1 else ""
        text += f"in which {name} took {format_ms(nanos / _NS_PER_MS)} ms, {nanos / usual:.0f} times its median{more}"
    action = f"exclude it with --skip-first {model.skipped + 1}, or select one step with --step"
    return Finding("first_step", "hint", text, action)


def _medians(node: Int64s, values: Int64s, count: int) -> Int64s:
    """Return the median of the values of each node, rounded down."""
    ordered = values[np.lexsort((values, node))]
    each = np.bincount(node, minlength=count)
    start = np.cumsum(each) - each
    medians = np.zeros(count, np.int64)
    there = np.flatnonzero(each)
    low, high = start[there] + (each[there] - 1) // 2, start[there] + each[there] // 2
    medians[there] = (ordered[low] + ordered[high]) // 2
    return medians
