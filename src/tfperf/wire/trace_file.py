"""A trace file by its outer fields, and what of it is decoded at once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from google.protobuf.message import DecodeError

from tfperf.errors import TraceFormatError, TraceNotFoundError
from tfperf.wire import schema

SUFFIX = ".xplane.pb"
"""How the names of trace files end."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WINDOW = 1 << 16
_LONGEST_TAG = 5
_MOST_PLANES = 1 << 14
_MANGLED = b"\xef\xbf\xbd"


class Span(NamedTuple):
    """Bytes [start, stop) of a length-delimited field, whose tag starts at `tag`."""

    tag: int
    start: int
    stop: int


class PlaneSpan(NamedTuple):
    """Where one plane lies: its lines, and everything else (names, stats) as pieces to be joined."""

    start: int
    stop: int
    lines: tuple[Span, ...]
    header: tuple[tuple[int, int], ...]


class SpaceSpans(NamedTuple):
    """Where the planes lie, and the short texts of the XSpace itself."""

    planes: tuple[PlaneSpan, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    hostnames: tuple[str, ...]


class TraceFile:
    """An open trace file; `read` returns exactly the bytes asked for, or raises TraceFormatError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb", buffering=0)
            self._opened = os.fstat(self._file.fileno())
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise TraceNotFoundError(f"cannot open {path}: {reason}; check the path and its permissions") from error
        self.size = self._opened.st_size
        self.position = 0
        """How far the file has been read."""
        self._window_start, self._window = 0, b""

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes [start, stop)."""
        try:
            self._file.seek(start)
            pieces, missing = [], stop - start
            while missing > 0 and (piece := self._file.read(missing)):
                pieces.append(piece)
                missing -= len(piece)
        except OSError as error:
            raise TraceFormatError(f"cannot read {self.path}: {error.strerror}") from error
        if missing > 0:
            raise self.changed()
        self.position = stop
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_all(self, pieces: Iterable[tuple[int, int]]) -> bytes:
        """Return the bytes of all pieces, joined."""
        return b"".join(self.read(start, stop) for start, stop in pieces)

    def changed(self) -> TraceFormatError:
        """Return the error for a file that another program writes to."""
        return TraceFormatError(f"{self.path} changed while it was read; try again when it is written completely")

    def check_unchanged(self) -> None:
        """Raise TraceFormatError if the file was written to since it was opened."""
        now = os.fstat(self._file.fileno())
        if (now.st_size, now.st_mtime_ns) != (self._opened.st_size, self._opened.st_mtime_ns):
            raise self.changed()

    def peek(self, position: int) -> tuple[bytes, int]:
        """Return a buffer and the index in it where `position` lies; at least 20 bytes follow unless the file ends."""
        index = position - self._window_start
        if index < 0 or index + 20 > len(self._window):
            self._window_start = position
            self._window = self.read(position, min(position + _WINDOW, self.size))
            index = 0
        return self._window, index

    def damaged(self, position: int, what: str) -> TraceFormatError:
        """Return the error for bytes that are not an XSpace, or that a text conversion destroyed."""
        self.check_unchanged()
        head = self.read(0, min(self.size, 1 << 16))
        if head.count(_MANGLED) > 8:
            return TraceFormatError(
                f"{self.path} was destroyed by a text conversion (its bytes above 0x7f became U+FFFD); "
                "copy the original again in binary mode"
            )
        return TraceFormatError(
            f"{self.path} is damaged or not an XSpace file: {what} at byte {position} of {self.size}; "
            "copy or capture it again"
        )


def _varint(file: TraceFile, position: int, stop: int) -> tuple[int, int]:
    """Return the varint at `position` and the position after it."""
    window, index = file.peek(position)
    value = 0
    for count in range(10):
        if position + count >= stop or index + count >= len(window):
            break
        byte = window[index + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, position + count + 1
    raise file.damaged(position, "an invalid varint")


def fields(file: TraceFile, start: int, stop: int) -> Iterator[tuple[int, Span]]:
    """Iterate over (field number, span) of the message in [start, stop); 0 for fields that are not bytes.

    A field of a wire type other than the declared one is unknown, as in protobuf; here, only bytes are looked for.
    """
    position = start
    while position < stop:
        tag_at = position
        tag, position = _varint(file, position, stop)
        wire_type, value_start = tag & 7, position
        if tag >> 3 == 0 or tag >> 32 or position - tag_at > _LONGEST_TAG:
            raise file.damaged(tag_at, "an invalid field number")
        if wire_type == _VARINT:
            position = _varint(file, position, stop)[1]
        elif wire_type == _BYTES:
            length, value_start = _varint(file, position, stop)
            position = value_start + length
        elif wire_type in (_FIXED64, _FIXED32):
            position += 8 if wire_type == _FIXED64 else 4
        else:
            raise file.damaged(tag_at, f"the unsupported wire type {wire_type}")
        if position > stop:
            raise file.damaged(tag_at, f"a field that is {position - stop} bytes too long (truncated file?)")
        yield (tag >> 3 if wire_type == _BYTES else 0), Span(tag_at, value_start, position)


def walk_plane(file: TraceFile, start: int, stop: int, *, every_field: bool = False) -> PlaneSpan:
    """Find the lines of a plane.

    Writers put fields in number order, so what follows the first event metadata (field 4) is taken as header unseen;
    a header that turns out to contain lines is walked again with `every_field`.
    """
    lines: list[Span] = []
    header: list[tuple[int, int]] = []
    for number, span in fields(file, start, stop):
        if number == 3:
            lines.append(span)
            continue
        end = span.stop if every_field or number < 4 else stop
        if header and header[-1][1] == span.tag:
            header[-1] = (header[-1][0], end)
        else:
            header.append((span.tag, end))
        if end == stop:
            break
    return PlaneSpan(start, stop, tuple(lines), tuple(header))


def walk(file: TraceFile) -> SpaceSpans:
    """Find the planes and lines of an XSpace.

    Raises TraceFormatError for an empty, cut off or foreign file.
    """
    if file.size == 0:
        raise TraceFormatError(f"{file.path} is empty (0 bytes): the profiler wrote nothing; capture again")
    head = file.read(0, min(file.size, 4))
    if head[:2] == b"\x1f\x8b":
        raise TraceFormatError(f"{file.path} is gzip-compressed; decompress it, or give the *.xplane.pb file beside it")
    if head[:1] in b"{[":
        raise TraceFormatError(f"{file.path} is JSON, not an XSpace; give the *.xplane.pb file of the same run")
    planes: list[PlaneSpan] = []
    texts: dict[int, list[str]] = {2: [], 3: [], 4: []}
    for number, span in fields(file, 0, file.size):
        if number == 1:
            planes.append(walk_plane(file, span.start, span.stop))
            if len(planes) > _MOST_PLANES:
                raise file.damaged(span.tag, f"more than {_MOST_PLANES} planes")
        elif number in texts:
            texts[number].append(file.read(span.start, span.stop).decode("utf-8", "replace"))
    if not planes:
        raise TraceFormatError(f"{file.path} contains no planes: it is not an XSpace, or the profiler recorded nothing")
    return SpaceSpans(tuple(planes), tuple(texts[2]), tuple(texts[3]), tuple(texts[4]))


_TAIL = 1 << 14
_GUESSES = 4
_EVENT = (
    rb"\x22[\x80-\xff]{0,3}[\x03-\x7f]"  # an event and its length
    rb"\x08[\x80-\xff]{0,9}[\x00-\x7f]"  # its metadata id
    rb"[\x10\x28]"  # its offset, or how often it happened: what tells it from a stat
)


def line_groups(lines: tuple[Span, ...], limit: int) -> Iterator[tuple[int, int] | Span]:
    """Group neighbouring lines into byte ranges (tags included); a line longer than `limit` comes alone, as a span."""
    start = stop = -1
    for line in lines:
        large = line.stop - line.start > limit
        if start >= 0 and (large or line.tag != stop or line.stop - start > limit):
            yield start, stop
            start = -1
        if large:
            yield line
        else:
            start, stop = (line.tag if start < 0 else start), line.stop
    if start >= 0:
        yield start, stop


def line_pieces(file: TraceFile, line: Span, limit: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over (position, bytes) of a line in pieces of whole fields, each as long as `limit` allows."""
    position = line.start
    while line.stop - position > limit:
        payload = file.read(position, position + limit)
        length = _guessed_border(payload) or _last_border(file, position, position + limit, line.stop) - position
        yield position, payload[:length] if length <= limit else file.read(position, position + length)
        position += length
    if position < line.stop:
        yield position, file.read(position, line.stop)


def _guessed_border(payload: bytes) -> int:
    """Return where the last event starts, or 0 if the guesses were wrong."""
    outline = schema.message_class("LineOutline")
    places = [match.start() for match in re.compile(_EVENT).finditer(payload, max(len(payload) - _TAIL, 1))]
    for place in reversed(places[-_GUESSES:]):
        try:
            outline.FromString(payload[:place])
        except DecodeError:
            continue
        return place
    return 0


def _last_border(file: TraceFile, position: int, limit: int, stop: int) -> int:
    """Walk from field to field to the last border before `limit`; a field longer than that is a piece by itself."""
    border = position
    for _, span in fields(file, position, stop):
        if span.stop > limit:
            return border if border > position else span.stop
        border = span.stop
    return border
