"""The rule that needs no more than the names and types of ops, as a profile without programs has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tfperf.models.linter.rule import Ledger, Violation
from tfperf.models.linter.shared_rules import BATCH_NORM

_INNER = "batchnorm"
"""The scope that `tf.nn.batch_normalization` puts inside that of its layer."""


class NamedOp(NamedTuple):
    """An op of a profile, and its share of the device time (0 to 1); None for one of a host thread."""

    name: str
    type: str
    share: float | None = None


def check_op_names(ops: Iterable[NamedOp], ledger: Ledger) -> None:
    """TPU-BN-2: scopes that are named like a batch norm, and hold an Rsqrt but no fused batch norm."""
    scopes: dict[str, list[NamedOp]] = {}
    for op in ops:
        if scope := _scope(op.name):
            scopes.setdefault(scope, []).append(op)
    for scope, inside in scopes.items():
        for op in inside:
            ledger.judge(op.name)
        types = {op.type for op in inside}
        if "Rsqrt" in types and not any("FusedBatchNorm" in type for type in types):
            ledger.add(
                Violation(
                    rule="TPU-BN-2",
                    level="low",
                    ops=(scope,),
                    op_type="batch norm",
                    what="by its name a batch norm, of many ops: it runs Rsqrt and no fused batch norm",
                    advice=(
                        "lint the SavedModel or graph, which tells (TPU-BN-1); if it is one, use "
                        "tf.raw_ops.FusedBatchNormV3. BatchNormalization of Keras 3 has no such argument"
                    ),
                    unless="the name misleads, or the ops are fused by the compiler",
                    certainty="weak",
                    share=sum(shares) if (shares := [op.share for op in inside if op.share is not None]) else None,
                )
            )


def judges_names(ops: Iterable[NamedOp]) -> bool:
    """Tell whether any op is in a scope that the rule is about."""
    return any(_scope(op.name) for op in ops)


def _scope(name: str) -> str:
    """Return the innermost scope of an op that is named like a batch norm; empty without one."""
    *scopes, _ = name.split("/")
    while scopes and not BATCH_NORM.search(scopes[-1]):
        scopes.pop()
    if len(scopes) > 1 and scopes[-1] == _INNER:
        scopes.pop()
    return "/".join(scopes)
