"""Steps that the program marked: events with `step_num`, or with a name that the user gives."""

from __future__ import annotations

import fnmatch
import re

import numpy as np

from tfperf.arrays import Int64s, distinct
from tfperf.trace.event_names import mask
from tfperf.trace.function_calls import dominant_calls, find_calls, retraced_flags
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest
from tfperf.trace.step_kinds import label_kinds
from tfperf.trace.steps import PARTIAL, Candidates


def from_markers(trace: HostTrace) -> Candidates | None:
    """Take host events that carry `step_num`, the outermost per thread."""
    marked = trace.stat("step_num").event.astype(np.int64)
    rows = _outermost(trace, marked[trace.on_host[marked] & (trace.duration_ps[marked] > 0)])
    if not len(rows):
        return None
    number = trace.number("step_num", -1)[rows]
    graph_type = _texts_at(trace, "graph_type", rows)
    labels = [kind or trace.names[trace.name[row]] for kind, row in zip(graph_type, rows.tolist(), strict=True)]
    names = [f"{label} {value}" for label, value in zip(labels, number.tolist(), strict=True)]
    shown = sorted(set(labels))
    found = _candidates(trace, rows, names, number, f"the program marked {len(rows)} steps ({', '.join(shown[:3])})")
    return _with_partial_ends(trace, found)


def named(trace: HostTrace, pattern: str) -> Candidates | None:
    """Take host events whose name matches the pattern, the outermost per thread."""
    accepts = re.compile(fnmatch.translate(pattern)).match if "*" in pattern else pattern.__eq__
    rows = trace.host_events(mask(trace.names, accepts))
    rows = _outermost(trace, rows[trace.duration_ps[rows] > 0])
    if not len(rows):
        return None
    number = np.arange(len(rows), dtype=np.int64)
    names = [f"{trace.names[trace.name[row]]} {index}" for index, row in enumerate(rows.tolist())]
    return _candidates(trace, rows, names, number, f"{len(rows)} events are named {pattern!r}, as asked")


def _outermost(trace: HostTrace, rows: Int64s) -> Int64s:
    """Drop events inside another of the same thread; return the rest in time order."""
    kept = []
    line_of = trace.line_of[rows] if len(rows) else rows
    for line in distinct(line_of):
        mine = rows[line_of == line]
        kept.append(mine[nest(trace.start_ps[mine], trace.end_ps[mine]).parent < 0])
    merged = np.concatenate(kept) if kept else rows
    return np.asarray(merged[np.argsort(trace.start_ps[merged], kind="stable")], np.int64)


def _texts_at(trace: HostTrace, stat_name: str, rows: Int64s) -> list[str]:
    stat = trace.stat(stat_name)
    index = trace.number(stat_name, -1)[rows].tolist()
    return [stat.texts[value] if value >= 0 else "" for value in index]


def _candidates(trace: HostTrace, rows: Int64s, names: list[str], number: Int64s, explanation: str) -> Candidates:
    begin, end = trace.start_ps[rows], trace.end_ps[rows]
    kinds = label_kinds(trace, begin, end, [re.sub(r" -?\d+$", "", name) for name in names])
    return Candidates(
        "markers", "high", explanation, begin, end, kinds, tuple(names), number,
        retraced_flags(find_calls(trace), begin, end),
        np.ones(len(rows), np.int64), end_known=True,
    )  # fmt: skip


def _with_partial_ends(trace: HostTrace, found: Candidates) -> Candidates:
    """Add calls before the first and after the last marker: steps whose marker the capture cut off."""
    begin, end = dominant_calls(trace)
    before = np.flatnonzero(end <= found.start_ps[0])
    after = np.flatnonzero(begin >= found.end_ps[-1])
    if len(found.start_ps) < 3 or not (0 < len(before) + len(after) <= 2):
        return found
    begins, ends = (np.concatenate((a[before], b, a[after])) for a, b in ((begin, found.start_ps), (end, found.end_ps)))
    label = found.names[0].rsplit(" ", 1)[0]
    first = (found.numbers[:1] - np.arange(len(before), 0, -1)).tolist()
    last = (found.numbers[-1:] + 1 + np.arange(len(after))).tolist()
    return Candidates(
        found.source, found.confidence, found.explanation, begins, ends,
        (found.kinds[0],) * len(before) + found.kinds + (found.kinds[-1],) * len(after),
        tuple(f"{label} {n}" for n in first) + found.names + tuple(f"{label} {n}" for n in last),
        np.concatenate((np.array(first, np.int64), found.numbers, np.array(last, np.int64))),
        (PARTIAL,) * len(before) + found.flags + (PARTIAL,) * len(after),
        np.ones(len(begins), np.int64), end_known=True,
    )  # fmt: skip
