"""Texts, places and colours of boxes."""

from __future__ import annotations

import pytest

from tfperf.report.flame_tree import FlameScale, flame_chart, flame_tree
from tfperf.report.model import FlameChart
from tfperf.report.render.flame.boxes import ROW_HEIGHT, changed_percent, flame_boxes, height_of

MS = FlameScale(unit="ms", divisor=1000, separator="/")


def chart_of(now: dict[tuple[str, ...], int], before: dict[tuple[str, ...], int] | None = None) -> FlameChart:
    return flame_chart(flame_tree(now, before), "a title", MS, most=100)


def test_places_are_percent_and_texts_have_units() -> None:
    _, layer, op, loss = flame_boxes(chart_of({("m", "op"): 3000, ("loss",): 1000}))
    assert (layer.name, layer.label, layer.level, layer.x, layer.width) == ("m", "m", 1, "0", "75")
    assert (layer.total, layer.share, layer.own, layer.own_share) == ("3.00 ms", "75.0", "0.000 ms", "0.0")
    assert (op.name, op.label, op.own, op.change) == ("m/op", "op", "3.00 ms", "")
    assert (loss.x, loss.width, loss.share) == ("75", "25", "25.0")


def test_layers_of_one_class_look_alike() -> None:
    boxes = list(flame_boxes(chart_of({("dense_1",): 2, ("dense_2",): 1})))
    assert boxes[1].colour == boxes[2].colour
    assert boxes[1].colour[0] == "c"


@pytest.mark.parametrize(
    ("now", "before", "colour", "change"),
    [
        (1000, 1000, "same", "before 1.00 ms (0.0%)"),
        (1000, 985, "same", "before 0.985 ms (+1.5%)"),
        (1000, 950, "more1", "before 0.950 ms (+5.3%)"),
        (1000, 400, "more3", "before 0.400 ms (+150.0%)"),
        (1000, 0, "more4", "before: none"),
        (800, 1000, "less2", "before 1.00 ms (-20.0%)"),
        (100, 1000, "less4", "before 1.00 ms (-90.0%)"),
    ],
)
def test_red_is_slower_and_blue_is_faster(now: int, before: int, colour: str, change: str) -> None:
    box = list(flame_boxes(chart_of({("op",): now}, {("op",): before})))[1]
    assert (box.colour, box.change) == (colour, change)


def test_nothing_before_has_no_percent() -> None:
    assert changed_percent(5, 0) is None
    assert changed_percent(5, 4) == 25


def test_the_height_is_that_of_all_levels() -> None:
    assert height_of(chart_of({("a", "b"): 1})) == 3 * ROW_HEIGHT
