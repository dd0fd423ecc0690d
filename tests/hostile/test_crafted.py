"""Small files that are made to harm, or once took minutes or gigabytes: what they stand for is counted first.

Going through all that they stand for would take hours here, or all memory; no clock is needed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import checkpoint_builders as checkpoints
import h5py
import hlo_builders as hlo
import lint_builders as lint
import pytest
import tfprof_builders as make
from hostile.readers import ARRAY, GRAPH, MATMUL, RUN, VARIABLE, ends_well, model_of, weights
from protobytes import field, varint
from tfprof_builders import node, ran, run_metadata

from tfperf.base.errors import TfperfError
from tfperf.formats.models import op_graph
from tfperf.formats.models.checkpoint import Checkpoint, crc32c, masked
from tfperf.models.linter import program
from tfperf.models.linter.rule import Ledger
from tfperf.models.linter.rules.convolutions import MAX_GRADIENT
from tfperf.models.tfprof.options import options_from
from tfperf.models.tfprof.report import values_of
from tfperf.models.tfprof.sources import read_folder
from tfperf.models.tfprof.views import show_tree

Crafted = dict[str, tuple[Callable[[], bytes], str]]
"""What writes a file, and what its error says; empty: it is read."""
LARGEST = 1_000_000
"""Bytes of each of these files."""
X = lint.fed("x", 4, 4)


def chain(count: int, kind: str, first: str) -> list[dict[str, Any]]:
    """Return nodes of which each reads the one before; they are called 0, 1, ..."""
    return [lint.op(f"{n}", kind, f"{n - 1}" if n else first, out=(4, 4)) for n in range(count)]


def many(count: int, kind: str, *inputs: str, out: Sequence[int] = (4, 4)) -> list[dict[str, Any]]:
    return [lint.op(f"{kind}{n}", kind, *inputs, out=out) for n in range(count)]


def joined(kind: str, nodes: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return a node that reads all of these."""
    return lint.op("all", kind, *(node["name"].decode() for node in nodes), out=(4, 4))


def functions(levels: int, *leaf: dict[str, Any], name: str = "f", calls: int = 2) -> bytes:
    """Return functions each of which calls the next one several times; the last has these nodes."""
    found = [lint.function(f"{name}{levels}", {"x": (4, 4)}, leaf, f"{leaf[0]['name'].decode()}:y:0" if leaf else "x")]
    for level in range(levels):
        nodes = [lint.call(f"c{number}", f"{name}{level + 1}", "x") for number in range(calls)]
        found.append(lint.function(f"{name}{level}", {"x": (4, 4)}, nodes, "c0:output:0"))
    return lint.graph(X, lint.call("top", f"{name}0", "x"), functions=found)


def circle(count: int) -> bytes:
    """Return functions each of which calls all others."""
    found = []
    for own in range(count):
        nodes = [lint.call(f"c{other}", f"f{other}", "x") for other in range(count) if other != own]
        found.append(lint.function(f"f{own}", {"x": (4, 4)}, nodes, "x"))
    return lint.graph(X, lint.call("top", "f0", "x"), functions=found)


def wide_calls() -> bytes:
    """Return calls of a function one node of which has very many inputs."""
    wide = lint.function("g", {"x": (4, 4)}, [lint.op("y", "AddN", *["x"] * 50_000, out=(4, 4))], "y:sum:0")
    return lint.graph(X, *(lint.call(f"c{number}", "g", "x") for number in range(3000)), functions=[wide])


def concatenated() -> bytes:
    """Return a shape of 2 to the power of 40 numbers: each node puts the one before together with itself."""
    nodes = [lint.op(f"c{n + 1}", "ConcatV2", f"c{n}", f"c{n}", "axis") for n in range(40)]
    result = lint.op("y", "Reshape", "x", "c40", out=(16,))
    return lint.graph(X, lint.ints("c0", 4), lint.ints("axis", 0), *nodes, result)


def squeezed() -> bytes:
    """Return thousands of square roots that all read the end of a long chain."""
    found = [lint.op("eps", "Placeholder", out=()), *chain(2000, "Squeeze", "x")]
    for n in range(1000):
        found += [lint.op(f"a{n}", "AddV2", "1999", "eps", out=(4, 4)), lint.op(f"r{n}", "Rsqrt", f"a{n}", out=(4, 4))]
    return lint.graph(X, *found)


