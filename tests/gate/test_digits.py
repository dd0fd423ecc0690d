"""Numbers that are shown compare as they are."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfperf.gate.digits import shown_together
from tfperf.units import Unit

UNITS: tuple[Unit, ...] = ("ms", "us", "ps", "%", "count", "bytes", "")
SIZES = {"B": 1, **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGTPE", start=1)}}


@pytest.mark.parametrize(
    ("measured", "bound", "unit", "texts"),
    [
        (63.4123, 10.0, "%", ("63.4", "10.0")),
        (10.0, 10.0, "%", ("10.0", "10.0")),
        (10.004, 10.0, "%", ("10.004", "10.000")),
        (9.96, 10.0, "%", ("9.96", "10.00")),
        (100.0, 99.99, "%", ("100.00", "99.99")),
        (0.0, 0.001, "%", ("0.000", "0.001")),
        (0.04, 0.05, "%", ("0.04", "0.05")),
        (63.4, 12.34, "%", ("63.40", "12.34")),
        (49.96, 50.0, "ms", ("49.96", "50.00")),
        (1234.5, 50.0, "ms", ("1234", "50.0")),
        (0.0001, 0.0002, "us", ("0.0001", "0.0002")),
        (2.0, 0.0, "count", ("2", "0")),
        (1234567.0, 1000.0, "count", ("1,234,567", "1,000")),
        (0.5, 1.0, "count", ("0.5", "1")),
        (1536.0, 2048.0, "bytes", ("1.50 KiB", "2.00 KiB")),
        (10.0 * 2**30 + 1, 10.0 * 2**30, "bytes", ("10.000000001 GiB", "10.000000000 GiB")),
        (1e-300, 2e-300, "", ("1e-300", "2e-300")),
    ],
)
def test_as_many_digits_are_shown_as_it_takes_to_compare(
    measured: float, bound: float, unit: Unit, texts: tuple[str, str]
) -> None:
    assert shown_together(measured, bound, unit) == texts


def read(text: str) -> float:
    """The number that a reader sees; `<` and `>` put it just below or above."""
    number, _, unit = text.replace(",", "").partition(" ")
    value = float(number.lstrip("<>")) * SIZES.get(unit, 1)
    towards = {"<": -math.inf, ">": math.inf}.get(text[0], value)
    return math.nextafter(value, towards)


NUMBERS = st.floats(-1e15, 1e15) | st.floats(0, 200) | st.integers(0, 10**9).map(float) | st.just(0.0)


@given(NUMBERS, st.floats(-1e-3, 1e-3) | st.just(0.0), st.sampled_from(UNITS))
@example(10.0, 5e-324, "%")
@example(100.0, -1e-16, "%")
def test_texts_compare_as_their_numbers_do(bound: float, change: float, unit: Unit) -> None:
    for measured in (bound * (1 + change), math.nextafter(bound, math.inf), math.nextafter(bound, -math.inf)):
        left, right = (read(text) for text in shown_together(measured, bound, unit))
        assert (left > right, left < right) == (measured > bound, measured < bound)


def test_nan_is_shown_as_unknown() -> None:
    assert shown_together(math.nan, 10.0, "%") == ("-", "10.0")
