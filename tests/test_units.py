from __future__ import annotations

import pytest

from tfperf.units import format_bytes, format_ms, format_percent, ms, percent, us


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (0.0, "0.0"), (0.04, "<0.1"), (99.97, ">99.9"), (100.0, "100.0"), (15.04, "15.0")],
)
def test_a_percentage_is_never_rounded_to_nothing_or_all(value: float | None, shown: str) -> None:
    assert format_percent(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0.0123, "0.012"),
        (0.0001, "<0.001"),
        (0.0, "0.000"),
        (1.234, "1.23"),
        (45.67, "45.7"),
        (1234.5, "1234"),
    ],
)
def test_milliseconds_keep_three_digits(value: float | None, shown: str) -> None:
    assert format_ms(value) == shown


def test_sizes() -> None:
    assert [format_bytes(size) for size in (0, 999, 1_500, 2_500_000, 3_000_000_000)] == [
        "0 B", "999 B", "1.5 kB", "2.5 MB", "3.0 GB",
    ]  # fmt: skip


def test_conversions() -> None:
    assert ms(1_500_000_000) == 1.5
    assert us(1_500_000) == 1.5
    assert percent(1, 4) == 25.0
    assert percent(1, 0) is None
