"""Values in a notebook: as HTML, complete without scripts and safe for all names in a profile, and as pictures.

The template engine cleans, cuts and escapes all text of the HTML. The output contains the script that sorts tables;
without it, tables are complete but not sortable. matplotlib draws the pictures. A picture omits unknown values and
lists them. Steps that do not count in averages are pale.
"""

from __future__ import annotations

import re
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
from tfperf.report.model import BarChart, Chart, DeclaredTable, Level, LogChart, Report, Section, Segment, Table
from tfperf.report.palette import ROLES, Role
from tfperf.report.render.html_templates import engine
from tfperf.report.render.text_table import LINES, text_table
from tfperf.report.render.values import brief, measure_text, plain
from tfperf.report.shown import Detail, shown
from tfperf.sections.diagnosis.cause import Diagnosis
from tfperf.sections.idle.analysis import CAUSE_TEXTS, Idle
from tfperf.sections.idle.analysis import Cause as IdleCause
from tfperf.sections.input.analysis import InputPipeline
from tfperf.sections.kernels.analysis import Kernels
from tfperf.sections.memory.analysis import Memory
from tfperf.sections.ops.analysis import Ops
from tfperf.sections.overview.summary import Summary
from tfperf.sections.roofline.analysis import Roofline
from tfperf.sections.tfdata.analysis import TfData
from tfperf.sections.wall.analysis import Wall
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
    environment.globals |= {"text_table": text_table, "cells_of": cells_of, "bars_of": bars_of, "roles": ROLES}
    return environment


