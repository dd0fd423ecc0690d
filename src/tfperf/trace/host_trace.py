"""HostTrace: the events of one host as columns.

One row per event, ordered by line, and within a line by start (the longer event first, so that parents precede their
children); of several with the same start and duration, the first one of the file is the parent. Planes are in order of
their kinds and names, lines of a plane in that of their ids, names of events and texts of stats in their own. So the
order of a file says nothing more, and whatever depends on the order of columns, such as which of two equal rows comes
first, depends on content. Nothing here changes after it is built.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, wraps
from typing import Any, Literal, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import NO_NUMBERS, Bools, Float64s, Int32s, Int64s, distinct_index, lookup
from tfperf.base.storage.remote_path import Location
from tfperf.formats.hlo.messages import HLO_PROTO, NamedProgram, read_names
from tfperf.formats.wire.capture_plane import CAPTURE_PLANE, CaptureFacts
from tfperf.formats.wire.event_columns import NO_STAT, Line, Stat, StatRows
from tfperf.trace.device.device_clock import DeviceClock
from tfperf.trace.flaw import Oddities
from tfperf.trace.host.python_activity import PythonActivity

_SEARCH = 16
"""How many times longer it takes to search for a row than to pass over one."""
_AFTER_PS = 1000
_SESSION_PLANE = "Task Environment"
"""The plane that says when the profiler started and stopped."""
PlaneKind = Literal["host", "gpu", "tpu", "sparse core", "other"]
TPU_KINDS: tuple[PlaneKind, ...] = ("tpu", "sparse core")
"""What a TPU consists of."""


Found = TypeVar("Found")


_HOSTS = ("CPU", "TPU-runtime", "CUPTI", "python-tracer", "ROCTRACER", "NVTX-CUPTI")


def plane_kind(name: str) -> PlaneKind:
    """Tell what a plane stands for, by its name."""
    if name.startswith("/host:") and name[6:].startswith(_HOSTS):
        return "host"
    if name.startswith("/device:GPU:"):
        return "gpu"
    if not name.startswith("/device:TPU:"):
        return "other"
    if re.fullmatch(r"/device:TPU:\d+( \[\d+\])?", name):
        return "tpu"
    return "sparse core" if re.match(r"/device:TPU:\d+ SparseCore", name) else "other"


class Plane(Struct, frozen=True):
    """A plane of the XSpace. `event_count` counts all events of the file, also those not kept."""

    id: int
    name: str
    kind: PlaneKind
    stats: dict[str, int | float | str]
    event_count: int

    @property
    def is_device(self) -> bool:
        """Tell whether the plane stands for a device that recorded something; an empty plane is not a device."""
        return self.kind in ("gpu", "tpu", "sparse core") and self.event_count > 0


class MemoryEvents(Struct, frozen=True, eq=False):
    """Allocations and deallocations that the host noted, of all allocators, ordered as the events of a HostTrace.

    `start_ps` is on the clock of the trace; `event` of each stat is an index into these columns.
    """

    start_ps: Int64s
    allocates: Bools
    stats: dict[str, Stat]

    def __len__(self) -> int:
        """Return how many were noted."""
        return len(self.start_ps)

    def number(self, stat_name: str, missing: int) -> Int64s:
        """Return a stat of each event, `missing` where it has none."""
        stat = self.stats.get(stat_name, NO_STAT)
        values = np.full(len(self), missing, np.int64)
        values[stat.event] = stat.value
        return values

    def real(self, stat_name: str) -> Float64s:
        """Return a stat of real numbers of each event, NaN where it has none."""
        stat = self.stats.get(stat_name, NO_STAT)
        values = np.full(len(self), np.nan)
        values[stat.event] = stat.value.view(np.float64)
        return values

    def text_index(self, stat_name: str) -> tuple[Int64s, tuple[str, ...]]:
        """Return for each event the index of its text (-1: it has none), and the texts."""
        return self.number(stat_name, -1), self.stats.get(stat_name, NO_STAT).texts


class HostTrace(Struct, frozen=True, eq=False, kw_only=True, dict=True):
    """All of one host's file that was asked for.

    `name` indexes `names`; `start_ps` and `duration_ps` are int64 picoseconds on the file's own clock, those of a TPU
    on that of its chip, if it has one in `device_clocks`. `read_stats` are the stats that were asked for; only these
    can be had.
    """

    host: str
    path: Location
    size_bytes: int
    planes: tuple[Plane, ...]
    lines: tuple[Line, ...]
    name: Int32s
    start_ps: Int64s
    duration_ps: Int64s
    extent_ps: tuple[int, int]
    """The capture: where the first event of the file starts and where the last one ends, on the clock of the file.

    Events without duration count too, such as allocations, though most of them are not among the rows. 0 and 0 without
    events."""
    clock_zero_ns: int
    """Where the clock of the file counts from, in nanoseconds since 1970; 0: from the start of the capture."""
    names: tuple[str, ...]
    display_names: tuple[str, ...]
    read_stats: frozenset[str]
    stats: dict[str, Stat]
    name_stats: dict[str, dict[int, int | float | str]]
    """Stats that stand on event names: stat -> index into `names` -> value."""
    every_stat: StatRows | None
    """All stats of all events, if they were asked for."""
    allocations: MemoryEvents | None
    """None: not asked for (see `memory`)."""
    hlo_protos: dict[int, bytes] | None
    """XLA programs of the capture by the int64 that keeps the bits of their id (`unsigned` shows it), still serialized
    (see `programs`). None: not asked for."""
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    malformed_events: int
    """Events omitted because their times are impossible (negative duration, beyond 13 days)."""
    aggregated_events: int
    """Events omitted because they stand for several that have no time of their own."""
    recorded_host: str = ""
    """What the profiler calls the host; empty: the file does not say."""
    cut_names: int = 0
    """Names and texts that were too long, and are cut."""
    oddities: Oddities = Oddities()
    python_activity: PythonActivity = PythonActivity()
    device_clocks: dict[int, DeviceClock] = {}
    """The clocks of TPU chips by the index of their plane, set so that they agree with the file's at the first op."""

    @property
    def event_count(self) -> int:
        """Return the number of events in the file."""
        return sum(plane.event_count for plane in self.planes)

    def on_host_clock(self, plane: int, ps: Int64s) -> Int64s:
        """Return times of a plane (its index) on the clock of the host; the same unless it has a clock of its own."""
        clock = self.device_clocks.get(plane)
        return ps if clock is None else clock.to_host(ps)

    def on_device_clock(self, plane: int, ps: Int64s) -> Int64s:
        """Return times of the host on the clock of a plane (its index); the same unless it has a clock of its own."""
        clock = self.device_clocks.get(plane)
        return ps if clock is None else clock.to_device(ps)

    def on_one_clock(self) -> HostTrace:
        """Return the trace with the events of devices on the clock of the host too, where they stand beside its own.

        Their durations are then those of that clock, which differ by the drift of the clocks. They begin a nanosecond
        later, since a run that was enqueued at the last possible moment would else begin together with its cause.
        """
        if not self.device_clocks:
            return self
        start_ps, end_ps = self.start_ps.copy(), self.end_ps.copy()
        for line in self.lines:
            rows = slice(line.start, line.stop)
            if line.plane in self.device_clocks:
                start_ps[rows] = self.on_host_clock(line.plane, start_ps[rows]) + _AFTER_PS
                end_ps[rows] = self.on_host_clock(line.plane, end_ps[rows]) + _AFTER_PS
        return replace(self, start_ps=start_ps, duration_ps=end_ps - start_ps, device_clocks={})

    @cached_property
    def clock_start_ns(self) -> int | None:
        """Return the time that is 0 on the clock of the file, in nanoseconds since 1970; None if the file has none."""
        if self.clock_zero_ns:
            return self.clock_zero_ns
        start = self.session_stats.get("profile_start_time")
        return start if isinstance(start, int) and start > 0 else None

    @property
    def session_stats(self) -> dict[str, int | float | str]:
        """Return what the profiler says of the capture: when it started and stopped, and its options."""
        return next((plane.stats for plane in self.planes if plane.name == _SESSION_PLANE), {})

    @cached_property
    def programs(self) -> dict[int, NamedProgram]:
        """Return the XLA programs of the capture by program id; what cannot be parsed is omitted.

        Raises KeyError if they were not asked for.
        """
        if self.hlo_protos is None:
            raise _not_read(HLO_PROTO)
        parsed = {key: read_names(serialized) for key, serialized in self.hlo_protos.items()}
        return {key: program for key, program in parsed.items() if program is not None}

    @cached_property
    def capture_facts(self) -> CaptureFacts:
        """Return what a capture of tfperf adds to the trace; of another profiler's trace all of it is unknown."""
        stats = next((plane.stats for plane in self.planes if plane.name == CAPTURE_PLANE), None)
        return CaptureFacts() if stats is None else CaptureFacts.of(stats)

    @property
    def usable_cores(self) -> float | None:
        """Return how many cores the job can use: as its capture states, else as tf.data counts them; None if unknown.

        tf.data counts the CPUs that the process may run on, whatever quota its cgroups have.
        """
        budget = self.stat("cpu_budget").value
        return self.capture_facts.cores or (float(budget.max()) if budget.max(initial=0) > 0 else None)

    @property
    def memory(self) -> MemoryEvents:
        """Return the allocations and deallocations; raises KeyError if they were not asked for."""
        if self.allocations is None:
            raise _not_read("allocator_name")
        return self.allocations

    @cached_property
    def allocators(self) -> tuple[tuple[str, ...], Int64s]:
        """Return the names of allocators, and for each event of `memory` the index of its allocator's; -1: unknown.

        Some profilers, such as those of TPUs, write the number of the device instead of a name.
        """
        index, texts = self.memory.text_index("allocator_name")
        names = [*texts]
        prefix = "TPU:" if self.device_kind == "tpu" else ""
        for stat_name in ("index_on_host", "device_ordinal"):
            nameless = np.flatnonzero(index < 0)
            numbers = self.memory.number(stat_name, -1)[nameless]
            has_number = numbers >= 0
            distinct, place = np.unique(numbers[has_number], return_inverse=True)
            index[nameless[has_number]] = place.reshape(-1) + len(names)
            names += [f"{prefix}{number}" for number in distinct.tolist()]
        return tuple(names), index

    @cached_property
    def end_ps(self) -> Int64s:
        """Return where each event ends."""
        return self.start_ps + self.duration_ps

    @cached_property
    def host_lines(self) -> tuple[Line, ...]:
        """Return the lines of host threads."""
        return tuple(line for line in self.lines if self.planes[line.plane].kind == "host" and not line.derived)

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """Return the planes of devices with events: TPU cores if there are any, else GPUs."""
        for kind in ("tpu", "gpu"):
            planes = tuple(i for i, plane in enumerate(self.planes) if plane.kind == kind and plane.is_device)
            if planes:
                return planes
        return ()

    @cached_property
    def empty_devices(self) -> tuple[str, ...]:
        """Return the names of device planes that hold no event."""
        return tuple(p.name for p in self.planes if p.kind in ("gpu", "tpu") and not p.event_count)

    @property
    def device_kind(self) -> Literal["gpu", "tpu", ""]:
        """Return which kind of device took part, if any did."""
        if not self.devices:
            return ""
        return "tpu" if self.planes[self.devices[0]].kind == "tpu" else "gpu"

    def device_lines(self, plane: int, *, derived: bool = False) -> tuple[Line, ...]:
        """Return the recorded (or the derived) lines of a device plane."""
        return self._lines_by_plane.get((plane, derived), ())

    @cached_property
    def _lines_by_plane(self) -> dict[tuple[int, bool], tuple[Line, ...]]:
        lines: dict[tuple[int, bool], list[Line]] = {}
        for line in self.lines:
            lines.setdefault((line.plane, line.derived), []).append(line)
        return {key: tuple(of_plane) for key, of_plane in lines.items()}

    def stat(self, stat_name: str) -> Stat:
        """Return a stat by name; one that no event carries is empty.

        Raises KeyError if it was not asked for: the section that reads it does not declare it.
        """
        if stat_name not in self.read_stats:
            raise _not_read(stat_name)
        return self.stats.get(stat_name, NO_STAT)

    def name_stat(self, stat_name: str) -> dict[int, int | float | str]:
        """Return a stat that stands on names of events, by index into `names`; raises KeyError as `stat` does."""
        self.stat(stat_name)
        return self.name_stats.get(stat_name, {})

    def has_stat(self, stat_name: str) -> Bools:
        """Tell which events carry the stat."""
        carries = np.zeros(len(self.name), np.bool_)
        carries[self.stat(stat_name).event] = True
        return carries

    def number(self, stat_name: str, missing: int) -> Int64s:
        """Return the stat of every event, `missing` where it has none."""
        values = np.full(len(self.name), missing, np.int64)
        stat = self.stat(stat_name)
        values[stat.event] = stat.value
        return values

    def number_at(self, stat_name: str, rows: Int64s, missing: int = 0) -> Int64s:
        """Return the stat of the events at `rows`, `missing` where one has none."""
        if len(rows) * _SEARCH > len(self.name):
            return self.number(stat_name, missing)[rows]
        stat = self.stat(stat_name)
        if not len(stat.event):
            return np.full(len(rows), missing, np.int64)
        place = lookup(stat.event, rows)
        return np.where(place >= 0, stat.value[place], missing)

    def known_at(self, stat_name: str, rows: Int64s) -> tuple[Int64s, Bools]:
        """Return the stat of the events at `rows` (0 where one has none), and which have it: any int64 may be an id."""
        if len(rows) * _SEARCH > len(self.name):
            return self.number(stat_name, 0)[rows], self.has_stat(stat_name)[rows]
        stat = self.stat(stat_name)
        place = lookup(stat.event, rows)
        return np.append(stat.value, 0)[place], place >= 0

    def program_at(self, rows: Int64s) -> tuple[Int64s, tuple[int, ...]]:
        """Return which program each of the events at `rows` is of, as an index into the ids returned; -1 for none."""
        program, known = self.known_at("program_id", rows)
        ids, index = distinct_index(program)
        return np.where(known, index, -1), tuple(ids.tolist())

    @property
    def has_groups(self) -> bool:
        """Tell whether events carry the id of their group, which TensorFlow 2.2 to 2.4 stored."""
        return len(self.stat("group_id").event) > 0

    @cached_property
    def on_host(self) -> Bools:
        """Tell which events lie on host threads."""
        on_host = np.zeros(len(self.name), np.bool_)
        for line in self.host_lines:
            on_host[line.start : line.stop] = True
        return on_host

    def plane_of(self, rows: Int64s) -> Int64s:
        """Return the index of the plane of the events at `rows`."""
        return np.array([*(line.plane for line in self.lines), -1], np.int64)[self.line_of[rows]]

    @property
    def device_rows(self) -> Int64s:
        """Return the rows of what devices recorded."""
        return rows_of(line for plane in self.devices for line in self.device_lines(plane))

    @cached_property
    def line_of(self) -> Int32s:
        """Return the index of the line of every event."""
        counts = [line.stop - line.start for line in self.lines]
        return np.repeat(np.arange(len(self.lines), dtype=np.int32), counts)

    def host_events(self, wanted: Bools) -> Int64s:
        """Return the host events whose name is wanted (`wanted` has one entry per name), in row order."""
        rows, ends = self._host_rows_by_name
        names = wanted.nonzero()[0].tolist()
        if not names:
            return NO_NUMBERS
        if len(names) == 1:
            (name,) = names
            return rows[ends[name] : ends[name + 1]].copy()
        of_names = [rows[ends[name] : ends[name + 1]] for name in names]
        if sum(map(len, of_names)) * _SEARCH > len(rows):
            return np.flatnonzero(wanted[self.name] & self.on_host)
        return np.sort(np.concatenate(of_names), kind="stable")

    @cached_property
    def _host_rows_by_name(self) -> tuple[Int64s, list[int]]:
        """Return the host events ordered by name, and where the events of each name begin and end."""
        rows = np.flatnonzero(self.on_host)
        # Short numbers are sorted several times faster.
        name = self.name[rows].astype(np.uint16 if len(self.names) <= 1 << 16 else np.int32)
        ends = np.cumsum(np.bincount(name, minlength=len(self.names)))
        return rows[np.argsort(name, kind="stable")], [0, *ends.tolist()]


def once(find: Callable[[HostTrace], Found]) -> Callable[[HostTrace], Found]:
    """Have a function search each trace once: what it finds is kept with the trace, and nobody changes it."""

    @wraps(find)
    def found(trace: HostTrace) -> Found:
        kept: dict[Any, Any] = trace.__dict__
        if find not in kept:
            kept[find] = find(trace)
        value: Found = kept[find]
        return value

    return found


def rows_of(lines: Iterable[Line]) -> Int64s:
    """Return the rows of some lines, line by line."""
    return np.concatenate([NO_NUMBERS, *(np.arange(line.start, line.stop) for line in lines)])


def by_line(lines: Sequence[Line], rows: Int64s) -> Iterator[tuple[Line, slice]]:
    """Yield those of the lines that have some of the rows (ascending), and the place of these among the rows."""
    bounds = np.array([(line.start, line.stop) for line in lines], np.int64).reshape(-1, 2)
    for line, (first, last) in zip(lines, np.searchsorted(rows, bounds).tolist(), strict=True):
        if last > first:
            yield line, slice(first, last)


def _not_read(stat_name: str) -> KeyError:
    return KeyError(f"the stat {stat_name!r} was not read from the trace: declare it where it is needed")
