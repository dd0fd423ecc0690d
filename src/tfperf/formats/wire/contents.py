"""Count the events of a trace file per plane, and check that it is complete."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from tfperf.formats.wire import decoder
from tfperf.formats.wire.capture_plane import CAPTURE_PLANE, longest_recording_s
from tfperf.formats.wire.planes import WantedStats, check_planes, decoded_lines, read_header
from tfperf.formats.wire.trace_file import TraceFile, walk

_SESSION_PLANE, _START = "Task Environment", "profile_start_time"


class Contents(Struct, frozen=True):
    """Counts of one XSpace file."""

    size_bytes: int
    events_by_plane: dict[str, int]
    event_names: frozenset[str]
    errors: tuple[str, ...]
    """Errors reported by the profiler."""
    warnings: tuple[str, ...]
    start_ns: int | None = None
    """Session start in nanoseconds since 1970, by the process's clock; None if not recorded."""

    @property
    def event_count(self) -> int:
        """Return the number of events on all planes."""
        return sum(self.events_by_plane.values())

    @property
    def has_python_frames(self) -> bool:
        """Return whether the Python tracer recorded events; their names start with `$`."""
        return any(name.startswith("$") for name in self.event_names)

    @property
    def longest_recording_s(self) -> float:
        """Return how long recording the events can have taken, in seconds."""
        of_devices = sum(count for plane, count in self.events_by_plane.items() if plane.startswith("/device:"))
        return longest_recording_s(self.event_count, self.event_count if self.has_python_frames else of_devices)


def look_into(path: Path) -> Contents:
    """Count the events of a trace file; raise TraceFormatError if it is not a complete XSpace."""
    counts: dict[str, int] = {}
    names: set[str] = set()
    start_ns: int | None = None
    with TraceFile(path) as file:
        space = walk(file)
        for span in space.planes:
            header, whole = read_header(file, span, WantedStats({}))
            if header.name == CAPTURE_PLANE:  # added by the capture, not by the job
                counts[header.name] = 0
                continue
            names.update(header.event_names)
            if header.name == _SESSION_PLANE and isinstance(start := header.stats.get(_START), int):
                start_ns = start
            events = (len(decoder.items(lines.field("events"))) for lines, _, _ in decoded_lines(file, whole))
            counts[header.name] = counts.get(header.name, 0) + sum(events)
        check_planes(file, space, tuple(counts))
    return Contents(file.size, counts, frozenset(names), space.errors, space.warnings, start_ns)
