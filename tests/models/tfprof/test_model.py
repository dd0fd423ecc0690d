"""Nodes with all that is known of them: values of steps, and their mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfprof_builders import CPU, GPU, STREAMS, message, model, node, op_log, ran, run_metadata

from tfperf.models.tfprof.model import AVERAGE, Model
from tfperf.models.tfprof.options import PLACE, Attribute
from tfperf.models.tfprof.sources import Sources, read_model

TWO = (node("b", "MatMul", "a"), node("a", "VariableV2", variable=[4, 2]))


def own(of: Model, step: int, attribute: Attribute) -> dict[str, int]:
    return dict(zip(of.names, of.values(step)[PLACE[attribute]].tolist(), strict=True))


def test_nodes_are_sorted_by_name_and_inputs_with_them(tmp_path: Path) -> None:
    of = model(tmp_path, TWO)
    assert (of.names, of.ops) == (["a", "b"], ["VariableV2", "MatMul"])
    assert (of.input_of.tolist(), of.input_source.tolist()) == ([1], [0])
    assert own(of, AVERAGE, "params") == {"a": 8, "b": 0}
    assert own(of, AVERAGE, "definitions") == {"a": 1, "b": 1}


def test_the_mean_is_over_the_steps_that_recorded_the_node(tmp_path: Path) -> None:
    steps = {
        1: run_metadata({CPU: [ran("a", 1, 10), ran("b", 1, 10)]}),
        2: run_metadata({CPU: [ran("a", 1, 11)]}),
        5: run_metadata({CPU: [ran("a", 1, 12)]}),
    }
    of = model(tmp_path, TWO, steps)
    assert own(of, AVERAGE, "micros") == {"a": 11, "b": 10}
    assert own(of, 2, "micros") == {"a": 11, "b": 0}
    assert [*of.steps] == [1, 2, 5]


def test_a_mean_is_an_integer(tmp_path: Path) -> None:
    steps = {step: run_metadata({CPU: [ran("a", 1, 10 + step)]}) for step in (0, 1)}
    assert own(model(tmp_path, TWO, steps), AVERAGE, "micros")["a"] == 10


def test_a_negative_mean_is_rounded_toward_zero(tmp_path: Path) -> None:
    steps = {step: run_metadata({CPU: [ran("a", 1, -10 - step)]}) for step in (0, 1)}
    assert own(model(tmp_path, TWO, steps), AVERAGE, "micros")["a"] == -10


def test_micros_may_differ_by_one_from_the_means_of_their_parts(tmp_path: Path) -> None:
    steps = {step: run_metadata({GPU: [ran("a", 1, 10 + step)], STREAMS: [ran("a", 1, 20 + step)]}) for step in (0, 1)}
    of = model(tmp_path, TWO, steps)
    figures = [own(of, AVERAGE, name)["a"] for name in ("cpu_micros", "accelerator_micros", "micros")]
    assert figures == [10, 20, 31]


def test_a_record_without_a_start_counts_for_memory_only(tmp_path: Path) -> None:
    of = model(tmp_path, TWO, {0: run_metadata({CPU: [ran("a", 0, 10, memory=100), ran("b", -5, 3)]})})
    assert (own(of, 0, "micros"), own(of, 0, "bytes")) == ({"a": 0, "b": 0}, {"a": 100, "b": 0})
    assert own(of, 0, "runs") == {"a": 0, "b": 0}
    assert (of.steps[0].started.tolist(), of.steps[0].ended.tolist()) == ([0, 0], [0, 0])


def test_memory_counts_on_the_device_of_the_node_only(tmp_path: Path) -> None:
    recorded = {GPU: [ran("a", 1, 1, memory=100)], STREAMS: [ran("a", 1, 1, memory=7)], CPU: [ran("a", 1, 1, memory=3)]}
    of = model(tmp_path, TWO, {0: run_metadata(recorded)})
    assert (own(of, 0, "bytes")["a"], of.device) == (100, [GPU.lower(), ""])


def test_a_loop_runs_several_times(tmp_path: Path) -> None:
    body = [ran("b", start, 2, memory=10) for start in (10, 20, 30)]
    of = model(tmp_path, TWO, {0: run_metadata({CPU: body})}, op_log({"b": {"float_ops": 100}}))
    figures = [own(of, 0, name)["b"] for name in ("runs", "micros", "bytes", "float_ops")]
    assert figures == [3, 6, 30, 300]
    assert of.steps[0].intervals.start.tolist() == [10, 20, 30]


def test_float_ops_of_a_node_that_never_ran_are_those_of_one_run(tmp_path: Path) -> None:
    log = op_log({"a": {"float_ops": 7}, "b": {"float_ops": 100}})
    steps = {0: run_metadata({CPU: [ran("b", 1, 2)]}), 1: run_metadata({CPU: [ran("x", 1, 2)]})}
    of = model(tmp_path, TWO, steps, log)
    assert own(of, 0, "float_ops") == {"a": 7, "b": 100, "x": 0}
    assert own(of, 1, "float_ops") == {"a": 7, "b": 0, "x": 0}
    assert dict(zip(of.names, of.has_run().tolist(), strict=True)) == {"a": False, "b": True, "x": True}


def test_two_files_of_a_step_are_one_step(tmp_path: Path) -> None:
    of = model(tmp_path, TWO)
    files = [tmp_path / "one", tmp_path / "two"]
    files[0].write_bytes(run_metadata({CPU: [ran("a", 10, 3)]}))
    files[1].write_bytes(run_metadata({CPU: [ran("a", 20, 4), ran("b", 30, 1)]}))
    of = read_model(Sources(graph=tmp_path / "graph.pb", run_metadata={0: files}))
    assert (own(of, 0, "micros"), own(of, AVERAGE, "micros")) == ({"a": 7, "b": 1}, {"a": 7, "b": 1})
    assert (of.steps[0].started.tolist(), of.steps[0].ended.tolist()) == ([10, 30], [24, 31])


def test_types_are_the_op_the_device_and_what_the_log_says(tmp_path: Path) -> None:
    log = op_log({"a": {"types": ["_trainable_variables"]}, "gone": {"types": ["x"]}})
    of = model(tmp_path, TWO, {0: run_metadata({CPU: [ran("a", 1, 1)]})}, log)
    kinds = {(of.names[owner], of.types[kind]) for owner, kind in zip(*of.type_of, strict=True)}
    assert kinds == {("a", "VariableV2"), ("a", CPU.lower()), ("a", "_trainable_variables"), ("b", "MatMul")}


def test_of_two_entries_of_a_log_each_adds_what_it_has(tmp_path: Path) -> None:
    stack = [{"file_id": 1, "lineno": 3, "function_id": 1}]
    entries = [{"name": b"a", "float_ops": 5, "code_def": {"traces": stack}}, {"name": b"a", "types": [b"t"]}]
    of = model(tmp_path, TWO, log=message("OpLogProto", log_entries=entries))
    assert (own(of, AVERAGE, "float_ops")["a"], of.stacks.ends.tolist(), "t" in of.types) == (5, [0, 1, 1], True)


def test_kernels_are_those_of_the_labels(tmp_path: Path) -> None:
    records = {
        CPU: [ran("b", 1, 1, timeline_label=b"b = _FusedMatMul(a)"), ran("a", 1, 1)],
        STREAMS: [ran("b", 1, 1, timeline_label=b"b = gemm(a)")],
    }
    assert model(tmp_path, TWO, {0: run_metadata(records)}).kernel == ["", "_FusedMatMul"]


def test_nanoseconds_are_those_of_the_records_or_of_the_microseconds(tmp_path: Path) -> None:
    records = {
        GPU: [ran("a", 1, 3, op_end_rel_nanos=2500), ran("b", 1, 3), ran("b", 9, 0, op_end_rel_nanos=400)],
        STREAMS: [ran("a", 1, 1, op_end_rel_nanos=1700)],
    }
    step = model(tmp_path, TWO, {0: run_metadata(records)}).steps[0]
    assert (step.cpu_nanos.tolist(), step.accelerator_nanos.tolist()) == ([2500, 3400], [1700, 0])
    assert (step.cpu_micros.tolist(), step.accelerator_micros.tolist()) == ([3, 4], [1, 0])


def test_a_step_that_was_not_recorded(tmp_path: Path) -> None:
    of = model(tmp_path, TWO, {step: run_metadata({CPU: [ran("a", 1, 1)]}) for step in (0, 10)})
    with pytest.raises(ValueError, match=r"^step 5 was not recorded: use one of 0.*10, or -1 for their mean$"):
        of.values(5)
    with pytest.raises(ValueError, match="step 5 was not recorded: none was"):
        model(tmp_path, TWO).values(5)
    assert own(model(tmp_path, TWO), AVERAGE, "micros") == {"a": 0, "b": 0}
