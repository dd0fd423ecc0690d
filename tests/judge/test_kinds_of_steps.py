"""A gate on a job with steps of several kinds: which it judges, what it says of the others, how others are chosen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import event, host, line, logdir_of, plane, space
from click.testing import Result
from judge.example_jobs import analysis_of, input_job, job_without_steps, two_kinds_job
from places import ROOT

import tfperf
from tfperf.base.errors import TfperfError
from tfperf.judge.check import check, check_profile
from tfperf.judge.config import CheckConfig
from tfperf.judge.grammar import read_limit
from tfperf.judge.outcome import Outcome
from tfperf.judge.run_summary import baseline_text
from tfperf.judge.summarize import summarize_run

Run = Callable[..., Result]
SHARED = ROOT.parent / "shared" / "traces"
"""Traces of other people's jobs, which are no part of the project."""


def outcome_of(analysis: tfperf.Analysis, *limits: str, **settings: Any) -> Outcome:
    return check(analysis, CheckConfig(limits=tuple(map(read_limit, limits)), **settings))


def test_without_a_kind_the_gate_says_what_it_leaves_out(tmp_path: Path) -> None:
    """Train steps wait for 10 us of 100, eval steps for 70."""
    outcome = outcome_of(analysis_of(tmp_path, a=two_kinds_job()), "input_bound <= 50%")
    (judged,) = outcome.judged
    assert (judged.status, judged.measured) == ("pass", 10.0)
    assert judged.why == "over 5 train steps; 4 eval steps are not judged: --by-kind eval."
    assert (outcome.step_count, outcome.step_kind, outcome.other_kinds) == (5, "train", {"eval": 4})
    assert outcome.notes[0] == "Figures are over train steps; 4 eval steps are not judged: --by-kind eval."


def test_the_steps_that_are_left_have_no_kind_if_all_are_skipped(tmp_path: Path) -> None:
    outcome = outcome_of(analysis_of(tmp_path, a=two_kinds_job()), "input_bound <= 50%", skip_first=100)
    assert outcome.notes[0].startswith("Figures are over steps; 5 train steps and 4 eval steps are not judged")


def test_a_kind_is_judged_in_place_of_the_main_one(tmp_path: Path) -> None:
    outcome = outcome_of(analysis_of(tmp_path, a=two_kinds_job()), "input_bound <= 50%", by_kind="eval")
    (judged,) = outcome.judged
    assert (judged.status, judged.measured) == ("breach", 70.0)
    assert judged.why == "over 4 eval steps; 5 train steps are not judged: --by-kind train."
    assert (outcome.step_count, outcome.step_kind, outcome.other_kinds) == (4, "eval", {"train": 5})
    assert outcome.notes[0].startswith("Limits on steps are over eval steps; 5 train steps")


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
    marks = [event("train" if n < 5 else "test", 100 * n, 100, step_num=n) for n in range(9)]
    tape = [event("gradient_tape/x:MatMul", 100 * n + 50, 10) for n in range(5)]
    analysis = analysis_of(tmp_path, a=space(host(*marks, *tape), gpu))
    (judged,) = outcome_of(analysis, "max(idle_devices.gaps) <= 99", by_kind="eval").judged
    assert (judged.status, judged.why) == ("unknown", "idle_devices.gaps also counts steps that are not judged.")


def test_limits_on_tables_alone_need_no_note(tmp_path: Path) -> None:
    """The table of steps has every kind."""
    assert outcome_of(analysis_of(tmp_path, a=two_kinds_job()), "count(steps.step) <= 9").notes == ()


def test_the_first_steps_that_are_skipped_are_those_of_the_kind(tmp_path: Path) -> None:
    outcome = outcome_of(analysis_of(tmp_path, a=two_kinds_job()), "step_time < 1s", by_kind="eval", skip_first=1)
    assert (outcome.step_count, outcome.exit_code) == (3, 0)
    assert outcome.notes[1] == "Skipped: the first eval step."


def test_too_few_steps_of_the_kind_are_unknown(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=two_kinds_job())
    (judged,) = outcome_of(analysis, "step_time < 1s", by_kind="eval", min_steps=5).judged
    assert judged.why.startswith("4 whole eval steps count (of 9 recorded), but --min-steps asks for 5")


def test_one_kind_is_never_named(tmp_path: Path) -> None:
    outcome = outcome_of(analysis_of(tmp_path, a=input_job(30)), "input_bound <= 50%")
    assert (outcome.judged[0].why, outcome.other_kinds, outcome.notes) == ("over 5 train steps.", {}, ())


def test_a_kind_that_no_step_is_of_names_those_that_there_are(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=two_kinds_job())
    with pytest.raises(TfperfError) as error:
        outcome_of(analysis, "input_bound <= 50%", by_kind="evaluation")
    expected = (
        "no step is of the kind 'evaluation' that --by-kind asks for; the kinds are: train (5 steps), eval (4 steps)"
    )
    assert str(error.value) == expected


def test_without_steps_there_is_no_wrong_kind(tmp_path: Path) -> None:
    outcome = outcome_of(analysis_of(tmp_path, a=job_without_steps()), "input_bound <= 50%", by_kind="eval")
    assert (outcome.exit_code, outcome.step_kind, outcome.judged[0].status) == (1, "", "unknown")


def test_a_host_without_steps_of_the_kind_is_unknown(tmp_path: Path) -> None:
    outcome = outcome_of(analysis_of(tmp_path, a=two_kinds_job(), b=input_job(30)), "step_time < 1s", by_kind="eval")
    assert outcome.judged[0].why.startswith("host b: 0 whole")
    assert outcome.other_kinds == {"train": 5}


def test_a_baseline_is_of_one_kind(tmp_path: Path) -> None:
    """That of train steps says nothing about eval steps."""
    analysis, baseline = analysis_of(tmp_path, a=two_kinds_job()), tmp_path / "baseline.json"
    baseline.write_text(baseline_text(summarize_run(analysis, "run")))
    (judged,) = outcome_of(analysis, baseline=(baseline,), by_kind="eval").judged
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
    assert "the kinds are: train (5 steps), eval (4 steps)" in result.stderr
    assert 'errors="1"' in junit.read_text()


def test_of_a_real_job_the_eval_steps_wait_longer() -> None:
    logdir = SHARED / "steps_tf221" / "val"
    if not logdir.is_dir():
        pytest.skip(f"{logdir} is not there: it is no part of the project")
    analysis = tfperf.load(logdir)
    (train,) = outcome_of(analysis, "input_bound <= 50%").judged
    (evaluation,) = outcome_of(analysis, "input_bound <= 50%", by_kind="eval").judged
    assert (train.status, evaluation.status) == ("pass", "breach")
    assert evaluation.measured == pytest.approx(74, abs=1)
    costs = [check_profile(analysis, max_cost="input_wait=50%", by_kind=kind).judged[0] for kind in ("train", "eval")]
    assert [cost.measured for cost in costs] == [train.measured, evaluation.measured]
