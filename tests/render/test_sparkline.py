"""A value over time in one row of cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.render.sparkline import sparkline_text
from tfperf.report.model import Sparkline


def series(*points: tuple[float, float], high: float = 8.0) -> Sparkline:
    """Return values from 0 to `high`, given as time and value."""
    return Sparkline(
        title="Memory",
        times=tuple(time for time, _ in points),
        values=tuple(value for _, value in points),
        low=0.0,
        high=high,
    )


def test_a_value_holds_until_the_next() -> None:
    rising = series((0.0, 0.0), (2.0, 8.0), (4.0, 8.0))
    assert sparkline_text(rising, 4, interactive=True) == "▁▁██"
    assert sparkline_text(rising, 4, interactive=False) == "__##"


def test_of_each_stretch_of_time_the_largest_value_is_drawn() -> None:
    peak = series((0.0, 1.0), (2.1, 8.0), (2.2, 1.0), (8.0, 1.0))
    assert sparkline_text(peak, 4, interactive=False) == ".#.."


@pytest.mark.parametrize(
    ("line", "expected"), [(series(), ""), (series((5.0, 0.0)), "__"), (series((0.0, 0.0), (1.0, 0.0), high=0.0), "__")]
)
def test_few_values_and_no_scale(line: Sparkline, expected: str) -> None:
    assert sparkline_text(line, 2, interactive=False) == expected


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats()), max_size=30), st.integers(1, 100))
def test_it_is_never_wider_than_asked(points: list[tuple[float, float]], width: int) -> None:
    assert len(sparkline_text(series(*sorted(points)), width, interactive=True)) <= width
