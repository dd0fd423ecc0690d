from __future__ import annotations

import math
import re

import pytest
from compare.made import STEADY, host_of, run_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tfperf.compare.model import Ratio
from tfperf.compare.regression import FEWEST_STEPS, compare_steps, interval_words, shown_ratio, times_words

NOISY = (5.0, 12.0, 8.0, 15.0, 10.0)
times = st.lists(st.floats(8.0, 12.0), min_size=5, max_size=40)


def scaled(factor: float, own: tuple[float, ...] = STEADY) -> tuple[float, ...]:
    return tuple(factor * value for value in own)


def test_a_slower_run_is_slower() -> None:
    found = compare_steps(run_of(), run_of(scaled(1.2)), tolerance=0.05)
    assert found.change == "slower"
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(1.2)
    assert 1.15 < found.ratio.low < 1.2 < found.ratio.high < 1.25
    assert (found.before_ms, found.after_ms) == pytest.approx((10.0, 12.0))
    assert (found.before_steps, found.after_steps, found.steps_needed) == (50, 50, None)
    assert "10.0 -> 12.0 ms: ratio 1.200 (90% interval" in found.why
    assert "all of the interval is above the tolerance of 5%" in found.why


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.02, 1.04])
def test_what_stays_below_the_tolerance_holds(factor: float) -> None:
    found = compare_steps(run_of(), run_of(scaled(factor)), tolerance=0.05)
    assert (found.change, found.steps_needed) == ("holds", None)
    assert "none of the interval is above the tolerance of 5%" in found.why


def test_a_narrow_interval_around_the_tolerance_holds() -> None:
    """The truth is 5 %: it is not above 5 %, and the interval would have shown a clear regression."""
    found = compare_steps(run_of(), run_of(scaled(1.05)), tolerance=0.05)
    assert found.ratio is not None
    assert found.ratio.low < 1.05 < found.ratio.high
    assert found.change == "holds"
    assert "narrow enough to tell" in found.why


def test_a_wide_interval_cannot_tell_and_says_how_many_steps_would() -> None:
    found = compare_steps(run_of(NOISY), run_of(NOISY), tolerance=0.05)
    assert found.change == "cannot tell"
    assert found.steps_needed is not None
    assert found.steps_needed > 50
    assert f"about {found.steps_needed:,} steps in each run would tell" in found.why


def test_noise_that_no_number_of_steps_calms_is_said() -> None:
    found = compare_steps(run_of(NOISY), run_of(NOISY), tolerance=0.001)
    assert (found.change, found.steps_needed) == ("cannot tell", None)
    assert "more than 20,000 steps would be needed" in found.why


@pytest.mark.parametrize(("before", "after"), [(50, 4), (0, 50), (1, 0)])
def test_too_few_steps_cannot_tell(before: int, after: int) -> None:
    found = compare_steps(run_of(STEADY[:before]), run_of(scaled(9.0)[:after]), tolerance=0.05)
    assert (found.change, found.ratio, found.steps_needed) == ("cannot tell", None, FEWEST_STEPS["mean"])
    assert f"there are {before} and {after} whole steps" in found.why
    assert (found.before_ms is None) == (before == 0)


def test_the_95th_percentile_needs_more_steps() -> None:
    found = compare_steps(run_of(STEADY[:39]), run_of(STEADY), tolerance=0.05, stat="p95")
    assert (found.change, found.steps_needed) == ("cannot tell", 40)
    assert compare_steps(run_of(STEADY[:40]), run_of(STEADY), tolerance=0.05, stat="p95").change == "holds"


def test_the_median_does_not_see_one_long_step() -> None:
    long = (*STEADY[:-1], 500.0)
    assert compare_steps(run_of(), run_of(long), tolerance=0.05, stat="median").change == "holds"
    assert compare_steps(run_of(), run_of(long), tolerance=0.05, stat="mean").change == "cannot tell"


def test_each_run_is_that_of_its_slowest_host() -> None:
    before = run_of(hosts=[host_of(name="a"), host_of(scaled(1.5), "b"), host_of((), "c")])
    after = run_of(hosts=[host_of(scaled(1.4), "a"), host_of(name="b")])
    found = compare_steps(before, after, tolerance=0.05)
    assert (found.before_host, found.after_host, found.change) == ("b", "a", "holds")
    assert found.before_ms == pytest.approx(15.0)


def test_a_run_without_hosts_cannot_tell() -> None:
    empty = run_of(())
    found = compare_steps(empty, empty, tolerance=0.05)
    assert (found.change, found.before_host, found.before_ms) == ("cannot tell", "", None)


@given(times)
@settings(max_examples=40, deadline=None)
def test_a_run_is_never_slower_than_itself(own: list[float]) -> None:
    assert compare_steps(run_of(own), run_of(own), tolerance=0.0).change != "slower"


@given(times)
@settings(max_examples=40, deadline=None)
def test_half_as_long_again_is_never_held(own: list[float]) -> None:
    """Steps of 8 to 12 ms: with enough of them 1.5 times is slower; with few it is not told to hold."""
    longer = [1.5 * value for value in own]
    change = compare_steps(run_of(own), run_of(longer), tolerance=0.05).change
    assert change == "slower" if len(own) >= 20 else change != "holds"


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1.000"), (1.12345, "1.123"), (0.4, "0.400"), (1e-9, "1e-09"), (123456.0, "1.23e+05")]
)
def test_ratios_in_words(value: float, text: str) -> None:
    assert shown_ratio(value) == text


def test_times_that_differ_are_never_shown_alike() -> None:
    assert times_words(10.0, 12.0) == "10.0 -> 12.0 ms"
    assert times_words(10.01, 10.04) == "10.01 -> 10.04 ms"
    assert times_words(None, 0.0) == "- -> 0.000 ms"


@given(st.floats(0.2, 5), st.floats(0.2, 5), st.floats(0, 0.5))
def test_printed_digits_never_contradict_what_is_said(low: float, more: float, tolerance: float) -> None:
    bound = 1 + tolerance
    for value in (low, bound, math.nextafter(bound, 2), bound + 1e-7):
        words = interval_words(Ratio(value, value, value + more, 0.9), bound)
        shown = float(re.findall(r"interval (\S+) to", words)[0])
        assert (shown > bound) == (value > bound) or abs(value - bound) < 1e-11
