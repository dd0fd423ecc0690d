"""The objects of a SavedModel or of a `tf.train.Checkpoint`, and the variables that they hold."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tfperf.models.tfprof.dtypes import dtype_name
from tfperf.models.tfprof.input_file import InputFile
from tfperf.models.tfprof.tensors import Tensor, message
from tfperf.models.tfprof.variables import OPTIMIZER, Variable, judged, named

_TRAINED = ("trainable_variables", "_trainable_variables")
_EVERYTHING, _TWICE = "variables", "_all_variables"
"""An export of Keras writes each variable in both lists."""
_VALUE = "VARIABLE_VALUE"
_OF_OPTIMIZERS = ({"_iterations", "_learning_rate"}, {"iter", "learning_rate"}, {"iter", "decay"})
"""What hangs on an optimizer: of Keras 3 and of Keras 2."""
_KERAS_LAYER = "_inbound_nodes"
_LONGEST_PATH = 1 << 9
"""Letters of a path of objects; of a longer one, the end is kept."""


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
                raise file.damaged(0, f"its object graph names the tensor {key}, which is not in it")
            name = attribute.full_name.decode("utf-8", "replace")
            stored[number] = named(name, tensors[key].shape, tensors[key].dtype)
    return _variables(nodes, stored)


def _nodes(file: InputFile, serialized: bytes) -> list[Any]:
    nodes = list(message(file, "ObjectGraph", serialized).nodes)
    last = len(nodes) - 1
    for node in nodes:
        if any(not 0 <= child.node_id <= last for child in node.children):
            raise file.damaged(0, "an object graph with links to nowhere")
    return nodes


class _Walk:
    """What is found from the root of an object graph: how each object is reached first, and who lists it."""

    def __init__(self, nodes: Sequence[Any], *, into_optimizers: bool) -> None:
        self._nodes, self._into_optimizers = nodes, into_optimizers
        self.found: dict[int, tuple[int, str]] = {0: (-1, "")} if nodes else {}
        """By object: the one that it is a child of, and its name there."""
        self._lists: dict[str, set[int]] = {_TRAINED[0]: set(), _TWICE: set()}
        self.of_layer: set[int] = set()
        """Children of layers of Keras, which keep to themselves whether they are trained."""
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
        """Return the shortest path of an object that was found; of one that is very deep, the end."""
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
        if not self._into_optimizers and (node.slot_variables or any(each <= names for each in _OF_OPTIMIZERS)):
            # The variables that it trains are the model's, also where nothing else of the model was saved.
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
    """Tell whether a variable is trained: by the lists of variables, else by its own flag.

    A layer of Keras that is frozen leaves the flags of its variables as they are.
    """
    if number in walk.trained:
        return True
    if flag is False or _TRAINED[0] in root:
        return False
    return None if number in walk.of_layer else flag
