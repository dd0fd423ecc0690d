"""Rules about reductions: which could run together, and what could be fused into them."""

from __future__ import annotations

from collections.abc import Iterator

from tfperf.models.linter.graph_rules.batch_norms import batch_norm_scopes
from tfperf.models.linter.op_graph import ELEMENTWISE, OPEN, REDUCTIONS, OpGraph
from tfperf.models.linter.padding import MIB, Dims, shape_text
from tfperf.models.linter.rule import Ledger, Violation

_LARGEST_BETWEEN = 1000
_SCALES = ("Mul", "RealDiv", "Div")
_CAVEAT = "E[x^2] - E[x]^2 loses precision where the mean is large beside the spread"


def check_reductions(graph: OpGraph, ledger: Ledger) -> None:
    """TPU-RD-1 to TPU-RD-3."""
    norms = tuple(f"{scope}/" if scope else "" for scope in batch_norm_scopes(graph))
    for index in graph.of(REDUCTIONS):
        if graph.constant(index) is not None:
            continue  # a number of a shape, which is known before the program runs
        if graph.known(index) is None or -1 in (graph.input_shape(index, 0) or (-1,)):
            ledger.cannot(graph.name_of(index), OPEN)
            continue
        ledger.judge(graph.name_of(index))
        _check_chain(graph, ledger, index)
        if not graph.name_of(index).startswith(norms):
            _check_dependent(graph, ledger, index)
        _check_scaled(graph, ledger, index)
    _check_parallel(graph, ledger)


def _check_chain(graph: OpGraph, ledger: Ledger, index: int) -> None:
    users = graph.users(index)
    if len(users) != 1 or graph.op(users[0][0]) != graph.op(index) or users[0][1] != 0 or _is_scalar(graph, index):
        return
    after = users[0][0]
    ledger.add(
        Violation(
            rule="TPU-RD-1",
            level="low",
            ops=(graph.name_of(index), graph.name_of(after)),
            op_type=graph.op(index),
            what=(
                f"{graph.op(index)} of {graph.op(after)}, one after the other: {_shape(graph, index, 0)} to "
                f"{shape_text(graph.known(index) or ())} to {shape_text(graph.shape(after) or ())}"
            ),
            advice="reduce over the dimensions of both at once",
            unless="what is between them is read elsewhere too",
            certainty="exact",
        )
    )


def _is_scalar(graph: OpGraph, index: int) -> bool:
    return all(size == 1 for size in graph.shape(index) or ())


def _shape(graph: OpGraph, index: int, place: int) -> str:
    return shape_text(graph.input_shape(index, place) or ())


def _check_dependent(graph: OpGraph, ledger: Ledger, index: int) -> None:
    """A reduction that waits for another of the same shapes, as the variance waits for the mean."""
    given, output = graph.input_shape(index, 0), graph.known(index)
    for after in _later_reductions(graph, index, given):
        if graph.op(after) == graph.op(index) and graph.known(after) == output:
            ledger.add(
                Violation(
                    rule="TPU-RD-2",
                    level="low",
                    ops=(graph.name_of(index), graph.name_of(after)),
                    op_type=graph.op(index),
                    what=f"one {graph.op(index)} of {shape_text(given or ())} waits for the other: two passes over it",
                    advice="reduce x and x * x in one pass, and compute the second result from both",
                    unless=_CAVEAT,
                )
            )


def _later_reductions(graph: OpGraph, index: int, given: Dims | None) -> Iterator[int]:
    """Yield reductions of a tensor of this shape that depend on one through elementwise ops only."""
    waiting, seen = [index], {index}
    while waiting:
        for user, _ in graph.users(waiting.pop()):
            if len(seen) >= _LARGEST_BETWEEN:
                return
            if user in seen:
                continue
            seen.add(user)
            if graph.op(user) in REDUCTIONS:
                if graph.input_shape(user, 0) == given and given is not None and -1 not in given:
                    yield user
            elif graph.op(user) in ELEMENTWISE and "Grad" not in graph.op(user):
                waiting.append(user)


def _check_parallel(graph: OpGraph, ledger: Ledger) -> None:
    together: dict[tuple[int, Dims], list[int]] = {}
    for index in graph.of(REDUCTIONS):
        output = graph.known(index)
        if output is not None:
            together.setdefault((graph.source(index, 0), output), []).append(index)
    for found in together.values():
        if len(found) > 1:
            ledger.add(
                Violation(
                    rule="TPU-RD-2",
                    level="info",
                    ops=tuple(map(graph.name_of, found)),
                    op_type=graph.op(found[0]),
                    what=f"{len(found)} reductions of {_shape(graph, found[0], 0)} run in parallel, in one fusion",
                    advice="nothing to change",
                    unless=_CAVEAT,
                )
            )


def _check_scaled(graph: OpGraph, ledger: Ledger, index: int) -> None:
    """A factor on the result of a sum, which could be one of its input."""
    users = graph.users(index)
    if graph.op(index) != "Sum" or len(users) != 1 or graph.op(users[0][0]) not in _SCALES:
        return
    user, place = users[0]
    if place and graph.op(user) != "Mul":
        return
    output = graph.known(index) or ()
    is_large = _bytes(output, graph.element_bytes(index)) >= MIB
    factor = graph.input_shape(user, 1 - place)
    if factor is None or not (_is_ones(factor) or factor == output):
        return
    ledger.add(
        Violation(
            rule="TPU-RD-3",
            level="medium" if is_large else "info",
            ops=(graph.name_of(index), graph.name_of(user)),
            op_type="Sum",
            what=f"{graph.op(user)} after Sum ({shape_text(output)}) is not fused into it: sums fuse their inputs",
            advice=f"write {'sum(x * y)' if graph.op(user) == 'Mul' else 'sum(x / y)'}, with y in the dimensions of x",
            unless="the result is small: the product inside is of all elements, and costs more than it saves",
        )
    )


def _is_ones(dims: Dims) -> bool:
    return all(size == 1 for size in dims)


def _bytes(dims: Dims, element_bytes: int) -> int:
    count = element_bytes
    for size in dims:
        count *= size
    return count
