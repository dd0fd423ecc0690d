"""Numbers with units, shown and as people type them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tfperf.base.units import (
    DURATIONS,
    SIZES,
    converted,
    counted,
    did_you_mean,
    format_bytes,
    format_ms,
    format_percent,
    format_range,
    listed,
    natural,
    split_quantity,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"), (0.0, "0.0"), (-0.0, "0.0"), (0.04, "<0.1"), (-0.02, ">-0.1"), (99.97, ">99.9"),
        (-99.97, "<-99.9"), (100.0, "100.0"), (-100.0, "-100.0"), (15.04, "15.0"), (-15.06, "-15.1"),
    ],
)  # fmt: skip
def test_a_percentage_is_never_rounded_to_nothing_or_all(value: float | None, shown: str) -> None:
    assert format_percent(value) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(0, ""), (1, "w0"), (5, "w0, w1, w2, w3, w4"), (256, "w0, w1, w2, w3, w4 and 251 more")]
)
def test_a_long_list_is_cut(count: int, shown: str) -> None:
    assert listed([f"w{number}" for number in range(count)]) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"), (0.0123, "0.012"), (0.0001, "<0.001"), (-0.0001, ">-0.001"), (0.0, "0.000"), (-0.0, "0.000"),
        (-1.5, "-1.50"), (1.234, "1.23"), (45.67, "45.7"), (9.996, "10.0"), (99.94, "99.9"), (99.96, "100"),
        (209.04, "209"), (1234.5, "1234"),
    ],
)  # fmt: skip
def test_milliseconds_keep_three_digits(value: float | None, shown: str) -> None:
    assert format_ms(value) == shown


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (None, "-"), (0, "0 B"), (-0.0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (1497632, "1.50 MB"),
        (1.5, "1.50 B"), (15e9, "15.0 GB"), (999_949_999_999, "1.00 TB"), (300 << 30, "322 GB"), (1 << 63, "9.22 EB"),
    ],
)  # fmt: skip
def test_sizes_have_three_digits_in_the_unit_that_suits_them(size: float | None, shown: str) -> None:
    assert format_bytes(size) == shown


@pytest.mark.parametrize(
    ("count", "words", "shown"),
    [
        (0, ("step",), "0 steps"),
        (1, ("step",), "1 step"),
        (1234, ("whole step",), "1,234 whole steps"),
        (1, ("batch", "batches"), "1 batch"),
        (2, ("batch", "batches"), "2 batches"),
    ],
)
def test_a_count_stands_before_its_noun(count: int, words: tuple[str, ...], shown: str) -> None:
    assert counted(count, *words) == shown


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


def test_names_that_are_close_are_suggested() -> None:
    limits = ["max-input-bound", "max-retraces", "max-skew"]
    assert did_you_mean("max-retrace", limits).startswith("did you mean max-retraces")
    assert did_you_mean("skew", limits) == "did you mean max-skew?"
    assert did_you_mean("zzzz", ["mean", "max"]) == "choose one of mean, max"
    assert did_you_mean("zzzz", map(str, range(100))) == ""
    assert did_you_mean("tpu-mm", ["tpu-mm-1"], {"tpu-mm-1": "TPU-MM-1"}) == "did you mean TPU-MM-1?"


def test_numbers_in_names_are_sorted_as_numbers() -> None:
    names = ["worker-10", "worker-2", "chief", "worker-2a", "worker-" + "9" * 5000]
    assert sorted(names, key=natural) == ["chief", "worker-2", "worker-2a", "worker-10", "worker-" + "9" * 5000]


@pytest.mark.parametrize(("low", "high", "shown"), [(12.14, 57.8, "12.1 to 57.8"), (784.1, 784.3, "784")])
def test_a_range_of_what_looks_the_same_is_one_number(low: float, high: float, shown: str) -> None:
    assert format_range(low, high) == shown
