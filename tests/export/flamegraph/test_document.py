"""Flame graphs as files: of one run, and of two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest
from builders import event, gpu, host, marks, results_of, trace_of
from report.render.flame.speedscope_schema import check

from tfperf.analysis.registry import Results, is_ours
from tfperf.export.flamegraph import STACKED_BY, VALUES, Question, QuestionError
from tfperf.export.flamegraph.document import FlameFormat, flame_graphs, flame_text, told


def job(folder: Path, dense: float, *names: str, steps: int = 2, device: bool = False) -> Results:
    """Steps of 100 us, in each of which `m/dense/MatMul` and other ops of 10 us run; a kernel on a device."""
    folder.mkdir(parents=True)
    events = marks(steps)
    for number in range(max(steps, 1)):
        events.append(event("m/dense/MatMul:MatMul", 100 * number + 1, dense))
        events += (event(name, 100 * number + 50 + 10 * place, 10) for place, name in enumerate(names))
    planes = [host(*events), *([gpu(event("gemm", 30, 10, tf_op="m/dense/MatMul:MatMul"))] if device else [])]
    return results_of(trace_of(folder, *planes, links=True), sections=["op_sums"])


@pytest.mark.parametrize("form", get_args(FlameFormat))
def test_each_format_shows_the_graph(form: FlameFormat, tmp_path: Path) -> None:
    text = flame_text(flame_graphs(job(tmp_path / "a", 20), Question()), form)
    assert "MatMul" in text
    assert "dense" in text
    if form == "svg":
        ElementTree.fromstring(text)
    if form == "speedscope":
        check(json.loads(text))
    if form == "folded":
        assert text == "host;m;dense;MatMul 40\n"


def test_one_run_is_about_the_capture_unless_steps_are_asked_for(tmp_path: Path) -> None:
    results = job(tmp_path / "a", 20)
    assert flame_graphs(results, Question()).sentences[-1] == "The whole capture."
    graphs = flame_graphs(results, Question(per="step"))
    assert graphs.sentences[-1] == "The mean of 2 averaged steps."
    assert flame_text(graphs, "folded") == "host;m;dense;MatMul 20\n"


def test_two_runs_are_compared_by_step_if_both_have_some(tmp_path: Path) -> None:
    """30 us instead of 20 in a step; three steps instead of two do not make it slower."""
    graphs = flame_graphs(job(tmp_path / "a", 30, steps=3), Question(), job(tmp_path / "b", 20))
    assert graphs.sentences[-1] == "Compared with b: mean of 3 steps and mean of 2 steps."
    assert flame_text(graphs, "folded") == "host;m;dense;MatMul 20 30\n"
    assert "before 0.020 ms (+50.0%)" in flame_text(graphs, "html")


def test_without_steps_the_captures_are_compared_and_that_is_said(tmp_path: Path) -> None:
    graphs = flame_graphs(job(tmp_path / "a", 30), Question(), job(tmp_path / "b", 20, steps=0))
    assert "the whole captures, because not both runs have averaged steps" in graphs.sentences[-1]
    graphs = flame_graphs(job(tmp_path / "c", 30), Question(per="capture"), job(tmp_path / "d", 20))
    assert "the whole captures, because of --per capture" in graphs.sentences[-1]


def test_what_is_gone_is_said(tmp_path: Path) -> None:
    graphs = flame_graphs(job(tmp_path / "a", 30), Question(), job(tmp_path / "b", 20, "m/old:Op"))
    gone = "Only in the other run: 0.010 ms, in host stacks that this run does not have."
    assert graphs.gaps == (gone,)
    assert [*told(graphs)] == ["host 0.030 ms in 4 boxes", gone]
    assert gone in flame_text(graphs, "svg")


def test_places_that_only_one_run_has_are_said(tmp_path: Path) -> None:
    with_device, without = job(tmp_path / "a", 20, device=True), job(tmp_path / "b", 20)
    assert flame_graphs(with_device, Question(), without).gaps == ("The other run has no device ops.",)
    (gap,) = flame_graphs(without, Question(), with_device).gaps
    assert gap == "Not drawn: device ops, which only the other run has."


def test_equal_runs_differ_in_nothing(tmp_path: Path) -> None:
    graphs = flame_graphs(job(tmp_path / "a", 20), Question(), job(tmp_path / "b", 20))
    page = flame_text(graphs, "html")
    assert page.count('<svg class="box same"') == 4
    assert graphs.gaps == ()


def test_sums_over_devices_are_told_with_the_mean_of_one(tmp_path: Path) -> None:
    """Two devices run a kernel, for 10 and for 20 us."""
    planes = [gpu(event("gemm", 30, 10 * (number + 1), tf_op="m/A:A"), number=number) for number in range(2)]
    results = results_of(trace_of(tmp_path, host(event("train", 0, 100, step_num=1)), *planes), sections=["op_sums"])
    graphs = flame_graphs(results, Question(on="device"))
    assert [*told(graphs)] == ["device 0.030 ms on 2 devices (0.015 ms per device) in 3 boxes"]
    assert [flame.title for flame in graphs.flames] == ["Device op time by name scope, summed over 2 devices"]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (Question(by="python", on="device"), "--by python applies only to host threads: omit --on device"),
        (Question(by="python", value="flops"), "Python functions have no flops: use --value self-time or *"),
        (Question(by="python", merge_layers=True), "--merge-layers applies only to ops: omit it, *"),
    ],
)
def test_what_means_nothing_is_refused(question: Question, message: str) -> None:
    with pytest.raises(QuestionError) as caught:
        question.check()
    assert str(caught.value).startswith(message.removesuffix("*"))


def test_all_else_is_answered_by_sections_that_there_are() -> None:
    for by in STACKED_BY:
        for value in VALUES:
            question = Question(by=by, value=value)
            if by != "python" or value in ("self-time", "calls"):
                question.check()
                assert all(map(is_ours, question.sections))
