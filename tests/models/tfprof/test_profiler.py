"""The Python API: what code for tf.compat.v1.profiler does, without TensorFlow and of as many graphs as one likes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from job_environment import needs_tensorflow, run_tensorflow_script
from places import SAMPLES
from tfprof_builders import CPU, graph, node, op_log, ran, run_metadata

import tfperf
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.models.tfprof.op_log import read_op_log
from tfperf.models.tfprof.profile_proto import read_profile
from tfperf.tfprof import ProfileOptionBuilder, Profiler, profile

SAMPLE = SAMPLES / "tfprof_mlp"

GRAPH = graph(
    node("x", "Placeholder", outputs=[[4, 8]], variable=[4, 8]),
    node("layer/kernel", "VariableV2", outputs=[[8, 2]], variable=[8, 2]),
    node("layer/MatMul", "MatMul", "x", "layer/kernel", outputs=[[4, 2]]),
)
LOG = op_log(
    {
        "layer/kernel": {"types": ["_trainable_variables"], "stack": [("main.py", 3, "<module>")]},
        "layer/MatMul": {"float_ops": 128, "stack": [("main.py", 3, "<module>"), ("nn.py", 7, "dense")]},
    }
)
QUIET = ProfileOptionBuilder().select(["micros", "bytes", "params", "float_ops"]).with_empty_output().build()


def step(duration: int) -> bytes:
    return run_metadata({CPU: [ran("layer/MatMul", 10, duration, memory=1000)]})


class Message:
    """What has its bytes to give, as all messages of TensorFlow."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def SerializeToString(self) -> bytes:  # noqa: N802
        return self.data


@pytest.fixture
def profiler() -> Profiler:
    made = Profiler(GRAPH, LOG)
    made.add_step(1, step(30))
    made.add_step(7, Message(step(50)))
    return made


def test_each_view_has_its_totals(profiler: Profiler) -> None:
    views = ("name_scope", "graph", "operations", "python")
    roots = [getattr(profiler, f"profile_{view}")(QUIET) for view in views]
    assert [root.total_exec_micros for root in roots] == [40] * 4
    assert [root.total_float_ops for root in roots] == [128] * 4
    assert [root.total_requested_bytes for root in roots] == [1000] * 4
    assert [root.children[0].name for root in roots] == ["layer", "layer/MatMul", "MatMul", "main.py:3:<module>"]


def test_steps_of_a_number_are_one_step(profiler: Profiler) -> None:
    profiler.add_step(7, step(5))
    of_step = ProfileOptionBuilder(QUIET).with_step(7).build()
    assert profiler.profile_name_scope(of_step).total_exec_micros == 55


def test_messages_are_taken_as_objects_too() -> None:
    root = profile(Message(GRAPH), Message(step(9)), Message(LOG), "op", QUIET)
    assert (root.total_exec_micros, root.total_parameters) == (9, 48)


def test_two_profilers_know_nothing_of_each_other(profiler: Profiler) -> None:
    other = Profiler(GRAPH)
    other.add_step(1, step(999))
    assert profiler.profile_name_scope(QUIET).total_exec_micros == 40
    del profiler
    assert other.profile_name_scope(QUIET).total_exec_micros == 999


def test_a_view_is_printed_as_tfprof_prints_it(profiler: Profiler, capsys: pytest.CaptureFixture[str]) -> None:
    profiler.profile_name_scope(ProfileOptionBuilder.trainable_variables_parameter())
    printed = capsys.readouterr().out.splitlines()
    assert "==================Model Analysis Report======================" in printed
    start = printed.index("node name | # parameters")
    assert printed[start : start + 4] == [
        "node name | # parameters",
        "_TFProfRoot (--/16 params)",
        "  layer (--/16 params)",
        "    layer/kernel (8x2, 16/16 params)",
    ]


