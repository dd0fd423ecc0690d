"""A profile as a file for trace viewers: read each host, lay out what to show, write it, let it go."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tfperf.arrays import Int64s
from tfperf.errors import TfperfError
from tfperf.timeline.choose import chosen_steps, matching_lines, nothing_chosen
from tfperf.timeline.file import Format, format_of, new_file
from tfperf.timeline.layout import host_timeline
from tfperf.timeline.model import HostTimeline, Selection
from tfperf.trace.find_steps import find_steps
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.logdir import HostFile
from tfperf.trace.progress import Progress, progress_by_file
from tfperf.trace.read import read_host

EVERYTHING = Selection()
_WORKERS = 2
_GZIP = 31
"""What zlib calls the frame of a gzip file."""
_LEVEL = 1

Job = Callable[[], bytes]


@dataclass
class Exported:
    """What was written. `left_out` says why how many of the `events` of the profile are not in the file.

    `cut_arrows` are not there because one of their ends is not, `backwards` are drawn from target to source, because
    the target begins before the source.
    """

    path: Path
    size_bytes: int = 0
    events: int = 0
    shown: int = 0
    steps: int = 0
    tracks: int = 0
    counters: int = 0
    arrows: int = 0
    cut_arrows: int = 0
    backwards: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass
class _Found:
    """What hosts have of what was asked for, and what there is, for the message if none has anything."""

    chosen: bool = False
    threads: list[str] = field(default_factory=list)
    numbers: list[Int64s] = field(default_factory=list)

    def add(self, trace: HostTrace, numbers: Int64s, selection: Selection) -> None:
        """Note what a host has; `numbers` are those of its steps."""
        first, last = selection.steps or (0, -1)
        has_steps = selection.steps is None or bool(((numbers >= first) & (numbers <= last)).any())
        has_threads = not selection.threads or bool(matching_lines(trace, selection.threads))
        self.chosen |= has_steps and has_threads
        self.numbers.append(numbers)
        self.threads += [line.name for line in trace.lines]


def export(
    files: Sequence[HostFile],
    output: Path,
    selection: Selection = EVERYTHING,
    *,
    step_marker: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write the traces of these hosts into one file; its suffix says in which format (`file.SUFFIXES`).

    `step_marker` names the events that are steps. Raises TraceNotFoundError, TraceFormatError and OutputError, and
    TfperfError if there is nothing of what was asked for.
    """
    form = format_of(output)
    if form is None:
        raise TfperfError(f"{output.name} has no suffix of a trace; end it in .pftrace, .json or .json.gz")
    exported, found = Exported(output), _Found()
    with new_file(output, force=force) as file:
        hosts = _hosts(files, selection, step_marker, exported, found, progress)
        for data in _perfetto(hosts) if form == "perfetto" else _chrome(hosts, exported, form):
            exported.size_bytes += len(data)
            file.write(data)
        if not found.chosen:
            raise nothing_chosen(selection, found.threads, np.concatenate([np.empty(0, np.int64), *found.numbers]))
    return exported


def _hosts(
    files: Sequence[HostFile], selection: Selection, step_marker: str | None, exported: Exported, found: _Found,
    progress: Progress | None,
) -> Iterator[HostTimeline]:  # fmt: skip
    """Read host after host; add up what is in it."""
    for file, told in zip(files, progress_by_file(files, progress), strict=True):
        trace = read_host(file.path, file.host, everything=True, progress=told)
        steps = find_steps(trace, step_marker)
        found.add(trace, steps.numbers, selection)
        prefix = f"{file.host} " if len(files) > 1 else ""
        timeline = host_timeline(trace, steps, selection, prefix=prefix, first_arrow=exported.arrows + 1)
        _count(exported, timeline, trace, len(chosen_steps(steps, selection)))
        del trace
        yield timeline


def _count(exported: Exported, timeline: HostTimeline, trace: HostTrace, steps: int) -> None:
    exported.events += timeline.events
    exported.steps += steps
    exported.shown += sum(len(group.start_ps) for group in timeline.groups) - steps
    exported.tracks += sum(len(group.tracks) for group in timeline.groups)
    exported.counters += sum(len(group.counters) for group in timeline.groups)
    exported.arrows += timeline.arrows
    exported.cut_arrows += timeline.cut_arrows
    exported.backwards += timeline.backwards
    for reason, count in timeline.left_out.items():
        exported.left_out[reason] = exported.left_out.get(reason, 0) + count
    exported.warnings += trace.errors + trace.warnings


def _perfetto(hosts: Iterable[HostTimeline]) -> Iterator[bytes]:
    from tfperf.timeline import perfetto

    yield perfetto.root()
    sequence, track = 1, 1
    for host in hosts:
        yield from _side_by_side(perfetto.jobs(host.groups, sequence, track))
        sequence += len(host.groups)
        track += sum(perfetto.track_count(group) for group in host.groups)


def _chrome(hosts: Iterable[HostTimeline], exported: Exported, form: Format) -> Iterator[bytes]:
    text = _json(hosts, exported)
    return _zipped(text) if form == "json.gz" else text


def _json(hosts: Iterable[HostTimeline], exported: Exported) -> Iterator[bytes]:
    from tfperf.timeline import chrome

    yield chrome.HEAD
    process, thread = 1, 1
    for host in hosts:
        yield from _side_by_side(chrome.jobs(host.groups, process, thread))
        process += len(host.groups)
        thread += sum(len(group.tracks) for group in host.groups)
    yield chrome.last(exported.shown)


def _zipped(text: Iterable[bytes]) -> Iterator[bytes]:
    """Compress text as one stream: not every viewer reads a gzip file of several."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for data in text:
        yield packer.compress(data)
    yield packer.flush()


def _side_by_side(jobs: Iterable[Job]) -> Iterator[bytes]:
    """Do jobs on several threads and return what they make, in order; few wait, so that memory stays bounded."""
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
