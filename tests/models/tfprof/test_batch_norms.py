"""Batch norms of single ops."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfprof_builders import model, node

from tfperf.models.tfprof.advise import unfused_batch_norms


def test_scopes_with_single_ops_are_named_once(tmp_path: Path) -> None:
    names = ("net/bn/BatchNorm/Rsqrt", "net/BatchNorm_1/batchnorm/Rsqrt", "batch_normalization_2/Rsqrt", "x/Rsqrt")
    of = model(tmp_path, [node(name, "Rsqrt") for name in names])
    assert unfused_batch_norms(of) == ["batch_normalization_2", "net/BatchNorm_1", "net/bn/BatchNorm"]


@pytest.mark.parametrize("op", ["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "_FusedBatchNormEx"])
def test_all_fused_ops_are_known(tmp_path: Path, op: str) -> None:
    """The reference knows the first only (D11)."""
    of = model(
        tmp_path, [node(f"BatchNorm/{op}", op), node("BatchNorm/Rsqrt", "Rsqrt"), node("BatchNorm/w", "VariableV2")]
    )
    assert unfused_batch_norms(of) == []


def test_scopes_of_variables_and_gradients_are_none(tmp_path: Path) -> None:
    of = model(tmp_path, [node("BatchNorm/gamma", "VariableV2"), node("gradients/BatchNorm_grad/Rsqrt", "Rsqrt")])
    assert unfused_batch_norms(of) == []
