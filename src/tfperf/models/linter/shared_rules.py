"""Rules that graphs and compiled programs have alike: their words, and from when on they speak."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from tfperf.formats.hlo.products import ALIGNED_BYTES, rounded_up
from tfperf.models.linter.padding import MIB, PaddedTensor, padding_text
from tfperf.models.linter.rule import Ledger, Violation, worst


class PaddingRule(Struct, frozen=True, kw_only=True):
    """A rule about padding: its words, and from when on a tensor counts."""

    id: str
    how: str
    """What is rounded up, and to what."""
    advice: str
    unless: str
    least_ratio: float = 1.25
    least_bytes: int = MIB
    """Of the padded tensor."""

    def check(self, ledger: Ledger, tensors: Sequence[PaddedTensor], where: Mapping[str, Any]) -> None:
        """Note a finding, told by the tensor that wastes most; `where` has the fields of `Violation` about the op."""
        wasteful = [tensor for tensor in tensors if self._is_wasteful(tensor)]
        if wasteful:
            ledger.add(
                Violation(
                    rule=self.id,
                    level=worst([tensor.level for tensor in wasteful]),
                    what=padding_text(max(wasteful, key=lambda tensor: tensor.wasted_bytes), self.how),
                    advice=self.advice,
                    unless=self.unless,
                    tensors=tuple(tensors),
                    **where,
                )
            )

    def _is_wasteful(self, tensor: PaddedTensor) -> bool:
        is_large = tensor.least.ratio >= self.least_ratio and tensor.padded_bytes >= self.least_bytes
        return is_large and tensor.wasted_bytes > 0


BATCH_NORM = re.compile(r"batch_?norm", re.IGNORECASE)
"""The name of a scope or op of a batch norm."""
GENERAL_TILING = "general tiling, to 8 and 128 in either order"
EITHER_LAYOUT = "batch and features are rounded up to 8 and 128, or to 128 and 8"

PRODUCTS = PaddingRule(
    id="TPU-MM-3",
    how=GENERAL_TILING,
    advice="make the two last dimensions of operands and result multiples of 128, the smaller one of 8",
    unless="the product takes little of the step, or its sizes are given (classes, heads)",
)
POOLING = PaddingRule(
    id="TPU-PL-1",
    how=EITHER_LAYOUT,
    advice="make batch and features multiples of 8 or 128, as for the convolutions beside it",
    unless="the neighbours of the pooling ask for another layout",
    least_ratio=1.0,
    least_bytes=0,
)
INPUTS = PaddingRule(
    id="TPU-RS-2",
    how=GENERAL_TILING,
    advice="send it as one dimension, and reshape it on the device",
    unless="it stays on the device from step to step, as weights do",
    least_ratio=2.0,
)


def max_pool_gradient(where: Mapping[str, Any]) -> Violation:
    """Return what TPU-PL-2 says; `where` has the fields of `Violation` about the op."""
    return Violation(
        rule="TPU-PL-2",
        level="info",
        what="the gradient of max pooling scatters to where the maxima were; that of average pooling does not",
        advice="try average pooling, or a convolution with strides, if the gradient shows in a profile",
        unless="accuracy needs the maxima: this changes the model",
        **where,
    )


_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int8": 1}
MULTIPLES = {name: ALIGNED_BYTES // size for name, size in _BYTES.items()}
"""Elements that take 16 bytes: tensor cores are fastest at multiples of it."""
TINY_BATCH = 8
_CASTS = "the type is float32: it matters with TF32 or mixed precision only"


def misaligned(
    rule: str,
    dtype: str,
    odd: Mapping[str, int],
    multiple: int,
    tensors: Sequence[PaddedTensor],
    where: Mapping[str, Any],
) -> Violation:
    """Return what GPU-MM-1, GPU-CV-1 and GPU-CV-2 say of sizes off the multiples of tensor cores."""
    is_large = max((tensor.padded_bytes for tensor in tensors), default=0) >= MIB
    sizes = ", ".join(f"{name} = {size} (to {rounded_up(size, multiple)})" for name, size in odd.items())
    return Violation(
        rule=rule,
        level="info" if not is_large else "medium" if dtype in ("float16", "bfloat16") else "low",
        what=f"{sizes}: tensor cores want multiples of {multiple} in {dtype}",
        advice=f"round up to a multiple of {multiple} (better of {8 * multiple}), for example with padding of zeros",
        unless=_CASTS if dtype == "float32" else "the product takes little of the step",
        tensors=tuple(tensors),
        **where,
    )


def channels_first(layout: str, dtype: str, where: Mapping[str, Any]) -> Violation:
    """Return what GPU-LY-1 says of a convolution in 16 bit whose channels do not lie side by side."""
    return Violation(
        rule="GPU-LY-1",
        level="medium",
        what=f"the layout is {layout} in {dtype}: tensor cores read NHWC",
        advice="use NHWC (channels_last) in 16 bit",
        unless="the GPU has no tensor cores, or a profile shows no layout conversion: measure both",
        certainty="exact",
        **where,
    )


def tiny_batch(batch: int, where: Mapping[str, Any]) -> Violation:
    """Return what GPU-BT-1 says."""
    return Violation(
        rule="GPU-BT-1",
        level="info",
        what=f"the batch is {batch}: too few rows to fill the tiles of a GPU",
        advice=f"use a batch of {TINY_BATCH} or more, if memory and latency allow it",
        unless="answers are wanted one by one, as in serving",
        certainty="exact",
        **where,
    )
