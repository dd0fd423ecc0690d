"""Whether what was read as an XSpace is one.

Bytes of another message may parse as an XSpace, since protobuf skips what it does not know. A name that profilers give
to planes settles it. Without one, every field must be what an XSpace declares, every text must be text, and there must
be something that was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from tfperf.formats.wire.other_formats import is_text
from tfperf.formats.wire.trace_file import SpaceSpans, TraceFile, fields

_SPACE_FIELDS = frozenset({1, 2, 3, 4})
_PLANE_FIELDS = frozenset({-1, 2, 3, 4, 5, 6})
"""Declared fields of a plane; negative: a number."""
_MOST_FIELDS = 10_000


def refuse_foreign(file: TraceFile, space: SpaceSpans, names: Sequence[str]) -> None:
    """Raise TraceFormatError unless the file is an XSpace, of whose planes (`names`) no profiler is known."""
    if names and not any(names):
        raise file.foreign("is not an XSpace: none of its planes has a name")
    problem = next(_contradictions(file, space, names), "")
    has_records = any(plane.lines for plane in space.planes) or space.errors or space.warnings
    if not problem and not has_records:
        problem = "none of its planes has a name that profilers write, such as /host:CPU"
    if problem:
        raise file.foreign(f"is not an XSpace: {problem}")


def _contradictions(file: TraceFile, space: SpaceSpans, names: Sequence[str]) -> Iterator[str]:
    """Yield what no profiler writes."""
    if not all(map(_is_name, names)):
        yield "the names of its planes are not text"
    if not all(map(_is_name, (*space.errors, *space.warnings, *space.hostnames))):
        yield "its errors, warnings or host names are not text"
    for start, stop, declared in (
        (0, file.size, _SPACE_FIELDS),
        *((plane.start, plane.stop, _PLANE_FIELDS) for plane in space.planes),
    ):
        for number, span in islice(fields(file, start, stop), _MOST_FIELDS):
            if number not in declared:
                yield f"the field at byte {span.tag} of {file.size} is none of an XSpace"


def _is_name(text: str) -> bool:
    """Tell whether a text was valid UTF-8, without control characters."""
    return "\ufffd" not in text and is_text(text.encode())
