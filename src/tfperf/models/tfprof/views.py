"""The views of a model: trees by name scope, graph and line of code, and the list of op types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.base.units import without_middle
from tfperf.formats.models.input_file import TfprofInputError
from tfperf.models.tfprof.model import Model, typed
from tfperf.models.tfprof.options import ATTRIBUTES, MEASURES, PLACE, Options, matches

ROOT = "_TFProfRoot"


class Tree(Struct, frozen=True, kw_only=True):
    """Rows in preorder, the root first. `own` has a row per entry of `ATTRIBUTES`; `node` is -1 for other rows."""

    names: list[str]
    node: Int64s
    depth: Int64s  # the root has depth 1
    own: Int64s
    accounted: Bools

    def __len__(self) -> int:
        return len(self.depth)

    def only(self, rows: Int64s, depth: Int64s | None = None) -> Tree:
        """Return the tree of these rows in this order."""
        return Tree(
            names=[self.names[row] for row in rows.tolist()],
            node=self.node[rows],
            depth=self.depth[rows] if depth is None else depth,
            own=self.own[:, rows],
            accounted=self.accounted[rows],
        )


class Rules(Struct, frozen=True, kw_only=True):
    """Differences between the tree views."""

    hoists: bool = False
    """A node that is not counted is replaced by its children, and its own values are dropped."""
    trims_node: bool = False
    """`trim_name_regexes` removes the matching node with its subtree; otherwise the node stays."""
    judges_own: bool = True
    """`min_params`, `min_float_ops` and `min_occurrence` apply to own values; otherwise the last is ignored."""
    redoes_totals: bool = True  # whether `account_displayed_op_only` has an effect


class Shown(Struct, frozen=True, kw_only=True):
    """The displayed rows; depth is the indentation. `total` has a row per entry of `ATTRIBUTES`, like `own`."""

    tree: Tree
    total: Int64s
    root_total: Int64s  # of all counted nodes, shown or not
    built: Mapping[int, list[int]]
    """In the code view, the nodes that each frame built, by `Tree.node`."""


def ends(depth: Int64s) -> Int64s:
    """Return the end of each row's subtree."""
    stop = np.empty(len(depth), np.int64)
    open_rows: list[int] = []
    levels = depth.tolist()
    for row, level in enumerate(levels):
        while open_rows and levels[open_rows[-1]] >= level:
            stop[open_rows.pop()] = row
        open_rows.append(row)
    stop[open_rows] = len(depth)
    return stop


def _sums(values: Int64s, stop: Int64s) -> Int64s:
    until = np.zeros((*values.shape[:-1], values.shape[-1] + 1), np.int64)
    np.cumsum(values, axis=-1, out=until[..., 1:])
    return until[..., stop] - until[..., :-1]


def _above(marked: Bools, stop: Int64s) -> Int64s:
    """Return the number of marked ancestors of each row."""
    rows = np.flatnonzero(marked)
    change = np.bincount(rows + 1, minlength=len(stop) + 1) - np.bincount(stop[rows], minlength=len(stop) + 1)
    return np.cumsum(change)[: len(stop)]


def show(tree: Tree, built: Mapping[int, list[int]], options: Options, rules: Rules) -> Shown:
    """Select, total and order the rows of a view."""
    tree = _counted(tree, rules)
    stop = ends(tree.depth)
    total = _sums(tree.own, stop)
    root_total = total[:, 0]
    started = _started(tree, stop, options)
    tree, total = tree.only(*started), total[:, started[0]]
    stop = ends(tree.depth)
    matched = matches(options.trim_name_regexes, tree.names)
    if matched is None:
        matched = np.ones(len(tree), np.bool_)
    if rules.trims_node:
        matched[0] = False
    cut = _above(matched, stop) > 0
    visited = ~(cut | matched) if rules.trims_node else ~cut
    is_shown = visited & _wanted(tree, total, options, rules)
    is_shown[0] = True
    indent = _above(is_shown, stop)
    rows = np.flatnonzero(is_shown)
    tree, total = tree.only(rows, indent[rows]), total[:, rows]
    stop = ends(tree.depth)
    if options.account_displayed_op_only and rules.redoes_totals:
        total = _sums(tree.own, stop)
        total[PLACE["definitions"], 0] += 1  # the root counts itself here
    order = _ordered(tree, total, options, rules)
    return Shown(tree=tree.only(order), total=total[:, order], root_total=root_total, built=built)


