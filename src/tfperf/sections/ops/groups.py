"""Ops grouped by type, by name scope, and by layer of the model.

Op names are paths: scopes, then the op's own name. Keras creates a scope for a model and for each of its layers; the
backward pass repeats the path below `gradient_tape`. JAX puts its transforms around scopes: `jvp(encoder)/attention` in
the forward pass of a gradient, `transpose(jvp(encoder))/attention` in the backward pass, `vmap()` without a scope. XLA
joins the names of ops that become one: `f/a;f/b`, `f/(a:b)`; the first one counts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from tfperf.analysis.registry import Grouping, TableSpec, Tabular, declared
from tfperf.base.arrays import MOST, Bools, Int64s, capped_sum
from tfperf.base.units import PS_PER_MS
from tfperf.report.flame_tree import FlameScale, Stack, flame_chart, flame_tree
from tfperf.report.model import Data, FlameChart, Level
from tfperf.sections.ops.analysis import COPY_TYPES, KERNEL_WITHOUT_OP, OpKey, OpTable, Side, percent_of
from tfperf.trace.event_names import name_of_repeated, pattern_of

NO_SCOPE, NO_OP, COPIES, INPUT = "(no scope)", "(no op)", "(copies without op)", "(input pipeline)"

_BACKWARD = re.compile(r"(?:^|/)(?:gradient_tape|gradients)(?:_\d+)?(?:/|$)|(?:^|[/(])transpose\(")
_TRANSFORMED = re.compile(r"(?:jvp|transpose|vmap|remat|checkpoint)\((.*)\)")
_JOINED = re.compile(r"(?:(.*)/)?\(([^:]*):.*\)")
_WRAPPER = re.compile(
    r"(?:Stateful)?PartitionedCall(?:_\d+)?|replica_\d+|while|body|cond|then|else|_?_?\d+"
    r"|(?:jit|pjit|pmap)\(.*\)|pjit|shard_map|branch_\d+_fun|closed_call|custom_[jv]vp_call|checkpoint|remat\d*"
    r"|rematted_computation"
    r"|[A-Za-z. ]*(?:,[A-Za-z. ]*)+(?:->[A-Za-z. ]*)?|[A-Za-z. ]*->[A-Za-z. ]*"  # an equation of jnp.einsum
)
_MODEL = re.compile(r"(?:sequential|model|functional)(?:_\d+)?", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"(?:lstm|gru|\w*rnn|bidirectional|time_distributed|\w*(?:loss|entropy|error|divergence|metrics))(?:_\d+)?",
    re.IGNORECASE,
)
_OPTIMIZERS = (
    r"(?:adam|adamw|adamax|nadam|sgd|momentum|rmsprop|adagrad|adadelta|adafactor|ftrl|lamb|lion|muon|lossscale\w*)"
)
_OPTIMIZER = re.compile(rf"{_OPTIMIZERS}(?:_\d+)?", re.IGNORECASE)
_KERAS_3 = re.compile(rf"(?!.*jit\()(?:.*/)?(?:{_OPTIMIZERS}(?:_\d+)?/|compile_loss/|convolution(?:/|$))")
"""Names of ops of Keras 3 in TensorFlow. Keras 2 has `Adam/`, and `conv2d/Conv2D`."""
_OF_OPTIMIZER = " (optimizer)"
PATH_READ = 4096
"""Characters of a name that are read, because hostile files contain long names."""


class GroupTable(Tabular, frozen=True, kw_only=True):
    """Ops of one side by group, the largest self time first; times are int64 picoseconds.

    `total_ps` includes nested ops repeatedly; `self_ps` does not. `backward_ps` is the part of `self_ps` in the
    backward pass. Shares refer to `all_self_ps`, the time of all ops of the side including omitted ones, and `time_ps`,
    which adds idle time (None if unknown).
    """

    by: Grouping
    side: Side
    names: tuple[str, ...]
    ops: Int64s
    occurrences: Int64s
    total_ps: Int64s
    self_ps: Int64s
    backward_ps: Int64s
    all_self_ps: int
    time_ps: int | None

    def _spec(self) -> TableSpec:
        return declared("ops", f"op_{self.by}s")

    def _data(self) -> Data:
        return self.columns()

    def __len__(self) -> int:
        return len(self.names)

    def columns(self) -> dict[str, list[object]]:
        """Return one row per group, times in milliseconds; None is unknown."""
        share = 100 * (self.self_ps / max(self.all_self_ps, 1))
        return {
            "side": [self.side] * len(self),
            "rank": list(range(1, len(self) + 1)),
            "group": list(self.names),
            "ops": self.ops.tolist(),
            "occurrences": self.occurrences.tolist(),
            "total_ms": (self.total_ps / PS_PER_MS).tolist(),
            "self_ms": (self.self_ps / PS_PER_MS).tolist(),
            "forward_self_ms": ((self.self_ps - self.backward_ps) / PS_PER_MS).tolist(),
            "backward_self_ms": (self.backward_ps / PS_PER_MS).tolist(),
            "self_percent": share.tolist(),
            "cumulative_self_percent": np.cumsum(share).tolist(),
            "self_with_idle_percent": percent_of(self.self_ps, self.time_ps),
        }


def group_ops(table: OpTable, by: Grouping, keep: Bools | None = None) -> GroupTable:
    """Add up ops by group; `keep` (one entry per op) omits other ops, but shares remain those of all ops."""
    rows = np.arange(len(table)) if keep is None else np.flatnonzero(keep)
    keys = [table.keys[row] for row in rows.tolist()]
    layers = ModelLayers(table.keys if by == "layer" else ())

    def name_of(key: OpKey) -> str:
        if by == "type":
            return key.type or "Unknown"
        group = group_without_path(key) or (
            layers.of(key.name) if by == "layer" else without_transforms(key.name).rpartition("/")[0]
        )
        return group or NO_SCOPE

    indices: dict[str, int] = {}
    group = np.array([indices.setdefault(name_of(key), len(indices)) for key in keys], np.int64)
    names = list(indices)

    def sums(values: npt.NDArray[np.int64]) -> Int64s:
        totals = np.bincount(group, weights=values, minlength=len(names))
        return np.minimum(totals, MOST).astype(np.int64)

    is_in_backward_pass = np.array([is_backward(key.name) for key in keys], np.bool_)
    self_ps = sums(table.self_ps[rows])
    order = np.array(sorted(range(len(names)), key=lambda index: (-int(self_ps[index]), names[index])), np.int64)
    return GroupTable(
        by=by,
        side=table.side,
        names=tuple(names[index] for index in order.tolist()),
        ops=sums(np.ones(len(rows), np.int64))[order],
        occurrences=sums(table.occurrences[rows])[order],
        total_ps=sums(table.total_ps[rows])[order],
        self_ps=self_ps[order],
        backward_ps=sums(np.where(is_in_backward_pass, table.self_ps[rows], 0))[order],
        all_self_ps=capped_sum(table.self_ps),
        time_ps=table.time_ps,
    )


def is_backward(name: str) -> bool:
    """Return whether an op belongs to the backward pass."""
    is_possible = "gradient" in name or "transpose(" in name
    return is_possible and _BACKWARD.search(_first_name(name)) is not None


def group_without_path(key: OpKey) -> str:
    """Return the group of a name without a path: work without an op, stages of the input pipeline."""
    if key.type == KERNEL_WITHOUT_OP or (key.hlo_op and key.name == key.hlo_op):
        return NO_OP
    if key.type in COPY_TYPES:
        return COPIES
    return INPUT if key.type == "Dataset" else ""


def _first_name(name: str) -> str:
    """Return the start of a name, up to the second of several joined ones."""
    name = name[:PATH_READ].partition(";")[0]
    joined = _JOINED.fullmatch(name) if name.endswith(")") else None
    return f"{joined[1] or ''}/{joined[2]}" if joined else name


def without_transforms(name: str) -> str:
    """Return the name of an op, the first of joined ones, without JAX's transforms around its scopes."""
    *scopes, own = map(_transformed_scope, _first_name(name).split("/"))
    return "/".join([*filter(None, scopes), own])


