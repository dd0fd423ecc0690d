"""A profile as a file for trace viewers: read each host, lay out what to show, write it, release it."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from tfperf.errors import TfperfError
from tfperf.timeline.export_result import ExportResult
from tfperf.timeline.host_timeline import EncodeJob, HostTimeline
from tfperf.timeline.output_file import format_of, open_new_file
from tfperf.timeline.selection import Selection, SelectionCheck, selected_steps
from tfperf.timeline.track_groups import host_timeline
from tfperf.trace.find_steps import find_steps
from tfperf.trace.logdir import HostFile, choose_hosts, choose_run, find_runs
from tfperf.trace.read import read_host

if TYPE_CHECKING:
    from typing_extensions import Unpack

Progress = Callable[[int, int], None]
"""Called with bytes read so far and bytes in all."""

_EVERYTHING = Selection()
_PS_PER_US = 1_000_000
_WORKERS = 2
_GZIP = 31
"""What zlib calls the frame of a gzip file."""
_LEVEL = 1


class TimelineParts(TypedDict, total=False):
    """The parts of a profile that `write_timeline` writes; without any, the whole profile."""

    hosts: Sequence[str]
    """Names of hosts."""
    steps: tuple[int, int] | None
    """First and last number of the steps that events overlap."""
    threads: Sequence[str]
    """Names of lines or planes; `*` is a wildcard."""
    min_duration_us: float
    """Duration that an event must have at least, in microseconds."""


def write_timeline(
    path: str | Path,
    output: str | Path,
    *,
    run: str | None = None,
    step_marker: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **parts: Unpack[TimelineParts],
) -> ExportResult:
    """Write the events of a profile as a file for a trace viewer, and return what is in it.

    `path`, `run`, `hosts` and `step_marker` are those of `tfperf.load`. The suffix of `output` gives the format:
    `.pftrace` for Perfetto, `.json` or `.json.gz` for chrome://tracing and others. `steps` are the first and the last
    number, `threads` patterns of the names of lines or planes, `min_duration_us` is the duration that an event must
    have at least. A file that exists is replaced only with `force`. `progress` is called with the bytes read so far and
    the bytes of all hosts. Raises TfperfError.
    """
    unknown = parts.keys() - TimelineParts.__annotations__.keys()
    if unknown:
        raise TypeError(f"write_timeline() has no parameter {unknown.pop()!r}")
    chosen = choose_hosts(choose_run(find_runs(Path(path)), run), tuple(parts.get("hosts", ())))
    min_duration_ps = round(parts.get("min_duration_us", 0.0) * _PS_PER_US)
    selection = Selection(parts.get("steps"), tuple(parts.get("threads", ())), min_duration_ps)
    return export(chosen.files, Path(output), selection, step_marker=step_marker, force=force, progress=progress)


def export(
    files: Sequence[HostFile],
    output: Path,
    selection: Selection = _EVERYTHING,
    *,
    step_marker: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> ExportResult:
    """Write the traces of these hosts into one file; its suffix gives the format (`output_file.FORMATS`).

    `step_marker` names the events that are steps. Raises TraceNotFoundError, TraceFormatError and OutputError, and
    TfperfError if there is nothing of what was asked for.
    """
    form = format_of(output)
    if form is None:
        raise TfperfError(f"{output.name} has an unknown suffix; end it in .pftrace, .json or .json.gz")
    result, check = ExportResult(path=output), SelectionCheck(selection)
    with open_new_file(output, force=force) as file:
        hosts = _host_timelines(files, step_marker, result, check, progress)
        chunks = _perfetto_chunks(hosts) if form == "perfetto" else _json_chunks(hosts, result)
        for chunk in _compressed(chunks) if form == "json.gz" else chunks:
            result.size_bytes += len(chunk)
            file.write(chunk)
        check.raise_if_empty()
    return result


def _host_timelines(
    files: Sequence[HostFile],
    step_marker: str | None,
    result: ExportResult,
    check: SelectionCheck,
    progress: Progress | None,
) -> Iterator[HostTimeline]:
    """Read host after host; add up what is in it."""
    sizes = [file.size_bytes or 0 for file in files]
    for number, file in enumerate(files):

        def report(done: int, _: int, before: int = sum(sizes[:number])) -> None:
            if progress:
                progress(before + done, sum(sizes))

        trace = read_host(file.path, file.host, everything=True, progress=report)
        steps = find_steps(trace, step_marker)
        check.add(trace, steps.numbers)
        prefix = f"{file.host} " if len(files) > 1 else ""
        timeline = host_timeline(trace, steps, check.selection, prefix=prefix, first_arrow=result.arrows + 1)
        selected = len(selected_steps(steps, check.selection))
        result.add(timeline, steps=selected, warnings=trace.errors + trace.warnings)
        # While the timeline is written, which takes long, only what is shown of the trace stays in memory.
        del trace
        yield timeline


def _perfetto_chunks(hosts: Iterable[HostTimeline]) -> Iterator[bytes]:
    from tfperf.timeline import perfetto

    yield perfetto.root()
    sequence, track = 1, 1
    for host in hosts:
        yield from _encoded(perfetto.encode_jobs(host.groups, sequence, track))
        sequence += len(host.groups)
        track += sum(perfetto.track_count(group) for group in host.groups)


def _json_chunks(hosts: Iterable[HostTimeline], result: ExportResult) -> Iterator[bytes]:
    from tfperf.timeline import chrome

    yield chrome.HEAD
    process, thread = 1, 1
    for host in hosts:
        yield from _encoded(chrome.encode_jobs(host.groups, process, thread))
        process += len(host.groups)
        thread += sum(len(group.tracks) for group in host.groups)
    yield chrome.last(result.shown)


def _compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress chunks as one stream: not every viewer reads a gzip file of several."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for chunk in chunks:
        yield packer.compress(chunk)
    yield packer.flush()


def _encoded(jobs: Iterable[EncodeJob]) -> Iterator[bytes]:
    """Run jobs on several threads and return what they make, in order; few wait, so that memory stays bounded."""
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
