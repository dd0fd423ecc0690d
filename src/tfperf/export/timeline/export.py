"""Export of a profile to a trace viewer file, host by host, so that memory holds one host at a time."""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypedDict

from msgspec import Struct, field
from msgspec.structs import replace

from tfperf.analysis.load import unfinished_hosts
from tfperf.analysis.parallel.engine import Engine, run_on
from tfperf.analysis.parallel.outcomes import Told
from tfperf.analysis.registry import MissingHost, missing_text
from tfperf.base.errors import TfperfError, TraceFormatError
from tfperf.base.files import new_file, refuse_existing
from tfperf.base.storage.remote_path import Location, located
from tfperf.base.units import counted, format_bytes, format_ms, listed
from tfperf.export.timeline.derived import CATEGORY
from tfperf.export.timeline.host_timeline import EncodeJob, HostTimeline, TrackGroup
from tfperf.export.timeline.selection import Selection, SelectionCheck
from tfperf.export.timeline.tracks import host_timeline
from tfperf.trace.device.collectives import Collectives, clock_offsets, find_collectives, match_collectives
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.known_stats import COLLECTIVES
from tfperf.trace.logdir import HostFile, choose_hosts, choose_run, find_runs, sampled
from tfperf.trace.read import Progress, progress_by_file, read_host
from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.step_range import StepRange
from tfperf.trace.steps.steps import WhichStep

if TYPE_CHECKING:
    from typing_extensions import Unpack

TimelineFormat = Literal["perfetto", "json", "json.gz"]

FORMATS: dict[str, TimelineFormat] = {
    ".pftrace": "perfetto",
    ".perfetto-trace": "perfetto",
    ".json": "json",
    ".json.gz": "json.gz",
}


def format_of(path: Location) -> TimelineFormat | None:
    """Return the format of a file by its suffix; None if the suffix is unknown."""
    return next((form for suffix, form in FORMATS.items() if path.name.endswith(suffix)), None)


_EVERYTHING = Selection()
_USUAL_ENGINE = Engine()
_PS_PER_US = 1_000_000
_WORKERS = 2
_DERIVED = ("step", "copy", CATEGORY)  # categories of events that are derived from others
_GZIP = 31  # `wbits` value of zlib for gzip files
_LEVEL = 1


class ExportResult(Struct, kw_only=True):
    """Contents of a timeline file. `omitted` counts the profile's `events` that are not in it, by reason.

    `cut_arrows` are omitted because one of their ends is; `backward_arrows` are drawn from target to source, because
    the target starts before the source.
    """

    path: Location
    size_bytes: int = 0
    events: int = 0
    shown: int = 0
    steps: int = 0
    copies: int = 0
    derived: int = 0
    tracks: int = 0
    counters: int = 0
    arrows: int = 0
    cut_arrows: int = 0
    backward_arrows: int = 0
    omitted: Counter[str] = field(default_factory=Counter)
    warnings: tuple[str, ...] = ()
    clocks: str = ""  # how the clocks of several hosts were aligned
    missing_text: str = ""  # hosts that could not be read

    def add(self, timeline: HostTimeline, warnings: tuple[str, ...]) -> None:
        """Add the counts of a host, and the warnings of its profiler."""
        self.events += timeline.events
        self.steps += timeline.steps
        self.copies += timeline.copies
        self.derived += timeline.derived
        self.shown += sum(len(group.start) for group in timeline.groups if group.category not in _DERIVED)
        self.tracks += sum(len(group.tracks) for group in timeline.groups)
        self.counters += sum(len(group.counters) for group in timeline.groups)
        self.arrows += timeline.arrows
        self.cut_arrows += timeline.cut_arrows
        self.backward_arrows += timeline.backward_arrows
        self.omitted.update(timeline.omitted)
        self.warnings += warnings

    def sentences(self) -> Iterator[str]:
        """Yield the user's notes on the file."""
        parts = [counted(self.tracks, "track"), counted(self.shown, "event")]
        parts += [counted(self.steps, "step"), counted(self.arrows, "arrow")]
        if self.copies:
            parts.append(counted(self.copies, "copy", "copies"))
        if self.derived:
            parts.append(counted(self.derived, "derived event"))
        if self.counters:
            parts.append(counted(self.counters, "counter"))
        yield f"wrote {self.path} ({format_bytes(self.size_bytes)}): {', '.join(parts)}"
        for reason, count in self.omitted.items():
            yield f"omitted {count:,} of {counted(self.events, 'event')}: {reason}"
        if self.clocks:
            yield self.clocks
        if self.cut_arrows:
            yield f"omitted {counted(self.cut_arrows, 'arrow')}: one of their events is omitted"
        if self.backward_arrows:
            yield f"reversed {counted(self.backward_arrows, 'arrow')}: the target starts before the source"
        if not self.events:
            yield "the profile contains no events"
        for warning in dict.fromkeys(self.warnings):
            yield f"profiler warning: {warning}"


