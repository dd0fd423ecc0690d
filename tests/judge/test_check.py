"""The gate as a whole: what becomes of each limit, on one host and on several, and against a baseline."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import event, host, space
from click.testing import Result
from judge.example_jobs import analysis_of, bare_job, input_job, job_without_steps, noisy_job

import tfperf
from tfperf.analysis.registry import default_sections
from tfperf.formats.wire.capture_plane import CaptureFacts
from tfperf.judge.check import check, check_profile, needed_sections
from tfperf.judge.config import CheckConfig
from tfperf.judge.grammar import read_limit
from tfperf.judge.limits import LimitError, named_limit
from tfperf.judge.outcome import Judged, Outcome, not_judged
from tfperf.judge.run_summary import baseline_text
from tfperf.judge.summarize import summarize_run
from tfperf.report.render import render


def outcome_of(analysis: tfperf.Analysis, *limits: str, **settings: Any) -> Outcome:
    return check(analysis, CheckConfig(limits=tuple(map(read_limit, limits)), **settings))


def judged_by(analysis: tfperf.Analysis, limit: str, **settings: Any) -> Judged:
    (judged,) = outcome_of(analysis, limit, **settings).judged
    return judged


# --- one host ---


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        ("input_bound <= 30%", "pass"),  # exactly at the bound
        ("input_bound < 30%", "breach"),
        ("input_bound >= 30%", "pass"),
        ("input_bound > 30%", "breach"),
        (f"input_bound <= {math.nextafter(30.0, 0)!r}%", "breach"),
        (f"input_bound <= {math.nextafter(30.0, 99)!r}%", "pass"),
        ("step_time <= 0.1ms", "pass"),
        ("step_time <= 99us", "breach"),
        ("p95(step_time) <= 100us", "pass"),
        ("max(step_time) < 100us", "breach"),
        ("kernel_launch <= 100%", "unknown"),  # no device
        ("device_busy >= 0%", "unknown"),
        ("memory < 1GiB", "unknown"),
        ("retraces <= 5", "unknown"),
        ("skew <= 100%", "unknown"),  # one host
        ("kernels.total_us < 5", "unknown"),  # no such table in this profile
        ("steps.step_time_ms <= 0.1", "pass"),
        ("steps.step_time_ms[kind=eval] <= 0.1", "unknown"),  # no row
        ("count(steps.step[kind=eval]) <= 0", "pass"),
    ],
)
def test_limits_are_judged_unrounded(tmp_path: Path, limit: str, status: str) -> None:
    judged = judged_by(analysis_of(tmp_path, a=input_job(30)), limit)
    assert judged.status == status
    assert (judged.measured is None) == (status == "unknown")
    assert judged.host == ""
    assert judged.why.endswith(".")


def test_an_outcome_holds_what_was_judged_and_of_which_profile(tmp_path: Path) -> None:
    limits = (named_limit("max-input-bound", "10%"), read_limit("step_time < 1ms"))
    outcome = check(analysis_of(tmp_path, a=input_job(30)), CheckConfig(limits=limits))
    assert [(judged.title, judged.measured, judged.unit, judged.status) for judged in outcome.judged] == [
        ("Input-bound", 30.0, "%", "breach"),
        ("Step time (mean)", 0.1, "ms", "pass"),
    ]
    assert [judged.limit for judged in outcome.judged] == list(limits)
    assert (outcome.run, outcome.hosts, outcome.step_count) == ("2026_01_01_00_00_00", ("a",), 5)
    assert outcome.folder.endswith("2026_01_01_00_00_00")
    assert outcome.judged[0].why == "over 5 train steps."


@pytest.mark.parametrize(
    ("limits", "exit_code", "breached", "unknown"),
    [
        (["input_bound <= 30%", "step_time < 1s"], 0, 0, 0),
        (["input_bound <= 30%", "memory < 1GiB"], 1, 0, 1),
        (["input_bound <= 10%", "step_time < 1s"], 3, 1, 0),
        (["input_bound <= 10%", "memory < 1GiB"], 3, 1, 1),
        ([], 1, 0, 0),
    ],
)
def test_the_exit_code_is_that_of_the_worst_result(
    tmp_path: Path, limits: list[str], exit_code: int, breached: int, unknown: int
) -> None:
    outcome = outcome_of(analysis_of(tmp_path, a=input_job(30)), *limits)
    assert outcome.exit_code == exit_code
    assert (len(outcome.breached), len(outcome.unknown)) == (breached, unknown)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_too_few_steps_are_never_a_pass(tmp_path: Path, steps: int) -> None:
    outcome = outcome_of(analysis_of(tmp_path, a=input_job(30, steps=steps)), "input_bound <= 99%")
    (judged,) = outcome.judged
    assert (judged.status, judged.measured, outcome.exit_code, outcome.step_count) == ("unknown", None, 1, steps)
    assert judged.why.startswith(f"{steps} whole step")
    assert "--min-steps asks for 3: profile longer." in judged.why


def test_fewer_steps_suffice_if_that_is_set_but_never_none(tmp_path: Path) -> None:
    two_steps = analysis_of(tmp_path, a=input_job(30, steps=2))
    assert outcome_of(two_steps, "input_bound <= 99%", min_steps=2).exit_code == 0
    assert outcome_of(two_steps, "input_bound <= 99%", min_steps=0).exit_code == 0
    no_steps = analysis_of(tmp_path / "2", a=input_job(30, steps=0))
    assert outcome_of(no_steps, "input_bound <= 99%", min_steps=0).exit_code == 1


def test_input_that_the_trace_does_not_show_is_unknown(tmp_path: Path) -> None:
    judged = judged_by(analysis_of(tmp_path, a=bare_job(*[100] * 5)), "input_bound <= 99%")
    assert (judged.status, judged.measured) == ("unknown", None)
    assert "does not show where input comes from" in judged.why


def test_the_statistic_of_step_times_can_be_chosen(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=bare_job(100, 100, 100, 200))
    measured = {stat: judged_by(analysis, "step_time <= 1ms", stat=stat) for stat in ("mean", "median", "p95")}
    assert measured["mean"].measured == 0.125
    assert measured["median"].measured == 0.1
    assert measured["p95"].measured == pytest.approx(0.185)  # 100 + 0.85 * 100
    assert measured["p95"].title == "Step time (p95)"
    longest = judged_by(analysis, "max(step_time) < 1ms", stat="p95")
    assert (longest.title, longest.measured) == ("Step time (max)", 0.2)


def test_first_steps_can_be_skipped(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=bare_job(150, 100, 100, 100, 100))
    outcome = outcome_of(analysis, "max(step_time) <= 100us", "steps.step_time_ms <= 0.1", skip_first=1)
    assert (outcome.exit_code, outcome.step_count) == (0, 4)
    assert outcome.notes[0] == "Skipped: the first step."
    assert outcome_of(analysis, "max(step_time) <= 100us", skip_first=2).notes[0] == "Skipped: the first 2 steps."
    assert outcome_of(analysis, "max(step_time) <= 100us", skip_first=0).exit_code == 3
    assert outcome_of(analysis, "max(step_time) <= 100us", skip_first=10**9).exit_code == 1


# --- doubt ---


def half_fetched_job() -> bytes:
    """Ten marked steps of 100 us; the first five wait 30 us for input, the others show none."""
    steps = [event("train", 100 * number, 100, step_num=number) for number in range(10)]
    return space(host(*steps, *(event("IteratorGetNextOp::DoCompute", 100 * number, 30) for number in range(5))))


STOPS = (
    "no call of tf.data is in the last 5 of 10 steps, and one in each of the others: data of some thread may be missing"
)


def test_a_doubt_that_touches_a_figure_leaves_its_limit_unknown(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=half_fetched_job())
    for limit in ("input_bound <= 20%", "input_bound <= 10%"):
        judged = judged_by(analysis, limit)
        assert (judged.status, judged.measured, judged.doubt) == ("unknown", None, "")
        assert judged.why == (
            f"the profile may be incomplete or wrong: {STOPS}; capture it again, and copy the whole file, or judge it "
            "all the same with --allow-doubt."
        )
    for limit in ("input_cost <= 20%", "cause[input_wait] <= 0", "steps.input_ms < 1s"):
        assert "the last 5 of 10 steps" in judged_by(analysis, limit).why, limit


def test_a_doubt_that_does_not_touch_a_figure_is_a_note(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=half_fetched_job())
    outcome = outcome_of(analysis, "step_time <= 1ms")
    assert (outcome.exit_code, outcome.judged[0].doubt) == (0, "")
    assert outcome.notes == (f"The profile may be incomplete or wrong: {STOPS}. No limit here rests on that.",)
    both = outcome_of(analysis, "step_time <= 1ms", "input_bound <= 20%")
    assert ([judged.status for judged in both.judged], both.notes) == (["pass", "unknown"], ())


@pytest.mark.parametrize(("limit", "status"), [("input_bound <= 20%", "pass"), ("input_bound <= 10%", "breach")])
def test_allowed_doubt_is_judged_and_said(tmp_path: Path, limit: str, status: str) -> None:
    outcome = outcome_of(analysis_of(tmp_path, a=half_fetched_job()), limit, "step_time <= 1ms", allow_doubt=True)
    of_input, of_steps = outcome.judged
    assert (of_input.status, of_input.measured, of_input.doubt) == (status, 15.0, STOPS)
    assert (of_steps.status, of_steps.doubt) == ("pass", "")
    assert outcome.despite_doubt == (of_input,)
    assert outcome.notes == (f"The profile may be incomplete or wrong: {STOPS}.",)


def test_a_doubtful_host_passes_nothing_and_a_breach_of_another_one_counts(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=input_job(30), b=half_fetched_job())
    unknown = judged_by(analysis, "input_bound <= 50%")
    assert (unknown.status, unknown.why.split(": ")[0]) == ("unknown", "host b")
    outcome = outcome_of(analysis, "input_bound <= 20%")
    assert (outcome.exit_code, outcome.judged[0].host) == (3, "a")
    assert outcome.notes == (f"The profile of host b may be incomplete or wrong: {STOPS}.",)
    assert judged_by(analysis, "input_bound <= 50%", allow_doubt=True).doubt == f"host b: {STOPS}"


def test_damage_is_not_allowed_with_doubt(tmp_path: Path) -> None:
    marks = [event("train", 100 * number, 100, step_num=number) for number in range(5)]
    broken = space(host(*marks, event("work", 5, -1)))
    assert judged_by(analysis_of(tmp_path, a=broken), "step_time <= 1s", allow_doubt=True).status == "unknown"


def test_a_baseline_whose_steps_are_doubtful_is_not_compared(tmp_path: Path) -> None:
    marks = [event("train", 100 * number, 100, step_num=number) for number in range(40)]
    doubtful = space(host(*marks, event("train", 3950, 100, step_num=40)))
    baseline = tmp_path / "baseline.json"
    before = analysis_of(tmp_path / "before", a=doubtful)
    baseline.write_text(baseline_text(summarize_run(before, "before")), encoding="utf-8")
    after = analysis_of(tmp_path / "after", a=space(host(*marks)))
    outcome = check_profile(after, baseline=baseline)
    assert outcome.exit_code == 1
    assert "Soundness: 1 marker of steps inside the one before" in outcome.judged[0].why
    outcome = check_profile(after, baseline=baseline, allow_doubt=True)
    assert (outcome.exit_code, outcome.judged[0].doubt[:24]) == (0, "baseline before: 1 marke")
    assert check_profile(before, baseline=baseline).judged[0].why.startswith("the profile may be incomplete or wrong")


def test_steps_found_with_low_confidence_are_doubtful(tmp_path: Path) -> None:
    calls = [event("IteratorGetNextOp::DoCompute", 100 * number, 10) for number in range(3)]
    analysis = analysis_of(tmp_path, a=space(host(*calls)))
    steps = analysis["steps"].steps
    assert steps.confidence == "low"
    outcome = outcome_of(analysis, "step_time < 1s", min_steps=1)
    said = f"steps were found with low confidence: {steps.explanation}"
    assert (outcome.exit_code, outcome.notes) == (1, ())
    assert outcome.judged[0].why == (
        f"the profile may be incomplete or wrong: {said}; mark the steps with tfperf.step, or name their event with "
        "--step-marker, or judge it all the same with --allow-doubt."
    )
    outcome = outcome_of(analysis, "step_time < 1s", min_steps=1, allow_doubt=True)
    assert (outcome.exit_code, outcome.judged[0].doubt) == (0, said)


def test_a_step_time_says_which_steps_it_is_of(tmp_path: Path) -> None:
    """The first of five steps is slow, so four count."""
    outcome = outcome_of(analysis_of(tmp_path, a=bare_job(1000, 100, 100, 100, 100)), "step_time < 1s")
    (judged,) = outcome.judged
    assert judged.why == "mean of 4 of 5 train steps; omitted: 1 slow first."
    assert outcome.notes == ("Step time: mean of 4 of 5 train steps; omitted: 1 slow first.",)


# --- several hosts ---


def test_the_worst_host_decides_and_is_named(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=input_job(10), b=input_job(30), c=input_job(20))
    upper = judged_by(analysis, "input_bound <= 25%")
    assert (upper.status, upper.host, upper.measured) == ("breach", "b", 30.0)
    lower = judged_by(analysis, "input_bound >= 5%")
    assert (lower.status, lower.host, lower.measured) == ("pass", "a", 10.0)
    rows = judged_by(analysis, "max(input_steps.input_percent) < 25")
    assert (rows.status, rows.host, rows.measured) == ("breach", "b", 30.0)


def test_a_host_without_steps_is_never_a_pass(tmp_path: Path) -> None:
    outcome = outcome_of(analysis_of(tmp_path, a=input_job(10), b=job_without_steps()), "input_bound <= 25%")
    (judged,) = outcome.judged
    assert (judged.status, judged.host, outcome.step_count, outcome.exit_code) == ("unknown", "", 0, 1)
    assert judged.why.startswith("host b: 0 whole steps count")
    assert "choose the hosts that count with --host" in judged.why
    # Without that host, the limit holds.
    assert outcome_of(tfperf.load(tmp_path / "logs", hosts=["a"]), "input_bound <= 25%").exit_code == 0


def test_a_breach_on_one_host_counts_whatever_is_unknown_on_others(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=job_without_steps(), b=input_job(30), c=input_job(10, steps=1))
    breach = judged_by(analysis, "input_bound <= 25%")
    assert (breach.status, breach.host, breach.measured) == ("breach", "b", 30.0)
    unknown = judged_by(analysis, "input_bound <= 35%")
    assert unknown.status == "unknown"
    assert unknown.why.endswith("; 1 other host cannot be judged either.")


def test_skew_is_judged_once_for_all_hosts(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=input_job(step_us=100), b=input_job(step_us=130), c=input_job(step_us=100))
    judged = judged_by(analysis, "skew <= 25%")
    assert (judged.status, judged.host) == ("breach", "b")
    assert judged.measured == pytest.approx(30.0)
    assert judged.why == "its steps take 0.130 ms, the median of 3 hosts is 0.100 ms."
    assert judged_by(analysis, "skew <= 31%").status == "pass"


def test_skew_needs_steps_on_every_host(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=input_job(step_us=100), b=input_job(step_us=130), c=input_job(steps=1))
    judged = judged_by(analysis, "skew <= 1%")
    assert (judged.status, judged.measured) == ("unknown", None)
    assert judged.why.startswith("host c: 1 whole step counts")


def test_tables_over_hosts_are_judged_once(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=input_job(step_us=100), b=input_job(step_us=130))
    judged = judged_by(analysis, "steps_by_host.average_ms <= 0.12ms")
    assert (judged.status, judged.host, judged.measured) == ("breach", "b", 0.13)
    assert judged.why == "host b, the worst of 2 rows."


# --- sections ---


@pytest.mark.parametrize(
    ("limits", "sections"),
    [
        (["input_bound <= 1%", "step_time < 1s"], {"steps"}),
        (["memory < 1GiB"], {"memory"}),
        (["device_busy >= 1%", "functions.traced_calls < 1"], {"steps", "idle", "functions"}),
        (["steps_by_host.average_ms < 1"], {"overview"}),
        ([], {"steps"}),
    ],
)
def test_only_sections_that_limits_name_are_needed(limits: list[str], sections: set[str]) -> None:
    assert set(needed_sections(CheckConfig(limits=tuple(map(read_limit, limits))))) == sections


def test_a_baseline_needs_all_sections() -> None:
    needed = needed_sections(CheckConfig(baseline=(Path("baseline.json"),)))
    assert needed == (*default_sections(), "step_sums")


def test_sections_that_were_not_analyzed_are_analyzed_when_limits_need_them(tmp_path: Path) -> None:
    analysis_of(tmp_path, a=input_job(30))
    analysis = tfperf.load(tmp_path / "logs", sections=["steps"])
    judged = judged_by(analysis, "max(input_steps.input_percent) < 25")
    assert (judged.status, judged.measured) == ("breach", 30.0)
    assert judged.evidence
    assert "input" not in analysis.sections


def test_a_breach_stays_one_where_its_evidence_cannot_be_read(tmp_path: Path) -> None:
    analysis_of(tmp_path, a=input_job(30))
    analysis = tfperf.load(tmp_path / "logs", sections=["steps"])
    shutil.rmtree(tmp_path / "logs")
    outcome = outcome_of(analysis, "input_bound <= 1%", "step_time < 1s")
    assert (outcome.exit_code, [judged.status for judged in outcome.judged]) == (3, ["breach", "pass"])
    (finding,) = outcome.judged[0].evidence
    assert finding.text.startswith("What explains this cannot be read: ")
    assert outcome.judged[1].evidence == ()


def test_a_breach_has_evidence_of_the_worst_host(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=bare_job(*[100] * 5), b=input_job(80))
    (judged,) = outcome_of(analysis, "all_others <= 99%").judged
    assert (judged.status, judged.host) == ("breach", "a")
    assert [finding.code for finding in judged.evidence] == ["python_between_steps"]


def test_the_analysis_is_not_changed(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=input_job(30), b=input_job(10))
    hosts, before = analysis.hosts, render(analysis.report(), "json")
    assert outcome_of(analysis, "input_bound < 1%", "steps.step_time_ms < 1us", skip_first=2).exit_code == 3
    assert analysis.hosts is hosts
    assert len(analysis.hosts[0]["steps"].steps) == 5
    # From the results of the hosts anew: what was combined before the check must not hide a change.
    assert render(analysis.only(hosts).report(), "json") == before


# --- against a baseline ---

Baseline = Callable[[tfperf.Analysis], Path]


@pytest.fixture
def baseline(tmp_path: Path, run_tfperf: Callable[..., Result]) -> Baseline:
    """Save the baseline of a run, as `tfperf analyze --save-baseline` does."""

    def save(analysis: tfperf.Analysis) -> Path:
        path = tmp_path / "baseline.json"
        result = run_tfperf("analyze", analysis.run.folder, "--save-baseline", path, "-s", "overview", "--force")
        assert result.exit_code == 0, result.output
        return path

    return save


def test_a_regression_is_a_breach(tmp_path: Path, baseline: Baseline) -> None:
    before, after = analysis_of(tmp_path / "1", a=noisy_job(100)), analysis_of(tmp_path / "2", a=noisy_job(120))
    outcome = outcome_of(after, baseline=(baseline(before),))
    (judged,) = outcome.judged
    assert (judged.status, outcome.exit_code, judged.title, judged.unit) == ("breach", 3, "Regression", "%")
    assert judged.limit.text == "max-regression 5%"
    assert judged.measured == pytest.approx(20.0)
    assert judged.comparison is not None
    assert judged.comparison.verdict == "slower"
    assert [finding.code for finding in judged.evidence] == ["python_between_steps"]


def test_a_larger_tolerance_may_hold(tmp_path: Path, baseline: Baseline) -> None:
    before, after = analysis_of(tmp_path / "1", a=noisy_job(100)), analysis_of(tmp_path / "2", a=noisy_job(120))
    outcome = outcome_of(after, baseline=(baseline(before),), max_regression=0.25)
    (judged,) = outcome.judged
    assert (judged.status, judged.limit.bound, outcome.exit_code) == ("pass", 25.0, 0)


def test_a_tolerance_of_0_is_a_setting(tmp_path: Path, baseline: Baseline) -> None:
    analysis = analysis_of(tmp_path, a=noisy_job(100))
    (judged,) = outcome_of(analysis, baseline=(baseline(analysis),), max_regression=0.0).judged
    assert judged.limit.text == "max-regression 0%"


def test_the_same_run_is_not_a_regression(tmp_path: Path, baseline: Baseline) -> None:
    analysis = analysis_of(tmp_path, a=noisy_job(100))
    assert outcome_of(analysis, baseline=(baseline(analysis),)).exit_code == 0


def test_too_few_steps_to_compare_are_unknown(tmp_path: Path, baseline: Baseline) -> None:
    analysis = analysis_of(tmp_path, a=noisy_job(100, steps=4))
    (judged,) = outcome_of(analysis, baseline=(baseline(analysis),)).judged
    assert (judged.status, judged.measured) == ("unknown", None)
    assert judged.comparison is not None
    assert judged.why == judged.comparison.why


def test_a_host_without_steps_is_never_a_pass_of_a_regression(tmp_path: Path, baseline: Baseline) -> None:
    analysis = analysis_of(tmp_path, a=noisy_job(100), b=job_without_steps())
    (judged,) = outcome_of(analysis, baseline=(baseline(analysis),)).judged
    assert (judged.status, judged.why[:7]) == ("unknown", "host b:")


def test_different_jobs_are_not_compared(tmp_path: Path, baseline: Baseline) -> None:
    before = analysis_of(tmp_path / "1", a=noisy_job(100))
    after = analysis_of(tmp_path / "2", a=noisy_job(120), b=noisy_job(120))
    (judged,) = outcome_of(after, baseline=(baseline(before),)).judged
    assert judged.status == "unknown"
    assert judged.why.startswith("The runs cannot be compared. Hosts: 1 before, 2 now;")


def test_runs_of_other_batch_sizes_are_not_judged(tmp_path: Path, baseline: Baseline) -> None:
    """Per example, larger batches alone are faster, which would hide that the program became slower."""
    small, large = (CaptureFacts(batch_size=size, steps_per_execution=1).to_bytes() for size in (8, 16))
    before = analysis_of(tmp_path / "1", a=noisy_job(100) + small)
    after = analysis_of(tmp_path / "2", a=noisy_job(110) + large)
    (judged,) = outcome_of(after, baseline=(baseline(before),)).judged
    assert (judged.status, judged.measured) == ("unknown", None)
    assert judged.why == (
        "The runs cannot be compared. Batch size: 8 before, 16 now; a step is other work, and more examples at once "
        "take less time each: compare equal batches."
    )


def test_a_tolerance_without_a_baseline_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LimitError, match="max-regression needs a baseline to compare with"):
        outcome_of(analysis_of(tmp_path, a=input_job()), "step_time < 1s", max_regression=0.1)


# --- in the words of the command ---


def test_check_takes_limits_in_words_and_a_path_or_an_analysis(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=input_job(30))
    for profile in (analysis, tmp_path / "logs", str(tmp_path / "logs")):
        outcome = check_profile(profile, max_input_bound="10%", limits=["step_time < 1s"], skip_first=1)
        assert [(judged.limit.text, judged.status) for judged in outcome.judged] == [
            ("max-input-bound 10%", "breach"),
            ("step_time < 1s", "pass"),
        ]
        assert (outcome.step_count, outcome.judged[0].limit.origin) == (4, "tfperf.check")


def test_check_compares_with_one_baseline_or_several(tmp_path: Path, baseline: Baseline) -> None:
    before, after = analysis_of(tmp_path / "1", a=noisy_job(100)), analysis_of(tmp_path / "2", a=noisy_job(120))
    path = baseline(before)
    assert check_profile(after, baseline=path).exit_code == 3
    assert check_profile(after, baseline=str(path), max_regression="25%").exit_code == 0
    assert check_profile(before, baseline=[path, path]).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "no limit is given"),
        ({"limits": ["step_tim < 1s"]}, "tfperf.check: limit 'step_tim < 1s', character 1: there is no figure"),
        ({"max_input_bond": "10%"}, "tfperf.check: there is no limit 'max-input-bond': did you mean"),
        ({"max_input_bound": 0.1}, "tfperf.check: max-input-bound: '0.1' may mean 10% or 0.1%"),
        ({"max_regression": "much", "baseline": "b.json"}, "tfperf.check: max-regression: 'much' is not a number"),
        ({"max_regression": "5%"}, "max-regression needs a baseline to compare with"),
        ({"max_regression": "5%", "max_retraces": 0}, "max-regression needs a baseline to compare with"),
    ],
)
def test_limits_that_cannot_be_read_are_errors_before_the_profile_is(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(LimitError) as raised:
        check_profile("no_such_logdir", **arguments)
    assert message in str(raised.value)


def test_without_a_profile_every_limit_is_unknown() -> None:
    limits = [read_limit("step_time < 1s"), read_limit("memory < 1GiB")]
    outcome = not_judged(limits, "logs/ does not exist")
    assert (outcome.exit_code, outcome.hosts, outcome.step_count) == (1, (), 0)
    assert [(judged.status, judged.why) for judged in outcome.judged] == [("unknown", "logs/ does not exist")] * 2
