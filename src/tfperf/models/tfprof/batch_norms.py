"""Batch norms that are built of single ops, where one fused op does the same."""

from __future__ import annotations

import re

from tfperf.models.tfprof.model import Model

_BATCH_NORM = re.compile(r"batch_?norm", re.IGNORECASE)
_FUSED = re.compile(r"_?FusedBatchNorm(?:Ex)?(?:V2|V3)?")
_ROOT_OF_VARIANCE = "Rsqrt"
"""Every batch norm of single ops has one; scopes that hold only variables have none."""


def unfused_batch_norms(model: Model) -> list[str]:
    """Return the scopes named after batch norm that compute one of single ops, sorted.

    A scope is the outermost whose name says so. Gradients are not counted: they follow the forward ops. The reference
    knows the type `FusedBatchNorm` only, so that graphs of today, which have `FusedBatchNormV3`, alarm it (D11).
    """
    single, fused = set(), set()
    for name, op in zip(model.names, model.ops, strict=True):
        scope = _scope_of(name)
        if not scope:
            continue
        if _FUSED.fullmatch(op):
            fused.add(scope)
        elif op == _ROOT_OF_VARIANCE:
            single.add(scope)
    return sorted(single - fused)


def _scope_of(name: str) -> str:
    """Return the outermost scope of a name that says batch norm; empty if there is none, or for a gradient."""
    found = _BATCH_NORM.search(name)
    if found is None or "gradients/" in name or "gradient_tape/" in name:
        return ""
    end = name.find("/", found.end())
    return name[:end] if end >= 0 else name