def crossed(count: int, kind: str, join: str, after: Sequence[dict[str, Any]], *inputs: str) -> bytes:
    """Return very many nodes that one node puts together, and others after that."""
    nodes = many(count, kind, "x", *inputs)
    return lint.graph(X, lint.ints("p", 1, 0), *nodes, joined(join, nodes), *after)


RELU = lint.op("y", "Relu", "x", out=(4, 4))
LATER = [lint.op(f"later{number}", "Sum", "all", out=(4, 4)) for number in range(4000)]
HUGE = lint.graph(lint.fed("x", *[1 << 62] * 200), lint.op("y", "MatMul", "x", "x", out=(-9, 4)))
SPLIT = lint.graph(X, lint.ints("a", 0), lint.op("y", "Split", "a", "x", out=(2, 4), num_split=10**12))
OFTEN, DENSE = "because functions call others very often", "too many edges between its ops"
GRAPHS: Crafted = {
    "functions that double": (lambda: functions(30, RELU), OFTEN),
    "functions that double, without nodes": (lambda: functions(60), OFTEN),
    "functions of long names": (lambda: functions(10, RELU, name="f" * 9000), "characters in names"),
    "functions that call all others": (lambda: circle(20), OFTEN),
    "calls of a function with many inputs": (wide_calls, OFTEN),
    "a name of underscores": (lambda: functions(1, RELU, name="_" * 90_000 + "x"), ""),
    "sums behind a long chain": (lambda: lint.graph(X, *chain(2000, "Identity", "x"), *many(2000, "Sum", "1999")), ""),
    "sums that all feed sums": (lambda: crossed(4000, "Sum", "AddN", LATER), DENSE),
    "products before a reshape": (lambda: crossed(2000, "MatMul", "Reshape", many(3000, "Relu", "all")), DENSE),
    "pools before a long chain": (lambda: crossed(2000, "MaxPool", "AddN", chain(2000, "Relu", "all")), ""),
    "transposes before a long chain": (
        lambda: crossed(2000, "Transpose", "AddN", chain(2000, "Relu", "all"), "p"),
        DENSE,
    ),
    "roots behind a long chain": (squeezed, ""),
    "numbers that double": (concatenated, ""),
    "a split into very many": (lambda: SPLIT, ""),
    "impossible dimensions": (lambda: HUGE, ""),
}