def _counted(tree: Tree, rules: Rules) -> Tree:
    """Return the counted nodes, and their uncounted ancestors if the view keeps these."""
    counts = tree.accounted.copy()
    counts[0] = True
    stop = ends(tree.depth)
    if rules.hoists:
        rows = np.flatnonzero(counts)
        return tree.only(rows, 1 + _above(counts, stop)[rows])
    return tree.only(np.flatnonzero(_sums(counts.astype(np.int64), stop) > 0))


def _started(tree: Tree, stop: Int64s, options: Options) -> tuple[Int64s, Int64s]:
    """Return the root, the topmost rows that match the start, their subtrees, and depths relative to the start."""
    matched = matches(options.start_name_regexes, tree.names)
    if matched is None:
        return np.arange(len(tree)), tree.depth
    matched[0] = False
    starts = np.flatnonzero(matched & (_above(matched, stop) == 0))
    inside = np.zeros(len(tree) + 1, np.int64)
    np.add.at(inside, starts, 1)
    np.add.at(inside, stop[starts], -1)
    keep = np.cumsum(inside)[:-1] > 0
    start = np.full(len(tree), -1, np.int64)
    start[starts] = starts
    start = np.maximum.accumulate(start)
    depth = np.where(keep, tree.depth - tree.depth[np.maximum(start, 0)] + 2, 1)
    keep[0] = True
    rows = np.flatnonzero(keep)
    return rows, depth[rows]


def _wanted(tree: Tree, total: Int64s, options: Options, rules: Rules) -> Bools:
    """Return which rows pass the minima, the maximum depth and the name filters."""
    wanted = tree.depth <= options.max_depth
    for name in MEASURES:
        least = getattr(options, f"min_{name}")
        values = tree.own if rules.judges_own and name in ("params", "float_ops") else total
        if least > 0:
            wanted &= values[PLACE[name]] >= least
    if rules.judges_own and options.min_occurrence > 0:
        wanted &= tree.own[PLACE["runs"]] >= options.min_occurrence
    shown = matches(options.show_name_regexes, tree.names)
    hidden = matches(options.hide_name_regexes, tree.names)
    if shown is not None:
        wanted &= shown
    return wanted & ~hidden if hidden is not None else np.zeros(len(tree), np.bool_)


def _ordered(tree: Tree, total: Int64s, options: Options, rules: Rules) -> Int64s:
    """Return the rows with siblings in the requested order; ties keep their order."""
    by_count = options.order_by == "occurrence" and not rules.judges_own
    key = -total[PLACE["definitions"]] if by_count else sort_key(tree.names, total, options.order_by)
    parent = parents(tree.depth)
    order = np.lexsort((np.arange(len(tree)), key, parent))
    size = ends(tree.depth) - np.arange(len(tree))
    # The offset of a row from its parent is the total size of the siblings before it.
    before = np.cumsum(size[order]) - size[order]
    first = np.concatenate(([True], parent[order][1:] != parent[order][:-1]))
    before -= np.maximum.accumulate(np.where(first, before, 0))
    shift = np.empty(len(tree), np.int64)
    shift[order] = before + 1
    place = np.zeros(len(tree), np.int64)
    for row, above in enumerate(parent.tolist()):
        place[row] = place[above] + shift[row] if above >= 0 else 0
    result = np.empty(len(tree), np.int64)
    result[place] = np.arange(len(tree))
    return result


def parents(depth: Int64s) -> Int64s:
    """Return the parent of each row of a tree, -1 for the first."""
    above = np.full(len(depth), -1, np.int64)
    last: list[int] = []
    levels = depth.tolist()
    for row, level in enumerate(levels):
        while last and levels[last[-1]] >= level:
            last.pop()
        if last:
            above[row] = last[-1]
        last.append(row)
    return above


def sort_key(names: list[str], total: Int64s, order_by: str) -> Int64s:
    """Return ascending sort keys: names, or totals in descending order."""
    if order_by not in PLACE:
        rank = np.empty(len(names), np.int64)
        rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        return rank
    largest_first: Int64s = -total[PLACE[order_by]]
    return largest_first


View = Literal["scope", "graph", "op", "code"]
_MOST_LETTERS = 1 << 27
"""Limit for the names of all scopes together, because a name with a million slashes has a million scopes."""
SCOPE_TYPE = "_kTFScopeParent"  # type of a name scope that is not a node itself
RULES: Mapping[str, Rules] = {
    "scope": Rules(),
    "graph": Rules(hoists=True),
    "code": Rules(trims_node=True, judges_own=False, redoes_totals=False),
}


