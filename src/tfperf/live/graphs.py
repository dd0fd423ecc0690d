"""Graphs of a worker over time, as lines: step time, and the step by cause."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfperf.base.units import format_ms
from tfperf.live.board import HISTORY_S, Point, WorkerView
from tfperf.report.palette import ROLES
from tfperf.report.render.charts import SPARK_ASCII, SPARK_BLOCKS, apportion
from tfperf.report.render.text_table import Line, Part, begin_of, line_of
from tfperf.report.render.values import safe

LEAST_HISTORY_S = 60.0
_STEP_STYLE = "cyan"
_AXIS = 8
"""Cells for the labels of the vertical axis."""
_OUTLIER = 2.0
"""Multiple of the 90th percentile from which a step time does not stretch the scale."""
_ROUND = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_ABOVE = "^"


def earliest_s(worker: WorkerView, now_s: float) -> float:
    """Return the start of the time axis: the first sample, but at least a minute and at most five minutes ago."""
    first_s = worker.history[0].time_s if worker.history else now_s
    return max(min(first_s, now_s - LEAST_HISTORY_S), now_s - HISTORY_S)


def by_cell(worker: WorkerView, now_s: float, width: int) -> list[Point | None]:
    """Return the point with the longest step in each of `width` intervals until now, or else the previous point.

    None: before the first sample. A point without a step time is a gap.
    """
    start_s = earliest_s(worker, now_s)
    found: list[Point | None] = [None] * width
    held: Point | None = None
    last = -1
    for point in worker.history:
        cell = min(max(int(width * (point.time_s - start_s) / max(now_s - start_s, 1e-9)), last, 0), width - 1)
        found[last + 1 : cell] = [held] * max(cell - last - 1, 0)
        before = found[cell] if cell == last else None
        if before is None or (point.step_ms or 0.0) > (before.step_ms or 0.0):
            found[cell] = point
        held, last = point, cell
    found[last + 1 :] = [held] * (width - last - 1)
    return found


def scale_ms(values: Sequence[float]) -> float:
    """Return a round upper end of an axis from 0 for step times; single outliers do not stretch it."""
    ordered = sorted(values)
    most = _OUTLIER * ordered[int(0.9 * (len(ordered) - 1))]
    longest = max(value for value in ordered if value <= most)
    power = 10.0 ** math.floor(math.log10(longest)) if longest > 0 else 1.0
    return next((factor * power for factor in _ROUND if factor * power >= longest * (1 - 1e-9)), 10.0 * power)


def step_graph(worker: WorkerView, now_s: float, width: int, height: int, *, interactive: bool) -> list[Line]:
    """Return the step times as columns: a title, `height` lines, the time axis and, for several kinds, the kinds.

    A `^` is a step time above the scale; the title has the longest one. Empty without step times.
    """
    room = max(width - _AXIS, 8)
    points = by_cell(worker, now_s, room)
    values = [0.0 if each is None or each.step_ms is None else each.step_ms for each in points]
    if not any(values):
        return []
    top = scale_ms([value for value in values if value])
    marks = SPARK_BLOCKS if interactive else SPARK_ASCII
    title = "step ms"
    if max(values) > top:
        title += f", {_ABOVE} to {format_ms(max(values))}"
    letters: dict[str, str] = {}
    for kind in dict.fromkeys(each.kind for each in points if each is not None and each.kind):
        unused = (char for char in kind if char.isascii() and char.isalnum() and char not in letters.values())
        letters[kind] = next(unused, "?")
    if len(letters) > 1:
        title += "".join(f", {letter} {safe(kind)}" for kind, letter in letters.items())
    lines: list[Line] = [line_of(begin_of(title, width), "dim")]
    for row in reversed(range(height)):
        text = ""
        for value in values:
            filled = value / top * height - row
            if row == height - 1 and value > top:
                text += _ABOVE
            elif filled >= 1 or filled <= 0:
                text += marks[-1] if filled > 0 else " "
            else:
                text += marks[min(int(filled * len(marks)), len(marks) - 1)]
        label = _label(row, height, {height - 1: format_ms(top), 0: "0"})
        lines.append((Part(label, "dim"), Part(text.rstrip(), _STEP_STYLE)))
    lines.append(_time_axis(worker, now_s, room))
    if len(letters) > 1:
        text = "".join(" " if each is None else letters.get(each.kind, " ") for each in points)
        lines.append((Part(f"{'kind':>{_AXIS - 1}} ", "dim"), Part(text)))
    return lines


def cause_graph(worker: WorkerView, now_s: float, width: int, height: int) -> list[Line]:
    """Return the step by cause as columns of letters: a title, `height` lines and the time axis; empty if unknown."""
    room = max(width - _AXIS, 8)
    columns: list[list[Part]] = []
    for point in by_cell(worker, now_s, room):
        roles = point.roles if point is not None else ()
        counts = apportion([share for _, share in roles], height)
        column = [
            Part(ROLES[role].letter, f"{ROLES[role].ink} on {ROLES[role].colour}")
            for (role, _), count in zip(roles, counts, strict=True)
            for _ in range(count)
        ]
        columns.append(column or [Part(" ")] * height)
    if not any(part.style for column in columns for part in column):
        return []
    lines: list[Line] = [line_of("step by cause in %", "dim")]
    for row in reversed(range(height)):
        parts = [Part(_label(row, height, {height - 1: "100", 0: "0"}), "dim")]
        for column in columns:
            part = column[row]
            if parts[-1].style == part.style and len(parts) > 1:
                parts[-1] = Part(parts[-1].text + part.text, part.style)
            else:
                parts.append(part)
        lines.append(parts)
    return [*lines, _time_axis(worker, now_s, room)]


def _label(row: int, height: int, labels: dict[int, str]) -> str:
    return f"{labels.get(row, ''):>{_AXIS - 2}} |"


def _time_axis(worker: WorkerView, now_s: float, room: int) -> Line:
    """Return the line below a graph; `b` is the time of the baseline."""
    start_s = earliest_s(worker, now_s)
    span_s = now_s - start_s
    begin, end = f"-{span_s / 60:.0f} min", " now"
    between = room - len(begin) - len(end)
    text = begin + (f" {'-' * (between - 1)}" if between > 0 else "") + end
    if worker.mark is not None and worker.mark.time_s >= start_s:
        place = min(int(room * (worker.mark.time_s - start_s) / max(span_s, 1e-9)), room - 1)
        text = f"{text[:place]}b{text[place + 1 :]}"
    return line_of(f"{'':{_AXIS}}{text}"[: _AXIS + room], "dim")
