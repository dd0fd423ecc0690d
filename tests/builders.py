"""Tiny traces, written in code: what a test needs stands in the test.

    space(plane("/host:CPU", line("python", event("train", 0, 10, step_num=1))))

Times are in microseconds. Keyword arguments of an event become stats: int, float, text or bytes; `u64(n)` forces the
unsigned arm, `ref(text)` a reference to a stat metadata, as writers store repeated texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tfperf.analysis.load import ALWAYS
from tfperf.analysis.registry import Host, HostResults, Results, default_sections, with_dependencies
from tfperf.formats.wire import schema
from tfperf.trace.host.activities import Attribution
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.known_stats import DEFAULT, LINKS
from tfperf.trace.logdir import HostFile, Run
from tfperf.trace.read import read_host

PS_PER_US = 1_000_000
STEPS_LINE = -559038737


class u64(int):  # noqa: N801 - reads like a type suffix at the place of use
    """A number for the unsigned arm of a stat."""


class ref(str):  # noqa: N801
    """A text stored by reference."""

    __slots__ = ()


@dataclass(frozen=True)
class Event:
    name: str
    start_us: float
    duration_us: float
    stats: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    name: str
    events: tuple[Event, ...]
    id: int = 0
    timestamp_ns: int = 0


Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Plane:
    name: str
    lines: tuple[Line, ...]
    stats: Facts = field(default_factory=dict)
    name_stats: Mapping[str, Facts] = field(default_factory=dict)
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Name of an event here -> the name and the display name that are written for it."""
    ids: Mapping[str, int] = field(default_factory=dict)
    """Name of an event here -> key of its metadata; the others are counted from 1."""


def event(name: str, start_us: float, duration_us: float, /, **stats: Any) -> Event:
    """An event; stats whose names are no Python names go in as `**{"level 0": ...}`."""
    return Event(name, start_us, duration_us, stats)


def iterator_call(
    path: str, start_us: float, duration_us: float, id: int, parent: int | None = None, **stats: Any
) -> Event:
    """A call of a tf.data iterator; `path` is its name without the leading `Iterator::`."""
    linked = {} if parent is None else {"parent_id": parent}
    return event(f"Iterator::{path}", start_us, duration_us, id=id, **linked, **stats)


def repeat(count: int, *events: Event, every: float = 100) -> list[Event]:
    """The same events again, `every` us later each time."""
    return [
        event(item.name, item.start_us + every * turn, item.duration_us, **item.stats)
        for turn in range(count)
        for item in events
    ]


def line(name: str, *events: Event, id: int = 0, timestamp_ns: int = 0) -> Line:
    return Line(name, events, id, timestamp_ns)


def plane(
    name: str,
    *lines: Line,
    stats: Mapping[str, Any] = {},
    name_stats: Mapping[str, Facts] = {},
    texts: Mapping[str, tuple[str, str]] = {},
    ids: Mapping[str, int] = {},
) -> Plane:
    return Plane(name, lines, stats, name_stats, texts, ids)


def space(*planes: Plane, hostname: str = "host", errors: tuple[str, ...] = ()) -> bytes:
    """Serialize planes as an XSpace."""
    message = schema.message_class("XSpace")()
    message.hostnames.append(hostname.encode())
    message.errors.extend(text.encode() for text in errors)
    for number, made in enumerate(planes):
        _fill_plane(message.planes.add(), number, made)
    data: bytes = message.SerializeToString()
    return data


def host(*events: Event, name: str = "python") -> Plane:
    """A host plane with one thread."""
    return plane("/host:CPU", line(name, *events))


def gpu(*events: Event, number: int = 0, **stats: Any) -> Plane:
    """A GPU with one stream."""
    return plane(f"/device:GPU:{number}", line("Stream #1", *events), stats=stats)


def marks(count: int, us: float = 100) -> list[Event]:
    """Markers of steps of one length, one after the other."""
    return [event("train", us * number, us, step_num=number) for number in range(count)]


def fetching(wait_us: float, step_us: float = 100, count: int = 5) -> bytes:
    """A job of marked steps, each of which waits for a batch and computes for the rest."""
    starts = [step_us * number for number in range(count)]
    waits = [event("IteratorGetNextOp::DoCompute", start, wait_us) for start in starts]
    ops = [event("MatMul:MatMul", start + wait_us, step_us - wait_us) for start in starts]
    return space(host(*marks(count, step_us), *waits, *ops))


def programs(**by_id: bytes) -> Plane:
    """The plane of XLA's programs: `programs(id_7=hlo_builders.program(...))`."""
    stats = {name: {"Hlo Proto": data, "program_id": int(name.removeprefix("id_"))} for name, data in by_id.items()}
    return plane("/host:metadata", name_stats=stats)


