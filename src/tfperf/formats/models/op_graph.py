"""A graph as rules see it: nodes with op, attributes, inputs and shapes, and who uses what."""

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
"""Ops that leave values as they are: edges go through them."""
_CHANNELS_FIRST = ("NCHW", "NCDHW")
_BINARY_FLOAT = 4
_MOST_STEPS, _STEPS_OF_NODE = 1_000_000, 50
"""How many links between ops rules may follow in a graph, and how many more for each of its nodes: those of models take
a tenth, and those that are made to harm the square of the nodes."""
_LONGEST_TEXT = 1 << 10


class Node(Struct, kw_only=True):
    """A node: its data inputs as pairs of a node and its output, and the dimensions of its outputs (-1: not known)."""

    name: str
    op: str
    inputs: list[tuple[int, int]]
    attrs: Mapping[str, Any]
    """Messages `AttrValue` by name."""
    shapes: list[Dims | None]
    device: str = ""
    is_argument: bool = False
    """Whether it is an argument of the function that the graph is."""
    from_host: bool = False
    """Whether the host passes it in each step."""


class OpGraph:
    """A graph, or a function with all that it calls, whose nodes stand in an order in which inputs come first."""

    def __init__(self, name: str, nodes: Sequence[Node]) -> None:
        self.name, self.nodes = name, list(nodes)
        self._steps_left = _MOST_STEPS + _STEPS_OF_NODE * len(self.nodes)
        self._origins: dict[frozenset[str], list[int]] = {}
        self._readers: dict[int, list[tuple[int, int]]] = {}
        self.values: dict[int, Numbers | None] = {}
        """What `value_of` found, by node."""

    @cached_property
    def _users(self) -> list[list[tuple[int, int]]]:
        users: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            for place, (source, _) in enumerate(node.inputs):
                users[source].append((index, place))
        return users

    def of(self, *groups: frozenset[str] | Mapping[str, Any]) -> Iterator[int]:
        """Iterate over nodes whose op is in one of these groups."""
        ops = frozenset().union(*groups)
        return (index for index, node in enumerate(self.nodes) if node.op in ops)

    def op(self, index: int) -> str:
        """Return the op of a node."""
        return self.nodes[index].op

    def name_of(self, index: int) -> str:
        """Return the name of a node."""
        return self.nodes[index].name

    def shape(self, index: int, slot: int = 0) -> Dims | None:
        """Return the dimensions of an output, -1 where one is not known; None without a rank."""
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
        """Return the node that an input comes from, through ops that leave values as they are; -1 for none."""
        inputs = self.nodes[index].inputs
        return self.origin(inputs[place][0]) if place < len(inputs) else -1

    def origin(self, index: int, through: frozenset[str] = FOLLOWED) -> int:
        """Return the node that a value comes from, through the first inputs of ops of a group; of others, itself."""
        origins = self._origins.get(through)
        if origins is None:
            origins = self._origins[through] = []
            for at, node in enumerate(self.nodes):
                origins.append(origins[node.inputs[0][0]] if node.op in through and node.inputs else at)
        return origins[index]

    def users(self, index: int) -> list[tuple[int, int]]:
        """Return who uses a node, through ops that leave values as they are, and at which input; not the caller."""
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
        """Count links that a rule goes along; raises TfprofInputError for more than those of any model."""
        self._steps_left -= links
        if self._steps_left < 0:
            raise TfprofInputError(
                f"the graph {without_middle(self.name, 60)!r} has too many links between its ops for the rules to be "
                "applied in time: give a part of it, or only some rules (--rule)"
            )

    def constant(self, index: int) -> npt.NDArray[np.int64] | None:
        """Return whole numbers that a node holds, or that follow from known shapes; None if they are not known."""
        return value_of(self, index)

    def constant_input(self, index: int, place: int) -> list[int] | None:
        """Return whole numbers that an input holds, as a list; None if they are not known."""
        found = self.constant(self.source(index, place))
        return None if found is None else found.reshape(-1).tolist()

    def text(self, index: int, attr: str) -> str:
        """Return an attribute that is text; empty if there is none."""
        found = self.nodes[index].attrs.get(attr)
        return found.s[:_LONGEST_TEXT].decode("utf-8", "replace") if found is not None else ""

    def number(self, index: int, attr: str) -> int:
        """Return an attribute that is a number; 0 if there is none."""
        found = self.nodes[index].attrs.get(attr)
        return int(found.i) if found is not None else 0

    def flag(self, index: int, *attrs: str) -> bool:
        """Return whether one of these attributes is true."""
        return any(attr in self.nodes[index].attrs and self.nodes[index].attrs[attr].b for attr in attrs)

    def dtype(self, index: int) -> str:
        """Return the type of the elements of a node's first output; empty if it is not known."""
        attrs = self.nodes[index].attrs
        found = next((attrs[name] for name in ("DstT", "dtype", "T") if name in attrs), None)
        return dtype_name(found.type) if found is not None else ""

    def element_bytes(self, index: int) -> int:
        """Return how many bytes an element takes: those of float32 where that is not known."""
        return bytes_of_element(self.dtype(index)) or _BINARY_FLOAT

    def batch_and_features(self, index: int, rank: int) -> tuple[int, int]:
        """Return which dimensions of an activation hold the batch and the features."""
        return 0, 1 if self.text(index, "data_format") in _CHANNELS_FIRST else rank - 1

    @cached_property
    def devices(self) -> frozenset[str]:
        """Return kinds of devices that nodes are placed on, in lower case."""
        found = {node.device.lower() for node in self.nodes if node.device}
        return frozenset(kind for kind in ("tpu", "gpu") if any(f"{kind}:" in name for name in found))


Numbers = npt.NDArray[np.int64]
_MOST = 1 << 10
"""Numbers of a value: shapes have up to 254, and pieces of a tensor are some tens."""
_SCALAR_OPS = {"Add": np.add, "AddV2": np.add, "Sub": np.subtract, "Mul": np.multiply}


def value_of(graph: OpGraph, index: int) -> Numbers | None:
    """Return the whole numbers that a node holds, or that follow from known shapes; None if they are not known.

    -1 stands for a dimension that is not known.
    """
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
        return np.array(-1, np.int64)  # of what is not known
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
    """Raise ValueError for more numbers than a shape or its pieces have: each op may double those of another."""
    if count > _MOST:
        raise ValueError(count)


def _sliced(graph: OpGraph, index: int, inputs: list[Numbers]) -> Numbers:
    """Return part of a vector, or one of its numbers."""
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
    """Return the numbers of a message of a tensor; None if it is damaged, large, or of another type."""
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
    # What is not written repeats the last value.
    return np.concatenate((values, np.full(max(count - len(values), 0), values[-1])))[:count].reshape(dims)
