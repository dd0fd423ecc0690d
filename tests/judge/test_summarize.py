from __future__ import annotations

from pathlib import Path

import pytest
from builders import Plane, event, host, iterator_call, line, logdir_of, plane, results_of, space, trace_of
from judge.example_jobs import bare_job, device_alone, two_kinds_job
from judge.example_jobs import steps as marked
from judge.example_runs import gpu_job, job, summarized
from sections.batch.jobs import allocations, ops, steps
from sections.batch.jobs import job as batch_job

import tfperf
from tfperf.analysis.registry import OtherSection
from tfperf.formats.wire.capture_plane import CaptureFacts
from tfperf.judge.run_summary import LONGEST_NAME, Ranking, Rankings, baseline_text
from tfperf.judge.summarize import (
    MOST_STEPS,
    StepSums,
    combine,
    short_name,
    shorten,
    summarize_run,
    summary_sections,
    whole_steps,
)


def per_step(ranking: Ranking) -> dict[str, tuple[float | None, float | None]]:
    """Name: (ms per step, count per step)"""
    return {entry.name: (entry.ms, entry.count) for entry in ranking.rows}


def test_what_is_kept_of_a_run(tmp_path: Path) -> None:
    """Ten steps of 100 us: 30 us waiting for input, 70 us host compute."""
    run = summarized(tmp_path, a=job())
    (summary,) = run.hosts
    assert (run.label, run.run, run.attribution) == ("run", "2026_01_01_00_00_00", "corrected")
    assert (run.step_source, run.step_confidence, run.host_count) == ("markers", "high", 1)
    assert (run.batch_size, run.batches_per_step, run.examples_per_step) == (4, 1, 4)
    assert (summary.host, summary.step_ms, summary.step_count) == ("a", (0.1,) * 10, 10)
    assert (summary.category_ms["input"], summary.category_ms["host_compute"]) == (0.03, 0.07)
    assert (summary.input_percent, summary.input_class) == (30.0, "high")
    assert (summary.device_type, summary.device_count, summary.half_precision_percent) == ("CPU", 0, None)


def test_a_batch_size_that_is_not_sure_only_tells_runs_apart(tmp_path: Path) -> None:
    """Only outputs of two layers show it: nothing is compared per example by it."""
    layers = ops("conv/Relu:_FusedConv2D", "dense/MatMul:MatMul")
    outputs = allocations(("conv/Relu", "[32,8,8,4]"), ("dense/MatMul", "[32,10]"))
    made = space(batch_job(steps(), layers, outputs))
    assert tfperf.load(logdir_of(tmp_path / "look", a=made))["batch"].confidence == "low"
    run = summarized(tmp_path, a=made)
    assert (run.batch_size, run.examples_per_step) == (32, None)


def test_what_a_capture_adds_is_kept(tmp_path: Path) -> None:
    facts = CaptureFacts(tensorflow_version="2.21.0", cpu_model="EPYC", cpu_count=8, cpu_quota=1.5)
    run = summarized(tmp_path, a=job() + facts.to_bytes())
    assert run.tensorflow_version == "2.21.0"
    assert (run.hosts[0].cpu_model, run.hosts[0].cores) == ("EPYC", 1.5)


def test_what_no_device_recorded_is_unknown(tmp_path: Path) -> None:
    category_ms = summarized(tmp_path, a=job()).hosts[0].category_ms
    known = {category for category, ms in category_ms.items() if ms is not None}
    assert known == {"compilation", "input", "input_wait", "host_compute", "all_others"}


def test_what_no_fetch_shows_is_unknown(tmp_path: Path) -> None:
    (summary,) = summarized(tmp_path, a=bare_job(*[100] * 5)).hosts
    assert (summary.category_ms["input"], summary.category_ms["input_wait"], summary.input_percent) == (None,) * 3


def test_what_no_host_thread_shows_is_unknown(tmp_path: Path) -> None:
    (summary,) = summarized(tmp_path, a=space(device_alone())).hosts
    known = {category: ms for category, ms in summary.category_ms.items() if ms is not None}
    none = dict.fromkeys(("output", "device_collectives", "device_to_device"), 0.0)
    assert known == {**none, "host_to_device": 0.005, "device_compute": 0.06}
    assert (summary.input_percent, summary.input_class) == (None, "unknown")


