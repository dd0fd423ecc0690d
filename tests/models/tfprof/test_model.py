"""Nodes with all that is known of them: values of steps, and their mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from protobytes import written
from tfprof_builders import CPU, GPU, STREAMS, graph, message, model, node, op_log, ran, run_metadata, values_of

from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.models.tfprof.op_log import OpLog, Stacks, read_op_log
from tfperf.models.tfprof.sources import Sources, read_model, steps_of

TWO = (node("b", "MatMul", "a"), node("a", "VariableV2", variable=[4, 2]))


def test_nodes_are_sorted_by_name_and_inputs_with_them(tmp_path: Path) -> None:
    of = model(tmp_path, TWO)
    assert (of.names, of.ops) == (["a", "b"], ["VariableV2", "MatMul"])
    assert (of.input_of.tolist(), of.input_source.tolist()) == ([1], [0])
    assert values_of(of, "params") == {"a": 8, "b": 0}
    assert values_of(of, "definitions") == {"a": 1, "b": 1}


def test_the_mean_is_over_the_steps_that_recorded_the_node(tmp_path: Path) -> None:
    steps = {
        1: run_metadata({CPU: [ran("a", 1, 10), ran("b", 1, 10)]}),
        2: run_metadata({CPU: [ran("a", 1, 11)]}),
        5: run_metadata({CPU: [ran("a", 1, 12)]}),
    }
    of = model(tmp_path, TWO, steps)
    assert values_of(of, "micros") == {"a": 11, "b": 10}
    assert values_of(of, "micros", 2) == {"a": 11, "b": 0}
    assert [*of.steps] == [1, 2, 5]


@pytest.mark.parametrize("micros", [10, -10])
def test_a_mean_is_an_integer_and_rounded_toward_zero(tmp_path: Path, micros: int) -> None:
    each = 1 if micros > 0 else -1
    steps = {step: run_metadata({CPU: [ran("a", 1, micros + each * step)]}) for step in (0, 1)}
    assert values_of(model(tmp_path, TWO, steps), "micros")["a"] == micros


def test_micros_may_differ_by_one_from_the_means_of_their_parts(tmp_path: Path) -> None:
    steps = {step: run_metadata({GPU: [ran("a", 1, 10 + step)], STREAMS: [ran("a", 1, 20 + step)]}) for step in (0, 1)}
    of = model(tmp_path, TWO, steps)
    figures = [values_of(of, name)["a"] for name in ("cpu_micros", "accelerator_micros", "micros")]
    assert figures == [10, 20, 31]


def test_a_record_without_a_start_counts_for_memory_only(tmp_path: Path) -> None:
    of = model(tmp_path, TWO, {0: run_metadata({CPU: [ran("a", 0, 10, memory=100), ran("b", -5, 3)]})})
    assert (values_of(of, "micros", 0), values_of(of, "bytes", 0)) == ({"a": 0, "b": 0}, {"a": 100, "b": 0})
    assert values_of(of, "runs", 0) == {"a": 0, "b": 0}
    assert (of.steps[0].started.tolist(), of.steps[0].ended.tolist()) == ([0, 0], [0, 0])


def test_memory_counts_on_the_device_of_the_node_only(tmp_path: Path) -> None:
    recorded = {GPU: [ran("a", 1, 1, memory=100)], STREAMS: [ran("a", 1, 1, memory=7)], CPU: [ran("a", 1, 1, memory=3)]}
    of = model(tmp_path, TWO, {0: run_metadata(recorded)})
    assert (values_of(of, "bytes", 0)["a"], of.device) == (100, [GPU.lower(), ""])


def test_a_loop_runs_several_times(tmp_path: Path) -> None:
    body = [ran("b", start, 2, memory=10) for start in (10, 20, 30)]
    of = model(tmp_path, TWO, {0: run_metadata({CPU: body})}, op_log({"b": {"float_ops": 100}}))
    figures = [values_of(of, name, 0)["b"] for name in ("runs", "micros", "bytes", "float_ops")]
    assert figures == [3, 6, 30, 300]
    assert of.steps[0].intervals.start.tolist() == [10, 20, 30]


def test_float_ops_of_a_node_that_never_ran_are_those_of_one_run(tmp_path: Path) -> None:
    log = op_log({"a": {"float_ops": 7}, "b": {"float_ops": 100}})
    steps = {0: run_metadata({CPU: [ran("b", 1, 2)]}), 1: run_metadata({CPU: [ran("x", 1, 2)]})}
    of = model(tmp_path, TWO, steps, log)
    assert values_of(of, "float_ops", 0) == {"a": 7, "b": 100, "x": 0}
    assert values_of(of, "float_ops", 1) == {"a": 7, "b": 0, "x": 0}
    assert dict(zip(of.names, of.has_run().tolist(), strict=True)) == {"a": False, "b": True, "x": True}


def test_two_files_of_a_step_are_one_step(tmp_path: Path) -> None:
    of = model(tmp_path, TWO)
    files = [tmp_path / "one", tmp_path / "two"]
    files[0].write_bytes(run_metadata({CPU: [ran("a", 10, 3)]}))
    files[1].write_bytes(run_metadata({CPU: [ran("a", 20, 4), ran("b", 30, 1)]}))
    of = read_model(Sources(graph=tmp_path / "graph.pb", run_metadata={0: files}))
    assert (values_of(of, "micros", 0), values_of(of, "micros")) == ({"a": 7, "b": 1}, {"a": 7, "b": 1})
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
    assert (values_of(of, "float_ops")["a"], of.stacks.ends.tolist(), "t" in of.types) == (5, [0, 1, 1], True)


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
    assert values_of(model(tmp_path, TWO), "micros") == {"a": 0, "b": 0}


STACK = [("a/main.py", 3, "<module>"), ("b/nn.py", 7, "dense")]


def read(folder: Path, data: bytes) -> OpLog:
    return read_op_log(InputFile(written(folder, data), "OpLogProto"))


def frames(stacks: Stacks, place: int) -> list[tuple[str, int, str]]:
    chosen = stacks.frame[stacks.ends[place] : stacks.ends[place + 1]].tolist()
    return [(stacks.files[frame], stacks.lines[frame], stacks.functions[frame]) for frame in chosen]


def test_entries_have_float_ops_types_and_stacks(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        op_log({"a": {"float_ops": 12, "types": ["t", "u"]}, "b": {"stack": STACK}, "c": {"stack": STACK[:1]}}),
    )
    assert (found.names, found.float_ops.tolist()) == (["a", "b", "c"], [12, 0, 0])
    assert found.types == [("t", "u"), (), ()]
    assert [frames(found.stacks, place) for place in range(3)] == [[], STACK, STACK[:1]]
    assert len(found.stacks.lines) == 2  # a frame that several stacks have is kept once


def test_taken_stacks_are_in_the_new_order(tmp_path: Path) -> None:
    found = read(tmp_path, op_log({"b": {"stack": STACK}, "c": {"stack": STACK[1:]}})).stacks.take(np.array([1, -1, 0]))
    assert [frames(found, place) for place in range(3)] == [STACK[1:], [], STACK]


def test_texts_that_are_missing_are_empty(tmp_path: Path) -> None:
    log = message("OpLogProto", log_entries=[{"name": b"a", "code_def": {"traces": [{"file_id": 9, "lineno": 4}]}}])
    assert frames(read(tmp_path, log).stacks, 0) == [("", 4, "")]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty, but should be an op log"),
        (graph(node("x", "Relu")), r"is a TensorFlow graph \(GraphDef\)"),
        (op_log({"": {}, "a": {}}), "entries without a name"),
        (op_log({"a": {"stack": STACK}})[:-1], "damaged"),
        (op_log({"a": {"stack": STACK * 6000}}), "a call stack of 12,000 frames"),
    ],
)
def test_what_is_no_log(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(TfprofInputError, match=said):
        read(tmp_path, data)


@pytest.mark.parametrize(
    ("files", "steps"),
    [
        pytest.param(["v2/run_7.pb", "0.step12"], {7: ["v2/run_7.pb"], 12: ["0.step12"]}, id="the last number"),
        pytest.param(["5=other_9"], {5: ["other_9"]}, id="as given"),
        pytest.param(["run.pb"], {0: ["run.pb"]}, id="one file needs none"),
        pytest.param(["3=a", "3=b"], {3: ["a", "b"]}, id="files of one step are together"),
    ],
)
def test_steps_of_files(files: list[str], steps: dict[int, list[str]]) -> None:
    assert steps_of(files) == {step: [Path(name) for name in names] for step, names in steps.items()}


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (["run.pb", "run_2.pb"], "specify the step, for example 10="),
        (["none_*"], "no file matches"),
        ([f"run_{10**30}.pb"], "no step has this number"),
    ],
)
def test_files_of_no_step(files: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        steps_of(files)


def test_patterns(tmp_path: Path) -> None:
    for step in (10, 2):
        (tmp_path / f"run_{step}.pb").write_bytes(b"")
    assert steps_of([str(tmp_path / "run_*.pb")]) == {10: [tmp_path / "run_10.pb"], 2: [tmp_path / "run_2.pb"]}
    assert steps_of([f"4={tmp_path}/run_?.pb"]) == {4: [tmp_path / "run_2.pb"]}


def test_a_file_whose_name_is_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "run[1].pb").write_bytes(b"")
    assert steps_of([str(tmp_path / "run[1].pb")]) == {1: [tmp_path / "run[1].pb"]}


def test_a_model_needs_a_graph_or_a_profile() -> None:
    with pytest.raises(TfprofInputError, match="pass one with --graph"):
        read_model(Sources())
