"""Reading a trace file into a HostTrace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, get_args

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import NO_NUMBERS, Bools, Int64s
from tfperf.base.storage.remote_path import Location
from tfperf.base.units import natural
from tfperf.formats.hlo.messages import HLO_PROTO, PROGRAM_PLANE, read_programs
from tfperf.formats.wire.capture_plane import CAPTURE_PLANE
from tfperf.formats.wire.event_columns import (
    ASYNC_LINE,
    MODULE_LINE,
    OP_LINES,
    EventColumns,
    Line,
    join_columns,
    lines_of,
)
from tfperf.formats.wire.planes import PlaneHeader, check_planes, read_events, read_header
from tfperf.formats.wire.trace_file import PlaneSpan, TraceFile, walk
from tfperf.trace.device.device_clock import LONGEST_PS, DeviceClock, put_on_device_clocks
from tfperf.trace.event_names import CUDA_GRAPH, JITTED_CALL, is_memory, mask
from tfperf.trace.flaw import Oddities, OdditiesOfPlane
from tfperf.trace.host.python_activity import PythonActivity, read_activity
from tfperf.trace.host_trace import TPU_KINDS, HostTrace, MemoryEvents, Plane, PlaneKind, plane_kind
from tfperf.trace.known_stats import BASE, DEFAULT, HLO_OPS, JAX, KNOWN, TPU, reads_memory, wanted_stats
from tfperf.trace.logdir import HostFile

Progress = Callable[[int, int], None]


Accepted = Mapping[str, Bools | None]
"""Stats by name, and which event names have them; None: all events do."""


class AlsoRead(Struct, frozen=True):
    """A second trace of a file, with these stats and events without duration; `receive` is called with it."""

    stats: frozenset[str]
    receive: Callable[[HostTrace], None]


_NEEDED_WITH = {JITTED_CALL.encode(): JAX, b"/device:GPU:": HLO_OPS, b"/device:TPU:": TPU}
"""Additional stats to read if a plane's names contain this text."""
_COUNTED_LINES = (*OP_LINES, MODULE_LINE, ASYNC_LINE, "Steps")
"""Lines of a TPU whose events all count, with or without duration; they determine the captured time."""
LONGEST_NAME = 4096
"""Longer names and texts are cut before processing: real ones are a tenth of that."""


def read_host(
    path: Location,
    host: str = "",
    *,
    stats: frozenset[str] | None = None,
    instants: bool = False,
    everything: bool = False,
    progress: Progress | None = None,
) -> HostTrace:
    """Read one trace file. `host` is its name, by default the one in the file.

    `stats` are read in addition to those of steps (`BASE`); None means all known ones except `LINKS`. `instants` keeps
    events without duration; like links, they are needed only to reproduce the conclusions of TensorFlow. `everything`
    reads all events, all stats (if `stats` is empty), and planes that no analysis uses. Raises TraceNotFoundError and
    TraceFormatError.
    """
    if everything:
        read_stats = frozenset(KNOWN) if stats is None else stats
    else:
        read_stats = BASE | (DEFAULT if stats is None else stats)
    every_stat = everything and stats is None
    reading = _Reading(read_stats, instants=instants or everything, everything=everything, every_stat=every_stat)
    return _read(path, host, reading, progress)


def read_host_twice(
    path: Location,
    host: str = "",
    *,
    stats: frozenset[str],
    instants: bool = False,
    also: AlsoRead,
    progress: Progress | None = None,
) -> HostTrace:
    """Return the result of `read_host`; `also` gets a second trace of the file, which is decoded only once."""
    return _read(path, host, _Reading(BASE | stats, instants=instants, also=also), progress)


