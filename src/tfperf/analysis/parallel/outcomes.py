"""The work on each host, its outcome, and progress callbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import Struct

from tfperf.base.errors import TfperfError, TraceNotFoundError
from tfperf.base.process import available_bytes, lacks_memory, shortage
from tfperf.base.units import format_bytes
from tfperf.trace.logdir import HostFile
from tfperf.trace.read import Progress, progress_by_file

START_S = 0.5
"""Seconds to start a worker process and import its modules."""
HOST_S, BYTE_S = 0.01, 1 / 80e6
"""Seconds of analysis per host and per byte of its file."""
WORKER_BYTES, BYTES_PER_BYTE = 150e6, 2.5
"""Bytes of memory of a worker, and additional ones per byte of its file."""
FORKED_BYTES = 1 << 24
"""Minimum file size for which a forked copy of the process pays off."""


def jobs_for(files: Sequence[HostFile], wanted: int | None = None) -> int:
    """Return the number of worker processes; 1 means that this process does the work itself.

    `wanted` is the user's choice (default: one per core as memory allows, or 1 if that is hardly slower).
    """
    if wanted is not None or len(files) < 2:
        return min(wanted or 1, len(files))
    sizes = [file.size_bytes or 0 for file in files]
    work_s = HOST_S * len(files) + BYTE_S * sum(sizes)
    if work_s < 2 * START_S:
        return 1
    fitting = available_bytes() / (WORKER_BYTES + BYTES_PER_BYTE * max(sizes))
    jobs = max(int(min(_cores(), fitting, len(files))), 1)
    return jobs if START_S + work_s / jobs < work_s else 1


def may_fork(file: HostFile, wanted: int | None) -> bool:
    """Return whether a file is large enough for a forked copy of this process to do part of the work."""
    size = file.size_bytes or 0
    return wanted != 1 and size >= FORKED_BYTES and _cores() > 1 and available_bytes() > BYTES_PER_BYTE * size


def _cores() -> int:
    from tfperf.capture.machine import job_facts

    return int(job_facts().cores or 1)


Analyze = Callable[..., Any]
"""Analysis of a host: a function of its file, and optionally of `progress`; it and its value are picklable."""


class Work(Protocol):
    """A unit of work: the file of a host, or another object with a size and a name."""

    @property
    def path(self) -> object:
        """Return the name for messages."""

    @property
    def size_bytes(self) -> int | None:
        """Return the size; None if unknown."""


HostProgress = Callable[[int, int], None]


class Told(Struct):
    """Progress callbacks, for bytes and for hosts."""

    bytes_done: Progress | None = None
    hosts_done: HostProgress | None = None


class HostOutcome(Struct, frozen=True):
    """The outcome of one host: its `value`, or the `error` that prevented it."""

    value: Any = None
    error: TfperfError | None = None


def attempt(analyze: Analyze, files: Sequence[Work]) -> list[HostOutcome]:
    """Analyze some hosts in sequence, on a worker. Bugs in tfperf remain exceptions."""
    return [_outcome(analyze, file) for file in files]


def _outcome(analyze: Analyze, file: Work) -> HostOutcome:
    try:
        return HostOutcome(analyze(file))
    except Exception as error:
        if lacks_memory(error):
            size = f" ({format_bytes(file.size_bytes)})" if file.size_bytes else ""
            return HostOutcome(error=TfperfError(shortage(f" for {file.path}{size}")))
        if isinstance(error, TfperfError):
            return HostOutcome(error=error)
        if isinstance(error, OSError):
            return HostOutcome(error=TraceNotFoundError(f"cannot read {file.path}: {error.strerror or error}"))
        raise


def in_sequence(analyze: Analyze, files: Sequence[HostFile], told: Told) -> list[HostOutcome]:
    """Analyze hosts in sequence in this process; same result and progress as `over_hosts`."""
    outcomes = []
    for file, progress in zip(files, progress_by_file(files, told.bytes_done), strict=True):
        outcomes += attempt(partial(analyze, progress=progress), [file])
        if told.hosts_done:
            told.hosts_done(len(outcomes), len(files))
    return outcomes
