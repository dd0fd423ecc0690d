"""What a trace file holds, by counting only: is it whole, how many events, whose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tfperf.wire import decoder
from tfperf.wire.batching import groups, pieces
from tfperf.wire.planes import BATCH_BYTES, read_header
from tfperf.wire.stats import WantedStats
from tfperf.wire.trace_file import PlaneSpan, Span, TraceFile, walk

_PYTHON_FRAME = "$"
_NO_STATS = WantedStats(frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class Contents:
    """What was counted in one XSpace file."""

    size_bytes: int
    event_count: int
    events_by_plane: dict[str, int]
    event_names: frozenset[str]
    """Names of all kinds of events, on every plane."""
    errors: tuple[str, ...]
    """What the profiler itself reported as failed."""
    warnings: tuple[str, ...]

    @property
    def has_python_frames(self) -> bool:
        """Whether the Python tracer recorded anything: it writes names that begin with `$`."""
        return any(name.startswith(_PYTHON_FRAME) for name in self.event_names)


def look_into(path: Path) -> Contents:
    """Count the events of a trace file.

    Raises TraceFormatError if the file is not a whole XSpace.
    """
    counts: dict[str, int] = {}
    names: set[str] = set()
    with TraceFile(path) as source:
        space = walk(source)
        for span in space.planes:
            header, whole = read_header(source, span, _NO_STATS)
            names.update(header.event_names)
            counts[header.name] = counts.get(header.name, 0) + _count(source, whole)
    return Contents(
        source.size, sum(counts.values()), counts, frozenset(names), space.errors, space.warnings
    )  # fmt: skip


def _count(source: TraceFile, plane: PlaneSpan) -> int:
    """Count the events of a plane without decoding one."""
    total = 0
    for group in groups(plane.lines, BATCH_BYTES):
        if isinstance(group, Span):
            for position, payload in pieces(source, group, BATCH_BYTES):
                total += len(decoder.items(decoder.decode(source, "Line", payload, position).column("events")))
        else:
            start, stop = group
            lines = decoder.items(decoder.decode(source, "Lines", source.read(start, stop), start).column("lines"))
            total += len(decoder.items(lines.field("events")))
    return total