def trace_of(tmp_path: Path, *planes: Plane, links: bool = False, instants: bool = False) -> HostTrace:
    """Write planes to a file and read them back."""
    return read_back(tmp_path, space(*planes), links=links, instants=instants)


def read_back(tmp_path: Path, data: bytes, *, links: bool = False, **options: Any) -> HostTrace:
    """Write a serialized XSpace to a file and read it, with options of `read_host`."""
    path = tmp_path / "made.xplane.pb"
    path.write_bytes(data)
    return read_host(path, **({"stats": DEFAULT | LINKS} if links else {}) | options)


_Known = TypeVar("_Known")


def known(value: _Known | None) -> _Known:
    """Return a value that must not be None."""
    assert value is not None
    return value


def host_of(trace: HostTrace, *sections: str, attribution: Attribution = "corrected") -> Host:
    """Analyze a trace by sections and those that they rest on: `host_of(trace, "kernels")["kernels"]` is the result."""
    host = Host(trace, attribution)
    host.analyze(with_dependencies(sections))
    return host


def result_of(tmp_path: Path, section: str, *planes: Plane, attribution: Attribution = "corrected") -> Any:
    """Return the result of one section for a host with these planes."""
    trace = trace_of(tmp_path, *planes, links=attribution == "tensorflow")
    return host_of(trace, section, attribution=attribution)[section]


def rows_of(columns: Any, *keys: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table, or of its data, with these columns."""
    return list(zip(*(columns[key] for key in keys), strict=True))


def results_of(*traces: HostTrace, sections: Sequence[str] = (), attribution: Attribution = "corrected") -> Results:
    """Analyze the traces of the hosts of a run by sections (default: all): what their `build` functions get."""
    names = with_dependencies((*ALWAYS, *(sections or default_sections())))
    files = tuple(HostFile(trace.host, trace.path) for trace in traces)
    hosts = [host_of(trace, *names, attribution=attribution) for trace in traces]
    return Results(
        Run("run", traces[0].path.parent, files),
        attribution,
        tuple(HostResults(host.trace.host, bool(host.trace.devices), host.results) for host in hosts),
        names,
    )


def logdir_of(tmp_path: Path, **hosts: bytes) -> Path:
    """Write one run with the given hosts (name=bytes) in TensorFlow's layout; return the logdir."""
    folder = tmp_path / "logs" / "plugins" / "profile" / "2026_01_01_00_00_00"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in hosts.items():
        (folder / f"{name}.xplane.pb").write_bytes(data)
    return tmp_path / "logs"


def _fill_plane(message: Any, number: int, made: Plane) -> None:
    message.id, message.name = number, made.name.encode()
    stat_ids: dict[str, int] = {}
    name_ids = dict(made.ids)
    for position, row in enumerate(made.lines):
        target = message.lines.add(id=row.id or position + 1, name=row.name.encode(), timestamp_ns=row.timestamp_ns)
        for item in row.events:
            known = name_ids.setdefault(item.name, len(name_ids) + 1)
            written = target.events.add(
                metadata_id=known,
                offset_ps=round(item.start_us * PS_PER_US),
                duration_ps=round(item.duration_us * PS_PER_US),
            )
            for stat, value in item.stats.items():
                _fill_stat(written.stats.add(), stat, value, stat_ids)
    for stat, value in made.stats.items():
        _fill_stat(message.stats.add(), stat, value, stat_ids)
    for text in made.name_stats:
        name_ids.setdefault(text, len(name_ids) + 1)
    for text, known in name_ids.items():
        entry = message.event_metadata.add(key=known)
        name, display_name = made.texts.get(text, (text, ""))
        entry.value.id, entry.value.name = known, name.encode("utf-8", "surrogateescape")
        entry.value.display_name = display_name.encode()
        for stat, value in made.name_stats.get(text, {}).items():
            _fill_stat(entry.value.stats.add(), stat, value, stat_ids)
    for text, known in stat_ids.items():
        entry = message.stat_metadata.add(key=known)
        entry.value.id, entry.value.name = known, text.encode("utf-8", "surrogateescape")


def _fill_stat(message: Any, name: str, value: Any, stat_ids: dict[str, int]) -> None:
    message.metadata_id = stat_ids.setdefault(name, len(stat_ids) + 1)
    if isinstance(value, ref):
        message.ref_value = stat_ids.setdefault(str(value), len(stat_ids) + 1)
    elif isinstance(value, bytes):
        message.bytes_value = value
    elif isinstance(value, str):
        message.str_value = value.encode("utf-8", "surrogateescape")
    elif isinstance(value, float):
        message.double_value = value
    elif isinstance(value, u64) or value >= 1 << 63:
        message.uint64_value = int(value)
    else:
        message.int64_value = int(value)
