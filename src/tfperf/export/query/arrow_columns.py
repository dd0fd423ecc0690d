"""Columns as Arrow has them, without `pyarrow.array`: that imports pandas, which takes longer than most queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tfperf.base.arrays import Bools
from tfperf.report.render.values import encodable

_SAFE = 1 << 53
"""Up to here, a float holds every integer."""


def numbers(values: npt.NDArray[Any], type_name: str = "", *, missing: Bools | None = None) -> Any:
    """Return numbers, over the same memory, null where they are missing; with a type, read their bits as that."""
    kind = pa.type_for_alias(type_name or values.dtype.name)
    return pa.Array.from_buffers(kind, len(values), [_validity(missing), pa.py_buffer(np.ascontiguousarray(values))])


def by_index(index: Any, values: Any) -> Any:
    """Return a column that holds each value once; the index is not checked, because it is our own."""
    return pa.DictionaryArray.from_arrays(index, values, safe=False)


def words(texts: Sequence[str | None]) -> Any:
    """Return texts in UTF-8, null where they are None; halves of surrogate pairs become U+FFFD."""
    try:
        encoded = [text.encode() if text else b"" for text in texts]
    except UnicodeEncodeError:
        encoded = [encodable(text).encode() if text else b"" for text in texts]
    stops = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([*map(len, encoded)], out=stops[1:])
    missing = np.array([text is None for text in texts], np.bool_)
    buffers = [_validity(missing), pa.py_buffer(stops), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers)


def listed(values: Sequence[Any], kind: Any) -> Any:
    """Return Python values as a type, or as their own if they do not fit; None and NaN are null."""
    types = {*map(type, values)} - {type(None)}
    missing = np.array([value is None for value in values], np.bool_)
    known = [0 if value is None else value for value in values]
    if kind == pa.bool_() and types <= {bool}:
        bits = pa.py_buffer(np.packbits(np.array(known, np.bool_), bitorder="little"))
        return pa.Array.from_buffers(kind, len(known), [_validity(missing), bits])
    if kind == pa.int64() and types <= {int} and all(-(1 << 63) <= value < 1 << 63 for value in known):
        return numbers(np.array(known, np.int64), missing=missing)
    if kind == pa.float64() and (types <= {float} or (types <= {float, int} and max(map(abs, known)) < _SAFE)):
        reals = np.array(known, np.float64)
        return numbers(reals, missing=missing | np.isnan(reals))
    try:
        return pa.array(values, kind, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array(values, from_pandas=True)


def _validity(missing: Bools | None) -> Any:
    """Return the bitmap of the values that are there; None if all are."""
    if missing is None or not missing.any():
        return None
    return pa.py_buffer(np.packbits(~missing, bitorder="little"))
