"""Variables of a model from any file: which ones are parameters, and which parameters are trainable."""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.formats.models.checkpoint import Tensor, message
from tfperf.formats.models.dtypes import RESOURCE, bytes_of_element, dtype_name, holds_parameters
from tfperf.formats.models.graph_def import Graph
from tfperf.formats.models.input_file import InputFile

OPTIMIZER = "optimizer"
COUNTER = "counter or seed"

_STATISTICS = ("moving_mean", "moving_variance")  # of batch normalization: updated in training, but not trained
_MOST = 1 << 50
_MOST_DIMS = 254  # TensorFlow's limit for the dimensions of a tensor
_MOST_SCOPES = 100
_OF_OPTIMIZERS = re.compile(r"(beta[12]_power|learning_rate)(_\d+)?")


class Variable(Struct, frozen=True, kw_only=True):
    """A variable. `name` is unique in its layer, which is a path of names; the path is empty outside of layers."""

    layer: str
    name: str
    shape: tuple[int, ...] | None  # None if unknown
    dtype: str  # element type; empty if unknown
    trainable: bool | None = None  # None if the source does not record it
    apart: str = ""  # why it is not counted; empty for a parameter

    @property
    def path(self) -> str:
        """The layer and the name."""
        return f"{self.layer}/{self.name}" if self.layer else self.name

    @property
    def elements(self) -> int | None:
        """Number of elements; None if unknown, or more than any machine holds."""
        if self.shape is None or len(self.shape) > _MOST_DIMS:
            return None
        count = math.prod(self.shape)
        return None if count > _MOST else count

    @property
    def bytes(self) -> int | None:
        """Size in bytes; None if unknown."""
        each = bytes_of_element(self.dtype)
        return None if self.elements is None or each is None else self.elements * each


def named(path: str, shape: tuple[int, ...] | None, dtype: str, trainable: bool | None = None) -> Variable:
    """Return the variable of a path, whose last part is its name."""
    layer, _, name = path.removesuffix(":0").rpartition("/")
    return Variable(layer=layer, name=name, shape=shape, dtype=dtype, trainable=trainable)


def judged(variables: Sequence[Variable]) -> list[Variable]:
    """Return the variables, with counters and statistics marked if their type and name are conclusive."""
    found = []
    for variable in variables:
        if not variable.apart and not holds_parameters(variable.dtype):
            variable = replace(variable, apart=COUNTER)
        elif variable.trainable is None and variable.name.startswith(_STATISTICS):
            variable = replace(variable, trainable=False)
        found.append(variable)
    return found


def without_slots(variables: Sequence[Variable]) -> list[Variable]:
    """Return the variables of a TensorFlow 1 graph, with optimizer variables marked by their names.

    Optimizer variables have the name of their variable as a prefix or infix: `hidden1/kernel/Adam`, or
    `train/hidden1/kernel/m`.
    """
    paths = {variable.path for variable in variables}
    return [
        replace(variable, apart=OPTIMIZER)
        if not variable.apart
        and (
            _is_slot(variable.layer, paths)
            or (variable.elements == 1 and _OF_OPTIMIZERS.fullmatch(variable.name) is not None)
        )
        else variable
        for variable in variables
    ]


def _is_slot(layer: str, paths: Collection[str]) -> bool:
    if layer in paths:
        return True
    # A name is not enough: after a prefix, two parts of the path must match.
    parts = layer.rsplit("/", _MOST_SCOPES)
    return any("/".join(parts[start:]) in paths for start in range(1, len(parts) - 1))


VARIABLE_OPS = frozenset(("Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp"))
_APPLY = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]\w*")
"""Ops that train their first input; other inputs are optimizer variables."""
_ASSIGN = re.compile(r"Assign(Add|Sub)?VariableOp")
_IS_OF_VARIABLES = re.compile(
    r"ReadVariableOp|VariableShape|VarIsInitializedOp|Assign(Add|Sub)?VariableOp|Resource(Gather|Scatter|Sparse|Apply)\w*"
)
_GRADIENT = re.compile(r"(^|/)(gradient_tape|gradients)(_\d+)?/")
_READ = re.compile(r"[/_](ReadVariableOp|readvariableop)(_\d+)?[/_]resource(_\d+)?$")


