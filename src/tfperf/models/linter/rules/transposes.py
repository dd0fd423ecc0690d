"""Transposes: free ones, and those that move all data."""

from __future__ import annotations

from collections.abc import Iterator

from tfperf.base.units import format_bytes
from tfperf.formats.models.dtypes import shape_text
from tfperf.formats.models.op_graph import OpGraph
from tfperf.models.linter.graph import ELEMENTWISE, FORWARD, MATMULS, OPEN, place
from tfperf.models.linter.padding import MIB, Level, both_orders
from tfperf.models.linter.program import Place
from tfperf.models.linter.rule import BOTH, TPU_NOTES, Ledger, Rule, Topic

_SAYS = "Transposes of operands and results of tf.matmul and tf.conv_n_d can be free; others are not named so."

BESIDE_PRODUCT = Rule(
    id="TPU-MM-1",
    title="Free transpose at a matrix product",
    device="tpu",
    level="info",
    reads=("graph",),
    when="a transpose swaps the last two dimensions and only matrix products read it, or it reads a product",
    advice="nothing to change",
    unless="another op also reads it",
    says="Transposing either operand of tf.matmul, or its result, is effectively free.",
    source=TPU_NOTES,
)
BESIDE_CONVOLUTION = Rule(
    id="TPU-CV-3",
    title="Free transpose at a convolution",
    device="tpu",
    level="info",
    reads=("graph",),
    when=(
        "a transpose swaps only batch and features of an activation or result of a convolution, or the features of "
        "its kernel"
    ),
    advice="nothing to change",
    unless="another op also reads it",
    says="An activation can be transposed freely if only its feature and batch dimensions are exchanged.",
    source=TPU_NOTES,
)
COSTLY = Rule(
    id="TPU-TR-1",
    title="Transpose that moves data",
    device="tpu",
    level="medium, info",
    reads=BOTH,
    when="a transpose that is not free by TPU-MM-1 or TPU-CV-3, and does not only move dimensions of size 1",
    advice="keep one order of dimensions, or let a product or convolution read the tensor directly",
    unless="the next op would be slower with the other order",
    says=_SAYS,
    source=TPU_NOTES,
)
PAIR = Rule(
    id="TPU-TR-2",
    title="Inverse transposes",
    device="tpu",
    level="medium, info",
    reads=("graph",),
    when="a transpose and its inverse, separated only by elementwise ops without other readers",
    advice="remove both",
    unless="an op in between adds a vector along a dimension that moves",
    says=_SAYS,
    source=TPU_NOTES,
)
_TRANSPOSES = frozenset(("Transpose", "ConjugateTranspose"))


def _check_transposes(graph: OpGraph, ledger: Ledger) -> None:
    pairs = dict(_pairs(graph))
    undone = {*pairs, *pairs.values()}
    for index in graph.of(_TRANSPOSES):
        name, perm, where = graph.name_of(index), perm_of(graph, index), place(graph, index)
        given, output = graph.input_shape(index, 0), graph.known(index)
        if perm is None or given is None or -1 in given or output is None or sorted(perm) != list(range(len(given))):
            ledger.cannot(name, "the permutation is computed at run time" if perm is None else OPEN)
            continue
        ledger.judge(name)
        if index in pairs:
            shapes = [dims for each in (index, pairs[index]) if (dims := graph.known(each)) is not None]
            moved = 2 * _bytes(graph, index, *shapes)
            ledger.add(
                PAIR.found(
                    place(graph, index, pairs[index]),
                    _level(moved),
                    f"one transpose reverts the other: {format_bytes(moved)} are read and written unnecessarily",
                    advice="remove both: elementwise ops between them do not depend on the order",
                    moved_bytes=moved,
                )
            )
        kept = [at for at in perm if given[at] != 1]
        if index in undone or kept == sorted(kept):  # moving dimensions of size 1 moves no data
            continue
        if _is_free_beside_product(graph, index, perm):
            what = "this transpose is free: a matrix product reads or writes it directly"
            ledger.add(BESIDE_PRODUCT.found(where, "info", what))
        elif _is_free_beside_convolution(graph, index, perm):
            what = "it swaps batch and features, or the features of a kernel, at a convolution"
            ledger.add(BESIDE_CONVOLUTION.found(where, "info", f"this transpose is free: {what}"))
        else:
            moved = _bytes(graph, index, given, output)
            becomes = f"{shape_text(given)} becomes {shape_text(output)}"
            what = f"{becomes}: {format_bytes(moved)} are read and written, padded"
            unless = f"{COSTLY.unless}; check its time in a profile"
            ledger.add(COSTLY.found(where, _level(moved), what, unless=unless, moved_bytes=moved))


def _bytes(graph: OpGraph, index: int, *shapes: tuple[int, ...]) -> int:
    size = graph.element_bytes(index)
    return sum(both_orders("", dims, size).padded_bytes for dims in shapes if len(dims) > 1)


def _level(moved: int) -> Level:
    return "medium" if moved >= 2 * MIB else "info"


def perm_of(graph: OpGraph, index: int) -> list[int] | None:
    """Return the permutation of a transpose; None if it is computed."""
    return graph.constant_input(index, 1)


def _pairs(graph: OpGraph) -> Iterator[tuple[int, int]]:
    """Yield pairs of transposes that cancel out, with only single-reader elementwise ops between them."""
    for index in graph.of(_TRANSPOSES):
        perm, at = perm_of(graph, index), index
        while perm is not None:
            users = {user for user, _ in graph.users(at)}
            if len(users) != 1:
                break
            at = users.pop()
            if graph.op(at) in _TRANSPOSES:
                back = perm_of(graph, at)
                if back is not None and len(back) == len(perm) and [perm[each] for each in back] == sorted(perm):
                    yield index, at
                break
            if graph.op(at) not in ELEMENTWISE:
                break


def _swaps(perm: list[int], one: int, other: int) -> bool:
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
        and _swaps(perm, *(graph.batch_and_features(user, rank) if at == 0 else (rank - 2, rank - 1)))
        for user, at in users
    )


def _check_instruction(at: Place, ledger: Ledger) -> None:
    """Check a transpose only in TPU layouts, which are tiled."""
    shape = at.instruction.shape
    if not shape.tiles or at.node.is_fused or not at.name or "conv" in at.name:
        return
    ledger.judge(at.instruction.name)
    if shape.bytes >= MIB:
        moved = 2 * shape.bytes
        what = f"{format_bytes(moved)} are read and written; the result is {shape}"
        ledger.add(COSTLY.found(at.where, "medium", what, moved_bytes=moved))


TOPIC = Topic(
    rules=(BESIDE_PRODUCT, BESIDE_CONVOLUTION, COSTLY, PAIR),
    check_graph=(_check_transposes,),
    check_program={"transpose": _check_instruction, "copy": _check_instruction},
)