@pytest.fixture
def few_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rules follow a tenth of the links that they may, so that tests are quick."""
    for module in (op_graph, program):
        monkeypatch.setattr(module, "_MOST_STEPS", 100_000)
        monkeypatch.setattr(module, "_STEPS_OF_NODE", 5)


def test_findings_that_nobody_reads() -> None:
    ledger = Ledger(["TPU-PL-2"])
    finding = MAX_GRADIENT.found({"ops": ("y",), "op_type": "MaxPoolGrad"}, "info", "")
    for _ in range(50_000):
        ledger.add(finding)
    with pytest.raises(TfperfError, match="more than 50,000 findings"):
        ledger.add(finding)


NUMBER = 9
"""The field of an instruction that says which parameter it is."""


def parameters(count: int) -> list[bytes]:
    return [hlo.instruction(n + 1, f"p{n}", "parameter", ARRAY, extra=field(NUMBER, n)) for n in range(count)]


def calls(levels: int, opcode: str) -> bytes:
    """Return computations each of which calls the next one twice; the last has nothing but its parameter."""
    found = []
    for number in range(1, levels + 1):
        twice = [hlo.instruction(n, f"c{n}", opcode, ARRAY, [1], [number + 1]) for n in (2, 3)]
        found.append(hlo.computation(f"f{number}", *parameters(1), *twice, number=number, root=2))
    return hlo.program(*found, hlo.computation("last", *parameters(1), number=levels + 1, root=1))


def fusion_of_many() -> bytes:
    """Return a fusion of very many parameters, each of which a fusion inside of it reads."""
    count = 3000
    inner = hlo.computation("inner", *parameters(count), number=3, root=1)
    fusion = hlo.instruction(count + 1, "f", "fusion", ARRAY, range(1, count + 1), [3])
    outer = hlo.computation("outer", *parameters(count), fusion, number=2, root=count + 1)
    call = hlo.instruction(2, "f", "fusion", ARRAY, [1] * count, [2])
    return hlo.program(hlo.computation("main", *parameters(1), call, number=1, root=2), outer, inner)


def fusions_of_one() -> bytes:
    """Return very many fusions that call one computation of very many constants."""
    constants = [hlo.instruction(n, f"c{n}", "constant", ARRAY) for n in range(2, 4000)]
    fusions = [hlo.instruction(n, f"f{n}", "fusion", ARRAY, [1], [2]) for n in range(2, 4000)]
    main = hlo.computation("main", *parameters(1), *fusions, number=1, root=1)
    return hlo.program(main, hlo.computation("inner", *parameters(1), *constants, number=2, root=1))


def parts_of_parts() -> bytes:
    """Return parts of tuples that have two operands each: 2 to the power of 40 ways to the parameter."""
    nested = hlo.shape(hlo.TUPLE, parts=[hlo.shape(hlo.TUPLE, parts=[ARRAY])])
    found, last = [hlo.instruction(1, "p", "parameter", nested)], (1, 1)
    for n in range(2, 82, 2):
        found += [hlo.instruction(at, f"g{at}", "get-tuple-element", nested, last) for at in (n, n + 1)]
        last = n, n + 1
    fusion = hlo.instruction(2, "f", "fusion", nested, [1], [2])
    main = hlo.computation("main", hlo.instruction(1, "p", "parameter", nested), fusion, number=1, root=2)
    return hlo.program(main, hlo.computation("inner", *found, number=2, root=1))


def transposes_behind_bitcasts() -> bytes:
    bitcasts = [hlo.instruction(n, f"b{n}", "bitcast", ARRAY, [n - 1]) for n in range(2, 3000)]
    found = [hlo.instruction(n, f"t{n}", "transpose", ARRAY, [2999]) for n in range(3000, 6000)]
    return hlo.program(hlo.computation("main", *parameters(1), *bitcasts, *found, number=1, root=1))


def random_of_long_name() -> bytes:
    named = hlo.instruction(1, "r", "rng", ARRAY, extra=field(7, field(2, b"a" * 500_000)))
    return hlo.program(hlo.computation("main", named, number=1, root=1))


PROGRAMS: Crafted = {
    "calls that double": (lambda: calls(60, "call"), "expands to more than the maximum of"),
    "fusions that double": (lambda: calls(60, "fusion"), "expands to more than the maximum of"),
    "a fusion of many parameters": (fusion_of_many, ""),
    "many fusions of one computation": (fusions_of_one, "expands to more than the maximum of"),
    "parts of parts of tuples": (parts_of_parts, ""),
    "transposes behind bitcasts": (transposes_behind_bitcasts, "too many edges between its HLO ops"),
    "a long name": (random_of_long_name, ""),
}


def linked(group: h5py.Group) -> None:
    for number in range(2000):
        group[f"n{number}"] = group["0"]


def nested(group: h5py.Group) -> None:
    for number in range(50):
        group = group.create_group("n" * 8000 + str(number))
    for number in range(400):
        group.create_dataset(str(number), shape=(), dtype="f4")


HEADER = {b"": make.message("BundleHeader", num_shards=1)}


def index(entries: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Return the table of a checkpoint: of each key, how much it shares with the last, its rest, and its value."""
    written = checkpoints.block(HEADER)[:-8]
    for shared, rest, value in entries:
        written += varint(shared) + varint(len(rest)) + varint(len(value)) + rest + value
    return checkpoints.table(written + bytes(4) + (1).to_bytes(4, "little"))


def test_tensors_that_have_the_same_values(tmp_path: Path) -> None:
    """A thousand tensors in one place are a thousand times as many bytes to go through."""
    values = bytes(400_000)
    place = {"offset": 0, "size": len(values), "crc32c": masked(crc32c(values))}
    entry = make.message("BundleEntry", dtype=1, shape=make.shape((100_000,)), **place)
    prefix = tmp_path / "m.ckpt"
    Path(f"{prefix}.data-00000-of-00001").write_bytes(values)
    Path(f"{prefix}.index").write_bytes(index((0, b"%04d" % number, entry) for number in range(1000)))
    with pytest.raises(TfperfError, match="its tensors overlap in"):
        values_of(Checkpoint(prefix))


def links(*numbers: int, name: bytes = b"a") -> dict[str, Any]:
    return {"children": [{"node_id": number, "local_name": name} for number in numbers]}


