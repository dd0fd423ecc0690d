"""Serialized messages to Arrow columns: the only module that calls the decoder (`ptars`), and access to its arrays.

`ptars` is fast, and young: nested groups (a wire type that no XSpace uses) make it recurse without limit until the
process dies, and some lengths make it panic. So protobuf's own parser, which refuses both, sees every message first
that is long enough to nest deeply: of lines only the outline, which takes little time, of events and stats those few
that are long by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import ptars
import pyarrow as pa
from google.protobuf.message import DecodeError

from tfperf.arrays import Int32s, Uint8s, ranges
from tfperf.wire import schema
from tfperf.wire.trace_file import TraceFile

_SHORT = 1 << 12
_OUTLINES = {"Lines": "LinesOutline", "Line": "LineOutline"}


@lru_cache(maxsize=1)
def _handlers() -> Mapping[str, Any]:
    pool = ptars.HandlerPool([schema.descriptor("XSpace").file])
    names = ("Lines", "Line", "Event", "PlaneHeader", "Stat")
    return {name: pool.get_for_message(schema.descriptor(name)) for name in names}


def decode(file: TraceFile, message: str, payload: bytes, position: int) -> Any:
    """Decode one serialized message into an Arrow record batch of one row; `position` says where it lies."""
    if len(payload) > schema.LARGEST_MESSAGE:
        raise file.damaged(position, f"a {message} of {len(payload)} bytes")
    ends = np.array([0, len(payload)], np.int32)
    return _decode(file, message, binary(ends, payload), [payload], position)


def decode_all(file: TraceFile, message: str, payloads: Any, position: int) -> Any:
    """Decode an array of serialized messages into an Arrow record batch, one row each."""
    long = np.flatnonzero(np.diff(offsets(payloads)) > _SHORT).tolist()
    return _decode(file, message, payloads, [payloads[row].as_py() for row in long], position)


def _decode(file: TraceFile, message: str, payloads: Any, doubtful: list[bytes], position: int) -> Any:
    parser = schema.message_class(_OUTLINES.get(message, message))
    try:
        for payload in doubtful:
            parser.FromString(payload)
        return _handlers()[message].array_to_record_batch(payloads)
    except BaseException as error:
        # A panic of the Rust code is no Exception, and its class cannot be imported.
        if isinstance(error, ValueError | DecodeError) or type(error).__name__ == "PanicException":
            raise file.damaged(position, f"not a valid {message}") from error
        raise


def binary(ends: Int32s, data: Any) -> Any:
    """Return the Arrow binary array whose items end at `ends[1:]`."""
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def numbers(array: Any) -> Any:
    """Return a column of numbers without copying it (`to_numpy` would import pandas)."""
    dtype = np.dtype(str(array.type).replace("double", "float64"))
    values = array.buffers()[1]
    return np.frombuffer(values, dtype)[array.offset : array.offset + len(array)] if len(array) else np.empty(0, dtype)


def texts(array: Any) -> list[str]:
    """Return a binary array as text; invalid UTF-8 becomes U+FFFD."""
    return [value.decode("utf-8", "replace") for value in array.to_pylist()]


def offsets(array: Any) -> Int32s:
    """Return where the items of a list or binary array start, and where the last ends."""
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def items(lists: Any) -> Any:
    """Return the items of all lists, one after the other (`flatten` would import Arrow's compute module)."""
    ends = offsets(lists)
    return lists.values.slice(int(ends[0]), int(ends[-1] - ends[0]))


def bytes_of(array: Any) -> Uint8s:
    """Return the bytes that the offsets of a binary array count in; never empty."""
    data = array.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)


def take(array: Any, rows: npt.NDArray[np.intp]) -> Any:
    """Return the binary array with only these rows (Arrow's own `take` would import its compute module)."""
    ends = offsets(array)
    length = np.diff(ends)[rows]
    stops = np.concatenate(([0], np.cumsum(length)))
    return binary(stops.astype(np.int32), bytes_of(array)[ranges(ends[rows].astype(np.int64), length)])
