"""Text charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.units import counted, format_ms, format_percent
from tfperf.report.model import (
    RESULTS,
    BarChart,
    ChangedPart,
    Chart,
    ComparisonChart,
    FlameChart,
    GaugeChart,
    GroupedBars,
    LogChart,
    SegmentBar,
    Sparkline,
    Status,
    StepChart,
    StepPicture,
)
from tfperf.report.palette import CATEGORY_STYLES, ROLES
from tfperf.report.render.text_table import (
    PLAIN_ELLIPSIS,
    Line,
    Part,
    bar_text,
    cells,
    line_of,
    shorten,
    width_of,
    wrap,
    wrap_prose,
)
from tfperf.report.render.values import ELLIPSIS, UNKNOWN, cell_text, measure_text, plain, safe

SMALLEST_SHARE = 0.01
"""Share of the whole; smaller boxes are omitted."""

_SPARE_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
"""For categories without an unused letter in their title."""
_LABEL_SHARE = 0.5
ONLY_ON_PAGES = ("Shown only in the HTML report: -o report.html.",)
_SMALLEST_BAR = 8
_SAVED = "/"
_LONGEST_ENTRY = 32
"""Longest title in the legend of a bar; the sentence about the cause has all of it."""


def chart_lines(chart: Chart, width: int, *, interactive: bool) -> list[Line]:
    """Return the chart as lines of at most `width` cells, without its title."""
    if isinstance(chart, Sparkline):
        return [line_of(sparkline_text(chart, width, interactive=interactive))]
    if isinstance(chart, FlameChart):
        return icicle_lines(chart, width, interactive=interactive)
    if isinstance(chart, StepPicture):
        return [line_of(line) for line in ONLY_ON_PAGES]
    if isinstance(chart, SegmentBar):
        return segment_bar_lines([chart], width)
    if isinstance(chart, GaugeChart):
        return gauge_lines(chart, width, interactive=interactive)
    if isinstance(chart, ComparisonChart):
        return comparison_lines(chart, width, interactive=interactive)
    if isinstance(chart, LogChart):
        bars = BarChart(
            chart.title, "", tuple(name for name, _, _ in chart.points), tuple(y for _, _, y in chart.points)
        )
        return [line_of(text) for text in bar_chart_lines(bars, width, interactive=interactive)]
    if isinstance(chart, (BarChart, GroupedBars)):
        return [line_of(text) for text in bar_chart_lines(chart, width, interactive=interactive)]
    return step_chart_lines(chart, width)


def segment_bar_lines(bars: Sequence[SegmentBar], width: int) -> list[Line]:
    """Return the bars, and one legend with shares of the first bar that has the segment.

    `/` marks time that the first fix of a cause likely removes.
    """
    bars = [bar for bar in bars if bar.segments and bar.total > 0]
    if not bars:
        return [line_of("nothing to show")]
    heads = [f"{cell_text(bar.total, bar.unit)} {bar.unit} " for bar in bars]
    heads = [f"{bar.short_title} {head}" if len(bars) > 1 else head for bar, head in zip(bars, heads, strict=True)]
    left = max(map(cells, heads))
    lines: list[Line] = []
    whole: dict[tuple[str, str], list[Part]] = {}
    cut: dict[tuple[str, str], list[Part]] = {}
    for bar, head in zip(bars, heads, strict=True):
        counts = apportion([each.value for each in bar.segments], max(width - left, _SMALLEST_BAR))
        drawn: list[Part] = [Part(" " * (left - cells(head)) + head)]
        for segment, count in zip(bar.segments, counts, strict=True):
            style = ROLES[segment.role]
            saved = min(round(count * segment.saved / segment.value), count - 1) if segment.value and count else 0
            drawn += [Part(style.letter * (count - saved) + _SAVED * saved, style.look)] if count else []
            of = f" of {bar.short_title}" if bar is not bars[0] else ""
            rest = f" {segment.share}{of}"
            room = width - cells(f"{style.letter} {rest}")
            for entries, longest in ((whole, room), (cut, min(room, _LONGEST_ENTRY))):
                text = f" {shorten(safe(segment.title), longest, mark=PLAIN_ELLIPSIS)}{rest}"
                entries.setdefault((segment.role, segment.title), [Part(style.letter, style.look), Part(text)])
        lines.append(drawn)
    is_hatched = any(each.saved for bar in bars for each in bar.segments)
    mark = [[Part(f"{_SAVED} removed by the fix", "dim")]] * is_hatched
    legend, short_legend = (_in_lines([*entries.values(), *mark], width) for entries in (whole, cut))
    # A screen has no third line to spare for whole titles.
    return [*lines, *(legend if len(legend) <= max(len(short_legend), 2) else short_legend)]


_RESULT_STYLES: dict[Status, str] = {"pass": "bold green", "breach": "bold red", "unknown": "bold yellow"}
_LONGEST_LIMIT = 32
_SMALLEST_GAUGE = 12


def gauge_lines(chart: GaugeChart, width: int, *, interactive: bool) -> list[Line]:
    """Return the headline, and a line per limit: its result, the measured value, and `|` at the bound."""
    lines = [line_of(text, _RESULT_STYLES[chart.status]) for text in wrap(safe(chart.headline), width)]
    if not chart.gauges:
        return lines
    limits = [shorten(safe(gauge.limit), _LONGEST_LIMIT, mark=PLAIN_ELLIPSIS) for gauge in chart.gauges]
    words = max(len(RESULTS[gauge.status]) for gauge in chart.gauges)
    left = max(map(cells, limits))
    most = max(width - words - left - _SMALLEST_GAUGE - 6, 8)
    values = [shorten(safe(gauge.measured), most, mark=PLAIN_ELLIPSIS) for gauge in chart.gauges]
    right = max(map(cells, values))
    room = max(width - words - left - right - 6, _SMALLEST_BAR)
    full, empty = ("█", "░") if interactive else ("#", ".")
    for gauge, limit, value in zip(chart.gauges, limits, values, strict=True):
        style = _RESULT_STYLES[gauge.status]
        start = Part(f"  {limit}{' ' * (left - cells(limit))}  {' ' * (right - cells(value))}{value}")
        parts = [Part(f"{RESULTS[gauge.status]:<{words}}", style), start]
        if gauge.share is not None and gauge.bound_share is not None:
            size, bound = round(gauge.share * room), min(round(gauge.bound_share * room), room - 1)
            drawn = full * size + empty * (room - size)
            parts += [Part("  "), Part(drawn[:bound], style), Part("|", "bold"), Part(drawn[bound + 1 :], style)]
        lines.append(parts)
    if any(gauge.share is not None for gauge in chart.gauges):
        lines.append(line_of("| marks the limit.", "dim"))
    return lines


_DIRECTIONS = {"faster": "bold green", "slower": "bold red"}
_MOST_CHANGES, _MOST_RUNS = 3, 8
_LONGEST_RUN = 30
_LEAST_CHANGE = 0.01
"""Share of the longer step; smaller changes are summed up."""


def waterfall(chart: ComparisonChart, most: int) -> list[tuple[ChangedPart, float, float]]:
    """Return the largest changes, each with the step time before and after it, and the sum of all others."""
    ranked = sorted(chart.parts, key=lambda part: -abs(part.change))
    level, whole = (sum(getattr(part, side) for part in ranked) for side in ("before", "after"))
    least = _LEAST_CHANGE * max(level, whole)
    shown = [part for part in ranked[:most] if abs(part.change) >= least]
    rest = ranked[len(shown) :]
    if rest and abs(sum(part.change for part in rest)) >= least:
        before, after = (sum(getattr(part, side) for part in rest) for side in ("before", "after"))
        shown.append(ChangedPart(role="unexplained", title="All other changes", before=before, after=after))
    rows = []
    for part in shown:
        rows.append((part, level, level + part.change))
        level += part.change
    return rows


def comparison_scale(chart: ComparisonChart, most: int) -> float:
    """Return the end of an axis from 0 for the waterfall and 95% of the steps of each run."""
    ends = [end for _, *both in waterfall(chart, most) for end in both]
    ends += [sum(part.before for part in chart.parts), sum(part.after for part in chart.parts)]
    for run in chart.runs:
        ordered = sorted(run.values)
        ends += [run.value or 0.0, *ordered[-1 - len(ordered) // 20 :][:1]]
    return max(ends)


def change_text(change: float, unit: str) -> str:
    """Return a change with its sign and unit."""
    return f"{'-' if change < 0 else '+'}{measure_text(abs(change), unit)}"


def comparison_lines(chart: ComparisonChart, width: int, *, interactive: bool) -> list[Line]:
    """Return the headline, the change by part and the steps of two runs; or a line per run, if there are more."""
    headline = ", ".join(filter(None, (chart.headline, chart.times)))
    lines = [line_of(text, _DIRECTIONS.get(chart.direction, "bold")) for text in wrap(safe(headline), width)]
    lines += [line_of(shorten(safe(chart.detail), width, mark=PLAIN_ELLIPSIS), "dim")] if chart.detail else []
    if len(chart.runs) > 2:
        lines += _trend_lines(chart, width, interactive=interactive)
    else:
        lines += _waterfall_lines(chart, width, interactive=interactive)
    style = "dim" if chart.is_fair else "bold yellow"
    return [*lines, *(line_of(text, style) for text in wrap_prose(safe(chart.remark), width))]


def _waterfall_lines(chart: ComparisonChart, width: int, *, interactive: bool) -> list[Line]:
    """Return the parts before, the largest changes, the parts after, and the steps of both runs on one scale."""
    scale = comparison_scale(chart, _MOST_CHANGES)
    if scale <= 0:
        return []
    lines: list[Line] = []
    changes = waterfall(chart, _MOST_CHANGES)
    totals = [sum(getattr(part, side) for part in chart.parts) for side in ("before", "after")]
    names = ["before", *(shorten(safe(part.title), _LONGEST_RUN, mark=PLAIN_ELLIPSIS) for part, _, _ in changes)]
    names += ["after", "before", "after"]
    values = [measure_text(totals[0], chart.unit), *(change_text(part.change, chart.unit) for part, _, _ in changes)]
    values += [measure_text(totals[1], chart.unit), "steps", "steps"]
    if not changes:
        names, values = names[-2:], values[-2:]
    left, right = max(map(cells, values)), max(map(cells, names))
    room = max(width - left - right - 2, _SMALLEST_BAR)
    ends = [min(max(round(total / scale * room), 0), room) for total in totals]
    drawn: list[list[Part]] = []
    if changes:
        drawn.append(_parts_bar(chart, "before", ends[0]))
        for part, *levels in changes:
            first, last = sorted(min(max(round(level / scale * room), 0), room) for level in levels)
            drawn.append([Part(" " * first), _role_part(part, max(last - first, 1))])
        drawn.append(_parts_bar(chart, "after", ends[1]))
    texts = _histograms([run.values for run in chart.runs], scale, room, interactive=interactive)
    drawn += ([Part(text)] for text in texts)
    for value, name, parts in zip(values, names, drawn, strict=True):
        start = f"{' ' * (left - cells(value))}{value} {name}{' ' * (right - cells(name))} "
        lines.append([Part(start), *parts])
    return lines


def _parts_bar(chart: ComparisonChart, side: Literal["before", "after"], size: int) -> list[Part]:
    """Return the parts of a run as one bar."""
    parts = sorted(chart.parts, key=lambda part: [*ROLES].index(part.role))
    counts = apportion([getattr(part, side) for part in parts], size)
    return [_role_part(part, count) for part, count in zip(parts, counts, strict=True) if count]


def _histograms(series: Sequence[Sequence[float]], scale: float, room: int, *, interactive: bool) -> list[str]:
    """Return the number of values in each cell, relative to the fullest cell of the series."""
    marks, texts = SPARK_BLOCKS if interactive else SPARK_ASCII, []
    for values in series:
        counts = [0] * room
        for value in values:
            counts[min(int(value / scale * room), room - 1)] += 1
        most = max(counts)
        texts.append("".join(marks[-(-len(marks) * each // most) - 1] if each else " " for each in counts).rstrip())
    return texts


def _role_part(part: ChangedPart, count: int) -> Part:
    style = ROLES[part.role]
    return Part(style.letter * count, f"{style.ink} on {style.colour}")


def _trend_lines(chart: ComparisonChart, width: int, *, interactive: bool) -> list[Line]:
    """Return the step time, the change and the steps of each run, all on one scale."""
    runs = chart.runs if len(chart.runs) <= _MOST_RUNS else (chart.runs[0], *chart.runs[2 - _MOST_RUNS :])
    labels = [shorten(safe(run.label), _LONGEST_RUN, mark=PLAIN_ELLIPSIS) for run in runs]
    values = [UNKNOWN if run.value is None else measure_text(run.value, chart.unit) for run in runs]
    lengths = [max(map(cells, texts)) for texts in (labels, values, [run.change for run in runs])]
    room = max(width - sum(lengths) - 6, _SMALLEST_BAR)
    high = comparison_scale(chart, 0)
    lines: list[Line] = []
    for run, label, value in zip(runs, labels, values, strict=True):
        line = Sparkline(
            title=label, times=tuple(map(float, range(len(run.values)))), values=run.values, low=0.0, high=high
        )
        start = label + " " * (lengths[0] - cells(label) + 2) + f"{value:>{lengths[1]}}  {run.change:<{lengths[2]}}  "
        lines.append((Part(start), Part(sparkline_text(line, room, interactive=interactive), "cyan")))
    omitted = len(chart.runs) - len(runs)
    return [*lines, line_of(f"{counted(omitted, 'run')} omitted: -s overview lists all.", "dim")] if omitted else lines


def bar_chart_lines(chart: BarChart | GroupedBars, width: int, *, interactive: bool) -> list[str]:
    """Return the bars as lines of at most `width` cells (if at least 30), without the title."""
    if isinstance(chart, GroupedBars):
        rows = [
            (name if number else f"{label}, {name}", values[group])
            for group, label in enumerate(chart.labels)
            for number, (name, values) in enumerate(chart.series.items())
        ]
        chart = BarChart(chart.title, chart.unit, tuple(row[0] for row in rows), tuple(row[1] for row in rows))
    if not chart.labels:
        return ["nothing to show"]
    # The chart's title has all units other than %.
    value_text = measure_text if chart.unit == "%" else cell_text
    values = [value_text(value, chart.unit) for value in chart.values]
    right = max(map(cells, values))
    longest = max(min(int(width * _LABEL_SHARE), width - right - _SMALLEST_BAR - 3), 1)
    mark = ELLIPSIS if interactive else PLAIN_ELLIPSIS
    labels = [shorten(safe(label), longest, mark=mark) for label in chart.labels]
    left = max(map(cells, labels))
    room = max(width - left - right - 3, 1)
    lengths = [max(value, 0.0) if value is not None and math.isfinite(value) else 0.0 for value in chart.values]
    scale = max(lengths)
    lines = []
    for label, length, text in zip(labels, lengths, values, strict=True):
        bar = bar_text(length / scale, room, interactive=interactive) if length else ""
        start = " " * (left - cells(label)) + label
        lines.append(f"{start} {bar}{' ' * (room - len(bar))}  {' ' * (right - cells(text))}{text}".rstrip())
    return lines


def sparkline_text(series: Sparkline, width: int, *, interactive: bool) -> str:
    """Return the series as one line of at most `width` cells, each with the largest value in its time span."""
    marks = SPARK_BLOCKS if interactive else SPARK_ASCII
    span = series.high - series.low
    line = ""
    for value in _largest_by_cell(series, max(width, 1)):
        share = math.nan if value is None else (value - series.low) / span if span > 0 else 0.0
        line += marks[min(max(int(share * len(marks)), 0), len(marks) - 1)] if math.isfinite(share) else " "
    return line.rstrip()


def _largest_by_cell(series: Sparkline, width: int) -> list[float | None]:
    """Return the largest value in each time span, including the value at its start; None: unknown."""
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


MOST_STEPS = 40
CUT_MARK = ">"
_LONGEST_TEXT = 16
_SMALLEST_STEP_BAR = 10
_BETWEEN_ENTRIES = Part("   ")

_OTHER_STYLE = "reverse"
_EDGES = "|:!"
"""Start of the bars for the first kind of step, the second, and all others."""


class Bar(Struct, frozen=True):
    """One step: milliseconds by category in chart order, and their sum (None: unknown)."""

    label: str
    values: tuple[float, ...]
    total: float | None
    flag: str
    edge: str
    """Start of the bar, by kind of step."""


def step_chart_lines(chart: StepChart, width: int) -> list[Line]:
    """Return the bars and the legend as styled lines of at most `width` cells, without the title."""
    if not chart.labels:
        return [line_of("no steps")]
    totals = [0.0] * len(chart.labels)
    for values in chart.series.values():
        totals = [total + (value or 0.0) for total, value in zip(totals, values, strict=True)]
    shown = shown_steps(totals, chart.flags)
    series = chart.series.items()
    present = {title: values for title, values in series if any((values[step] or 0.0) > 0.0 for step in shown)}
    chart = replace(chart, series=present or chart.series)
    marks = category_marks(tuple(chart.series))
    bars = [_step_bar(chart, step) for step in shown]
    lines = _bar_lines(bars, marks, width=width)
    if len(bars) < len(chart.labels):
        lines.append(line_of(f"{len(bars)} of {len(chart.labels):,} steps shown"))
    names = [Part(f" {shorten(safe(title), width - 2, mark=PLAIN_ELLIPSIS)}") for title in present]
    return lines + _in_lines([[mark, name] for mark, name in zip(marks, names, strict=False)], width)


def category_marks(titles: Sequence[str]) -> tuple[Part, ...]:
    """Return a letter per category in its color: the usual one, else the first unused letter of its title.

    Without device compute, host compute has its mark.
    """
    taken, marks = {style.letter for style in CATEGORY_STYLES.values()}, list[Part]()
    has_device = any(title.casefold() == "device compute" for title in titles)
    for title in titles:
        name = title.casefold()
        style = CATEGORY_STYLES.get("device compute" if name == "host compute" and not has_device else name)
        if style is not None and all(mark.text != style.letter for mark in marks):
            marks.append(Part(style.letter, style.look))
            continue
        in_title = [char for char in title if char.isascii() and char.isalnum()]
        free = (char for char in [*in_title, *_SPARE_LETTERS] if char not in taken)
        marks.append(Part(next(free, "#"), _OTHER_STYLE))
        taken.add(marks[-1].text)
    return tuple(marks)


def shown_steps(totals: Sequence[float], flags: Sequence[str]) -> list[int]:
    """Return the steps to show: all, or an even sample with the first, the last and the slowest."""
    count = len(totals)
    if count <= MOST_STEPS:
        return list(range(count))
    sample = {round(number * (count - 1) / (MOST_STEPS - 1)) for number in range(MOST_STEPS)}
    unflagged = [step for step, flag in enumerate(flags) if not flag] or range(count)
    needed = {0, count - 1, *(max(steps, key=totals.__getitem__) for steps in (unflagged, range(count)))}
    for step in sorted(needed - sample):
        sample.remove(min(sample - needed, key=lambda other: abs(other - step)))
        sample.add(step)
    return sorted(sample)


def apportion(values: Sequence[float], size: int) -> list[int]:
    """Split `size` cells in proportion to the values, by largest remainder."""
    total = sum(values)
    if not total > 0:
        return [0] * len(values)
    exact = [value / total * size for value in values]
    counts = [int(share) for share in exact]
    by_remainder = sorted(range(len(values)), key=lambda place: counts[place] - exact[place])
    for place in by_remainder[: max(size - sum(counts), 0)]:
        counts[place] += 1
    return counts


def _step_bar(chart: StepChart, step: int) -> Bar:
    items = [plain(values[step]) for values in chart.series.values()]
    values = tuple(max(float(item), 0.0) if isinstance(item, (int, float)) else 0.0 for item in items)
    is_known = any(item is not None for item in items) and math.isfinite(sum(values))
    kinds = [*dict.fromkeys(chart.kinds)]
    kind = f"{chart.kinds[step]} " if kinds else ""
    return Bar(
        label=_short(kind + chart.labels[step]),
        values=values,
        total=sum(values) if is_known else None,
        flag=_short(chart.flags[step]),
        edge=_EDGES[min(kinds.index(chart.kinds[step]), len(_EDGES) - 1)] if kinds else _EDGES[0],
    )


def _short(text: str) -> str:
    return shorten(safe(text), _LONGEST_TEXT, mark=PLAIN_ELLIPSIS)


def _bar_lines(bars: Sequence[Bar], marks: Sequence[Part], *, width: int) -> list[Line]:
    totals = [UNKNOWN if bar.total is None else format_ms(bar.total) for bar in bars]
    left = max(4, *(cells(bar.label) for bar in bars))
    right = max(2, *map(len, totals))
    flags = max(cells(bar.flag) for bar in bars)
    room = max(width - left - right - flags - 4 - 2 * any(bar.flag for bar in bars), _SMALLEST_STEP_BAR)
    scale = max((bar.total or 0.0 for bar in bars if not bar.flag), default=0.0)
    scale = scale or max(bar.total or 0.0 for bar in bars)
    lines: list[Line] = [line_of(f"{'step':>{left}}  {'':{room}}  {'ms':>{right}}", "dim")]
    for bar, total in zip(bars, totals, strict=True):
        drawn = _bar_parts(bar, marks, scale=scale, room=room)
        label = Part(f"{' ' * (left - cells(bar.label))}{bar.label} {bar.edge}")
        space = Part(f"{' ' * (room - width_of(drawn))}  {total:>{right}}")
        lines.append([label, *drawn, space, Part(f"  {bar.flag}" if bar.flag else "", "dim")])
    return lines


def _bar_parts(bar: Bar, marks: Sequence[Part], *, scale: float, room: int) -> list[Part]:
    if bar.total is None or scale <= 0:
        return []
    is_cut = bar.total > scale
    size = room - len(CUT_MARK) if is_cut else round(bar.total / scale * room)
    within: list[float] = []
    for value in bar.values:
        within.append(min(value, max(scale - sum(within), 0.0)))
    counts = apportion(within, size)
    parts = [Part(mark.text * count, mark.style) for mark, count in zip(marks, counts, strict=True)]
    return [*parts, Part(CUT_MARK)] if is_cut else parts


def _in_lines(entries: Sequence[list[Part]], width: int) -> list[Line]:
    """Return the entries of a legend in lines, broken between entries."""
    lines: list[list[Part]] = []
    for entry in entries:
        if lines and width_of([*lines[-1], _BETWEEN_ENTRIES, *entry]) <= width:
            lines[-1] += [_BETWEEN_ENTRIES, *entry]
        else:
            lines.append([*entry])
    return list(lines)


_BAR, _NARROW_BAR, _NARROW = 16, 8, 70
_INDENT = "  "
_SMALLEST_NAME = 20
"""Minimum room for names, which limits the indentation."""


class _Row(Struct, frozen=True, kw_only=True):
    """A box, or a chain of boxes with a single child each, with all their names."""

    name: str
    level: int
    width: float


def icicle_lines(chart: FlameChart, width: int, *, interactive: bool) -> list[Line]:
    """Return the tree as lines of at most `width` cells, and the omitted share."""
    whole = chart.widths[0] if chart.widths else 0.0
    if whole <= 0:
        return [line_of("nothing to show")]
    boxes = [box for box, size in enumerate(chart.widths) if size >= SMALLEST_SHARE * whole]
    rows = _rows(chart, boxes)
    shares = [f"{format_percent(100 * row.width / whole)}%" for row in rows]
    values = [cell_text(row.width, chart.unit) for row in rows]
    right = max(cells(chart.unit), *map(cells, values))
    mark = ELLIPSIS if interactive else PLAIN_ELLIPSIS
    size = _BAR if width >= _NARROW else _NARROW_BAR
    lines: list[Line] = [line_of(f"{'share':>6} {chart.unit:>{right}}", "dim")]
    for row, share, value in zip(rows, shares, values, strict=True):
        bar = bar_text(row.width / whole, size, interactive=interactive).ljust(size)
        start = f"{share:>6} {' ' * (right - cells(value))}{value}  "
        room = width - cells(start) - size - len(_INDENT)
        indent = _INDENT * min(row.level, max(room - _SMALLEST_NAME, 0) // len(_INDENT))
        name = shorten(safe(row.name), max(room - len(indent), 1), mark=mark)
        lines.append((Part(start), Part(bar, "cyan"), Part(f"{_INDENT}{indent}{name}")))
    return [*lines, *_cut_lines(chart, boxes, whole)]


def _rows(chart: FlameChart, boxes: Sequence[int]) -> list[_Row]:
    """Return a row per box; an only child as large as its parent shares the parent's row."""
    rows: list[_Row] = []
    levels: list[int] = []  # of the parent rows, by depth of the boxes
    for box in boxes:
        depth = chart.depths[box]
        del levels[depth:]
        name = chart.labels[box]
        # The root is the title, so it has its own row.
        if depth > 1 and rows and chart.widths[box - 1] == chart.widths[box] and chart.depths[box - 1] == depth - 1:
            rows[-1] = _Row(name=f"{rows[-1].name}/{name}", level=rows[-1].level, width=rows[-1].width)
            levels.append(rows[-1].level)
            continue
        level = levels[-1] + 1 if levels else 0
        rows.append(_Row(name=name, level=level, width=chart.widths[box]))
        levels.append(level)
    return rows


def _cut_lines(chart: FlameChart, boxes: Sequence[int], whole: float) -> list[Line]:
    """Return how much is in omitted boxes: the part of each parent that is neither its own nor shown."""
    cut = len(chart.widths) + chart.omitted - len(boxes)
    if not cut:
        return []
    own = sum(chart.own[box] for box in boxes)
    value = max(whole - own, 0.0)
    text = f"Omitted: {counted(cut, 'row')} below {SMALLEST_SHARE:.0%}, {measure_text(value, chart.unit)} in total"
    return [line_of(f"{text} ({format_percent(100 * value / whole)}%).", "dim")]


SPARK_BLOCKS, SPARK_ASCII = "▁▂▃▄▅▆▇█", "_.-~=+*#"
