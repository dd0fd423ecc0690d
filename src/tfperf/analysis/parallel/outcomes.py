"""What is done with each host, what came of it, and who is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import Struct

from tfperf.base.available_memory import lacks_memory, shortage
from tfperf.base.errors import TfperfError, TraceNotFoundError
from tfperf.base.units import format_bytes
from tfperf.trace.logdir import HostFile
from tfperf.trace.read import Progress, progress_by_file

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