def _read(path: Location, host: str, reading: _Reading, progress: Progress | None) -> HostTrace:
    with TraceFile(path) as file:
        space = walk(file)
        for names in (file.read_all(span.header) for span in space.planes if span.lines):
            for text, stats in _NEEDED_WITH.items():
                if text in names:
                    reading.stats |= stats
                    reading.also_stats |= stats
        of_names = wanted_stats("gpu", reading.stats)
        found = [read_header(file, span, of_names) for span in space.planes]
        reading.add_headers([header for header, _ in found])
        for number, (header, span) in enumerate(found):
            reading.add_events(file, span, header, number, progress)
        programs = reading.read_programs(file)
        check_planes(file, space, [plane.name for plane in reading.planes])
        file.check_unchanged()
    events, memory, extent_ps, clock_zero_ns, clocks = reading.joined()
    trace = HostTrace(
        host=host or next(iter(space.hostnames), "localhost"),
        recorded_host=next(iter(space.hostnames), ""),
        path=path,
        size_bytes=file.size,
        planes=tuple(reading.planes),
        lines=events.lines,
        name=events.name,
        start_ps=events.start_ps,
        duration_ps=events.duration_ps,
        extent_ps=extent_ps,
        clock_zero_ns=clock_zero_ns,
        names=tuple(reading.names),
        display_names=tuple(reading.display_names),
        read_stats=reading.stats,
        stats=events.stats,
        name_stats=reading.name_stats,
        every_stat=events.every,
        allocations=memory if reads_memory(reading.stats) else None,
        hlo_protos=programs,
        errors=space.errors,
        warnings=space.warnings,
        malformed_events=reading.malformed,
        aggregated_events=reading.aggregated,
        cut_names=reading.cut_names,
        python_activity=reading.python_activity if not clock_zero_ns else PythonActivity(),
        oddities=reading.oddities,
        device_clocks=clocks,
    )
    if reading.also is not None:
        events = reading.joined_again()
        columns = {key: getattr(events, key) for key in ("lines", "name", "start_ps", "duration_ps", "stats")}
        reading.also.receive(_with_graph_ops(replace(trace, **columns, read_stats=reading.also_stats)))
    return _with_graph_ops(trace)


def _with_graph_ops(trace: HostTrace) -> HostTrace:
    ops = trace.stats.get("hlo_op")
    if ops is None or trace.device_kind != "gpu" or not any(map(CUDA_GRAPH.match, ops.texts)):
        return trace
    from tfperf.trace.device.graph_ops import with_graph_ops

    return with_graph_ops(trace)


