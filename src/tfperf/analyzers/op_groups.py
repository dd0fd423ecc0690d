"""Ops taken together: by type, by name scope, by layer of the model; and ops picked by a pattern.

Names of ops are paths: scopes, then the op's own name. Keras makes the scopes of a model and of each layer in it; the
backward pass repeats the path below `gradient_tape`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt

from tfperf.analyzers.op_table import OpKey, OpTable, Side
from tfperf.analyzers.ops import KERNEL_WITHOUT_OP, MEMSET
from tfperf.arrays import MOST, Bools, Int64s, capped_sum
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    import pandas as pd

By = Literal["op", "type", "scope", "layer"]
BYS: tuple[By, ...] = get_args(By)
NO_SCOPE, NO_OP, COPIES, INPUT = "(no scope)", "(no op)", "(copies without op)", "(input pipeline)"

_COPY_TYPES = ("MemcpyH2D", "MemcpyD2H", "MemcpyD2D", MEMSET)
_BACKWARD = re.compile(r"(?:^|/)(?:gradient_tape|gradients)(?:_\d+)?(?:/|$)")
_WRAPPER = re.compile(r"(?:Stateful)?PartitionedCall(?:_\d+)?|replica_\d+|jit\(.*\)|while|body|cond|then|else|_?_?\d+")
_MODEL = re.compile(r"(?:sequential|model|functional)(?:_\d+)?", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"(?:lstm|gru|\w*rnn|bidirectional|time_distributed|\w*(?:loss|entropy|error|divergence|metrics))(?:_\d+)?",
    re.IGNORECASE,
)
_OPTIMIZER = re.compile(
    r"(?:adam|adamw|adamax|nadam|sgd|momentum|rmsprop|adagrad|adadelta|adafactor|ftrl|lamb|lion|muon|lossscale\w*)(?:_\d+)?",
    re.IGNORECASE,
)
_PATH_READ = 4096


@dataclass(frozen=True)
class GroupTable:
    """Ops of one side by group, the one with the largest self time first; times are int64 picoseconds.

    `total_ps` adds up ops that lie inside each other on a thread; `self_ps` does not. `backward_ps` is the part of
    `self_ps` in the backward pass. `all_self_ps` and `time_ps` are what shares are of: all ops of the side, also those
    that a pattern left out, and the time with idle (None: not known).
    """

    by: By
    side: Side
    names: tuple[str, ...]
    ops: Int64s
    occurrences: Int64s
    total_ps: Int64s
    self_ps: Int64s
    backward_ps: Int64s
    all_self_ps: int
    time_ps: int | None

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.names)

    @property
    def share(self) -> npt.NDArray[np.float64]:
        """Return self time as a share of the self time of all ops of this side."""
        return self.self_ps / max(self.all_self_ps, 1)

    @property
    def table(self) -> pd.DataFrame:
        """Return one row per group, times in milliseconds."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def columns(self) -> dict[str, list[object]]:
        """Return the columns of `table` without pandas; None stands for what is not known."""
        share = 100 * self.share
        with_idle: list[object] = [None] * len(self)
        if self.time_ps:
            with_idle = (100.0 * self.self_ps / float(self.time_ps)).tolist()
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
            "self_with_idle_percent": with_idle,
        }


def group(table: OpTable, by: By, keep: Bools | None = None) -> GroupTable:
    """Add up ops by group; `keep` (one entry per op) leaves others out, but shares stay of all ops."""
    rows = np.arange(len(table)) if keep is None else np.flatnonzero(keep)
    keys = [table.keys[row] for row in rows.tolist()]
    name = _namer(table, by)
    known: dict[str, int] = {}
    which = np.array([known.setdefault(name(key), len(known)) for key in keys], np.int64)
    backward = np.array([is_backward(key.name) for key in keys], np.bool_)

    def sums(values: npt.NDArray[np.int64]) -> Int64s:
        found = np.bincount(which, weights=values, minlength=len(known))
        return np.minimum(found, MOST).astype(np.int64)

    own = table.self_ps[rows]
    self_ps, backward_ps = sums(own), sums(np.where(backward, own, 0))
    names = list(known)
    order = np.array(sorted(range(len(names)), key=lambda at: (-int(self_ps[at]), names[at])), np.int64)
    return GroupTable(
        by, table.side, tuple(names[at] for at in order.tolist()), sums(np.ones(len(rows), np.int64))[order],
        sums(table.occurrences[rows])[order], sums(table.total_ps[rows])[order], self_ps[order], backward_ps[order],
        capped_sum(table.self_ps), table.time_ps,
    )  # fmt: skip


def matching(table: OpTable, patterns: Sequence[re.Pattern[str]]) -> Bools:
    """Tell which ops any pattern is found in: in the name, the type or the HLO op; without patterns all."""
    if not patterns:
        return np.ones(len(table), np.bool_)
    texts = ((key.name, key.type, key.hlo_op) for key in table.keys)
    return np.array([any(p.search(text) for p in patterns for text in row) for row in texts], np.bool_)


def is_backward(name: str) -> bool:
    """Tell whether an op belongs to the backward pass."""
    return _BACKWARD.search(name[:_PATH_READ]) is not None


def _namer(table: OpTable, by: By) -> Callable[[OpKey], str]:
    if by == "op":
        return lambda key: key.name
    if by == "type":
        return lambda key: key.type or "Unknown"
    models = _models(table)
    return (lambda key: _special(key) or _scope(key)) if by == "scope" else lambda key: _layer(key, models)


def _special(key: OpKey) -> str:
    """Return the group of what has no path: work without an op, stages of the input pipeline."""
    if key.type == KERNEL_WITHOUT_OP or (key.hlo_op and key.name == key.hlo_op):
        return NO_OP
    if key.type in _COPY_TYPES:
        return COPIES
    return INPUT if key.type == "Dataset" else ""


def _scope(key: OpKey) -> str:
    return key.name.rpartition("/")[0] or NO_SCOPE


def _path(name: str) -> list[str]:
    """Return the scopes of an op without those that tell nothing of the model."""
    scopes = name[:_PATH_READ].split("/")[:-1]
    return [scope for scope in scopes if not _BACKWARD.match(scope) and not _WRAPPER.fullmatch(scope)]


def _models(table: OpTable) -> frozenset[str]:
    """Return the outermost scopes that are models: named as Keras names them, or with several layers inside.

    Only the forward pass tells: below a layer of it is an op at most, while in the backward pass the ops of the forward
    pass are scopes.
    """
    inside: dict[str, set[str]] = {}
    for key in table.keys:
        path = () if is_backward(key.name) or _special(key) else _path(key.name)
        if path:
            inside.setdefault(path[0], set()).update(path[1:2])
    return frozenset(root for root, below in inside.items() if len(below) > 1 and not _NO_MODEL.fullmatch(root))


def _layer(key: OpKey, models: frozenset[str]) -> str:
    """Return the layer: the scope below the model, or the outermost scope where there is no model around it."""
    path = _path(key.name)
    if special := _special(key):
        return special
    if not path:
        return NO_SCOPE
    if _OPTIMIZER.fullmatch(path[0]):
        return f"{path[0]} (optimizer)"
    is_model = path[0] in models or _MODEL.fullmatch(path[0])
    return path[1] if is_model and len(path) > 1 else path[0]
