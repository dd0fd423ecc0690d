"""Ops as stacks of names, for flame graphs: by name scope, or by layer and pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from tfperf.base.units import PS_PER_MS
from tfperf.report.flame_tree import FlameScale, Stack, flame_chart, flame_tree
from tfperf.report.model import FlameChart, Level
from tfperf.sections.ops.groups import INPUT, NO_SCOPE, PATH_READ, group_without_path, is_backward, layer_of, models_of
from tfperf.sections.ops.op_table import OpKey, OpTable

StackedBy = Literal["scope", "layer"]
MOST_IN_REPORT = 1_000
"""Boxes of a chart: more are too narrow to be seen on a page of many charts."""
BACKWARD, FORWARD = "backward pass", "forward pass"
_ITERATOR = "Iterator::"
_TIMES = FlameScale(unit="ms", divisor=int(PS_PER_MS), separator="/")


def stacker(keys: Sequence[OpKey], by: StackedBy) -> Callable[[OpKey], Stack]:
    """Return the function that gives the stack of an op, one of `keys`."""
    if by == "scope":
        return _scopes
    models = models_of(keys)
    return lambda key: _without_path(key) or _layer(key, models)


def _scopes(key: OpKey) -> Stack:
    scopes = tuple(scope for scope in key.name[:PATH_READ].split("/") if scope)
    return _without_path(key) or (scopes if len(scopes) > 1 else (NO_SCOPE, key.name or key.type))


def _layer(key: OpKey, models: frozenset[str]) -> Stack:
    return (layer_of(key.name, models), BACKWARD if is_backward(key.name) else FORWARD, key.type or key.name)


def _without_path(key: OpKey) -> Stack:
    """Return the stack of what has no scopes; nothing for an op that has some."""
    group = group_without_path(key)
    if group == INPUT:
        return (INPUT, *key.name[:PATH_READ].removeprefix(_ITERATOR).split("::"))
    return (group, key.name or key.type) if group else ()


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