class TimelineParts(TypedDict, total=False):
    """The selected parts of a profile for `write_timeline`; the default is the whole profile."""

    hosts: Sequence[str]
    host_patterns: Sequence[str]
    sample_hosts: int | None
    """As in `tfperf.load`."""
    steps: StepRange | None
    """First and last number of the steps that events overlap; None: without this limit."""
    step: WhichStep | None
    """A single step, by number or by duration ("median", "slowest")."""
    threads: Sequence[str]
    """Names of lines or planes; `*` is a wildcard."""
    min_duration_us: float
    """Minimum duration of an event, in microseconds."""


def write_timeline(  # noqa: PLR0913  (every parameter is an option that users name)
    path: str | Location,
    output: str | Location,
    *,
    run: str | Sequence[str] | None = None,
    step_marker: str | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    strict: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    **parts: Unpack[TimelineParts],
) -> ExportResult:
    """Write the events of a profile to a trace viewer file, and return a summary of its contents.

    `path`, `run`, `hosts`, `step_marker`, `jobs` and `cluster` are those of `tfperf.load`; the last two read several
    hosts to align their clocks. A host that cannot be read is omitted, or an error if `strict`. The suffix of `output`
    gives the format:
    `.pftrace` for Perfetto, `.json` or `.json.gz` for chrome://tracing and others. `steps` are the first and the last
    number, `step` is one step (its number, "median" or "slowest"), `threads` are patterns of line or plane names,
    `min_duration_us` is the minimum duration of events. An existing file is replaced only with `force`. `progress` is
    called with the bytes read so far and the bytes of all hosts. Raises TfperfError.
    """
    unknown = parts.keys() - TimelineParts.__annotations__.keys()
    if unknown:
        raise TypeError(f"write_timeline() has no parameter {unknown.pop()!r}")
    names, patterns = tuple(parts.get("hosts", ())), tuple(parts.get("host_patterns", ()))
    chosen = choose_hosts(choose_run(find_runs(located(path)), run), names, patterns)
    if (sample := parts.get("sample_hosts")) is not None:
        chosen, _ = sampled(chosen, sample)
    min_duration_ps = round(parts.get("min_duration_us", 0.0) * _PS_PER_US)
    selection = Selection(parts.get("steps"), tuple(parts.get("threads", ())), min_duration_ps, parts.get("step"))
    if selection.steps is not None and selection.step is not None:
        raise TfperfError("steps cannot be used with step")
    return export(
        chosen.files,
        located(output),
        selection,
        step_marker=step_marker,
        engine=Engine(jobs, cluster),
        missing=unfinished_hosts(chosen),
        strict=strict,
        force=force,
        progress=progress,
    )


