"""What is drawn of a run: its totals are those of the op tables, and what is unknown is no zero."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from builders import Event, event, gpu, host, marks, results_of, trace_of
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT, SAMPLES, TRACES

import tfperf
from tfperf.analysis.registry import OtherSection, Results
from tfperf.base.errors import TfperfError
from tfperf.export.flamegraph import Question
from tfperf.export.flamegraph.document import Side, answer
from tfperf.report.flame_tree import Stack

SECTIONS = ("ops", "op_sums", "python", "python_stacks", "xla", "roofline")
RUNS = sorted({path.parent for folder in (SAMPLES, TRACES) for path in folder.rglob("*.xplane.pb")})
RUNS = [run for run in RUNS if "corrupt" not in str(run)]


def job(folder: Path, *events: Event, device: tuple[Event, ...] = ()) -> Results:
    """Two steps of 100 us, and what else runs on their thread and on a device."""
    planes = [host(*marks(2), *events), *([gpu(*device)] if device else [])]
    return results_of(trace_of(folder, *planes, links=True), sections=SECTIONS)


def stacks(side: Side) -> dict[Stack, float]:
    return {stack: value / side.scale.divisor for stack, value in side.stacks.items()}


def one(results: Results, *, per_step: bool = False, **asked: Any) -> Side:
    (side,) = answer(results, Question(**asked), per_step=per_step)
    return side


def check_totals(results: Results) -> None:
    """Compare the time of the graphs with the tables, whatever names boxes have."""
    ops = results["ops"]
    for by in ("scope", "layer", "function"):
        for merge_layers in (False, True):
            sides = answer(results, Question(by=by, merge_layers=merge_layers), per_step=False)
            found = {side.place: sum(side.stacks.values()) for side in sides}
            tables = {table.side: int(table.self_ps.sum()) for table in ops.sides}
            assert found == {place: total for place, total in tables.items() if total}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: str(run.relative_to(ROOT.parent)))
def test_totals_of_real_jobs_are_those_of_the_op_tables(run: Path) -> None:
    analysis = tfperf.load(run, sections=("ops", OtherSection("op_sums")))
    if any(int(table.self_ps.sum()) for table in analysis["ops"].sides):
        check_totals(analysis)


NAMES = ("m/layer_1/a:Op", "m/layer_2/a:Op", "gradient_tape/m/layer_1/a:Op", "Sum:Sum", "Iterator::Root::Map")
EVENTS = st.lists(
    st.builds(event, st.sampled_from(NAMES), st.integers(0, 200), st.integers(1, 90)), min_size=1, max_size=10
)
KERNELS = st.lists(
    st.builds(
        event,
        st.sampled_from(("gemm", "MemcpyH2D")),
        st.integers(0, 200),
        st.integers(1, 50),
        tf_op=st.sampled_from(("m/a:Op", "b:Mul")),
    ),
    max_size=6,
)


@settings(max_examples=50, deadline=None)
@given(EVENTS, KERNELS)
def test_totals_of_any_trace_are_those_of_the_op_tables(events: list[Event], kernels: list[Event]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_totals(job(Path(folder), *events, device=tuple(kernels)))


def test_an_average_step_has_its_part_of_time_and_calls(tmp_path: Path) -> None:
    """An op of 10 us in each of two steps, and 40 us of it behind them."""
    results = job(tmp_path, *(event("m/a:Op", at, 10) for at in (20, 120)), event("m/a:Op", 300, 40))
    assert stacks(one(results)) == {("m", "a"): 0.06}
    assert stacks(one(results, per_step=True)) == {("m", "a"): 0.01}
    assert stacks(one(results, value="calls")) == {("m", "a"): 3}
    assert stacks(one(results, value="calls", per_step=True)) == {("m", "a"): 1}


def test_layers_and_replicas_that_repeat_each_other_are_one(tmp_path: Path) -> None:
    names = ("m/layer_1/a:Op", "m/layer_2/a:Op", "replica_1/m/layer_1/a:Op", "m/loss/a:Op")
    results = job(tmp_path, *(event(name, 20 * number, 10) for number, name in enumerate(names)))
    assert stacks(one(results, merge_layers=True)) == {
        ("replica_*", "m", "layer_*", "a"): 0.03,
        ("m", "loss", "a"): 0.01,
    }
    assert len(one(results).stacks) == 4


def test_both_places_are_drawn_the_device_first(tmp_path: Path) -> None:
    results = job(tmp_path, event("m/a:Op", 10, 5), device=(event("gemm", 20, 30, tf_op="m/a:Op"),))
    for on, places in ((None, ["device", "host"]), ("device", ["device"])):
        question = Question() if on is None else Question(on="device")
        assert [side.place for side in answer(results, question, per_step=False)] == places


def test_kernels_count_where_runs_are_unknown_and_that_is_said(tmp_path: Path) -> None:
    results = job(tmp_path, device=(event("gemm", 20, 30, tf_op="m/a:Op"), event("gemm", 60, 30, tf_op="m/a:Op")))
    side = one(results, on="device", value="calls")
    assert stacks(side) == {("m", "a"): 2}
    assert side.gaps == ("The profile does not show runs of 1 of 1 ops: their kernels and copies are counted instead.",)
    assert one(results, on="device").gaps == ()


def test_functions_of_a_package_that_call_each_other_are_one(tmp_path: Path) -> None:
    frames = [
        event("$train.py:1 main", 0, 100),
        event("$polymorphic_function.py:805 __call__", 10, 50),
        event("$tensorflow.python._pywrap_tfe TFE_Py_Execute", 20, 30),
        event("$train.py:9 callback", 25, 5),
    ]
    side = one(job(tmp_path, *frames), by="python")
    assert stacks(side) == {
        ("train.py:1 main",): 0.05,
        ("train.py:1 main", "(tensorflow)"): 0.045,
        ("train.py:1 main", "(tensorflow)", "train.py:9 callback"): 0.005,
    }
    assert stacks(one(job(tmp_path, *frames), by="python", value="calls"))["train.py:1 main", "(tensorflow)"] == 2


def test_flops_and_bytes_are_those_of_the_roofline_and_gaps_are_said(tmp_path: Path) -> None:
    """A product of 100x200 with 200x50 is 2,000,000 operations; of the copy of the same length nothing is known."""
    shapes = {"tf_op": "m/MatMul:MatMul", "shape": "(float[100,200];float[200,50])"}
    kernels = (event("gemm", 20, 10, correlation_id=1, **shapes), event("other", 40, 30, tf_op="m/Odd:Odd"))
    calls = (event("m/MatMul:MatMul", 5, 5), event("cuLaunchKernel", 6, 2, correlation_id=1))
    results = job(tmp_path, *calls, device=kernels)
    side = one(results, value="flops")
    assert stacks(side) == {("m", "MatMul"): 2_000_000}
    assert side.gaps == ("The flops cover ops with 25.0% of device time; they are unknown for the other ops.",)
    assert stacks(one(results, value="bytes")) == {("m", "MatMul"): results["roofline"].ops[0].work.bytes}
    assert stacks(one(results, value="flops", per_step=True)) == {("m", "MatMul"): 1_000_000}


def test_what_is_unknown_is_an_error_and_no_zero(tmp_path: Path) -> None:
    results = job(tmp_path, event("m/a:Op", 10, 5))
    for question, message in (
        (Question(value="flops"), "the profile has no ops with known flops, .* try --value self-time"),
        (Question(on="device"), "the profile has no device events, .*: try --on host"),
        (Question(by="python"), "The profile has no Python frames, .*--python-trace"),
    ):
        with pytest.raises(TfperfError, match=message):
            answer(results, question, per_step=False)


def test_without_steps_there_is_no_average(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, host(event("m/a:Op", 10, 5))), sections=SECTIONS)
    with pytest.raises(TfperfError, match="no averaged steps: try --per capture"):
        one(results, per_step=True)
