"""Protobuf by hand: for what no serializer writes, such as fields out of order, wrong types and impossible lengths.

message(field(1, 5), field(2, b"name"))
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)


def varint(number: int) -> bytes:
    """A number as protobuf writes it; negative ones take ten bytes."""
    number %= 1 << 64
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def tag(number: int, wire_type: int) -> bytes:
    """What stands before the value of a field."""
    return varint(number << 3 | wire_type)


def field(number: int, value: int | bytes) -> bytes:
    """One field: a number as a varint, bytes with their length."""
    if isinstance(value, int):
        return tag(number, VARINT) + varint(value)
    return tag(number, BYTES) + varint(len(value)) + value


def message(*fields: bytes) -> bytes:
    """Fields one after the other."""
    return b"".join(fields)


def written(folder: Path, *data: bytes, name: str = "made.xplane.pb") -> Path:
    """Write bytes to a file, and return its path."""
    (folder / name).write_bytes(b"".join(data))
    return folder / name


def nested_groups(depth: int) -> bytes:
    """A field that is a group in a group in a group."""
    return tag(6, GROUP) * depth + tag(6, END_GROUP) * depth


@st.composite
def damage(draw: st.DrawFn, whole: st.SearchStrategy[bytes], *, changes: int, longest: int) -> bytes:
    """Bytes with some changed (mostly: that keeps the lengths of others right), left out, repeated or cut off."""
    data = draw(whole)
    for _ in range(draw(st.integers(1, changes))):
        at = draw(st.integers(0, len(data)))
        stop = min(at + draw(st.integers(0, longest)), len(data))
        changed = draw(st.binary(min_size=1, max_size=1)) + data[at + 1 :]
        others = data[at:], data[stop:], data[at:stop] + data[at:], b""
        data = data[:at] + draw(st.sampled_from([*[changed] * 12, *others]))
    return data
