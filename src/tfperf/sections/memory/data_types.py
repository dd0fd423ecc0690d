"""The names of TensorFlow's data types, which events of allocators note as numbers (`DataType` of types.proto)."""

from __future__ import annotations

_NAMES = (
    "",
    "float32",
    "float64",
    "int32",
    "uint8",
    "int16",
    "int8",
    "string",
    "complex64",
    "int64",
    "bool",
    "qint8",
    "quint8",
    "qint32",
    "bfloat16",
    "qint16",
    "quint16",
    "uint16",
    "complex128",
    "float16",
    "resource",
    "variant",
    "uint32",
    "uint64",
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e4m3b11fnuz",
    "float8_e5m2fnuz",
    "int4",
    "uint4",
    "int2",
    "uint2",
    "float4_e2m1fn",
)
"""By number."""
_REFERENCE = 100
"""A reference to a type has as many more."""


def type_name(number: int) -> str:
    """Return the name of a TensorFlow data type; an empty text for none."""
    plain = number - _REFERENCE if number > _REFERENCE else number
    return _NAMES[plain] if 0 <= plain < len(_NAMES) else f"type {number}"
