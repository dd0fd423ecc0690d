from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tfperf.base.arrays import Float64s
from tfperf.judge.regression import StepStatistic, block_length, bootstrap_ratio, statistic, student

STATS: tuple[StepStatistic, ...] = ("mean", "median", "p95")
series = st.lists(st.floats(0.5, 2.0), min_size=2, max_size=60)


@pytest.mark.parametrize(("stat", "expected"), [("mean", 22.0), ("median", 3.0), ("p95", 80.8)])
def test_statistics_by_hand(stat: StepStatistic, expected: float) -> None:
    """Of 1, 2, 3, 4, 100 the 95th percentile lies 0.8 of the way from 4 to 100."""
    assert statistic([100, 1, 2, 3, 4], stat) == pytest.approx(expected)
    assert statistic([], stat) is None


@pytest.mark.parametrize("stat", STATS)
def test_constant_series_have_an_exact_ratio(stat: StepStatistic) -> None:
    ratio = bootstrap_ratio([2.0] * 10, [3.0] * 20, stat)
    assert ratio is not None
    assert (ratio.value, ratio.low, ratio.high, ratio.confidence) == (1.5, 1.5, 1.5, 0.95)
    assert ratio.steps_needed(0.05) is None


@given(series, st.sampled_from(STATS))
@settings(max_examples=min(50, settings().max_examples))
def test_a_series_against_itself_never_differs(times: list[float], stat: StepStatistic) -> None:
    ratio = bootstrap_ratio(times, times, stat)
    assert ratio is not None
    assert ratio.value == 1.0
    assert ratio.low <= 1.0 <= ratio.high


@example([1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.9999999999999998], 0.625, "p95")
@given(series, series, st.floats(1e-3, 1e3), st.sampled_from(STATS))
@settings(max_examples=min(50, settings().max_examples))
def test_units_do_not_matter(before: list[float], after: list[float], unit: float, stat: StepStatistic) -> None:
    one = bootstrap_ratio(before, after, stat)
    other = bootstrap_ratio([ms * unit for ms in before], [ms * unit for ms in after], stat)
    assert one is not None
    assert other is not None
    for key in ("value", "low", "high"):
        assert getattr(one, key) == pytest.approx(getattr(other, key), rel=1e-6)


def test_the_same_series_always_give_the_same_interval() -> None:
    times = np.random.default_rng(1).normal(10, 1, 50)
    assert bootstrap_ratio(times[:25], times[25:]) == bootstrap_ratio(times[:25], times[25:])


def test_more_confidence_is_a_wider_interval() -> None:
    times = np.random.default_rng(1).normal(10, 1, 50)
    widths = [ratio.half_width for sure in (0.8, 0.95, 0.99) if (ratio := bootstrap_ratio(times, times, "mean", sure))]
    assert widths == sorted(widths)
    assert len(set(widths)) == 3


@pytest.mark.parametrize("bad", [[1.0], [], [1.0, 0.0], [1.0, -1.0], [1.0, math.nan], [1.0, math.inf]])
def test_odd_times_have_no_ratio(bad: list[float]) -> None:
    assert bootstrap_ratio(bad, [1.0, 2.0]) is None
    assert bootstrap_ratio([1.0, 2.0], bad) is None


@pytest.mark.parametrize("stat", STATS)
def test_times_that_differ_absurdly_have_no_ratio(stat: StepStatistic) -> None:
    assert bootstrap_ratio([1e-300] * 5, [1e300] * 5, stat) is None


# --- blocks ---


def test_blocks_are_longer_for_steps_that_resemble_their_neighbours() -> None:
    """n^(1/3) of 64 is 4, the shortest block; a quarter of 64 is 16, the longest."""
    alternating = np.tile([1.0, 2.0], 32)
    halves = np.repeat([1.0, 2.0], 32)
    assert block_length(np.random.default_rng(0).normal(10, 1, 64)) == 4
    assert block_length(halves) == 16
    assert block_length(alternating) == 16
    assert block_length(np.ones(64)) == 4
    assert block_length(np.ones(3)) == 1


