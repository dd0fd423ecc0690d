"""The values of variables in a checkpoint, in a few numbers: tfprof's `tensor_value`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from tfperf.models.tfprof.checkpoint import Checkpoint
from tfperf.models.tfprof.tensors import Numbers, shape_text
from tfperf.report.model import Column, Data

FIRST = 5
"""How many values are shown as they are."""

COLUMNS = (
    Column("name", "Variable", str, meaning="name of the variable"),
    Column("shape", "Shape", str, meaning="its dimensions, 784x128; `scalar` for none"),
    Column("dtype", "Type", str, meaning="type of an element", level="full"),
    Column("min", "Min", float, meaning="smallest value; NaN and infinite ones left out"),
    Column("max", "Max", float, meaning="largest value; NaN and infinite ones left out"),
    Column("mean", "Mean", float, meaning="mean; NaN and infinite values left out"),
    Column("not_finite", "Not finite", int, "count", meaning="values that are NaN or infinite", level="data"),
    Column("first_values", "First values", str, meaning=f"the first {FIRST}, as they are stored", level="data"),
)
"""The table that `values_of` has the columns of."""


def values_of(checkpoint: Checkpoint, names: Iterable[str] | None = None) -> Data:
    """Return a row for each of these variables (None: all) that the checkpoint holds: columns by the keys of `COLUMNS`.

    What a type has no numbers for (texts, float8, complex) is None, and so is what no value of it is finite. Raises
    TfprofInputError.
    """
    wanted = sorted(checkpoint.tensors) if names is None else [name for name in names if name in checkpoint.tensors]
    rows = [_row(checkpoint, name) for name in wanted]
    return {column.key: [row[column.key] for row in rows] for column in COLUMNS}


def _row(checkpoint: Checkpoint, name: str) -> dict[str, Any]:
    tensor = checkpoint.tensors[name]
    row: dict[str, Any] = {"name": name, "shape": shape_text(tensor.shape), "dtype": tensor.dtype}
    row |= dict.fromkeys(("min", "max", "mean", "not_finite", "first_values"))
    if "complex" in tensor.dtype:
        return row
    low, high, total, finite, count, pieces = np.inf, -np.inf, 0.0, 0, 0, 0
    first: Numbers = np.empty(0)
    for _, parts in checkpoint.pieces(name):
        pieces += 1
        for numbers in parts:
            first = first if count else numbers[:FIRST]
            count += len(numbers)
            # A sum of float16 numbers would be of float16.
            values = numbers.astype(np.float64, copy=False)
            good = values[np.isfinite(values)]
            finite += len(good)
            low, high = float(good.min(initial=low)), float(good.max(initial=high))
            with np.errstate(over="ignore"):
                total += float(good.sum())
    if count:
        row |= {"not_finite": count - finite, "first_values": _first(checkpoint, name, first, pieces)}
    if finite:
        row |= {"min": low, "max": high, "mean": total / finite if math.isfinite(total) else None}
    return row


def _first(checkpoint: Checkpoint, name: str, of_first_piece: Numbers, pieces: int) -> str:
    """Return the first values in the order of the whole tensor, which may go across its pieces."""
    whole = checkpoint.read(name) if pieces > 1 else None
    values = of_first_piece if whole is None else whole.reshape(-1)[:FIRST]
    return ", ".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in values.tolist())
