"""The rule about matrix products: what their operands and results are rounded up to."""

from __future__ import annotations

from tfperf.models.linter.hlo_rules.place import Place, element_bytes
from tfperf.models.linter.padding import Dims, both_orders
from tfperf.models.linter.rule import Ledger
from tfperf.models.linter.shared_rules import PRODUCTS


def check_product(place: Place, ledger: Ledger) -> None:
    """TPU-MM-3."""
    dot, result = place.instruction.dot, place.instruction.shape
    left, right = place.operand(0), place.operand(1)
    if dot is None or left is None or right is None:
        return
    ledger.judge(place.instruction.name)
    tensors = [
        both_orders(role, dims, element_bytes(shape))
        for role, shape, dims in (
            ("first operand", left, _batches_first(left.dims, dot.lhs_batch)),
            ("second operand", right, _batches_first(right.dims, dot.rhs_batch)),
            ("result", result, result.dims),
        )
        if len(dims) - len(dot.lhs_batch) > 1
    ]
    PRODUCTS.check(ledger, tensors, place.where)


def _batches_first(dims: Dims, batches: tuple[int, ...]) -> Dims:
    own = (size for place, size in enumerate(dims) if place not in batches)
    return (*(dims[place] for place in batches if place < len(dims)), *own)
