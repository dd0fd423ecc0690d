"""The views of a model as trees: by name scope, by what feeds what, by line of code; and the list of op types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.base.units import without_middle
from tfperf.models.tfprof.attributes import ATTRIBUTES, MEASURES, PLACE
from tfperf.models.tfprof.code_tree import code_tree
from tfperf.models.tfprof.input_file import TfprofInputError
from tfperf.models.tfprof.model import Model, typed
from tfperf.models.tfprof.options import Options, matches
from tfperf.models.tfprof.tree import ROOT, Rules, Shown, Tree, show, sort_key

View = Literal["scope", "graph", "op", "code"]
_MOST_LETTERS = 1 << 27
"""Of the names of all scopes together: a name of a million slashes is in a million scopes."""
SCOPE_TYPE = "_kTFScopeParent"
"""The type of a name scope that is no node itself."""
RULES: Mapping[str, Rules] = {
    "scope": Rules(),
    "graph": Rules(hoists=True),
    "code": Rules(trims_node=True, judges_own=False, redoes_totals=False),
}


def accounted(model: Model, options: Options) -> Bools:
    """Tell which nodes count: those with a type that is asked for. Devices are matched whatever their case."""
    devices = {*model.device}
    either = [place for place, text in enumerate(model.types) if text in devices]
    matched = matches(options.account_type_regexes, model.types, ignore_case=either)
    return np.ones(len(model.names), np.bool_) if matched is None else typed(model, matched)


def show_tree(model: Model, view: View, options: Options, values: Int64s | None = None) -> Shown:
    """Return what the scope, graph or code view shows; `values` stand for those that the model has."""
    return show(*whole_tree(model, view, options, values), options, RULES[view])


def whole_tree(
    model: Model, view: View, options: Options, values: Int64s | None = None
) -> tuple[Tree, Mapping[int, list[int]]]:
    """Return all rows of the scope, graph or code view, shown or not; and `Shown.built`."""
    values = model.values(options.step) if values is None else values
    counts = accounted(model, options)
    if view == "code":
        return code_tree(model, values, counts, every=matches(options.account_type_regexes, ()) is None)
    tree = (scope_tree if view == "scope" else graph_tree)(model, values, counts)
    of_scopes = matches(options.account_type_regexes, [SCOPE_TYPE])
    if of_scopes is None or of_scopes[0]:
        tree.accounted[1:] |= tree.node[1:] < 0
    return tree, {}


def scope_tree(model: Model, values: Int64s, counts: Bools) -> Tree:
    """Return the nodes by name scope; a scope that is no node is added."""
    node = {name: number for number, name in enumerate(model.names)}
    letters = 0
    for name in model.names:
        end = name.rfind("/")
        while end >= 0 and (scope := name[:end]) not in node:
            node[scope] = -1
            end = scope.rfind("/")
            letters += len(scope)
            if letters > _MOST_LETTERS:
                raise TfprofInputError(f"the scopes of {without_middle(name, 60)!r} are nested too deep to be shown")
    names = sorted(node, key=_scope_key)
    depth = [name.count("/") + 2 for name in names]
    return _tree(names, [node[name] for name in names], depth, (values, counts))


def _scope_key(name: str) -> str:
    r"""Return a key by which a scope comes before what is in it, and all of that before the next scope.

    "/" sorts before any other character: it is `\0`, and two letters from `\1` on stand for `\0` and `\1`.
    """
    return name.replace("\1", "\1\1").replace("\0", "\1\0").replace("/", "\0")


def graph_tree(model: Model, values: Int64s, counts: Bools) -> Tree:
    """Return each node below the first node that it feeds, as found in depth from the nodes that feed nothing."""
    fed = np.zeros(len(model.names), np.bool_)
    fed[model.input_source[model.input_source >= 0]] = True
    first, count = (rows.tolist() for rows in model.input_rows())
    source = model.input_source.tolist()
    seen = [False] * len(model.names)
    order: list[int] = []
    depth: list[int] = []
    waiting = [(root, 2) for root in np.flatnonzero(~fed)[::-1].tolist()]
    while waiting:
        node, level = waiting.pop()
        if seen[node]:
            continue
        seen[node] = True
        order.append(node)
        depth.append(level)
        inputs = source[first[node] : first[node] + count[node]]
        waiting += [(each, level + 1) for each in reversed(inputs) if each >= 0 and not seen[each]]
    return _tree([model.names[node] for node in order], order, depth, (values, counts))


def _tree(names: list[str], nodes: list[int], depth: list[int], of: tuple[Int64s, Bools]) -> Tree:
    """Return a tree below a root of its own; rows that are no node have values of 0, and count as one."""
    values, counts = of
    node = np.array([-1, *nodes], np.int64)
    own = (
        np.where(node >= 0, values[:, np.maximum(node, 0)], 0) if len(counts) else np.zeros((len(values), 1), np.int64)
    )
    own[PLACE["definitions"], 1:] = 1
    is_accounted = (node >= 0) & counts[np.maximum(node, 0)] if len(counts) else node >= 0
    return Tree(names=[ROOT, *names], node=node, depth=np.array([1, *depth], np.int64), own=own, accounted=is_accounted)


class ShownOps(Struct, frozen=True, kw_only=True):
    """The op types that are shown, in their order; each total counts all that follow.

    `own` and `total` have a row for each of `ATTRIBUTES`. `nodes` are those of a type that count.
    """

    names: list[str]
    own: Int64s
    total: Int64s
    root_total: Int64s
    all_total: Int64s
    """Of all that counts, shown or not."""
    nodes: list[Int64s]


def show_ops(model: Model, options: Options, values: Int64s | None = None) -> ShownOps:
    """Return what the op view shows; `values` stand for those that the model has."""
    values = model.values(options.step) if values is None else values
    counted = np.flatnonzero(accounted(model, options))
    names = sorted({model.ops[node] for node in counted.tolist()})
    number = {name: place for place, name in enumerate(names)}
    op = np.array([number[model.ops[node]] for node in counted.tolist()], np.int64)
    own = np.zeros((len(ATTRIBUTES), len(names)), np.int64)
    for row, of in zip(own, values[:, counted], strict=True):
        np.add.at(row, op, of)
    key = sort_key(names, own, "definitions" if options.order_by == "occurrence" else options.order_by)
    order = np.argsort(key, kind="stable")
    own = own[:, order]
    names = [names[place] for place in order.tolist()]
    total = np.cumsum(own[:, ::-1], axis=1)[:, ::-1]
    own_total = own.sum(axis=1)
    root_total = total[:, 0] if len(names) else np.zeros(len(ATTRIBUTES), np.int64)
    rows = _shown_ops(names, own, total, options)
    if options.account_displayed_op_only:
        total = np.zeros_like(own)
        total[:, rows] = np.cumsum(own[:, rows][:, ::-1], axis=1)[:, ::-1]
        root_total = total[:, rows[0]] if len(rows) else np.zeros_like(root_total)
    by_op = np.argsort(op, kind="stable")
    nodes = np.split(counted[by_op], np.cumsum(np.bincount(op, minlength=len(order)))[:-1])
    return ShownOps(
        names=[names[row] for row in rows.tolist()],
        own=own[:, rows],
        total=total[:, rows],
        root_total=root_total,
        all_total=own_total,
        nodes=[nodes[order[row]] for row in rows.tolist()],
    )


def _shown_ops(names: list[str], own: Int64s, total: Int64s, options: Options) -> Int64s:
    """Return the rows that are shown: from the first that starts the list to the first that ends it."""
    count = len(names)
    started = matches(options.start_name_regexes, names)
    first = 0 if started is None else int(np.argmax(started)) if started.any() else count
    ended = matches(options.trim_name_regexes, names)
    cut = np.ones(count, np.bool_) if ended is None else ended
    stops = np.flatnonzero(cut & (np.arange(count) >= first))
    last = min([count, first + options.max_depth + 1, *stops[:1].tolist()])
    wanted = (np.arange(count) >= first) & (np.arange(count) < last)
    for attribute in MEASURES:
        wanted &= total[PLACE[attribute]] >= getattr(options, f"min_{attribute}")
    wanted &= own[PLACE["definitions"]] >= options.min_occurrence
    shown, hidden = matches(options.show_name_regexes, names), matches(options.hide_name_regexes, names)
    if shown is not None:
        wanted &= shown
    return np.flatnonzero(wanted & ~hidden if hidden is not None else np.zeros(count, np.bool_))