class _Reading:
    """Data collected while a file is read, plane by plane and batch by batch."""

    def __init__(
        self,
        stats: frozenset[str],
        *,
        instants: bool,
        everything: bool = False,
        every_stat: bool = False,
        also: AlsoRead | None = None,
    ) -> None:
        self.stats, self.instants, self.everything, self.every_stat = stats, instants, everything, every_stat
        self.also, self.also_stats = also, frozenset() if also is None else BASE | also.stats
        self.planes: list[Plane] = []
        self.program_plane: PlaneSpan | None = None
        self.python_activity = PythonActivity()
        self.names: list[str] = []
        self.display_names: list[str] = []
        self.name_stats: dict[str, dict[int, int | float | str]] = {}
        self.malformed, self.aggregated, self.cut_names = 0, 0, 0
        self.oddities = Oddities()
        # Positions in `planes` of the planes in file order, and in `names` of their names.
        self._places: list[int] = []
        self._name_places: list[Int64s] = []
        self._events: list[EventColumns] = []
        # Events of the second trace.
        self._again: list[EventColumns] = []
        # Start and end of each line of the events, including those of events that are not kept.
        self._extents: list[tuple[int, int] | None] = []
        # Allocations have no duration, so they are not among the events.
        self._memory: list[EventColumns] = []
        self._is_memory = np.empty(0, np.bool_)
        # Positions of lines in file order, sorted by content.
        self._order: list[int] = []
        self._known_accepted: dict[tuple[PlaneKind, frozenset[str]], Accepted] = {}

    def add_headers(self, headers: Sequence[PlaneHeader]) -> None:
        """Sort planes and their names, because the arbitrary order of a file must not decide ties (equal times)."""
        names = [_order_of_names(header) for header in headers]

        def key(number: int) -> tuple[Any, ...]:
            header = headers[number]
            stats = sorted((stat, str(value)) for stat, value in header.stats.items())
            kind = get_args(PlaneKind).index(plane_kind(header.name))
            texts = [header.event_names[position] for position in names[number]]
            return kind, natural(header.name), header.name, header.id, stats, texts

        ordered = sorted(range(len(headers)), key=key)
        self._places = np.argsort(ordered).tolist()
        self._name_places = [NO_NUMBERS] * len(headers)
        for number in ordered:
            header, order, first = headers[number], names[number], len(self.names)
            # The last one is for events without a name.
            places = np.argsort([*order, len(order)]) + first
            self._name_places[number] = places
            for stat, values in header.event_stats.items():
                of_names = self.name_stats.setdefault(stat, {})
                of_names.update(sorted((int(places[position]), value) for position, value in values.items()))
            self.names += [*self._cut([header.event_names[position] for position in order]), ""]
            self.display_names += [*self._cut([header.event_display_names[position] for position in order]), ""]
            stats = dict(sorted(header.stats.items()))
            self.planes.append(Plane(header.id, self._cut([header.name])[0], plane_kind(header.name), stats, 0))
        self._is_memory = mask(self.names, is_memory)

    def add_events(
        self, file: TraceFile, span: PlaneSpan, header: PlaneHeader, number: int, progress: Progress | None
    ) -> None:
        """Read the events of a plane, the `number`th of the file, if they are used."""
        place, names = self._places[number], self._name_places[number]
        kind, count = self.planes[place].kind, 0
        if header.name == PROGRAM_PLANE:
            self.program_plane = span
        if header.name == CAPTURE_PLANE:
            self.python_activity = read_activity(file, span, header)
        if kind != "other" or self.everything:
            wanted = wanted_stats(
                kind, self.stats | self.also_stats if self.also else self.stats, every=self.every_stat
            )
            stats = (self.stats, self.also_stats) if self.also is not None else (frozenset[str](), frozenset[str]())
            own, again = (self._accepted(kind, each) for each in stats)
            odd = OdditiesOfPlane(header)
            for events in read_events(file, span, header, wanted, plane=place):
                count += len(events.name)
                if progress:
                    progress(file.position, file.size)
                odd.add(events)
                self._add_events(replace(events, name=names[events.name]), kind, own, again)
            self.oddities = self.oddities.plus(odd.counted(KNOWN.keys(), kind))
        self.planes[place] = replace(self.planes[place], event_count=count)

    def read_programs(self, file: TraceFile) -> dict[int, bytes] | None:
        if HLO_PROTO not in self.stats:
            return None
        return read_programs(file, self.program_plane) if self.program_plane else {}

    def _cut(self, texts: Sequence[str]) -> Sequence[str]:
        """Return texts cut to `LONGEST_NAME`, unless everything is read."""
        if self.everything:
            return texts
        self.cut_names += sum(len(text) > LONGEST_NAME for text in texts)
        return _cut(texts)

    def _add_events(self, events: EventColumns, kind: PlaneKind, own: Accepted, again: Accepted) -> None:
        duration, offset = events.duration_ps, events.start_ps
        sane = (duration >= 0) & (duration < LONGEST_PS) & (offset > -LONGEST_PS) & (offset < LONGEST_PS)
        usable = sane & ~events.aggregated
        self.malformed += len(sane) - int(sane.sum())
        self.aggregated += int((sane & events.aggregated).sum())
        self._extend(events, usable)
        if self.also is not None:
            kept = _with_stats(events, again).only(usable)
            # Times are converted to another clock in place.
            self._again.append(replace(kept, start_ps=kept.start_ps.copy()))
            events = _with_stats(events, own)
        if reads_memory(self.stats):
            is_memory = usable & self._is_memory[events.name]
            stats_of_memory = events.stats if is_memory.any() else {}
            self._memory.append(replace(events, stats=stats_of_memory, every=None).only(is_memory))
        # Whether a TPU event has a duration is known only on the clock of its chip.
        self._events.append(events.only(usable if self.instants or kind in TPU_KINDS else usable & (duration > 0)))

    def _accepted(self, kind: PlaneKind, stats: frozenset[str]) -> Accepted:
        """Return the stats that events of a plane would have if only `stats` were read, and the event names of each."""
        if (kind, stats) not in self._known_accepted:
            wanted = wanted_stats(kind, stats)
            self._known_accepted[kind, stats] = {
                name: wanted.only_on[name](self.names) if name in wanted.only_on else None for name in wanted.types
            }
        return self._known_accepted[kind, stats]

    def _extend(self, events: EventColumns, usable: Bools) -> None:
        """Extend the time span of each line by the usable events."""
        is_all = bool(usable.all())
        for index, line in enumerate(events.lines):
            rows = slice(line.start, line.stop)
            starts, durations = events.start_ps[rows], events.duration_ps[rows]
            if not is_all:
                starts, durations = starts[usable[rows]], durations[usable[rows]]
            extent = (int(starts.min()), int((starts + durations).max())) if len(starts) else None
            before = self._extents.pop() if index == 0 and events.continued else None
            self._extents.append(_hull([each for each in (before, extent) if each is not None]))

    def joined(self) -> tuple[EventColumns, MemoryEvents, tuple[int, int], int, dict[int, DeviceClock]]:
        """Return all events (of TPUs: on chip clocks) and allocations, the time span of all events, the clock's zero,
        chip clocks.
        """
        lines = [line for line, _ in lines_of(self._events)]
        keys = [(line.plane, line.id, line.raw_name, line.display_name, line.timestamp_ns) for line in lines]
        self._order = sorted(range(len(lines)), key=keys.__getitem__)
        events = self._with_short_texts(join_columns(self._events, self._order))
        memory = self._with_short_texts(join_columns(self._memory, self._order if self._memory else ()))
        extents_of_lines = [self._extents[index] for index in self._order]
        of_lines = [(line, extent) for line, extent in zip(events.lines, extents_of_lines, strict=True) if extent]
        zeros = self._zeros = clock_zeros({line.timestamp_ns for line, _ in of_lines})
        put_on_clock(events, zeros)
        put_on_clock(memory, zeros)
        events, clocks = self._on_device_clocks(events)
        with_ops = {line.plane for line, _ in of_lines if line.name in _COUNTED_LINES}
        extents = []
        for line, (start, end) in of_lines:
            if self.planes[line.plane].kind not in TPU_KINDS:
                shift = (line.timestamp_ns - zeros[line.timestamp_ns]) * 1000
                extents.append((start + shift, end + shift))
        for line in events.lines:
            if line.stop == line.start or self.planes[line.plane].kind not in TPU_KINDS:
                continue
            # Lines other than the ops of a TPU may end after the capture.
            if line.name in _COUNTED_LINES or line.plane not in with_ops:
                starts, durations = (column[line.start : line.stop] for column in (events.start_ps, events.duration_ps))
                extents.append((int(starts.min()), int((starts + durations).max())))
        memory = in_order(memory)
        allocates = np.array([name == "MemoryAllocation" for name in self.names], np.bool_)[memory.name]
        threads = np.repeat(np.arange(len(memory.lines)), [line.stop - line.start for line in memory.lines])
        memory_events = MemoryEvents(memory.start_ps, allocates, threads, memory.stats)
        zero = min((zero for zero in zeros.values() if zero), default=0)
        return in_order(self._timed(events)), memory_events, _hull(extents) or (0, 0), zero, clocks

    def joined_again(self) -> EventColumns:
        """Return the events of the second trace, on the same clocks and in their order."""
        events = join_columns(self._again, self._order)
        put_on_clock(events, self._zeros)
        events, _ = self._on_device_clocks(events)
        stats = {name: replace(stat, texts=tuple(_cut(stat.texts))) for name, stat in events.stats.items()}
        return in_order(replace(events, stats=stats))

    def _on_device_clocks(self, events: EventColumns) -> tuple[EventColumns, dict[int, DeviceClock]]:
        """Return the events with those of TPUs on the clocks of their chips, and these clocks by plane."""
        chips = {place: plane.name for place, plane in enumerate(self.planes) if plane.kind in TPU_KINDS}
        if not chips:
            return events, {}
        # An event moves with those before and after it.
        events = in_order(events)
        return events, put_on_device_clocks(events, chips, self.names)

    def _timed(self, events: EventColumns) -> EventColumns:
        """Return the events without TPU events that have no duration, except ops and runs, which count."""
        if self.instants or not any(plane.kind in TPU_KINDS for plane in self.planes):
            return events
        keep = events.duration_ps > 0
        for line in events.lines:
            if line.name in _COUNTED_LINES and self.planes[line.plane].kind in TPU_KINDS:
                keep[line.start : line.stop] = True
        return events.only(keep)

    def _with_short_texts(self, events: EventColumns) -> EventColumns:
        stats = {name: replace(stat, texts=tuple(self._cut(stat.texts))) for name, stat in events.stats.items()}
        return replace(events, stats=stats)


