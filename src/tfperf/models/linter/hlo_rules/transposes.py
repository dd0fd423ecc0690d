"""The rule about transposes: those that move all data."""

from __future__ import annotations

from tfperf.base.units import format_bytes
from tfperf.models.linter.hlo_rules.place import Place
from tfperf.models.linter.padding import MIB
from tfperf.models.linter.rule import Ledger, Violation


def check_transpose(place: Place, ledger: Ledger) -> None:
    """TPU-TR-1: only where layouts are those of a TPU, which are tiled."""
    shape = place.instruction.shape
    if not shape.tiles or place.node.is_fused or not place.name or "conv" in place.name:
        return
    ledger.judge(place.instruction.name)
    if shape.bytes >= MIB:
        ledger.add(
            Violation(
                rule="TPU-TR-1",
                level="medium",
                what=f"{format_bytes(2 * shape.bytes)} are read and written; the result is {shape}",
                advice="keep one order of dimensions, or let a product or convolution read the tensor as it is",
                unless="the op after it would be slower in the other order",
                moved_bytes=2 * shape.bytes,
                **place.where,
            )
        )
