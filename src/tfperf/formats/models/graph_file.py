"""Graphs of files for the linter: each SavedModel function becomes one graph with its callees inlined."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from msgspec import Struct

from tfperf.formats.models.dtypes import Dims
from tfperf.formats.models.graph_def import graph_bytes
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.formats.models.messages import TENSORFLOW
from tfperf.formats.models.op_graph import Node, OpGraph

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_MOST_PUT_IN, _MOST_LETTERS = 200_000, 1 << 24
"""Limits for nodes (with inputs and outputs) and name letters that inlining may add to eight times the file's: models
call a function a few times, but a malicious one can double at each level."""
_TIMES = 8
_DEEPEST = 100
_MOST_DIMS, _MOST_ELEMENTS = 254, 1 << 53
"""Limits of a tensor: TensorFlow allows no more dimensions, and more elements do not fit into memory."""
_WRAPPER = "signature_wrapper"
_NOT_RUN = re.compile(r"__inference__traced_(save|restore)|__forward_|_backward_")
"""Functions of a SavedModel that inference does not run: saving, and gradients."""
_OUTPUTS: Mapping[str, tuple[str, ...]] = {
    "FusedBatchNorm": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"),
    "TopK": ("values", "indices"),
    "MaxPoolWithArgmax": ("output", "argmax"),
    "StatelessRandomGetKeyCounter": ("key", "counter"),
    "SparseSoftmaxCrossEntropyWithLogits": ("loss", "backprop"),
    "SoftmaxCrossEntropyWithLogits": ("loss", "backprop"),
    "Unique": ("y", "idx"),
}  # by prefix of the op name


def read_graphs(path: Path) -> list[OpGraph]:
    """Read the graphs of a SavedModel (its folder), a GraphDef or a MetaGraphDef; raises TfprofInputError."""
    return graphs_of(InputFile(_file_of(path), "GraphDef"))


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in ("saved_model.pb", "graph.pb"):
        if (path / name).is_file():
            return path / name
    if (path / "saved_model.pbtxt").is_file():
        raise TfprofInputError(f"{path} is a text SavedModel: save it in binary form (saved_model.pb)")
    raise TfprofInputError(f"{path} has no saved_model.pb or graph.pb: pass a SavedModel or a graph file")


def graphs_of(file: InputFile) -> list[OpGraph]:
    """Return the graphs of a file: its own, then each function without a caller among them."""
    data = graph_bytes(file, "WholeGraph")
    try:
        whole = TENSORFLOW.message_class("WholeGraph").FromString(data)
    except DecodeError as error:
        raise file.damaged(0, "not a valid graph") from error
    if not whole.node and not whole.library.function:
        raise file.damaged(0, "a graph without nodes")
    if not all(node.name and node.op for node in whole.node):
        raise file.damaged(0, "nodes without a name")
    graphs = [graph for graph in _Library(file, whole).graphs() if graph.nodes]
    if not graphs:
        raise file.refused("is a graph without nodes")
    return graphs


class _Op(Struct, frozen=True, kw_only=True):
    """A node of the file, inlined once per call of its function."""

    name: str
    op: str
    inputs: tuple[str, ...]
    """Data inputs, as written in the file."""
    attrs: Mapping[str, Any]
    shapes: list[Dims | None]
    device: str
    calls: str
    """Function to inline in its place; empty if none."""

    @property
    def entries(self) -> int:
        """Return the number of graph entries of the node: itself, its inputs and its outputs."""
        return 1 + len(self.inputs) + len(self.shapes)


class _Body(Struct, frozen=True):
    """A function of the file: names of its arguments, its nodes, and the sources of its results."""

    arguments: tuple[str, ...]
    ops: list[_Op]
    results: tuple[str, ...]


class _Size(NamedTuple):
    """Size of a function with its callees: nodes; nodes with inputs and outputs; letters of names."""

    nodes: int
    entries: int
    letters: int


class _Library:
    """The functions of a graph, inlined at their calls."""

    def __init__(self, file: InputFile, whole: Any) -> None:
        self._file, self._whole = file, whole
        self._functions = {_text(each.signature.name): each for each in whole.library.function}
        self._bodies: dict[str, _Body] = {}
        self._done: set[str] = set()
        self._entries, self._letters = 0, 0
        defs = (whole.node, *(each.node_def for each in whole.library.function))
        own = sum(1 + len(node.input) for each in defs for node in each)
        self._most_entries = _MOST_PUT_IN + _TIMES * own
        self._most_letters = _MOST_LETTERS + _TIMES * len(file.data)

    def graphs(self) -> Iterator[OpGraph]:
        """Yield the graph of the file without calls of signatures, then each signature and function."""
        wrappers = {_called(node) for node in self._whole.node} & {*self._functions}
        main = [node for node in self._whole.node if _WRAPPER not in _called(node)]
        yield self._graph("graph", self._ops(main), ())
        called = {_called(node) for each in self._functions.values() for node in each.node_def}
        first = sorted(name for name in self._functions if _WRAPPER in name or name in wrappers)
        others = [name for name in self._functions if name not in called and not _NOT_RUN.search(name)]
        for name in dict.fromkeys((*first, *others)):
            function = self._functions[name]
            # Signatures wrap the same function, so functions in an earlier graph are not checked again.
            if self._done.isdisjoint((name, *map(_called, function.node_def))):
                arguments = [*_arguments(function, from_host=_WRAPPER in name)]
                yield self._graph(_plain(name), self._body(name).ops, arguments)

    def _graph(self, name: str, ops: Sequence[_Op], arguments: Sequence[Node]) -> OpGraph:
        size = self._size(ops, {}, ())
        self._refuse(self._entries + size.entries, self._letters + size.letters)
        nodes: list[Node] = list(arguments)
        visited: set[str] = set()
        self._append(nodes, ops, {node.name: [(i, 0)] for i, node in enumerate(nodes)}, visited, ())
        self._done |= visited
        return OpGraph(name, nodes)

    def _size(self, ops: Sequence[_Op], known: dict[str, _Size], inside: tuple[str, ...]) -> _Size:
        """Return the size after inlining, counting each function once; a recursive call counts as a node."""
        nodes = entries = letters = 0
        for op in ops:
            nodes += 1
            entries += op.entries
            letters += len(op.name)
            function = op.calls
            if function and function not in self._done and function not in inside:
                if function not in known:
                    body = self._body(function)
                    of_ops = self._size(body.ops, known, self._below(inside, function))
                    own = len(body.arguments) + len(body.results)
                    known[function] = of_ops._replace(entries=of_ops.entries + own)
                size, prefix = known[function], len(_plain(function)) + 1
                nodes += size.nodes
                entries += size.entries
                letters += size.letters + (size.nodes * prefix if inside else 0)
        return _Size(nodes, entries, letters)

    def _below(self, inside: tuple[str, ...], function: str) -> tuple[str, ...]:
        if len(inside) >= _DEEPEST:
            raise self._file.refused(f"has functions that call each other over {_DEEPEST} levels deep")
        return (*inside, function)

    def _refuse(self, entries: int, letters: int) -> None:
        if entries <= self._most_entries and letters <= self._most_letters:
            return
        most = f"{self._most_letters:,} characters in names"
        if entries > self._most_entries:
            most = f"{self._most_entries:,} nodes, inputs and outputs"
        raise self._file.refused(
            f"expands to more than the maximum of {most}, because functions call others very often: pass a part of "
            "the model in a separate file"
        )

    def _append(
        self,
        nodes: list[Node],
        ops: Sequence[_Op],
        outputs: dict[str, list[tuple[int, int]]],
        visited: set[str],
        inside: tuple[str, ...],
    ) -> None:
        """Append nodes, inlining called functions; `outputs` has the outputs of each node by name."""
        prefix = "".join(f"{_plain(function)}/" for function in inside[1:])
        for op in ops:
            inputs = [_output(text, None, outputs) for text in op.inputs]
            # Functions that call each other in cycles exceed the counted size.
            self._entries += op.entries
            self._letters += len(prefix) + len(op.name)
            self._refuse(self._entries, self._letters)
            function = op.calls
            if function and function not in self._done and function not in inside:
                visited.add(function)
                outputs[op.name] = self._inlined(nodes, function, inputs, visited, inside)
                continue
            nodes.append(
                Node(
                    name=prefix + op.name,
                    op=op.op,
                    inputs=[source for source in inputs if source is not None],
                    attrs=op.attrs,
                    shapes=op.shapes,
                    device=op.device,
                    is_argument="_user_specified_name" in op.attrs,
                )
            )
            outputs[op.name] = [(len(nodes) - 1, slot) for slot in range(max(len(op.shapes), 1))]

    def _inlined(
        self,
        nodes: list[Node],
        name: str,
        inputs: Sequence[tuple[int, int] | None],
        visited: set[str],
        inside: tuple[str, ...],
    ) -> list[tuple[int, int]]:
        """Append the nodes of a function, and return the sources of its results."""
        body = self._body(name)
        self._entries += len(body.arguments) + len(body.results)
        local: dict[str, list[tuple[int, int]]] = {
            argument: [] if source is None else [source]
            for argument, source in zip(body.arguments, inputs, strict=False)
        }
        self._append(nodes, body.ops, local, visited, self._below(inside, name))
        found = [_output(result, nodes, local) for result in body.results]
        return [source if source is not None else (len(nodes) - 1, 99) for source in found] if nodes else []

    def _body(self, name: str) -> _Body:
        if name not in self._bodies:
            function = self._functions[name]
            returned = {_text(each.key): _text(each.value) for each in function.ret}
            self._bodies[name] = _Body(
                tuple(_text(each.name) for each in function.signature.input_arg),
                self._ops(function.node_def),
                tuple(returned.get(_text(each.name), "") for each in function.signature.output_arg),
            )
        return self._bodies[name]

    def _ops(self, defs: Sequence[Any]) -> list[_Op]:
        return [self._op(node) for node in self._ordered(defs)]

    def _op(self, node: Any) -> _Op:
        attrs = {_text(attr.key): attr.value for attr in node.attr}
        function = _called(node)
        return _Op(
            name=_text(node.name),
            op=_text(node.op),
            inputs=tuple(text for written in node.input if not (text := _text(written)).startswith("^")),
            attrs=attrs,
            shapes=_shapes(attrs),
            device=_text(node.device),
            calls=function if function in self._functions else "",
        )

    def _ordered(self, defs: Sequence[Any]) -> Iterable[Any]:
        """Return nodes in topological order; a loop of TensorFlow 1 is cut at its back edge."""
        by_name = {_text(node.name): node for node in defs}
        if len(by_name) < len(defs):
            self._file.named_once([_text(node.name) for node in defs])
        edges: dict[str, set[str]] = {}
        for name, node in by_name.items():
            sources = [_text(each) for each in node.input]
            is_closed = _text(node.op) in ("Merge", "RefMerge")
            kept = sources[:1] if is_closed else sources
            edges[name] = {source for each in kept if (source := each.lstrip("^").partition(":")[0]) in by_name}
        try:
            return [by_name[name] for name in TopologicalSorter(edges).static_order()]
        except CycleError as error:
            raise self._file.refused(f"has a cycle of nodes: {error.args[1][0]!r} is one of them") from error


def _arguments(function: Any, *, from_host: bool) -> Iterator[Node]:
    attrs = {each.key: each.value.attr for each in function.arg_attr}
    for place, argument in enumerate(function.signature.input_arg):
        given = {_text(attr.key): attr.value for attr in attrs.get(place, ())}
        dtype = TENSORFLOW.message_class("AttrValue")(type=argument.type)
        yield Node(
            name=_text(argument.name),
            op="_Arg",
            inputs=[],
            attrs={**given, "dtype": dtype},
            shapes=_shapes(given) or [None],
            is_argument=True,
            from_host=from_host,
        )


def _output(
    text: str, nodes: Sequence[Node] | None, outputs: Mapping[str, list[tuple[int, int]]]
) -> tuple[int, int] | None:
    """Return the output for a reference `node`, `node:1` (graphs) or `node:output:1` (functions)."""
    name, *rest = text.split(":")
    of_node = outputs.get(name)
    if not of_node:
        return None
    number = int(rest[-1]) if rest and rest[-1].isdecimal() and len(rest[-1]) < 6 else 0
    if len(rest) > 1 and len(of_node) > 1 and rest[0] not in ("output", "outputs"):
        known = [names for names in _OUTPUTS.values() if rest[0] in names]
        number = known[0].index(rest[0]) + number if known else number
    return of_node[number] if number < len(of_node) else (of_node[0][0], number)


def _shapes(attrs: Mapping[str, Any]) -> list[Dims | None]:
    found = attrs.get("_output_shapes")
    if found is None:
        shape = attrs.get("shape")
        return [] if shape is None else [_dims(shape.shape)]
    return [_dims(shape) for shape in found.list.shape]


def _dims(shape: Any) -> Dims | None:
    if shape.unknown_rank or len(shape.dim) > _MOST_DIMS:
        return None
    dims = tuple(max(int(dim.size), -1) for dim in shape.dim)
    return None if math.prod(size for size in dims if size > 0) > _MOST_ELEMENTS else dims


def _called(node: Any) -> str:
    if _text(node.op) not in _CALLS:
        return ""
    return next((_text(attr.value.func.name) for attr in node.attr if attr.key == b"f"), "")


def _plain(name: str) -> str:
    """Return the name of a function without TensorFlow's prefix and suffix."""
    start = name.removeprefix("__inference_")
    if start != name:
        start = start.removeprefix("signature_wrapper_").lstrip("_")
    end = start.rstrip("0123456789")
    return (end.rstrip("_") if end != start and end.endswith("_") else start) or name


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
