"""Flame graphs as markup: boxes for a page, a standalone page, and a picture.

Positions are in percent, so boxes fit any window, and pictures with a fixed width. The template engine escapes and cuts
every text. Scripts are optional: they zoom and search.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from markupsafe import Markup
from msgspec import Struct

from tfperf.base.units import counted
from tfperf.report.model import FlameChart
from tfperf.report.render.flame.boxes import ROW_HEIGHT, flame_boxes, height_of
from tfperf.report.render.html_templates import engine, policy
from tfperf.report.render.text_table import PLAIN_ELLIPSIS
from tfperf.report.render.values import brief, measure_text

if TYPE_CHECKING:
    from jinja2 import Environment

_THEMED = r"(--\w+): light-dark\((#\w+), (#\w+)\)"
_LONGEST_NAME = 500
_LONGEST_LABEL = 200
_WIDTH = 1200
"""Width of a picture in pixels."""
_READY = 'openFlames();\ndocument.documentElement.dataset.state = "ready";'
_MARGIN, _LINE, _LETTER = 10, 18, 6.9
_LONGEST_LINE = 170
HOW_TO_READ = (
    "The width of a box is its value. Nested boxes are below it; free space there is its own value, or boxes that "
    "are not drawn."
)
HOW_TO_READ_CHANGES = (
    "Red boxes have larger values than before, blue boxes smaller ones; pale boxes differ little. Hatched boxes are "
    "only in the other run, with their value there; boxes around them are wider than their value."
)


class FlameDocument(Struct, frozen=True, kw_only=True):
    """Flame graphs with a common title, and sentences about them."""

    title: str
    sentences: tuple[str, ...]
    charts: tuple[FlameChart, ...]


def flame_markup(chart: FlameChart) -> Markup:
    """Return the drawing for a page that has `style_sheet` and `script`."""
    return Markup(_graph(chart))


def style_sheet() -> str:
    """Return the style sheet of boxes; the page's own sheet must declare `--text`, `--raised` and others."""
    return _static("flame.css")


def script() -> str:
    """Return the script for zooming and searching; it calls `openFlames()`."""
    return _static("flame.js")


def flame_page(document: FlameDocument) -> str:
    """Return a standalone page; its policy allows its own script and no other resources."""
    style = f"{_static('flame_page.css')}\n{style_sheet()}"
    code = f'"use strict";\n{script()}\n{_READY}\n'
    return (
        _environment()
        .get_template("flame.html")
        .render(
            policy=policy(style, code),
            style=Markup(style),
            script=Markup(code),
            document=document,
            sentences=[*document.sentences, *_reading(document)],
            graphs=[
                (chart.title, _summary(chart), omitted_text(chart), flame_markup(chart)) for chart in document.charts
            ],
        )
    )


def flame_picture(document: FlameDocument) -> str:
    """Return an SVG document without scripts, for any viewer."""
    from textwrap import wrap

    sentences = [
        line
        for text in (*document.sentences, *_reading(document))
        for line in wrap(brief(text, 10 * _LONGEST_LINE), _LONGEST_LINE, placeholder=PLAIN_ELLIPSIS)
    ]
    top = _MARGIN + _LINE * (2 + len(sentences))
    graphs = []
    for chart in document.charts:
        words = [_summary(chart), *filter(None, [omitted_text(chart)])]
        graphs.append((chart.title, words, top, Markup(_graph(chart, fit=True))))
        top += _LINE * (2 + len(words)) + height_of(chart)
    return (
        _environment()
        .get_template("flame.svg")
        .render(
            style=Markup(_picture_style()),
            document=document,
            sentences=sentences,
            graphs=graphs,
            width=_WIDTH,
            inner=_WIDTH - 2 * _MARGIN,
            height=top + _MARGIN,
            line=_LINE,
            margin=_MARGIN,
        )
    )


def omitted_text(chart: FlameChart) -> str:
    """Return the number of omitted boxes as text; empty if there are none."""
    if not chart.omitted:
        return ""
    return f"Not drawn: {counted(chart.omitted, 'narrower box', 'narrower boxes')}."


def _summary(chart: FlameChart) -> str:
    text = f"Total: {measure_text((chart.totals or chart.widths)[0], chart.unit)}"
    return f"{text}, before {measure_text(chart.before[0], chart.unit)}." if chart.before else f"{text}."


def _reading(document: FlameDocument) -> list[str]:
    has_changes = any(chart.before for chart in document.charts)
    return [HOW_TO_READ, HOW_TO_READ_CHANGES] if has_changes else [HOW_TO_READ]


def _graph(chart: FlameChart, *, fit: bool = False) -> str:
    """Return the boxes; `fit` cuts names to their width in a picture."""
    boxes = list(flame_boxes(chart))
    labels = [_fitted(box.label, float(box.width)) if fit else brief(box.label, _LONGEST_LABEL) for box in boxes]
    return (
        _environment()
        .get_template("boxes.html")
        .render(
            title=chart.title,
            boxes=list(zip(boxes, labels, strict=True)),
            row=ROW_HEIGHT,
            height=height_of(chart),
            takes_keys=not fit,
            has_gone=any(box.colour == "gone" for box in boxes),
        )
    )


def _fitted(label: str, percent: float) -> str:
    letters = int(((_WIDTH - 2 * _MARGIN) * percent / 100 - 8) / _LETTER)
    text = brief(label, _LONGEST_LABEL)
    if len(text) <= letters:
        return text
    return "" if letters < 3 else f"{text[: letters - 1]}…"


@lru_cache(maxsize=1)
def _picture_style() -> str:
    """Return the style sheet with colors instead of variables, which some viewers do not support."""
    declared = f"{_static('flame_page.css')}{style_sheet()}"
    _, _, rules = style_sheet().partition(".box {")
    rules = f"{_static('flame_picture.css')}.box {{{rules}"
    themes = []
    for theme in (1, 2):
        colours = {found[0]: found[theme] for found in re.findall(_THEMED, declared)}
        themes.append(re.sub(r"var\((--\w+)\)", lambda name: colours[name[1]], rules))  # noqa: B023 - used at once
    return f"{themes[0]}@media (prefers-color-scheme: dark) {{\n{themes[1]}}}\n"


@lru_cache(maxsize=8)
def _static(name: str) -> str:
    return (files("tfperf.report.render.flame") / "static" / name).read_text("utf-8")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return engine(
        "tfperf.report.render.flame",
        longest_text=_LONGEST_NAME * 4,
        longest_cell=_LONGEST_LABEL,
        keep_trailing_newline=True,
    )
