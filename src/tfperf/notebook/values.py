"""Values in a notebook: as HTML, complete without scripts and safe for all names in a profile, and as pictures.

The template engine cleans, cuts and escapes all text of the HTML. The output contains the script that sorts tables;
without it, tables are complete but not sortable. matplotlib draws the pictures. A picture omits unknown values and
lists them. Steps that do not count in averages are pale.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, singledispatch
from importlib.resources import files
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from markupsafe import Markup
from msgspec.structs import replace

from tfperf.analysis.registry import LEADS, Results
from tfperf.base.arrays import Float64s
from tfperf.base.display import Shown
from tfperf.base.errors import TfperfError
from tfperf.base.units import PS_PER_MS, format_bytes, format_percent
from tfperf.judge.outcome import Outcome, check_report
from tfperf.live.sampling import Sampled
from tfperf.report.model import BarChart, Chart, DeclaredTable, Level, Report, Section, Table
from tfperf.report.render.html_templates import engine
from tfperf.report.render.text_table import LINES, text_table
from tfperf.report.render.values import brief, measure_text, plain
from tfperf.report.shown import Detail, shown
from tfperf.sections.kernels.analysis import Kernels
from tfperf.sections.memory.analysis import Memory
from tfperf.sections.overview.summary import Summary
from tfperf.trace.steps.breakdown import Breakdown
from tfperf.trace.steps.categories import CATEGORIES, CATEGORY_TITLES

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.environment import TemplateModule
    from matplotlib.axes import Axes

    from tfperf.analysis.load import Analysis

MOST_ROWS = 100
"""Maximum table rows in an output; the DataFrame has all."""
_LONGEST_TEXT = 2_000
_LONGEST_CELL = 120


class Cell(NamedTuple):
    """The text of a table cell, and its sort key: a number, a text, or nothing for an unknown value."""

    text: str
    key: float | int | str | None
    is_number: bool


class Bar(NamedTuple):
    """A bar of a chart, `share` percent of the longest."""

    label: str
    text: str
    share: float


def html_of(value: Shown) -> str:
    """Return a value as HTML, with the style and the script of its tables."""
    folder = files("tfperf.notebook") / "static"
    style, script = (Markup(folder.joinpath(name).read_text("utf-8").strip()) for name in ("output.css", "sort.js"))
    return _macros().page(_html(value), style, script)  # type: ignore[no-any-return,attr-defined]


@singledispatch
def _html(value: Any) -> Markup:
    names: Sequence[str] = getattr(value, "__struct_fields__", ())
    fields = [(name, getattr(value, name)) for name in names]
    texts = []
    for name, each in fields:
        if isinstance(each, Shown):
            texts.append((name, repr(each)))
        elif each is not None and each != "" and each != ():
            texts.append(
                (name, str(each) if isinstance(each, (bool, int, float, str)) else brief(str(each), _LONGEST_CELL))
            )
    return _macro("fields", type(value).__name__, texts)


@_html.register
def _(value: Results) -> Markup:
    analysis: Analysis = value  # type: ignore[assignment]  # users get results of load only
    leads = [name for name in LEADS if name in analysis.sections]
    report = shown(_without_pointers(analysis.report(leads or ["overview"])), Detail("brief", "brief", MOST_ROWS))
    return _macro("analysis", repr(analysis)[1:-1], report.sections)


@_html.register
def _(value: Report) -> Markup:
    level: Level = "full" if len(value.sections) == 1 else "brief"
    return _macro("report", shown(_without_pointers(value), Detail("full", level, MOST_ROWS)).sections)


@_html.register
def _(value: Section) -> Markup:
    return _html(Report({}, {}, (value,)))


@_html.register
def _(value: Table) -> Markup:
    return _macro("table", value)


@_html.register
def _(value: DeclaredTable) -> Markup:
    return _macro("table", value.as_table())


@_html.register
def _(value: Outcome) -> Markup:
    return _html(check_report(value))


@_html.register
def _(value: Sampled) -> Markup:
    return _html(value.report())


def _without_pointers(report: Report) -> Report:
    return replace(report, sections=tuple(replace(section, pointer="") for section in report.sections))


def cells_of(table: Table) -> list[list[Cell]]:
    """Return the first rows of a table."""
    table = table.head(MOST_ROWS)
    texts = text_table(table, LINES)
    columns = [column for column in table.columns if column.level != "data"]
    keys = [[_key(value) for value in table.data[column.key]] for column in columns]
    return [
        [Cell(text, keys[column][row], texts.numeric[column]) for column, text in enumerate(line)]
        for row, line in enumerate(texts.rows)
    ]


def _key(value: Any) -> float | int | str | None:
    item = plain(value)
    return brief(item, _LONGEST_CELL) if isinstance(item, str) else int(item) if isinstance(item, bool) else item


def bars_of(chart: Chart) -> list[Bar]:
    """Return the bars of a chart with one bar per label, else an empty list; `.plot()` draws other charts."""
    if not isinstance(chart, BarChart):
        return []
    longest = max((value for value in chart.values if value is not None), default=0.0) or 1.0
    pairs = zip(chart.labels, chart.values, strict=True)
    return [
        Bar(label, measure_text(value, chart.unit), max(0.0, 100.0 * (value or 0.0) / longest))
        for label, value in pairs
    ]


def _macro(name: str, *arguments: Any) -> Markup:
    html: Markup = getattr(_macros(), name)(*arguments)
    return html


@lru_cache(maxsize=1)
def _macros() -> TemplateModule:
    return environment().get_template("output.html").module


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the template engine for cell outputs."""
    environment = engine("tfperf.notebook", longest_text=_LONGEST_TEXT, longest_cell=_LONGEST_CELL)
    environment.globals |= {"text_table": text_table, "cells_of": cells_of, "bars_of": bars_of}
    return environment