def export(  # noqa: PLR0913  (every parameter is an option that users name)
    files: Sequence[HostFile],
    output: Location,
    selection: Selection = _EVERYTHING,
    *,
    step_marker: str | None = None,
    engine: Engine = _USUAL_ENGINE,
    missing: Sequence[MissingHost] = (),
    strict: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> ExportResult:
    """Write the traces of these hosts into one file; its suffix gives the format (`FORMATS`).

    `step_marker` names the step events, `engine` reads the clocks of several hosts. Hosts that cannot be read join the
    `missing` ones, or are an error if `strict`. Raises TraceNotFoundError, TraceFormatError and OutputError, and
    TfperfError if the selection is empty.
    """
    form = format_of(output)
    if form is None:
        raise TfperfError(f"{output.name} has an unknown suffix; use .pftrace, .json or .json.gz")
    check = SelectionCheck(selection)
    refuse_existing([output], force=force)
    clocks = clock_shifts(files, engine)
    missing = (*clocks.unread, *missing)
    lost = {each.host for each in clocks.unread}
    files = [file for file in files if file.host not in lost]
    result = ExportResult(path=output, missing_text=missing_text(len(files), missing), clocks=clocks.sentence)
    if missing and strict:
        raise TraceFormatError(result.missing_text)
    with new_file(output) as file:
        hosts = _host_timelines(files, clocks, step_marker, result, check, progress)
        for chunk in file_chunks(form, (host.groups for host in hosts)):
            result.size_bytes += len(chunk)
            file.write(chunk)
        check.raise_if_empty()
    return result


def _host_timelines(
    files: Sequence[HostFile],
    clocks: ClockShifts,
    step_marker: str | None,
    result: ExportResult,
    check: SelectionCheck,
    progress: Progress | None,
) -> Iterator[HostTimeline]:
    """Read the hosts one by one, and add up their contents."""
    for file, report, shift_ps in zip(files, progress_by_file(files, progress), clocks.shifts_ps, strict=True):
        trace = read_host(file.path, file.host, everything=True, progress=report).on_one_clock()
        trace = shifted(trace, shift_ps)
        steps = find_steps(trace, step_marker)
        selection = check.choose(steps)
        prefix = f"{file.host} " if len(files) > 1 else ""
        timeline = host_timeline(trace, steps, selection, prefix=prefix, first_arrow=result.arrows + 1)
        check.add(trace, steps.numbers, has_derived=timeline.derived > 0)
        result.add(timeline, trace.errors + trace.warnings)
        # Release the rest of the trace, because writing the timeline takes long.
        del trace
        yield timeline


def file_chunks(form: TimelineFormat, parts: Iterable[Sequence[TrackGroup]]) -> Iterator[bytes]:
    """Yield the bytes of a file in a format, from groups that arrive in parts."""
    encoder = import_module(f"tfperf.export.timeline.{'perfetto' if form == 'perfetto' else 'chrome'}")

    def chunks() -> Iterator[bytes]:
        yield encoder.head()
        number, track, events = 1, 1, 0
        for groups in parts:
            yield from _encoded(encoder.encode_jobs(groups, number, track))
            number += len(groups)
            track += sum(map(encoder.track_count, groups))
            events += sum(len(group.start) for group in groups if group.category not in _DERIVED)
        yield encoder.tail(events)

    if form != "json.gz":
        yield from chunks()
        return
    # One stream, because some viewers cannot read a gzip file of several.
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for chunk in chunks():
        yield packer.compress(chunk)
    yield packer.flush()


def _encoded(jobs: Iterable[EncodeJob]) -> Iterator[bytes]:
    """Run jobs on several threads and yield their results in order; few are queued, to bound memory."""
    waiting: deque[Future[bytes]] = deque()
    with ThreadPoolExecutor(_WORKERS) as pool:
        try:
            for job in jobs:
                waiting.append(pool.submit(job))
                if len(waiting) > 2 * _WORKERS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for job_left in waiting:
                job_left.cancel()


_NS_PER_MS = 1e6
_WRONG_NS = 5_000_000
"""Maximum clock difference treated as equal; the ends of a collective differ by up to this much."""
_NO_SHIFT = 0


class ClockShifts(Struct, frozen=True):
    """Picoseconds to add to the times of each readable host; `sentence` describes the alignment, empty for one host."""

    shifts_ps: tuple[int, ...]
    sentence: str = ""
    unread: tuple[MissingHost, ...] = ()


def read_clock(file: HostFile, *, progress: Progress | None = None) -> tuple[int | None, Collectives | None]:
    """Return the start of a host's clock in ns, and the collectives that show how far it is ahead."""
    trace = read_host(file.path, file.host, stats=COLLECTIVES, progress=progress)
    return trace.clock_start_ns, find_collectives(trace, find_steps(trace))


def clock_shifts(files: Sequence[HostFile], engine: Engine = _USUAL_ENGINE) -> ClockShifts:
    """Return the shifts that align the hosts: their clocks, corrected by the ends of shared collectives.

    Hosts with an unknown clock are not shifted. A single host is not read. Raises TfperfError if no host can be read.
    """
    if len(files) < 2:
        return ClockShifts((_NO_SHIFT,) * len(files))
    with engine.workers(files) as workers:
        outcomes = dict(zip(files, run_on(workers, read_clock, files, Told()), strict=True))
    failed = {file: outcome.error for file, outcome in outcomes.items() if outcome.error is not None}
    if len(failed) == len(files):
        raise failed[files[0]]
    unread = tuple(MissingHost(file.host, str(error)) for file, error in failed.items())
    files = [file for file in files if file not in failed]
    starts_ns: list[int | None] = [outcomes[file].value[0] for file in files]
    collectives = {place: found for place, file in enumerate(files) if (found := outcomes[file].value[1]) is not None}
    known = [start for start in starts_ns if start is not None]
    if len(known) < len(files):
        sentence = "host clocks are unknown, so each host starts at 0"
        return ClockShifts((_NO_SHIFT,) * len(files), sentence, unread)
    hosts = list(collectives.values())
    ahead = dict(zip(collectives, clock_offsets(hosts, match_collectives(hosts)), strict=True))
    said = [0 if (offset := ahead.get(place)) is None else offset.ahead_ns for place in range(len(files))]
    ahead_ns = [ns if abs(ns) >= _WRONG_NS else 0 for ns in said]
    at_ns = [start - wrong for start, wrong in zip(known, ahead_ns, strict=True)]
    wrong = [f"{file.host} by {format_ms(-ns / _NS_PER_MS)} ms" for file, ns in zip(files, ahead_ns, strict=True) if ns]
    sentence = "hosts are shown on their own clocks"
    if wrong:
        sentence += f", corrected with shared collectives: {listed(wrong)}"
    return ClockShifts(tuple((at - min(at_ns)) * 1000 for at in at_ns), sentence, unread)


def shifted(trace: HostTrace, shift_ps: int) -> HostTrace:
    """Return a trace with all times increased by `shift_ps`."""
    if not shift_ps:
        return trace
    memory = trace.allocations
    return replace(
        trace,
        start_ps=trace.start_ps + shift_ps,
        device_clocks={plane: clock.later(shift_ps) for plane, clock in trace.device_clocks.items()},
        extent_ps=(trace.extent_ps[0] + shift_ps, trace.extent_ps[1] + shift_ps),
        allocations=None if memory is None else replace(memory, start_ps=memory.start_ps + shift_ps),
    )
