"""The events of a single host, read and nested in a thread while the same file is analyzed: both take about as long.

Of several hosts none is read ahead, nor is a very large file: then there would be two of them in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tfperf.errors import TfperfError
from tfperf.storage.remote_path import Location, located
from tfperf.trace.logdir import HostFile, choose_hosts, choose_run, find_runs

if TYPE_CHECKING:
    from tfperf.parquet.event_table import NestedTrace

_LARGEST_BYTES = 1 << 28
Read = Callable[..., "NestedTrace"]
"""Called with a `HostFile` and `progress`."""


class _Ended(Exception):  # noqa: N818  (it is no error, but the end of a thread)
    """Raised in the thread when nobody waits for it any more."""


class ReadAhead(Struct, frozen=True):
    """What is read ahead, if anything is."""

    read: Read
    location: Location | None = None
    events: Future[NestedTrace] | None = None

    def of(self, file: HostFile) -> NestedTrace:
        """Return the events of a host; what is not read ahead is read now. Raises TraceFormatError."""
        if self.events is not None and file.path == self.location:
            return self.events.result()
        return self.read(file)


@contextmanager
def reading_ahead(path: Any, read: Read, options: Mapping[str, Any]) -> Iterator[ReadAhead]:
    """Begin to read the host of a profile if it has one only; `options` are those of `tfperf.load`.

    At the end, a thread that still reads is ended.
    """
    file = _only_host(path, options)
    if file is None:
        yield ReadAhead(read)
        return
    is_wanted = True

    def go_on(_done: int, _total: int) -> None:
        if not is_wanted:
            raise _Ended

    with ThreadPoolExecutor(1, thread_name_prefix="tfperf-read-ahead") as pool:
        try:
            yield ReadAhead(read, file.path, pool.submit(read, file, progress=go_on))
        finally:
            is_wanted = False


def _only_host(path: Any, options: Mapping[str, Any]) -> HostFile | None:
    """Return the only host of a local profile; None of several, or where anything is wrong, which `load` says."""
    place = located(path)
    if not isinstance(place, Path):
        return None
    try:
        run = choose_run(find_runs(place), options.get("run"))
        files = choose_hosts(run, tuple(options.get("hosts", ())), tuple(options.get("host_patterns", ()))).files
    except TfperfError:
        return None
    size = files[0].size_bytes if len(files) == 1 else None
    return files[0] if size is not None and size <= _LARGEST_BYTES else None