_FILLED_FORWARD = "EmptyTensorList"
"""Op among the gradients whose output is filled earlier, by a loop that stores values for the gradients."""


class GraphVariables(NamedTuple):
    """The variables of a graph, and the number of resources, possibly variables, that it only passes to functions."""

    variables: list[Variable]
    hidden: int
    is_function: bool
    """Whether names come from the reading ops, because a TensorFlow 2 function has no variable names."""


def graph_variables(graph: Graph, trainable: Collection[str] | None) -> GraphVariables:
    """Return the variables of a graph; `trainable` are the names of the trainable ones, None if unknown."""
    nodes = [node for node, op in enumerate(graph.ops) if op in VARIABLE_OPS]
    if nodes:
        return GraphVariables(_of_session(graph, nodes, trainable), 0, is_function=False)
    return _of_function(graph)


def _of_session(graph: Graph, nodes: list[int], trainable: Collection[str] | None) -> list[Variable]:
    known = set(nodes)
    trained: set[int] = set()
    kept: set[int] = set()
    for user, source, is_first in _uses(graph):
        if source in known and _APPLY.fullmatch(graph.ops[user]):
            (trained if is_first else kept).add(source)
    found = []
    for node in nodes:
        dims = graph.shape.dims(node)
        shape = dims if graph.shape.known[node] and dims and min(dims) >= 0 else None
        variable = named(graph.names[node], shape, dtype_name(int(graph.dtype[node])))
        if node in kept - trained:
            variable = replace(variable, apart=OPTIMIZER)
        elif trainable is not None:
            variable = replace(variable, trainable=graph.names[node] in trainable)
        elif node in trained:
            variable = replace(variable, trainable=True)
        found.append(variable)
    return judged(without_slots(found))


def _uses(graph: Graph) -> Iterator[tuple[int, int, bool]]:
    """Yield data inputs: the node, its source node, and whether it is the first input."""
    data = np.flatnonzero((graph.input_slot >= 0) & (graph.input_source >= 0))
    user = graph.input_of[data]
    is_first = data == np.searchsorted(graph.input_of, user)
    return zip(user.tolist(), graph.input_source[data].tolist(), is_first.tolist(), strict=True)


def _of_function(graph: Graph) -> GraphVariables:
    """Return the variables that a function captures: resource placeholders that variable ops take."""
    handles = {node for node, op in enumerate(graph.ops) if op == "Placeholder" and graph.dtype[node] == RESOURCE}
    users: dict[int, list[tuple[int, bool]]] = {handle: [] for handle in handles}
    for user, source, is_first in _uses(graph):
        if source in handles:
            users[source].append((user, is_first))
    captured = {
        handle: each
        for handle, each in users.items()
        if any(_IS_OF_VARIABLES.fullmatch(graph.ops[user]) for user, _ in each)
    }
    trained, kept, updated = _updates(graph, captured)
    scopes = {_scope(graph.names[user]) for handle in trained for user in trained[handle]}
    found = []
    for handle, each in sorted(captured.items()):
        name = graph.names[handle]
        variable = _captured(graph, name, [user for user, _ in each])
        if handle in trained:
            variable = replace(variable, trainable=True)
        elif handle in kept or any(name.startswith(f"{scope}/") for scope in scopes if scope):
            variable = replace(variable, apart=OPTIMIZER)
        elif handle in updated:
            # Statistics, and sums of metrics.
            variable = replace(variable, trainable=False, apart=COUNTER if variable.elements == 1 else "")
        found.append(variable)
    return GraphVariables(judged(found), hidden=len(handles) - len(captured), is_function=True)


def _captured(graph: Graph, name: str, users: list[int]) -> Variable:
    read = [user for user in users if graph.ops[user] == "ReadVariableOp"]
    shape, dtype = None, ""
    for user in read:
        row = int(graph.output_first[user])
        dtype = dtype or dtype_name(int(graph.dtype[user]))
        if row < graph.output_first[user + 1] and graph.output_shapes.known[row]:
            dims = graph.output_shapes.dims(row)
            shape = dims if min(dims, default=-1) >= 0 else shape
    return named(_READ.sub("", name) or name, shape, dtype)


