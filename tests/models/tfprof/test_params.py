"""Parameters by layer: the article's model from whatever it may be saved as, and a model of Keras as Keras saves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_builders import write_checkpoint, write_keras, write_weights
from click.testing import CliRunner, Result
from job_environment import needs_tensorflow, run_tensorflow
from protobytes import field, written
from tfprof_builders import graph, message, node, op_log

from tfperf.cli import main
from tfperf.formats.models.input_file import TfprofInputError
from tfperf.models.tfprof.params import params_report
from tfperf.report.model import Report, Table

FLOAT, INT64, RESOURCE = 1, 9, 20
MLP = {
    "hidden1/kernel": (784, 128),
    "hidden1/bias": (128,),
    "hidden2/kernel": (128, 32),
    "hidden2/bias": (32,),
    "softmax_linear/kernel": (32, 10),
    "softmax_linear/bias": (10,),
}
TOTAL = 104_938


def session_graph() -> bytes:
    nodes = [node(name, "VariableV2", variable=dims, dtype=FLOAT) for name, dims in MLP.items()]
    slots = [node(f"{name}/Momentum", "VariableV2", variable=dims, dtype=FLOAT) for name, dims in MLP.items()]
    return graph(*nodes, *slots, node("global_step", "VariableV2", variable=(1,), dtype=INT64))


def meta_graph() -> bytes:
    names = [message("VariableDef", variable_name=f"{name}:0".encode()) for name in MLP]
    collection = {"key": b"trainable_variables", "value": {"bytes_list": {"value": names}}}
    return field(2, session_graph()) + message("MetaGraphFacts", collection_def=[collection])


def write_graph(folder: Path) -> Path:
    return written(folder, session_graph(), name="graph.pb")


def write_graph_and_log(folder: Path) -> Path:
    write_graph(folder)
    (folder / "tfprof_log").write_bytes(op_log({name: {"types": ["_trainable_variables"]} for name in MLP}))
    return folder


def write_meta_graph(folder: Path) -> Path:
    return written(folder, meta_graph(), name="model.ckpt.meta")


def write_named_checkpoint(folder: Path) -> Path:
    values: dict[str, np.ndarray[Any, Any]] = {name: np.zeros(dims, np.float32) for name, dims in MLP.items()}
    slots = {f"{name}/Adam": value for name, value in values.items()}
    return write_checkpoint(folder / "model.ckpt", {**values, **slots, "global_step": np.array(7, np.int64)})


def write_checkpoint_with_meta(folder: Path) -> Path:
    write_meta_graph(folder)
    return write_named_checkpoint(folder)


def write_session_saved_model(folder: Path) -> Path:
    return written(folder, field(1, 1), field(2, meta_graph()), name="saved_model.pb")


LAYERS = {
    f"layers/dense_{number}": (layer, [dims for name, dims in MLP.items() if layer in name])
    for number, layer in enumerate(("hidden1", "hidden2", "softmax_linear"))
}


def write_h5(folder: Path) -> Path:
    return write_weights(folder / "model.weights.h5", LAYERS)


def write_model(folder: Path) -> Path:
    layers = [
        {"module": "keras.layers", "class_name": "Dense", "config": {"name": name}} for name, _ in LAYERS.values()
    ]
    return write_keras(folder, LAYERS, {"config": {"name": "mlp", "layers": layers}})


SAYING = write_graph_and_log, write_meta_graph, write_checkpoint_with_meta, write_session_saved_model, write_model
"""Sources that say what is trained."""
SILENT = write_graph, write_named_checkpoint, write_h5


def table(report: Report, name: str) -> Table:
    return next(table for table in report.tables() if table.name == name)


@pytest.mark.parametrize("write", [*SAYING, *SILENT])
def test_every_source_of_a_model_has_the_same_parameters(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    report = params_report(write(tmp_path))
    keys = ("params", "size_bytes", "variables_without_shape", "trainable_params", "unknown_params")
    trained, unknown = (TOTAL, 0) if write in SAYING else (0, TOTAL)
    assert [report.summary[key] for key in keys] == [TOTAL, 4 * TOTAL, 0, trained, unknown]
    layers = table(report, "params_layers").data
    assert layers["layer"] == ["hidden1", "hidden2", "softmax_linear"]
    assert layers["params"] == [100_480, 4128, 330]
    assert layers["params_percent"] == [pytest.approx(100 * count / TOTAL) for count in (100_480, 4128, 330)]
    assert layers["shape"] == ["784x128, 128", "128x32, 32", "32x10, 10"]
    assert layers["dtype"] == ["float32"] * 3
    assert set(layers["trainable"]) == {"yes" if write in SAYING else "unknown"}
    each = table(report, "params_variables").data
    assert each["params"] == [100_352, 4096, 320, 128, 32, 10]
    assert sum(each["size_bytes"]) == 4 * TOTAL
    # A source that is silent is said to be.
    assert bool(report.sections[0].notes) == (write in SILENT)


def test_what_is_not_counted_is_listed_apart(tmp_path: Path) -> None:
    report = params_report(write_graph(tmp_path))
    apart = table(report, "params_not_counted")
    assert apart.data["variable"][0] == "hidden1/kernel/Momentum"
    assert apart.data["why"] == ["optimizer"] * 6 + ["counter or seed"]
    assert sum(apart.data["elements"]) == TOTAL + 1
    assert report.summary["not_counted_bytes"] == 4 * TOTAL + 8
    without = params_report(write_h5(tmp_path))
    assert [table.name for table in without.tables()] == ["params_layers", "params_variables"]


def test_a_log_says_what_is_trained_and_only_of_graphs(tmp_path: Path) -> None:
    log = write_graph_and_log(tmp_path) / "tfprof_log"
    assert params_report(tmp_path / "graph.pb", log).summary["trainable_params"] == TOTAL
    log.write_bytes(op_log({"hidden1/kernel": {"types": ["_trainable_variables"]}}))
    assert params_report(tmp_path / "graph.pb", log).summary["trainable_params"] == 100_352
    log.write_bytes(op_log({"hidden1/kernel": {"types": ["other"]}}))
    assert params_report(tmp_path / "graph.pb", log).summary["unknown_params"] == TOTAL
    with pytest.raises(TfprofInputError, match="omit --op-log"):
        params_report(write_model(tmp_path), log)


def test_a_total_that_may_be_wrong_is_said_to_be(tmp_path: Path) -> None:
    nodes = (
        node("a/ReadVariableOp/resource", "Placeholder", dtype=RESOURCE),
        node("a/ReadVariableOp", "ReadVariableOp", "a/ReadVariableOp/resource", dtype=FLOAT),
        node("b", "Placeholder", dtype=RESOURCE),
        node("while", "While", "b"),
    )
    (tmp_path / "graph.pb").write_bytes(graph(*nodes))
    report = params_report(tmp_path / "graph.pb")
    assert [(each.code, each.severity) for each in report.sections[0].findings] == [
        ("params_without_shape", "problem"),
        ("params_hidden", "problem"),
    ]
    assert report.summary["variables_without_shape"] == 2
    assert table(report, "params_layers").data["params"] == [None]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda folder: folder, "has no saved_model.pb, checkpoint or graph.pb"),
        (lambda folder: folder / "none", "cannot open"),
        (lambda folder: written(folder, b"", name="empty"), "is empty: pass a SavedModel"),
        (lambda folder: written(folder, op_log({"a": {"stack": [("f", 1, "g")]}}), name="log"), "a tfprof log"),
        (lambda folder: written(folder, b"hello, this is text", name="text"), "not a graph in protobuf's text format"),
        (lambda folder: written(folder, bytes(range(256)), name="odd"), "pass a SavedModel, a .keras"),
        (
            lambda folder: written(folder, graph(node("c", "Const", outputs=[(3,)])), name="graph.pb"),
            "without variables",
        ),
        (lambda folder: written(folder, b"", name="saved_model.pbtxt").parent, "is a text SavedModel"),
    ],
)
def test_what_holds_no_parameters_is_refused_in_a_line(tmp_path: Path, make: Callable[[Path], Path], why: str) -> None:
    with pytest.raises(TfprofInputError) as error:
        params_report(make(tmp_path))
    assert why in str(error.value)
    assert "\n" not in str(error.value)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["tfprof", "params", *map(str, arguments)], env={"COLUMNS": "80"})


def test_people_see_layers_with_shares_in_80_columns(tmp_path: Path) -> None:
    shown = run(write_model(tmp_path))
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert max(map(len, lines)) <= 80
    assert "hidden1            100,480  95.8   402 kB  yes        float32  784x128, 128" in lines
    assert "Parameters  104,938" in lines


def test_all_formats_have_the_report(tmp_path: Path) -> None:
    source = write_graph(tmp_path)
    document = json.loads(run(source, "--format", "json").output)
    assert document["summary"]["params"] == TOTAL
    for suffix in ("md", "html", "csv"):
        assert run(source, "-o", tmp_path / f"report.{suffix}").exit_code == 0
    assert "100,480" in (tmp_path / "report.md").read_text()
    assert "hidden1/kernel/Momentum" in (tmp_path / "report.html").read_text()
    assert "hidden1" in (tmp_path / "report.csv").read_text()


def test_what_cannot_be_read_ends_with_code_2(tmp_path: Path) -> None:
    failed = run(tmp_path / "none")
    assert failed.exit_code == 2
    assert "cannot open" in failed.output
    assert run().exit_code == 2


_SAVE = """
import json, sys
import keras, numpy as np, tensorflow as tf
L, folder = keras.layers, sys.argv[1]
image, tokens = keras.Input((8, 8, 3), name="image"), keras.Input((5,), dtype="int32", name="tokens")
x = L.Flatten()(L.BatchNormalization(name="bn")(L.Conv2D(4, 3, name="conv")(image)))
x = L.Concatenate()([x, L.GlobalAveragePooling1D()(L.Embedding(50, 6, name="embedding")(tokens))])
inner = keras.Sequential([keras.Input((150,)), L.Dense(7, name="dense"), L.Dropout(0.1)], name="inner")
model = keras.Model([image, tokens], L.Dense(3, name="out")(L.Dense(5, name="frozen", trainable=False)(inner(x))))
model.compile("adam", "mse", metrics=["mae"])
model.optimizer.build(model.trainable_variables)
specs = ((tf.TensorSpec((4, 8, 8, 3)), tf.TensorSpec((4, 5), tf.int32)), tf.TensorSpec((4, 3)))
functions = {
    "infer": (tf.function(lambda x, y: model(list(x), training=False)), specs),
    "train": (tf.function(lambda x, y: model.train_step((list(x), y))), specs),
}
for name, (function, inputs) in functions.items():
    graph = function.get_concrete_function(*inputs).graph.as_graph_def(add_shapes=True)
    open(f"{folder}/{name}.pb", "wb").write(graph.SerializeToString())
