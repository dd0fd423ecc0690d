"""A profile that is written says what its sources say: read again, all views are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import SHARED
from tfprof_builders import CPU, STREAMS, graph, node, op_log, ran, run_metadata

from tfperf.formats.models.graph_def import read_graph
from tfperf.formats.models.input_file import InputFile
from tfperf.models.tfprof import profile_proto as execution_writer
from tfperf.models.tfprof.model import Model, build_model
from tfperf.models.tfprof.op_log import read_op_log
from tfperf.models.tfprof.options import options_from
from tfperf.models.tfprof.profile_proto import profile_bytes, read_profile
from tfperf.models.tfprof.reference import reference_report
from tfperf.models.tfprof.run_metadata import read_run_metadata
from tfperf.models.tfprof.sources import steps_of
from tfperf.models.tfprof.views import View

REFERENCE = SHARED / "tfprof"
SETS = ("mnist", "mnist_res", "loop", "synth_gpu")
SELECT = ["micros", "bytes", "peak_bytes", "residual_bytes", "output_bytes", "params", "float_ops", "occurrence"]
VIEWS: tuple[View, ...] = ("scope", "graph", "op", "code")


def written(graph_data: bytes, steps: dict[int, list[bytes]], log: bytes) -> tuple[Model, Model]:
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
        options = options_from(
            {"max_depth": 1000, "select": [*SELECT, "device", "op_types", "input_shapes"], "step": step}
        )
        for view in VIEWS:
            reports = [reference_report(model, view, options, quirks=False) for model in (one, other)]
            assert reports[0] == reports[1]


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the graphs of the reference are not beside the project")
@pytest.mark.parametrize("name", SETS)
def test_graphs_of_the_reference_are_the_same_again(name: str) -> None:
    folder = REFERENCE / name
    metadata = {"mnist": "run_meta/*.pb", "mnist_res": "run_meta/*.pb"}.get(name, "run_metadata*.pb")
    steps = {step: [path.read_bytes() for path in paths] for step, paths in steps_of([str(folder / metadata)]).items()}
    same(*written((folder / "graph.pb").read_bytes(), steps, (folder / "tfprof_log").read_bytes()))


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
    model, again = written(nodes, {3: [run_metadata(runs)], 9: [run_metadata({CPU: [ran("x", 1, 1)]})]}, log)
    same(model, again)
    assert again.devices == sorted(again.devices, key=again.devices.index)
    assert [len(each.intervals.node) for each in again.steps.values()] == [
        len(each.intervals.node) for each in model.steps.values()
    ]
    assert [again.input_shape.dims(row) for row in range(2)] == [(2,), (4, 8)]


def test_a_graph_that_never_ran_is_kept() -> None:
    log = op_log({"x": {"float_ops": 5}})
    model, again = written(graph(node("x", "Placeholder", variable=[4]), node("y", "Relu", "x:7")), {}, log)
    same(model, again)
    assert (model.steps, again.steps) == ({}, {})
