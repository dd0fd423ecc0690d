from __future__ import annotations

import math
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from builders import known
from hypothesis import example, given, settings
from hypothesis import strategies as st
from judge.example_runs import STEADY, host_of, run_of

from tfperf.base.arrays import Float64s
from tfperf.judge.regression import (
    FEWEST_STEPS,
    Ratio,
    StepStatistic,
    block_length,
    bootstrap_ratio,
    compare_steps,
    compare_with_baselines,
    format_interval,
    format_ratio,
    format_times,
    statistic,
    student,
)
from tfperf.judge.run_summary import RunSummary

NOISY = (5.0, 12.0, 8.0, 15.0, 10.0)
step_times = st.lists(st.floats(8.0, 12.0), min_size=5, max_size=40)


def scaled(factor: float, times: tuple[float, ...] = STEADY) -> tuple[float, ...]:
    return tuple(factor * ms for ms in times)


def test_a_slower_run_is_slower() -> None:
    comparison = compare_steps(run_of(), run_of(scaled(1.2)), tolerance=0.05)
    ratio = known(comparison.ratio)
    assert comparison.verdict == "slower"
    assert ratio.value == pytest.approx(1.2)
    assert 1.15 < ratio.low < 1.2 < ratio.high < 1.25
    assert (comparison.before_ms, comparison.after_ms) == pytest.approx((10.0, 12.0))
    assert (comparison.before_steps, comparison.after_steps, comparison.steps_needed) == (50, 50, None)
    assert "mean step time 10.0 -> 12.0 ms, ratio 1.200 (90% interval" in comparison.why
    assert comparison.why.endswith("from 50 and 50 steps: the whole interval is above the 5% tolerance.")


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.02, 1.04])
def test_what_stays_below_the_tolerance_is_not_slower(factor: float) -> None:
    comparison = compare_steps(run_of(), run_of(scaled(factor)), tolerance=0.05)
    assert (comparison.verdict, comparison.steps_needed) == ("not slower", None)
    assert "the whole interval is within the 5% tolerance" in comparison.why


def test_a_narrow_interval_around_the_tolerance_is_not_slower() -> None:
    """The truth is 5 %: it is not above 5 %, and the interval would have shown a clear regression."""
    comparison = compare_steps(run_of(), run_of(scaled(1.05)), tolerance=0.05)
    assert known(comparison.ratio).low < 1.05 < known(comparison.ratio).high
    assert comparison.verdict == "not slower"
    assert "narrow enough that a clear regression would show" in comparison.why


def test_a_wide_interval_is_inconclusive_and_says_how_many_steps_are_needed() -> None:
    comparison = compare_steps(run_of(NOISY), run_of(scaled(1.0001, NOISY)), tolerance=0.05)
    assert comparison.verdict == "inconclusive"
    assert known(comparison.steps_needed) > 50
    assert f"capture about {comparison.steps_needed:,} steps in each run" in comparison.why


def test_noise_that_no_number_of_steps_averages_out_is_said() -> None:
    comparison = compare_steps(run_of(NOISY), run_of(scaled(1.0001, NOISY)), tolerance=0.001)
    assert (comparison.verdict, comparison.steps_needed) == ("inconclusive", None)
    assert "more than 20,000 steps would be needed, so reduce the noise" in comparison.why


@pytest.mark.parametrize(("before", "after"), [(50, 4), (0, 50), (1, 0)])
def test_too_few_steps_are_inconclusive(before: int, after: int) -> None:
    comparison = compare_steps(run_of(STEADY[:before]), run_of(scaled(9.0)[:after]), tolerance=0.05)
    assert comparison.verdict == "inconclusive"
    assert (comparison.ratio, comparison.steps_needed) == (None, FEWEST_STEPS["mean"])
    assert f"the runs have {before} and {after} whole steps, but the mean requires at least 5 " in comparison.why
    assert (comparison.before_ms is None) == (before == 0)


def test_step_times_that_are_too_far_apart_have_no_ratio() -> None:
    comparison = compare_steps(run_of((1e-300,) * 5), run_of((1e300,) * 5), tolerance=0.05)
    assert (comparison.verdict, comparison.ratio, comparison.steps_needed) == ("inconclusive", None, None)
    assert comparison.why == "the step times of the two runs are too different for a ratio."


def test_the_95th_percentile_needs_more_steps() -> None:
    comparison = compare_steps(run_of(STEADY[:39]), run_of(STEADY), tolerance=0.05, stat="p95")
    assert (comparison.verdict, comparison.steps_needed) == ("inconclusive", 40)
    assert compare_steps(run_of(STEADY[:40]), run_of(STEADY), tolerance=0.05, stat="p95").verdict == "not slower"


