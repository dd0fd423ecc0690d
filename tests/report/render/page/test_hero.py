"""Cards of causes and the line of steps, as numbers and words."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from tfperf.report.model import Card, Change, SegmentBar
from tfperf.report.render.page.hero import HEIGHT, WIDTH, label_width, page_cards, spark_of


def card(after: tuple[float, float] | None = (7.66, 9.04), before: float = 10.4, whole: str = "step") -> Card:
    """Return a card of copies that take 2.77 ms of a step."""
    return Card(
        code="input_copy",
        title="Copying batches to the device",
        role="copy",
        severity="problem",
        cost="26.6% of the step: 2.77 ms",
        detail="1.26 MB per copy on average",
        confidence="high",
        whole=whole,
        before=before,
        saved=(1.39, 2.77),
        changes=(Change(text="prefetch", after=after),),
    )


@pytest.mark.parametrize(
    ("after", "text"),
    [
        ((7.66, 9.04), "10.4 \u2192 7.66 to 9.04 ms, 13 to 26% less"),
        ((5.2, 5.2), "10.4 \u2192 5.20 ms, 50% less"),
        ((10.2, 10.3), "10.4 \u2192 10.2 to 10.3 ms, 1.0 to 1.9% less"),
        ((9.0, 11.0), "10.4 \u2192 9.00 to 11.0 ms, 13% less to 5.8% more"),
    ],
)
def test_an_effect_says_before_after_and_the_difference(after: tuple[float, float], text: str) -> None:
    (effect,) = page_cards([card(after)])[0].effects
    assert effect is not None
    assert effect.text == text


def test_no_estimate_has_no_effect() -> None:
    assert page_cards([card(None)])[0].effects == (None,)


def test_cards_of_one_whole_share_an_axis_and_have_their_own_ids() -> None:
    evaluation = card((2.0, 4.0), 5.0, "evaluation step")
    first, second, third = page_cards([card((5.2, 20.8)), card((7.8, 10.4)), evaluation])
    assert [each.id for each in (first, second, third)] == [
        "cause-input_copy",
        "cause-input_copy-2",
        "cause-input_copy-3",
    ]
    assert [each.end for each in (first, second, third)] == ["20.8 ms", "20.8 ms", "5.00 ms"]
    assert [each.effects[0] and each.effects[0][1:] for each in (first, second, third)] == [
        (25.0, 100.0, 50.0),
        (37.5, 50.0, 50.0),
        (40.0, 80.0, 100.0),
    ]


BAR = SegmentBar(
    title="Step by cause",
    short_title="step",
    unit="ms",
    total=2.0,
    segments=(),
    spread=(1.0, 2.0, 4.0),
    values=(1.0, 2.0, 4.0),
)


def test_a_line_has_each_step_on_an_axis_around_them() -> None:
    spark = spark_of(BAR)
    assert spark is not None
    assert spark.points == "0.0,40.0 500.0,26.67 1000.0,0.0"
    assert (spark.bottom, spark.middle, spark.top) == (40.0, 26.67, 0.0)
    assert spark.words == "3 averaged steps, 1.00 to 4.00 ms: p5 1.00, median 2.00, p95 4.00 ms"


def test_steps_that_look_the_same_are_one_number() -> None:
    spark = spark_of(replace(BAR, values=(784.01, 784.2, 784.3), spread=(784.01, 784.2, 784.3)))
    assert spark is not None
    assert spark.words == "3 averaged steps, each 784 ms"


def test_small_differences_do_not_fill_the_axis() -> None:
    spark = spark_of(replace(BAR, values=(100.0, 100.1), spread=(100.0, 100.0, 100.1)))
    assert spark is not None
    heights = [float(point.split(",")[1]) for point in spark.points.split()]
    assert heights == pytest.approx([20.0, 20.0], abs=0.5)


@pytest.mark.parametrize(
    ("text", "percent", "hundreds"),
    [("4.4%", 4.4, 14), ("4.4%", 50.0, 2), ("24.4 to 24.5%", 24.0, 7), ("1%", 0.0, 3700)],
)
def test_a_label_needs_room_in_its_segment(text: str, percent: float, hundreds: int) -> None:
    assert label_width(text, percent) == hundreds


def test_a_long_line_keeps_its_longest_step() -> None:
    spark = spark_of(replace(BAR, values=(1.0,) * 700 + (8.0,) + (1.0,) * 300))
    assert spark is not None
    points = [tuple(map(float, point.split(","))) for point in spark.points.split()]
    assert len(points) <= 300
    assert min(height for _, height in points) == 0.0
    assert (points[0][0], points[-1][0], HEIGHT) == (0.0, WIDTH, 40.0)


@pytest.mark.parametrize("bar", [replace(BAR, spread=None), replace(BAR, values=(1.0, math.nan))])
def test_without_steps_there_is_no_line(bar: SegmentBar) -> None:
    assert spark_of(bar) is None
