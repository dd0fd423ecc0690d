"""Every reader of files that a user may give, with good files for it.

Whatever the bytes are, a reader goes through all that is there, or raises a TfperfError of one line.
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import h5py
import hlo_builders as hlo
import lint_builders as lint
import numpy as np
import tfprof_builders as make
from checkpoint_builders import block, table, write_checkpoint
from click.testing import CliRunner
from judge.example_runs import run_of
from places import SAMPLES
from protobytes import field
from tfprof_builders import CPU, GPU, STREAMS, message, node, ran, run_metadata

from tfperf.base.errors import TfperfError
from tfperf.cli import main
from tfperf.formats.hlo.cost import cost_of
from tfperf.formats.hlo.hlo_proto import read_proto
from tfperf.formats.models.checkpoint import Checkpoint, read_table
from tfperf.formats.models.input_file import InputFile
from tfperf.formats.models.variables import saved_variables
from tfperf.formats.wire import schema
from tfperf.judge.config import read_config
from tfperf.judge.run_summary import baseline_text, read_baseline
from tfperf.models.linter.engine import LintOptions, lint_path
from tfperf.models.tfprof.advise import advise_report
from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.options import options_from
from tfperf.models.tfprof.params import params_report, read_variables
from tfperf.models.tfprof.reference import ModelText, op_rows, tree_rows
from tfperf.models.tfprof.sources import Sources, read_model
from tfperf.models.tfprof.views import View, show_ops, show_tree
from tfperf.report.render import render

COLLECTED = SAMPLES / "tfprof_mlp" / "collected"
MOST_EVENTS = 40


class Reader(NamedTuple):
    """What reads bytes, in a folder of its own, and good ones."""

    samples: tuple[bytes, ...]
    read: Callable[[Path, bytes], object]


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# --- profiles ---


def shortened(path: Path) -> bytes:
    """The first events of each thread of a trace: what is small can be tried often."""
    space: Any = schema.message_class("XSpace").FromString(path.read_bytes())
    for plane in space.planes:
        for line in plane.lines:
            del line.events[MOST_EVENTS:]
    data: bytes = space.SerializeToString()
    return data


TRACES = tuple(shortened(path) for path in sorted(SAMPLES.rglob("*.xplane.pb")))
VARIANTS = ((), ("--format", "json"), ("--format", "json", "--attribution", "tensorflow"))


def analyzed(path: Path, data: bytes) -> None:
    """Analyze in one of the variants, as the command line does: a report on stdout, or one line on stderr."""
    variant = VARIANTS[len(data) % len(VARIANTS)]
    result = CliRunner().invoke(main, ["analyze", str(written(path, data)), *variant])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code:
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        raise TfperfError(result.stderr.removesuffix("\n"))
    assert result.stdout
    assert result.stderr == ""
    if variant:
        json.loads(result.stdout)


# --- graphs, their runs and logs ---

EVERYTHING = options_from({"select": ["micros", "bytes", "params", "float_ops", "device", "op_types", "input_shapes"]})
NODES = (
    node("x", "Placeholder", outputs=[[4, 8]], variable=[4, 8]),
    node("layer/kernel", "VariableV2", outputs=[[8, 2]], variable=[8, 2]),
    node("layer/MatMul", "MatMul", "x", "layer/kernel:0", outputs=[[4, 2]]),
    node("layer/Relu", "Relu", "layer/MatMul", "^x", outputs=[None], nhwc=True),
    node("gradients/layer/Relu_grad/ReluGrad", "ReluGrad", "layer/Relu:1", outputs=[[4, -1]]),
)
RUN = run_metadata(
    {
        CPU: [
            ran("layer/MatMul", 10, 30, memory=1000, output=1500),
            ran("layer/Relu:Relu", 40, 0),
            ran("_arg_x", 1, 1),
        ],
        GPU: [ran("layer/kernel", 12, 3, timeline_label=b"layer/kernel = VariableV2()")],
        STREAMS: [ran("layer/kernel", 13, 9), ran("RecvTensor", 14, 2)],
    }
)
LOG = make.op_log(
    {
        "layer/kernel": {"types": ["_trainable_variables"], "stack": [("a/main.py", 3, "<module>")]},
        "layer/Relu": {"stack": [("a/main.py", 3, "<module>"), ("nn.py", 7, "dense")]},
        "gradients/layer/Relu_grad/ReluGrad": {"float_ops": 12, "stack": [("a/main.py", 9, "<module>")]},
    }
)
MEMORY = {"requested_bytes": 1000, "peak_bytes": 1000, "residual_bytes": 1000, "output_bytes": 1500}
EXEC = {
    "run_count": 1,
    "all_start_micros": 10,
    "latest_end_micros": 40,
    "cpu_execs": [{"key": CPU.lower().encode(), "value": {"times": [{"int64_values": [10, 30]}]}}],
    "memory_execs": [MEMORY],
}
MATMUL = {
    "name": b"layer/MatMul",
    "op": b"MatMul",
    "op_types": [b"MatMul"],
    "inputs": [{"key": 0, "value": 1}],
    "src_output_index": [{"key": 1, "value": 0}],
    "output_shapes": [{"key": 0, "value": {"int64_values": [4, 2]}}],
    "execs": [{"key": 7, "value": EXEC}],
    "canonical_device": CPU.lower().encode(),
    "trace": {"traces": [{"file_id": 1, "lineno": 3, "function_id": 2}]},
}
PROFILE = make.profile(
    [{"name": b"x", "op": b"Placeholder", "op_types": [b"Placeholder"], "shape": [4, 8]}, MATMUL],
    {1: "main.py", 2: "<module>"},
)
TEXT = b"""node { name: "x" op: "Placeholder" attr { key: "shape" value { shape { dim { size: 4 } } } } }
node { name: "layer/Relu" op: "Relu" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
library { }
"""
GRAPH = make.graph(*NODES)
META = message("MetaGraphDef", graph_def=[GRAPH])
SAVED = field(1, 1) + message("SavedModel", meta_graphs=[META])
GOOD = {"graph": GRAPH, "run": RUN, "log": LOG, "profile": PROFILE}


def model_of(folder: Path, kind: str, data: bytes) -> Model:
    """Return the model of this file and of good ones beside it."""
    files = {name: written(folder / name, data if name == kind else good) for name, good in GOOD.items()}
    if kind == "profile":
        return read_model(Sources(profile=files["profile"]))
    return read_model(Sources(graph=files["graph"], run_metadata={7: [files["run"]]}, op_log=files["log"]))


def rows(model: Model, view: View) -> int:
    """Return how many rows a view has."""
    text = ModelText(model)
    if view == "op":
        return len([*op_rows(show_ops(model, EVERYTHING), EVERYTHING, text, model.values(EVERYTHING.step))])
    return len([*tree_rows(show_tree(model, view, EVERYTHING), view, EVERYTHING, text)])


def views_of(kind: str) -> Callable[[Path, bytes], object]:
    def read(folder: Path, data: bytes) -> Model:
        model = model_of(folder, kind, data)
        assert all(rows(model, view) > 0 or view == "op" for view in get_args(View))
        assert len(advise_report(model).sections) == 4
        return model

    return read


def linted(folder: Path, data: bytes) -> object:
    return lint_path(written(folder / "graph.pb", data), LintOptions(batch=8))


def counted(folder: Path, data: bytes) -> None:
    report = params_report(written(folder / "graph.pb", data))
    (layers,) = (table for table in report.tables() if table.name == "params_layers")
    assert sum(count or 0 for count in layers.data["params"]) <= report.summary["params"]
    assert render(report, "json")


# --- programs of XLA ---

ARRAY = hlo.shape(hlo.F32, 4)
ADDER = hlo.program(
    hlo.computation(
        "main",
        hlo.instruction(1, "a", "parameter", ARRAY),
        hlo.instruction(2, "s", "add", ARRAY, [1, 1]),
        number=1,
        root=2,
    )
)


def costed(folder: Path, data: bytes) -> None:
    cost_of(read_proto(data))
    path = written(folder / "program.hlo_proto.pb", data)
    lint_path(path, LintOptions(device="gpu"))
    lint_path(path, LintOptions(device="tpu"))


# --- checkpoints and Keras files ---

INDEX, VALUES = (COLLECTED / f"model.ckpt.{end}" for end in ("index", "data-00000-of-00001"))
ENTRIES = read_table(InputFile(INDEX, "checkpoint"))
VARIABLE = {"attributes": [{"name": b"VARIABLE_VALUE", "checkpoint_key": b"v"}]}
OBJECTS = message(
    "ObjectGraph",
    nodes=[
        {"children": [{"node_id": 1, "local_name": b"variables"}, {"node_id": 2, "local_name": b"a"}]},
        {"children": [{"node_id": 2, "local_name": b"0"}]},
        VARIABLE,
    ],
)
CONFIG = json.dumps({"config": {"layers": [{"config": {"name": "dense", "trainable": True}}]}}).encode()


def tensors(folder: Path, data: bytes) -> None:
    written(folder / "ck.data-00000-of-00001", VALUES.read_bytes())
    written(folder / "ck.index", data)
    checkpoint = Checkpoint(folder / "ck")
    for name, tensor in checkpoint.tensors.items():
        values = checkpoint.read(name)
        assert values is None or values.shape == tensor.shape


def entries(folder: Path, data: bytes) -> None:
    """Put the bytes in the place of each entry, in a table whose checksums are right: what a hostile file would be."""
    for key in ENTRIES:
        tensors(folder, table(block({**ENTRIES, key: data})))


def checkpoint_objects(folder: Path, data: bytes) -> None:
    texts = {"_CHECKPOINTABLE_OBJECT_GRAPH": data}
    read_variables(write_checkpoint(folder / "m.ckpt", {"v": np.zeros(2, np.float32)}, texts))


def objects(folder: Path, data: bytes) -> None:
    found = saved_variables(InputFile(written(folder / "x.pb", b"\xff\0\1"), "GraphDef"), data)
    assert all(each.elements is None or each.elements >= 0 for each in found)


def weights(write: Callable[[h5py.Group], None] = lambda _: None) -> bytes:
    """Return a weights file; a function may write more into its group `vars`."""
    file = io.BytesIO()
    with h5py.File(file, "w", libver="latest") as root:
        group = root.create_group("layers/dense/vars")
        group.create_dataset("0", shape=(2, 3), dtype="f4")
        write(group)
    return file.getvalue()


def keras_file(folder: Path, config: bytes) -> Path:
    """Write a `.keras` file with this configuration, compressed."""
    with zipfile.ZipFile(folder / "m.keras", "w") as archive:
        archive.writestr("model.weights.h5", weights())
        archive.writestr("config.json", config, zipfile.ZIP_DEFLATED)
    return folder / "m.keras"


READERS: dict[str, Reader] = {
    "profile": Reader(TRACES, lambda folder, data: analyzed(folder / "vm.xplane.pb", data)),
    "packed profile": Reader(
        tuple(map(gzip.compress, TRACES)), lambda folder, data: analyzed(folder / "vm.xplane.pb.gz", data)
    ),
    "graph": Reader((GRAPH, TEXT, META, SAVED), views_of("graph")),
    "run": Reader((RUN, next(COLLECTED.glob("run_metadata_0.pb")).read_bytes()), views_of("run")),
    "log": Reader((LOG, (COLLECTED / "tfprof_log").read_bytes()), views_of("log")),
    "tfprof profile": Reader((PROFILE,), views_of("profile")),
    "parameters": Reader((GRAPH, META, SAVED, (COLLECTED / "graph.pb").read_bytes()), counted),
    "linted graph": Reader(
        (lint.graph(lint.fed("x", 4, 4), lint.op("y", "MatMul", "x", "x", out=(4, 4))), GRAPH), linted
    ),
    "program": Reader((ADDER,), costed),
    "checkpoint": Reader((INDEX.read_bytes(),), tensors),
    "entry of a checkpoint": Reader(tuple(ENTRIES.values()), entries),
    "objects": Reader((OBJECTS,), objects),
    "objects of a checkpoint": Reader((OBJECTS,), checkpoint_objects),
    "configuration": Reader((CONFIG,), lambda folder, data: read_variables(keras_file(folder, data))),
    "weights": Reader((weights(),), lambda folder, data: read_variables(written(folder / "m.weights.h5", data))),
    "list of checkpoints": Reader(
        (b'model_checkpoint_path: "ck"\n',),
        lambda folder, data: read_variables(written(folder / "checkpoint", data).parent),
    ),
    "baseline": Reader(
        (baseline_text(run_of()).encode(),), lambda folder, data: read_baseline(written(folder / "b.json", data))
    ),
    "limits": Reader(
        (b'[check]\nmax-input-bound = "10%"\nskip-first = 2\nlimits = ["sum(kernels.total_us[name~nccl]) < 500us"]\n',),
        lambda folder, data: read_config(written(folder / "tfperf.toml", data)),
    ),
}


def ends_well(reader: str, folder: Path, data: bytes) -> str:
    """Read bytes; return the error, empty if there is none."""
    text = ""
    try:
        READERS[reader].read(folder, data)
    except TfperfError as error:
        text = str(error)
    assert "\n" not in text
    return text
