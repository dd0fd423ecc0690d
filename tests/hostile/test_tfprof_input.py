"""Files that are damaged or made to harm: each ends in one line, or in a model whose four views can be shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import get_args

import pytest
import tfprof_builders as make
from hypothesis import given
from hypothesis import strategies as st
from mutants import ON_BYTES
from protobytes import field, varint
from tfprof_builders import CPU, GPU, STREAMS, message, node, ran, run_metadata

from tfperf.formats.models.input_file import TfprofInputError
from tfperf.models.tfprof.advise import advise_report
from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.options import options_from
from tfperf.models.tfprof.reference import ModelText, op_rows, tree_rows
from tfperf.models.tfprof.sources import Sources, read_model
from tfperf.models.tfprof.views import View, show_ops, show_tree

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
TIMES = {"key": CPU.lower().encode(), "value": {"times": [{"int64_values": [10, 30]}]}}
MEMORY = {"requested_bytes": 1000, "peak_bytes": 1000, "residual_bytes": 1000, "output_bytes": 1500}
EXEC = {
    "key": 7,
    "value": {
        "run_count": 1,
        "all_start_micros": 10,
        "latest_end_micros": 40,
        "cpu_execs": [TIMES],
        "memory_execs": [MEMORY],
    },
}
MATMUL = {
    "name": b"layer/MatMul",
    "op": b"MatMul",
    "op_types": [b"MatMul"],
    "inputs": [{"key": 0, "value": 1}],
    "src_output_index": [{"key": 1, "value": 0}],
    "output_shapes": [{"key": 0, "value": {"int64_values": [4, 2]}}],
    "execs": [EXEC],
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
GOOD = {"graph": make.graph(*NODES), "run": RUN, "log": LOG, "profile": PROFILE}
META = message("MetaGraphDef", graph_def=[GOOD["graph"]])
SAMPLES = {
    "graph": [GOOD["graph"], TEXT, META, field(1, 1) + message("SavedModel", meta_graphs=[META])],
    "run": [RUN],
    "log": [LOG],
    "profile": [PROFILE],
}
NAMES = {"graph": "GraphDef", "run": "RunMetadata", "log": "OpLogProto", "profile": "ProfileProto"}


def read(folder: Path, kind: str, data: bytes) -> Model:
    """Return the model of this file and of good ones beside it."""
    files = {name: folder / name for name in GOOD}
    for name, good in GOOD.items():
        files[name].write_bytes(data if name == kind else good)
    if kind == "profile":
        return read_model(Sources(profile=files["profile"]))
    return read_model(Sources(graph=files["graph"], run_metadata={7: [files["run"]]}, op_log=files["log"]))


def lines(model: Model, view: View) -> int:
    """Return how many lines a view has."""
    text = ModelText(model)
    if view == "op":
        return len([*op_rows(show_ops(model, EVERYTHING), EVERYTHING, text, model.values(EVERYTHING.step))])
    return len([*tree_rows(show_tree(model, view, EVERYTHING), view, EVERYTHING, text)])


def ends_well(folder: Path, kind: str, data: bytes) -> str:
    """Read a file and show all views; return the error, empty if there is none."""
    text = ""
    try:
        model = read(folder, kind, data)
        assert [lines(model, view) > 0 or view == "op" for view in get_args(View)] == [True] * 4
        assert len(advise_report(model).sections) == 4
    except TfprofInputError as error:
        text = str(error)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("kind", "number"), [(kind, number) for kind, all_ in SAMPLES.items() for number in range(len(all_))]
)
def test_the_samples_are_good(tmp_path: Path, kind: str, number: int) -> None:
    model = read(tmp_path, kind, SAMPLES[kind][number])
    assert "x" in model.names
    assert [lines(model, view) > 1 for view in ("scope", "graph", "op")] == [True] * 3


@pytest.mark.parametrize("decoder", ["ptars", "protobuf"])
@pytest.mark.parametrize("kind", SAMPLES)
@given(
    random=st.randoms(use_true_random=False), operators=st.lists(st.sampled_from([*ON_BYTES]), min_size=1, max_size=3)
)
def test_damaged_files(
    tmp_path_factory: pytest.TempPathFactory, kind: str, decoder: str, random: Random, operators: list[str]
) -> None:
    everything = [sample for samples in SAMPLES.values() for sample in samples]
    data = random.choice(SAMPLES[kind])
    for name in operators:
        data = ON_BYTES[name](random, data, everything)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFPERF_DECODER", decoder)
        ends_well(tmp_path_factory.mktemp("damaged"), kind, data)


def chain(count: int) -> bytes:
    """Nodes that each feed the next, in one long call stack of scopes, feeders last."""
    names = [f"n{number}" for number in range(count)]
    return make.graph(*(node(name, "Identity", *names[number + 1 : number + 2]) for number, name in enumerate(names)))


def stacks(frames: int) -> bytes:
    """An op log with one deep call stack."""
    return make.op_log({"x": {"stack": [("main.py", line, "f") for line in range(frames)]}})


def steps(count: int) -> bytes:
    """A profile of one node that ran in very many steps."""
    execs = [{"key": step, "value": {"run_count": 1}} for step in range(count)]
    return make.profile([{"name": b"x", "op": b"A", "execs": execs}])


def devices(count: int) -> bytes:
    return run_metadata({f"/device:CPU:{number}/part": [ran("x", 1, 1)] for number in range(count)})


def placeholder(dims: int) -> bytes:
    """Many nodes, one of which has a shape of very many dimensions."""
    return make.graph(*(node(f"x{n}", "A", variable=[2] * (1 if n else dims)) for n in range(20_000)))


def groups(depth: int) -> bytes:
    return b"\x0b" * depth + b"\x0c" * depth


SMALL = {"select": ["micros"], "max_depth": 5}
HARMFUL: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "no bytes": ("graph", bytes, "is empty"),
    "no run": ("run", bytes, "is empty"),
    "no log": ("log", bytes, "is empty"),
    "no profile": ("profile", bytes, "is empty"),
    "another message": ("run", lambda: GOOD["graph"], "is a graph of TensorFlow (GraphDef), not a RunMetadata"),
    "a graph as a log": ("log", lambda: GOOD["graph"], "not an OpLogProto"),
    "text": ("graph", lambda: b"hello, world; this is no graph", "is text, but not a graph"),
    "text as a run": ("run", lambda: b"hello, world; this is no run", "is a text file"),
    "nested text": ("graph", lambda: b"a {" * 100_000, "is text, but not a graph"),
    "huge number": ("graph", lambda: b"node { name: 'x' op: 'A' attr { value { i: " + b"9" * 10_000 + b"}}}", ""),
    "huge length": ("graph", lambda: b"\x0a" + varint((1 << 31) - 1) + b"\x0a", "damaged"),
    "length beyond 64 bits": ("run", lambda: b"\x0a" + b"\xff" * 11, "damaged"),
    "nested groups": ("profile", lambda: groups(100_000), "damaged"),
    "nested groups in a node": ("graph", lambda: GOOD["graph"] + field(1, groups(100_000)), "damaged"),
    "nested groups in a record": ("run", lambda: RUN + field(1, field(1, field(2, groups(100_000)))), "damaged"),
    "the same name twice": ("graph", lambda: make.graph(node("x", "A"), node("x", "B")), "two nodes of the name 'x'"),
    "the same name twice in a profile": ("profile", lambda: make.profile([MATMUL] * 2), "two nodes of the name"),
    "a cycle": ("graph", lambda: make.graph(node("x", "A", "y"), node("y", "A", "x"), node("z", "A", "z", "x")), ""),
    "a long chain": ("graph", lambda: chain(100_000), ""),
    "a name of a million slashes": ("graph", lambda: make.graph(node("/" * 1_000_000, "A")), "nested too deep"),
    "a name of 100 KB": ("graph", lambda: make.graph(node("n" * 100_000, "A"), node("x", "B")), ""),
    "names of 2,000 scopes": ("graph", lambda: make.graph(*(node(f"s{n}/" * 2000, "A") for n in range(9))), ""),
    "control characters": ("graph", lambda: make.graph(node("\x1b[31m\n\0/\u202e", "\x07")), ""),
    "bytes that are no text": ("graph", lambda: GOOD["graph"] + field(1, field(1, b"\xff\xfe") + field(2, b"A")), ""),
    "a deep stack": ("log", lambda: stacks(9_000), ""),
    "a bottomless stack": ("log", lambda: stacks(200_000), "a call stack of 200,000 frames"),
    "many steps": ("profile", lambda: steps(5_000), ""),
    "too many steps": ("profile", lambda: steps(100_000), "100,000 steps"),
    "many devices": ("run", lambda: devices(30_000), ""),
    "many dimensions": ("graph", lambda: placeholder(300_000), ""),
}


@pytest.mark.stress
@pytest.mark.parametrize("what", HARMFUL)
def test_files_that_are_made_to_harm(tmp_path: Path, what: str) -> None:
    """Going through pairs of nodes, steps or letters would take hours here, or all memory; no clock is needed."""
    kind, harmful, expected = HARMFUL[what]
    error = ends_well(tmp_path, kind, harmful())
    assert (expected in error) if expected else not error


def test_an_expression_that_backtracks_ends(tmp_path: Path) -> None:
    """Under `re` it would take longer than anybody waits: 2 to the power of 40 ways to match the letters."""
    model = read(tmp_path, "graph", make.graph(node("a" * 40 + "!", "A")))
    shown = show_tree(model, "scope", options_from({"show_name_regexes": ["(a+)+b", "(a|a)*b"]}))
    assert len(shown.tree) == 1
