"""The first screen of a page: cards of causes with their changes on one scale, and the steps behind a bar."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tfperf.base.units import format_ms, format_percent, format_range
from tfperf.report.model import Card, Change, SegmentBar

_MOST_POINTS = 300
"""Steps of a sparkline; of more, the longest of each few is drawn."""
_LEAST_MARGIN = 0.1
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
    """All steps as points of a line, with the band from the 5th to the 95th percentile and the median.

    The axis begins below the shortest step, because a step is rarely much shorter than others.
    """

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
    then = format_range(best, worst)
    if then == format_ms(before):
        return None
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


_LETTER_PX, _MARGIN_PX = 10.5, 16.0


def label_width(text: str, percent: float) -> int:
    """Return the least width of a bar, in hundreds of pixels, at which a segment of it has room for its label."""
    return math.ceil((_LETTER_PX * len(text) + _MARGIN_PX) / max(percent, 0.01))


def spark_of(bar: SegmentBar) -> Spark | None:
    """Return the steps of a bar as a line on an axis around them; None without them."""
    values = [value for value in bar.values if math.isfinite(value)]
    if bar.spread is None or len(values) < 2:
        return None
    size = -(-len(values) // _MOST_POINTS)
    drawn = [max(values[first : first + size]) for first in range(0, len(values), size)]
    low, middle, high = bar.spread
    # Differences of a few percent do not fill the axis.
    begin = min(*drawn, low, (1.0 - _LEAST_MARGIN) * middle)
    end = max(*drawn, high, (1.0 + _LEAST_MARGIN) * middle)

    def height(value: float) -> float:
        return round(HEIGHT * (end - value) / (end - begin), 2) if end > begin else HEIGHT

    # A line has two points.
    across = WIDTH / max(len(drawn) - 1, 1)
    points = " ".join(f"{place * across:.1f},{height(value)}" for place, value in enumerate(drawn))
    shortest, longest = format_ms(min(values)), format_ms(max(values))
    p5, p50, p95 = map(format_ms, bar.spread)
    words = f"{len(values):,} averaged steps, {shortest} to {longest} ms: p5 {p5}, median {p50}, p95 {p95} ms"
    if shortest == longest:
        words = f"{len(values):,} averaged steps, each {shortest} ms"
    return Spark(points, height(high), height(middle), height(low), words)