def test_rankings_are_per_step(tmp_path: Path) -> None:
    """Of the 300 us that a step waits, Map works for 200 and BatchV2 for the other 100."""
    run = summarized(tmp_path, a=job(wait=300, step=1000))
    assert per_step(run.ranking("host_ops"))["MatMul"] == (0.7, 1.0)
    stages = {entry.detail: (entry.ms, entry.element_ms) for entry in run.ranking("stages").rows}
    assert stages == {"Map": (0.2, 0.2), "BatchV2": (0.1, 0.1), "Root": (0.0, 0.0)}
    assert run.ranking("device_ops") == Ranking((), 0)


def test_rankings_are_of_steps_of_the_compared_kind(tmp_path: Path) -> None:
    """Training steps wait for 10 us of 100, eval steps for 70: nothing takes longer than the step."""
    logdir = logdir_of(tmp_path, a=two_kinds_job())
    analysis = tfperf.load(logdir, sections=tuple(map(OtherSection, summary_sections())))
    train, evaluation = (summarize_run(analysis, "run", kind=kind) for kind in ("train", "eval"))
    for run, work_ms in ((train, 0.09), (evaluation, 0.03)):
        (work,) = [entry for entry in run.ranking("host_ops").rows if entry.detail == "MatMul"]
        assert (work.ms, work.count) == (work_ms, 1.0)


def test_a_longer_capture_has_the_same_figures(tmp_path: Path) -> None:
    short, long = summarized(tmp_path, "short", a=job(steps=10)), summarized(tmp_path, "long", a=job(steps=40))
    assert per_step(short.ranking("host_ops")) == per_step(long.ranking("host_ops"))
    assert per_step(short.ranking("stages")) == per_step(long.ranking("stages"))


def test_the_rankings_of_a_device(tmp_path: Path) -> None:
    run = summarized(tmp_path, a=gpu_job())
    assert per_step(run.ranking("kernels")) == {"gemm": (0.04, 1.0)}
    assert per_step(run.ranking("copies")) == {"H2D": (0.01, 1.0)}
    assert sum(entry.ms or 0.0 for entry in run.ranking("idle").rows) == pytest.approx(0.05)
    assert (run.hosts[0].device_type, run.hosts[0].device_count) == ("GPU", 1)


def test_first_steps_can_be_omitted(tmp_path: Path) -> None:
    counts = [len(summarized(tmp_path, f"skip{n}", n, a=job()).hosts[0].step_ms) for n in (0, 3, 10, 99)]
    assert counts == [10, 7, 0, 0]


def test_steps_without_an_end_are_not_whole(samples: Path) -> None:
    """The sample has 20 steps; the end of the last is estimated."""
    trace = tfperf.load(samples / "input_bound")
    assert trace["steps"].steps.flags == ("",) * 19 + ("end estimated",)
    assert whole_steps(trace, 1)["steps"].steps.flags == ("",) * 18
    assert len(trace["steps"].steps) == 20


def test_without_steps_there_is_nothing_per_step(tmp_path: Path) -> None:
    run = summarized(tmp_path, a=space(host(event("MatMul:MatMul", 0, 10))))
    assert (run.hosts[0].step_ms, run.hosts[0].category_ms, run.rankings) == ((), {}, Rankings())
    assert (run.step_source, run.batches_per_step, run.hosts[0].input_class) == ("none", None, "unknown")


def test_every_host_is_kept(tmp_path: Path) -> None:
    run = summarized(tmp_path, a=job(), b=job(wait=10, step=200))
    rows = [(summary.host, summary.step_ms[0], summary.input_percent) for summary in run.hosts]
    assert rows == [("a", 0.1, 30.0), ("b", 0.2, 5.0)]
    assert per_step(run.ranking("host_ops"))["MatMul"] == (0.13, 1.0)


def test_no_folder_of_the_machine_is_kept(tmp_path: Path) -> None:
    trace = tfperf.load(logdir_of(tmp_path, a=job()))
    text = baseline_text(summarize_run(trace, str(tmp_path / "secret place" / "nightly")))
    assert '"label": "nightly"' in text
    assert str(tmp_path) not in text
    assert "secret place" not in text


def test_long_lists_are_cut_to_the_largest(tmp_path: Path) -> None:
    events = [event("train", 1000 * n, 1000, step_num=n) for n in range(5)]
    events += [event(f"op{n}:Op", n, 0.5 + n / 1000) for n in range(300)]
    ranking = summarized(tmp_path, a=space(host(*events))).ranking("host_ops")
    assert (len(ranking.rows), ranking.total_rows, ranking.is_cut) == (200, 300, True)
    assert [entry.name for entry in ranking.rows[:2]] == ["op299", "op298"]


