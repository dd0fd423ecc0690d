"""Bounds as people write them; what named limits make of them is in test_limits.py."""

from __future__ import annotations

import pytest

from tfperf.base.units import Unit
from tfperf.judge.limits import EXAMPLES, bound_text, check_bound, quoted, read_bound


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("5", "us", 5.0),
        ("2ms", "us", 2000.0),
        ("5", "ps", 5.0),
        ("2us", "ps", 2e6),
        ("-2us", "ms", -0.002),
        ("1.5", "", 1.5),
    ],
)
def test_a_bound_on_a_column_may_be_bare_or_negative(text: str, unit: Unit, value: float) -> None:
    assert read_bound(text, unit, bare=True, signed=True) == value


@pytest.mark.parametrize("unit", EXAMPLES)
def test_a_bound_is_written_as_it_can_be_read(unit: Unit) -> None:
    for value in (0.0, 3.0, 12.5, 1e6):
        assert read_bound(bound_text(value, unit), unit, bare=True) == value


@pytest.mark.parametrize(
    ("value", "unit", "relation", "is_share", "message"),
    [
        (100, "%", "<=", True, ""),
        (101, "%", "<=", True, "a share is at most 100%, so 101% could never be breached"),
        (101, "%", ">=", True, "a share is at most 100%, so 101% could never hold"),
        (150, "%", "<=", False, ""),
        (0, "%", "<=", True, ""),
        (0, "count", "<=", False, ""),
        (0, "ms", "<=", False, "a bound of 0 has no meaning here: write 50ms"),
        (0, "bytes", "<=", False, "a bound of 0 has no meaning here: write 10GiB"),
    ],
)
def test_a_bound_that_decides_nothing_is_refused(
    value: float, unit: Unit, relation: str, is_share: bool, message: str
) -> None:
    refused = ""
    try:
        check_bound(value, unit, relation, is_share=is_share)
    except ValueError as error:
        refused = str(error)
    assert refused == message


def test_long_texts_are_cut_in_messages() -> None:
    assert quoted("a\nb") == r"'a\nb'"
    assert quoted("x" * 200) == f"'{'x' * 80}...'"
