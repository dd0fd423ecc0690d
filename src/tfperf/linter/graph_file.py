"""Graphs of files as rules see them: functions of a SavedModel with all that they call, in one graph each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from tfperf.linter.op_graph import Node, OpGraph
from tfperf.linter.padding import Dims
from tfperf.tfprof.graph_def import graph_bytes
from tfperf.tfprof.input_file import InputFile, TfprofInputError
from tfperf.tfprof.messages import TENSORFLOW

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_MOST_NODES = 2_000_000
_DEEPEST = 100
_WRAPPER = "signature_wrapper"
_NOT_RUN = re.compile(r"__inference__traced_(save|restore)|__forward_|_backward_")
"""Functions that a SavedModel keeps beside those that are run: its own saving, and gradients of what is run."""
_OUTPUTS: Mapping[str, tuple[str, ...]] = {
    "FusedBatchNorm": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"),
    "TopK": ("values", "indices"),
    "MaxPoolWithArgmax": ("output", "argmax"),
    "StatelessRandomGetKeyCounter": ("key", "counter"),
    "SparseSoftmaxCrossEntropyWithLogits": ("loss", "backprop"),
    "SoftmaxCrossEntropyWithLogits": ("loss", "backprop"),
    "Unique": ("y", "idx"),
}
"""Names of outputs of ops that have several, by how the name of the op begins."""


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
        raise TfprofInputError(f"{path} is a SavedModel in text: save it again in binary form (saved_model.pb)")
    raise TfprofInputError(f"{path} holds no saved_model.pb and no graph.pb: name a SavedModel, or the file of a graph")


def graphs_of(file: InputFile) -> list[OpGraph]:
    """Return the graphs of a file: its own, then each function that none of them calls."""
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


class _Library:
    """The functions of a graph, put in where they are called."""

    def __init__(self, file: InputFile, whole: Any) -> None:
        self._file, self._whole = file, whole
        self._functions = {_text(each.signature.name): each for each in whole.library.function}
        self._done: set[str] = set()
        self._count = 0

    def graphs(self) -> Iterator[OpGraph]:
        """Yield the graph of the file without calls of signatures, then each signature and function."""
        wrappers = {_called(node) for node in self._whole.node} & {*self._functions}
        main = [node for node in self._whole.node if _WRAPPER not in _called(node)]
        yield self._graph("graph", main, ())
        called = {_called(node) for each in self._functions.values() for node in each.node_def}
        first = sorted(name for name in self._functions if _WRAPPER in name or name in wrappers)
        others = [name for name in self._functions if name not in called and not _NOT_RUN.search(name)]
        for name in dict.fromkeys((*first, *others)):
            function = self._functions[name]
            # Signatures of a model are wrappers of one function: what an earlier graph holds is not judged twice.
            if self._done.isdisjoint((name, *map(_called, function.node_def))):
                yield self._graph(_plain(name), function.node_def, [*_arguments(function, from_host=_WRAPPER in name)])

    def _graph(self, name: str, defs: Sequence[Any], arguments: Sequence[Node]) -> OpGraph:
        nodes: list[Node] = list(arguments)
        visited: set[str] = set()
        self._append(nodes, defs, {node.name: [(i, 0)] for i, node in enumerate(nodes)}, visited, ())
        self._done |= visited
        return OpGraph(name, nodes)

    def _append(
        self,
        nodes: list[Node],
        defs: Sequence[Any],
        outputs: dict[str, list[tuple[int, int]]],
        visited: set[str],
        inside: tuple[str, ...],
    ) -> None:
        """Append nodes, those of called functions in place of the call; `outputs` has the outputs of each by name."""
        for node in self._ordered(defs):
            name, function = _text(node.name), _called(node)
            inputs = [*_resolved(node, outputs)]
            if function in self._functions and function not in self._done and function not in inside:
                visited.add(function)
                outputs[name] = self._inlined(nodes, self._functions[function], inputs, visited, inside)
                continue
            self._count += 1
            if self._count > _MOST_NODES:
                raise self._file.refused(f"has more than {_MOST_NODES:,} nodes when its functions are put in")
            attrs = {_text(attr.key): attr.value for attr in node.attr}
            shapes = _shapes(attrs)
            nodes.append(
                Node(
                    name="/".join((*map(_plain, inside[1:]), name)),
                    op=_text(node.op),
                    inputs=[source for source in inputs if source is not None],
                    attrs=attrs,
                    shapes=shapes,
                    device=_text(node.device),
                    is_argument="_user_specified_name" in attrs,
                )
            )
            outputs[name] = [(len(nodes) - 1, slot) for slot in range(max(len(shapes), 1))]

    def _inlined(
        self,
        nodes: list[Node],
        function: Any,
        inputs: Sequence[tuple[int, int] | None],
        visited: set[str],
        inside: tuple[str, ...],
    ) -> list[tuple[int, int]]:
        """Append the nodes of a function, and return where its results come from."""
        name = _text(function.signature.name)
        if len(inside) >= _DEEPEST:
            raise self._file.refused(f"has functions that call each other over {_DEEPEST} levels deep")
        local: dict[str, list[tuple[int, int]]] = {
            _text(argument.name): [] if source is None else [source]
            for argument, source in zip(function.signature.input_arg, inputs, strict=False)
        }
        self._append(nodes, function.node_def, local, visited, (*inside, name))
        returned = {_text(each.key): _text(each.value) for each in function.ret}
        results = (returned.get(_text(each.name), "") for each in function.signature.output_arg)
        found = [_output(result, nodes, local) for result in results]
        return [source if source is not None else (len(nodes) - 1, 99) for source in found] if nodes else []

    def _ordered(self, defs: Sequence[Any]) -> Iterable[Any]:
        """Return nodes so that inputs come first; a loop of TensorFlow 1 is cut at the edge that closes it."""
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
            raise self._file.refused(f"has nodes that feed each other: {error.args[1][0]!r} is one of them") from error


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


def _resolved(node: Any, outputs: Mapping[str, list[tuple[int, int]]]) -> Iterator[tuple[int, int] | None]:
    """Yield where the data inputs of a node come from; None for what is not there."""
    for written in node.input:
        text = _text(written)
        if not text.startswith("^"):
            yield _output(text, None, outputs)


def _output(
    text: str, nodes: Sequence[Node] | None, outputs: Mapping[str, list[tuple[int, int]]]
) -> tuple[int, int] | None:
    """Return the output that a text names: `node`, `node:1` (graphs) or `node:output:1` (functions)."""
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
    return None if shape.unknown_rank else tuple(int(dim.size) for dim in shape.dim)


def _called(node: Any) -> str:
    if _text(node.op) not in _CALLS:
        return ""
    return next((_text(attr.value.func.name) for attr in node.attr if attr.key == b"f"), "")


def _plain(name: str) -> str:
    """Return the name of a function without what TensorFlow puts around it."""
    return re.sub(r"^__inference_(signature_wrapper_)?_*|_*_\d+$", "", name) or name


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