def _updates(
    graph: Graph, captured: Mapping[int, list[tuple[int, bool]]]
) -> tuple[dict[int, list[int]], set[int], set[int]]:
    """Return the trained variables (with their training ops), optimizer variables, and otherwise updated ones.

    A training op depends on gradients and has a scope of its own; optimizer variables are updated in its scope.
    """
    of_gradients = _behind_gradients(graph)
    trained: dict[int, list[int]] = {}
    kept, updated = set(), set()
    for handle, each in captured.items():
        for user, is_first in each:
            op = graph.ops[user]
            if _APPLY.fullmatch(op) and not is_first:
                kept.add(handle)
            elif _APPLY.fullmatch(op):
                trained.setdefault(handle, []).append(user)
            elif _ASSIGN.fullmatch(op) and user not in of_gradients:
                updated.add(handle)
            elif _ASSIGN.fullmatch(op) and not graph.names[handle].startswith(f"{_scope(graph.names[user])}/"):
                trained.setdefault(handle, []).append(user)
    return trained, kept, updated


def _behind_gradients(graph: Graph) -> set[int]:
    """Return the nodes that depend on a gradient, including reads of a variable after its update."""
    read_from = {
        user: source for user, source, is_first in _uses(graph) if is_first and graph.ops[user] == "ReadVariableOp"
    }
    updates = {
        user: source for user, source, is_first in _uses(graph) if is_first and _ASSIGN.fullmatch(graph.ops[user])
    }
    consumers: dict[int, list[int]] = {}
    for user, source, slot in zip(
        graph.input_of.tolist(), graph.input_source.tolist(), graph.input_slot.tolist(), strict=True
    ):
        if slot >= 0 or (source in updates and read_from.get(user) == updates[source]):
            consumers.setdefault(source, []).append(user)
    found = {node for node, name in enumerate(graph.names) if _GRADIENT.search(name)}
    filled = {node for node, op in enumerate(graph.ops) if op == _FILLED_FORWARD}
    found -= filled
    left = [*found]
    while left:
        new = [user for user in consumers.get(left.pop(), ()) if user not in found and user not in filled]
        found.update(new)
        left.extend(new)
    return found


def _scope(name: str) -> str:
    return name.rpartition("/")[0]


_TRAINED = ("trainable_variables", "_trainable_variables")
_EVERYTHING, _TWICE = "variables", "_all_variables"
"""Keras exports list each variable in both."""
_VALUE = "VARIABLE_VALUE"
_OPTIMIZER_CHILDREN = ({"_iterations", "_learning_rate"}, {"iter", "learning_rate"}, {"iter", "decay"})
"""Children of an optimizer in Keras 3 and Keras 2."""
_KERAS_LAYER = "_inbound_nodes"
_LONGEST_PATH = 1 << 9  # maximum letters of an object path; a longer path keeps its end


def saved_variables(file: InputFile, serialized: bytes) -> list[Variable]:
    """Return the variables of a SavedModel's object graph (`SavedObjectGraph`); raises TfprofInputError."""
    nodes = _nodes(file, serialized)
    stored: dict[int, Variable] = {}
    for number, node in enumerate(nodes):
        if node.HasField("variable"):
            saved = node.variable
            dims = tuple(int(dim.size) for dim in saved.shape.dim)
            shape = None if saved.shape.unknown_rank or any(size < 0 for size in dims) else dims
            name = saved.name.decode("utf-8", "replace")
            stored[number] = named(name, shape, dtype_name(saved.dtype), bool(saved.trainable))
    return _variables(nodes, stored)


def checkpoint_variables(file: InputFile, serialized: bytes, tensors: Mapping[str, Tensor]) -> list[Variable]:
    """Return the variables of a checkpoint's object graph (`TrackableObjectGraph`); raises TfprofInputError."""
    nodes = _nodes(file, serialized)
    stored: dict[int, Variable] = {}
    for number, node in enumerate(nodes):
        for attribute in node.attributes:
            if attribute.name.decode("utf-8", "replace") != _VALUE:
                continue
            key = attribute.checkpoint_key.decode("utf-8", "replace")
            if key not in tensors:
                raise file.damaged(0, f"its object graph refers to the missing tensor {key}")
            name = attribute.full_name.decode("utf-8", "replace")
            stored[number] = named(name, tensors[key].shape, tensors[key].dtype)
    return _variables(nodes, stored)


