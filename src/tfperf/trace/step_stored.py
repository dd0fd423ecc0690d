"""Steps that the profiler itself worked out: groups stored in the file, step lines and modules of a device."""

from __future__ import annotations

import re

import numpy as np

from tfperf.arrays import Int64s
from tfperf.trace.group_spans import group_spans, stored_groups
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.step_kinds import label_kinds
from tfperf.trace.steps import UNLABELLED, How, Steps, plain_steps
from tfperf.wire.event_columns import STEPS_LINE, Line


def from_groups(trace: HostTrace) -> Steps | None:
    """Take the groups that the profiler stored (TensorFlow 2.2 to 2.4 did), as far as they have a step marker."""
    group = stored_groups(trace)
    if group is None:
        return None
    spans = group_spans(trace, group)
    if not len(spans.group):
        return None
    order = np.argsort(spans.start, kind="stable")
    span, numbers = (spans.start[order], spans.end[order]), spans.group[order]
    stored = [spans.names.get(number, "") for number in numbers.tolist()]
    kinds = label_kinds(trace, *span, [re.sub(r" ?-?\d+$", "", name) or UNLABELLED for name in stored])
    names = tuple(
        f"{kind} {number}" if name.isdigit() or not name else name
        for kind, name, number in zip(kinds, stored, numbers, strict=True)
    )
    how: How = ("stored groups", "high", f"the profiler stored {len(numbers)} step(s) in the file")
    return plain_steps(how, span, numbers, names, kinds)


def from_tpu(trace: HostTrace) -> Steps | None:
    """Take the step line of the first TPU core."""
    if trace.device_kind != "tpu":
        return None
    line = step_line(trace, trace.devices[0])
    if line is None:
        return None
    rows = np.arange(line.start, line.stop)
    return _of_line(trace, line, rows, ("device steps", "high", "the TPU recorded its steps"))


def step_line(trace: HostTrace, plane: int) -> Line | None:
    """Return the step line of a device plane, if it holds events."""
    for line in trace.lines:
        if line.plane == plane and line.stop > line.start and (line.name == "Steps" or line.id == STEPS_LINE):
            return line
    return None


def from_modules(trace: HostTrace) -> Steps | None:
    """Take the repetitions of the XLA module that a device spends most time in."""
    for line in trace.lines:
        if line.plane not in trace.devices or not line.name.startswith("XLA Modules") or line.stop - line.start < 2:
            continue
        name = trace.name[line.start : line.stop]
        total = np.bincount(name, weights=trace.duration_ps[line.start : line.stop].astype(np.float64))
        rows = np.flatnonzero(name == total.argmax()) + line.start
        module = trace.names[int(total.argmax())]
        if len(rows) >= 2:
            return _of_line(trace, line, rows, ("device modules", "low", f"{len(rows)} runs of XLA module {module}"))
    return None


def _of_line(trace: HostTrace, line: Line, rows: Int64s, how: How) -> Steps:
    texts = [trace.display_names[name] or trace.names[name] for name in trace.name[rows].tolist()]
    numbers = [int(text) if text.isdecimal() and len(text) < 18 else i for i, text in enumerate(texts)]
    shown = numbers if line.name == "Steps" else range(len(rows))
    span = trace.start_ps[rows], trace.end_ps[rows]
    names = tuple(f"{UNLABELLED} {number}" for number in shown)
    return plain_steps(how, span, np.array(numbers, np.int64), names, (UNLABELLED,) * len(rows))
