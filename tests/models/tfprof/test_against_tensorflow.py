"""A fresh graph, run here, in the reference and in ours: TensorFlow's own tfprof must write the same lines.

The reference runs in a process of its own, since its engine is one for the whole process and may end it.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from job_environment import run_tensorflow_script, without_tensorflow
from tfprof_builders import text_rows

from tfperf.models.tfprof.options import options_from
from tfperf.models.tfprof.profiler import profile_model
from tfperf.models.tfprof.sources import Sources, read_folder, read_model
from tfperf.models.tfprof.views import View

pytestmark = [pytest.mark.tensorflow, without_tensorflow]
VIEWS: tuple[View, ...] = ("scope", "graph", "op", "code")
STEPS = (0, 2, 5)
SETS = 30
"""Option sets of each graph."""
DEEPEST = 90
"""Longer lists of ops may come back in parts: protobuf reads some 100 levels, and each op is inside of another."""

_JOB = '''
import json, os, sys
import numpy as np
import tensorflow as tf
from tfperf.tfprof import Collector

v1 = tf.compat.v1
# The engine is one for the whole process, so each graph has a process.
control_flow = 2 if (child := os.fork()) else 1
os.makedirs(str(control_flow))
os.chdir(str(control_flow))
(v1.enable_control_flow_v2 if control_flow == 2 else v1.disable_control_flow_v2)()
graph = tf.Graph()


def tower(images, name):
    """A convolution with batch norm; the layers of both towers have the same names."""
    with v1.variable_scope(name):
        kernel = v1.get_variable("conv/kernel", [3, 3, 3, 4])
        scale = v1.get_variable("norm/scale", [4], initializer=v1.ones_initializer())
        offset = v1.get_variable("norm/offset", [4], initializer=v1.zeros_initializer(), use_resource=False)
        features = tf.nn.conv2d(images, kernel, 1, "SAME", name="conv/Conv2D")
        features, _, _ = v1.nn.fused_batch_norm(features, scale, offset, name="norm/FusedBatchNorm")
        return tf.nn.max_pool2d(tf.nn.relu(features, name="relu"), 4, 4, "SAME", name="pool")


with graph.as_default():
    images = v1.placeholder(tf.float32, [4, 16, 16, 3], name="images")
    both = tf.reshape(tf.concat([tower(images, "left"), tower(images, "right")], -1), [4, 128])
    weights = v1.get_variable("mixed/kernel", [128, 128])
    _, mixed = tf.while_loop(
        lambda index, value: index < 3,
        lambda index, value: (index + 1, tf.nn.tanh(tf.matmul(value, weights, name="mix"))),
        [0, both], name="mixing",
    )
    values, places = tf.nn.top_k(mixed, 3, name="top")
    loss = tf.reduce_sum(values * tf.cast(places, tf.float32), name="loss")
    train = v1.train.GradientDescentOptimizer(0.01).minimize(loss)
    session = v1.Session()
    session.run(v1.global_variables_initializer())

records = {}
with Collector("collected", every=1) as collector:
    for step in STEPS:
        records[step] = v1.RunMetadata()
        feed = {images: np.random.default_rng(step).random((4, 16, 16, 3), np.float32)}
        collector.run(session, [train, loss], feed, run_metadata=records[step], step=step)

profiler = v1.profiler.Profiler(graph)
for step, record in records.items():
    profiler.add_step(step, record)
with open("profile.pb", "wb") as file:
    file.write(profiler.serialize_to_string())
views = {
    "scope": profiler.profile_name_scope, "graph": profiler.profile_graph,
    "op": profiler.profile_operations, "code": profiler.profile_python,
}

def row_of(node):
    """What a message says of a row, without those below it."""
    numbers = {field.name: getattr(node, field.name) for field in node.DESCRIPTOR.fields if field.cpp_type in (1, 2, 3)}
    return [node.name, numbers]


def rows_of(node):
    rows, waiting = [], [node]
    while waiting:
        rows.append(row_of(waiting[-1]))
        waiting += reversed(waiting.pop().children)
    return rows


reports, results = [], []
for number, (view, options) in enumerate(json.load(open(f"../options{control_flow}.json"))):
    result = views[view]({**options, "output": f"file:outfile=report{number}.txt"})
    reports.append(open(f"report{number}.txt").read())
    results.append(rows_of(result))
json.dump(reports, open("reports.json", "w"))
json.dump(results, open("results.json", "w"))
del profiler, views

# Ours, of the live graph, stored as a profile, which the reference reads.
from tensorflow.core.profiler import tfprof_options_pb2
from tensorflow.python.util import _pywrap_tfprof
from tfperf import tfprof

ours = tfprof.Profiler(graph)
for step, record in records.items():
    ours.add_step(step, record)
with open("ours.pb", "wb") as file:
    file.write(ours.serialize_to_string())
_pywrap_tfprof.ProfilerFromFile("ours.pb")
again = []
for number, (view, options) in enumerate(json.load(open(f"../options{control_flow}.json"))):
    options = tfprof_options_pb2.OptionsProto(**options, output=f"file:outfile=again{number}.txt")
    _pywrap_tfprof.Profile(view.encode(), options.SerializeToString())
    again.append(open(f"again{number}.txt").read())
json.dump(again, open("again.json", "w"))
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
'''


def option_sets(graph: str) -> list[tuple[View, dict[str, Any]]]:
    """Return option sets, the same in every run, each for all views; each graph has others.

    None cuts off the root of the code view (`max_depth` 0, or a trim that matches its name): that ends the reference.
    """
    chance = random.Random(16)
    names = ("left/.*", ".*conv.*", ".*MatMul.*", "gradients.*", ".*kernel", "[A-M].*", ".*job.py.*", "loss", "while.*")
    types = ((".*",), ("_trainable_variables",), (".*cpu:0",), ("Conv2D", "MatMul"), (".*Grad.*",), ("VarHandleOp",))
    columns = (
        "bytes", "peak_bytes", "residual_bytes", "output_bytes", "micros", "accelerator_micros", "cpu_micros", "params",
        "float_ops", "occurrence", "device", "op_types", "input_shapes",
    )  # fmt: skip
    minima = ("bytes", "peak_bytes", "output_bytes", "micros", "cpu_micros", "params", "float_ops", "occurrence")

    def regexes(share: float, otherwise: list[str]) -> list[str]:
        return [chance.choice(names)] if chance.random() < share else otherwise

    sets: list[dict[str, Any]] = []
    while len(sets) < 2 * SETS:
        options = {
            "max_depth": chance.choice((1, 2, 3, 5, 100)),
            "order_by": chance.choice(("name", *columns[:10])),
            "account_type_regexes": [*chance.choice((types[0], *types))],
            "start_name_regexes": regexes(0.3, [".*"]),
            "trim_name_regexes": regexes(0.25, []),
            "show_name_regexes": regexes(0.3, [".*"]),
            "hide_name_regexes": regexes(0.3, []),
            "account_displayed_op_only": chance.random() < 0.5,
            "select": chance.sample(columns, chance.randint(1, 5)),
            "step": chance.choice((-1, *STEPS)),
        }
        if chance.random() < 0.5:
            options[f"min_{chance.choice(minima)}"] = chance.choice((1, 2, 10, 100, 1000))
        sets.append(options)
    return [*itertools.product(VIEWS, sets[::2] if graph == "1" else sets[1::2])]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a job that ran two graphs, `1` and `2`, and reported them with TensorFlow's own engine."""
    folder = tmp_path_factory.mktemp("reference")
    for graph in ("1", "2"):
        (folder / f"options{graph}.json").write_text(json.dumps(option_sets(graph)))
    run_tensorflow_script(folder, f"STEPS = {STEPS}\n{_JOB}")
    return folder


