"""Analyze the hosts of a run on an executor: one outcome each, in their order, even if workers die."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import nullcontext
from queue import Empty, Queue

from msgspec import Struct

from tfperf.analysis.parallel.outcomes import Analyze, HostOutcome, Told, Work, attempt
from tfperf.analysis.parallel.worker_pool import WorkerDiedError, WorkerPool
from tfperf.base.errors import TfperfError

Attempt = Callable[[Analyze, Sequence[Work]], list[HostOutcome]]
GROUPS, _GROUP_HOSTS, _GROUP_BYTES = 256, 16, 32_000_000
"""Small hosts are grouped, because a call of a cluster takes 5 ms: number of groups, and maximum size of one."""
_POLL_S = 0.5
_DEATHS = (WorkerDiedError, BrokenExecutor)
_DASK_DEATHS = ("KilledWorker",)


class Workers(Struct, kw_only=True):
    """The executor that analyzes hosts, and its properties."""

    executor: Executor
    run: Attempt = attempt
    second: Executor | None = None
    """Executor for hosts whose worker died; by default a new process of this machine."""
    check: Callable[[], None] | None = None
    """Called twice a second while no result arrives; raises an exception if none can arrive any more."""
    groups: int = GROUPS
    """Minimum number of groups of small hosts."""


class _Spread:
    """Hosts distributed to workers, and their outcomes so far."""

    def __init__(self, analyze: Analyze, files: Sequence[Work], told: Told) -> None:
        self.analyze, self.files, self.told = analyze, files, told
        self.sizes = [file.size_bytes or 0 for file in files]
        self.outcomes: dict[int, HostOutcome] = {}
        self.deaths: dict[int, str] = {}
        """How the worker died, for hosts whose worker did."""
        self._bytes_done = 0

    def go(self, workers: Workers, groups: Sequence[Sequence[int]]) -> None:
        """Submit groups of hosts; on an exception, such as Ctrl-C, cancel those that have not started."""
        pending: dict[Future[list[HostOutcome]], Sequence[int]] = {}
        done: Queue[Future[list[HostOutcome]]] = Queue()
        try:
            for group in groups:
                files = [self.files[host] for host in group]
                try:
                    pending[workers.executor.submit(workers.run, self.analyze, files)] = group
                except BrokenExecutor as error:
                    self._lose(group, error)
            for future in pending:
                future.add_done_callback(done.put)
            while pending:
                try:
                    future = done.get(timeout=_POLL_S)
                    self._take(future, pending.pop(future))
                except Empty:
                    self._tell()
                    if workers.check:
                        workers.check()
        finally:
            for future in pending:
                future.cancel()

    def _take(self, future: Future[list[HostOutcome]], group: Sequence[int]) -> None:
        if future.cancelled():
            raise TfperfError("the tasks of the executor were cancelled: try again, or without an executor")
        error = future.exception()
        if error is None:
            self.keep(dict(zip(group, future.result(), strict=True)))
        elif isinstance(error, _DEATHS) or type(error).__name__ in _DASK_DEATHS:
            self._lose(group, error)
        else:
            raise error

    def _lose(self, group: Sequence[int], error: BaseException) -> None:
        reason = str(error) if isinstance(error, WorkerDiedError) else "the worker that read it died"
        self.deaths.update(dict.fromkeys(group, reason))

    def keep(self, outcomes: dict[int, HostOutcome]) -> None:
        self.outcomes.update(outcomes)
        self._bytes_done += sum(self.sizes[host] for host in outcomes)
        self._tell()

    def _tell(self) -> None:
        if self.told.hosts_done:
            self.told.hosts_done(len(self.outcomes), len(self.files))
        if self.told.bytes_done:
            self.told.bytes_done(self._bytes_done, sum(self.sizes))


def over_hosts(analyze: Analyze, files: Sequence[Work], workers: Workers, told: Told) -> list[HostOutcome]:
    """Analyze hosts on workers, the largest first; return their outcomes in the order of `files`.

    Hosts whose worker dies are analyzed again, one at a time; if that worker dies too, their outcome is an error.
    Raises the exceptions of `analyze`, except for errors about a file.
    """
    spread = _Spread(analyze, files, told)
    spread.go(workers, list(_groups(spread.sizes, workers.groups)))
    if spread.deaths:
        died = sorted(spread.deaths)
        with nullcontext(workers.second) if workers.second else WorkerPool(1) as second:
            for host in died:
                spread.go(Workers(executor=second, run=workers.run, check=workers.check), [[host]])
        for host in died:
            if host not in spread.outcomes:
                error = TfperfError(f"{files[host].path}: {spread.deaths[host]}, twice")
                spread.keep({host: HostOutcome(error=error)})
    return [spread.outcomes[host] for host in range(len(files))]


def _groups(sizes: Sequence[int], count: int) -> Iterator[list[int]]:
    """Split hosts into at least `count` groups, the largest hosts first."""
    most = min(max(len(sizes) // count, 1), _GROUP_HOSTS)
    group: list[int] = []
    for host in sorted(range(len(sizes)), key=lambda host: -sizes[host]):
        if group and (len(group) == most or sum(sizes[each] for each in [*group, host]) > _GROUP_BYTES):
            yield group
            group = []
        group.append(host)
    yield group
