"""Which bytes are decoded at once: several small lines together, a large line in pieces of whole events.

Pieces are bounded, so that memory does not grow with the file. A cut needs the border between two events. One is
guessed, since events look alike, and protobuf proves it: a piece parses to its very end only if it ends on a border.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from tfperf.wire import schema
from tfperf.wire.trace_file import Span, TraceFile, fields

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
