"""What is done with each host, what came of it, and who is told."""

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
"""Until a worker process has started and imported what it needs."""
HOST_S, BYTE_S = 0.01, 1 / 80e6
"""What the analysis of a host takes: each host, and each byte of its file."""
WORKER_BYTES, BYTES_PER_BYTE = 150e6, 2.5
"""What a worker holds: at all times, and for each byte of the file that it reads."""
FORKED_BYTES = 1 << 24
"""Of a file, so that a copy of the process pays."""


def jobs_for(files: Sequence[HostFile], wanted: int | None = None) -> int:
    """Return how many worker processes to use; 1 means none: this process does the work itself.

    `wanted` is what the user asks for. Without it, there are as many as the process has cores, no more than the memory
    is enough for, and none where the work takes hardly longer than to start them.
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
    """Return whether a copy of this process may do a part of the work on a single host: it is large enough."""
    size = file.size_bytes or 0
    return wanted != 1 and size >= FORKED_BYTES and _cores() > 1 and available_bytes() > BYTES_PER_BYTE * size


def _cores() -> int:
    from tfperf.capture.machine import job_facts

    return int(job_facts().cores or 1)


Analyze = Callable[..., Any]
"""What is done with each host: a function of its file, and perhaps of `progress`; picklable, as its value is."""


class Work(Protocol):
    """What a worker gets at a time: the file of a host, or something else that has a size and a name for messages."""

    @property
    def path(self) -> object:
        """Return what it is called."""

    @property
    def size_bytes(self) -> int | None:
        """Return how large it is; None if that is unknown."""


HostProgress = Callable[[int, int], None]
"""Called with hosts done so far and hosts in all."""


class Told(Struct):
    """Who is told how far the work is: of the bytes, and of the hosts."""

    bytes_done: Progress | None = None
    hosts_done: HostProgress | None = None


class HostOutcome(Struct, frozen=True):
    """What came of one host: its `value`, or the `error` because of which it has none."""

    value: Any = None
    error: TfperfError | None = None


def attempt(analyze: Analyze, files: Sequence[Work]) -> list[HostOutcome]:
    """Analyze some hosts, one after the other. This is what workers run; what is a bug of ours stays an exception."""
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
    """Analyze hosts one after the other in this process; what `over_hosts` returns, and the same progress."""
    outcomes = []
    for file, progress in zip(files, progress_by_file(files, told.bytes_done), strict=True):
        outcomes += attempt(partial(analyze, progress=progress), [file])
        if told.hosts_done:
            told.hosts_done(len(outcomes), len(files))
    return outcomes