# Thousands of op names contain the same few scopes.
@lru_cache(maxsize=2048)
def _transformed_scope(scope: str) -> str:
    """Return the scope inside of transforms; empty for `jvp()`."""
    while transformed := _TRANSFORMED.fullmatch(scope):
        scope = transformed[1]
    return scope


@lru_cache(maxsize=1 << 14)
def _path(name: str) -> tuple[str, ...]:
    """Return the scopes of the model around an op."""
    scopes = without_transforms(name).split("/")[:-1]
    return tuple(scope for scope in scopes if not (_BACKWARD.match(scope) or _WRAPPER.fullmatch(scope)))


def models_of(keys: Iterable[OpKey]) -> frozenset[str]:
    """Return the outermost scopes with several layers inside, which are models unless named otherwise.

    Scopes of blocks that differ only in a number (`block_0`, `block_1`) are repeated layers. Only the forward pass is
    used: a layer contains ops there, while in the backward pass the ops of the forward pass are scopes.
    """
    inside: dict[str, set[str]] = {}
    for key in keys:
        path = () if is_backward(key.name) or group_without_path(key) else _path(key.name)
        if path:
            inside.setdefault(path[0], set()).update(path[1:2])
    patterns = {root: pattern_of(f"{root}/") for root in inside}
    count = Counter(patterns.values())
    models = (root for root, below in inside.items() if len(below) > 1 and count[patterns[root]] == 1)
    return frozenset(root for root in models if not _NO_MODEL.fullmatch(root))


class ModelLayers:
    """The layers of the model with these ops."""

    def __init__(self, keys: Iterable[OpKey] = ()) -> None:
        keys = list(keys)
        self._models, self._names = models_of(keys), dict[str, str]()
        if any(_KERAS_3.match(key.name) for key in keys):
            self._names = _names_in_keras_3({self._scope(key.name) for key in keys if not group_without_path(key)})

    def of(self, name: str) -> str:
        """Return the layer of an op: the scope below the model, or the outermost scope without a model."""
        scope = self._scope(name)
        return self._names.get(scope, scope)

    def _scope(self, name: str) -> str:
        path = _path(name)
        if not path:
            return NO_SCOPE
        if is_of_optimizer(name):
            return path[0] + _OF_OPTIMIZER
        is_model = path[0] in self._models or _MODEL.fullmatch(path[0])
        return path[1] if is_model and len(path) > 1 else path[0]