LONG_CHAIN = [*(links(n + 1) for n in range(20_000)), links(*range(20_001, 24_001)), *[VARIABLE] * 4000]
SHARED_LISTS = [
    links(*range(2, 9002)),
    links(*range(2, 9002)),
    *(links(1, name=b"trainable_variables") for _ in range(9000)),
]


def test_gradients_that_share_a_deep_stack(tmp_path: Path) -> None:
    names = ["x", *(f"gradients/x_grad/{number}" for number in range(10_000))]
    stacks = {name: {"stack": [("a.py", 1, "f")]} for name in names}
    stacks["x"] = {"stack": [("a.py", line, "f") for line in range(9000)]}
    (tmp_path / "graph.pb").write_bytes(make.graph(*(node(name, "A") for name in names)))
    (tmp_path / "tfprof_log").write_bytes(make.op_log(stacks))
    assert (tmp_path / "tfprof_log").stat().st_size < LARGEST
    shown = show_tree(read_folder(tmp_path), "code", options_from({"select": ["params"], "max_depth": 100_000}))
    assert len(shown.tree) == 2 * 9000 + 1


def chained(count: int) -> bytes:
    """Nodes that each feed the next, in one long call stack of scopes, feeders last."""
    names = [f"n{number}" for number in range(count)]
    return make.graph(*(node(name, "Identity", *names[number + 1 : number + 2]) for number, name in enumerate(names)))


def stacks(frames: int) -> bytes:
    """An op log with one deep call stack."""
    return make.op_log({"x": {"stack": [("main.py", line, "f") for line in range(frames)]}})


def many_steps(count: int) -> bytes:
    """A profile of one node that ran in very many steps."""
    execs = [{"key": step, "value": {"run_count": 1}} for step in range(count)]
    return make.profile([{"name": b"x", "op": b"A", "execs": execs}])


def many_devices(count: int) -> bytes:
    return run_metadata({f"/device:CPU:{number}/part": [ran("x", 1, 1)] for number in range(count)})


def placeholder(dims: int) -> bytes:
    """Many nodes, one of which has a shape of very many dimensions."""
    return make.graph(*(node(f"x{n}", "A", variable=[2] * (1 if n else dims)) for n in range(10_000)))


def groups(depth: int) -> bytes:
    return b"\x0b" * depth + b"\x0c" * depth


SMALL = {"select": ["micros"], "max_depth": 5}


def gathered(reader: str, crafted: Crafted) -> dict[str, tuple[str, Callable[[], bytes], str]]:
    return {f"{reader}: {what}": (reader, write, expected) for what, (write, expected) in crafted.items()}


def many_layers() -> bytes:
    return json.dumps({"config": {"layers": [{"config": {"name": f"n{n}"}} for n in range(60_000)]}}).encode()


def shared_starts() -> bytes:
    """Return the names of tensors that share their start."""
    last = [(60_000, b"%05d" % number, make.message("BundleEntry", dtype=1)) for number in range(3000)]
    return index([(0, b"k" * 60_000, b""), *last])


def many_dimensions() -> bytes:
    return index([(0, b"a", make.message("BundleEntry", dtype=1, shape=make.shape([1 << 62] * 60_000)))])


