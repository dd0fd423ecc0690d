"""Profiles that tfprof wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from protobytes import field, written
from tfprof_builders import CPU, GPU, REFERENCE, STREAMS, graph, node, op_log, profile, ran, run_metadata

from tfperf.formats.models.graph_def import read_graph
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.models.tfprof import profile_proto as execution_writer
from tfperf.models.tfprof.model import Model, build_model
from tfperf.models.tfprof.op_log import read_op_log
from tfperf.models.tfprof.options import PLACE, options_from
from tfperf.models.tfprof.profile_proto import profile_bytes, read_profile
from tfperf.models.tfprof.reference import reference_report
from tfperf.models.tfprof.run_metadata import read_run_metadata
from tfperf.models.tfprof.sources import steps_of
from tfperf.models.tfprof.views import View


def read(folder: Path, data: bytes) -> Model:
    return read_profile(InputFile(written(folder, data), "ProfileProto"))


def times(device: str, *pairs: list[int]) -> dict[str, Any]:
    return {"key": device.lower().encode(), "value": {"times": [{"int64_values": pair} for pair in pairs]}}


def of_step(step: int, **fields: Any) -> dict[str, Any]:
    return {"key": step, "value": fields}


OUTPUT = {"key": 1, "value": {"int64_values": [4, 8]}}
X = {"name": b"x", "op": b"Placeholder", "shape": [4, 8], "output_shapes": [OUTPUT]}
Y = {
    "name": b"a/y",
    "op": b"MatMul",
    "op_types": [b"MatMul", b"_trainable_variables"],
    "inputs": [{"key": 1, "value": 1}, {"key": 0, "value": 3}],
    "src_output_index": [{"key": 1, "value": 1}],
    "canonical_device": GPU.lower().encode(),
    "float_ops": 128,
    "trace": {"traces": [{"file_id": 1, "lineno": 3, "function_id": 2}]},
    "execs": [
        of_step(
            20, run_count=2, all_start_micros=10, latest_end_micros=40,
            cpu_execs=[times(GPU, [10, 5], [20, 6])], accelerator_execs=[times(STREAMS, [12, 9])],
            memory_execs=[{"requested_bytes": 100, "output_bytes": 7}, {"requested_bytes": 11, "peak_bytes": 1}],
        ),
        of_step(10, run_count=1, cpu_execs=[times(GPU, [1, 3])]),
    ],
}  # fmt: skip
Z = {"name": b"z", "op": b"NoOp", "attrs": [{"key": b"data_format", "value": b"\x12\x04NHWC"}]}


def test_nodes_are_sorted_by_name_with_inputs_and_stacks(tmp_path: Path) -> None:
    model = read(tmp_path, profile([X, Y, Z], {1: "main.py", 2: "<module>"}))
    assert (model.names, model.ops) == (["a/y", "x", "z"], ["MatMul", "Placeholder", "NoOp"])
    assert (model.device, model.float_ops.tolist(), model.nhwc) == ([GPU.lower(), "", ""], [128, 0, 0], ["z"])
    assert (model.shape.dims(1), model.kernel) == ((4, 8), ["", "", ""])
    types = [(model.names[owner], model.types[kind]) for owner, kind in zip(*model.type_of, strict=True)]
    assert types == [("a/y", "MatMul"), ("a/y", "_trainable_variables")]
    assert [model.names[source] for source in model.input_source.tolist()] == ["z", "x"]
    assert (model.input_of.tolist(), model.input_shape.dims(0), model.input_shape.dims(1)) == ([0, 0], (), (4, 8))
    stacks = model.stacks
    assert (stacks.ends.tolist(), stacks.files, stacks.lines) == ([0, 1, 1, 1], ["main.py"], [3])
    assert stacks.functions == ["<module>"]


def test_steps_have_times_and_memory(tmp_path: Path) -> None:
    model = read(tmp_path, profile([X, Y, Z]))
    assert [*model.steps] == [10, 20]
    values = {name: model.values(20)[place, 0] for name, place in PLACE.items()}
    assert (values["cpu_micros"], values["accelerator_micros"], values["micros"], values["runs"]) == (11, 9, 20, 2)
    assert (values["bytes"], values["peak_bytes"], values["output_bytes"], values["float_ops"]) == (111, 1, 7, 256)
    step = model.steps[20]
    assert (step.started.tolist(), step.ended.tolist(), step.cpu_nanos.tolist()) == ([10], [40], [11_000])
    singles = step.intervals
    rows = zip(singles.device.tolist(), singles.start.tolist(), singles.duration.tolist(), strict=True)
    assert sorted((model.devices[device], start, duration) for device, start, duration in rows) == [
        (STREAMS.lower(), 12, 9),
        (GPU.lower(), 10, 5),
        (GPU.lower(), 20, 6),
    ]


def test_of_two_records_of_a_step_the_last_counts(tmp_path: Path) -> None:
    twice = {"name": b"x", "op": b"A", "execs": [of_step(1, run_count=5), of_step(1, run_count=7)]}
    assert read(tmp_path, profile([twice])).values(1)[PLACE["runs"]].tolist() == [7]


def test_inputs_that_are_not_there_and_impossible_slots(tmp_path: Path) -> None:
    odd = {
        "name": b"y",
        "op": b"A",
        "inputs": [{"key": 0, "value": 1}, {"key": 1, "value": 99}],
        "src_output_index": [{"key": 1, "value": (1 << 63) - 1}],
        "output_shapes": [{"key": -(1 << 63), "value": {"int64_values": [3]}}],
    }
    model = read(tmp_path, profile([X, odd]))
    assert model.input_source.tolist() == [0, -1]
    assert [model.input_shape.dims(place) for place in range(2)] == [(), ()]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty, but should be a tfprof profile"),
        (field(2, 1), "a profile without nodes"),
        (profile([{"op": b"A"}]), "nodes without a name"),
        (profile([X, X]), "two nodes named 'x'"),
        (profile([{"name": b"x", "execs": [of_step(-1, run_count=1)]}]), "the first of them -1"),
        (profile([X, Y])[:-1], "damaged"),
        (graph(node("x", "Relu")), r"is a TensorFlow graph \(GraphDef\)"),
    ],
)
def test_what_is_no_profile(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(TfprofInputError, match=said):
        read(tmp_path, data)


SETS = ("mnist", "mnist_res", "loop", "synth_gpu")
SELECT = [
    "micros", "bytes", "peak_bytes", "residual_bytes", "output_bytes", "params", "float_ops", "occurrence", "device",
    "op_types", "input_shapes",
]  # fmt: skip
VIEWS: tuple[View, ...] = ("scope", "graph", "op", "code")


def rewritten(graph_data: bytes, steps: dict[int, list[bytes]], log: bytes) -> tuple[Model, Model]:
    """Return a model, and what is read of it after it was written."""
    here = Path("here")
    of = read_graph(InputFile(here, "GraphDef", graph_data))
    records = {
        step: [read_run_metadata(InputFile(here, "RunMetadata", part)) for part in parts]
        for step, parts in steps.items()
    }
    model = build_model(of, records, read_op_log(InputFile(here, "OpLogProto", log)))
    return model, read_profile(InputFile(here, "ProfileProto", profile_bytes(of, model)))


def same(one: Model, other: Model) -> None:
    """Check that all views of both are the same, of the mean and of each step."""
    for step in (-1, *one.steps):
        options = options_from({"max_depth": 1000, "select": SELECT, "step": step})
        for view in VIEWS:
            reports = [reference_report(model, view, options, quirks=False) for model in (one, other)]
            assert reports[0] == reports[1]


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the graphs of the reference are not beside the project")
@pytest.mark.parametrize("name", SETS)
def test_graphs_of_the_reference_are_the_same_again(name: str) -> None:
    folder = REFERENCE / name
    metadata = {"mnist": "run_meta/*.pb", "mnist_res": "run_meta/*.pb"}.get(name, "run_metadata*.pb")
    steps = {step: [path.read_bytes() for path in paths] for step, paths in steps_of([str(folder / metadata)]).items()}
    same(*rewritten((folder / "graph.pb").read_bytes(), steps, (folder / "tfprof_log").read_bytes()))


@pytest.mark.parametrize("at_a_time", [1, 2, 100_000])
def test_streams_outputs_and_several_runs_are_kept(at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_writer, "_ROWS", at_a_time)
    nodes = graph(
        node("x", "Split", outputs=[[4, 8], [2], None]), node("y", "AddN", "x:1", "x", "^x", "x:2", outputs=[[2]])
    )
    device = CPU.replace("CPU", "GPU")
    runs = {
        device: [ran("y", 10, 3, memory=7, output=5), ran("y", 20, 4)],
        STREAMS: [ran("y:Kernel", 12, 30), ran("y:Kernel", 50, 40), ran("only_here", 5, 2)],
    }
    log = op_log({"y": {"float_ops": 3, "types": ["mine"], "stack": [("a.py", 1, "f"), ("b.py", 2, "é")]}})
    model, again = rewritten(nodes, {3: [run_metadata(runs)], 9: [run_metadata({CPU: [ran("x", 1, 1)]})]}, log)
    same(model, again)
    assert again.devices == sorted(again.devices, key=again.devices.index)
    written_count, count = ([len(each.intervals.node) for each in of.steps.values()] for of in (again, model))
    assert written_count == count
    assert [again.input_shape.dims(row) for row in range(2)] == [(2,), (4, 8)]


def test_a_graph_that_never_ran_is_kept() -> None:
    log = op_log({"x": {"float_ops": 5}})
    model, again = rewritten(graph(node("x", "Placeholder", variable=[4]), node("y", "Relu", "x:7")), {}, log)
    same(model, again)
    assert (model.steps, again.steps) == ({}, {})