def test_a_view_goes_to_a_file_or_nowhere(
    profiler: Profiler, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiler.profile_operations(ProfileOptionBuilder(QUIET).with_file_output(str(tmp_path / "ops.txt")).build())
    assert "MatMul  " in (tmp_path / "ops.txt").read_text()
    profiler.profile_operations(QUIET)
    assert capsys.readouterr().out == ""


def test_the_code_view_goes_to_pprof(profiler: Profiler, tmp_path: Path) -> None:
    target = tmp_path / "code.pb.gz"
    profiler.profile_python(ProfileOptionBuilder().with_pprof_output(str(target)).build())
    assert b"dense" in gzip.decompress(target.read_bytes())


def test_a_profile_is_stored_and_read(profiler: Profiler, tmp_path: Path) -> None:
    model = read_profile(InputFile(tmp_path, "ProfileProto", profiler.serialize_to_string()))
    assert [*model.steps] == [1, 7]
    assert model.values(-1).tolist() == profiler.model.values(-1).tolist()


def test_checkers_say_what_they_find(profiler: Profiler, capsys: pytest.CaptureFixture[str]) -> None:
    names = [section.name for section in profiler.advise().sections]
    assert names == ["accelerator_utilization", "operation", "expensive_operation", "job"]
    assert "MatMul" in capsys.readouterr().out
    assert len(profiler.advise({"OperationChecker": {}}).sections) == 1
    with pytest.raises(ValueError, match="'Speed' is not a checker"):
        profiler.advise({"Speed": {}})


def test_without_options_one_call_shows_the_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert profile(GRAPH, op_log=LOG).total_parameters == 16
    assert "layer/kernel (8x2, 16/16 params)" in capsys.readouterr().out


def test_options_that_mean_nothing_are_errors(profiler: Profiler) -> None:
    with pytest.raises(ValueError, match="step 3 was not recorded: use one of 1, 7, or -1 for their mean"):
        profiler.profile_name_scope({"step": 3})
    with pytest.raises(ValueError, match="'depth' is not a tfprof option"):
        profiler.profile_name_scope({"depth": 3})


@pytest.mark.parametrize("record", [b"", run_metadata({}), b"\x0a\xff"])
def test_a_record_of_nothing_is_an_ordinary_error(profiler: Profiler, record: bytes) -> None:
    with pytest.raises(TfprofInputError, match="RunMetadata of step 9"):
        profiler.add_step(9, record)
    assert profiler.profile_name_scope(QUIET).total_exec_micros == 40


def test_arguments_of_the_wrong_kind_are_errors(profiler: Profiler) -> None:
    with pytest.raises(ValueError, match="a TensorFlow message or its bytes, not int"):
        profiler.add_step(1, 5)
    with pytest.raises(ValueError, match="step must be 0 or more, not -1"):
        profiler.add_step(-1, step(1))
    with pytest.raises(ValueError, match="cmd 'tree' is unknown: use one of scope, graph, op, code"):
        profile(GRAPH, cmd="tree")
    with pytest.raises(TfprofInputError, match="graph is empty"):
        profile(b"", options=QUIET)


_ARTICLE = """
import contextlib, ctypes, json, os, sys
import numpy as np
import tensorflow as tf
from tensorflow.python.profiler import model_analyzer, option_builder
from tfperf import tfprof

sys.path.insert(0, SAMPLE)
from collect import BATCH, dense

v1 = tf.compat.v1
v1.disable_eager_execution()
inputs = v1.placeholder(tf.float32, [None, 784])
targets = v1.placeholder(tf.int32, [None])
hidden1 = dense(inputs, 128, "hidden1", tf.nn.relu)
hidden2 = dense(hidden1, 32, "hidden2", tf.nn.relu)
logits = dense(hidden2, 10, "softmax_linear")
loss = v1.losses.sparse_softmax_cross_entropy(labels=targets, logits=logits)
train_op = v1.train.GradientDescentOptimizer(0.01).minimize(loss)
sess = v1.Session()
sess.run(v1.global_variables_initializer())
feed = {inputs: np.ones((BATCH, 784), np.float32), targets: np.zeros(BATCH, np.int32)}


@contextlib.contextmanager
def stdout_to(name):
    sys.stdout.flush()
    before = os.dup(1)
    file = os.open(name, os.O_CREAT | os.O_WRONLY)
    os.dup2(file, 1)
    yield
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
    os.dup2(before, 1)


def article(model_analyzer, option_builder, name):
    profiler = model_analyzer.Profiler(graph=sess.graph)
    for step, run_metadata in recorded.items():
        profiler.add_step(step=step, run_meta=run_metadata)

    profile_graph_opts_builder = option_builder.ProfileOptionBuilder(
        option_builder.ProfileOptionBuilder.time_and_memory())
    profile_graph_opts_builder.with_timeline_output(timeline_file=name + ".json")
    profile_graph_opts_builder.with_step(10)
    profiler.profile_graph(profile_graph_opts_builder.build())

    profile_scope_opt_builder = option_builder.ProfileOptionBuilder(
        option_builder.ProfileOptionBuilder.trainable_variables_parameter())
    profile_scope_opt_builder.with_max_depth(4)
    profile_scope_opt_builder.select(["params"])
    profile_scope_opt_builder.order_by("params")
    with stdout_to(name + ".txt"):
        root = profiler.profile_name_scope(profile_scope_opt_builder.build())
    return [root.total_parameters, [[child.name, child.total_parameters] for child in root.children]]


recorded = {}
for step in (0, 10):
    recorded[step] = v1.RunMetadata()
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    sess.run([train_op, loss], feed, options=options, run_metadata=recorded[step])
# Ours first: the reference writes the shapes of its run into the graph, for good.
facts = []
for name, modules in {"ours": (tfprof, tfprof), "theirs": (model_analyzer, option_builder)}.items():
    facts += [article(*modules, name), str(hidden1.shape)]
json.dump(facts, open("facts.json", "w"))
B = option_builder.ProfileOptionBuilder
json.dump([eval(chain) for chain in CHAINS], open("chains.json", "w"))
tfprof.write_op_log(sess.graph, ".", run_meta=recorded[10])
tfprof.profile(sess.graph, recorded[10], cmd="code", options={"output": "none"})
tfprof.profile(run_meta=recorded[10], cmd="op", options={"output": "file:outfile=ops.txt", "select": ["float_ops"]})
"""


CHAINS = {
    "new": "B().build()",
    "parameters": "B.trainable_variables_parameter()",
    "float operations": "B.float_operation()",
    "time and memory": "B.time_and_memory(min_micros=3, min_cpu_micros=2)",
    "by position": "B.time_and_memory(1, 2, 3, 4, 5, 6, 7)",
    "minima": "B().with_max_depth(4).with_min_execution_time(1, 2, 3).with_min_memory(4, 5, 6, 7)"
    ".with_min_parameters(8).with_min_float_operations(9).with_min_occurrence(10).build()",
    "names": "B().with_accounted_types(['MatMul']).with_node_names(['a'], ['b'], ['c'], ['d'])"
    ".account_displayed_op_only(True).build()",
    "some names": "B(B.float_operation()).with_node_names(show_name_regexes=['.*x']).build()",
    "outputs": "[B().with_empty_output().build(), B().with_stdout_output().build(), B().with_file_output('f').build(),"
    " B().with_timeline_output('t.json').build(), B().with_pprof_output('p.pb.gz').build()]",
    "order": "B().with_step(70).order_by('params').select(['params', 'bytes']).build()",
}


@pytest.fixture(scope="module")
def article(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the article's code ran with tfperf, and with TensorFlow."""
    folder = tmp_path_factory.mktemp("article")
    run_tensorflow_script(folder, f"SAMPLE, CHAINS = {str(SAMPLE)!r}, {[*CHAINS.values()]!r}\n{_ARTICLE}")
    return folder


@needs_tensorflow
def test_the_builder_makes_what_tensorflows_makes(article: Path) -> None:
    ours = [eval(chain, {"B": ProfileOptionBuilder}) for chain in CHAINS.values()]
    assert ours == json.loads((article / "chains.json").read_text())


@needs_tensorflow
def test_code_of_the_article_needs_other_imports_only(article: Path) -> None:
    ours, shape, theirs, their_shape = json.loads((article / "facts.json").read_text())
    assert (shape, their_shape) == ("(None, 128)", "(100, 128)")
    assert ours == theirs == [104_938, [["hidden1", 100_480], ["hidden2", 4_128], ["softmax_linear", 330]]]
    assert (article / "ours.txt").read_text() == (article / "theirs.txt").read_text()
    ours, theirs = (
        [each for each in json.loads(path.read_text())["traceEvents"] if each["ph"] == "X"]
        for path in (article / "ours.json", article / "theirs.json_10")
    )
    # Of ops that start in the same microsecond, the reference keeps one.
    assert {(each["name"], each["dur"]) for each in theirs} <= {(each["name"], each["dur"]) for each in ours}
    assert len(theirs) == len({each["ts"] for each in ours})
    # The batch has no size in the graph: the run says it.
    float_ops = read_op_log(InputFile(article / "tfprof_log", "OpLogProto")).float_ops
    assert int(float_ops.max()) == 2 * 100 * 784 * 128
    assert "MatMul " in (article / "ops.txt").read_text()


def test_public_names_are_there_and_documented() -> None:
    assert tfperf.tfprof.__all__ == sorted(tfperf.tfprof.__all__)
    assert all(getattr(tfperf.tfprof, name).__doc__ for name in tfperf.tfprof.__all__)
    assert {*tfperf.tfprof.__all__} <= {*dir(tfperf.tfprof)}
    with pytest.raises(AttributeError, match="no attribute 'anything'"):
        getattr(tfperf.tfprof, "anything")  # noqa: B009


def test_rows_of_a_result_say_what_numbers_do_not(profiler: Profiler) -> None:
    root = profiler.profile_name_scope(QUIET)
    assert [(row.depth, row.name) for row in root.rows()] == [
        (0, "_TFProfRoot"), (1, "layer"), (2, "layer/MatMul"), (2, "layer/kernel"), (1, "x")
    ]  # fmt: skip
    product, kernel = root.children[0].children
    assert (product.devices, kernel.devices, kernel.shape) == ((CPU.lower(),), (), (8, 2))
    (line,) = profiler.profile_python(QUIET).children
    assert [each.name for each in line.graph_nodes] == ["layer/kernel"]
    (op,) = [row for row in profiler.profile_operations(QUIET).rows() if row.name == "MatMul"]
    assert [each.name for each in op.graph_nodes] == ["layer/MatMul"]


def test_a_result_is_a_table_and_has_one_line(profiler: Profiler) -> None:
    root = profiler.profile_name_scope(QUIET)
    assert root.table["name"].tolist()[:2] == ["_TFProfRoot", "layer"]
    assert root.table["total_parameters"].tolist() == [48, 16, 0, 16, 32]
    assert repr(root) == "ProfileNode('_TFProfRoot', 4 rows below)"
