"""The collector in jobs with real sessions and functions: what it writes, where it stops, what it leaves alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from job_environment import run_tensorflow_script
from tfprof_builders import values_of

from tfperf.base.errors import OutputError
from tfperf.capture.graph_collector import Collector
from tfperf.formats.models.input_file import TfprofInputError
from tfperf.models.tfprof.options import PRESETS, options_from
from tfperf.models.tfprof.sources import read_folder
from tfperf.models.tfprof.views import show_tree

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tensorflow-cpu is installed on Linux only")

_SCRIPT = '''
import json, os, sys, warnings
import numpy as np
import tensorflow as tf
from tfperf.tfprof import Collector

v1 = tf.compat.v1
facts = {}

def session_of(batch):
    """A dense layer, its training, and a session of its own graph."""
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [batch, 8], name="x")
        with v1.variable_scope("hidden"):
            kernel = v1.get_variable("kernel", [8, 4])
            bias = v1.get_variable("bias", [4], initializer=v1.zeros_initializer())
            y = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, kernel), bias))
        steps = v1.Variable(0, name="steps", trainable=False, use_resource=True)
        train = v1.train.GradientDescentOptimizer(0.01).minimize(tf.reduce_sum(y), global_step=steps)
        saver = v1.train.Saver(max_to_keep=1)
        session = v1.Session(graph=graph)
        session.run(v1.global_variables_initializer())
    return session, train, {x: np.ones((3, 8), np.float32)}, saver

def untouched(graph):
    return graph.as_graph_def(add_shapes=True).SerializeToString(deterministic=True)

session, train, feed, saver = session_of(None)
before = untouched(session.graph)
own_metadata = v1.RunMetadata()
with session.graph.as_default():
    mine = saver.save(session, "mine/model")
with Collector("steps", every=3, saver=saver) as collector:
    for step in range(8):
        result = collector.run(session, [train, "x:0"], feed, run_metadata=own_metadata)
        facts.setdefault("own_metadata", len(own_metadata.SerializeToString()))
facts["shape"] = result[1].shape
facts["steps"] = collector.collected.steps
facts["size_bytes"] = collector.collected.size_bytes
facts["same_graph"] = before == untouched(session.graph)
facts["own_checkpoint"] = os.path.exists(mine + ".index")
facts["other_batch"] = collector.run(session, "x:0", {"x:0": np.ones((5, 8))}).shape
facts["checkpoint"] = [name for name, _ in tf.train.list_variables("steps/model.ckpt")]

def warned(**limits):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Collector("limit-" + "-".join(limits), every=1, **limits) as collector:
            for step in range(5):
                collector.run(session, train, feed, step=10 * step)
    return {"steps": collector.collected.steps, "size": collector.collected.size_bytes,
            "stopped": collector.collected.stopped, "warnings": [str(each.message) for each in caught]}

size = os.path.getsize("steps/run_metadata_6.pb")
facts["max_steps"] = warned(max_steps=2)
facts["max_bytes"] = warned(max_bytes=int(2.5 * size))

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with Collector("gone", every=1) as collector:
        os.rmdir("gone")
        facts["went on"] = [collector.run(session, "steps/Read/ReadVariableOp:0") is not None for _ in range(2)]
facts["gone"] = [str(each.message) for each in caught]

class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.kernel = tf.Variable(tf.zeros([8, 4]), name="hidden/kernel")
        self.same_name = tf.Variable(tf.zeros([4]), name="hidden/kernel")
        self.mean = tf.Variable(tf.zeros([4]), trainable=False, name="mean")

    @tf.function
    def __call__(self, x):
        return tf.matmul(x, self.kernel) + self.same_name - self.mean

model = Model()
with Collector("function") as collector:
    concrete = model.__call__.get_concrete_function(tf.TensorSpec([3, 8]))
    facts["note"] = collector.add_function(concrete).note
    try:
        collector.add_function(concrete)
    except Exception as error:
        facts["second"] = f"{type(error).__name__}: {error}"
with warnings.catch_warnings(record=True) as caught, Collector("open") as collector:
    warnings.simplefilter("always")
    collector.add_function(model.__call__.get_concrete_function(tf.TensorSpec([None, 8])))
facts["open"] = [[str(each.message), os.path.basename(each.filename)] for each in caught]
tf.import_graph_def(v1.GraphDef.FromString(open("function/graph.pb", "rb").read()))
json.dump(facts, open("facts.json", "w"))
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("collector")
    assert "incomplete shapes" not in run_tensorflow_script(folder, _SCRIPT)
    return folder


@pytest.fixture(scope="module")
def facts(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "facts.json").read_text()))


@pytest.mark.tensorflow
def test_every_third_step_is_there_with_its_times(folder: Path, facts: dict[str, Any]) -> None:
    model = read_folder(folder / "steps")
    assert [*model.steps] == facts["steps"] == [0, 3, 6]
    assert facts["size_bytes"] == sum(path.stat().st_size for path in (folder / "steps").glob("run_metadata_*"))
    assert values_of(model, "runs")["hidden/Relu"] >= 1
    per_run = dict(zip(model.names, model.float_ops.tolist(), strict=True))
    assert per_run["hidden/MatMul"] == 2 * 3 * 8 * 4, "the open shapes are those of a run"
    assert per_run["hidden/BiasAdd"] == 3 * 4
    assert "_trainable_variables" in {model.types[kind] for kind in model.type_of[1].tolist()}
    assert values_of(model, "params")["hidden/kernel"] == 32
    assert facts["checkpoint"] == ["hidden/bias", "hidden/kernel", "steps"]


@pytest.mark.tensorflow
def test_nothing_of_the_user_changes(facts: dict[str, Any]) -> None:
    assert facts["same_graph"]
    assert facts["own_checkpoint"]
    assert facts["own_metadata"]
    assert (facts["shape"], facts["other_batch"]) == ([3, 8], [5, 8])


@pytest.mark.tensorflow
@pytest.mark.parametrize("limit", ["max_steps", "max_bytes"])
def test_tracing_stops_at_a_limit_and_says_so(facts: dict[str, Any], limit: str) -> None:
    of = facts[limit]
    assert of["steps"] == [0, 10]
    assert of["stopped"].startswith(f"{limit}=")
    (message,) = of["warnings"]
    assert message.startswith(f"wrote tfprof data of 2 steps to limit-{limit}; tracing stopped: {limit}=")
    assert "\n" not in message


@pytest.mark.tensorflow
def test_a_job_goes_on_where_nothing_can_be_written(facts: dict[str, Any]) -> None:
    assert facts["went on"] == [True, True]
    (message,) = facts["gone"]
    assert message.startswith("wrote tfprof data of 0 steps to gone; tracing stopped: cannot write")
    assert facts["second"].startswith("OutputError: function already has a graph")


@pytest.mark.tensorflow
def test_a_function_has_parameters_and_float_operations_and_no_times(folder: Path) -> None:
    model = read_folder(folder / "function")
    params, float_ops = values_of(model, "params"), values_of(model, "float_ops")
    assert [params[name] for name in ("hidden/kernel", "hidden/kernel_1", "mean")] == [32, 4, 4]
    assert float_ops["MatMul"] == 2 * 3 * 8 * 4
    assert not model.steps
    assert "job.py" in {Path(file).name for file in model.stacks.files}
    shown = show_tree(model, "scope", options_from(PRESETS["parameters"]))
    assert shown.tree.names == ["_TFProfRoot", "hidden", "hidden/kernel", "hidden/kernel_1"], "what is trained"


@pytest.mark.tensorflow
def test_what_a_function_lacks_is_said(facts: dict[str, Any]) -> None:
    assert facts["note"].startswith("times and memory are missing")
    ((message, place),) = facts["open"]
    assert message.startswith("float operations of 3 ops are unknown, because shapes")
    assert place == "job.py"


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "graph.pb").write_bytes(b"mine")
    with pytest.raises(OutputError, match="is not empty, and its files are not overwritten"):
        Collector(tmp_path)
    with pytest.raises(OutputError, match="cannot write"):
        Collector(tmp_path / "graph.pb")


@pytest.mark.parametrize("limit", ["every", "max_steps", "max_bytes"])
def test_limits_below_one_are_refused(tmp_path: Path, limit: str) -> None:
    with pytest.raises(ValueError, match=f"{limit} must be at least 1, not 0"):
        Collector(tmp_path / "new", **{limit: 0})


def test_only_concrete_functions_are_taken(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a concrete function"):
        Collector(tmp_path / "new").add_function(len)


def test_a_folder_that_is_no_collection_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TfprofInputError, match=r"has no graph.pb: pass a folder that tfperf.tfprof.Collector wrote"):
        read_folder(tmp_path)
    with pytest.raises(TfprofInputError, match="is not a folder"):
        read_folder(tmp_path / "missing")