COLOURS = {
    "compilation": "#8a4b2a",
    "output": "#4a7fc1",
    "input": "#d1495b",
    "host_to_device": "#e58a96",
    "kernel_launch": "#8c5bb5",
    "host_compute": "#e0a030",
    "device_collectives": "#2a9aa8",
    "device_to_device": "#7cc0b6",
    "device_compute": "#3a9d6a",
    "all_others": "#aab2be",
}
_ROWS = 10
_LINES = 4
_LONGEST_NAME = 44
_LEAST_SHARE = 0.005
"""Minimum share of the time for a category in the legend of steps."""
_PALE = 0.65
_HALF = 0.45
_STEP_TICKS = 14
_LEAST_WIDTH = 5.0
_ROOM = 1.25
"""Length of the axis relative to the longest bar, with room for its number."""
_NOTE_WIDTH = 90


def plot(result: Any, ax: Axes | None = None, *, top: int | None = None) -> Axes:
    """Draw a result into the axes `ax`, or a new figure, and return the axes.

    `top` is the number of kernels or allocators. Raises TfperfError without matplotlib, or without data to draw.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise TfperfError('plots require matplotlib: pip install "tfperf[plot]"') from error
    if not len(result.as_table()):
        reason = "the step time is unknown"
        if isinstance(result, Breakdown):
            reason = result.steps.explanation
        elif isinstance(result, Kernels):
            reason = "the profile has no kernels"
        elif isinstance(result, Memory):
            reason = "the profile has no allocator events"
        raise TfperfError(f"nothing to plot: {reason}")
    if top is not None and top < 1:
        raise TfperfError(f"top is {top}; use 1 or more")
    if ax is None:
        ax = plt.subplots(figsize=(9, 4.2), layout="constrained")[1]
    _draw(result, ax, top)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


@singledispatch
def _draw(result: Any, ax: Axes, top: int | None) -> None:
    raise TfperfError(f"cannot plot {type(result).__name__}")


@_draw.register(Breakdown)
def _(result: Breakdown, ax: Axes, top: int | None) -> None:
    count, averaged = len(result.steps), result.averaged
    edges = (np.arange(count)[:, None] + [-_HALF, _HALF]).ravel()
    base = np.zeros(count)
    whole_ps = max(int(result.steps.duration_ps.sum()), 1)
    for key in result.categories:
        times = result.time_ps[key]
        if key not in result.unknown and int(times.sum()) >= _LEAST_SHARE * whole_ps:
            above = base + times / PS_PER_MS
            heights, start = _with_gaps(above), _with_gaps(base)
            ax.stairs(heights, edges, baseline=start, fill=True, color=COLOURS[key], label=CATEGORY_TITLES[key])
            base = above
    if not averaged.all():
        over = np.where(averaged, np.nan, base)
        ax.stairs(_with_gaps(over), edges, fill=True, color=ax.get_facecolor(), alpha=_PALE, zorder=3)
    places = np.arange(0, count, -(-count // _STEP_TICKS))
    ax.set_xticks(places, [str(number) for number in result.steps.numbers[places].tolist()])
    # Limit the width of the bars with one or two steps.
    ax.set(xlim=(-0.6, max(count - 0.4, _LEAST_WIDTH)), ylim=(0, None))
    omitted = int((~averaged).sum())
    notes = [f"pale: {omitted} of {count} are excluded from averages"] if omitted else []
    ax.set(xlabel=_with_notes("Step", [*notes, *_unknown(result.unknown)]), ylabel="Time (ms)", title="Step time")
    # In the order of the stack.
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _with_gaps(values: Float64s) -> Float64s:
    between = np.full(len(values), np.nan)
    return np.stack([values, between], axis=1).ravel()[:-1]


@_draw.register(Summary)
def _(result: Summary, ax: Axes, top: int | None) -> None:
    keys = [key for key in result.categories if key not in result.unknown and result.percent[key]]
    shares = [result.percent[key] for key in keys]
    times = [result.category_ms[key].average for key in keys]
    texts = [
        f"{format_percent(share)}% ({measure_text(time, 'ms')})" for share, time in zip(shares, times, strict=True)
    ]
    labels = [CATEGORY_TITLES[key] for key in keys]
    _bars(ax, labels, shares, texts, [COLOURS[key] for key in keys])
    average = result.step_time_ms.average if result.step_time_ms is not None else None
    title = f"Categories of a step of {measure_text(average, 'ms')}, mean of {result.averaged_count:,}"
    ax.set(xlabel=_with_notes("Share of the step (%)", _unknown(result.unknown)), title=title)


@_draw.register(Kernels)
def _(result: Kernels, ax: Axes, top: int | None) -> None:
    rows = result.by_name()
    most = top or _ROWS
    names = [_label(str(name)) for name in rows["kernel"][:most]]
    times: list[float] = [float(str(time)) for time in rows["total_ms"][:most]]
    columns = rows["percent"][:most], rows["occurrences"][:most]
    texts = [f"{measure_text(share, '%')}, {count:,}x" for share, count in zip(*columns, strict=True)]
    _bars(ax, names, times, texts, [COLOURS["device_compute"]] * len(times))
    count = len(rows["kernel"])
    title = f"The {len(times)} kernels with the most time, of {count:,}" if count > most else "Kernels by time"
    ax.set(xlabel="Total time, summed over streams (ms)", title=title)


@_draw.register(Memory)
def _(result: Memory, ax: Axes, top: int | None) -> None:
    from matplotlib.ticker import FuncFormatter

    shown = result.allocators[: top or _LINES]
    for number, allocator in enumerate(shown):
        timeline = allocator.timeline
        name = allocator.name if result.host_count == 1 else f"{allocator.host} {allocator.name}"
        label = f"{_label(name)}: peak {format_bytes(allocator.peak_bytes)}"
        if allocator.capacity_bytes:
            label += f" of {format_bytes(allocator.capacity_bytes)}"
        (line,) = ax.step(timeline.time_ms, timeline.in_use_bytes, where="post", label=label, color=f"C{number}")
        ax.fill_between(timeline.time_ms, timeline.in_use_bytes, step="post", alpha=0.15, color=line.get_color())
        ax.plot([allocator.peak_ms], [allocator.peak_bytes], "v", color=line.get_color())
    ax.set_ylim(bottom=0)
    ax.margins(x=0.01)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda size, _: format_bytes(size)))
    others = len(result.allocators) - len(shown)
    title = f"Memory in use: {len(shown)} of {len(result.allocators)} allocators" if others else "Memory in use"
    ax.set(xlabel="Time (ms)", ylabel="In use", title=title)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _bars(
    ax: Axes, names: Sequence[str], values: Sequence[float], texts: Sequence[str], colours: Sequence[str]
) -> None:
    places = np.arange(len(names))
    bars = ax.barh(places, values, color=colours, height=0.7)
    ax.bar_label(bars, labels=texts, padding=4)
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    ax.set_xlim(0, max(values) * _ROOM or 1.0)


def _label(name: str) -> str:
    return brief(name, _LONGEST_NAME).replace("$", r"\$")


def _unknown(keys: frozenset[str]) -> list[str]:
    names = [CATEGORY_TITLES[key].lower() for key in CATEGORIES if key in keys]
    return [f"unknown: {', '.join(names)}"] if names else []


def _with_notes(label: str, notes: Sequence[str]) -> str:
    return "\n".join([label, *("\n".join(wrap(note, _NOTE_WIDTH)) for note in notes)])
