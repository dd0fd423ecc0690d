"""A flame graph: a view as boxes, each as wide as its total, in one page that asks for nothing."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, cast

import numpy as np
from markupsafe import Markup
from msgspec import Struct

from tfperf.arrays import Int64s
from tfperf.render.html_templates import engine, policy
from tfperf.render.values import measure_text
from tfperf.tfprof.attributes import PLACE, Attribute, OptionError
from tfperf.tfprof.input_file import TfprofInputError
from tfperf.tfprof.layout import Boxes, layout
from tfperf.tfprof.pprof import UNITS
from tfperf.tfprof.tree import Shown
from tfperf.units import counted, format_percent

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_BOXES = 5_000
"""More are too narrow to be seen, and make browsers slow."""

_ROW = 19
_COLOURS = 6
_LONGEST_NAME = 2_000
_LONGEST_LABEL = 200
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
_KIND = re.compile(r"[^:/]*")
"""What gives a box its colour: the first scope of a name, or the file of a line of code."""


class FlameBox(Struct, frozen=True, kw_only=True):
    """A box: its place in percent of the width, its texts, and the number of its colour."""

    name: str
    label: str
    level: int
    x: str
    width: str
    total: str
    share: str
    own: str
    own_share: str
    colour: int


def flame_page(shown: Shown, attribute: str, title: str) -> str:
    """Return what the scope or the code view shows as a page with a flame graph, by the totals of an attribute.

    Boxes have their total, their own value and their shares as text; a click makes one as wide as the page. Of more
    than `MOST_BOXES`, the widest are drawn. Raises ValueError if the attribute has no sum (those of `UNITS` have),
    TfprofInputError if nothing has any of it.
    """
    if attribute not in UNITS:
        raise OptionError(f"a flame graph of {attribute!r} is not possible: use one of {', '.join(UNITS)}")
    boxes = layout(shown, cast("Attribute", attribute))
    total = int(boxes.width[0])
    if not total:
        raise TfprofInputError(f"nothing that is shown has any {attribute}, so there is nothing to draw")
    wide = np.flatnonzero(boxes.width > 0)
    rows = np.sort(wide[np.argsort(-boxes.width[wide], kind="stable")[:MOST_BOXES]])
    style, script = _style_and_script()
    return (
        _environment()
        .get_template("flame.html")
        .render(
            policy=policy(style, script),
            style=Markup(style),
            script=Markup(script),
            title=title,
            attribute=_TITLES[attribute],
            total=_value_text(total, attribute),
            notes=[*_notes(len(shown.tree) - len(wide), len(wide) - len(rows), attribute)],
            boxes=[*_flame_boxes(shown, boxes, rows, attribute)],
            row=_ROW,
            height=_ROW * (1 + int(boxes.level[rows].max())),
        )
    )


def _notes(empty: int, narrow: int, attribute: str) -> Iterator[str]:
    if narrow:
        yield f"Not drawn: {counted(narrow, 'row')} narrower than all these."
    if empty:
        yield f"Not drawn: {counted(empty, 'row')} without {_TITLES[attribute]}."


def _flame_boxes(shown: Shown, boxes: Boxes, rows: Int64s, attribute: str) -> Iterator[FlameBox]:
    all_of_it = int(boxes.width[0])
    own = shown.tree.own[PLACE[cast("Attribute", attribute)]]
    columns = (column[rows].tolist() for column in (boxes.level, boxes.start, boxes.width, own))
    for row, level, start, width, alone in zip(rows.tolist(), *columns, strict=True):
        name = shown.tree.names[row] if row else "all"
        yield FlameBox(
            name=name,
            label=name.rpartition("/")[2] or name,
            level=level,
            x=f"{100 * start / all_of_it:.9f}",
            width=f"{100 * width / all_of_it:.9f}",
            total=_value_text(width, attribute),
            share=format_percent(100 * width / all_of_it),
            own=_value_text(alone, attribute),
            own_share=format_percent(100 * alone / all_of_it),
            colour=zlib.crc32(_KIND.match(name)[0].encode("utf-8", "replace")) % _COLOURS,  # type: ignore[index]
        )


def _value_text(value: int, attribute: str) -> str:
    """Show a value with its unit."""
    unit = UNITS[attribute]
    return measure_text(value / 1000, "ms") if unit == "microseconds" else measure_text(value, unit)


@lru_cache(maxsize=1)
def _style_and_script() -> tuple[str, str]:
    folder = files("tfperf.tfprof") / "static"
    return folder.joinpath("flame.css").read_text("utf-8"), folder.joinpath("flame.js").read_text("utf-8")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return engine("tfperf.tfprof", longest_text=_LONGEST_NAME, longest_cell=_LONGEST_LABEL, keep_trailing_newline=True)
