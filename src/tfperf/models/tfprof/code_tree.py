"""Nodes by the lines of code that built them: a tree of call stacks."""

from __future__ import annotations

import numpy as np

from tfperf.base.arrays import Bools, Int64s
from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.tree import ROOT, Tree

_LONGEST_FUNCTION = 20
GRADIENT = " (gradient)"


def frame_names(model: Model) -> list[str]:
    """Return the frames as tfprof writes them: file, line and function, a long one cut."""
    stacks = model.stacks
    functions = [name if len(name) < _LONGEST_FUNCTION else f"{name[:17]}..." for name in stacks.functions]
    files = [path.rpartition("/")[2] for path in stacks.files]
    return [f"{file}:{line}:{function}" for file, line, function in zip(files, stacks.lines, functions, strict=True)]


def forward_of(name: str) -> str:
    """Return the node whose gradient the node of this name computes, as its name says; empty if it says nothing."""
    start = name.find("gradients/")
    end = name.find("_grad/", start + 1) if start >= 0 else -1
    return name[start + len("gradients/") : end] if end >= 0 else ""


def code_tree(model: Model, values: Int64s, counts: Bools, *, every: bool) -> tuple[Tree, dict[int, list[int]]]:
    """Return the frames below the frames that call them, and the nodes that the last frame of a stack built.

    These are by `Tree.node`, which numbers the frames; they are the ones that count.

    Nodes of a gradient stand where their forward node does, in frames of their own. Nodes without a stack are left
    out. `every` counts frames too in which no node is built.
    """
    nodes, stack, is_gradient = _stacks_of(model)
    names, frame = _distinct_frames(frame_names(model), model.stacks.frame)
    # Many nodes of gradients may share a stack, which is gone through once.
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
    """Return the nodes that have a stack, whose stack it is, and 1 for those of a gradient."""
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


def _distinct_frames(names: list[str], frame: Int64s) -> tuple[list[str], Int64s]:
    """Return frames by their text: what looks the same is the same."""
    number: dict[str, int] = {}
    index = np.array([number.setdefault(name, len(number)) for name in names], np.int64)
    return [*number], index[frame] if len(index) else frame


def _levels(first: Int64s, length: Int64s, frame: Int64s, odd: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return the tree of all stacks, level by level: parent, frame and level of each entry, and where each stack ends.

    Entries of a level are in order of their first appearance, below each parent too.
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
    """Return entries so that those below one follow it; siblings stay in their order. Parents come before children."""
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
