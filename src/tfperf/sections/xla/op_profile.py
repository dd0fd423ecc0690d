"""The op profile: programs, their categories (or scopes) and HLO ops as a tree of device time.

The columns of a node add up its HLO ops. Rates are over the ops whose operations or bytes are known. Wasted time is the
time of an op beyond the roofline: time x (1 - share of the roofline), over the ops with a known roofline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from tfperf.analysis.registry import By
from tfperf.base.units import PS_PER_MS
from tfperf.formats.wire.event_columns import unsigned
from tfperf.report.flame_tree import flame_tree, widest
from tfperf.sections.ops.groups import NO_SCOPE, without_transforms
from tfperf.sections.roofline.bounds import Work
from tfperf.sections.xla.analysis import Xla
from tfperf.sections.xla.instructions import HloOp

OUTSIDE = "(outside XLA programs)"
"""Node of all device work that belongs to no HLO op: copies, and kernels of other libraries and of TensorFlow."""
_SHOWN_ROWS, _SHOWN_SHARE = 24, 0.001

Path = tuple[str, ...]


class Node(Struct, kw_only=True):
    """Sums of a node of the tree; times in picoseconds, those of `known` parts included in `time_ps`."""

    depth: int
    name: str
    kind: str
    path: Path
    op: HloOp | None = None
    """The HLO op of a leaf."""
    ops: int = 0
    time_ps: int = 0
    recomputed_ps: int = 0
    flops: float = 0.0
    flops_ps: int = 0
    bytes: float = 0.0
    bytes_ps: int = 0
    wasted_ps: float = 0.0
    judged_ps: int = 0

    def add(self, op: HloOp, work: Work | None, roof: float | None) -> None:
        """Add an HLO op with its work and its share of the roofline in percent."""
        self.ops += 1
        self.time_ps += op.time_ps
        self.recomputed_ps += op.time_ps * op.is_recomputed
        if work is None:
            return
        if work.flops is not None:
            self.flops += work.flops
            self.flops_ps += op.time_ps
        if work.bytes is not None:
            self.bytes += work.bytes
            self.bytes_ps += op.time_ps
        if roof is not None and not work.is_least:
            self.wasted_ps += op.time_ps * (1.0 - min(roof, 100.0) / 100.0)
            self.judged_ps += op.time_ps


def op_profile(xla: Xla, by: By) -> tuple[Node, ...]:
    """Return the tree by category, or with `by` scope or layer by the names of framework ops.

    Nodes are in preorder, siblings by time.
    """
    names: Counter[str] = Counter(module.module for module in xla.modules)
    nodes: dict[Path, Node] = {}
    for op, judged in zip(xla.ops, xla.judged, strict=True):
        program = op.module or "(unknown program)"
        if names[op.module] > 1 and op.program_id is not None:
            program = f"{program} ({unsigned(op.program_id)})"
        groups = tuple(_groups(op, by))
        leaf = (program, *groups, f"{op.op} {op.shape}" if (program, *groups, op.op) in nodes else op.op)
        work, roof = op.work, judged.roofline_percent
        for depth in range(len(leaf)):
            path = leaf[: depth + 1]
            is_leaf = depth == len(leaf) - 1
            kind = "op" if is_leaf else "program" if not depth else by if by in ("scope", "layer") else "category"
            if path not in nodes:
                name = op.op if is_leaf else path[-1]
                nodes[path] = Node(depth=depth, name=name, kind=kind, path=path, op=op if is_leaf else None)
            nodes[path].add(op, work, roof)
    outside_ps = 0 if xla.place == "cpu" else xla.whole_ps - sum(op.time_ps for op in xla.ops)
    if outside_ps > 0:
        nodes[OUTSIDE,] = Node(depth=0, name=OUTSIDE, kind="outside", path=(OUTSIDE,), time_ps=outside_ps)
    leaves = {path: node.time_ps for path, node in nodes.items() if node.kind in ("op", "outside")}
    tree = flame_tree(leaves)
    return tuple(nodes[stack] for stack in tree.stacks[1:] if stack in nodes)


def longest_rows(total_ms: Sequence[float], whole_ps: int) -> tuple[int, ...]:
    """Return the rows of the longest nodes and of those around them, which people get."""
    time_ps = np.rint(np.array(total_ms) * PS_PER_MS).astype(np.int64)
    return tuple(widest(np.where(time_ps < _SHOWN_SHARE * whole_ps, 0, time_ps), _SHOWN_ROWS).tolist())


def _groups(op: HloOp, by: By) -> Iterator[str]:
    if by == "scope":
        # JAX begins names with its jitted functions: jit(step)/jit(main)/.
        scopes = [
            scope for scope in without_transforms(op.framework_op).split("/")[:-1] if not scope.startswith("jit(")
        ]
        yield from scopes or (NO_SCOPE,)
    elif by == "layer":
        yield op.layer or NO_SCOPE
    else:
        yield op.category or "(unknown category)"
