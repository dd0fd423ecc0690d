"""Hosts as a gate judges them: which steps count, what is said of them, and that the analysis stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, host, line, plane, space
from judge.example_jobs import analysis_of, bare_job, input_job, job_without_steps, two_kinds_job

from tfperf.judge.measure import JudgedHost, judged_hosts, unjudged_steps


def judged_host(tmp_path: Path, data: bytes, *, skip_first: int = 0) -> JudgedHost:
    """The only host of a run, as the gate sees it."""
    (judged,) = judged_hosts(analysis_of(tmp_path, a=data), stat="mean", skip_first=skip_first, min_steps=3)
    return judged


def test_each_host_is_judged_alone_and_all_together_for_what_is_over_hosts(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=input_job(10), b=input_job(30))
    *alone, together = judged_hosts(analysis, stat="mean", skip_first=1, min_steps=3)
    assert [(judged.name, len(judged.results.hosts)) for judged in alone] == [("a", 1), ("b", 1)]
    assert (together.name, len(together.results.hosts)) == ("", 2)
    assert [judged.summary.averaged_count for judged in alone] == [4, 4]
    assert [judged.recorded_steps for judged in alone] == [5, 5]
    assert all(judged.results.is_narrowed for judged in (*alone, together))
    assert not together.results.is_other_kind


def test_one_host_needs_no_name(tmp_path: Path) -> None:
    judged = judged_host(tmp_path, input_job(10))
    assert (judged.name, judged.results.is_narrowed) == ("", False)


def test_steps_of_another_kind_are_told_apart(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=two_kinds_job())
    for kind, is_other in (("", False), ("train", False), ("eval", True)):
        (judged,) = judged_hosts(analysis, stat="mean", skip_first=0, min_steps=3, kind=kind)
        assert (judged.results.is_narrowed, judged.results.is_other_kind) == (is_other, is_other)


def test_the_analysis_is_not_changed(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=input_job(steps=5))
    hosts = judged_hosts(analysis, stat="mean", skip_first=2, min_steps=3)
    assert len(hosts[0].breakdown.steps) == 3
    assert len(analysis["steps"].steps) == len(analysis.hosts[0]["steps"].steps) == 5


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (1, "1 whole step counts (of 1 recorded), but --min-steps asks for 3: profile longer"),
        (2, "2 whole steps count (of 2 recorded), but --min-steps asks for 3: profile longer"),
        (3, ""),
    ],
)
def test_too_few_steps_are_reported_with_what_to_try(tmp_path: Path, steps: int, reason: str) -> None:
    assert judged_host(tmp_path, bare_job(*[100] * steps)).too_few_steps == reason


def test_steps_without_a_kind_are_not_called_step_steps(tmp_path: Path) -> None:
    """Where all steps are skipped, those that are left are of no kind."""
    judged = judged_host(tmp_path, bare_job(100), skip_first=1)
    assert judged.too_few_steps.startswith("0 whole steps count (of 1 recorded)")


def test_a_host_without_steps_says_why_there_are_none(tmp_path: Path) -> None:
    judged = judged_host(tmp_path, job_without_steps())
    why = judged.breakdown.steps.explanation
    assert judged.too_few_steps == f"0 whole steps count ({why}), but --min-steps asks for 3: profile longer"
    assert why


def test_what_a_figure_is_over(tmp_path: Path) -> None:
    one_kind = judged_host(tmp_path / "1", input_job(10))
    assert one_kind.over(one_kind.summary) == "over 5 train steps"
    two_kinds = judged_host(tmp_path / "2", two_kinds_job())
    assert two_kinds.over(two_kinds.summary) == "over 5 train steps; 4 eval steps are not judged: --by-kind eval"
    assert unjudged_steps({"eval": 1}) == "1 eval step is not judged: --by-kind eval"


def test_findings_about_devices_need_a_device(tmp_path: Path) -> None:
    assert judged_host(tmp_path, bare_job(*[100] * 4)).findings("idle") == ()
    marks = host(*(event("train", 100 * number, 100, step_num=number) for number in range(4)))
    gpu = plane("/device:GPU:0", line("Stream #1(Compute)", *(event("gemm", 100 * number, 10) for number in range(4))))
    assert judged_host(tmp_path / "2", space(marks, gpu)).findings("idle")
