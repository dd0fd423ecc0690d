"""HostTrace: the events of one host as columns.

One row per event, ordered by line, and within a line by start (the longer event first, so that parents precede their
children); of several with the same start and duration, the first one of the file is the parent. Planes are sorted by
kind and name, lines of a plane by id, names of events and texts of stats alphabetically. So the order of a file has no
effect: results that depend on row order, such as ties, depend on content only. A trace is immutable.
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
"""Cost of searching a row relative to skipping one."""
_AFTER_PS = 1000
_SESSION_PLANE = "Task Environment"
"""The plane with the start and stop time of the profiler."""
PlaneKind = Literal["host", "gpu", "tpu", "sparse core", "other"]
TPU_KINDS: tuple[PlaneKind, ...] = ("tpu", "sparse core")
"""Kinds of planes of a TPU."""


Found = TypeVar("Found")


_HOSTS = ("CPU", "TPU-runtime", "CUPTI", "python-tracer", "ROCTRACER", "NVTX-CUPTI")


def plane_kind(name: str) -> PlaneKind:
    """Return the kind of a plane, from its name."""
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
    """A plane of the XSpace. `event_count` includes events of the file that are not kept."""

    id: int
    name: str
    kind: PlaneKind
    stats: dict[str, int | float | str]
    event_count: int

    @property
    def is_device(self) -> bool:
        """Return whether the plane is a device that recorded events; an empty plane is not a device."""
        return self.kind in ("gpu", "tpu", "sparse core") and self.event_count > 0


class MemoryEvents(Struct, frozen=True, eq=False):
    """Allocations and deallocations of all host allocators, on the clock of the trace, ordered as its events."""

    start_ps: Int64s
    allocates: Bools
    line: Int64s
    """Index of the thread in `HostTrace.lines`."""
    stats: dict[str, Stat]

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.start_ps)

    def number(self, stat_name: str, missing: int) -> Int64s:
        """Return a stat of each event, or `missing`."""
        stat = self.stats.get(stat_name, NO_STAT)
        values = np.full(len(self), missing, np.int64)
        values[stat.event] = stat.value
        return values

    def real(self, stat_name: str) -> Float64s:
        """Return a real-valued stat of each event, or NaN."""
        stat = self.stats.get(stat_name, NO_STAT)
        values = np.full(len(self), np.nan)
        values[stat.event] = stat.value.view(np.float64)
        return values

    def text_index(self, stat_name: str) -> tuple[Int64s, tuple[str, ...]]:
        """Return for each event the index of its text (-1: none), and the texts."""
        return self.number(stat_name, -1), self.stats.get(stat_name, NO_STAT).texts


class GraphOps(Struct, frozen=True):
    """Kernels and copies of CUDA graphs: their rows (ascending), and the run of an HLO op that each belongs to.

    Runs are numbered from 0; -1: the HLO op is unknown, and the stat `hlo_op` is the graph.
    """

    rows: Int64s = NO_NUMBERS
    run: Int64s = NO_NUMBERS


class HostTrace(Struct, frozen=True, eq=False, kw_only=True, dict=True):
    """The requested events and stats of one host's file.

    `name` indexes `names`; `start_ps` and `duration_ps` are int64 picoseconds on the clock of the file, for a TPU on
    that of its chip if `device_clocks` has one. Only the stats in `read_stats` are available.
    """

    host: str
    path: Location
    size_bytes: int
    planes: tuple[Plane, ...]
    lines: tuple[Line, ...]
    name: Int64s
    start_ps: Int64s
    duration_ps: Int64s
    extent_ps: tuple[int, int]
    """The capture: first start and last end of all events of the file, also those without duration; 0 and 0 without
    any.
    """
    clock_zero_ns: int
    """Zero of the file's clock, in nanoseconds since 1970; 0: the start of the capture."""
    names: tuple[str, ...]
    display_names: tuple[str, ...]
    read_stats: frozenset[str]
    stats: dict[str, Stat]
    name_stats: dict[str, dict[int, int | float | str]]
    """Stats of event names: stat -> index into `names` -> value."""
    every_stat: StatRows | None
    """All stats of all events, if requested."""
    allocations: MemoryEvents | None
    """None: not requested (see `memory`)."""
    hlo_protos: dict[int, bytes] | None
    """Serialized XLA programs by their id as int64 (see `programs`, `unsigned`). None: not requested."""
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    malformed_events: int
    """Events omitted because their times are impossible (negative duration, beyond 13 days)."""
    aggregated_events: int
    """Events omitted because they aggregate several and have no time of their own."""
    recorded_host: str = ""
    """The profiler's name of the host; empty: unknown."""
    cut_names: int = 0
    """Number of names and texts cut to a maximum length."""
    oddities: Oddities = Oddities()
    python_activity: PythonActivity = PythonActivity()
    device_clocks: dict[int, DeviceClock] = {}
    """The clocks of TPU chips by the index of their plane, set to agree with the file's clock at the first op."""
    graph_ops: GraphOps = GraphOps()
    is_part: bool = False
    """Whether it is cut to a range of steps: `extent_ps` is then their time."""

    @property
    def event_count(self) -> int:
        """Return the number of events in the file."""
        return sum(plane.event_count for plane in self.planes)

    def on_host_clock(self, plane: int, ps: Int64s) -> Int64s:
        """Return times of a plane (its index) on the clock of the host; unchanged if it has no clock of its own."""
        clock = self.device_clocks.get(plane)
        return ps if clock is None else clock.to_host(ps)

    def on_device_clock(self, plane: int, ps: Int64s) -> Int64s:
        """Return times of the host on the clock of a plane (its index); unchanged if it has no clock of its own."""
        clock = self.device_clocks.get(plane)
        return ps if clock is None else clock.to_device(ps)

    def on_one_clock(self) -> HostTrace:
        """Return the trace with device events on the clock of the host.

        Durations are then those of that clock and differ by the drift of the clocks. Events begin a nanosecond later,
        because a run that was enqueued at the last possible moment would otherwise begin together with its cause.
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
        """Return time 0 of the file's clock in nanoseconds since 1970; None if unknown."""
        if self.clock_zero_ns:
            return self.clock_zero_ns
        start = self.session_stats.get("profile_start_time")
        return start if isinstance(start, int) and start > 0 else None

    @property
    def session_stats(self) -> dict[str, int | float | str]:
        """Return the profiler's information on the capture: start, stop, and options."""
        return next((plane.stats for plane in self.planes if plane.name == _SESSION_PLANE), {})

    @cached_property
    def programs(self) -> dict[int, NamedProgram]:
        """Return the XLA programs of the capture by program id, without unparsable ones; raise KeyError if not
        requested.
        """
        if self.hlo_protos is None:
            raise _not_read(HLO_PROTO)
        parsed = {key: read_names(serialized) for key, serialized in self.hlo_protos.items()}
        return {key: program for key, program in parsed.items() if program is not None}

    @cached_property
    def capture_facts(self) -> CaptureFacts:
        """Return the facts that a tfperf capture adds to the trace; all unknown for other profilers."""
        stats = next((plane.stats for plane in self.planes if plane.name == CAPTURE_PLANE), None)
        return CaptureFacts() if stats is None else CaptureFacts.of(stats)

    @property
    def usable_cores(self) -> float | None:
        """Return the job's number of cores from its capture, else from tf.data (ignores quotas); None: unknown."""
        budget = self.stat("cpu_budget").value
        return self.capture_facts.cores or (float(budget.max()) if budget.max(initial=0) > 0 else None)

    @property
    def memory(self) -> MemoryEvents:
        """Return the allocations and deallocations; raise KeyError if they were not requested."""
        if self.allocations is None:
            raise _not_read("allocator_name")
        return self.allocations

    @cached_property
    def allocators(self) -> tuple[tuple[str, ...], Int64s]:
        """Return allocator names (on TPUs, device numbers), and the index of each event of `memory` (-1: unknown)."""
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
        """Return the end of each event."""
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
        """Return the names of device planes without events."""
        return tuple(p.name for p in self.planes if p.kind in ("gpu", "tpu") and not p.event_count)

    @property
    def device_kind(self) -> Literal["gpu", "tpu", ""]:
        """Return the kind of the devices, empty without devices."""
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
        """Return a stat by name, empty if no event has it; raise KeyError if it was not requested (not declared)."""
        if stat_name not in self.read_stats:
            raise _not_read(stat_name)
        return self.stats.get(stat_name, NO_STAT)

    def name_stat(self, stat_name: str) -> dict[int, int | float | str]:
        """Return a stat of event names, by index into `names`; raises KeyError as `stat` does."""
        self.stat(stat_name)
        return self.name_stats.get(stat_name, {})

    def has_stat(self, stat_name: str) -> Bools:
        """Return which events have the stat."""
        carries = np.zeros(len(self.name), np.bool_)
        carries[self.stat(stat_name).event] = True
        return carries

    def number(self, stat_name: str, missing: int) -> Int64s:
        """Return the stat of every event, or `missing`."""
        values = np.full(len(self.name), missing, np.int64)
        stat = self.stat(stat_name)
        values[stat.event] = stat.value
        return values

    def number_at(self, stat_name: str, rows: Int64s, missing: int = 0) -> Int64s:
        """Return the stat of the events at `rows`, or `missing`."""
        stat = self.stat(stat_name)
        if not len(stat.event):
            return np.full(len(rows), missing, np.int64)
        if len(rows) * _SEARCH > len(self.name):
            return self.number(stat_name, missing)[rows]
        place = lookup(stat.event, rows)
        return np.where(place >= 0, stat.value[place], missing)

    def known_at(self, stat_name: str, rows: Int64s) -> tuple[Int64s, Bools]:
        """Return the stat of the events at `rows` (0 if missing), and which have it, because any int64 may be an id."""
        if len(rows) * _SEARCH > len(self.name):
            return self.number(stat_name, 0)[rows], self.has_stat(stat_name)[rows]
        stat = self.stat(stat_name)
        place = lookup(stat.event, rows)
        return np.append(stat.value, 0)[place], place >= 0

    def program_at(self, rows: Int64s) -> tuple[Int64s, tuple[int, ...]]:
        """Return the program of each of the events at `rows`, as an index into the returned ids; -1 for none."""
        program, known = self.known_at("program_id", rows)
        ids, index = distinct_index(program)
        return np.where(known, index, -1), tuple(ids.tolist())

    @property
    def has_groups(self) -> bool:
        """Return whether events have the id of their group, which TensorFlow 2.2 to 2.4 stored."""
        return len(self.stat("group_id").event) > 0

    @cached_property
    def on_host(self) -> Bools:
        """Return which events are on host threads."""
        on_host = np.zeros(len(self.name), np.bool_)
        for line in self.host_lines:
            on_host[line.start : line.stop] = True
        return on_host

    def plane_of(self, rows: Int64s) -> Int64s:
        """Return the index of the plane of the events at `rows`."""
        return np.array([*(line.plane for line in self.lines), -1], np.int64)[self.line_of[rows]]

    @property
    def device_rows(self) -> Int64s:
        """Return the rows of device events."""
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
            return rows[ends[name] : ends[name + 1]].astype(np.int64)
        found = np.concatenate([rows[ends[name] : ends[name + 1]] for name in names], dtype=np.int64)
        if len(found) * _SEARCH < len(rows):
            return np.sort(found, kind="stable")
        is_found = np.zeros(len(self.name), np.bool_)
        is_found[found] = True
        return is_found.nonzero()[0]

    @cached_property
    def _host_rows_by_name(self) -> tuple[Int32s, list[int]]:
        """Return the host events ordered by name, and the borders between names."""
        rows = np.flatnonzero(self.on_host).astype(np.int32)
        # Short integers sort several times faster.
        name = self.name[rows].astype(np.uint16 if len(self.names) <= 1 << 16 else np.int64)
        ends = np.cumsum(np.bincount(name, minlength=len(self.names)))
        return rows[np.argsort(name, kind="stable")], [0, *ends.tolist()]


def once(find: Callable[[HostTrace], Found]) -> Callable[[HostTrace], Found]:
    """Cache a function's result with each trace; results are never changed."""

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
    """Yield the lines with some of the rows (ascending), and the slice of these rows."""
    bounds = np.array([(line.start, line.stop) for line in lines], np.int64).reshape(-1, 2)
    for line, (first, last) in zip(lines, np.searchsorted(rows, bounds).tolist(), strict=True):
        if last > first:
            yield line, slice(first, last)


def _not_read(stat_name: str) -> KeyError:
    return KeyError(f"the stat {stat_name!r} was not read from the trace: declare it in the section that uses it")
