"""A dask.distributed cluster as an executor, and the task that its workers run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Lock, Thread, Timer
from typing import Any

from tfperf.analysis.parallel.outcomes import Analyze, HostOutcome, Work, attempt
from tfperf.analysis.parallel.over_hosts import GROUPS, Workers
from tfperf.analysis.parallel.worker_pool import WorkerProcess
from tfperf.base import __version__
from tfperf.base.errors import TfperfError

CONNECT_S, WORKERS_S = 10, 30
"""Seconds until the scheduler must answer at first, and until a worker must appear, the first one or a replacement."""
ANSWER_S, _ASK_S = 30, 5
"""Seconds that the scheduler may take to answer while no result arrives, and the interval of these requests."""
_POLL_S, _IDLE_S = 0.1, 3
"""Interval at which a task checks whether it is canceled, and seconds that a process waits for the next task."""
_GROUPS_EACH = 32
"""Groups of small hosts per worker: enough to balance the load at the end."""
_LOST = "the connection to the cluster at {} was lost: check that its scheduler is running"


@contextmanager
def connected(address: str) -> Iterator[Workers]:
    """Connect to the scheduler at an address such as `tcp://scheduler:8786`; an exception, such as Ctrl-C, cancels the
    work.

    Raises TfperfError if dask is missing, the scheduler does not answer, no worker is there, or the connection breaks.
    """
    try:
        from distributed import Client as DaskClient
    except ImportError as error:
        raise TfperfError("--cluster needs dask.distributed: pip install 'tfperf[cluster]'") from error
    for name in ("distributed", "distributed.client", "distributed.core", "distributed.comm", "tornado.application"):
        # It logs tracebacks when a connection breaks.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    new_client: Any = DaskClient
    try:
        client = new_client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, asyncio.TimeoutError, ValueError) as error:
        raise TfperfError(
            f"no dask scheduler responds at {address}: check that `dask scheduler` is running there and reachable"
        ) from error
    try:
        try:
            client.wait_for_workers(1, timeout=WORKERS_S)
        except (TimeoutError, asyncio.TimeoutError) as error:
            raise TfperfError(
                f"the cluster at {address} has no workers: start one with `dask worker {address}`"
            ) from error
        except OSError as error:
            raise TfperfError(_LOST.format(address)) from error
        executor: Any = client.get_executor(pure=False)
        run = partial(attempt_on_cluster, __version__)
        try:
            yield Workers(
                executor=executor,
                run=run,
                second=executor,
                check=_Pulse(client, address).check,
                groups=min(_GROUPS_EACH * sum(client.nthreads().values()), GROUPS),
            )
        except BaseException:
            executor.shutdown(wait=False)
            raise
    finally:
        # Closing a broken connection may fail in any way (dask reschedules expired timeouts), which would hide why.
        with suppress(Exception):
            client.close(timeout=1)


class _Pulse:
    """A check whether results can still arrive: the scheduler answers, and has a worker or recently had one."""

    def __init__(self, client: Any, address: str) -> None:
        self._client, self._address = client, address
        self._asked_s = self._had_worker_s = time.monotonic()

    def check(self) -> None:
        """Raise TfperfError if no more results can arrive; called periodically while none arrive."""
        if self._client.status != "running":
            raise TfperfError(_LOST.format(self._address))
        if time.monotonic() - self._asked_s < _ASK_S:
            return
        try:
            workers = self._client.sync(self._client.scheduler.identity, callback_timeout=ANSWER_S)["workers"]
        except (TimeoutError, asyncio.TimeoutError) as error:
            silent = f"the dask scheduler at {self._address} has not responded for {ANSWER_S} s"
            raise TfperfError(f"{silent}: check whether it stopped or its machine is overloaded") from error
        except OSError as error:
            raise TfperfError(_LOST.format(self._address)) from error
        self._asked_s = time.monotonic()
        if workers:
            self._had_worker_s = self._asked_s
        elif self._asked_s - self._had_worker_s > WORKERS_S:
            alone = f"the cluster at {self._address} has had no workers for {WORKERS_S} s"
            raise TfperfError(f"{alone}: start some with `dask worker {self._address}`")


def attempt_on_cluster(version: str, analyze: Analyze, files: Sequence[Work]) -> list[HostOutcome]:
    """Do the work of `attempt` in a dask worker: in a separate process, which ends when the result is no longer wanted.

    In the worker itself, the work could not be stopped, would keep the worker from answering its scheduler, and would
    take twice as long, because dask configures glibc to release each block of memory at once.
    """
    from distributed import get_worker

    if version != __version__:
        raise TfperfError(f"the cluster has tfperf {__version__}, this machine {version}: install one version on both")
    worker: Any = get_worker()
    key, process, is_done = worker.get_current_task(), _BESIDE.take(), Event()

    def end_unwanted() -> None:
        while not is_done.wait(_POLL_S):
            task = worker.state.tasks.get(key)
            if task is None or task.state == "cancelled":
                process.ask_to_end()
                process.end()
                return

    Thread(target=end_unwanted, name="tfperf-unwanted", daemon=True).start()
    try:
        outcomes: list[HostOutcome] = process.call(attempt, analyze, files)[0]
    finally:
        is_done.set()
        _BESIDE.put(process)
    return outcomes


class _ProcessesBeside:
    """Idle processes next to the worker, which end after a while."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: list[WorkerProcess] = []
        self._end = Timer(0, self._end_all)

    def take(self) -> WorkerProcess:
        with self._lock:
            self._end.cancel()
            return self._idle.pop() if self._idle else WorkerProcess()

    def put(self, process: WorkerProcess) -> None:
        with self._lock:
            self._end.cancel()
            if process.is_alive:
                self._idle.append(process)
            self._end = Timer(_IDLE_S, self._end_all)
            self._end.daemon = True
            self._end.start()

    def _end_all(self) -> None:
        with self._lock:
            ended, self._idle = self._idle, []
        for process in ended:
            process.ask_to_end()
            process.end()


_BESIDE = _ProcessesBeside()
