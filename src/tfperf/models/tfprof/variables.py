"""Variables of a model, whatever file lists them: which are parameters, and of those, which are trained."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tfperf.models.tfprof.dtypes import bytes_of_element, holds_parameters

OPTIMIZER = "optimizer"
COUNTER = "counter or seed"

_STATISTICS = ("moving_mean", "moving_variance")
"""What batch normalization keeps: it is updated in training, but not trained."""
_MOST = 1 << 50
_MOST_DIMS = 254
"""Of a tensor in TensorFlow."""
_MOST_SCOPES = 100
_OF_OPTIMIZERS = re.compile(r"(beta[12]_power|learning_rate)(_\d+)?")


class Variable(Struct, frozen=True, kw_only=True):
    """A variable: `name` is unique in its layer, which is a path of names; empty for one that is in none."""

    layer: str
    name: str
    shape: tuple[int, ...] | None
    """None: not known."""
    dtype: str
    """Name of the type of its elements; empty if not known."""
    trainable: bool | None = None
    """None: the source does not say."""
    apart: str = ""
    """Why it is not counted; empty for a parameter."""

    @property
    def path(self) -> str:
        """The layer and the name."""
        return f"{self.layer}/{self.name}" if self.layer else self.name

    @property
    def elements(self) -> int | None:
        """How many elements it has; None if that is not known, or more than any machine holds."""
        if self.shape is None or len(self.shape) > _MOST_DIMS:
            return None
        count = math.prod(self.shape)
        return None if count > _MOST else count

    @property
    def bytes(self) -> int | None:
        """How many bytes it takes; None if that is not known."""
        each = bytes_of_element(self.dtype)
        return None if self.elements is None or each is None else self.elements * each


def named(path: str, shape: tuple[int, ...] | None, dtype: str, trainable: bool | None = None) -> Variable:
    """Return the variable of a path, whose last part is its name."""
    layer, _, name = path.removesuffix(":0").rpartition("/")
    return Variable(layer=layer, name=name, shape=shape, dtype=dtype, trainable=trainable)


def judged(variables: Sequence[Variable]) -> list[Variable]:
    """Return the variables, with what their types and names say for sure: counters, statistics."""
    found = []
    for variable in variables:
        if not variable.apart and not holds_parameters(variable.dtype):
            variable = replace(variable, apart=COUNTER)
        elif variable.trainable is None and variable.name.startswith(_STATISTICS):
            variable = replace(variable, trainable=False)
        found.append(variable)
    return found


def without_slots(variables: Sequence[Variable]) -> list[Variable]:
    """Return the variables of a graph of TensorFlow 1, those of optimizers set apart by their names.

    What an optimizer keeps for a variable is named below it: `hidden1/kernel/Adam`, or `train/hidden1/kernel/m`.
    """
    paths = {variable.path for variable in variables}
    return [
        replace(variable, apart=OPTIMIZER)
        if not variable.apart and (_is_slot(variable.layer, paths) or _is_of_optimizer(variable))
        else variable
        for variable in variables
    ]


def _is_slot(layer: str, paths: Collection[str]) -> bool:
    if layer in paths:
        return True
    # A name alone says too little: behind a prefix, two parts of the path must be the same.
    parts = layer.rsplit("/", _MOST_SCOPES)
    return any("/".join(parts[start:]) in paths for start in range(1, len(parts) - 1))


def _is_of_optimizer(variable: Variable) -> bool:
    return variable.elements == 1 and _OF_OPTIMIZERS.fullmatch(variable.name) is not None
