"""The events of a single host, read while it is analyzed: with what its analysis reads, else in a thread beside it.

Of several hosts each is read when it is written, and so is a very large file: else two of them would be in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tfperf.trace.read import AlsoRead

if TYPE_CHECKING:
    from tfperf.export.parquet.event_table import NestedTrace
    from tfperf.trace.host_trace import HostTrace
    from tfperf.trace.logdir import HostFile

_LARGEST_BYTES = 1 << 28
Read = Callable[..., "NestedTrace"]
"""Called with a `HostFile`, and perhaps `progress`."""
Begin = Callable[["HostFile"], AlsoRead | None]
"""Called with the file of a single host before it is read; returns what to read with it."""


class _Ended(Exception):  # noqa: N818  (it is no error, but the end of a thread)
    """Raised in the thread when nobody waits for it any more."""


class ReadAhead(Struct):
    """What is read ahead, if anything is; `read` reads what is not."""

    read: Read
    path: Any = None
    events: Future[NestedTrace] | None = None

    def of(self, file: HostFile) -> NestedTrace:
        """Return the events of a host. Raises TraceFormatError."""
        if self.events is not None and file.path == self.path:
            return self.events.result()
        return self.read(file)


@contextmanager
def reading_ahead(read: Read, stats: frozenset[str] | None) -> Iterator[tuple[ReadAhead, Begin]]:
    """Give what `tfperf.load` is to call, so that a single host is read once, with these stats; None: all.

    All stats are more than an analysis can read too, so a thread reads them. At the end, a thread that still reads is
    ended.
    """
    from tfperf.export.parquet.event_table import with_nesting

    ahead, is_wanted = ReadAhead(read), True

    def go_on(_done: int, _total: int) -> None:
        if not is_wanted:
            raise _Ended

    with ThreadPoolExecutor(1, thread_name_prefix="tfperf-read-ahead") as pool:

        def receive(trace: HostTrace) -> None:
            ahead.path, ahead.events = trace.path, pool.submit(with_nesting, trace)

        def begin(file: HostFile) -> AlsoRead | None:
            if (file.size_bytes or _LARGEST_BYTES + 1) > _LARGEST_BYTES:
                return None
            if stats is not None:
                return AlsoRead(stats, receive)
            if isinstance(file.path, Path):  # others would be fetched twice at the same time
                ahead.path, ahead.events = file.path, pool.submit(read, file, progress=go_on)
            return None

        try:
            yield ahead, begin
        finally:
            is_wanted = False
