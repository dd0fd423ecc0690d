"""A graph for the linter: nodes with ops, attributes, inputs, shapes and users."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tfperf.base.units import without_middle
from tfperf.formats.models.dtypes import Dims, bytes_of_element, dtype_name
from tfperf.formats.models.input_file import TfprofInputError

FOLLOWED = frozenset(("Identity", "StopGradient", "Cast", "PreventGradient", "Snapshot", "CheckNumerics"))
"""Ops that do not change values, which edges skip."""
_CHANNELS_FIRST = ("NCHW", "NCDHW")
_BINARY_FLOAT = 4
_MOST_STEPS, _STEPS_OF_NODE = 1_000_000, 50
"""Limits for the links that rules may follow, per graph and additionally per node: models need a tenth, malicious
graphs the square of their nodes."""
_LONGEST_TEXT = 1 << 10


class Node(Struct, kw_only=True):
    """A node; inputs are pairs of a data source and its output index, dimensions of outputs are -1 if unknown."""

    name: str
    op: str
    inputs: list[tuple[int, int]]
    attrs: Mapping[str, Any]  # `AttrValue` messages by name
    shapes: list[Dims | None]
    device: str = ""
    is_argument: bool = False  # whether it is an argument of the graph's function
    from_host: bool = False  # whether the host passes it in each step


class OpGraph:
    """A graph, or a function with its callees inlined, in topological order."""

    def __init__(self, name: str, nodes: Sequence[Node]) -> None:
        self.name, self.nodes = name, list(nodes)
        self._steps_left = _MOST_STEPS + _STEPS_OF_NODE * len(self.nodes)
        self._origins: dict[frozenset[str], list[int]] = {}
        self._readers: dict[int, list[tuple[int, int]]] = {}
        self.values: dict[int, Numbers | None] = {}  # cache of `value_of`

    @cached_property
    def _users(self) -> list[list[tuple[int, int]]]:
        users: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            for place, (source, _) in enumerate(node.inputs):
                users[source].append((index, place))
        return users

    def of(self, *groups: frozenset[str] | Mapping[str, Any]) -> Iterator[int]:
        """Yield the nodes whose op is in one of these groups."""
        ops = frozenset().union(*groups)
        return (index for index, node in enumerate(self.nodes) if node.op in ops)

    def op(self, index: int) -> str:
        """Return the op of a node."""
        return self.nodes[index].op

    def name_of(self, index: int) -> str:
        """Return the name of a node."""
        return self.nodes[index].name

    def shape(self, index: int, slot: int = 0) -> Dims | None:
        """Return the dimensions of an output, -1 if unknown; None without a rank."""
        shapes = self.nodes[index].shapes
        return shapes[slot] if slot < len(shapes) else None

    def known(self, index: int, slot: int = 0) -> Dims | None:
        """Return the dimensions of an output if all are known."""
        dims = self.shape(index, slot)
        return None if dims is None or -1 in dims else dims

    def input_shape(self, index: int, place: int) -> Dims | None:
        """Return the dimensions of an input."""
        inputs = self.nodes[index].inputs
        return self.shape(*inputs[place]) if place < len(inputs) else None

    def source(self, index: int, place: int) -> int:
        """Return the source node of an input, skipping ops that do not change values; -1 if there is none."""
        inputs = self.nodes[index].inputs
        return self.origin(inputs[place][0]) if place < len(inputs) else -1

    def origin(self, index: int, through: frozenset[str] = FOLLOWED) -> int:
        """Return the origin of a value through the first inputs of ops of a group; for other nodes, the node itself."""
        origins = self._origins.get(through)
        if origins is None:
            origins = self._origins[through] = []
            for at, node in enumerate(self.nodes):
                origins.append(origins[node.inputs[0][0]] if node.op in through and node.inputs else at)
        return origins[index]

    def users(self, index: int) -> list[tuple[int, int]]:
        """Return the users of a node (without the caller) and their inputs, skipping ops that do not change values."""
        if index not in self._readers:
            found, waiting = [], list(self._users[index])
            while waiting:
                user, place = waiting.pop()
                if self.op(user) in FOLLOWED:
                    waiting += self._users[user]
                else:
                    found.append((user, place))
                self.follow(1)
            self._readers[index] = sorted(set(found))
        self.follow(len(self._readers[index]))
        return self._readers[index]

    def follow(self, links: int) -> None:
        """Count links that a rule follows; raises TfprofInputError above the limit."""
        self._steps_left -= links
        if self._steps_left < 0:
            raise TfprofInputError(
                f"the graph {without_middle(self.name, 60)!r} has too many edges between its ops: pass a part of it, "
                "or select rules with --rule"
            )

    def constant(self, index: int) -> npt.NDArray[np.int64] | None:
        """Return the integers in a node, or those inferred from known shapes; None if unknown."""
        return value_of(self, index)

    def constant_input(self, index: int, place: int) -> list[int] | None:
        """Return the integers of an input as a list; None if unknown."""
        found = self.constant(self.source(index, place))
        return None if found is None else found.reshape(-1).tolist()

    def text(self, index: int, attr: str) -> str:
        """Return a text attribute; empty if there is none."""
        found = self.nodes[index].attrs.get(attr)
        return found.s[:_LONGEST_TEXT].decode("utf-8", "replace") if found is not None else ""

    def number(self, index: int, attr: str) -> int:
        """Return a numeric attribute; 0 if there is none."""
        found = self.nodes[index].attrs.get(attr)
        return int(found.i) if found is not None else 0

    def flag(self, index: int, *attrs: str) -> bool:
        """Return whether one of these attributes is true."""
        return any(attr in self.nodes[index].attrs and self.nodes[index].attrs[attr].b for attr in attrs)

    def dtype(self, index: int) -> str:
        """Return the element type of a node's first output; empty if unknown."""
        attrs = self.nodes[index].attrs
        found = next((attrs[name] for name in ("DstT", "dtype", "T") if name in attrs), None)
        return dtype_name(found.type) if found is not None else ""

    def element_bytes(self, index: int) -> int:
        """Return the bytes per element; as for float32 if unknown."""
        return bytes_of_element(self.dtype(index)) or _BINARY_FLOAT

    def batch_and_features(self, index: int, rank: int) -> tuple[int, int]:
        """Return the batch and feature dimensions of an activation."""
        return 0, 1 if self.text(index, "data_format") in _CHANNELS_FIRST else rank - 1

    @cached_property
    def devices(self) -> frozenset[str]:
        """Return the kinds of devices in the placements of nodes, in lower case."""
        found = {node.device.lower() for node in self.nodes if node.device}
        return frozenset(kind for kind in ("tpu", "gpu") if any(f"{kind}:" in name for name in found))