HARMFUL: dict[str, tuple[str, Callable[[], bytes], str]] = {
    **gathered("linted graph", GRAPHS),
    **gathered("program", PROGRAMS),
    "many bytes": ("configuration", lambda: b'{"config":[' + b"[]," * 6_000_000 + b"1]}", "unpacks to 18.0 MB"),
    "many values": (
        "configuration",
        lambda: b'{"config":[' + b"[]," * 3_000_000 + b"1]}",
        "more than the maximum of 1,048,576 values",
    ),
    "depth": ("configuration", lambda: b'{"config":' + b"[" * 200_000, ""),
    "layers": ("configuration", many_layers, ""),
    "links": ("weights", lambda: weights(linked), ""),
    "long paths": ("weights", lambda: weights(nested), "its paths have over 67,108,864 characters"),
    "names that share their start": ("checkpoint", shared_starts, "names with more than"),
    "a tensor of very many dimensions": ("checkpoint", many_dimensions, "a has no known shape"),
    "a list that is blank": ("list of checkpoints", lambda: b"\n" * 900_000, "has no model_checkpoint_path"),
    "objects in a long chain": ("objects of a checkpoint", lambda: make.message("ObjectGraph", nodes=LONG_CHAIN), ""),
    "lists that many have": ("objects of a checkpoint", lambda: make.message("ObjectGraph", nodes=SHARED_LISTS), ""),
    "a thousand times its size": (
        "packed profile",
        lambda: gzip.compress(bytes(1_000_000)) * 100,
        "unlike any profile",
    ),
    "no bytes": ("graph", bytes, "is empty"),
    "no run": ("run", bytes, "is empty"),
    "no log": ("log", bytes, "is empty"),
    "no profile": ("tfprof profile", bytes, "is empty"),
    "another message": ("run", lambda: GRAPH, "is a TensorFlow graph (GraphDef), not a RunMetadata"),
    "a graph as a log": ("log", lambda: GRAPH, "not an OpLogProto"),
    "text": ("graph", lambda: b"hello, world; this is no graph", "is text, but not a graph"),
    "text as a run": ("run", lambda: b"hello, world; this is no run", "is a text file"),
    "nested text": ("graph", lambda: b"a {" * 100_000, "is text, but not a graph"),
    "huge number": ("graph", lambda: b"node { name: 'x' op: 'A' attr { value { i: " + b"9" * 10_000 + b"}}}", ""),
    "huge length": ("graph", lambda: b"\x0a" + varint((1 << 31) - 1) + b"\x0a", "damaged"),
    "length beyond 64 bits": ("run", lambda: b"\x0a" + b"\xff" * 11, "damaged"),
    "nested groups": ("tfprof profile", lambda: groups(100_000), "damaged"),
    "nested groups in a node": ("graph", lambda: GRAPH + field(1, groups(100_000)), "damaged"),
    "nested groups in a record": ("run", lambda: RUN + field(1, field(1, field(2, groups(100_000)))), "damaged"),
    "the same name twice": ("graph", lambda: make.graph(node("x", "A"), node("x", "B")), "two nodes named 'x'"),
    "the same name twice in a profile": ("tfprof profile", lambda: make.profile([MATMUL] * 2), "two nodes named"),
    "a cycle": ("graph", lambda: make.graph(node("x", "A", "y"), node("y", "A", "x"), node("z", "A", "z", "x")), ""),
    "a long chain": ("graph", lambda: chained(20_000), ""),
    "a name of a million slashes": ("graph", lambda: make.graph(node("/" * 1_000_000, "A")), "nested too deep"),
    "a name of 100 KB": ("graph", lambda: make.graph(node("n" * 100_000, "A"), node("x", "B")), ""),
    "names of 2,000 scopes": ("graph", lambda: make.graph(*(node(f"s{n}/" * 2000, "A") for n in range(9))), ""),
    "control characters": ("graph", lambda: make.graph(node("\x1b[31m\n\0/\u202e", "\x07")), ""),
    "bytes that are no text": ("graph", lambda: GRAPH + field(1, field(1, b"\xff\xfe") + field(2, b"A")), ""),
    "a deep stack": ("log", lambda: stacks(9_000), ""),
    "a bottomless stack": ("log", lambda: stacks(200_000), "a call stack of 200,000 frames"),
    "many steps": ("tfprof profile", lambda: many_steps(2_500), ""),
    "too many steps": ("tfprof profile", lambda: many_steps(30_000), "30,000 steps"),
    "many devices": ("run", lambda: many_devices(30_000), ""),
    "many dimensions": ("graph", lambda: placeholder(200_000), ""),
}


@pytest.mark.stress
@pytest.mark.usefixtures("few_links")
@pytest.mark.parametrize("what", HARMFUL)
def test_files_that_are_made_to_harm(tmp_path: Path, what: str) -> None:
    """Going through all that they stand for would take hours here, or all memory; no clock is needed."""
    reader, write, expected = HARMFUL[what]
    data = write()
    error = ends_well(reader, tmp_path, data)
    assert (expected in error) if expected else not error


def test_an_expression_that_backtracks_ends(tmp_path: Path) -> None:
    """Under `re` it would take longer than anybody waits: 2 to the power of 40 ways to match the letters."""
    model = model_of(tmp_path, "graph", make.graph(node("a" * 40 + "!", "A")))
    shown = show_tree(model, "scope", options_from({"show_name_regexes": ["(a+)+b", "(a|a)*b"]}))
    assert len(shown.tree) == 1
