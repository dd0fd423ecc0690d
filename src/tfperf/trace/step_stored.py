"""Steps that the profiler itself worked out: groups stored in the file, step lines and modules of a device."""

from __future__ import annotations

import re

import numpy as np

from tfperf.arrays import Int64s
from tfperf.trace.group_spans import group_spans, stored_groups
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.step_kinds import label_kinds
from tfperf.trace.steps import UNLABELLED, Candidates, Confidence
from tfperf.wire.event_columns import STEPS_LINE, Line


def from_groups(trace: HostTrace) -> Candidates | None:
    """Take the groups that the profiler stored (TensorFlow 2.2 to 2.4 did), as far as they have a step marker."""
    group = stored_groups(trace)
    if group is None:
        return None
    spans = group_spans(trace, group)
    if not len(spans.group):
        return None
    order = np.argsort(spans.begin, kind="stable")
    begin, end, number = spans.begin[order], spans.end[order], spans.group[order]
    names = [spans.names.get(value, "") for value in number.tolist()]
    kinds = label_kinds(trace, begin, end, [re.sub(r" ?-?\d+$", "", name) or UNLABELLED for name in names])
    shown = [
        f"{kind} {n}" if name.isdigit() or not name else name
        for kind, name, n in zip(kinds, names, number, strict=True)
    ]
    return Candidates(
        "stored groups", "high", f"the profiler stored {len(begin)} step(s) in the file", begin, end, kinds,
        tuple(shown), number, ("",) * len(begin), np.ones(len(begin), np.int64), end_known=True,
    )  # fmt: skip


def from_tpu(trace: HostTrace) -> Candidates | None:
    """Take the step line of the first TPU core."""
    if trace.device_kind != "tpu":
        return None
    line = step_line(trace, trace.devices[0])
    if line is None:
        return None
    return _from_line(
        trace, line, np.arange(line.start, line.stop), ("device steps", "high", "the TPU recorded its steps")
    )


def step_line(trace: HostTrace, plane: int) -> Line | None:
    """Return the step line of a device plane, if it holds events."""
    for line in trace.lines:
        if line.plane == plane and line.stop > line.start and (line.name == "Steps" or line.id == STEPS_LINE):
            return line
    return None


def from_modules(trace: HostTrace) -> Candidates | None:
    """Take the repetitions of the XLA module that a device spends most time in."""
    for line in trace.lines:
        if line.plane not in trace.devices or not line.name.startswith("XLA Modules") or line.stop - line.start < 2:
            continue
        name = trace.name[line.start : line.stop]
        total = np.bincount(name, weights=trace.duration_ps[line.start : line.stop].astype(np.float64))
        rows = np.flatnonzero(name == total.argmax()) + line.start
        module = trace.names[int(total.argmax())]
        if len(rows) >= 2:
            return _from_line(trace, line, rows, ("device modules", "low", f"{len(rows)} runs of XLA module {module}"))
    return None


def _from_line(trace: HostTrace, line: Line, rows: Int64s, how: tuple[str, Confidence, str]) -> Candidates:
    begin, end = trace.start_ps[rows], trace.end_ps[rows]
    texts = [trace.display_names[name] or trace.names[name] for name in trace.name[rows].tolist()]
    number = np.array(
        [int(text) if text.isdecimal() and len(text) < 18 else i for i, text in enumerate(texts)], np.int64
    )
    names = tuple(
        f"{UNLABELLED} {n}" if line.name == "Steps" else f"{UNLABELLED} {i}" for i, n in enumerate(number.tolist())
    )
    count = len(rows)
    return Candidates(*how, begin, end, (UNLABELLED,) * count, names, number, ("",) * count,
                      np.ones(count, np.int64), end_known=True)  # fmt: skip
