"""Rules about pooling: what its batch and features are rounded up to, and gradients of maxima."""

from __future__ import annotations

from tfperf.models.linter.hlo_rules.place import Place, element_bytes
from tfperf.models.linter.padding import both_orders
from tfperf.models.linter.rule import Ledger
from tfperf.models.linter.shared_rules import POOLING, max_pool_gradient


def check_pooling(place: Place, ledger: Ledger) -> None:
    """TPU-PL-1: windows over two dimensions or more that a program asks for."""
    operand, result, window = place.operand(0), place.instruction.shape, place.instruction.window
    others = [at for at, dim in enumerate(window) if dim.size <= 1]
    is_pooling = len(others) >= 2 and len(window) - len(others) >= 2
    if not place.name or not is_pooling or operand is None or result.is_tuple or len(operand.dims) != len(window):
        return
    ledger.judge(place.instruction.name)
    tensors = [
        both_orders(role, shape.dims, element_bytes(shape), (others[0], others[-1]))
        for role, shape in (("input", operand), ("result", result))
    ]
    POOLING.check(ledger, tensors, place.where)


def check_max_gradient(place: Place, ledger: Ledger) -> None:
    """TPU-PL-2: also where the compiler has rewritten it."""
    metadata = place.instruction.metadata
    is_named = "select_and_scatter" in metadata.op_name or metadata.op_type == "MaxPoolGrad"
    if place.instruction.opcode == "select-and-scatter" or is_named:
        ledger.judge(place.instruction.name)
        ledger.add(max_pool_gradient(place.where))
