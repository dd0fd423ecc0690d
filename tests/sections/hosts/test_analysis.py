"""Who waits for whom, in jobs whose delays are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import event, host, known, logdir_of, marks, read_back, results_of, rows_of, space
from places import ROOT
from real_runs import analysis_of
from sections.hosts.jobs import COMPILE, FETCH, host_of_job, job
from synthetic_tpu import offload_tpu

import tfperf
from tfperf.sections.hosts import build
from tfperf.sections.overview.section import build as build_overview
from tfperf.trace.device.collectives import match_collectives

SHARED = ROOT.parent / "shared" / "traces" / "multi_host"


def columns(analysis: tfperf.Analysis, name: str, *keys: str) -> list[tuple[Any, ...]]:
    return rows_of(known(analysis.table(name)), *keys)


def loaded(tmp_path: Path, **files: bytes) -> tfperf.Analysis:
    return tfperf.load(logdir_of(tmp_path, **files), sections=("hosts", "gaps"))


def test_the_others_wait_as_long_as_one_is_late(tmp_path: Path) -> None:
    """Host b is 20 ms late in all steps, c 5 ms: a waits 20, c 15 ms for b."""
    analysis = job(tmp_path, a=[0] * 4, b=[20_000] * 4, c=[5_000] * 4)
    keys = ("host", "role", "own_work_ms", "waits_for_others_ms", "others_wait_for_it_ms", "last_percent", "cause")
    assert columns(analysis, "hosts", *keys) == [
        ("a", "worker", 5.0, 20.0, 0.0, 0.0, None),
        ("b", "worker", 25.0, 0.0, 20.0, 100.0, "compute"),
        ("c", "worker", 10.0, 15.0, 0.0, 0.0, None),
    ]
    found = known(analysis["hosts"].straggler)
    assert (found.host, found.cause, found.loss_ms, found.excess_ms) == ("b", "compute", 20.0, 17.5)
    assert found.loss_percent == pytest.approx(100 * 20 / 25)
    assert found.gain_ms == 15.0, "without b the others wait for c"
    assert (found.last_in, found.steps) == (4, 4)


def test_each_step_has_its_last_host(tmp_path: Path) -> None:
    analysis = job(tmp_path, a=[0, 10_000, 0, 0], b=[20_000, 0, 0, 30_000])
    keys = ("step", "host", "lost_ms", "cause", "excess_ms", "step_time_ms")
    assert columns(analysis, "stragglers", *keys)[:2] == [
        (0, "b", 20.0, "compute", 20.0, 25.0),
        (1, "a", 10.0, "compute", 10.0, 15.0),
    ]
    waiting = known(analysis.table("steps"))
    assert waiting["waiting_for_hosts_ms"] == [10.0, 5.0, 0.0, 15.0], "on average over both hosts"
    parts = zip(waiting["host_compute_ms"], waiting["waiting_for_hosts_ms"], strict=True)
    assert all(part <= whole for whole, part in parts)


@pytest.mark.parametrize(("what", "cause"), [(FETCH, "input"), ("", "python"), (COMPILE, "compilation")])
def test_the_cause_is_where_the_last_host_is_slower(tmp_path: Path, what: str, cause: str) -> None:
    analysis = job(tmp_path, what=what, a=[0] * 4, b=[20_000] * 4)
    if cause != "compilation":
        assert known(analysis["hosts"].straggler).cause == cause
    assert [row[0] for row in columns(analysis, "stragglers", "cause")] == [cause] * 4


def test_healthy_hosts_are_not_accused(tmp_path: Path) -> None:
    """Hosts differ by 2 ms of a step of 7 ms: so do those of healthy jobs."""
    analysis = job(tmp_path, a=[0] * 4, b=[2_000] * 4)
    assert analysis["hosts"].straggler is None
    assert columns(analysis, "hosts", "others_wait_for_it_ms", "cause") == [(0.0, None), (2.0, None)]


def test_hosts_that_are_late_in_turn_have_a_cause_but_none_is_to_blame(tmp_path: Path) -> None:
    analysis = job(tmp_path, a=[20_000, 0, 0, 0], b=[0, 20_000, 0, 0], c=[0, 0, 20_000, 0], d=[0, 0, 0, 20_000])
    found = known(analysis["hosts"].straggler)
    assert (found.host, found.cause, found.loss_ms, found.gain_ms) == ("", "compute", 20.0, 20.0)


def test_steps_without_markers_are_matched_by_what_hosts_exchange(tmp_path: Path) -> None:
    """The capture of b begins three steps later, so the first step of b is the fourth one of a."""
    delays = [0, 0, 0, 9_000, 8_000, 7_000, 6_000, 5_000]
    longest = list(delays)
    a = host_of_job([0] * 8, longest, marked=False)
    b = host_of_job(delays[3:], longest[3:], first=3, marked=False)
    analysis = loaded(tmp_path, a=a, b=b)
    assert columns(analysis, "stragglers", "step", "host", "lost_ms") == [
        (3, "b", 9.0), (4, "b", 8.0), (5, "b", 7.0), (6, "b", 6.0), (7, "b", 5.0)
    ]  # fmt: skip


def test_steps_before_the_first_exchange_are_left_out(tmp_path: Path) -> None:
    a, b = (host_of_job([late] * 4, [20_000] * 4, exchanges_from=1) for late in (0, 20_000))
    analysis = loaded(tmp_path, a=a, b=b)
    assert columns(analysis, "stragglers", "step", "host", "cause") == [(n, "b", "compute") for n in (1, 2, 3)]


def test_clocks_are_told_apart_and_do_not_matter(tmp_path: Path) -> None:
    a, b = host_of_job([0] * 4, [20_000] * 4), host_of_job([20_000] * 4, [20_000] * 4, clock_us=1_000_000)
    analysis = loaded(tmp_path, a=a, b=b)
    assert columns(analysis, "hosts", "waits_for_others_ms", "clock_ahead_ms", "clock_spread_ms") == [
        (20.0, 0.0, 0.0), (0.0, 1_000.0, 0.0)
    ]  # fmt: skip


def test_a_late_start_is_outside_of_the_averages(tmp_path: Path) -> None:
    analysis = job(tmp_path, what="", a=[0] * 6, b=[500_000, 0, 0, 0, 0, 0])
    found = known(analysis["hosts"].straggler)
    assert (found.host, found.cause, found.is_outside_averages, found.loss_ms) == ("b", "python", True, 500.0)
    assert columns(analysis, "hosts", "waits_for_others_ms", "cause") == [(0.0, None), (0.0, "python")]


def test_many_hosts_with_one_that_is_slow(tmp_path: Path) -> None:
    """Of 40 hosts one is 9 ms late; three lack the last step, so who is last in it is unknown."""
    files = {}
    for number in range(40):
        delay = 9_000.0 if number == 23 else 100.0 * (number % 7)
        count = 4 if number in (5, 6, 7) else 5
        files[f"w{number:02}"] = host_of_job([delay] * count, [9_000.0] * count)
    analysis = loaded(tmp_path, **files)
    found = known(analysis["hosts"].straggler)
    assert (found.host, found.steps, found.loss_ms, found.gain_ms) == ("w23", 4, 9.0, 8.4)
    assert len(known(analysis["hosts"].late).numbers) == 4


def test_helpers_have_no_steps_and_are_in_no_average(tmp_path: Path) -> None:
    worker, server = "/job:worker/replica:0/task:0/device:CPU:0", "/job:ps/replica:0/task:0/device:CPU:0"
    runs = [event("FunctionRun", 1_000 * n, 900) for n in range(9)]
    sends = [event("w/_1:_Send", 100, 5, key=f"{server};1;{worker};edge;0:0")]
    files = {"ps-0": space(host(*runs, *sends)), "worker-0": space(host(*marks(4, 10_000)))}
    analysis = loaded(tmp_path, **files)
    assert columns(analysis, "hosts", "host", "role", "task", "step_time_ms") == [
        ("ps-0", "parameter server", "ps:0", None), ("worker-0", "worker", None, 10.0)
    ]  # fmt: skip
    assert known(analysis["overview"].step_time_ms).average == 10.0
    assert "Steps" not in " ".join(analysis.hosts[0]["gaps"]), "it has none, which is no gap"


def test_one_host_waits_for_nobody(tmp_path: Path) -> None:
    analysis = job(tmp_path, a=[0] * 4)
    assert analysis.table("hosts") is None
    assert (analysis["hosts"].straggler, analysis["hosts"].is_known) == (None, False)
    assert len(analysis["hosts"].table) == 0


@pytest.mark.skipif(not SHARED.exists(), reason="test input that is no part of the project is not here")
def test_real_jobs_wait_as_long_as_their_logs_say() -> None:
    """What hosts wait in collectives that all have, against numbers that were derived from the files independently."""
    expected = json.loads((SHARED / "expected.json").read_text())
    checked = 0
    for name, capture in expected.items():
        if not (SHARED / name / "plugins").exists():
            continue
        analysis = analysis_of(SHARED / name)
        waited = {row.host: row for row in analysis["hosts"].hosts}
        parts = [known(host["hosts"].collectives) for host in analysis.hosts]
        for wait, host_name in zip(match_collectives(parts), analysis["hosts"].sharing, strict=True):
            of_host = next(each for each in capture["hosts"].values() if each["file"].startswith(host_name))
            total_ms = round(float(wait.wait_ps.sum()) / 1e9, 1)
            assert total_ms == of_host["wait_by_duration_ms"], (name, host_name)
            assert waited[host_name].task.role == "worker"
            checked += 1
    assert checked > 20


STRAGGLERS = {
    "loop_slow_input": ("worker-1", "input"),
    "loop_slow_input_endless": ("worker-1", "input"),
    "loop_slow_compute": ("worker-1", "compute"),
    "loop_random_4": (None, "compute"),
    "loop_gc": ("worker-1", "python"),
    "loop_late_start": ("worker-1", "python"),
    "loop_wrong_clock": (None, "compute"),
    "loop_healthy": (None, None),
    "keras_healthy": (None, None),
    "keras_slow_input": ("worker-1", "input"),
    "jax_2": ("process-1", "python"),
}


@pytest.mark.skipif(not SHARED.exists(), reason="test input that is no part of the project is not here")
@pytest.mark.parametrize("name", STRAGGLERS)
def test_the_straggler_of_real_jobs_and_its_cause(name: str) -> None:
    summary = analysis_of(SHARED / name / "inside").report(("hosts",)).summary
    assert (summary["straggler"], summary["straggler_cause"]) == STRAGGLERS[name]


def test_chips_of_the_program_that_no_host_recorded(tmp_path: Path) -> None:
    """Nobody can say of half the chips of a program that they wait for nobody."""
    results = results_of(read_back(tmp_path, offload_tpu()), sections=["overview", "hosts"])
    built = build(results)
    (finding,) = built.findings
    assert finding.text.startswith("The profile has only 2 of the 4 chips of jit_f; the others (0 to 1) are on")
    assert (finding.code, built.notes) == ("missing_chips", ())
    assert results["hosts"].why_unknown.startswith("the profile has only 2 of the 4 chips")
    (fact,) = (fact for fact in build_overview(results).facts if fact.key == "chips")
    assert (fact.title, fact.value, fact.note) == ("Chips", 2, "of the 4 that run jit_f are in this profile")
