"""Read a trace file piecewise: byte ranges of planes, lines and metadata.

Only lengths are read here. An XSpace has few planes with few lines, so the walk visits some hundred fields and no
events. Reading by position instead of a memory map turns a file that shrinks meanwhile into an error instead of a
crash, and bounds the memory to one piece.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from tfperf.base.errors import TraceFormatError, TraceNotFoundError
from tfperf.base.files import TRACE_SUFFIX, TRACE_SUFFIXES
from tfperf.base.storage.remote_path import Location, RemotePath
from tfperf.base.units import counted, format_bytes

SUFFIX = TRACE_SUFFIX

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WINDOW = 1 << 16
_LONGEST_TAG = 5
_MOST_PLANES = 1 << 12
_MOST_LINES = 1 << 18
_LONGEST_NAME = 1 << 20
_HEAD_BYTES = 1 << 16
_LARGE = 1 << 26
_UNPACKED_AT_ONCE = 1 << 20
_MOST_TIMES = 100
"""Maximum expansion of a gzip file beyond `_LARGE`: profiles compress to a fifth or a tenth."""
_DECODED = 4
"""Memory for decoding a piece, as a multiple of its bytes."""
_LONGEST_TEXT = 1 << 16
"""Limit on an error or a warning; longer text is cut."""
_MANGLED = b"\xef\xbf\xbd"


class Span(Struct, frozen=True):
    """Bytes [start, stop) of a length-delimited field, whose tag starts at `tag`."""

    tag: int
    start: int
    stop: int


class PlaneSpan(Struct, frozen=True):
    """Byte ranges of one plane: its lines, and everything else (names, stats) as pieces to join."""

    start: int
    stop: int
    lines: tuple[Span, ...]
    header: tuple[tuple[int, int], ...]


class SpaceSpans(Struct, frozen=True):
    """Byte ranges of the planes, and the short texts of the XSpace itself."""

    planes: tuple[PlaneSpan, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    hostnames: tuple[str, ...]


def open_regular(path: Path, *, buffering: int = -1) -> BinaryIO:
    """Open a regular file for reading; raise OSError, also for a named pipe or a device."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.fdopen(descriptor, "rb", buffering)
    except BaseException:
        os.close(descriptor)
        raise


def open_anywhere(path: Location, *, buffering: int = -1) -> BinaryIO:
    """Open a local file, or a temporary copy of a remote one; raise OSError (local) or TfperfError (remote)."""
    if isinstance(path, Path):
        return open_regular(path, buffering=buffering)
    from tfperf.base.storage.reading import download  # imported only for remote files

    return download(path)


def _unpacked(packed: BinaryIO, path: Location) -> BinaryIO:
    """Unpack a gzip file into a temporary file, and close the packed one."""
    import gzip
    import tempfile
    import zlib

    from tfperf.formats.wire.schema import LARGEST_MESSAGE

    unpacked = tempfile.SpooledTemporaryFile(_LARGE, prefix="tfperf-")  # noqa: SIM115  (the caller closes it)
    try:
        with packed, gzip.GzipFile(fileobj=packed) as content:
            while piece := content.read(_UNPACKED_AT_ONCE):
                if unpacked.tell() + len(piece) > LARGEST_MESSAGE:
                    most = format_bytes(LARGEST_MESSAGE)
                    raise TraceFormatError(
                        f"{path} has more than {most}, the maximum size of a profile; capture it again"
                    )
                unpacked.write(piece)
                if unpacked.tell() > max(_LARGE, _MOST_TIMES * packed.tell()):
                    large = f"{format_bytes(packed.tell())} unpack to more than {format_bytes(unpacked.tell())}"
                    raise TraceFormatError(f"{path}: {large}, unlike any profile; capture it again")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        unpacked.close()
        raise TraceFormatError(f"{path} is cut off, damaged or not a gzip file: copy it again") from error
    except OSError as error:
        unpacked.close()
        raise TraceFormatError(f"cannot unpack {path}: {error.strerror or error}") from error
    except BaseException:
        unpacked.close()
        raise
    return unpacked  # type: ignore[return-value]  # it is one in all but its type