def test_many_steps_are_cut_and_counted(tmp_path: Path) -> None:
    (summary,) = summarized(tmp_path, a=bare_job(*[10] * (MOST_STEPS + 5))).hosts
    assert (len(summary.step_ms), summary.step_count) == (MOST_STEPS, MOST_STEPS + 5)


def test_long_names_that_differ_still_differ() -> None:
    one, other = (short_name("x" * 300 + middle + "y" * 300) for middle in "ab")
    assert one != other
    assert len(one) == len(other) == LONGEST_NAME
    assert short_name("short \udc80") == "short \ufffd"


US = 1_000_000


def sums_of(folder: Path, *planes: Plane) -> dict[str, StepSums]:
    sums: dict[str, StepSums] = results_of(trace_of(folder, *planes), sections=["step_sums"])["step_sums"]
    return sums


def test_each_kind_has_its_own_sums(tmp_path: Path) -> None:
    """Training steps wait for 10 us and multiply for 20, eval steps wait for 60; 50 us of an op lie between them."""
    events = [*marked(count=3), event("Save:SaveV2", 310, 50), *marked(count=3, start=400, kind="test")]
    for start, wait in ((0, 10), (100, 10), (200, 10), (400, 60), (500, 60), (600, 60)):
        events += [
            event("IteratorGetNextOp::DoCompute", start, wait),
            iterator_call("Root", start, wait, 1),
            iterator_call("Root::Map", start, wait, 2, 1),
            event(f"{'train' if wait == 10 else 'test'}_step", start + wait, 20, tf_function_call="notTraced-nonXla"),
            event("MatMul:MatMul", start + wait, 20),
        ]
    sums = sums_of(tmp_path, host(*events))
    assert {kind: of_kind.step_count for kind, of_kind in sums.items()} == {"train": 3, "test": 3}
    train, test = (sums[kind].rankings for kind in ("train", "test"))
    assert train["host_ops"]["MatMul", "MatMul"] == (60 * US, 3)
    assert ("Save", "SaveV2") not in {**train["host_ops"], **test["host_ops"]}
    assert train["functions"] == {("train_step", ""): (60 * US, 3)}
    assert test["functions"] == {("test_step", ""): (60 * US, 3)}
    assert train["stages"]["Iterator::Root::Map", "Map"] == (30 * US, 3)
    assert test["stages"]["Iterator::Root::Map", "Map"] == (180 * US, 3)


def test_kernels_and_copies_count_in_the_step_in_which_they_start(tmp_path: Path) -> None:
    """A kernel of 40 us in each training step, the last one after a pause in it; others in eval steps."""
    kernels = [event("gemm", start, 40, tf_op="d/MatMul:MatMul", correlation_id=start) for start in (10, 110, 270, 420)]
    device = plane("/device:GPU:0", line("Stream #1", *kernels, event("MemcpyH2D", 510, 5, correlation_id=9)))
    sums = sums_of(tmp_path, host(*marked(count=3), *marked(count=3, start=400, kind="test")), device)
    train, test = (sums[kind].rankings for kind in ("train", "test"))
    assert (train["kernels"], train["copies"]) == ({("gemm", ""): (120 * US, 3)}, {})
    assert (test["kernels"], test["copies"]) == ({("gemm", ""): (40 * US, 1)}, {("H2D", ""): (5 * US, 1)})
    assert train["device_ops"]["d/MatMul", "MatMul"] == (120 * US, 3)


def test_sums_of_hosts_add_up_and_are_cut_to_the_longest() -> None:
    one = {"train": StepSums(2, {"host_ops": {("a", ""): (5, 1.0), ("b", ""): (7, 1.0)}})}
    other = {"train": StepSums(3, {"host_ops": {("a", ""): (4, 2.0)}}), "eval": StepSums(1, {"host_ops": {}})}
    both = combine([one, other])
    assert both["train"] == StepSums(5, {"host_ops": {("a", ""): (9, 3.0), ("b", ""): (7, 1.0)}})
    assert both["eval"].step_count == 1
    assert shorten(both, 2) is both
    assert shorten(both, 1)["train"].rankings["host_ops"] == {("a", ""): (9, 3.0)}
