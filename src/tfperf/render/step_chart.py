"""The step chart: one bar of letters per step, so that it reads without colour, in a log and in a CI comment.

The longest step that is not flagged fills the width. A flagged step (a partial or a retraced one) that is
longer is cut there and ends with `>`, so that one odd step does not press all others flat.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from tfperf.render.text import PLAIN_ELLIPSIS, cells, safe, shorten
from tfperf.render.values import NOT_KNOWN, plain
from tfperf.report.model import StepChart
from tfperf.units import format_ms

MOST_STEPS = 40
CUT_MARK = ">"
_LONGEST_TEXT = 16
_SMALLEST_BAR = 10

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


@dataclass(frozen=True, slots=True)
class Bar:
    """One step: milliseconds by category in the order of the chart, and their sum (None: not known)."""

    label: str
    values: tuple[float, ...]
    total: float | None
    flag: str = ""


def chart_lines(chart: StepChart, width: int) -> list[Text]:
    """Return the bars and the legend as styled lines of at most `width` cells, without the title."""
    letters = category_letters(tuple(chart.series))
    if not chart.labels:
        return [Text("no steps")]
    bars = [_bar(chart, at) for at in shown_steps(_totals(chart), chart.flags)]
    legend = _legend(chart, letters, bars=bars, width=width)
    return [*_bar_lines(bars, letters, width=width), *_remarks(len(chart.labels), bars), *legend]


def chart_text(chart: StepChart, width: int) -> str:
    """Return the chart as plain text."""
    return "\n".join(line.plain.rstrip() for line in chart_lines(chart, width))


def category_letters(titles: Sequence[str]) -> tuple[str, ...]:
    """Return one letter per category: the usual one, else the first of its own letters that is free."""
    usual = [_LETTERS.get(title.casefold(), "") for title in titles]
    taken = set(_LETTERS.values())
    chosen: list[str] = []
    for title, letter in zip(titles, usual, strict=True):
        own = [char for char in title if char.isascii() and char.isalnum()]
        free = (char for char in [*own, *string.ascii_letters, *string.digits] if char not in taken)
        chosen.append(letter if letter and letter not in chosen else next(free, "#"))
        taken.add(chosen[-1])
    return tuple(chosen)


def _totals(chart: StepChart) -> list[float]:
    """Return the length of each step, as far as it is known."""
    totals = [0.0] * len(chart.labels)
    for values in chart.series.values():
        totals = [total + (value or 0.0) for total, value in zip(totals, values, strict=True)]
    return totals


def shown_steps(totals: Sequence[float], flags: Sequence[str]) -> list[int]:
    """Return which steps to show: all, or an even sample with the first, the last and the slowest."""
    count = len(totals)
    if count <= MOST_STEPS:
        return list(range(count))
    sample = {round(at * (count - 1) / (MOST_STEPS - 1)) for at in range(MOST_STEPS)}
    needed = {0, count - 1, *_slowest(totals, flags)}
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
    by_remainder = sorted(range(len(values)), key=lambda at: counts[at] - exact[at])
    for at in by_remainder[: max(size - sum(counts), 0)]:
        counts[at] += 1
    return counts


def _bar(chart: StepChart, at: int) -> Bar:
    """Return step number `at` of the chart; what is not known takes no room."""
    found = [plain(values[at]) for values in chart.series.values()]
    values = tuple(max(float(value), 0.0) if isinstance(value, (int, float)) else 0.0 for value in found)
    known = any(value is not None for value in found) and math.isfinite(sum(values))
    return Bar(
        label=shorten(safe(chart.labels[at]), _LONGEST_TEXT, mark=PLAIN_ELLIPSIS),
        values=values,
        total=sum(values) if known else None,
        flag=shorten(safe(chart.flags[at]), _LONGEST_TEXT, mark=PLAIN_ELLIPSIS) if chart.flags else "",
    )


def _slowest(totals: Sequence[float], flags: Sequence[str]) -> set[int]:
    """Return the slowest step of all and the slowest that is not flagged, which sets the scale."""
    plain_steps = [at for at, flag in enumerate(flags) if not flag] or list(range(len(totals)))
    return {max(steps, key=totals.__getitem__) for steps in (plain_steps, range(len(totals)))}


def _bar_lines(bars: Sequence[Bar], letters: Sequence[str], *, width: int) -> list[Text]:
    """Return a heading and one line per bar: label, bar, milliseconds, flag."""
    totals = [NOT_KNOWN if bar.total is None else format_ms(bar.total) for bar in bars]
    left = max(4, *(cells(bar.label) for bar in bars))
    right = max(2, *map(len, totals))
    flags = max(cells(bar.flag) for bar in bars)
    room = max(width - left - right - flags - 4 - 2 * any(bar.flag for bar in bars), _SMALLEST_BAR)
    scale = max((bar.total or 0.0 for bar in bars if not bar.flag), default=0.0)
    scale = scale or max(bar.total or 0.0 for bar in bars)
    lines = [Text(f"{'step':>{left}}  {'':{room}}  {'ms':>{right}}", style="dim")]
    for bar, total in zip(bars, totals, strict=True):
        line = Text(" " * (left - cells(bar.label)) + bar.label + " |")
        line.append_text(_cells_of(bar, letters, scale=scale, room=room))
        line.append(" " * (left + 2 + room - line.cell_len))
        line.append(f"  {total:>{right}}").append(f"  {bar.flag}" if bar.flag else "", style="dim")
        lines.append(line)
    return lines


def _cells_of(bar: Bar, letters: Sequence[str], *, scale: float, room: int) -> Text:
    """Return the bar's letters; one that is longer than the scale is cut and says so."""
    text = Text()
    if bar.total is None or scale <= 0:
        return text
    cut = bar.total > scale
    size = room - len(CUT_MARK) if cut else round(bar.total / scale * room)
    for letter, count in zip(letters, apportion(_within(bar.values, scale), size), strict=True):
        text.append(letter * count, style=_STYLES.get(letter, "reverse"))
    return text.append(CUT_MARK) if cut else text


def _within(values: Sequence[float], limit: float) -> list[float]:
    """Return the values as far as their running sum stays within the limit."""
    kept: list[float] = []
    for value in values:
        kept.append(min(value, max(limit - sum(kept), 0.0)))
    return kept


def _remarks(count: int, shown: Sequence[Bar]) -> list[Text]:
    """Say which steps are left out."""
    return [Text(f"{len(shown)} of {count:,} steps shown")] if len(shown) < count else []


def _legend(chart: StepChart, letters: Sequence[str], *, bars: Sequence[Bar], width: int) -> list[Text]:
    """Return `I Input  D Device compute ...` for the categories that occur, broken between entries."""
    lines: list[Text] = []
    for at, (title, letter) in enumerate(zip(chart.series, letters, strict=True)):
        if not any(bar.values[at] for bar in bars):
            continue
        name = shorten(safe(title), width - 2, mark=PLAIN_ELLIPSIS)
        entry = Text.assemble((letter, _STYLES.get(letter, "reverse")), f" {name}")
        if lines and lines[-1].cell_len + 3 + entry.cell_len <= width:
            lines[-1].append("   ").append_text(entry)
        else:
            lines.append(entry)
    return lines