def _with_stats(events: EventColumns, accepted: Accepted) -> EventColumns:
    kept = {}
    for name, stat in events.stats.items():
        if name not in accepted:
            continue
        if (of_name := accepted[name]) is None:
            kept[name] = stat
        elif (rows := of_name[events.name[stat.event]]).any():
            kept[name] = replace(stat, event=stat.event[rows], value=stat.value[rows])
    return replace(events, stats=kept)


def _cut(texts: Sequence[str]) -> Sequence[str]:
    return [text[:LONGEST_NAME] for text in texts] if any(len(text) > LONGEST_NAME for text in texts) else texts


def _hull(spans: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    return (min(start for start, _ in spans), max(end for _, end in spans)) if spans else None


def _order_of_names(header: PlaneHeader) -> list[int]:
    """Return the positions of a plane's names, sorted by text, and for equal ones by the other metadata."""
    names, shown = header.event_names, header.event_display_names
    order = sorted(range(len(names)), key=names.__getitem__)
    if len({*names}) == len(names):
        return order
    stats = sorted(header.event_stats.items())
    return sorted(order, key=lambda at: (names[at], shown[at], [str(values.get(at, "")) for _, values in stats]))


def clock_zeros(stamps: set[int]) -> dict[int, int]:
    """Return for each timestamp (ns) of a line its zero, so that picoseconds fit into an int64.

    That is 0, or for a clock that counts from 1970 its earliest line. Lines further apart than any capture are on
    different clocks, each with its earliest line as zero.
    """
    longest_ns = LONGEST_PS // 1000
    zero = 0 if all(abs(stamp) < longest_ns for stamp in stamps) else min(stamps)
    zeros = {}
    for stamp in sorted(stamps):
        zero = stamp if stamp - zero >= longest_ns else zero
        zeros[stamp] = zero
    return zeros


def put_on_clock(events: EventColumns, zeros: dict[int, int]) -> None:
    """Convert times relative to a line's timestamp to the clock of the file, in place."""
    for line in events.lines:
        if line.stop > line.start:
            events.start_ps[line.start : line.stop] += (line.timestamp_ns - zeros[line.timestamp_ns]) * 1000


def in_order(events: EventColumns) -> EventColumns:
    """Return the events in the order of a HostTrace; lines of one plane with the same id are merged."""
    same: dict[tuple[int, int], list[Line]] = {}
    for line in events.lines:
        same.setdefault((line.plane, line.id), []).append(line)
    starts, lasts, ordered = events.start_ps, events.duration_ps, []
    for parts in same.values():
        rows = slice(parts[0].start, parts[0].stop)
        step, longer = np.diff(starts[rows]), np.diff(lasts[rows]) > 0
        ordered.append(len(parts) == 1 and not ((step < 0) | ((step == 0) & longer)).any())
    if all(ordered):
        return events
    order, merged, start = [NO_NUMBERS], [], 0
    for parts, is_ordered in zip(same.values(), ordered, strict=True):
        on_line = np.concatenate([np.arange(part.start, part.stop) for part in parts])
        order.append(on_line if is_ordered else on_line[np.lexsort((-lasts[on_line], starts[on_line]))])
        merged.append(replace(parts[0], start=start, stop=start + len(on_line)))
        start += len(on_line)
    return events.ordered(np.concatenate(order), tuple(merged))


def progress_by_file(files: Sequence[HostFile], progress: Progress | None) -> list[Progress | None]:
    """Return a progress callback per file, so that `progress` counts the bytes of all files."""
    if progress is None:
        return [None] * len(files)
    sizes = [file.size_bytes or 0 for file in files]

    def add(before: int, size: int, done: int, of: int) -> None:
        progress(before + done * size // max(of, 1), sum(sizes))  # a compressed file yields more bytes than its size

    return [partial(add, *each) for each in zip(accumulate(sizes, initial=0), sizes, strict=False)]
