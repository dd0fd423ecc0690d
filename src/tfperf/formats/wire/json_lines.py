"""Columns to lines of JSON: put together by Arrow's compute functions, one line for each row. No Python per line.

Columns of text are Arrow arrays, which callers only hand on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tfperf.base.arrays import Bools, Numbers
from tfperf.formats.wire.decoder import bytes_of, offsets

_LARGEST_EXACT = 1 << 53
"""JSON readers take numbers for float64, which holds no larger ones exactly; those are written as text."""


def quoted(texts: Sequence[str]) -> Any:
    """Return texts as JSON strings."""
    return pa.array([json.dumps(text) for text in texts], pa.string())


def plain(texts: Sequence[str]) -> Any:
    """Return texts as they are: pieces of JSON."""
    return pa.array(texts, pa.string())


def chosen(texts: Any, index: Numbers, present: Bools | None = None) -> Any:
    """Return for each row the text at an index; none where it is not."""
    return texts.take(pa.array(index, mask=None if present is None else ~present))


def whole(values: Numbers, present: Bools | None = None) -> Any:
    """Return whole numbers, those that JSON readers would round as text."""
    numbers = pa.array(values, mask=None if present is None else ~present)
    text = numbers.cast(pa.string())
    signed = values.dtype.kind == "i"
    large = (values > _LARGEST_EXACT) | (values < -_LARGEST_EXACT if signed else False)
    return pc.if_else(pa.array(large), line('"', text, '"'), text) if large.any() else text


def real(values: npt.NDArray[np.float64], present: Bools) -> Any:
    """Return real numbers; JSON has no infinity and no NaN, so these are texts."""
    text = pa.array(values, mask=~present).cast(pa.string())
    return pc.if_else(pa.array(np.isfinite(values)), text, line('"', text, '"'))


def microseconds(time_ps: Numbers) -> Any:
    """Return picoseconds, none of them negative, as microseconds with all six digits."""
    full, rest = np.divmod(time_ps, 1_000_000)
    digits = pc.utf8_slice_codeunits(pa.array(rest + 1_000_000).cast(pa.string()), 1)
    return line(pa.array(full).cast(pa.string()), ".", digits)


def first_present(*columns: Any) -> Any:
    """Return for each row the text of the first column that has one."""
    return pc.coalesce(*columns)


def where(mask: Bools, text: Any) -> Any:
    """Return the text where the mask holds, else an empty one."""
    return pc.if_else(pa.array(mask), text, "")


def line(*parts: Any) -> Any:
    """Return for each row its parts, one after the other; a part is a column or a text for all rows."""
    return pc.binary_join_element_wise(*parts, "")


def listed(stops: Numbers, items: Any) -> Any:
    """Return for each row its items with commas between them; row i has those from `stops[i]` to `stops[i + 1]`."""
    lists = pa.ListArray.from_arrays(pa.array((stops - stops[0]).astype(np.int32)), items)
    return pc.binary_join(lists, ",")


def interleaved(parts: Sequence[Any], place: Numbers) -> Any:
    """Return the rows of all parts, in an order: row i of all, as they follow each other, comes to `place[i]`."""
    order = np.empty(len(place), np.int64)
    order[place] = np.arange(len(place))
    return pa.concat_arrays(
        [part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part for part in parts]
    ).take(pa.array(order))


def to_bytes(lines: Any) -> bytes:
    """Return all lines, one after the other."""
    ends = offsets(lines)
    return bytes_of(lines)[ends[0] : ends[-1]].tobytes()