@pytest.fixture(scope="module", params=["1", "2"])
def job(request: pytest.FixtureRequest, jobs: Path) -> Path:
    """Return the folder of a graph and its reports.

    Loops are of the first version, whose nodes run under their names, or of the second, whose nodes get others.
    """
    return jobs / str(request.param)


def compared_lines(view: View, rows: list[str]) -> list[str]:
    """Return lines in an order that is the same for both: the reference sorts some so that equal ones come in any."""
    return sorted(rows) if view in ("code", "op") else rows


def reference_lines(report: str) -> list[str]:
    """Return the rows of a report of the reference: what follows the head of the table."""
    _, _, rows = report.partition("\nnode name | ")
    return rows.splitlines()[1:]


@pytest.mark.parametrize("way", ["collected", "profile"])
@pytest.mark.parametrize("view", VIEWS)
def test_both_engines_write_the_same_lines(job: Path, view: View, way: str) -> None:
    of = read_folder(job / way) if way == "collected" else read_model(Sources(profile=job / "profile.pb"))
    reports = json.loads((job / "reports.json").read_text())
    compared, different = 0, {}
    for (each, given), report in zip(option_sets(job.name), reports, strict=True):
        if each == view:
            ours = compared_lines(view, text_rows(of, view, options_from(given)))
            theirs = compared_lines(view, reference_lines(report))
            compared += len(theirs)
            if ours != theirs:
                different[json.dumps(given)] = [ours, theirs]
    assert not different
    assert compared > SETS


@pytest.mark.parametrize("view", VIEWS)
def test_the_reference_reads_the_profile_that_we_write(job: Path, view: View) -> None:
    reports, again = (json.loads((job / f"{name}.json").read_text()) for name in ("reports", "again"))
    for (each, given), report, read in zip(option_sets(job.name), reports, again, strict=True):
        # Its own profiles say of every input that it comes from the first output (D1); ours say from which.
        if each == view and "input_shapes" not in given["select"]:
            ours, theirs = (compared_lines(view, reference_lines(text)) for text in (read, report))
            assert ours == theirs, given


@pytest.mark.parametrize("view", VIEWS)
def test_the_profile_that_we_write_says_all_that_is_known(job: Path, view: View) -> None:
    written, collected = read_model(Sources(profile=job / "ours.pb")), read_folder(job / "collected")
    for each, given in option_sets(job.name):
        if each == view:
            options = options_from(given)
            ours, theirs = (text_rows(of, view, options, quirks=False) for of in (written, collected))
            assert ours == theirs, given


@pytest.mark.parametrize("view", VIEWS)
def test_results_have_the_numbers_of_the_references(job: Path, view: View) -> None:
    of = read_folder(job / "collected")
    for (each, given), theirs in zip(
        option_sets(job.name), json.loads((job / "results.json").read_text()), strict=True
    ):
        if each != view:
            continue
        rows = [*profile_model(of, view, options_from(given)).rows()]
        if view != "op" or len(rows) <= DEEPEST:
            ours = [[row.name, {name: getattr(row, name) for name in theirs[0][1]}] for row in rows]
            assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), given