def test_a_slow_half_makes_the_interval_wider_than_slow_steps_here_and_there() -> None:
    halves = np.repeat([1.0, 1.5], 32)
    mixed = np.random.default_rng(0).permutation(halves)
    wide, narrow = bootstrap_ratio(halves, halves), bootstrap_ratio(mixed, mixed)
    assert wide is not None
    assert narrow is not None
    assert wide.half_width > 1.5 * narrow.half_width


# --- how many steps ---


def test_steps_needed_scale_with_the_square_of_the_width() -> None:
    times = np.random.default_rng(3).normal(10, 2, 40)
    ratio = bootstrap_ratio(times, times)
    assert ratio is not None
    assert ratio.steps == pytest.approx(40)
    exact = 40 * (ratio.half_width / 0.05) ** 2
    needed = ratio.steps_needed(0.05)
    assert needed is not None
    assert exact <= needed < exact + 10
    assert needed % 10 == 0


def test_no_number_of_steps_is_named_where_none_would_help() -> None:
    times = np.random.default_rng(3).normal(10, 2, 40)
    ratio = bootstrap_ratio(times, times)
    assert ratio is not None
    assert ratio.steps_needed(0.0) is None
    assert ratio.steps_needed(1e-4) is None
    assert ratio.steps_needed(0.5) is None


# --- does the interval keep its promise ---


def normal(random: np.random.Generator, count: int) -> Float64s:
    return np.asarray(random.normal(10, 0.7, count), np.float64)


def correlated(random: np.random.Generator, count: int) -> Float64s:
    """AR(1) with 0.5."""
    noise, series = random.normal(0, 0.6, count + 20), np.zeros(count + 20)
    for at in range(1, count + 20):
        series[at] = 0.5 * series[at - 1] + noise[at]
    return 10 + series[20:]


def bimodal(random: np.random.Generator, count: int) -> Float64s:
    return np.where(random.random(count) < 0.3, 15.0, 10.0) * random.normal(1, 0.03, count)


@pytest.mark.parametrize(
    ("make", "stat", "least"),
    [
        (normal, "mean", 0.92),
        (normal, "median", 0.92),
        (normal, "p95", 0.92),
        (bimodal, "mean", 0.92),
        (bimodal, "median", 0.92),
        (correlated, "mean", 0.86),
        (correlated, "median", 0.88),
    ],
)
def test_the_interval_holds_the_truth_about_as_often_as_it_says(
    make: object, stat: StepStatistic, least: float
) -> None:
    """Two like series of 50 steps, 200 times: an interval at 95 % holds 1 some 190 times."""
    assert callable(make)
    random = np.random.default_rng(11)
    ratios = [bootstrap_ratio(make(random, 50), make(random, 50), stat) for _ in range(200)]
    held = sum(ratio.low <= 1 <= ratio.high for ratio in ratios if ratio is not None)
    assert held / 200 >= least


def test_ten_percent_are_found_with_fifty_steps_and_nothing_is_made_up() -> None:
    """Steps vary by 5 %; the tolerance is 5 %."""
    random = np.random.default_rng(12)
    pairs = [(random.normal(10, 0.5, 50), random.normal(10, 0.5, 50)) for _ in range(200)]
    same = [ratio.low for one, other in pairs if (ratio := bootstrap_ratio(one, other))]
    slower = [ratio.low for one, other in pairs if (ratio := bootstrap_ratio(one, 1.1 * other))]
    assert len(same) == len(slower) == 200
    assert sum(low > 1.05 for low in same) == 0
    assert sum(low > 1.05 for low in slower) >= 180


@pytest.mark.parametrize("stat", STATS)
def test_long_runs_are_no_special_case(stat: StepStatistic) -> None:
    """Blocks of 2 x 100,000 steps take some 25 MB; single steps would be 200 million draws of 8 bytes each."""
    times = np.random.default_rng(2).lognormal(2, 0.1, 100_000)
    tracemalloc.start()
    ratio = bootstrap_ratio(times, times * 1.01, stat)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 100e6
    assert ratio is not None
    assert 1.0 < ratio.low < 1.01 < ratio.high < 1.02


@pytest.mark.parametrize(("freedom", "expected"), [(1, 6.3138), (2, 2.9200), (3, 2.3534), (4, 2.1318), (30, 1.6973)])
def test_students_quantiles_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert student(0.90, freedom) == pytest.approx(expected, rel=0.02)
