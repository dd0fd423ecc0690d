"""The variables of a graph: of TensorFlow 1, and those that a function of TensorFlow 2 reads."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tfperf.models.tfprof.dtypes import RESOURCE, dtype_name
from tfperf.models.tfprof.graph_def import Graph
from tfperf.models.tfprof.variables import COUNTER, OPTIMIZER, Variable, judged, named, without_slots

VARIABLE_OPS = frozenset(("Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp"))
_APPLY = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]\w*")
"""Ops that train: the first input is what is trained, others are what the optimizer keeps."""
_ASSIGN = re.compile(r"Assign(Add|Sub)?VariableOp")
_IS_OF_VARIABLES = re.compile(
    r"ReadVariableOp|VariableShape|VarIsInitializedOp|Assign(Add|Sub)?VariableOp|Resource(Gather|Scatter|Sparse|Apply)\w*"
)
_GRADIENT = re.compile(r"(^|/)(gradient_tape|gradients)(_\d+)?/")
_READ = re.compile(r"[/_](ReadVariableOp|readvariableop)(_\d+)?[/_]resource(_\d+)?$")


_FILLED_FORWARD = "EmptyTensorList"
"""An op among the gradients whose output a loop fills before: what the gradients need of each round."""


class GraphVariables(NamedTuple):
    """The variables of a graph, and how many resources it only hands on to functions, which may be variables too."""

    variables: list[Variable]
    hidden: int
    is_function: bool
    """Whether they are named after the ops that read them: a function of TensorFlow 2 does not know their names."""


def graph_variables(graph: Graph, trainable: Collection[str] | None) -> GraphVariables:
    """Return the variables of a graph; `trainable` are the names of those that are trained, None: not known."""
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
        variable = named(graph.names[node], _shape(graph, node), dtype_name(int(graph.dtype[node])))
        if node in kept - trained:
            variable = replace(variable, apart=OPTIMIZER)
        elif trainable is not None:
            variable = replace(variable, trainable=graph.names[node] in trainable)
        elif node in trained:
            variable = replace(variable, trainable=True)
        found.append(variable)
    return judged(without_slots(found))


def _shape(graph: Graph, node: int) -> tuple[int, ...] | None:
    dims = graph.shape.dims(node)
    return dims if graph.shape.known[node] and dims and min(dims) >= 0 else None


def _uses(graph: Graph) -> Iterator[tuple[int, int, bool]]:
    """Iterate over inputs that carry data: the node that takes it, that which gives it, and whether it is the first."""
    data = np.flatnonzero((graph.input_slot >= 0) & (graph.input_source >= 0))
    user = graph.input_of[data]
    is_first = data == np.searchsorted(graph.input_of, user)
    return zip(user.tolist(), graph.input_source[data].tolist(), is_first.tolist(), strict=True)


def _of_function(graph: Graph) -> GraphVariables:
    """Return the variables that a function captures: placeholders of resources that ops of variables take."""
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
    """Return a variable that is known by the ops that read it."""
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
    """Return which variables are trained (and the ops that do it), kept by an optimizer, or updated otherwise.

    What trains depends on gradients, and is in a scope of its own; what an optimizer keeps is updated in its scope.
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
    """Return the nodes whose values depend on a gradient; what is read of a variable behind its update does too."""
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
