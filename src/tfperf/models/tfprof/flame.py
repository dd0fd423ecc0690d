"""A flame graph: a view as boxes, each as wide as its total, in one page that asks for nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from tfperf.base.arrays import Int64s
from tfperf.base.units import Unit, counted
from tfperf.formats.models.input_file import TfprofInputError
from tfperf.models.tfprof import OptionError
from tfperf.models.tfprof.layout import Boxes, layout
from tfperf.models.tfprof.options import PLACE, Attribute
from tfperf.models.tfprof.pprof import UNITS
from tfperf.models.tfprof.views import Shown
from tfperf.report.flame_tree import ROOT, widest
from tfperf.report.model import FlameChart
from tfperf.report.render.flame.drawing import FlameDocument, flame_page

MOST_BOXES = 5_000
"""More are too narrow to be seen, and make browsers slow."""

_TITLES: Mapping[str, str] = {
    "micros": "time of accelerator and CPU",
    "accelerator_micros": "time of accelerators",
    "cpu_micros": "time of the CPU",
    "bytes": "requested memory",
    "peak_bytes": "peak memory",
    "residual_bytes": "residual memory",
    "output_bytes": "size of outputs",
    "params": "parameters",
    "float_ops": "float operations",
}
_UNITS: Mapping[str, tuple[Unit, float]] = {
    "microseconds": ("ms", 1000.0),
    "bytes": ("bytes", 1.0),
    "count": ("count", 1.0),
}
"""The unit that is shown, and how much of what a view counts in it is."""


def view_page(shown: Shown, attribute: str, title: str) -> str:
    """Return what the scope or the code view shows as a page with a flame graph, by the totals of an attribute.

    Boxes have their total, their own value and their shares as text; a click makes one as wide as the page. Of more
    than `MOST_BOXES`, the widest are drawn. Raises ValueError if the attribute has no sum (those of `UNITS` have),
    TfprofInputError if nothing has any of it.
    """
    if attribute not in UNITS:
        raise OptionError(f"a flame graph of {attribute!r} is not possible: use one of {', '.join(UNITS)}")
    boxes = layout(shown, cast("Attribute", attribute))
    if not int(boxes.width[0]):
        raise TfprofInputError(f"nothing that is shown has any {attribute}, so there is nothing to draw")
    rows = widest(boxes.width, MOST_BOXES)
    wide = int((boxes.width > 0).sum())
    sentences = (f"A box is as wide as its {_TITLES[attribute]}.", *_empty_rows(len(shown.tree) - wide, attribute))
    chart = _chart(shown, boxes, rows, attribute, title)
    return flame_page(FlameDocument(title=title, sentences=sentences, charts=(chart,)))


def _empty_rows(count: int, attribute: str) -> Iterator[str]:
    if count:
        yield f"Not drawn: {counted(count, 'row')} without {_TITLES[attribute]}."


def _chart(shown: Shown, boxes: Boxes, rows: Int64s, attribute: str, title: str) -> FlameChart:
    unit, divisor = _UNITS[UNITS[attribute]]
    own = shown.tree.own[PLACE[cast("Attribute", attribute)]]
    names = [shown.tree.names[row] if row else ROOT for row in rows.tolist()]
    start, width, alone = (tuple((column[rows] / divisor).tolist()) for column in (boxes.start, boxes.width, own))
    return FlameChart(
        title=title,
        unit=unit,
        names=tuple(names),
        labels=tuple(name.rpartition("/")[2] or name for name in names),
        depths=tuple(boxes.level[rows].tolist()),
        starts=start,
        widths=width,
        own=alone,
        omitted=int((boxes.width > 0).sum()) - len(rows),
    )
