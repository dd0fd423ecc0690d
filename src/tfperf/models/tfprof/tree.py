"""What a view shows: which rows of a tree, in which order, with which totals.

A tree is its rows in preorder: those below a row follow it, up to where it ends. So the total of a row is a difference
of two running sums, and whether anything below it counts, another one; nothing goes from row to row.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.models.tfprof.attributes import MEASURES, PLACE
from tfperf.models.tfprof.options import Options, matches

ROOT = "_TFProfRoot"


class Tree(Struct, frozen=True, kw_only=True):
    """Rows in preorder, the root first. `own` has a row for each of `ATTRIBUTES`; `node` is -1 for what is no node."""

    names: list[str]
    node: Int64s
    depth: Int64s
    """The root has depth 1."""
    own: Int64s
    accounted: Bools

    def __len__(self) -> int:
        return len(self.depth)

    def only(self, rows: Int64s, depth: Int64s | None = None) -> Tree:
        """Return the tree of these rows, in this order."""
        return Tree(
            names=[self.names[row] for row in rows.tolist()],
            node=self.node[rows],
            depth=self.depth[rows] if depth is None else depth,
            own=self.own[:, rows],
            accounted=self.accounted[rows],
        )


class Rules(Struct, frozen=True, kw_only=True):
    """In what the views with a tree differ."""

    hoists: bool = False
    """A node that does not count leaves its place to what is below it, and takes its own values along."""
    trims_node: bool = False
    """What `trim_name_regexes` match vanishes with all below; elsewhere it stays."""
    judges_own: bool = True
    """`min_params`, `min_float_ops` and `min_occurrence` are compared with own values; the last is else ignored."""
    redoes_totals: bool = True
    """`account_displayed_op_only` works."""


class Shown(Struct, frozen=True, kw_only=True):
    """The rows that are shown, in their order: a tree whose depth is how far a row is indented, and its totals.

    `total` has a row for each of `ATTRIBUTES`, as `own` has.
    """

    tree: Tree
    total: Int64s
    root_total: Int64s
    """Of all that counts, shown or not."""
    built: Mapping[int, list[int]]
    """In the code view, the nodes that a frame built, by `Tree.node`."""


def ends(depth: Int64s) -> Int64s:
    """Return for each row of a tree where the rows below it end."""
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
    """Return the sums of values over each row and all below it."""
    until = np.zeros((*values.shape[:-1], values.shape[-1] + 1), np.int64)
    np.cumsum(values, axis=-1, out=until[..., 1:])
    return until[..., stop] - until[..., :-1]


def _above(marked: Bools, stop: Int64s) -> Int64s:
    """Return for each row how many of the marked rows are above it."""
    rows = np.flatnonzero(marked)
    change = np.bincount(rows + 1, minlength=len(stop) + 1) - np.bincount(stop[rows], minlength=len(stop) + 1)
    return np.cumsum(change)[: len(stop)]


def show(tree: Tree, built: Mapping[int, list[int]], options: Options, rules: Rules) -> Shown:
    """Choose, total and order the rows of a view."""
    tree = _counted(tree, rules)
    stop = ends(tree.depth)
    total = _sums(tree.own, stop)
    root_total = total[:, 0]
    started = _started(tree, stop, options)
    tree, total = tree.only(*started), total[:, started[0]]
    stop = ends(tree.depth)
    visited = _visited(tree, stop, options, rules)
    is_shown = visited & _wanted(tree, total, options, rules)
    is_shown[0] = True
    indent = _above(is_shown, stop)
    rows = np.flatnonzero(is_shown)
    tree, total = tree.only(rows, indent[rows]), total[:, rows]
    stop = ends(tree.depth)
    if options.account_displayed_op_only and rules.redoes_totals:
        total = _sums(tree.own, stop)
        total[PLACE["definitions"], 0] += 1  # the root, which counts itself here
    order = _ordered(tree, total, options, rules)
    return Shown(tree=tree.only(order), total=total[:, order], root_total=root_total, built=built)


def _counted(tree: Tree, rules: Rules) -> Tree:
    """Return the tree of what counts, and of what has such below it, if the view keeps that in its place."""
    counts = tree.accounted.copy()
    counts[0] = True
    stop = ends(tree.depth)
    if rules.hoists:
        rows = np.flatnonzero(counts)
        return tree.only(rows, 1 + _above(counts, stop)[rows])
    return tree.only(np.flatnonzero(_sums(counts.astype(np.int64), stop) > 0))


def _started(tree: Tree, stop: Int64s, options: Options) -> tuple[Int64s, Int64s]:
    """Return the root, the topmost rows that the start is to be, all below them, and their depth from there."""
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


def _visited(tree: Tree, stop: Int64s, options: Options, rules: Rules) -> Bools:
    """Tell which rows are not cut off by trimming."""
    matched = matches(options.trim_name_regexes, tree.names)
    if matched is None:
        matched = np.ones(len(tree), np.bool_)
    if rules.trims_node:
        matched[0] = False
    cut = _above(matched, stop) > 0
    return ~(cut | matched) if rules.trims_node else ~cut


def _wanted(tree: Tree, total: Int64s, options: Options, rules: Rules) -> Bools:
    """Tell which rows are large enough, not too deep, and have a name that is to be shown."""
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
    """Return the rows with siblings in the order that is asked for; equal ones stay in theirs."""
    by_count = options.order_by == "occurrence" and not rules.judges_own
    key = -total[PLACE["definitions"]] if by_count else sort_key(tree.names, total, options.order_by)
    parent = parents(tree.depth)
    order = np.lexsort((np.arange(len(tree)), key, parent))
    size = ends(tree.depth) - np.arange(len(tree))
    # A row stands as far behind its parent as the siblings before it are long.
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
    """Return the row above each row of a tree, -1 for the first."""
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
    """Return what rows are sorted by, ascending: their names, or a total, the largest first."""
    if order_by not in PLACE:
        rank = np.empty(len(names), np.int64)
        rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        return rank
    largest_first: Int64s = -total[PLACE[order_by]]
    return largest_first
