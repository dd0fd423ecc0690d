"""A sparkline: one row of cells whose height is a value over time, between two values that its title names.

A person's terminal shows blocks; files and pipes get ASCII, since the encoding of their reader is unknown.
"""

from __future__ import annotations

import math

from tfperf.report.model import Sparkline

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-~=+*#"
_NOTHING = " "


def sparkline_text(series: Sparkline, width: int, *, interactive: bool) -> str:
    """Return the series as one line of at most `width` cells: of each stretch of time the largest value."""
    marks = BLOCKS if interactive else ASCII
    span = series.high - series.low
    return "".join(
        _NOTHING if value is None else _mark(marks, value - series.low, span)
        for value in _largest_by_cell(series, max(width, 1))
    ).rstrip()


def _mark(marks: str, height: float, span: float) -> str:
    """Return the mark for a height between 0 and `span`."""
    share = height / span if span > 0 else 0.0
    if not math.isfinite(share):
        return _NOTHING
    return marks[min(max(int(share * len(marks)), 0), len(marks) - 1)]


def _largest_by_cell(series: Sparkline, width: int) -> list[float | None]:
    """Return the largest value in each stretch of time, that at its start included; None: unknown."""
    largest: list[float | None] = [None] * width
    start, duration = (series.times[0], series.times[-1] - series.times[0]) if series.times else (0.0, 0.0)
    held, last = None, 0
    for time, value in zip(series.times, series.values, strict=True):
        share = (time - start) / duration if duration > 0 else 0.0
        cell = max(min(int(share * width), width - 1), last)
        largest[last + 1 : cell + 1] = [held] * (cell - last)
        before = largest[cell]
        largest[cell] = value if before is None else max(before, value)
        held, last = value, cell
    return largest[: last + 1] + [held] * (width - last - 1)
