"""What takes most of the mean step: types of ops, scopes, and lines of code."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int64s
from tfperf.models.tfprof.attributes import PLACE
from tfperf.models.tfprof.model import AVERAGE, Model, sum_by
from tfperf.models.tfprof.options import Options
from tfperf.models.tfprof.step_times import nano_values
from tfperf.models.tfprof.tree import ends
from tfperf.models.tfprof.views import show_ops, show_tree

MOST = 3
"""So many ops, scopes, and lines of a level."""
_LEAST_OP, _LEAST_SCOPE, _LEAST_LINE = 1_000, 100_000, 1_000_000
"""In nanoseconds: less is not named."""
_LEVELS = 4
_NS_PER_MS = 1e6


class CostlyRow(Struct, frozen=True, kw_only=True):
    """A row with its times in the mean step, and its share of the time of all nodes."""

    name: str
    time_ms: float
    accelerator_ms: float
    cpu_ms: float
    time_percent: float
    kernels: str = ""
    """What ran in the place of ops of this type, where it has another name; empty elsewhere."""
    depth: int = 0


def costly_ops(model: Model) -> list[CostlyRow]:
    """Return the op types that take most; each with all of its nodes."""
    values = nano_values(model, AVERAGE)
    shown = show_ops(model, Options(order_by="micros", max_depth=MOST - 1), values)
    whole = int(values[PLACE["micros"]].sum())
    rows = [place for place in range(len(shown.names)) if shown.own[PLACE["micros"], place] >= _LEAST_OP]
    return [
        msgspec.structs.replace(
            _row(shown.names[place], shown.own[:, place], whole), kernels=model.ran_as(shown.nodes[place].tolist())
        )
        for place in rows
    ]


def costly_scopes(model: Model) -> list[CostlyRow]:
    """Return the outermost scopes that take most, with all that is in them."""
    values = nano_values(model, AVERAGE)
    number: dict[str, int] = {}
    scope = np.array([number.setdefault(name.partition("/")[0], len(number)) for name in model.names], np.int64)
    total = np.stack([sum_by(scope, row, len(number)) for row in values])
    micros = total[PLACE["micros"]]
    names, whole = [*number], int(micros.sum())
    largest = np.argsort(-micros, kind="stable")[:MOST].tolist()
    return [_row(names[place], total[:, place], whole) for place in largest if micros[place] >= _LEAST_SCOPE]


def costly_lines(model: Model, *, every_frame: bool = False) -> list[CostlyRow]:
    """Return the lines of code that take most, below the first that calls several; if none does, the innermost.

    Three of each level and four levels at most, each with all that it calls. Without `every_frame`, frames of installed
    packages are left out.
    """
    if not every_frame:
        model = msgspec.structs.replace(model, stacks=model.stacks.of_users())
    values = nano_values(model, AVERAGE)
    shown = show_tree(model, "code", Options(order_by="micros", max_depth=1 << 20), values)
    micros, whole = shown.total[PLACE["micros"]], int(shown.root_total[PLACE["micros"]])
    children = _children(shown.tree.depth)
    top = 0
    while len(children[top]) == 1 and children[children[top][0]]:
        top = children[top][0]
    rows: list[CostlyRow] = []
    waiting = [(child, 0) for child in reversed(children[top][:MOST])]
    while waiting:
        place, depth = waiting.pop()
        if micros[place] < _LEAST_LINE:
            continue
        rows.append(msgspec.structs.replace(_row(shown.tree.names[place], shown.total[:, place], whole), depth=depth))
        if len(children[place]) > 1 and depth + 1 < _LEVELS:
            waiting += [(child, depth + 1) for child in reversed(children[place][:MOST])]
    return rows


def _children(depth: Int64s) -> list[list[int]]:
    """Return for each row of a tree the rows directly below it."""
    stop = ends(depth).tolist()
    children: list[list[int]] = [[] for _ in stop]
    open_rows: list[int] = []
    for row in range(len(stop)):
        while open_rows and stop[open_rows[-1]] <= row:
            open_rows.pop()
        if open_rows:
            children[open_rows[-1]].append(row)
        open_rows.append(row)
    return children


def _row(name: str, nanos: Int64s, whole: int) -> CostlyRow:
    time, accelerator, cpu = (int(nanos[PLACE[key]]) for key in ("micros", "accelerator_micros", "cpu_micros"))
    return CostlyRow(
        name=name,
        time_ms=time / _NS_PER_MS,
        accelerator_ms=accelerator / _NS_PER_MS,
        cpu_ms=cpu / _NS_PER_MS,
        time_percent=100.0 * time / whole if whole else 0.0,
    )