COLOURS = {
    "compilation": "#0241e1",
    "output": "#a88620",
    "input": "#dd7c66",
    "host_to_device": "#f0bf2e",
    "kernel_launch": "#a5709c",
    "host_compute": "#82a696",
    "device_collectives": "#47bbe8",
    "device_to_device": "#f8df96",
    "device_compute": "#064d2c",
    "all_others": "#dcdce0",
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
_HEIGHT = 0.5
_HATCH, _HATCH_COLOUR = "////", "#ffffffb0"
"""Look of time that a fix removes."""
_AVERAGED, _COUNTED, _NOT_COUNTED = "averaged steps", "#4a5568", "#c9ced6"
"""Row of the wall time with the averaged steps, and colors of it and of other rows: they are not causes."""
_LEAST_PART = 0.01
"""Minimum share of the capture for a part of the wall time."""
_NAMED_POINTS = 3
_LINE_STYLES = ("-", "--", ":", "-.")
_OP_ROLES: tuple[tuple[Role, re.Pattern[str]], ...] = (
    ("input", re.compile(r"Dataset$|infeed")),
    ("copy", re.compile(r"_(Host)?(Send|Recv)$|Memcpy|copy(-start|-done)?$|outfeed")),
    ("others", re.compile(r"Nccl|Collective|all-|reduce-scatter|collective-|(send|recv)(-done)?$")),
)
_IDLE_ROLES: dict[IdleCause, Role] = {
    "input": "input",
    "compile": "compile",
    "synchronise": "others",
    "copy": "copy",
    "launch": "launch",
    "python": "python",
    "host_compute": "compute",
    "unknown": "unexplained",
}
_NOTHING: dict[type, str] = {
    Kernels: "the profile has no kernels",
    Memory: "the profile has no allocator events",
    Ops: "the profile has no ops",
    Idle: "the profile has no idle time of a device",
    TfData: "the profile has no tf.data pipeline",
    InputPipeline: "the profile has no input ops",
    Roofline: "the work of ops or the peaks of the device are unknown",
}
"""Reasons for results without rows; others need the step time."""


def plot(result: Any, ax: Axes | None = None, *, top: int | None = None) -> Axes:
    """Draw a result into the axes `ax`, or a new figure, and return the axes.

    `top` is the maximum number of bars, points or allocators. Raises TfperfError without matplotlib, or without data to
    draw.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise TfperfError('plots require matplotlib: pip install "tfperf[plot]"') from error
    if not (result.parts if isinstance(result, Diagnosis) else len(result.as_table())):
        unknown = result.steps.explanation if isinstance(result, Breakdown) else "the step time is unknown"
        raise TfperfError(f"nothing to plot: {_NOTHING.get(type(result), unknown)}")
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
    _role_bars(ax, names, times, texts, ["compute"] * len(times))
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


@_draw.register(Diagnosis)
def _(result: Diagnosis, ax: Axes, top: int | None) -> None:
    from tfperf.sections.diagnosis.section import segments_of

    time = result.summary.step_time_ms
    wholes = [("step", time.average, result.parts)] if time is not None else []
    if result.wall_parts and result.wall_ms is not None:
        wholes.append(("wall time per step", result.wall_ms, result.wall_parts))
    handles: dict[str, Any] = {}
    for place, (name, total, parts) in enumerate(wholes):
        left = 0.0
        for segment in segments_of(result, parts, total):
            handle = _segment(ax, place, left, segment)
            left += segment.value
            of = f" of the {name}" if place else ""
            handles.setdefault(f"{segment.title} {segment.share}{of}", handle)
        ax.text(total, place, f" {measure_text(total, 'ms')}", va="center")
    ax.set_yticks(range(len(wholes)), [name for name, _, _ in wholes])
    ax.set_ylim(len(wholes) - _HALF, -1 + _HALF)
    ax.set_xlim(0, max(total for _, total, _ in wholes) * _ROOM)
    on_host = f" on {result.host}" if result.host else ""
    note = _with_notes("Time (ms)", ["hatched: likely removed by the first fix", *_unknown(result.unknown)])
    ax.set(xlabel=note, title=f"Step by cause{on_host}")
    ax.legend([*handles.values()], [*handles], loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _segment(ax: Axes, place: int, left: float, segment: Segment) -> Any:
    """Draw a segment, with a hatched end for the time that its fix removes; return the part for the legend."""
    colour, kept = ROLES[segment.role].colour, segment.value - segment.saved
    drawn = ax.barh(place, kept, left=left, color=colour, height=_HEIGHT)
    if segment.saved:
        hatched = ax.barh(place, segment.saved, left=left + kept, color=colour, height=_HEIGHT, linewidth=0)
        for bar in hatched:
            bar.set(hatch=_HATCH, edgecolor=_HATCH_COLOUR)
        drawn = drawn if kept >= segment.saved else hatched
    ax.vlines(left, place - _HEIGHT / 2, place + _HEIGHT / 2, color="white", linewidth=1)
    return drawn


@_draw.register(Ops)
def _(result: Ops, ax: Axes, top: int | None) -> None:
    ops = result.sides[0]
    columns = ops.columns()
    names = [str(name) for name in columns["op_name"]]
    roles: list[Role] = []
    for kind in map(str, columns["op_type"]):
        roles.append(next((role for role, pattern in _OP_ROLES if pattern.match(kind)), "compute"))
    texts = [
        f"{measure_text(share, '%')}, {count:,}x"
        for share, count in zip(columns["self_percent"], columns["occurrences"], strict=True)
    ]
    _largest(ax, names, (ops.self_ps / PS_PER_MS).tolist(), texts, roles, top)
    where = f"Self time, summed over {'devices' if ops.side == 'device' else 'host threads'} (ms)"
    ax.set(xlabel=where, title=f"{'Device' if ops.side == 'device' else 'Host'} ops by self time")


@_draw.register(Idle)
def _(result: Idle, ax: Axes, top: int | None) -> None:
    columns = result.columns()
    ranked = result.ranked
    of = "capture" if result.without_steps else "step"
    texts = [measure_text(result.percents[cause], "%") for cause in ranked]
    names = [CAUSE_TEXTS[cause].title for cause in ranked]
    times = [float(str(time)) for time in columns["per_step_ms"]]
    _largest(ax, names, times, texts, [_IDLE_ROLES[cause] for cause in ranked], top)
    note = _with_notes(f"Idle time per {of} and device (ms)", [f"percentages: of the {of}"])
    ax.set(xlabel=note, title="Device idle time by host activity")


@_draw.register(TfData)
def _(result: TfData, ax: Axes, top: int | None) -> None:
    main = result.main or result.pipelines[0]
    stages = main.stages[: top or _ROWS]
    texts = []
    for number, stage in enumerate(stages):
        marks = [mark for mark, at in (("blocking", main.blocking), ("limiting", main.limiting)) if at == number]
        texts.append(", ".join([f"{stage.calls:,}x", *marks]))
    times = [stage.blocked_ps / PS_PER_MS for stage in stages]
    _role_bars(ax, [_label(stage.name) for stage in stages], times, texts, ["input"] * len(stages))
    note = _with_notes("Time in which the program waited for the stage (ms)", ["stages: the last one first"])
    ax.set(xlabel=note, title=f"Waiting for the pipeline {_label(main.name)}")


@_draw.register(InputPipeline)
def _(result: InputPipeline, ax: Axes, top: int | None) -> None:
    whole_ps = max(result.self_ps, 1)
    texts = [f"{measure_text(100.0 * op.self_ps / whole_ps, '%')}, {op.count:,}x" for op in result.ops]
    times = [op.self_ps / PS_PER_MS for op in result.ops]
    roles: list[Role] = ["copy" if op.part == "enqueue" else "input" for op in result.ops]
    _largest(ax, [op.name for op in result.ops], times, texts, roles, top)
    ax.set(xlabel="Self time, summed over threads (ms)", title="Input ops by self time")


@_draw.register(Wall)
def _(result: Wall, ax: Axes, top: int | None) -> None:
    rows = result.as_table().data
    shown = [row for row, share in enumerate(rows["percent"]) if (share or 0.0) >= 100.0 * _LEAST_PART]
    names = [_label(str(rows["part"][row])) for row in shown]
    texts = [measure_text(rows["percent"][row], "%") for row in shown]
    colours = [_COUNTED if name.startswith(_AVERAGED) else _NOT_COUNTED for name in names]
    _bars(ax, names, [float(rows["ms"][row]) for row in shown], texts, colours)
    note = _with_notes("Time (ms)", ["pale: not in the averages"])
    whole = measure_text(result.capture_ps / PS_PER_MS, "ms")
    ax.set(xlabel=note, title=f"Wall time by part: {whole}")


@_draw.register(Roofline)
def _(result: Roofline, ax: Axes, top: int | None) -> None:
    from tfperf.sections.roofline.section import charts_of

    chart: LogChart | None = next(iter(charts_of(result)), None)
    if chart is None:
        raise TfperfError(f"nothing to plot: {_NOTHING[Roofline]}")
    for style, (name, line) in zip(_LINE_STYLES, chart.lines.items(), strict=False):
        ax.plot(*zip(*line, strict=True), color="black", linestyle=style, label=name)
    points = chart.points[:top]
    ax.scatter([x for _, x, _ in points], [y for _, _, y in points], s=24, color=ROLES["compute"].colour)
    for name, x, y in points[:_NAMED_POINTS]:
        ax.annotate(_label(name), (x, y), xytext=(4, -10), textcoords="offset points")
    ax.set(xscale="log", yscale="log", xlabel=f"Intensity ({chart.x_title})", ylabel=chart.y_title, title=chart.title)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _largest(
    ax: Axes,
    names: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    roles: Sequence[Role],
    top: int | None,
) -> None:
    """Draw the first rows as bars; the rows are sorted."""
    most = slice(top or _ROWS)
    _role_bars(ax, [_label(name) for name in names[most]], values[most], texts[most], roles[most])


def _role_bars(
    ax: Axes, names: Sequence[str], values: Sequence[float], texts: Sequence[str], roles: Sequence[Role]
) -> None:
    """Draw bars in the colors of their roles, with a legend for several roles."""
    _bars(ax, names, values, texts, [ROLES[role].colour for role in roles])
    if len({*roles}) > 1:
        bars = ax.containers[0]
        handles = {ROLES[role].title: bar for role, bar in zip(roles, bars, strict=True)}
        ax.legend([*handles.values()], [*handles], loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


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
