"""A trace file with every text replaced, written plane by plane and piece by piece.

Only declared fields are kept: whatever else a file holds could be a name. Values that are bytes stay only where they
are compiled programs, of which the texts are replaced too, or numbers of cores.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError

from tfperf.formats.wire.encode import one_varint
from tfperf.formats.wire.hlo_schema import PROGRAMS
from tfperf.formats.wire.planes import BATCH_BYTES, check_planes, line_groups, line_pieces
from tfperf.formats.wire.schema import fields_of, message_class
from tfperf.formats.wire.trace_file import PlaneSpan, Span, TraceFile, walk, walk_plane

Rename = Callable[[str], str]
Renumber = Callable[[str], str]
_IN_MEMORY = 1 << 24
_SHORT = 5
"""Characters of names of hosts that other texts may have by chance."""
_LEAST_ID = 1000
"""Lines with smaller ids are no threads of the system."""
_NUMBERS = (b"process_id", b"thread_id", b"user_id", b"pid", b"tid", b"uid")
_PLANE, _ERROR, _WARNING, _HOSTNAME, _LINE = b"\x0a", b"\x12", b"\x1a", b"\x22", b"\x1a"


def rewrite(file: TraceFile, out: BinaryIO, rename: Rename, renumber: Renumber, host: str) -> None:
    """Write the trace with each text as `rename` returns it; all names of hosts become `host`, in other texts too.

    `renumber` returns the digits that stand for those of a process or thread, whose number is a name in texts too.
    Raises TraceFormatError if the file is not a whole XSpace.
    """
    space = walk(file)
    # Without digits, the words of a name are enough.
    hosts = [re.escape(name) for name in space.hostnames if len(name) > _SHORT and re.search(r"\d", name)]
    if hosts:
        rename = _hiding(re.compile("|".join(hosts)), host, rename)
    names = []
    for span in space.planes:
        with _nested(out, _PLANE) as body:
            names.append(_plane(file, span, body, rename, renumber))
    check_planes(file, space, names)
    for tag, texts in ((_ERROR, space.errors), (_WARNING, space.warnings)):
        for text in texts:
            _write(out, tag, rename(text).encode())
    for number, _ in enumerate(space.hostnames):
        _write(out, _HOSTNAME, (host if not number else f"{host}-{number + 1}").encode())
    file.check_unchanged()


@contextmanager
def _nested(out: BinaryIO, tag: bytes) -> Iterator[BinaryIO]:
    """Lend a file for what becomes a nested message: its length stands before it, and is known only when it ends."""
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as body:
        yield body  # type: ignore[misc]
        out.write(tag + one_varint(body.tell()))
        body.seek(0)
        shutil.copyfileobj(body, out)


def _write(out: BinaryIO, tag: bytes, data: bytes) -> None:
    out.write(tag + one_varint(len(data)) + data)


def _hiding(hosts: re.Pattern[str], host: str, rename: Rename) -> Rename:
    return lambda text: rename(hosts.sub(host, text))


def _plane(file: TraceFile, span: PlaneSpan, out: BinaryIO, rename: Rename, renumber: Renumber) -> str:
    """Write a plane, its fields in the order of their numbers, as readers expect; return its own name."""
    span = walk_plane(file, span.start, span.stop, every_field=True)
    plane = _parsed(file, "XPlane", file.read_all(span.header), span.start)
    name: str = plane.name.decode("utf-8", "replace")
    out.write(message_class("XPlane")(id=plane.id, name=_renamed(plane.name, rename)).SerializeToString())
    for group in line_groups(span.lines, BATCH_BYTES):
        if isinstance(group, Span):
            with _nested(out, _LINE) as body:
                for position, payload in line_pieces(file, group, BATCH_BYTES):
                    line = _parsed(file, "XLine", payload, position)
                    _rename_lines([line], rename, renumber, may_have_texts=_has_texts("NumericLine", payload))
                    body.write(line.SerializeToString())
        else:
            payload = file.read(*group)
            lines = _parsed(file, "XPlane", payload, group[0])
            _rename_lines(lines.lines, rename, renumber, may_have_texts=_has_texts("NumericLines", payload))
            out.write(lines.SerializeToString())
    out.write(_header(plane, rename, renumber))
    return name


def _parsed(file: TraceFile, message: str, payload: bytes, position: int) -> Any:
    """Return a message without the fields that it does not declare."""
    parsed = message_class(message)()
    try:
        parsed.ParseFromString(payload)
    except DecodeError as error:
        raise file.damaged(position, f"not a valid {message}") from error
    parsed.DiscardUnknownFields()
    return parsed


def _has_texts(message: str, payload: bytes) -> bool:
    """Tell whether the events of serialized lines may have stats that are no numbers, without a look at each of them.

    The message declares what holds numbers and leaves out the rest; if that makes it shorter, there was something.
    """
    lines = message_class(message)()
    lines.ParseFromString(payload)
    size = lines.ByteSize()
    lines.DiscardUnknownFields()
    return bool(lines.ByteSize() < size)


def _header(plane: Any, rename: Rename, renumber: Renumber) -> bytes:
    """Return the names in a plane and its facts, renamed: all but its lines, its id and its own name."""
    rewrites = {
        entry.key: _OF_BYTES[entry.value.name] for entry in plane.stat_metadata if entry.value.name in _OF_BYTES
    }
    numbers = {entry.key for entry in plane.stat_metadata if entry.value.name in _NUMBERS}
    plane.ClearField("id")
    plane.ClearField("name")
    for event in (entry.value for entry in plane.event_metadata):
        event.name, event.display_name = _renamed(event.name, rename), _renamed(event.display_name, rename)
        event.ClearField("metadata")
        _rename_stats(event.stats, rename, rewrites)
    for stat in (entry.value for entry in plane.stat_metadata):
        stat.name = _renamed(stat.name, rename)
        stat.ClearField("description")
    _rename_stats(plane.stats, rename, rewrites)
    for stat in plane.stats:
        for arm in ("int64_value", "uint64_value"):
            if stat.metadata_id in numbers and (number := getattr(stat, arm)) > 0:
                setattr(stat, arm, int(renumber(str(number))))
    data: bytes = plane.SerializeToString()
    return data


def _rename_lines(lines: Sequence[Any], rename: Rename, renumber: Renumber, *, may_have_texts: bool) -> None:
    for line in lines:
        if line.id >= _LEAST_ID and re.search(rb"[/ ]%d\Z" % line.id, line.name or line.display_name):
            line.id = int(renumber(str(line.id)))
        line.name, line.display_name = _renamed(line.name, rename), _renamed(line.display_name, rename)
        if may_have_texts:  # else there is nothing to do for any event
            for event in line.events:
                _rename_stats(event.stats, rename, {})


def _rename_stats(
    stats: Sequence[Any], rename: Rename, rewrites: Mapping[int, Callable[[bytes, Rename], bytes]]
) -> None:
    """Replace texts; of bytes, those stay whose stat has a function in `rewrites`, by its metadata id."""
    for stat in stats:
        if stat.str_value:
            stat.str_value = _renamed(stat.str_value, rename)
        elif stat.bytes_value:
            rewrite = rewrites.get(stat.metadata_id)
            stat.bytes_value = b"" if rewrite is None else rewrite(stat.bytes_value, rename)


def _program(serialized: bytes, rename: Rename) -> bytes:
    """Return a compiled program with its texts replaced; nothing where it is none."""
    program = PROGRAMS.message_class("HloProto")()
    try:
        program.ParseFromString(serialized)
    except DecodeError:
        return b""
    program.DiscardUnknownFields()
    _rename_message(program, "HloProto", rename)
    data: bytes = program.SerializeToString()
    return data


def _numeric(message: str) -> Callable[[bytes, Rename], bytes]:
    """Return the function that keeps the declared fields of a message, all of which are numbers."""

    def rewritten(serialized: bytes, _rename: Rename) -> bytes:
        made = message_class(message)()
        try:
            made.ParseFromString(serialized)
        except DecodeError:
            return b""
        made.DiscardUnknownFields()
        data: bytes = made.SerializeToString()
        return data

    return rewritten


_OF_BYTES: Mapping[bytes, Callable[[bytes, Rename], bytes]] = {
    b"Hlo Proto": _program,
    b"HLO Proto": _program,
    b"core_details": _numeric("CoreDetails"),
    b"memory_access_breakdown": _numeric("MemoryAccesses"),
}


def _rename_message(message: Any, kind: str, rename: Rename) -> None:
    """Replace all texts of a message and of those inside it."""
    for name, _, declared, _ in fields_of(PROGRAMS.messages[kind]):
        field = declared.removeprefix("[]")
        is_list = field != declared
        if field == "bytes":
            values = getattr(message, name)
            if is_list:
                values[:] = [_renamed(value, rename) for value in values]
            elif values:
                setattr(message, name, _renamed(values, rename))
        elif field[0].isupper() and (is_list or message.HasField(name)):
            value = getattr(message, name)
            for each in value if is_list else (value,):
                _rename_message(each, field, rename)


def _renamed(text: bytes, rename: Rename) -> bytes:
    """Return a text replaced; what is no UTF-8 becomes U+FFFD, as tfperf reads it."""
    return rename(text.decode("utf-8", "replace")).encode("utf-8", "replace")
