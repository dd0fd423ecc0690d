"""Decode serialized messages to Arrow columns; the only module that calls the decoder (`ptars`).

`ptars` is fast but young. If it is missing or of an untested version, protobuf decodes the same columns
(`record_batch`) much more slowly, with a warning. TFPERF_DECODER selects one of the two.

Nested groups (a wire type that XSpace does not use) make `ptars` recurse until the process dies, and some lengths make
it panic. protobuf's parser rejects both, so it first parses each message that is long enough for deep nesting: only
the outline of lines, which is fast, and the few events and stats that are long themselves.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError
from msgspec import Struct

from tfperf.base.arrays import Int32s, Uint8s
from tfperf.base.errors import TfperfError, TfperfWarning
from tfperf.base.process import lacks_memory
from tfperf.formats.wire import schema
from tfperf.formats.wire.schema import XSPACE, Schema, fields_of
from tfperf.formats.wire.trace_file import TraceFile

_INSTALL = "pip install 'ptars>=0.0.25,<0.1'"
_SHORT = 1 << 12
_OUTLINE = "Outline"
"""`NameOutline`, if a schema has it, replaces `Name` in the check of a long message."""

_NO_VALUE = dict.fromkeys(("double_value", "uint64_value", "int64_value", "str_value", "bytes_value", "ref_value"))
_PROBE: Mapping[str, Any] = {
    "id": -7,
    "name": b"",
    "lines": [b"line", b""],
    "event_metadata": [
        {"key": 1, "value": {"name": b"name", "display_name": b"", "stats": [b"stat"]}},
        {"key": 2, "value": None},
    ],
    "stat_metadata": [],
    "stats": [{"metadata_id": 3, **_NO_VALUE}, {"metadata_id": 4, **_NO_VALUE, "ref_value": 0}],
}
"""A plane header with all kinds of fields, and its decoded form; None for absent fields."""

_ToColumns = Callable[[schema.Schema, str, Any, list[bytes]], Any]
"""(schema, message, serialized messages, those to check first) -> record batch."""


class DecodedFile(Protocol):
    """The file that a message comes from."""

    def damaged(self, position: int, what: str) -> TfperfError:
        """Return the error for invalid bytes at a position."""


@cache
def _to_columns(wanted: str) -> _ToColumns:
    """Return the requested decoder: ptars, protobuf, or for an empty text the best available."""
    if wanted not in ("", "ptars", "protobuf"):
        raise TfperfError(f"TFPERF_DECODER is {wanted!r}: set it to ptars or protobuf, or unset it")
    if wanted == "protobuf":
        return _with_protobuf
    try:
        return _with_ptars()
    except Exception as error:
        if lacks_memory(error):
            raise MemoryError(str(error)) from error
        # Reading must not depend on the behavior of future versions.
        why = f"ptars cannot be used ({' '.join(str(error).split())[:200]}); {_INSTALL}"
        if wanted:
            raise TfperfError(f"TFPERF_DECODER is ptars, but {why}") from error
        warnings.warn(f"reading profiles is slow: {why}, or set TFPERF_DECODER=protobuf", TfperfWarning, stacklevel=2)
        return _with_protobuf


def _with_ptars() -> _ToColumns:
    import ptars

    if not is_known(ptars.__version__):
        raise ImportError(f"version {ptars.__version__} is not tested with tfperf")

    @cache
    def pool(of: schema.Schema) -> Any:
        return ptars.HandlerPool([of.descriptor(next(iter(of.messages))).file])

    @cache
    def handler(of: schema.Schema, message: str) -> Any:
        return pool(of).get_for_message(of.descriptor(message)).array_to_record_batch

    probe = schema.message_class("PlaneHeader")(**_PROBE).SerializeToString()
    decoded = handler(schema.XSPACE, "PlaneHeader")(binary(np.array([0, len(probe)], np.int32), probe))
    if decoded.to_pylist() != [_PROBE]:
        raise ImportError(f"version {ptars.__version__} decodes differently from protobuf")

    def to_columns(of: schema.Schema, message: str, payloads: Any, doubtful: list[bytes]) -> Any:
        outline = message + _OUTLINE
        parser = of.message_class(outline if outline in of.messages else message)
        for payload in doubtful:
            parser.FromString(payload)
        return handler(of, message)(payloads)

    return to_columns


def is_known(version: str) -> bool:
    """Return whether this version of `ptars` is tested, as in pyproject.toml."""
    patch = re.fullmatch(r"0\.0\.(\d+)", version)
    return patch is not None and int(patch[1]) >= 25


def _with_protobuf(of: schema.Schema, message: str, payloads: Any, _: list[bytes]) -> Any:

    return record_batch(message, payloads, of)


class Decoder(Struct, frozen=True):
    """Decodes messages of a schema at a file position."""

    file: DecodedFile
    position: int
    of: schema.Schema = schema.XSPACE

    def one(self, message: str, payload: bytes) -> Any:
        """Decode one message into a record batch of one row."""
        if len(payload) > schema.LARGEST_MESSAGE:
            raise self.file.damaged(self.position, f"a {message} of {len(payload)} bytes")
        ends = np.array([0, len(payload)], np.int32)
        return self._decode(message, binary(ends, payload), [payload])

    def all(self, message: str, payloads: Any, *, has_packed: bool = False) -> Any:
        """Decode messages into a record batch, one row each.

        `has_packed`: the message has packed numbers, on which `ptars` panics if they are truncated.
        """
        long = np.flatnonzero(np.diff(offsets(payloads)) > (0 if has_packed else _SHORT)).tolist()
        return self._decode(message, payloads, [payloads[row].as_py() for row in long])

    def _decode(self, message: str, payloads: Any, doubtful: list[bytes]) -> Any:
        to_columns = _to_columns(os.environ.get("TFPERF_DECODER", ""))
        try:
            return to_columns(self.of, message, payloads, doubtful)
        except BaseException as error:
            # A Rust panic is not an Exception, and its class cannot be imported.
            if isinstance(error, ValueError | DecodeError) or type(error).__name__ == "PanicException":
                raise self.file.damaged(self.position, f"not a valid {message}") from error
            raise


def decode(file: TraceFile, message: str, payload: bytes, position: int) -> Any:
    """Decode an XSpace message into a record batch of one row; `position` is used in errors."""
    return Decoder(file, position).one(message, payload)


def decode_all(file: TraceFile, message: str, payloads: Any, position: int) -> Any:
    """Decode XSpace messages into a record batch, one row each."""
    return Decoder(file, position).all(message, payloads)


def binary(ends: Int32s, data: Any) -> Any:
    """Return the Arrow binary array whose items end at `ends[1:]`."""
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def numbers(array: Any) -> Any:
    """Return a numeric column without copying; `to_numpy` would import pandas."""
    dtype = np.dtype(str(array.type).replace("double", "float64"))
    values = array.buffers()[1]
    return np.frombuffer(values, dtype)[array.offset : array.offset + len(array)] if len(array) else np.empty(0, dtype)


def texts(array: Any) -> list[str]:
    """Return a binary array as text; invalid UTF-8 becomes U+FFFD."""
    return [value.decode("utf-8", "replace") for value in array.to_pylist()]


def offsets(array: Any) -> Int32s:
    """Return the start of each item of a list or binary array, and the end of the last."""
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def items(lists: Any) -> Any:
    """Return the concatenated items of all lists; `flatten` would import Arrow's compute module."""
    ends = offsets(lists)
    return lists.values.slice(int(ends[0]), int(ends[-1] - ends[0]))