model.save(f"{folder}/model.keras")
model.save(f"{folder}/model.h5")
model.save_weights(f"{folder}/model.weights.h5")
model.export(f"{folder}/export", verbose=False)
tf.saved_model.save(model, f"{folder}/saved")
tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(f"{folder}/checkpoints/ck")
count = lambda weights: sum(int(np.prod(weight.shape)) for weight in weights)
json.dump([count(model.weights), count(model.trainable_weights)], open(f"{folder}/counts.json", "w"))
"""


@needs_tensorflow
def test_a_model_of_keras_has_its_parameters_in_whatever_keras_saves(tmp_path: Path) -> None:
    run_tensorflow("-c", _SAVE, tmp_path)
    total, trainable = json.loads((tmp_path / "counts.json").read_bytes())
    assert (total, trainable) == (1543, 1495)
    frozen, statistics = 40, 8
    # Of each source: trained, not trained, and not said to be either.
    expected = {
        "model.keras": (trainable, frozen + statistics, 0),
        "export": (trainable, frozen + statistics, 0),
        "export/variables/variables": (trainable, frozen + statistics, 0),
        "saved": (trainable, statistics, frozen),
        "checkpoints": (trainable, statistics, frozen),
        "train.pb": (trainable, statistics, frozen),
        "model.h5": (0, frozen + statistics, trainable),
        "model.weights.h5": (0, 0, total),
        "infer.pb": (0, 0, total),
    }
    for name, split in expected.items():
        report = params_report(tmp_path / name)
        keys = ("trainable_params", "non_trainable_params", "unknown_params")
        assert report.summary["params"] == total, name
        assert tuple(report.summary[key] for key in keys) == split, name
        layers = table(report, "params_layers").data
        assert layers["params"] == [1057, 300, 112, 40, 18, 16], name
