"""Rules about transposes: which of them cost nothing, and which move all data."""

from __future__ import annotations

from collections.abc import Iterator

from tfperf.base.units import format_bytes
from tfperf.models.linter.op_graph import ELEMENTWISE, FORWARD, MATMULS, OPEN, OpGraph
from tfperf.models.linter.padding import MIB, both_orders, shape_text
from tfperf.models.linter.rule import Ledger, Violation

_TRANSPOSES = frozenset(("Transpose", "ConjugateTranspose"))


def check_transposes(graph: OpGraph, ledger: Ledger) -> None:
    """TPU-MM-1, TPU-CV-3, TPU-TR-1 and TPU-TR-2: what each transpose costs."""
    pairs = dict(_pairs(graph))
    undone = {*pairs, *pairs.values()}
    for index in graph.of(_TRANSPOSES):
        name, perm = graph.name_of(index), perm_of(graph, index)
        given, output = graph.input_shape(index, 0), graph.known(index)
        if perm is None or given is None or -1 in given or output is None or sorted(perm) != list(range(len(given))):
            why = "which dimensions it exchanges is computed" if perm is None else OPEN
            ledger.cannot(name, why)
            continue
        ledger.judge(name)
        if index in pairs:
            ledger.add(_pair(graph, index, pairs[index]))
        if index in undone or not _moves(perm, given):
            continue
        if _is_free_beside_product(graph, index, perm):
            ledger.add(_free(graph, index, "TPU-MM-1", "a matrix product reads or writes it as it is"))
        elif _is_free_beside_convolution(graph, index, perm):
            what = "it exchanges batch and features, or the features of a kernel, beside a convolution"
            ledger.add(_free(graph, index, "TPU-CV-3", what))
        else:
            ledger.add(_costly(graph, index, given, output))


def perm_of(graph: OpGraph, index: int) -> list[int] | None:
    """Return the order of dimensions that a transpose makes; None if it is computed."""
    return graph.constant_input(index, 1)


def _moves(perm: list[int], dims: tuple[int, ...]) -> bool:
    """Tell whether data change their order: moving dimensions of size 1 does not."""
    kept = [place for place in perm if dims[place] != 1]
    return kept != sorted(kept)


def _swaps(perm: list[int], one: int, other: int) -> bool:
    """Tell whether a permutation exchanges two dimensions, and leaves the others."""
    expected = list(range(len(perm)))
    expected[one], expected[other] = expected[other], expected[one]
    return one != other and perm == expected


def _is_free_beside_product(graph: OpGraph, index: int, perm: list[int]) -> bool:
    if graph.op(graph.source(index, 0)) in MATMULS:
        return True
    users = [graph.op(user) for user, _ in graph.users(index)]
    into_products = bool(users) and all(op in MATMULS for op in users)
    rank = len(perm)
    return into_products and ("Einsum" in users or (rank > 1 and _swaps(perm, rank - 2, rank - 1)))


def _is_free_beside_convolution(graph: OpGraph, index: int, perm: list[int]) -> bool:
    rank = len(perm)
    source = graph.source(index, 0)
    if graph.op(source) in FORWARD and _swaps(perm, *graph.batch_and_features(source, rank)):
        return True
    users = graph.users(index)
    return bool(users) and all(
        graph.op(user) in FORWARD
        and _swaps(perm, *(graph.batch_and_features(user, rank) if place == 0 else (rank - 2, rank - 1)))
        for user, place in users
    )


def _free(graph: OpGraph, index: int, rule: str, why: str) -> Violation:
    return Violation(
        rule=rule,
        level="info",
        ops=(graph.name_of(index),),
        op_type=graph.op(index),
        what=f"this transpose costs nothing: {why}",
        advice="nothing to change",
        unless="another op reads it too",
    )


def _costly(graph: OpGraph, index: int, given: tuple[int, ...], output: tuple[int, ...]) -> Violation:
    size = graph.element_bytes(index)
    moved = sum(both_orders("", dims, size).padded_bytes for dims in (given, output) if len(dims) > 1)
    return Violation(
        rule="TPU-TR-1",
        level="medium" if moved >= 2 * MIB else "info",
        ops=(graph.name_of(index),),
        op_type=graph.op(index),
        what=(f"{shape_text(given)} becomes {shape_text(output)}: {format_bytes(moved)} are read and written, padded"),
        advice="keep one order of dimensions, or let a product or convolution read the tensor as it is",
        unless="the op after it would be slower in the other order; look at its time in a profile",
        moved_bytes=moved,
    )


def _pairs(graph: OpGraph) -> Iterator[tuple[int, int]]:
    """Yield transposes with one that undoes them, with nothing but elementwise ops of one reader each between."""
    for index in graph.of(_TRANSPOSES):
        perm, at = perm_of(graph, index), index
        while perm is not None:
            users = {user for user, _ in graph.users(at)}
            if len(users) != 1:
                break
            at = users.pop()
            if graph.op(at) in _TRANSPOSES:
                back = perm_of(graph, at)
                if back is not None and len(back) == len(perm) and [perm[place] for place in back] == sorted(perm):
                    yield index, at
                break
            if graph.op(at) not in ELEMENTWISE:
                break


def _pair(graph: OpGraph, index: int, undone_by: int) -> Violation:
    size = graph.element_bytes(index)
    shapes = [dims for each in (index, undone_by) if (dims := graph.known(each)) is not None and len(dims) > 1]
    moved = 2 * sum(both_orders("", dims, size).padded_bytes for dims in shapes)
    return Violation(
        rule="TPU-TR-2",
        level="medium" if moved >= 2 * MIB else "info",
        ops=(graph.name_of(index), graph.name_of(undone_by)),
        op_type=graph.op(index),
        what=f"one transpose undoes the other: {format_bytes(moved)} are read and written for nothing",
        advice="remove both: elementwise ops between them do not care about the order",
        unless="a vector in between is added along a dimension that moves",
        moved_bytes=moved,
    )