def accounted(model: Model, options: Options) -> Bools:
    """Return which nodes count: those with a requested type. Device names are matched case-insensitively."""
    devices = {*model.device}
    either = [place for place, text in enumerate(model.types) if text in devices]
    matched = matches(options.account_type_regexes, model.types, ignore_case=either)
    return np.ones(len(model.names), np.bool_) if matched is None else typed(model, matched)


def show_tree(model: Model, view: View, options: Options, values: Int64s | None = None) -> Shown:
    """Return the scope, graph or code view; `values` replace the values of the model."""
    return show(*whole_tree(model, view, options, values), options, RULES[view])


def whole_tree(
    model: Model, view: View, options: Options, values: Int64s | None = None
) -> tuple[Tree, Mapping[int, list[int]]]:
    """Return all rows of the scope, graph or code view, shown or not, and `Shown.built`."""
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
    """Return the nodes by name scope; scopes that are not nodes are added."""
    node = {name: number for number, name in enumerate(model.names)}
    letters = 0
    for name in model.names:
        end = name.rfind("/")
        while end >= 0 and (scope := name[:end]) not in node:
            node[scope] = -1
            end = scope.rfind("/")
            letters += len(scope)
            if letters > _MOST_LETTERS:
                raise TfprofInputError(f"the scopes of {without_middle(name, 60)!r} are nested too deep")
    names = sorted(node, key=_scope_key)
    depth = [name.count("/") + 2 for name in names]
    return _tree(names, [node[name] for name in names], depth, (values, counts))


def _scope_key(name: str) -> str:
    r"""Return a key that sorts a scope before its members, and these before the next scope.

    "/" must sort before any other character: it becomes `\0`, and two characters that start with `\1` encode `\0` and
    `\1`.
    """
    return name.replace("\1", "\1\1").replace("\0", "\1\0").replace("/", "\0")


def graph_tree(model: Model, values: Int64s, counts: Bools) -> Tree:
    """Return each node below the first node that it feeds, in depth-first order from the nodes without consumers."""
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
    """Return a tree with its own root; rows that are not nodes have values of 0 and count as one."""
    values, counts = of
    node = np.array([-1, *nodes], np.int64)
    own = (
        np.where(node >= 0, values[:, np.maximum(node, 0)], 0) if len(counts) else np.zeros((len(values), 1), np.int64)
    )
    own[PLACE["definitions"], 1:] = 1
    is_accounted = (node >= 0) & counts[np.maximum(node, 0)] if len(counts) else node >= 0
    return Tree(names=[ROOT, *names], node=node, depth=np.array([1, *depth], np.int64), own=own, accounted=is_accounted)


class ShownOps(Struct, frozen=True, kw_only=True):
    """The displayed op types in order; each total includes all later rows.

    `own` and `total` have a row per entry of `ATTRIBUTES`. `nodes` are the counted nodes of a type.
    """

    names: list[str]
    own: Int64s
    total: Int64s
    root_total: Int64s
    all_total: Int64s  # of all counted nodes, shown or not
    nodes: list[Int64s]


def show_ops(model: Model, options: Options, values: Int64s | None = None) -> ShownOps:
    """Return the op view; `values` replace the values of the model."""
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
    """Return the displayed rows, from the first match of the start to the first trimmed one."""
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


_LONGEST_FUNCTION = 20
GRADIENT = " (gradient)"


def frame_names(model: Model) -> list[str]:
    """Return the frames in tfprof's format: file, line and function, truncated if long."""
    stacks = model.stacks
    functions = [name if len(name) < _LONGEST_FUNCTION else f"{name[:17]}..." for name in stacks.functions]
    files = [path.rpartition("/")[2] for path in stacks.files]
    return [f"{file}:{line}:{function}" for file, line, function in zip(files, stacks.lines, functions, strict=True)]


def forward_of(name: str) -> str:
    """Return the forward node whose gradient this node computes, based on its name; empty if there is none."""
    start = name.find("gradients/")
    end = name.find("_grad/", start + 1) if start >= 0 else -1
    return name[start + len("gradients/") : end] if end >= 0 else ""


