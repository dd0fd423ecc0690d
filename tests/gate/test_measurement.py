"""What becomes of a limit, given a value that may be known in part."""

from __future__ import annotations

import math

import pytest

from tfperf.gate.limits import Limit, Metric, Relation
from tfperf.gate.measurement import Measurement, Status, holds, unknown


def limit(relation: Relation, bound: float = 10.0) -> Limit:
    return Limit(f"input_bound {relation} {bound}%", Metric("input_bound"), relation, bound)


@pytest.mark.parametrize(
    ("relation", "value", "result"),
    [
        ("<", 10.0, False),
        ("<", math.nextafter(10.0, 0), True),
        ("<=", 10.0, True),
        ("<=", math.nextafter(10.0, 11), False),
        (">", 10.0, False),
        (">", math.nextafter(10.0, 11), True),
        (">=", 10.0, True),
        (">=", math.nextafter(10.0, 0), False),
    ],
)
def test_values_are_compared_unrounded(relation: Relation, value: float, result: bool) -> None:
    assert holds(value, relation, 10.0) is result
    assert Measurement(value).status(limit(relation)) == ("pass" if result else "breach")


@pytest.mark.parametrize("relation", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_a_number_is_neither_a_pass_nor_a_breach(relation: Relation, value: float | None) -> None:
    assert Measurement(value).status(limit(relation)) == "unknown"


@pytest.mark.parametrize(("value", "status"), [(9.0, "unknown"), (11.0, "breach")])
def test_a_value_with_a_gap_can_only_breach_a_limit(value: float, status: Status) -> None:
    assert Measurement(value, gap="1 row is missing").status(limit("<=")) == status


def test_the_reason_is_the_gap_or_that_there_is_no_number() -> None:
    assert unknown("no steps").reason == "no steps"
    assert Measurement(math.nan).reason == "the measured value is not a number"
