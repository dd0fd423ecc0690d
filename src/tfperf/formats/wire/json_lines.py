"""Write columns as lines of JSON with Arrow's compute functions, without Python code per line.

Text columns are Arrow arrays, which callers pass on unchanged.
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
"""JSON readers use float64, which is exact up to this number; larger ones are written as text."""


def quoted(texts: Sequence[str]) -> Any:
    """Return texts as JSON strings."""
    return pa.array([json.dumps(text) for text in texts], pa.string())


def plain(texts: Sequence[str]) -> Any:
    """Return pieces of JSON unchanged."""
    return pa.array(texts, pa.string())


def chosen(texts: Any, index: Numbers, present: Bools | None = None) -> Any:
    """Return each row's text at its index, or null."""
    return texts.take(pa.array(index, mask=None if present is None else ~present))


def whole(values: Numbers, present: Bools | None = None) -> Any:
    """Return whole numbers, as text if JSON readers would round them."""
    numbers = pa.array(values, mask=None if present is None else ~present)
    text = numbers.cast(pa.string())
    signed = values.dtype.kind == "i"
    large = (values > _LARGEST_EXACT) | (values < -_LARGEST_EXACT if signed else False)
    return pc.if_else(pa.array(large), line('"', text, '"'), text) if large.any() else text


def real(values: npt.NDArray[np.float64], present: Bools) -> Any:
    """Return real numbers; infinity and NaN, which JSON does not have, are texts."""
    text = pa.array(values, mask=~present).cast(pa.string())
    return pc.if_else(pa.array(np.isfinite(values)), text, line('"', text, '"'))


def microseconds(time_ps: Numbers) -> Any:
    """Return non-negative picoseconds as microseconds with all six decimals."""
    full, rest = np.divmod(time_ps, 1_000_000)
    digits = pc.utf8_slice_codeunits(pa.array(rest + 1_000_000).cast(pa.string()), 1)
    return line(pa.array(full).cast(pa.string()), ".", digits)


def first_present(*columns: Any) -> Any:
    """Return each row's first text that is not null."""
    return pc.coalesce(*columns)


def where(mask: Bools, text: Any) -> Any:
    """Return the text if the mask is true, else an empty one."""
    return pc.if_else(pa.array(mask), text, "")


def line(*parts: Any) -> Any:
    """Concatenate the parts of each row; a part is a column, or one text for all rows."""
    return pc.binary_join_element_wise(*parts, "")


def listed(stops: Numbers, items: Any) -> Any:
    """Join the items of each row with commas; row i has items `stops[i]` to `stops[i + 1]`."""
    lists = pa.ListArray.from_arrays(pa.array((stops - stops[0]).astype(np.int32)), items)
    return pc.binary_join(lists, ",")


def interleaved(parts: Sequence[Any], place: Numbers) -> Any:
    """Return the concatenated rows of all parts, with row i moved to `place[i]`."""
    order = np.empty(len(place), np.int64)
    order[place] = np.arange(len(place))
    return pa.concat_arrays(
        [part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part for part in parts]
    ).take(pa.array(order))


def to_bytes(lines: Any) -> bytes:
    """Return the concatenated lines."""
    ends = offsets(lines)
    return bytes_of(lines)[ends[0] : ends[-1]].tobytes()
