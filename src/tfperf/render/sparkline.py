"""A sparkline: one row of cells whose height is a value over time, between two values that its title names.

A person's terminal shows blocks; files and pipes get ASCII, since the encoding of their reader is not known.
"""

from __future__ import annotations

import math

from tfperf.report.model import Sparkline

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-~=+*#"
NOTHING = " "


def sparkline_text(series: Sparkline, width: int, *, interactive: bool) -> str:
    """Return the series as one line of at most `width` cells: of each stretch of time the largest value."""
    marks = BLOCKS if interactive else ASCII
    cells = _cells(series, max(width, 1))
    span = series.high - series.low
    return "".join(NOTHING if value is None else _mark(marks, value - series.low, span) for value in cells).rstrip()


def _mark(marks: str, height: float, span: float) -> str:
    share = height / span if span > 0 else 0.0
    if not math.isfinite(share):
        return NOTHING
    return marks[min(max(int(share * len(marks)), 0), len(marks) - 1)]


def _cells(series: Sparkline, width: int) -> list[float | None]:
    """Return the largest value in each stretch of time, that at its begin included; None: not known."""
    found: list[float | None] = [None] * width
    begin, length = (series.times[0], series.times[-1] - series.times[0]) if series.times else (0.0, 0.0)
    held, at = None, 0
    for time, value in zip(series.times, series.values, strict=True):
        share = (time - begin) / length if length > 0 else 0.0
        cell = max(min(int(share * width), width - 1), at)
        found[at + 1 : cell + 1] = [held] * (cell - at)
        own = found[cell]
        found[cell] = value if own is None else max(own, value)
        held, at = value, cell
    return found[: at + 1] + [held] * (width - at - 1)
