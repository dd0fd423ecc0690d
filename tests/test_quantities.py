"""Quantities as people type them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tfperf.units import DURATIONS, SIZES, converted, split_quantity


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [("50ms", "50", "ms"), (" 1.5 GiB ", "1.5", "gib"), ("10%", "10", "%"), (".5h", ".5", "h"), ("7", "7", "")],
)
def test_a_number_and_a_unit(text: str, number: str, unit: str) -> None:
    assert split_quantity(text) == (Decimal(number), unit)


@pytest.mark.parametrize("text", ["", "ms", "-1s", "+1s", "1e3s", "nan", "inf", "1 2s", "1.2.3", "9" * 101])
def test_what_is_not_a_quantity(text: str) -> None:
    assert split_quantity(text) is None


def test_the_same_quantity_in_another_unit_is_the_same_float() -> None:
    assert converted(Decimal("0.3"), DURATIONS["s"], DURATIONS["ms"]) == converted(
        Decimal("300"), DURATIONS["ms"], DURATIONS["ms"]
    )
    assert converted(Decimal("1"), SIZES["gib"], SIZES["mib"]) == 1024