def test_the_median_does_not_see_one_long_step() -> None:
    long = (*STEADY[:-1], 500.0)
    assert compare_steps(run_of(), run_of(long), tolerance=0.05, stat="median").verdict == "not slower"
    assert compare_steps(run_of(), run_of(long), tolerance=0.05, stat="mean").verdict == "inconclusive"


def test_each_run_is_that_of_its_slowest_host() -> None:
    before = run_of(hosts=[host_of(name="a"), host_of(scaled(1.5), "b"), host_of((), "c")])
    after = run_of(hosts=[host_of(scaled(1.4), "a"), host_of(name="b")])
    comparison = compare_steps(before, after, tolerance=0.05)
    assert (comparison.before_host, comparison.after_host, comparison.verdict) == ("b", "a", "not slower")
    assert comparison.before_ms == pytest.approx(15.0)


def test_runs_without_steps_are_inconclusive() -> None:
    comparison = compare_steps(run_of(()), run_of(()), tolerance=0.05)
    assert (comparison.verdict, comparison.before_host, comparison.before_ms) == ("inconclusive", "", None)


@given(step_times)
@settings(max_examples=min(40, settings().max_examples))
def test_a_run_is_never_slower_than_itself(times: list[float]) -> None:
    assert compare_steps(run_of(times), run_of(times), tolerance=0.0).verdict != "slower"


def test_a_capture_is_not_slower_than_itself_however_noisy() -> None:
    noisy = [10.0, 31.0, 12.0, 45.0, 9.0, 28.0, 17.0, 52.0] * 2
    comparison = compare_steps(run_of(noisy), run_of(noisy), tolerance=0.05)
    assert (comparison.verdict, comparison.steps_needed) == ("not slower", None)
    assert known(comparison.ratio).half_width > 0.05
    assert comparison.why.endswith("both runs are the same capture, which is not slower.")
    other = [*noisy[:-1], noisy[-1] + 0.001]
    assert compare_steps(run_of(noisy), run_of(other), tolerance=0.05).verdict == "inconclusive"
    assert compare_steps(run_of(noisy[:4]), run_of(noisy[:4]), tolerance=0.05).verdict == "inconclusive"


@given(step_times)
@settings(max_examples=min(40, settings().max_examples))
def test_half_as_long_again_always_fails(times: list[float]) -> None:
    """Steps of 8 to 12 ms: with enough of them 1.5 times is slower; with few it may be inconclusive."""
    longer = [1.5 * ms for ms in times]
    verdict = compare_steps(run_of(times), run_of(longer), tolerance=0.05).verdict
    assert verdict == "slower" if len(times) >= 20 else verdict != "not slower"


def steady(ms: float) -> RunSummary:
    """50 steps of the same duration."""
    return run_of((ms,) * 50)


def test_one_baseline_is_compared_as_any_run() -> None:
    before, after = run_of((10.0, 11.0) * 25), run_of((12.0, 13.0) * 25)
    assert compare_with_baselines([before], after, tolerance=0.05) == compare_steps(before, after, tolerance=0.05)


def test_differences_between_baselines_widen_the_interval() -> None:
    # Logarithms of 10 and 10 e^0.02: mean log 10 + 0.01, deviation 0.02 / sqrt(2); t(1) = 6.314 at 90 %.
    before = [steady(10.0), steady(10.0 * math.exp(0.02))]
    comparison = compare_with_baselines(before, steady(10.0), tolerance=0.05)
    ratio, reach = known(comparison.ratio), 6.3138 * 0.02 / math.sqrt(2) * math.sqrt(1.5)
    logarithms = [math.log(value) for value in (ratio.value, ratio.low, ratio.high)]
    assert logarithms == pytest.approx([-0.01, -0.01 - reach, -0.01 + reach], rel=1e-3)
    assert comparison.before_ms == pytest.approx(10.0 * math.exp(0.01))
    assert (comparison.before_steps, comparison.after_steps) == (100, 50)


def test_baselines_that_differ_a_lot_prevent_false_alarms() -> None:
    before = [steady(ms) for ms in (9.0, 10.0, 15.0, 9.5, 14.0)]
    assert compare_with_baselines(before[:1], steady(14.0), tolerance=0.05).verdict == "slower"
    comparison = compare_with_baselines(before, steady(14.0), tolerance=0.05)
    assert (comparison.verdict, comparison.steps_needed) == ("inconclusive", None)
    assert "5 baselines that differ by" in comparison.why
    assert "save more baselines, or reduce the noise of the machine" in comparison.why


def test_a_regression_beyond_the_differences_between_baselines_is_one() -> None:
    before = [steady(ms) for ms in (10.0, 10.1, 9.9, 10.05, 9.95)]
    assert compare_with_baselines(before, steady(11.5), tolerance=0.05).verdict == "slower"
    assert compare_with_baselines(before, steady(10.1), tolerance=0.05).verdict == "not slower"


