"""Serialized messages to Arrow columns with protobuf alone: what stands in for `ptars` where it cannot be used.

The columns are the same, and take far longer: each message becomes a Python object, whose fields are read one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from tfperf.formats.wire.schema import XSPACE, Schema, fields_of

_TYPES = {"int64": pa.int64(), "uint64": pa.uint64(), "double": pa.float64(), "bytes": pa.binary()}


def record_batch(message: str, payloads: Any, schema: Schema = XSPACE) -> Any:
    """Decode an array of serialized messages into an Arrow record batch, one row each; raises DecodeError."""
    parse = schema.message_class(message).FromString
    rows = [parse(payload) for payload in payloads.to_pylist()]
    return pa.RecordBatch.from_struct_array(_structs(schema, message, rows))


def _structs(schema: Schema, message: str, rows: Sequence[Any], absent: Any = None) -> Any:
    """Return parsed messages as an Arrow array of structs; `absent` marks those that are not there."""
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
    """Return values that are all there."""
    return _structs(schema, kind, values) if kind[0].isupper() else pa.array(values, _TYPES[kind])
