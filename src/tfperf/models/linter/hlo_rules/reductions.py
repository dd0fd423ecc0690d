"""Rules about reductions: which could run together, and what could be fused into them."""

from __future__ import annotations

from tfperf.models.linter.hlo_graph import PASSED
from tfperf.models.linter.hlo_rules.place import Place
from tfperf.models.linter.padding import MIB
from tfperf.models.linter.rule import Ledger, Violation
from tfperf.models.linter.shared_rules import BATCH_NORM

_LARGEST_BETWEEN = 1000
_ELEMENTWISE = PASSED | frozenset((
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "negate", "abs", "exponential", "log", "power",
    "sqrt", "rsqrt", "tanh", "logistic", "select", "compare", "and", "or", "not", "clamp", "exponential-minus-one",
    "log-plus-one", "sign", "floor", "ceil", "transpose",
))  # fmt: skip


def check_reduction(place: Place, ledger: Ledger) -> None:
    """TPU-RD-1, TPU-RD-2 (TPU-BN-1 in a batch norm) and TPU-RD-3, of reductions that a program asks for."""
    if not place.name:
        return
    ledger.judge(place.instruction.name)
    _check_chain(place, ledger)
    _check_dependent(place, ledger)
    _check_scaled(place, ledger)


def _check_chain(place: Place, ledger: Ledger) -> None:
    reducer = place.node.reducer
    for user in place.graph.readers(place.index):
        after = Place(place.graph, user)
        own = after.name and after.name != place.name and "dot" not in place.name
        if own and after.instruction.opcode == "reduce" and after.node.reducer == reducer:
            ledger.add(
                Violation(
                    rule="TPU-RD-1",
                    level="low",
                    what=f"{reducer} of {reducer}, one after the other",
                    advice="reduce over the dimensions of both at once",
                    unless="what is between them is read elsewhere too",
                    **place.where,
                )
            )


def _check_dependent(place: Place, ledger: Ledger) -> None:
    """Look for a reduction of the same shapes that waits for this one, as the variance waits for the mean."""
    waiting, seen = [place.index], {place.index}
    while waiting:
        for user in place.graph.users[waiting.pop()]:
            place.graph.follow(1)
            if len(seen) >= _LARGEST_BETWEEN:
                return
            if user in seen:
                continue
            seen.add(user)
            after = Place(place.graph, user)
            if after.instruction.opcode == "reduce":
                if _is_alike(place, after):
                    ledger.add(_dependent(place))
                    return
            elif after.instruction.opcode in _ELEMENTWISE:
                waiting.append(user)


def _is_alike(one: Place, other: Place) -> bool:
    """Tell whether two reductions are of the same shapes, kind and name scope."""
    same_shapes = one.operand(0) == other.operand(0) and one.instruction.shape == other.instruction.shape
    return same_shapes and one.node.reducer == other.node.reducer and _scope(one) == _scope(other)


def _scope(place: Place) -> str:
    return place.name.rpartition("/")[0]


def _dependent(place: Place) -> Violation:
    if BATCH_NORM.search(place.name):
        return Violation(
            rule="TPU-BN-1",
            level="medium",
            what="a batch norm of many ops: the variance waits for the mean",
            advice=(
                "use the fused op, tf.raw_ops.FusedBatchNormV3; batch norms of Keras 3 and flax have no such argument"
            ),
            unless="it is written by hand on purpose, or takes little of the step",
            certainty="weak",
            **place.where,
        )
    return Violation(
        rule="TPU-RD-2",
        level="low",
        what=f"one {place.node.reducer} of {place.operand(0)} waits for the other: two passes over it",
        advice="reduce x and x * x in one pass, and compute the second result from both",
        unless="E[x^2] - E[x]^2 loses precision where the mean is large beside the spread",
        **place.where,
    )


def _check_scaled(place: Place, ledger: Ledger) -> None:
    """Look for a factor on the result of a sum, which could be one of its input."""
    users, shape = place.graph.users[place.index], place.instruction.shape
    if len(users) != 1 or place.node.reducer != "add" or shape.is_tuple:
        return
    after = place.graph.nodes[users[0]]
    apart = not place.node.is_fused or after.runs_in != place.node.runs_in
    if after.instruction.opcode in ("multiply", "divide") and apart and shape.bytes >= MIB:
        ledger.add(
            Violation(
                rule="TPU-RD-3",
                level="medium",
                what=f"{after.instruction.opcode} after a sum ({shape}) is not fused into it",
                advice="move a factor that is constant over the reduced dimensions into the sum",
                unless="the factor changes along them, or the product inside costs more than it saves",
                **place.where,
            )
        )
