"""The step chart: one bar of letters per step, so that it reads without colour, in a log and in a CI comment.

The longest step without a flag fills the width. A flagged step (a partial or a retraced one) that is longer is cut
there and ends with `>`, so that one unusual step does not make all other bars tiny.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import NamedTuple

from tfperf.render.safe_text import safe
from tfperf.render.text_fitting import PLAIN_ELLIPSIS, Line, Part, cells, line_of, shorten, width_of
from tfperf.render.values import UNKNOWN, plain
from tfperf.report.model import StepChart
from tfperf.units import format_ms

MOST_STEPS = 40
CUT_MARK = ">"
_LONGEST_TEXT = 16
_SMALLEST_BAR = 10
_BETWEEN_ENTRIES = Part("   ")

_LETTERS = {
    "input": "I",
    "input wait": "I",
    "host to device": "H",
    "rest of the step": ".",
    "kernel launch": "L",
    "host compute": "h",
    "device compute": "D",
    "all others": ".",
    "compilation": "C",
    "output": "O",
    "collectives": "A",
    "device collectives": "A",
    "device collective communication": "A",
    "device to device": "d",
}

_STYLES = {
    "I": "black on red",
    "L": "black on magenta",
    "h": "black on yellow",
    "D": "black on green",
    ".": "dim",
    "C": "black on bright_red",
    "O": "black on bright_blue",
    "A": "black on cyan",
    "d": "black on bright_cyan",
    "H": "black on bright_magenta",
}
_OTHER_STYLE = "reverse"


class Bar(NamedTuple):
    """One step: milliseconds by category in the order of the chart, and their sum (None: unknown)."""

    label: str
    values: tuple[float, ...]
    total: float | None
    flag: str


def step_chart_lines(chart: StepChart, width: int) -> list[Line]:
    """Return the bars and the legend as styled lines of at most `width` cells, without the title."""
    if not chart.labels:
        return [line_of("no steps")]
    letters = category_letters(tuple(chart.series))
    totals = [0.0] * len(chart.labels)
    for values in chart.series.values():
        totals = [total + (value or 0.0) for total, value in zip(totals, values, strict=True)]
    bars = [_bar(chart, step) for step in shown_steps(totals, chart.flags)]
    lines = _bar_lines(bars, letters, width=width)
    if len(bars) < len(chart.labels):
        lines.append(line_of(f"{len(bars)} of {len(chart.labels):,} steps shown"))
    categories = enumerate(zip(letters, chart.series, strict=True))
    present = [category for column, category in categories if any(bar.values[column] for bar in bars)]
    return lines + _legend(present, width)


def category_letters(titles: Sequence[str]) -> tuple[str, ...]:
    """Return one letter per category: the usual one, else the first letter of its title that is free."""
    taken = set(_LETTERS.values())
    chosen: list[str] = []
    for title in titles:
        usual = _LETTERS.get(title.casefold(), "")
        in_title = [char for char in title if char.isascii() and char.isalnum()]
        free = (char for char in [*in_title, *string.ascii_letters, *string.digits] if char not in taken)
        chosen.append(usual if usual and usual not in chosen else next(free, "#"))
        taken.add(chosen[-1])
    return tuple(chosen)


def shown_steps(totals: Sequence[float], flags: Sequence[str]) -> list[int]:
    """Return which steps to show: all, or an even sample with the first, the last and the slowest."""
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
    """Split `size` cells in proportion to the values, whole cells first, the rest by largest remainder."""
    total = sum(values)
    if not total > 0:
        return [0] * len(values)
    exact = [value / total * size for value in values]
    counts = [int(share) for share in exact]
    by_remainder = sorted(range(len(values)), key=lambda place: counts[place] - exact[place])
    for place in by_remainder[: max(size - sum(counts), 0)]:
        counts[place] += 1
    return counts


def _bar(chart: StepChart, step: int) -> Bar:
    """Return one step of the chart; unknown values take no room."""
    items = [plain(values[step]) for values in chart.series.values()]
    values = tuple(max(float(item), 0.0) if isinstance(item, (int, float)) else 0.0 for item in items)
    is_known = any(item is not None for item in items) and math.isfinite(sum(values))
    return Bar(
        label=_short(chart.labels[step]),
        values=values,
        total=sum(values) if is_known else None,
        flag=_short(chart.flags[step]) if chart.flags else "",
    )


def _short(text: str) -> str:
    return shorten(safe(text), _LONGEST_TEXT, mark=PLAIN_ELLIPSIS)


def _bar_lines(bars: Sequence[Bar], letters: Sequence[str], *, width: int) -> list[Line]:
    """Return a heading and one line per bar: label, bar, milliseconds, flag."""
    totals = [UNKNOWN if bar.total is None else format_ms(bar.total) for bar in bars]
    left = max(4, *(cells(bar.label) for bar in bars))
    right = max(2, *map(len, totals))
    flags = max(cells(bar.flag) for bar in bars)
    room = max(width - left - right - flags - 4 - 2 * any(bar.flag for bar in bars), _SMALLEST_BAR)
    scale = max((bar.total or 0.0 for bar in bars if not bar.flag), default=0.0)
    scale = scale or max(bar.total or 0.0 for bar in bars)
    lines: list[Line] = [line_of(f"{'step':>{left}}  {'':{room}}  {'ms':>{right}}", "dim")]
    for bar, total in zip(bars, totals, strict=True):
        drawn = _bar_parts(bar, letters, scale=scale, room=room)
        label = Part(f"{' ' * (left - cells(bar.label))}{bar.label} |")
        space = Part(f"{' ' * (room - width_of(drawn))}  {total:>{right}}")
        lines.append([label, *drawn, space, Part(f"  {bar.flag}" if bar.flag else "", "dim")])
    return lines


def _bar_parts(bar: Bar, letters: Sequence[str], *, scale: float, room: int) -> list[Part]:
    """Return the bar's letters; a bar that is longer than the scale is cut and ends with a mark."""
    if bar.total is None or scale <= 0:
        return []
    is_cut = bar.total > scale
    size = room - len(CUT_MARK) if is_cut else round(bar.total / scale * room)
    within: list[float] = []
    for value in bar.values:
        within.append(min(value, max(scale - sum(within), 0.0)))
    counts = apportion(within, size)
    widths = zip(letters, counts, strict=True)
    parts = [Part(letter * count, _STYLES.get(letter, _OTHER_STYLE)) for letter, count in widths]
    return [*parts, Part(CUT_MARK)] if is_cut else parts


def _legend(categories: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """Return `I Input   D Device compute ...`, broken between entries."""
    lines: list[list[Part]] = []
    for letter, title in categories:
        name = shorten(safe(title), width - 2, mark=PLAIN_ELLIPSIS)
        entry = [Part(letter, _STYLES.get(letter, _OTHER_STYLE)), Part(f" {name}")]
        if lines and width_of([*lines[-1], _BETWEEN_ENTRIES, *entry]) <= width:
            lines[-1] += [_BETWEEN_ENTRIES, *entry]
        else:
            lines.append(entry)
    return list(lines)