def test_a_baseline_with_too_few_steps_makes_all_inconclusive() -> None:
    comparison = compare_with_baselines([steady(10.0), run_of((10.0, 10.0))], steady(20.0), tolerance=0.05)
    assert (comparison.verdict, comparison.ratio) == ("inconclusive", None)


def test_unchanged_captures_of_a_machine_that_changes_are_seldom_slower() -> None:
    # Each capture is as much faster or slower as the machine is just then (20 %): one baseline is often wrong.
    random = np.random.default_rng(7)
    slower = {1: 0, 5: 0}
    for _ in range(100):
        runs = [steady(float(ms)) for ms in 10.0 * np.exp(random.normal(0, 0.2, 6))]
        for count in slower:
            slower[count] += compare_with_baselines(runs[:count], runs[5], tolerance=0.05).verdict == "slower"
    assert slower[1] > 30
    assert slower[5] <= 5


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1.000"), (1.12345, "1.123"), (0.4, "0.400"), (1e-9, "1e-09"), (123456.0, "1.23e+05")]
)
def test_ratios_in_words(value: float, text: str) -> None:
    assert format_ratio(value) == text


def test_times_that_differ_are_never_shown_alike() -> None:
    assert format_times(10.0, 12.0) == "10.0 -> 12.0 ms"
    assert format_times(10.01, 10.04) == "10.01 -> 10.04 ms"
    assert format_times(None, 0.0) == "- -> 0.000 ms"


@given(st.floats(0.2, 5), st.floats(0.2, 5), st.floats(0, 0.5))
def test_printed_digits_never_contradict_the_verdict(low: float, more: float, tolerance: float) -> None:
    bound = 1 + tolerance
    for value in (low, bound, math.nextafter(bound, 2), bound + 1e-7):
        words = format_interval(Ratio(value, value, value + more, 0.9), bound)
        shown = float(re.findall(r"interval (\S+) to", words)[0])
        assert (shown > bound) == (value > bound) or abs(value - bound) < 1e-11


STATS: tuple[StepStatistic, ...] = ("mean", "median", "p95")
series = st.lists(st.floats(0.5, 2.0), min_size=2, max_size=60)


@pytest.mark.parametrize(("stat", "expected"), [("mean", 22.0), ("median", 3.0), ("p95", 80.8)])
def test_statistics_by_hand(stat: StepStatistic, expected: float) -> None:
    """Of 1, 2, 3, 4, 100 the 95th percentile lies 0.8 of the way from 4 to 100."""
    assert statistic([100, 1, 2, 3, 4], stat) == pytest.approx(expected)
    assert statistic([], stat) is None


@pytest.mark.parametrize("stat", STATS)
def test_constant_series_have_an_exact_ratio(stat: StepStatistic) -> None:
    ratio = known(bootstrap_ratio([2.0] * 10, [3.0] * 20, stat))
    assert (ratio.value, ratio.low, ratio.high, ratio.confidence) == (1.5, 1.5, 1.5, 0.95)
    assert ratio.steps_needed(0.05) is None


@given(series, st.sampled_from(STATS))
@settings(max_examples=min(50, settings().max_examples))
def test_a_series_against_itself_never_differs(times: list[float], stat: StepStatistic) -> None:
    ratio = known(bootstrap_ratio(times, times, stat))
    assert ratio.value == 1.0
    assert ratio.low <= 1.0 <= ratio.high


@example([1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.9999999999999998], 0.625, "p95")
@given(series, series, st.floats(1e-3, 1e3), st.sampled_from(STATS))
@settings(max_examples=min(50, settings().max_examples))
def test_units_do_not_matter(before: list[float], after: list[float], unit: float, stat: StepStatistic) -> None:
    one = known(bootstrap_ratio(before, after, stat))
    other = known(bootstrap_ratio([ms * unit for ms in before], [ms * unit for ms in after], stat))
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
    wide, narrow = (known(bootstrap_ratio(times, times)).half_width for times in (halves, mixed))
    assert wide > 1.5 * narrow


def test_steps_needed_scale_with_the_square_of_the_width() -> None:
    times = np.random.default_rng(3).normal(10, 2, 40)
    ratio = known(bootstrap_ratio(times, times))
    assert ratio.steps == pytest.approx(40)
    exact = 40 * (ratio.half_width / 0.05) ** 2
    needed = known(ratio.steps_needed(0.05))
    assert exact <= needed < exact + 10
    assert needed % 10 == 0
    assert [ratio.steps_needed(width) for width in (0.0, 1e-4, 0.5)] == [None] * 3, "hopeless, or narrow enough"


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
def test_the_interval_holds_the_truth_about_as_often_as_it_says(make: Any, stat: StepStatistic, least: float) -> None:
    """Two like series of 50 steps, 200 times: an interval at 95 % holds 1 some 190 times."""
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
