"""Flame graphs as markup: the boxes for a page, a page of its own, and a picture.

Places are percent of the width, so the same boxes fit a window of any width, and a picture with a width of its own.
Every text is made safe and cut by the engine, and escaped. Nothing of it needs a script; one zooms and searches.
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
"""Of a picture, in pixels."""
_READY = 'openFlames();\ndocument.documentElement.dataset.state = "ready";'
_MARGIN, _LINE, _LETTER = 10, 18, 6.9
_LONGEST_LINE = 170
HOW_TO_READ = (
    "A box is as wide as its value. Below a box is what is in it; free space there is its own, or that of boxes which "
    "are not drawn."
)
HOW_TO_READ_CHANGES = "Red boxes have more than before, blue ones less; pale ones differ little."


class FlameDocument(Struct, frozen=True, kw_only=True):
    """Flame graphs under one title, and sentences about them."""

    title: str
    sentences: tuple[str, ...]
    charts: tuple[FlameChart, ...]


def flame_markup(chart: FlameChart) -> Markup:
    """Return the drawing for a page that has `style_sheet` and `script`."""
    return Markup(_graph(chart))


def style_sheet() -> str:
    """Return what a page needs so that boxes have colours: its own sheet declares `--text`, `--raised` and the like."""
    return _static("flame.css")


def script() -> str:
    """Return what makes the drawings of a page zoom and search: it calls `openFlames()`."""
    return _static("flame.js")


def flame_page(document: FlameDocument) -> str:
    """Return a page that asks for nothing: its policy lets it run the script that is in it, and load nothing at all."""
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
    """Return a picture that any viewer shows: an SVG document without scripts."""
    sentences = [line for text in (*document.sentences, *_reading(document)) for line in _lines(text)]
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
    """Say what is not drawn; empty if all is."""
    if not chart.omitted:
        return ""
    return f"Not drawn: {counted(chart.omitted, 'box', 'boxes')} narrower than all these."


def _summary(chart: FlameChart) -> str:
    text = f"All of it is {measure_text(chart.widths[0], chart.unit)}"
    return f"{text}, before {measure_text(chart.before[0], chart.unit)}." if chart.before else f"{text}."


def _reading(document: FlameDocument) -> list[str]:
    has_changes = any(chart.before for chart in document.charts)
    return [HOW_TO_READ, HOW_TO_READ_CHANGES] if has_changes else [HOW_TO_READ]


def _graph(chart: FlameChart, *, fit: bool = False) -> str:
    """Return the boxes; `fit` cuts their names to the width that they have in a picture."""
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
        )
    )


def _fitted(label: str, percent: float) -> str:
    letters = int(((_WIDTH - 2 * _MARGIN) * percent / 100 - 8) / _LETTER)
    text = brief(label, _LONGEST_LABEL)
    if len(text) <= letters:
        return text
    return "" if letters < 3 else f"{text[: letters - 1]}…"


def _lines(text: str) -> list[str]:
    """Return a sentence as lines that fit the picture."""
    import textwrap

    return textwrap.wrap(brief(text, 10 * _LONGEST_LINE), _LONGEST_LINE, placeholder=PLAIN_ELLIPSIS)


@lru_cache(maxsize=1)
def _picture_style() -> str:
    """Return the style sheet with colours in the place of their names, which not every viewer knows."""
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