Numbers = npt.NDArray[np.int64]
_MOST = 1 << 10  # limit for the numbers of a value: shapes have up to 254, and splits a few dozen
_SCALAR_OPS = {"Add": np.add, "AddV2": np.add, "Sub": np.subtract, "Mul": np.multiply}


def value_of(graph: OpGraph, index: int) -> Numbers | None:
    """Return a node's integers, stored or inferred from known shapes (-1: unknown dimension); None if unknown."""
    if index < 0:
        return None
    known, waiting = graph.values, [index]
    while waiting:
        at = waiting[-1]
        places = range(len(graph.nodes[at].inputs)) if at not in known and graph.op(at) in _COMPUTED else ()
        sources = [graph.source(at, place) for place in places]
        missing = [source for source in sources if source >= 0 and source not in known]
        if missing:
            waiting += missing
            continue
        if at not in known:
            known[at] = _found(graph, at, [known.get(source) for source in sources])
        waiting.pop()
    return known[index]


def _found(graph: OpGraph, index: int, inputs: list[Numbers | None]) -> Numbers | None:
    op = graph.op(index)
    if op == "Const":
        value = graph.nodes[index].attrs.get("value")
        return None if value is None else whole_numbers(value.tensor)
    if op == "Shape":
        dims = graph.input_shape(index, 0)
        return None if dims is None else np.array(dims, np.int64)
    values = [each for each in inputs if each is not None]
    if op not in _COMPUTED or len(values) < len(inputs):
        return None
    try:
        return _computed(graph, index, values)
    except (ValueError, IndexError, ZeroDivisionError):
        return None


_COMPUTED = frozenset((*_SCALAR_OPS, "ConcatV2", "GatherV2", "Prod", "Pack", "StridedSlice"))


def _computed(graph: OpGraph, index: int, inputs: list[Numbers]) -> Numbers | None:
    op = graph.op(index)
    if op == "ConcatV2":
        _refuse_many(sum(each.size for each in inputs[:-1]))
        return np.concatenate([each.reshape(-1) for each in inputs[:-1]])
    if op == "GatherV2":
        _refuse_many(inputs[1].size * math.prod(inputs[0].shape[1:]))
        return inputs[0][inputs[1]]
    if op == "Pack":
        _refuse_many(len(inputs))
        return np.array([int(each.reshape(())) for each in inputs], np.int64)
    if op == "StridedSlice":
        return _sliced(graph, index, inputs)
    if any((each < 0).any() for each in inputs):
        return np.array(-1, np.int64)  # unknown dimensions
    if op == "Prod":
        product = 1
        for value in inputs[0].reshape(-1).tolist():
            product *= value
        if product >= 1 << 62:
            raise ValueError(product)
        return np.array(product, np.int64)
    _refuse_many(math.prod(np.broadcast_shapes(inputs[0].shape, inputs[1].shape)))
    found = _SCALAR_OPS[op](inputs[0], inputs[1])
    return np.asarray(found, np.int64)


def _refuse_many(count: int) -> None:
    """Raise ValueError for more numbers than a shape or its pieces have, because each op may double its input."""
    if count > _MOST:
        raise ValueError(count)


def _sliced(graph: OpGraph, index: int, inputs: list[Numbers]) -> Numbers:
    values, begin, end, stride = inputs
    odd = graph.number(index, "new_axis_mask") or graph.number(index, "ellipsis_mask")
    if values.ndim != 1 or begin.size != 1 or odd:
        raise ValueError("not a slice of a vector")
    if graph.number(index, "shrink_axis_mask"):
        return np.asarray(values[int(begin[0])], np.int64)
    first = None if graph.number(index, "begin_mask") else int(begin[0])
    last = None if graph.number(index, "end_mask") else int(end[0])
    return values[first : last : int(stride[0])]


def whole_numbers(tensor: Any) -> Numbers | None:
    """Return the integers of a tensor message; None if it is damaged, large, or of another type."""
    dims = tuple(int(dim.size) for dim in tensor.tensor_shape.dim)
    stored = {"int32": "<i4", "int64": "<i8"}.get(dtype_name(tensor.dtype))
    if stored is None or any(size < 0 for size in dims):
        return None
    count = math.prod(dims)
    if count > _MOST:
        return None
    if tensor.tensor_content:
        if len(tensor.tensor_content) != count * np.dtype(stored).itemsize:
            return None
        return np.frombuffer(tensor.tensor_content, stored).astype(np.int64).reshape(dims)
    written = tensor.int_val or tensor.int64_val or [0]
    if len(written) > count > 0:
        return None
    values = np.array(written, np.int64)
    # Missing values repeat the last one.
    return np.concatenate((values, np.full(max(count - len(values), 0), values[-1])))[:count].reshape(dims)
