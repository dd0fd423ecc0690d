"""Which workers analyze the hosts of a run: none, a pool of processes, a cluster, or any executor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from tfperf.errors import TfperfError
from tfperf.parallel.jobs import jobs_for
from tfperf.parallel.outcomes import Analyze, HostOutcome, Told, in_sequence
from tfperf.trace.logdir import HostFile

if TYPE_CHECKING:
    from concurrent.futures import Executor


class Engine(Struct, frozen=True):
    """Where hosts are analyzed: on an executor, else on a cluster, else on `jobs` processes of this machine.

    Without any of them, on as many processes as pay, which for small profiles is none.
    """

    jobs: int | None = None
    cluster: str | None = None
    executor: Executor | None = None

    def run(self, analyze: Analyze, files: Sequence[HostFile], told: Told) -> list[HostOutcome]:
        """Analyze hosts; return what came of each, in the order of `files`, wherever and whenever it was done.

        Raises TfperfError if two places are named, or no workers.
        """
        if sum(each is not None for each in (self.jobs, self.cluster, self.executor)) > 1:
            raise TfperfError("jobs, cluster and executor each say where hosts are analyzed: give one of them")
        if self.jobs is not None and self.jobs < 1:
            raise TfperfError(f"jobs is {self.jobs}: it counts processes, so give 1 or more")
        jobs = jobs_for(files, self.jobs)
        if jobs == 1 and self.executor is None and self.cluster is None:
            return in_sequence(analyze, files, told)
        # What follows takes time to import.
        from tfperf.parallel.over_hosts import Workers, over_hosts
        from tfperf.parallel.worker_pool import WorkerPool

        if self.executor is not None:
            return over_hosts(analyze, files, Workers(executor=self.executor), told)
        if self.cluster is not None:
            from tfperf.parallel.cluster import connected

            with connected(self.cluster) as workers:
                return over_hosts(analyze, files, workers, told)
        with WorkerPool(jobs) as pool:
            return over_hosts(analyze, files, Workers(executor=pool), told)
