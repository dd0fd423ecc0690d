"""The gate as a whole: what becomes of each limit, on one host and on several, and against a baseline."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import event, host, line, logdir_of, plane, ref, space
from click.testing import Result
from judge.example_jobs import (
    allocation,
    analysis_of,
    bare_job,
    half_fetched_job,
    input_job,
    job_without_steps,
    judged_by,
    noisy_job,
    only_host,
    outcome_of,
    steps,
    two_kinds_job,
)
from judge.example_runs import job as pipeline_job
from places import TRACES

import tfperf
from tfperf.analysis.registry import default_sections, section_names
from tfperf.formats.wire.capture_plane import CaptureFacts
from tfperf.judge.check import check, check_profile, evidence_of, evidence_sections, needed_sections
from tfperf.judge.config import CheckConfig
from tfperf.judge.grammar import limit_tables, read_limit
from tfperf.judge.limits import FIGURES, REGRESSION, LimitError, Metric, named_limit
from tfperf.judge.outcome import check_report
from tfperf.judge.run_summary import baseline_text
from tfperf.judge.summarize import summarize_run
from tfperf.report.model import Finding
from tfperf.report.render import render


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        ("input_bound <= 30%", "pass"),  # exactly at the bound
        ("input_bound < 30%", "breach"),
        ("input_bound <= 29.999999999999996%", "breach"),
        ("step_time <= 0.1ms", "pass"),
        ("step_time <= 99us", "breach"),
        ("p95(step_time) <= 100us", "pass"),
        ("max(step_time) < 100us", "breach"),
        ("memory < 1GiB", "unknown"),
        ("skew <= 100%", "unknown"),  # one host
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
    assert outcome.judged[0].why == "over 5 training steps."


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_steps_are_never_a_pass(tmp_path: Path, count: int) -> None:
    outcome = outcome_of(analysis_of(tmp_path, a=input_job(30, count=count)), "input_bound <= 99%")
    (judged,) = outcome.judged
    assert (judged.status, judged.measured, outcome.exit_code, outcome.step_count) == ("unknown", None, 1, count)
    assert judged.why.startswith(f"{count} whole step")
    assert "--min-steps is 3: profile longer." in judged.why


def test_fewer_steps_suffice_if_that_is_set_but_never_none(tmp_path: Path) -> None:
    for count, least, status in ((2, 2, "pass"), (2, 0, "pass"), (0, 0, "unknown")):
        analysis = analysis_of(tmp_path / f"{count}.{least}", a=input_job(30, count=count))
        assert judged_by(analysis, "input_bound <= 99%", min_steps=least).status == status, (count, least)


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


STOPS = "the last 5 of 10 steps have no tf.data call, and all other steps have one: events of a thread may be missing"


def test_a_doubt_that_touches_a_figure_leaves_its_limit_unknown(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=half_fetched_job())
    for limit in ("input_bound <= 20%", "input_bound <= 10%"):
        judged = judged_by(analysis, limit)
        assert (judged.status, judged.measured, judged.doubt) == ("unknown", None, "")
        assert judged.why.startswith(f"the profile may be incomplete or wrong: {STOPS}; capture it again")
        assert judged.why.endswith("check it anyway with --allow-doubt.")
    for limit in ("input_cost <= 20%", "cause[input_wait] <= 0", "steps.input_ms < 1s"):
        assert "the last 5 of 10 steps" in judged_by(analysis, limit).why, limit


def test_a_doubt_that_does_not_touch_a_figure_is_a_note(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=half_fetched_job())
    outcome = outcome_of(analysis, "step_time <= 1ms")
    assert (outcome.exit_code, outcome.judged[0].doubt) == (0, "")
    assert outcome.notes == (f"The profile may be incomplete or wrong: {STOPS}. No limit depends on it.",)
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
    broken = space(host(*steps(), event("work", 5, -1)))
    assert judged_by(analysis_of(tmp_path, a=broken), "step_time <= 1s", allow_doubt=True).status == "unknown"


def test_a_baseline_whose_steps_are_doubtful_is_not_compared(tmp_path: Path) -> None:
    doubtful = space(host(*steps(count=40), event("train", 3950, 100, step_num=40)))
    before = analysis_of(tmp_path / "before", a=doubtful)
    baseline = saved(tmp_path, before)
    after = analysis_of(tmp_path / "after", a=space(host(*steps(count=40))))
    outcome = check_profile(after, baseline=baseline)
    assert outcome.exit_code == 1
    assert "Soundness: 1 step marker inside the previous marker" in outcome.judged[0].why
    outcome = check_profile(after, baseline=baseline, allow_doubt=True)
    assert (outcome.exit_code, outcome.judged[0].doubt[:24]) == (0, "baseline before: 1 step ")
    assert check_profile(before, baseline=baseline).judged[0].why.startswith("the profile may be incomplete or wrong")


def test_steps_found_with_low_confidence_are_doubtful(tmp_path: Path) -> None:
    fetches = (event("IteratorGetNextOp::DoCompute", 100 * number, 10) for number in range(3))
    analysis = analysis_of(tmp_path, a=space(host(*fetches)))
    steps = analysis["steps"].steps
    assert steps.confidence == "low"
    outcome = outcome_of(analysis, "step_time < 1s", min_steps=1)
    said = f"step detection has low confidence: {steps.explanation}"
    assert (outcome.exit_code, outcome.notes) == (1, ())
    assert outcome.judged[0].why.startswith(f"the profile may be incomplete or wrong: {said}; mark the steps with")
    outcome = outcome_of(analysis, "step_time < 1s", min_steps=1, allow_doubt=True)
    assert (outcome.exit_code, outcome.judged[0].doubt) == (0, said)


def test_a_step_time_says_which_steps_it_is_of(tmp_path: Path) -> None:
    """The first of five steps is slow, so four count."""
    outcome = outcome_of(analysis_of(tmp_path, a=bare_job(1000, 100, 100, 100, 100)), "step_time < 1s")
    (judged,) = outcome.judged
    assert judged.why == "mean of 4 of 5 training steps; omitted: 1 slow first."
    assert outcome.notes == ("Step time: mean of 4 of 5 training steps; omitted: 1 slow first.",)


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
    assert "select hosts with --host" in judged.why
    # Without that host, the limit holds.
    assert outcome_of(tfperf.load(tmp_path / "logs", hosts=["a"]), "input_bound <= 25%").exit_code == 0


def test_a_breach_on_one_host_counts_whatever_is_unknown_on_others(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=job_without_steps(), b=input_job(30), c=input_job(10, count=1))
    breach = judged_by(analysis, "input_bound <= 25%")
    assert (breach.status, breach.host, breach.measured) == ("breach", "b", 30.0)
    unknown = judged_by(analysis, "input_bound <= 35%")
    assert unknown.status == "unknown"
    assert unknown.why.endswith("; 1 other host cannot be checked either.")


def test_skew_is_judged_once_for_all_hosts(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=input_job(step_us=100), b=input_job(step_us=130), c=input_job(step_us=100))
    judged = judged_by(analysis, "skew <= 25%")
    assert (judged.status, judged.host) == ("breach", "b")
    assert judged.measured == pytest.approx(30.0)
    assert judged.why == "its steps take 0.130 ms; the median of 3 hosts is 0.100 ms."
    assert judged_by(analysis, "skew <= 31%").status == "pass"
    analysis = analysis_of(tmp_path / "2", a=input_job(step_us=100), b=input_job(step_us=130), c=input_job(count=1))
    judged = judged_by(analysis, "skew <= 1%")
    assert (judged.status, judged.why[:34]) == ("unknown", "host c: 1 whole step counts (of 1 ")


def test_tables_over_hosts_are_judged_once(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=input_job(step_us=100), b=input_job(step_us=130))
    judged = judged_by(analysis, "steps_by_host.average_ms <= 0.12ms")
    assert (judged.status, judged.host, judged.measured) == ("breach", "b", 0.13)
    assert judged.why == "host b, the worst of 2 rows."


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
    assert finding.text.startswith("Cannot read the evidence for this breach: ")
    assert outcome.judged[1].evidence == ()


def test_a_breach_has_evidence_of_the_worst_host(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=bare_job(*[100] * 5), b=input_job(80))
    judged = judged_by(analysis, "all_others <= 99%")
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


def saved(tmp_path: Path, analysis: tfperf.Analysis) -> Path:
    path = tmp_path / "baseline.json"
    path.write_text(baseline_text(summarize_run(analysis, "before")), encoding="utf-8")
    return path


def test_a_regression_is_a_breach(tmp_path: Path) -> None:
    before, after = (analysis_of(tmp_path / str(us), a=noisy_job(us)) for us in (100, 120))
    outcome = outcome_of(after, baseline=(saved(tmp_path, before),))
    (judged,) = outcome.judged
    assert (judged.status, outcome.exit_code, judged.title, judged.unit) == ("breach", 3, "Regression", "%")
    assert judged.limit.text == "max-regression 5%"
    assert judged.measured == pytest.approx(20.0)
    assert judged.comparison is not None
    assert judged.comparison.verdict == "slower"
    assert [finding.code for finding in judged.evidence] == ["python_between_steps"]


def test_too_few_steps_to_compare_are_unknown(tmp_path: Path) -> None:
    few, unknown = {"a": noisy_job(100, steps=4)}, {"a": noisy_job(100), "b": job_without_steps()}
    for hosts, why in ((few, "the runs have 4 and 4 whole steps"), (unknown, "host b:")):
        analysis = analysis_of(tmp_path / str(len(hosts)), **hosts)
        judged = judged_by(analysis, baseline=(saved(tmp_path, analysis),))
        assert (judged.status, judged.measured) == ("unknown", None)
        assert judged.why.startswith(why)


def test_different_jobs_are_not_compared(tmp_path: Path) -> None:
    before = saved(tmp_path, analysis_of(tmp_path / "1", a=noisy_job(100)))
    judged = judged_by(analysis_of(tmp_path / "2", a=noisy_job(120), b=noisy_job(120)), baseline=(before,))
    assert judged.status == "unknown"
    assert judged.why.startswith("The runs are not comparable. Hosts: 1 before, 2 now;")


def test_runs_of_other_batch_sizes_are_not_judged(tmp_path: Path) -> None:
    """Per example, larger batches alone are faster, which would hide that the program became slower."""
    small, large = (CaptureFacts(batch_size=size, steps_per_execution=1).to_bytes() for size in (8, 16))
    before = saved(tmp_path, analysis_of(tmp_path / "1", a=noisy_job(100) + small))
    judged = judged_by(analysis_of(tmp_path / "2", a=noisy_job(110) + large), baseline=(before,))
    assert (judged.status, judged.measured) == ("unknown", None)
    assert judged.why.startswith("The runs are not comparable. Batch size: 8 before, 16 now; ")


def test_check_takes_limits_in_words_and_a_path_or_an_analysis(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=input_job(30))
    for profile in (analysis, tmp_path / "logs", str(tmp_path / "logs")):
        outcome = check_profile(profile, max_input_bound="10%", limits=["step_time < 1s"], skip_first=1)
        assert [(judged.limit.text, judged.status) for judged in outcome.judged] == [
            ("max-input-bound 10%", "breach"),
            ("step_time < 1s", "pass"),
        ]
        assert (outcome.step_count, outcome.judged[0].limit.origin) == (4, "tfperf.check")


def test_check_compares_with_one_baseline_or_several(tmp_path: Path) -> None:
    before, after = (analysis_of(tmp_path / str(us), a=noisy_job(us)) for us in (100, 140))
    first, second = saved(tmp_path / "100", before), saved(tmp_path / "140", after)
    assert check_profile(after, baseline=first).exit_code == 3
    (judged,) = check_profile(after, baseline=str(first), max_regression="45%").judged
    assert (judged.status, judged.limit.bound) == ("pass", 45.0)
    assert check_profile(before, baseline=first, max_regression=0).judged[0].limit.text == "max-regression 0%"
    assert check_profile(before, baseline=[first, first]).exit_code == 0
    assert check_profile(after, baseline=[first, second, first]).exit_code == 1, "the machine varies as much"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "no limits given"),
        ({"limits": ["step_tim < 1s"]}, "tfperf.check: limit 'step_tim < 1s', character 1: unknown figure"),
        ({"max_input_bond": "10%"}, "tfperf.check: unknown limit 'max-input-bond': did you mean"),
        ({"max_input_bound": 0.1}, "tfperf.check: max-input-bound: '0.1' may mean 10% or 0.1%"),
        ({"max_regression": "much", "baseline": "b.json"}, "tfperf.check: max-regression: 'much' is not a number"),
        ({"max_regression": "5%"}, "max-regression requires a baseline"),
        ({"max_regression": "5%", "max_retraces": 0}, "max-regression requires a baseline"),
    ],
)
def test_limits_that_cannot_be_read_are_errors_before_the_profile_is(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(LimitError) as raised:
        check_profile("no_such_logdir", **arguments)
    assert message in str(raised.value)


Run = Callable[..., Result]


def test_without_a_kind_the_gate_says_what_it_leaves_out(tmp_path: Path) -> None:
    """Training steps wait for 10 us of 100, evaluation steps for 70."""
    analysis = analysis_of(tmp_path, a=two_kinds_job())
    outcome = outcome_of(analysis, "input_bound <= 50%")
    (judged,) = outcome.judged
    assert (judged.status, judged.measured) == ("pass", 10.0)
    assert judged.why == "over 5 training steps; 4 evaluation steps are not checked: --by-kind eval."
    assert (outcome.step_count, outcome.step_kind, outcome.other_kinds) == (5, "train", {"eval": 4})
    assert outcome.notes[0] == "Figures are over training steps; 4 evaluation steps are not checked: --by-kind eval."
    of_no_kind = outcome_of(analysis, "input_bound <= 50%", skip_first=100)
    assert of_no_kind.notes[0].startswith("Figures are over steps; 5 training steps and 4 evaluation steps are not ")
    assert outcome_of(analysis, "count(steps.step) <= 9").notes == (), "that table has every kind"


def test_a_kind_is_judged_in_place_of_the_main_one(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=two_kinds_job())
    outcome = outcome_of(analysis, "input_bound <= 50%", by_kind="eval")
    (judged,) = outcome.judged
    assert (judged.status, judged.measured) == ("breach", 70.0)
    assert judged.why == "over 4 evaluation steps; 5 training steps are not checked: --by-kind train."
    assert (outcome.step_count, outcome.step_kind, outcome.other_kinds) == (4, "eval", {"train": 5})
    assert [(fact.value, fact.note) for fact in check_report(outcome).sections[0].facts] == [(4, "evaluation steps")]
    assert outcome.notes[0].startswith("Limits on steps are over evaluation steps; 5 training steps")
    without_first = outcome_of(analysis, "step_time < 1s", by_kind="eval", skip_first=1)
    assert (without_first.step_count, without_first.exit_code) == (3, 0)
    assert without_first.notes[1] == "Skipped: the first evaluation step."
    too_few = judged_by(analysis, "step_time < 1s", by_kind="eval", min_steps=5)
    assert too_few.why.startswith("4 whole evaluation steps count (of 9 recorded), but --min-steps is 5")


@pytest.mark.parametrize(
    ("limit", "of_all", "of_eval"),
    [
        ("count(steps.step) <= 99", 9.0, 4.0),
        ("max(steps.input_ms) <= 1ms", 0.07, 0.07),
        ("min(steps.input_ms) <= 1ms", 0.01, 0.07),
        ("max(categories.percent[category=Input]) <= 99", 10.0, 70.0),
    ],
)
def test_tables_of_steps_hold_only_steps_of_the_kind(tmp_path: Path, limit: str, of_all: float, of_eval: float) -> None:
    analysis = analysis_of(tmp_path, a=two_kinds_job())
    measured = [outcome_of(analysis, limit, by_kind=kind).judged[0].measured for kind in (None, "eval")]
    assert measured == [pytest.approx(of_all), pytest.approx(of_eval)]


def test_a_column_that_cannot_be_cut_to_a_kind_is_unknown(tmp_path: Path) -> None:
    gpu = plane("/device:GPU:0", line("Stream #1", *(event("gemm", 100 * n, 30, correlation_id=n) for n in range(9))))
    train, evaluation = steps(("gradient_tape/x:MatMul", 10)), steps(count=4, start=500, kind="test")
    analysis = analysis_of(tmp_path, a=space(host(*train, *evaluation), gpu))
    judged = judged_by(analysis, "max(idle_devices.gaps) <= 99", by_kind="eval")
    assert (judged.status, judged.why) == ("unknown", "idle_devices.gaps also includes steps that are not checked.")


def test_without_steps_there_is_no_wrong_kind(tmp_path: Path) -> None:
    outcome = outcome_of(analysis_of(tmp_path, a=job_without_steps()), "input_bound <= 50%", by_kind="eval")
    assert (outcome.exit_code, outcome.step_kind, outcome.judged[0].status) == (1, "", "unknown")


def test_a_host_without_steps_of_the_kind_is_unknown(tmp_path: Path) -> None:
    outcome = outcome_of(analysis_of(tmp_path, a=two_kinds_job(), b=input_job(30)), "step_time < 1s", by_kind="eval")
    assert outcome.judged[0].why.startswith("host b: 0 whole")
    assert outcome.other_kinds == {"train": 5}


def test_a_baseline_is_of_one_kind(tmp_path: Path) -> None:
    """That of training steps says nothing about evaluation steps."""
    analysis = analysis_of(tmp_path, a=two_kinds_job())
    judged = judged_by(analysis, baseline=(saved(tmp_path, analysis),), by_kind="eval")
    assert judged.status == "unknown"
    assert "Kind of step: train before, eval now" in judged.why
    assert summarize_run(analysis, "run", kind="eval").hosts[0].input_percent == 70.0


def test_the_command_line_the_file_and_the_library_take_a_kind(tmp_path: Path, run_tfperf: Run) -> None:
    logdir = logdir_of(tmp_path, a=two_kinds_job())
    limit = ("check", logdir, "--max-input-bound", "50%", "--no-config")
    assert run_tfperf(*limit).exit_code == 0
    chosen = run_tfperf(*limit, "--by-kind", "eval", "--format", "json")
    summary = json.loads(chosen.stdout)["summary"]
    assert (chosen.exit_code, summary["step_kind"], summary["other_step_kinds"]) == (3, "eval", {"train": 5})
    config = tmp_path / "tfperf.toml"
    config.write_text('[check]\nmax-input-bound = "50%"\nby-kind = "eval"\n')
    assert run_tfperf("check", logdir, "--config", config).exit_code == 3
    assert run_tfperf("check", logdir, "--config", config, "--by-kind", "train").exit_code == 0
    assert check_profile(logdir, max_input_bound="50%", by_kind="eval").exit_code == 3


def test_a_wrong_kind_ends_with_one_line_and_a_failed_test(tmp_path: Path, run_tfperf: Run) -> None:
    junit = tmp_path / "tfperf.xml"
    arguments = ("--max-input-bound", "50%", "--no-config", "--by-kind", "evl", "--junit", junit)
    result = run_tfperf("check", logdir_of(tmp_path, a=two_kinds_job()), *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no steps of kind 'evl' (--by-kind); the kinds are: train (5 steps), eval (4 steps)" in result.stderr
    assert 'errors="1"' in junit.read_text()


@pytest.mark.skipif(not TRACES.is_dir(), reason="real profiles lie beside the repository, not in it")
def test_of_a_real_job_the_eval_steps_wait_longer() -> None:
    analysis = tfperf.load(TRACES / "steps_tf221" / "val")
    (train,) = outcome_of(analysis, "input_bound <= 50%").judged
    (evaluation,) = outcome_of(analysis, "input_bound <= 50%", by_kind="eval").judged
    assert (train.status, evaluation.status) == ("pass", "breach")
    assert evaluation.measured == pytest.approx(74, abs=1)
    costs = [check_profile(analysis, max_cost="input_wait=50%", by_kind=kind).judged[0] for kind in ("train", "eval")]
    assert [cost.measured for cost in costs] == [train.measured, evaluation.measured]


def evidence(tmp_path: Path, limit: str, data: bytes) -> tuple[Finding, ...]:
    """What explains a breach of a limit in a run of one host."""
    return evidence_of(read_limit(limit).metric, only_host(tmp_path, data))


@pytest.mark.parametrize(
    ("sections", "limits"),
    [
        (("tfdata", "diagnosis"), ("input_bound <= 1%", "input_cost <= 1%", "tfdata_stages.p95_ms < 1")),
        (("functions", "diagnosis"), ("retraces <= 0", "functions.traced_calls < 1")),
        (("memory", "diagnosis"), ("memory < 1kB", "memory_by_op.total_bytes < 1")),
        (("idle", "diagnosis"), ("device_busy >= 99%", "device_time.idle_ms < 1")),
        (("diagnosis",), ("cause_cost[eager_ops] <= 1%", "cause[memory_pressure] <= 0", "kernels.total_us < 1")),
        (("diagnosis",), ("step_time < 1us", "steps.step_time_ms < 1us")),
        ((), ("ops.self_ms < 1us", "device_ops.self_ms < 1us", "op_types.self_ms < 1us")),
        ((), ("count(environment.host) < 1", "pauses.duration_ms < 1us")),
    ],
)
def test_sections_that_explain_a_breach(sections: tuple[str, ...], limits: tuple[str, ...]) -> None:
    for limit in limits:
        assert evidence_sections(read_limit(limit).metric) == sections, limit


def test_every_metric_is_explained_by_sections_that_there_are() -> None:
    metrics = [Metric(name) for name in (*FIGURES, REGRESSION)]
    metrics += [Metric(table.columns[0].key, name) for name, table in limit_tables().items()]
    for metric in metrics:
        assert set(evidence_sections(metric)) <= set(section_names()), metric


def test_a_breach_of_input_names_the_stage_that_is_waited_for(tmp_path: Path) -> None:
    first, *_ = evidence(tmp_path, "input_bound <= 10%", pipeline_job(wait=400, step=1000))
    assert first.code == "input_wait"
    assert "the blocking tf.data stage is Map" in first.text
    assert first.action


def test_a_breach_below_the_threshold_of_advice_says_what_input_takes(tmp_path: Path) -> None:
    """1 % of the step time is no cause, but a limit may be lower."""
    (finding,) = evidence(tmp_path, "input_bound <= 0.5%", pipeline_job(wait=10, step=1000))
    assert finding.code == "input_share"
    # What is copied to a device that is not in the profile is unknown.
    assert finding.text == "Waiting for input takes 1.0% of step time."
    assert finding.action == "show the time of each stage: tfperf analyze -s tfdata"


def traced_calls(*names: str) -> bytes:
    """Calls that all trace their function; the tracing counts run on, as if it was traced before the capture."""
    calls = [
        event(name, 10.0 * number, 5, tf_function_call=ref("traced-nonXla"), tracing_count=number + 1)
        for number, name in enumerate(names)
    ]
    return space(host(*calls))


def test_a_breach_of_retraces_names_the_functions_traced_most(tmp_path: Path) -> None:
    names = [name for number, name in enumerate("abcde") for _ in range(6 - number)]
    (finding, *_) = evidence(tmp_path, "retraces <= 0", traced_calls(*names))
    assert finding.text == "Retraced in the capture: a (5 times), b (5 times), c (4 times) and 2 more."
    assert "input_signature" in finding.action


def test_names_from_the_trace_are_cut(tmp_path: Path) -> None:
    name = "x" * 100_000 + "\x1b[31m"
    for limit in ("retraces <= 0", "functions.traced_calls < 1"):
        retraced = evidence(tmp_path, limit, traced_calls(name, name, name))[0]
        assert retraced.code == "retraced"
        assert len(retraced.text) < 300


def test_a_breach_of_device_time_names_what_the_device_waits_for_and_the_cause(tmp_path: Path) -> None:
    """The host launches for 90 us of each step of 100 us."""
    launching = [event("ExecutorState::Process", 100 * number, 90) for number in range(5)]
    stream = line("Stream #1", *(event("gemm", 100 * number + 90, 10) for number in range(5)))
    data = space(
        plane("/host:CPU", line("python", *steps()), line("executor", *launching)), plane("/device:GPU:0", stream)
    )
    fact, cause = evidence(tmp_path, "device_busy >= 99%", data)
    assert (fact.code, fact.action, fact.causes) == ("idle_launch", "", ())
    assert cause.code == "small_work_per_step"
    assert cause.action


def test_a_breach_of_memory_names_the_largest_part_of_the_peak(tmp_path: Path) -> None:
    held = allocation(5, 4096, "mklcpu", requested_bytes=3072, allocation_bytes=3072, tf_op="dense/MatMul")
    findings = evidence(tmp_path, "memory < 1kB", space(host(held)))
    largest = next(finding for finding in findings if finding.code == "memory_largest")
    assert largest.text == "Largest part of the peak: dense/MatMul, 3.07 kB, 75.0%."
    assert largest.action


@pytest.mark.parametrize("limit", ["all_others <= 1%", "step_time <= 1us", "steps.step_time_ms < 1us"])
def test_other_breaches_have_the_advice_of_the_report(tmp_path: Path, limit: str) -> None:
    findings = evidence(tmp_path, limit, bare_job(*[100] * 5))
    assert [finding.code for finding in findings] == ["python_between_steps"]


def test_what_nothing_in_the_report_explains_has_no_evidence(tmp_path: Path) -> None:
    assert evidence(tmp_path, "host_ops.self_ms < 1us", pipeline_job(wait=400, step=1000)) == ()
