"""What a trace file contains, by counting only: whether it is whole, and how many events each plane has."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from tfperf.formats.wire import decoder
from tfperf.formats.wire.capture_plane import CAPTURE_PLANE, longest_recording_s
from tfperf.formats.wire.planes import WantedStats, check_planes, decoded_lines, read_header
from tfperf.formats.wire.trace_file import TraceFile, walk

_SESSION_PLANE, _START = "Task Environment", "profile_start_time"


class Contents(Struct, frozen=True):
    """What was counted in one XSpace file."""

    size_bytes: int
    events_by_plane: dict[str, int]
    event_names: frozenset[str]
    """Names of all kinds of events, on every plane."""
    errors: tuple[str, ...]
    """What the profiler itself reported as failed."""
    warnings: tuple[str, ...]
    start_ns: int | None = None
    """When the session started, in nanoseconds since 1970 by the clock of its process; None if that is not noted."""

    @property
    def event_count(self) -> int:
        """Return the number of events on all planes."""
        return sum(self.events_by_plane.values())

    @property
    def has_python_frames(self) -> bool:
        """Whether the Python tracer recorded anything: it writes names that start with `$`."""
        return any(name.startswith("$") for name in self.event_names)

    @property
    def longest_recording_s(self) -> float:
        """Return how long recording the events can have taken, in seconds."""
        of_devices = sum(count for plane, count in self.events_by_plane.items() if plane.startswith("/device:"))
        return longest_recording_s(self.event_count, self.event_count if self.has_python_frames else of_devices)


def look_into(path: Path) -> Contents:
    """Count the events of a trace file.

    Raises TraceFormatError if the file is not a whole XSpace.
    """
    counts: dict[str, int] = {}
    names: set[str] = set()
    start_ns: int | None = None
    with TraceFile(path) as file:
        space = walk(file)
        for span in space.planes:
            header, whole = read_header(file, span, WantedStats({}))
            if header.name == CAPTURE_PLANE:  # What a capture adds is nothing that the job did.
                counts[header.name] = 0
                continue
            names.update(header.event_names)
            if header.name == _SESSION_PLANE and isinstance(start := header.stats.get(_START), int):
                start_ns = start
            events = (len(decoder.items(lines.field("events"))) for lines, _, _ in decoded_lines(file, whole))
            counts[header.name] = counts.get(header.name, 0) + sum(events)
        check_planes(file, space, tuple(counts))
    return Contents(file.size, counts, frozenset(names), space.errors, space.warnings, start_ns)