def bytes_of(array: Any) -> Uint8s:
    """Return the bytes that the offsets of a binary array refer to; never empty."""
    data = array.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)


def take(array: Any, rows: npt.NDArray[np.intp]) -> Any:
    """Return these rows of a binary array; Arrow's `take` would import its compute module."""
    ends = offsets(array)
    length = np.diff(ends)[rows]
    stops = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(length, out=stops[1:])
    place = np.repeat(ends[rows] - stops[:-1], length)
    place += np.arange(len(place), dtype=np.int32)
    return binary(stops, bytes_of(array).take(place))


_TYPES = {"int64": pa.int64(), "uint64": pa.uint64(), "double": pa.float64(), "bytes": pa.binary()}


def record_batch(message: str, payloads: Any, schema: Schema = XSPACE) -> Any:
    """Decode messages into a record batch with protobuf, one row each; raise DecodeError."""
    parse = schema.message_class(message).FromString
    rows = [parse(payload) for payload in payloads.to_pylist()]
    return pa.RecordBatch.from_struct_array(_structs(schema, message, rows))


def _structs(schema: Schema, message: str, rows: Sequence[Any], absent: Any = None) -> Any:
    """Return parsed messages as an Arrow struct array; `absent` marks missing ones."""
    columns, fields = [], []
    for name, _, kind, oneof in fields_of(schema.messages[message]):
        column = _column(schema, (name, kind, bool(oneof)), rows)
        columns.append(column)
        fields.append(pa.field(name, column.type, nullable=bool(oneof) or (kind[0].isupper())))
    return pa.StructArray.from_arrays(columns, fields=fields, mask=absent)


def _column(schema: Schema, field: tuple[str, str, bool], rows: Sequence[Any]) -> Any:
    """Return one field (name, type, whether it is optional) of all messages."""
    name, kind, optional = field
    values = [getattr(row, name) for row in rows]
    if kind.startswith("[]"):
        ends = pa.array(accumulate(map(len, values), initial=0), pa.int32())
        items = _items(schema, kind.removeprefix("[]"), [item for value in values for item in value])
        return pa.ListArray.from_arrays(ends, items, type=pa.list_(pa.field("item", items.type, nullable=False)))
    if not (optional or kind[0].isupper()):
        return _items(schema, kind, values)
    absent = [not row.HasField(name) for row in rows]
    if kind[0].isupper():
        return _structs(schema, kind, values, pa.array(absent, pa.bool_()))
    return pa.array([None if none else value for none, value in zip(absent, values, strict=True)], _TYPES[kind])


def _items(schema: Schema, kind: str, values: list[Any]) -> Any:
    return _structs(schema, kind, values) if kind[0].isupper() else pa.array(values, _TYPES[kind])
