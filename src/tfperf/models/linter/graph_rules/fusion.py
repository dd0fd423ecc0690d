"""Rules about what is fused into matrix products and convolutions."""

from __future__ import annotations

from tfperf.models.linter.op_graph import ACTIVATIONS, CONVOLUTIONS, ELEMENTWISE, FORWARD, MATMULS, REDUCTIONS, OpGraph
from tfperf.models.linter.rule import Ledger, Violation

_BIAS = ("BiasAdd", "AddV2", "Add")
_FUSES_INPUT = MATMULS | CONVOLUTIONS | ELEMENTWISE | frozenset(REDUCTIONS)
"""Ops that compute an elementwise op again as they read it: it need not be stored for them."""


def check_fusion(graph: OpGraph, ledger: Ledger) -> None:
    """TPU-MM-2 and TPU-CV-4: whether bias and activation are fused into what they follow."""
    for group, rule in ((MATMULS, "TPU-MM-2"), (FORWARD, "TPU-CV-4")):
        for index in graph.of(group):
            chain = _chain(graph, index)
            if not chain:
                continue
            ledger.judge(graph.name_of(index))
            blocking = [user for link in chain[:-1] for user in _readers(graph, link) if not _fuses(graph, user)]
            names = tuple(graph.name_of(link) for link in chain)
            fused = ", ".join(graph.op(link) for link in chain[1:])
            if blocking:
                level, what = "low", f"{graph.op(blocking[0])} reads the result before {fused}: it is stored twice"
                advice = f"let {graph.name_of(blocking[0])} read what comes after {names[-1]}, if the model allows it"
            else:
                level, what = "info", f"{fused} will be fused into {graph.op(index)}"
                advice = "nothing to change: do not write it as one op by hand"
            ledger.add(
                Violation(
                    rule=rule,
                    level="low" if level == "low" else "info",
                    ops=names,
                    op_type=graph.op(index),
                    what=what,
                    advice=advice,
                    unless="the compiler may fuse less where a result is used far away",
                )
            )


def _chain(graph: OpGraph, index: int) -> list[int]:
    """Return a product, its bias if there is one, and the activation; nothing without an activation."""
    chain = [index]
    for _ in range(2):
        users = _readers(graph, chain[-1])
        activation = next((user for user in users if graph.op(user) in ACTIVATIONS), None)
        if activation is not None:
            return [*chain, activation]
        bias = next((user for user in users if graph.op(user) in _BIAS and _has_vector(graph, user)), None)
        if bias is None or bias in chain:
            return []
        chain.append(bias)
    return []


def _readers(graph: OpGraph, index: int) -> list[int]:
    """Return who reads a result, also through a reshape that keeps its last dimension, which is none on a device."""
    found = []
    for user, _ in graph.users(index):
        before, after = graph.shape(index), graph.shape(user)
        keeps = graph.op(user) == "Reshape" and before and after and before[-1] == after[-1] != -1
        found += [each for each, _ in graph.users(user)] if keeps else [user]
    return found


def _has_vector(graph: OpGraph, index: int) -> bool:
    """Tell whether one of the inputs has at most one dimension that is not 1: a bias."""
    shapes = [graph.input_shape(index, place) for place in range(len(graph.nodes[index].inputs))]
    return any(dims is not None and sum(size != 1 for size in dims) <= 1 for dims in shapes)


def _fuses(graph: OpGraph, index: int) -> bool:
    return graph.op(index) in _FUSES_INPUT or graph.op(index) in ("Shape", "ShapeN", "Size", "Rank")
