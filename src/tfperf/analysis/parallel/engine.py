"""Which workers analyze the hosts of a run: none, a pool of processes, a cluster, or any executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from tfperf.analysis.parallel.jobs import jobs_for
from tfperf.analysis.parallel.outcomes import Analyze, HostOutcome, Told, in_sequence
from tfperf.base.errors import TfperfError
from tfperf.trace.logdir import HostFile

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tfperf.analysis.parallel.over_hosts import Workers


class Engine(Struct, frozen=True):
    """Where hosts are analyzed: on an executor, else on a cluster, else on `jobs` processes of this machine.

    Without any of them, on as many processes as pay, which for small profiles is none.
    """

    jobs: int | None = None
    cluster: str | None = None
    executor: Executor | None = None

    @contextmanager
    def workers(self, files: Sequence[HostFile]) -> Iterator[Workers | None]:
        """Give the workers for these files; None: this process does the work itself.

        Raises TfperfError if two places are named, or no workers.
        """
        if sum(each is not None for each in (self.jobs, self.cluster, self.executor)) > 1:
            raise TfperfError("jobs, cluster and executor each say where hosts are analyzed: give one of them")
        if self.jobs is not None and self.jobs < 1:
            raise TfperfError(f"jobs is {self.jobs}: it counts processes, so give 1 or more")
        jobs = jobs_for(files, self.jobs)
        if jobs == 1 and self.executor is None and self.cluster is None:
            yield None
            return
        # What follows takes time to import.
        from tfperf.analysis.parallel.over_hosts import Workers
        from tfperf.analysis.parallel.worker_pool import WorkerPool

        if self.executor is not None:
            yield Workers(executor=self.executor)
        elif self.cluster is not None:
            from tfperf.analysis.parallel.cluster import connected

            with connected(self.cluster) as workers:
                yield workers
        else:
            with WorkerPool(jobs) as pool:
                yield Workers(executor=pool)


def run_on(workers: Workers | None, analyze: Analyze, files: Sequence[HostFile], told: Told) -> list[HostOutcome]:
    """Analyze hosts; return what came of each, in the order of `files`, wherever and whenever it was done."""
    if workers is None:
        return in_sequence(analyze, files, told)
    from tfperf.analysis.parallel.over_hosts import over_hosts

    return over_hosts(analyze, files, workers, told)