class TraceFile:
    """An open trace file; `read` returns exactly the requested (unpacked) bytes or raises TraceFormatError."""

    def __init__(self, path: Location) -> None:
        self.path = path
        try:
            self._file = open_anywhere(path, buffering=0)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise TraceNotFoundError(f"cannot open {path}: {reason}; check the path and its permissions") from error
        self._is_copy = isinstance(path, RemotePath)
        if path.name.endswith(TRACE_SUFFIXES[1]):
            self._file, self._is_copy = _unpacked(self._file, path), True
        self._stamp = self._size_and_time()
        self.size = self._file.seek(0, os.SEEK_END)
        self.position = 0
        """Furthest position read."""
        self._window_start, self._window = 0, b""

    @property
    def can_reopen(self) -> bool:
        """Return whether `reopen` works; it does not for unpacked files."""
        return isinstance(self._file, FileIO)

    def reopen(self) -> None:
        """Reopen the file in a copy of this process (Linux), so that each has its own position."""
        self._file = FileIO(f"/proc/self/fd/{self._file.fileno()}")

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes [start, stop), unless the machine has too little memory to decode them."""
        if stop - start > _LARGE:
            self._refuse_without_memory(stop - start)
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
        """Return the joined bytes of all pieces."""
        return b"".join(self.read(start, stop) for start, stop in pieces)

    def _refuse_without_memory(self, size: int) -> None:
        """Raise TraceFormatError, because the decoder ends the process if it cannot allocate memory."""
        from tfperf.base.process import available_bytes  # only a damaged file has such pieces

        free = available_bytes()
        if free < _DECODED * size:
            needs = f"a piece of {format_bytes(size)} requires {format_bytes(_DECODED * size)} of memory"
            raise TraceFormatError(
                f"{self.path} is too large for this machine, or damaged: {needs}, but only {format_bytes(free)} is free"
            )

    def changed(self) -> TraceFormatError:
        """Return the error for a file that another program writes."""
        return TraceFormatError(f"{self.path} changed while being read; try again once it is complete")

    def check_unchanged(self) -> None:
        """Raise TraceFormatError if the file was written since it was opened."""
        if self._size_and_time() != self._stamp:
            raise self.changed()

    def _size_and_time(self) -> tuple[int, int] | None:
        """Return a value that changes with each write; None for a private copy."""
        if self._is_copy:
            return None
        now = os.fstat(self._file.fileno())
        return now.st_size, now.st_mtime_ns

    def peek(self, position: int) -> tuple[bytes, int]:
        """Return a buffer and the index of `position` in it; at least 20 bytes follow unless the file ends."""
        index = position - self._window_start
        if index < 0 or index + 20 > len(self._window):
            self._window_start = position
            self._window = self.read(position, min(position + _WINDOW, self.size))
            index = 0
        return self._window, index

    def damaged(self, position: int, what: str) -> TraceFormatError:
        """Return the error for bytes that are not an XSpace, or that a text conversion destroyed."""
        self.check_unchanged()
        head = self.read(0, min(self.size, _HEAD_BYTES))
        if head.count(_MANGLED) > 8:
            return TraceFormatError(
                f"{self.path} was corrupted by a text-mode copy (bytes above 0x7f became U+FFFD); copy the original "
                "again in binary mode"
            )
        why = f"damaged or not an XSpace file: {what} at byte {position} of {self.size}; copy or capture it again"
        return TraceFormatError(f"{self.path} is {described(head) or why}")

    def foreign(self, why: str) -> TraceFormatError:
        """Return the error for another kind of file: its format, or `why` if it cannot be identified."""
        found = described(self.read(0, min(self.size, _HEAD_BYTES)))
        return TraceFormatError(f"{self.path} is {found}" if found else f"{self.path} {why}; pass a *{SUFFIX} file")


def described(head: bytes) -> str:
    """Return a file's format by its first bytes, and the file to pass instead; empty if unknown."""
    from tfperf.formats.wire.other_formats import other_format  # imported only for rejected files

    return other_format(head)


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
    """Yield (field number, span); negative numbers are not bytes: unexpected wire types are unknown fields."""
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
            raise file.damaged(tag_at, f"a field that is {counted(position - stop, 'byte')} too long (truncated file?)")
        yield (tag >> 3 if wire_type == _BYTES else -(tag >> 3)), Span(tag_at, value_start, position)


def walk_plane(file: TraceFile, start: int, stop: int, *, every_field: bool = False) -> PlaneSpan:
    """Find the lines of a plane. Everything after the first event metadata (field 4) is assumed to be header, because
    writers order fields by number; a header with lines is walked again with `every_field`.
    """
    lines: list[Span] = []
    header: list[tuple[int, int]] = []
    for number, span in fields(file, start, stop):
        if number == 3:
            lines.append(span)
            if len(lines) > _MOST_LINES:
                raise file.damaged(span.tag, f"a plane with more than {_MOST_LINES:,} lines")
            continue
        if number == 2 and span.stop - span.start > _LONGEST_NAME:
            raise file.damaged(span.tag, f"a plane with a name of {span.stop - span.start} bytes")
        end = span.stop if every_field or number < 4 else stop
        if header and header[-1][1] == span.tag:
            header[-1] = (header[-1][0], end)
        else:
            header.append((span.tag, end))
        if end == stop:
            break
    return PlaneSpan(start, stop, tuple(lines), tuple(header))


def walk(file: TraceFile) -> SpaceSpans:
    """Find the planes and lines of an XSpace; raise TraceFormatError for an empty, truncated or foreign file."""
    if file.size == 0:
        raise TraceFormatError(f"{file.path} is empty (0 bytes): the profiler did not write any data; capture again")
    planes: list[PlaneSpan] = []
    texts: dict[int, list[str]] = {2: [], 3: [], 4: []}
    for number, span in fields(file, 0, file.size):
        if number == 1:
            planes.append(walk_plane(file, span.start, span.stop))
            if len(planes) > _MOST_PLANES:
                raise file.damaged(span.tag, f"more than {_MOST_PLANES:,} planes")
        elif number in texts:
            stop = min(span.stop, span.start + _LONGEST_TEXT)
            texts[number].append(file.read(span.start, stop).decode("utf-8", "replace"))
    if not planes and not texts[2] and not texts[3]:
        raise file.foreign("contains no planes: it is not an XSpace, or the profiler recorded no events")
    return SpaceSpans(tuple(planes), tuple(texts[2]), tuple(texts[3]), tuple(texts[4]))