def code_tree(model: Model, values: Int64s, counts: Bools, *, every: bool) -> tuple[Tree, dict[int, list[int]]]:
    """Return the frames below their callers, and the nodes that the last frame of a stack built.

    These are counted nodes, by `Tree.node`, which numbers the frames. Nodes of a gradient are below the frames of their
    forward node, in frames of their own. Nodes without a stack are left out. `every` also counts frames that build no
    node.
    """
    nodes, stack, is_gradient = _stacks_of(model)
    # Frames with the same text are merged.
    number_of: dict[str, int] = {}
    index = np.array([number_of.setdefault(name, len(number_of)) for name in frame_names(model)], np.int64)
    names, frame = [*number_of], index[model.stacks.frame] if len(index) else model.stacks.frame
    # Many gradient nodes may share a stack, which is traversed once.
    _, row, place = np.unique(2 * stack + is_gradient, return_index=True, return_inverse=True)
    rows = np.sort(row)
    first, length = model.stacks.ends[stack[rows]], np.diff(model.stacks.ends)[stack[rows]]
    parent, text, level, leaf = _levels(first, length, frame * 2, is_gradient[rows])
    leaf = leaf[np.argsort(np.argsort(row))[place.reshape(-1)]]
    own = np.zeros((len(values), len(parent)), np.int64)
    built = counts[nodes]
    for row, of in zip(own, values[:, nodes], strict=True):
        np.add.at(row, leaf[built], of[built])
    accounted = np.full(len(parent), every)
    accounted[leaf[built]] = True
    order = _preorder(parent)
    shown = [names[number // 2] + GRADIENT * (number % 2) for number in text[order].tolist()]
    built_in: dict[int, list[int]] = {}
    for node, entry in zip(nodes[built].tolist(), leaf[built].tolist(), strict=True):
        built_in.setdefault(entry, []).append(node)
    tree = Tree(
        names=[ROOT, *shown],
        node=np.concatenate(([-1], order)),
        depth=np.concatenate(([1], level[order] + 2)),
        own=np.concatenate((np.zeros((len(values), 1), np.int64), own[:, order]), axis=1),
        accounted=np.concatenate(([False], accounted[order])),
    )
    return tree, built_in


def _stacks_of(model: Model) -> tuple[Int64s, Int64s, Int64s]:
    """Return the nodes with a stack, the node that owns the stack, and 1 for gradient nodes."""
    place = {name: number for number, name in enumerate(model.names)}
    has_stack = np.diff(model.stacks.ends) > 0
    found: list[tuple[int, int, int]] = []
    for node in np.flatnonzero(has_stack).tolist():
        name = model.names[node]
        forward = forward_of(name) if "gradients/" in name and "_grad/" in name else ""
        if "gradients/" in name and "_grad/" in name:
            of = place.get(forward, -1)
            if of >= 0 and has_stack[of]:
                found.append((node, of, 1))
        else:
            found.append((node, node, 0))
    nodes, stack, is_gradient = np.array(found, np.int64).reshape(-1, 3).T
    return nodes, stack, is_gradient


def _levels(first: Int64s, length: Int64s, frame: Int64s, odd: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return the tree of all stacks by level: parent, frame and level of each entry, and the end of each stack.

    Entries of a level, and children of a parent, are in order of their first appearance.
    """
    at = np.full(len(first), -1, np.int64)
    parents, texts, levels = [], [], []
    count, several = 0, int(frame.max(initial=0)) + 2
    for level in range(int(length.max(initial=0))):
        rows = np.flatnonzero(length > level)
        text = frame[first[rows] + level] + odd[rows]
        key = (at[rows] + 1) * several + text
        _, index, place = np.unique(key, return_index=True, return_inverse=True)
        order = np.argsort(index)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        parents.append(at[rows][index[order]])
        texts.append(text[index[order]])
        levels.append(np.full(len(order), level, np.int64))
        at[rows] = count + rank[place.reshape(-1)]
        count += len(order)
    none = np.zeros(0, np.int64)
    return (np.concatenate([none, *parents]), np.concatenate([none, *texts]), np.concatenate([none, *levels]), at)


def _preorder(parent: Int64s) -> Int64s:
    """Return entries in preorder with siblings in their order; requires parents before children."""
    children: list[list[int]] = [[] for _ in range(len(parent) + 1)]
    for entry, above in enumerate(parent.tolist()):
        children[above + 1].append(entry)
    order: list[int] = []
    waiting = children[0][::-1]
    while waiting:
        entry = waiting.pop()
        order.append(entry)
        waiting += children[entry + 1][::-1]
    return np.array(order, np.int64)
