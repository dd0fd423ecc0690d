"""One run against several earlier ones: what they differ by is noise."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import event, host, logdir_of, space

import tfperf
from tfperf.compare.baselines import compare_with
from tfperf.compare.model import Snapshot
from tfperf.compare.regression import compare_steps
from tfperf.compare.resample import student
from tfperf.compare.snapshot import snapshot_text, take


@pytest.fixture(scope="module")
def some_run(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    marked = [event("train", 1000 * n, 1000, step_num=n) for n in range(6)]
    return take(tfperf.load(logdir_of(tmp_path_factory.mktemp("run"), a=space(host(*marked)))), "run")


def of(run: Snapshot, *step_ms: float) -> Snapshot:
    return replace(run, hosts=(replace(run.hosts[0], step_ms=step_ms),))


def steady(run: Snapshot, ms: float) -> Snapshot:
    """50 steps of the same length."""
    return of(run, *[ms] * 50)


def test_one_baseline_is_compared_as_ever(some_run: Snapshot) -> None:
    before, after = of(some_run, *(10, 11) * 25), of(some_run, *(12, 13) * 25)
    assert compare_with([before], after, tolerance=0.05) == compare_steps(before, after, tolerance=0.05)


def test_what_baselines_differ_by_widens_the_interval(some_run: Snapshot) -> None:
    # Logarithms of 10 and 10 e^0.02: mean log 10 + 0.01, deviation 0.02 / sqrt(2); t(1) = 6.314 at 90 %.
    before = [steady(some_run, 10.0), steady(some_run, 10.0 * math.exp(0.02))]
    found = compare_with(before, steady(some_run, 10.0), tolerance=0.05)
    assert found.ratio
    assert found.ratio.value == pytest.approx(math.exp(-0.01))
    reach = 6.3138 * 0.02 / math.sqrt(2) * math.sqrt(1.5)
    assert math.log(found.ratio.high) == pytest.approx(-0.01 + reach, rel=1e-3)
    assert math.log(found.ratio.low) == pytest.approx(-0.01 - reach, rel=1e-3)
    assert found.before_ms == pytest.approx(10.0 * math.exp(0.01))
    assert (found.before_steps, found.after_steps) == (100, 50)


def test_baselines_that_differ_a_lot_keep_the_gate_from_crying_wolf(some_run: Snapshot) -> None:
    before = [steady(some_run, ms) for ms in (9.0, 10.0, 15.0, 9.5, 14.0)]
    assert compare_with(before[:1], steady(some_run, 14.0), tolerance=0.05).change == "slower"
    found = compare_with(before, steady(some_run, 14.0), tolerance=0.05)
    assert found.change == "cannot tell"
    assert found.steps_needed is None
    assert "5 baselines" in found.why
    assert "save more baselines, or calm the machine" in found.why


def test_a_regression_beyond_what_baselines_differ_by_is_one(some_run: Snapshot) -> None:
    before = [steady(some_run, ms) for ms in (10.0, 10.1, 9.9, 10.05, 9.95)]
    assert compare_with(before, steady(some_run, 11.5), tolerance=0.05).change == "slower"
    assert compare_with(before, steady(some_run, 10.1), tolerance=0.05).change == "holds"


def test_a_baseline_with_too_few_steps_lets_nothing_be_told(some_run: Snapshot) -> None:
    before = [steady(some_run, 10.0), of(some_run, 10.0, 10.0)]
    found = compare_with(before, steady(some_run, 20.0), tolerance=0.05)
    assert (found.change, found.ratio) == ("cannot tell", None)


def test_unchanged_captures_of_a_machine_that_changes_are_seldom_called_slower(some_run: Snapshot) -> None:
    # Each capture is as much faster or slower as the machine is just then (20 %): one baseline is often wrong.
    random = np.random.default_rng(7)
    called = {1: 0, 5: 0}
    for _ in range(200):
        runs = [steady(some_run, float(ms)) for ms in 10.0 * np.exp(random.normal(0, 0.2, 6))]
        for count in called:
            called[count] += compare_with(runs[:count], runs[5], tolerance=0.05).change == "slower"
    assert called[1] > 60
    assert called[5] <= 10


@pytest.mark.parametrize(("freedom", "expected"), [(1, 6.3138), (2, 2.9200), (3, 2.3534), (4, 2.1318), (30, 1.6973)])
def test_students_quantiles_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert student(0.90, freedom) == pytest.approx(expected, rel=0.02)


def test_the_gate_takes_several_baselines(tmp_path: Path) -> None:
    files = []
    for number, length in enumerate((1000, 1400, 1000, 1400)):
        marked = [event("train", length * n, length, step_num=n) for n in range(8)]
        logdir = logdir_of(tmp_path / str(number), a=space(host(*marked)))
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(snapshot_text(take(tfperf.load(logdir), "run")))
    assert tfperf.check(logdir, baseline=files[0]).exit_code == 3
    assert tfperf.check(logdir, baseline=files[:3]).exit_code == 1