def _nodes(file: InputFile, serialized: bytes) -> list[Any]:
    nodes = list(message(file, "ObjectGraph", serialized).nodes)
    last = len(nodes) - 1
    for node in nodes:
        if any(not 0 <= child.node_id <= last for child in node.children):
            raise file.damaged(0, "an object graph with dangling links")
    return nodes


class _Walk:
    """A traversal from the root of an object graph: the first path to each object, and the lists that contain it."""

    def __init__(self, nodes: Sequence[Any], *, into_optimizers: bool) -> None:
        self._nodes, self._into_optimizers = nodes, into_optimizers
        self.found: dict[int, tuple[int, str]] = {0: (-1, "")} if nodes else {}  # parent and name of each object
        self._lists: dict[str, set[int]] = {_TRAINED[0]: set(), _TWICE: set()}
        self.of_layer: set[int] = set()
        """Children of Keras layers, which do not record whether they are trainable."""
        queue = deque(self.found)
        while queue:
            number = queue.popleft()
            for name, child in self._children(number):
                if child not in self.found:
                    self.found[child] = (number, name)
                    queue.append(child)
        self.trained, self.listed_twice = (
            {int(each.node_id) for at in lists for each in nodes[at].children} for lists in self._lists.values()
        )

    def path(self, number: int) -> str:
        """Return the shortest path of an object; only the end of a very deep path."""
        names: list[str] = []
        letters = 0
        while number > 0 and letters < _LONGEST_PATH:
            number, name = self.found[number]
            names.append(name[-_LONGEST_PATH:])
            letters += len(name) + 1
        return "/".join(reversed(names)).lstrip("/")

    def _children(self, number: int) -> list[tuple[str, int]]:
        node = self._nodes[number]
        children = [(child.local_name.decode("utf-8", "replace"), int(child.node_id)) for child in node.children]
        names = {name for name, _ in children}
        for name, child in children:
            if name in _TRAINED:
                self._lists[_TRAINED[0]].add(child)
        if _KERAS_LAYER in names:
            self.of_layer |= {child for _, child in children}
        if not self._into_optimizers and (node.slot_variables or any(each <= names for each in _OPTIMIZER_CHILDREN)):
            # The optimizer's variables belong to the model, even if nothing else of the model was saved.
            return [pair for pair in children if pair[0] in _TRAINED]
        if _EVERYTHING in names:
            self._lists[_TWICE].update(child for name, child in children if name == _TWICE)
            return [pair for pair in children if pair[0] != _TWICE]
        return children


def _variables(nodes: Sequence[Any], stored: Mapping[int, Variable]) -> list[Variable]:
    model, everything = _Walk(nodes, into_optimizers=False), _Walk(nodes, into_optimizers=True)
    root = {child.local_name.decode("utf-8", "replace") for child in nodes[0].children} if nodes else set()
    names = Counter(variable.path for number, variable in stored.items() if number in everything.found)
    found = []
    for number, variable in stored.items():
        is_listed = number in model.listed_twice and number not in model.found
        if is_listed and names[variable.path]:
            continue
        if not variable.name or names[variable.path] > 1:
            place = everything.path(number) if number in everything.found else variable.path
            variable = replace(named(place, variable.shape, variable.dtype), trainable=variable.trainable)
        if number not in model.found and not is_listed:
            found.append(replace(variable, trainable=None, apart=OPTIMIZER))
        else:
            found.append(replace(variable, trainable=_is_trained(number, variable.trainable, model, root)))
    return judged(found)


def _is_trained(number: int, flag: bool | None, walk: _Walk, root: set[str]) -> bool | None:
    """Return whether a variable is trained: by the lists of variables, else by its own flag.

    Freezing a Keras layer does not change the flags of its variables.
    """
    if number in walk.trained:
        return True
    if flag is False or _TRAINED[0] in root:
        return False
    return None if number in walk.of_layer else flag
