from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from builders import event, host, logdir_of, space
from hypothesis import given, settings
from hypothesis import strategies as st
from judge.example_runs import STEADY, host_of, run_of

import tfperf
from tfperf.judge.regression import (
    FEWEST_STEPS,
    Ratio,
    compare_steps,
    compare_with_baselines,
    format_interval,
    format_ratio,
    format_times,
)
from tfperf.judge.run_summary import RunSummary, baseline_text
from tfperf.judge.summarize import summarize_run

NOISY = (5.0, 12.0, 8.0, 15.0, 10.0)
step_times = st.lists(st.floats(8.0, 12.0), min_size=5, max_size=40)


def scaled(factor: float, times: tuple[float, ...] = STEADY) -> tuple[float, ...]:
    return tuple(factor * ms for ms in times)


# --- against one run ---


def test_a_slower_run_is_slower() -> None:
    comparison = compare_steps(run_of(), run_of(scaled(1.2)), tolerance=0.05)
    assert comparison.verdict == "slower"
    assert comparison.ratio is not None
    assert comparison.ratio.value == pytest.approx(1.2)
    assert 1.15 < comparison.ratio.low < 1.2 < comparison.ratio.high < 1.25
    assert (comparison.before_ms, comparison.after_ms) == pytest.approx((10.0, 12.0))
    assert (comparison.before_steps, comparison.after_steps, comparison.steps_needed) == (50, 50, None)
    assert "mean step time 10.0 -> 12.0 ms, ratio 1.200 (90% interval" in comparison.why
    assert comparison.why.endswith("from 50 and 50 steps: the whole interval is above the tolerance of 5%.")


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.02, 1.04])
def test_what_stays_below_the_tolerance_is_not_slower(factor: float) -> None:
    comparison = compare_steps(run_of(), run_of(scaled(factor)), tolerance=0.05)
    assert (comparison.verdict, comparison.steps_needed) == ("not slower", None)
    assert "the whole interval is within the tolerance of 5%" in comparison.why


def test_a_narrow_interval_around_the_tolerance_is_not_slower() -> None:
    """The truth is 5 %: it is not above 5 %, and the interval would have shown a clear regression."""
    comparison = compare_steps(run_of(), run_of(scaled(1.05)), tolerance=0.05)
    assert comparison.ratio is not None
    assert comparison.ratio.low < 1.05 < comparison.ratio.high
    assert comparison.verdict == "not slower"
    assert "narrow enough to show a regression" in comparison.why


def test_a_wide_interval_is_inconclusive_and_says_how_many_steps_are_needed() -> None:
    comparison = compare_steps(run_of(NOISY), run_of(scaled(1.0001, NOISY)), tolerance=0.05)
    assert comparison.verdict == "inconclusive"
    assert comparison.steps_needed is not None
    assert comparison.steps_needed > 50
    assert f"capture about {comparison.steps_needed:,} steps in each run" in comparison.why


def test_noise_that_no_number_of_steps_averages_out_is_said() -> None:
    comparison = compare_steps(run_of(NOISY), run_of(scaled(1.0001, NOISY)), tolerance=0.001)
    assert (comparison.verdict, comparison.steps_needed) == ("inconclusive", None)
    assert "more than 20,000 steps are needed, so reduce the noise" in comparison.why


@pytest.mark.parametrize(("before", "after"), [(50, 4), (0, 50), (1, 0)])
def test_too_few_steps_are_inconclusive(before: int, after: int) -> None:
    comparison = compare_steps(run_of(STEADY[:before]), run_of(scaled(9.0)[:after]), tolerance=0.05)
    assert comparison.verdict == "inconclusive"
    assert (comparison.ratio, comparison.steps_needed) == (None, FEWEST_STEPS["mean"])
    assert comparison.why == (
        f"there are {before} and {after} whole steps, but the mean needs at least 5 in each run; capture 20 or more."
    )
    assert (comparison.before_ms is None) == (before == 0)


def test_step_times_that_are_too_far_apart_have_no_ratio() -> None:
    comparison = compare_steps(run_of((1e-300,) * 5), run_of((1e300,) * 5), tolerance=0.05)
    assert (comparison.verdict, comparison.ratio, comparison.steps_needed) == ("inconclusive", None, None)
    assert comparison.why == "the step times of the two runs are too far apart for a ratio."


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
    assert comparison.ratio is not None
    assert comparison.ratio.half_width > 0.05
    assert comparison.why.endswith("this is one capture twice, and not slower than itself.")
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


# --- against several baselines ---


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
    assert comparison.ratio
    assert comparison.ratio.value == pytest.approx(math.exp(-0.01))
    reach = 6.3138 * 0.02 / math.sqrt(2) * math.sqrt(1.5)
    assert math.log(comparison.ratio.high) == pytest.approx(-0.01 + reach, rel=1e-3)
    assert math.log(comparison.ratio.low) == pytest.approx(-0.01 - reach, rel=1e-3)
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
    for _ in range(200):
        runs = [steady(float(ms)) for ms in 10.0 * np.exp(random.normal(0, 0.2, 6))]
        for count in slower:
            slower[count] += compare_with_baselines(runs[:count], runs[5], tolerance=0.05).verdict == "slower"
    assert slower[1] > 60
    assert slower[5] <= 10


def test_the_gate_takes_several_baselines(tmp_path: Path) -> None:
    files = []
    for number, length in enumerate((1000, 1400, 1000, 1400)):
        marked = [event("train", length * n, length, step_num=n) for n in range(8)]
        logdir = logdir_of(tmp_path / str(number), a=space(host(*marked)))
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(baseline_text(summarize_run(tfperf.load(logdir), "run")))
    assert tfperf.check(logdir, baseline=files[0]).exit_code == 3
    assert tfperf.check(logdir, baseline=files[:3]).exit_code == 1


# --- in words ---


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
