"""Identify files that are not an XSpace, from their first bytes only.

Formats are identified by signatures, or by fields that an XSpace cannot have: its planes begin with a number or a name,
unlike the messages below. Merely likely formats are not reported.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_MOST_VALUES = 8
_SIGNATURES = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"BZh", "compressed by bzip2"),
    (b"\xfd7zXZ\x00", "compressed by xz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
)
_TEXTS = (
    (b"<!doctype html", "an HTML page (of a login, or an error?)"),
    (b"<html", "an HTML page (of a login, or an error?)"),
    (b"<?xml", "an XML file (an error message of a server?)"),
    (b"version https://git-lfs", "a Git LFS pointer (fetch its file with git lfs pull)"),
)
_SHORTEST_TEXT = 16
_FIRST_BYTES = b"\x0a\x12\x1a\x22"
"""Tags of XSpace fields: a truncated XSpace may start like text."""
_LAYOUT = dict.fromkeys(map(ord, "\t\n\r"))
"""Control characters that text may contain."""
_RECORD_HEADER = 12
"""Length (8 bytes) and checksum of a TensorFlow record."""
_OP = re.compile(r"_?[A-Z][A-Za-z0-9_>]*")
_OPCODE = re.compile(r"[a-z][a-z0-9-]*")
_DEVICE = re.compile(r"/job:|/device:|/[cg]pu:\d", re.IGNORECASE)


def other_format(head: bytes) -> str:
    """Return a file's format by its first bytes, and the file to pass instead; empty if uncertain."""
    if head.startswith(b"\x1f\x8b"):
        # 31: expect a gzip header.
        start = zlib.decompressobj(31)
        try:
            inside = start.decompress(head, 1 << 10)
        except zlib.error:
            inside = b""
        if inside.lstrip()[:1] in (b"{", b"["):
            return "gzip-compressed JSON, such as an export for the trace viewer; pass the *.xplane.pb file next to it"
        return "gzip-compressed; decompress it, or pass the *.xplane.pb file next to it"
    if head[:1] in (b"{", b"["):
        return "JSON, not an XSpace; pass the *.xplane.pb file of the same run"
    if b"brain.Event:" in head[_RECORD_HEADER : _RECORD_HEADER + int.from_bytes(head[:8], "little")]:
        what = "a TensorBoard event file"
    elif is_text(head) and head.strip() and (len(head) >= _SHORTEST_TEXT or head[:1] not in _FIRST_BYTES):
        begin = head.lstrip().lower()
        what = next((what for signature, what in _TEXTS if begin.startswith(signature)), "a text file")
    else:
        found = [what for signature, what in _SIGNATURES if head.startswith(signature)]
        what = found[0] if found else next((what for is_it, what in _MESSAGES if is_it(head)), "")
    return what and f"{what}, not an XSpace; pass a *.xplane.pb file"


def is_text(data: bytes) -> bool:
    """Return whether bytes are UTF-8 text without control characters; the end may be truncated."""
    text = data.decode("utf-8", "ignore")
    is_whole = len(data) - len(text.encode()) < 4  # at most a truncated last character
    return is_whole and text.translate(_LAYOUT).isprintable()


def is_graph(data: bytes) -> bool:
    """Return whether it is a GraphDef: node 1 with name 1 and op 2."""
    nodes = list(_values(data, 1))[:3]
    return bool(nodes) and all(_text(node, 1) and _OP.fullmatch(_text(node, 2)) for node in nodes)


def is_meta_graph(data: bytes) -> bool:
    """Return whether it is a MetaGraphDef: graph_def 2."""
    return any(is_graph(graph) for graph in _messages(data, 2))


def is_saved_model(data: bytes) -> bool:
    """Return whether it is a SavedModel: saved_model_schema_version 1, meta_graphs 2."""
    return 1 in _values(data, 1) and any(is_meta_graph(meta_graph) for meta_graph in _messages(data, 2))


