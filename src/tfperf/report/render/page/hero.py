"""The first screen of a page: cards of causes with their changes on one scale, and the steps behind a bar."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tfperf.base.units import format_ms, format_percent
from tfperf.report.model import Card, Change, SegmentBar

_MOST_POINTS = 300
"""Steps of a sparkline; of more, the longest of each few is drawn."""
WIDTH, HEIGHT = 1_000.0, 40.0
"""Size of a sparkline in its own units."""


class Effect(NamedTuple):
    """A change in words, and its times as percentages of the longest time on the axis."""

    text: str
    best: float
    worst: float
    before: float


class PageCard(NamedTuple):
    """A card with its id, the effects of its changes (None: no estimate), and the end of its axis in ms."""

    id: str
    card: Card
    effects: tuple[Effect | None, ...]
    end: str


class Spark(NamedTuple):
    """All steps as points of a line, with the band from the 5th to the 95th percentile and the median."""

    points: str
    top: float
    middle: float
    bottom: float
    words: str


def page_cards(cards: Sequence[Card]) -> list[PageCard]:
    """Return the cards; those of the same whole (step, evaluation step, wall time) share an axis from 0."""
    ends: dict[str, float] = {}
    for card in cards:
        times = [card.before, *(each.after[1] for each in card.changes if each.after is not None)]
        ends[card.whole] = max(ends.get(card.whole, 0.0), *filter(math.isfinite, times))
    codes = Counter[str]()
    parts = []
    for card in cards:
        codes[card.code] += 1
        number = f"-{codes[card.code]}" if codes[card.code] > 1 else ""
        end = ends[card.whole]
        effects = tuple(_effect(card.before, change, end) for change in card.changes)
        parts.append(PageCard(f"cause-{card.code}{number}", card, effects, f"{format_ms(end)} ms"))
    return parts


def _effect(before: float, change: Change, end: float) -> Effect | None:
    if change.after is None or not before > 0.0:
        return None
    best, worst = change.after
    times = [format_ms(best), format_ms(worst)]
    then = times[0] if times[0] == times[1] else " to ".join(times)
    text = f"{format_ms(before)} \u2192 {then} ms{change.of}, {_less(before, best, worst)}"
    return Effect(text, *(round(100.0 * min(time / end, 1.0), 2) for time in (best, worst, before)))


def _less(before: float, best: float, worst: float) -> str:
    most, least = 100.0 * (1.0 - best / before), 100.0 * (1.0 - worst / before)
    if least < 0.0:
        return f"{_percent(max(most, 0.0))}% less to {_percent(-least)}% more"
    low, high = _percent(least), _percent(most)
    return f"{low}% less" if low == high else f"{low} to {high}% less"


def _percent(value: float) -> str:
    return f"{value:.0f}" if value >= 9.5 else format_percent(value)


def spark_of(bar: SegmentBar) -> Spark | None:
    """Return the steps of a bar as a line on an axis from 0; None without them."""
    values = [value for value in bar.values if math.isfinite(value)]
    if bar.spread is None or len(values) < 2:
        return None
    size = -(-len(values) // _MOST_POINTS)
    drawn = [max(values[first : first + size]) for first in range(0, len(values), size)]
    end = max(*drawn, *bar.spread) or 1.0
    # A line has two points.
    across = WIDTH / max(len(drawn) - 1, 1)
    points = " ".join(f"{place * across:.1f},{_height(value, end)}" for place, value in enumerate(drawn))
    low, middle, high = map(format_ms, bar.spread)
    words = f"{len(values):,} averaged steps: p5 {low}, median {middle}, p95 {high} ms"
    bottom, median, top = (_height(value, end) for value in bar.spread)
    return Spark(points, top, median, bottom, words)


def _height(value: float, end: float) -> float:
    return round(HEIGHT * (1.0 - value / end), 2)
