"""The rule about convolutions: what their batch and features are rounded up to."""

from __future__ import annotations

from tfperf.models.linter.hlo_rules.place import Place, element_bytes
from tfperf.models.linter.padding import both_orders
from tfperf.models.linter.rule import Ledger
from tfperf.models.linter.shared_rules import EITHER_LAYOUT, PaddingRule

_CONVOLUTIONS = PaddingRule(
    id="TPU-CV-1",
    how=EITHER_LAYOUT,
    advice="make batch and features multiples of 8 and 128",
    unless="the compiler may choose otherwise where the neighbours of the convolution ask for it",
)


def check_convolution(place: Place, ledger: Ledger) -> None:
    """TPU-CV-1 of forward convolutions: gradients have the same tensors, and programs do not tell them apart surely."""
    dims, result, operand = place.instruction.convolution, place.instruction.shape, place.operand(0)
    if dims is None or operand is None or result.is_tuple or not is_forward(place):
        return
    ledger.judge(place.instruction.name)
    tensors = [
        both_orders(role, shape.dims, element_bytes(shape), batch_and_features)
        for role, shape, batch_and_features in (
            ("activation", operand, (dims.input_batch, dims.input_feature)),
            ("result", result, (dims.output_batch, dims.output_feature)),
        )
    ]
    _CONVOLUTIONS.check(ledger, tensors, place.where)


def is_forward(place: Place) -> bool:
    """Tell whether a convolution is one that the program asks for, and no gradient."""
    names = f"{place.name} {place.instruction.metadata.op_type}"
    dilated = any(dim.base_dilation > 1 for dim in place.instruction.window)
    return bool(place.name) and not dilated and "transpose(" not in names and "Backprop" not in names