def _is_hlo_module(data: bytes) -> bool:
    """HloModuleProto: name 1, entry_computation_name 2, computations 3 with instructions 2 with opcode 2."""
    opcodes = [_text(instruction, 2) for instruction in _messages(data, 3, 2)]
    return bool(_text(data, 1) and _text(data, 2)) and any(map(_OPCODE.fullmatch, opcodes))


_MESSAGES: tuple[tuple[Callable[[bytes], bool], str], ...] = (
    # Nodes 1, a map from number 1 to ProfileNode 2 with name 1 and op 9.
    (
        lambda data: (
            isinstance(next(_values(data, 1, 1), None), int)
            and any(_text(node, 1) and _text(node, 9) for node in _messages(data, 1, 2))
        ),
        "a tfprof profile (ProfileProto)",
    ),
    # Entries 1 with name 1 and code_def 4 with traces 1.
    (
        lambda data: (
            all(_text(entry, 1) and not _text(entry, 2) for entry in _messages(data, 1))
            and any(_messages(data, 1, 4, 1))
        ),
        "a tfprof log (OpLogProto)",
    ),
    # Also a MultiGraphNodeProto: name 1 is tfprof's root.
    (lambda data: _text(data, 1) == "_TFProfRoot", "a tfprof result (GraphNodeProto)"),
    (is_graph, "a TensorFlow graph (GraphDef)"),
    (is_saved_model, "a TensorFlow SavedModel"),
    (is_meta_graph, "a TensorFlow graph (MetaGraphDef)"),
    # step_stats 1 with dev_stats 1 with device 1; partition_graphs 3; function_graphs 4 with graphs 1.
    (
        lambda data: (
            any(_DEVICE.match(_text(stats, 1)) for stats in _messages(data, 1, 1))
            or any(map(is_graph, (*_messages(data, 3), *_messages(data, 4, 1))))
        ),
        "a TensorFlow RunMetadata",
    ),
    # HloProto: hlo_module 1; HloSnapshot: hlo 1.
    (
        lambda data: any(map(_is_hlo_module, (data, *_messages(data, 1), *_messages(data, 1, 1)))),
        "an XLA program (HloProto)",
    ),
    # Packets 1 with trusted_packet_sequence_id 10 and track_event 11 or track_descriptor 60.
    (
        lambda data: any(
            10 in (numbers := {number for number, _ in _fields(packet)}) and numbers & {11, 60}
            for packet in _messages(data, 1)
        ),
        "a Perfetto timeline",
    ),
)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (number, value) of a message's fields until one is invalid; the last may be truncated."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if number < 1:
            return
        if wire_type == _VARINT:
            value, at = _varint(data, at)
            if value < 0:
                return
            yield number, value
        elif wire_type == _BYTES:
            length, at = _varint(data, at)
            if length < 0:
                return
            yield number, data[at : at + length]
            at += length
        elif wire_type in _FIXED_SIZES:
            at += _FIXED_SIZES[wire_type]
        else:
            return


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint and the position after it; -1 if invalid."""
    value = 0
    for count, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, at + count + 1
    return -1, len(data)


def _values(data: bytes, *path: int) -> Iterator[int | bytes]:
    """Yield the first values at a path of field numbers."""
    first, *rest = path
    found = (value for number, value in _fields(data) if number == first)
    for _, value in zip(range(_MOST_VALUES), found, strict=False):
        if not rest:
            yield value
        elif isinstance(value, bytes):
            yield from _values(value, *rest)


def _messages(data: bytes, *path: int) -> Iterator[bytes]:
    return (value for value in _values(data, *path) if isinstance(value, bytes))


def _text(data: int | bytes, number: int) -> str:
    value = next(_values(data, number), b"") if isinstance(data, bytes) else b""
    return value.decode("utf-8", "ignore") if isinstance(value, bytes) and is_text(value) else ""