def is_of_optimizer(name: str) -> bool:
    """Return whether an op belongs to an optimizer, by its scope."""
    path = _path(name)
    return bool(path and _OPTIMIZER.fullmatch(path[0]))


def _names_in_keras_3(scopes: Iterable[str]) -> dict[str, str]:
    """Return the names of layers by scope, where they differ.

    Keras 3 enters the scope of a layer twice, to build it and to call it, and TensorFlow adds a number to the second
    scope: `dense` is in `dense_1`, and `dense_1` in `dense_1_2`. The number stays if other scopes differ only in it.
    """
    names = {scope: re.sub(r"(?<=.)_\d+$", "", scope) if scope[0].islower() else scope for scope in scopes}
    count = Counter(names.values())
    return {scope: name for scope, name in names.items() if name != scope and count[name] == 1}


# --- ops of replicas and of repeated layers, added up ---
# Ops share a row if their names differ only in the numbers of replicas, towers, layers and blocks, and their types are
# equal. For XLA ops, the program and the kind of HLO op (`fusion.3`, `fusion.8`) must be equal too.

_HLO_NUMBER = re.compile(r"\.\d+")


def repeated_ops(table: OpTable, keep: Bools) -> dict[str, list[object]] | None:
    """Return the columns of `OpTable` with one row per group of repeated ops; None if no kept op repeats.

    `keep` has one entry per op; shares remain those of all ops. The column `ops` counts the ops of a row.
    """
    kept = table.only(np.flatnonzero(keep))
    keys = common_keys(kept.keys)
    counts = Counter(keys)
    if len(counts) == len(keys):
        return None
    summed = kept.under(keys)
    return {**summed.columns(whole_ps=table.all_self_ps), "ops": [counts[key] for key in summed.keys]}


def common_keys(keys: Sequence[OpKey]) -> list[OpKey]:
    """Return the row key of each op: one for all ops that repeat each other."""
    alike = defaultdict[OpKey, list[int]](list)
    for place, key in enumerate(keys):
        pattern = key
        if not group_without_path(key):  # names that are not paths have no layers
            pattern = key._replace(name=pattern_of(key.name), hlo_op=_HLO_NUMBER.sub("", key.hlo_op))
        alike[pattern].append(place)
    common = list(keys)
    for places in alike.values():
        members = [keys[place] for place in places]
        # Several HLO ops of one op without a number in its name stay separate.
        if len({key.name for key in members}) > 1:
            first = members[0]
            is_one = len({key.hlo_op for key in members}) == 1
            hlo_op = first.hlo_op if is_one else _HLO_NUMBER.sub("", first.hlo_op) + ".*"
            of_all = first._replace(name=name_of_repeated([key.name for key in members]), hlo_op=hlo_op)
            for place in places:
                common[place] = of_all
    return common


StackedBy = Literal["scope", "layer"]
MOST_IN_REPORT = 1_000
"""Maximum number of boxes of a chart; more are too narrow to see on a page of many charts."""
BACKWARD, FORWARD = "backward pass", "forward pass"
_ITERATOR = "Iterator::"
_TIMES = FlameScale(unit="ms", divisor=int(PS_PER_MS), separator="/")


def stacker(keys: Sequence[OpKey], by: StackedBy) -> Callable[[OpKey], Stack]:
    """Return a function that returns the stack of an op among `keys`."""
    layers = ModelLayers(keys if by == "layer" else ())

    def stack(key: OpKey) -> Stack:
        group = group_without_path(key)
        if group == INPUT:
            return (INPUT, *key.name[:PATH_READ].removeprefix(_ITERATOR).split("::"))
        if group:
            return (group, key.name or key.type)
        if by == "layer":
            layer = layers.of(key.name)
            passes = () if is_of_optimizer(key.name) else (BACKWARD if is_backward(key.name) else FORWARD,)
            return (layer, *passes, key.type or key.name)
        scopes = tuple(scope for scope in without_transforms(key.name).split("/") if scope)
        return scopes if len(scopes) > 1 else (NO_SCOPE, key.name or key.type)

    return stack


def added_up(stacks: Iterable[tuple[Stack, int]]) -> dict[Stack, int]:
    """Return the sum of each stack."""
    sums: dict[Stack, int] = {}
    for stack, value in stacks:
        sums[stack] = sums.get(stack, 0) + value
    return sums


def scope_chart(table: OpTable, title: str, level: Level) -> FlameChart:
    """Return the self time of ops by name scope."""
    stack_of = stacker(table.keys, "scope")
    tree = flame_tree(added_up(zip(map(stack_of, table.keys), table.self_ps.tolist(), strict=True)))
    return flame_chart(tree, title, _TIMES, most=MOST_IN_REPORT, level=level)
