from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import known
from checkpoint_builders import write_checkpoint
from places import ROOT

from tfperf.formats.models.checkpoint import Checkpoint
from tfperf.models.tfprof.report import COLUMNS, values_of

REAL = ROOT / "tests" / "formats" / "models" / "checkpoints"


def test_a_variable_is_described_by_a_few_numbers(tmp_path: Path) -> None:
    prefix = write_checkpoint(tmp_path / "ck", {"b/kernel": np.arange(8, dtype=np.float32).reshape(2, 4)})
    data = values_of(Checkpoint(prefix), ["a", "b/kernel"])
    assert [*data] == [column.key for column in COLUMNS]
    assert {key: values[0] for key, values in data.items()} == {
        "name": "b/kernel", "shape": "2x4", "dtype": "float32", "min": 0, "max": 7, "mean": 3.5, "not_finite": 0,
        "first_values": "0, 1, 2, 3, 4",
    }  # fmt: skip


def test_values_that_are_not_finite_are_counted_and_left_out(tmp_path: Path) -> None:
    values: dict[str, np.ndarray[Any, Any]] = {
        "all": np.full(3, np.nan, np.float32),
        "some": np.array([1, np.inf, np.nan, 3], np.float16),
    }
    data = values_of(Checkpoint(write_checkpoint(tmp_path / "ck", values)))
    assert data["not_finite"] == [3, 2]
    assert data["mean"] == [None, 2]
    assert data["max"] == [None, 3]
    assert data["first_values"] == ["nan, nan, nan", "1, inf, nan, 3"]


def test_sums_do_not_overflow_the_type_of_the_values(tmp_path: Path) -> None:
    values: dict[str, np.ndarray[Any, Any]] = {"huge": np.full(9, 1e308), "small": np.full(10_000, 60_000, np.float16)}
    data = values_of(Checkpoint(write_checkpoint(tmp_path / "ck", values)))
    assert data["mean"] == [None, 60_000]
    assert data["max"] == [1e308, 60_000]


def test_what_has_no_numbers_is_listed_without(tmp_path: Path) -> None:
    prefix = write_checkpoint(tmp_path / "ck", {"none": np.zeros((0, 2), np.float32)}, {"text": b"abc"})
    data = values_of(Checkpoint(prefix))
    assert data["name"] == ["none", "text"]
    assert data["mean"] == data["first_values"] == data["not_finite"] == [None, None]


@pytest.mark.parametrize("name", ["first_version.ckpt", "model.ckpt"])
def test_first_values_go_across_the_pieces_of_a_variable(name: str) -> None:
    checkpoint = Checkpoint(REAL / name)
    whole, data = known(checkpoint.read("part")), values_of(checkpoint, ["part"])
    assert data["first_values"] == [", ".join(f"{value:.6g}" for value in whole.ravel()[:5])]
    assert data["mean"] == [pytest.approx(float(whole.mean()), rel=1e-5)]
