"""The objects of a SavedModel or of a `tf.train.Checkpoint`, and the variables that they hold."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tfperf.tfprof.dtypes import dtype_name
from tfperf.tfprof.input_file import InputFile
from tfperf.tfprof.tensors import Tensor, message
from tfperf.tfprof.variables import OPTIMIZER, Variable, judged, named

_TRAINED = ("trainable_variables", "_trainable_variables")
_EVERYTHING, _TWICE = "variables", "_all_variables"
"""An export of Keras writes each variable in both lists."""
_VALUE = "VARIABLE_VALUE"
_OF_OPTIMIZERS = ({"_iterations", "_learning_rate"}, {"iter", "learning_rate"}, {"iter", "decay"})
"""What hangs on an optimizer: of Keras 3 and of Keras 2."""
_KERAS_LAYER = "_inbound_nodes"


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
    """What is found from the root of an object graph: the shortest path of each object, and who lists it."""

    def __init__(self, nodes: Sequence[Any], *, into_optimizers: bool) -> None:
        self._nodes, self._into_optimizers = nodes, into_optimizers
        self.path: dict[int, str] = {0: ""} if nodes else {}
        self.trained: set[int] = set()
        self.of_layer: set[int] = set()
        """Children of layers of Keras, which keep to themselves whether they are trained."""
        self.listed_twice: set[int] = set()
        queue = deque(self.path)
        while queue:
            number = queue.popleft()
            for name, child in self._children(number):
                if child not in self.path:
                    self.path[child] = f"{self.path[number]}/{name}".lstrip("/")
                    queue.append(child)

    def _children(self, number: int) -> list[tuple[str, int]]:
        node = self._nodes[number]
        children = [(child.local_name.decode("utf-8", "replace"), int(child.node_id)) for child in node.children]
        names = {name for name, _ in children}
        for name, child in children:
            if name in _TRAINED:
                self.trained |= {int(each.node_id) for each in self._nodes[child].children}
        if _KERAS_LAYER in names:
            self.of_layer |= {child for _, child in children}
        if not self._into_optimizers and (node.slot_variables or any(each <= names for each in _OF_OPTIMIZERS)):
            # The variables that it trains are the model's, also where nothing else of the model was saved.
            return [pair for pair in children if pair[0] in _TRAINED]
        if _EVERYTHING in names:
            twice = [child for name, child in children if name == _TWICE]
            self.listed_twice |= {int(each.node_id) for child in twice for each in self._nodes[child].children}
            return [pair for pair in children if pair[0] != _TWICE]
        return children


def _variables(nodes: Sequence[Any], stored: Mapping[int, Variable]) -> list[Variable]:
    model, everything = _Walk(nodes, into_optimizers=False), _Walk(nodes, into_optimizers=True)
    root = {child.local_name.decode("utf-8", "replace") for child in nodes[0].children} if nodes else set()
    names = Counter(variable.path for number, variable in stored.items() if number in everything.path)
    found = []
    for number, variable in stored.items():
        is_listed = number in model.listed_twice and number not in model.path
        if is_listed and names[variable.path]:
            continue
        place = everything.path.get(number, variable.path)
        if not variable.name or names[variable.path] > 1:
            variable = replace(named(place, variable.shape, variable.dtype), trainable=variable.trainable)
        if number not in model.path and not is_listed:
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
