"""The drawing of each box of a flame graph: its position in percent of the width, texts and color."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

from msgspec import Struct

from tfperf.base.units import Unit, format_percent
from tfperf.report.model import FlameChart
from tfperf.report.render.values import measure_text

ROW_HEIGHT = 19
_COLOURS = 6
_KIND = re.compile(r"[^:/\d]*")
"""Key of a box's color: its short name without the number, so that layers of one class look alike."""
_SAME, _STRONGEST = 2.0, 4
_STRENGTHS = (10.0, 30.0, 60.0)
"""Maximum difference in percent for the first, second and third shade."""


class FlameBox(Struct, frozen=True, kw_only=True):
    """A box: `level` is its depth, `colour` a class of the style sheet; `change` describes the difference."""

    name: str
    label: str
    level: int
    x: str
    width: str
    total: str
    share: str
    own: str
    own_share: str
    change: str
    colour: str


def flame_boxes(chart: FlameChart) -> Iterator[FlameBox]:
    """Yield the boxes of a chart in order."""
    drawn, totals = chart.widths[0] if chart.widths else 0.0, chart.totals or chart.widths
    whole = totals[0] or drawn if totals else 0.0
    for box, (width, total) in enumerate(zip(chart.widths, totals, strict=True)):
        yield FlameBox(
            name=chart.names[box],
            label=chart.labels[box],
            level=chart.depths[box],
            x=_percent(chart.starts[box], drawn),
            width=_percent(width, drawn),
            total=measure_text(total, chart.unit),
            share=format_percent(100 * total / whole),
            own=measure_text(chart.own[box], chart.unit),
            own_share=format_percent(100 * chart.own[box] / whole),
            change=_change_text(total, chart.before[box], chart.unit) if chart.before else "",
            colour=_shade(total, chart.before[box]) if chart.before else _colour(chart.labels[box]),
        )


def height_of(chart: FlameChart) -> int:
    """Return the height of the drawing in pixels."""
    return ROW_HEIGHT * (1 + max(chart.depths, default=0))


def _percent(value: float, whole: float) -> str:
    # Nine decimals: after zooming in, a difference of a thousandth of a pixel is visible.
    return f"{100 * value / whole:.9f}".rstrip("0").rstrip(".")


def _colour(label: str) -> str:
    kind = _KIND.match(label)
    return f"c{zlib.crc32((kind[0] if kind else '').encode('utf-8', 'replace')) % _COLOURS}"


def changed_percent(now: float, before: float) -> float | None:
    """Return the difference in percent of `before`, or None if that was 0."""
    return 100 * (now - before) / before if before > 0 else None


def _shade(now: float, before: float) -> str:
    """Return the shade of a difference: red for an increase, blue for a decrease, `gone` if nothing is left."""
    if now <= 0 < before:
        return "gone"
    larger = max(now, before)
    difference = 100 * abs(now - before) / larger if larger > 0 else 0.0
    if difference < _SAME:
        return "same"
    strength = next((place for place, limit in enumerate(_STRENGTHS, 1) if difference <= limit), _STRONGEST)
    return f"{'more' if now > before else 'less'}{strength}"


def _change_text(now: float, before: float, unit: Unit) -> str:
    percent = changed_percent(now, before)
    if percent is None:
        return "before: none"
    return f"before {measure_text(before, unit)} ({'+' * (percent > 0)}{format_percent(percent)}%)"
