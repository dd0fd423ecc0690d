"""Serialized messages to Arrow columns with protobuf alone: what stands in for `ptars` where it cannot be used.

The columns are the same, and take far longer: each message becomes a Python object, whose fields are read one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from tfperf.wire import schema

_TYPES = {"int64": pa.int64(), "uint64": pa.uint64(), "double": pa.float64(), "bytes": pa.binary()}


def record_batch(message: str, payloads: Any) -> Any:
    """Decode an array of serialized messages into an Arrow record batch, one row each; raises DecodeError."""
    parse = schema.message_class(message).FromString
    return pa.RecordBatch.from_struct_array(_structs(message, [parse(payload) for payload in payloads.to_pylist()]))


def _structs(message: str, rows: Sequence[Any], absent: Any = None) -> Any:
    """Return parsed messages as an Arrow array of structs; `absent` marks those that are not there."""
    columns, fields = [], []
    for name, _, kind, oneof in schema.fields_of(schema.MESSAGES[message]):
        column = _column(name, kind, bool(oneof), rows)
        columns.append(column)
        fields.append(pa.field(name, column.type, nullable=bool(oneof) or (kind[0].isupper())))
    return pa.StructArray.from_arrays(columns, fields=fields, mask=absent)


def _column(name: str, kind: str, optional: bool, rows: Sequence[Any]) -> Any:
    """Return one field of all messages."""
    values = [getattr(row, name) for row in rows]
    if kind.startswith("[]"):
        ends = pa.array(accumulate(map(len, values), initial=0), pa.int32())
        items = _items(kind.removeprefix("[]"), [item for value in values for item in value])
        return pa.ListArray.from_arrays(ends, items, type=pa.list_(pa.field("item", items.type, nullable=False)))
    if not (optional or kind[0].isupper()):
        return _items(kind, values)
    absent = [not row.HasField(name) for row in rows]
    if kind[0].isupper():
        return _structs(kind, values, pa.array(absent, pa.bool_()))
    return pa.array([None if none else value for none, value in zip(absent, values, strict=True)], _TYPES[kind])


def _items(kind: str, values: list[Any]) -> Any:
    """Return values that are all there."""
    return _structs(kind, values) if kind[0].isupper() else pa.array(values, _TYPES[kind])
