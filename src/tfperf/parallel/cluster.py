"""A cluster of dask.distributed as an executor, and what its workers run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tfperf import __version__
from tfperf.available_memory import give_back_memory, keep_freed_memory
from tfperf.errors import TfperfError
from tfperf.parallel.outcomes import Analyze, HostOutcome, attempt
from tfperf.parallel.over_hosts import Workers
from tfperf.trace.logdir import HostFile

CONNECT_S, WORKERS_S = 10, 30
"""How long the scheduler may take to answer, and the first worker to be there."""
_LOST = "the connection to the cluster at {} is lost: does its scheduler still run?"


class _UnwantedError(Exception):
    """Nobody waits for the result any more."""


@contextmanager
def connected(address: str) -> Iterator[Workers]:
    """Connect to the scheduler at an address such as `tcp://scheduler:8786`.

    On an exception, such as Ctrl-C, what the cluster was asked for is cancelled. Raises TfperfError if dask is missing,
    nothing answers, no worker is there, or the connection breaks.
    """
    try:
        from distributed import Client as DaskClient
    except ImportError as error:
        raise TfperfError("--cluster needs dask.distributed: pip install 'tfperf[cluster]'") from error
    for name in ("distributed", "distributed.client", "distributed.core", "distributed.comm", "tornado.application"):
        # Of a connection that breaks, it writes tracebacks of its own.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    new_client: Any = DaskClient
    try:
        client = new_client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, asyncio.TimeoutError, ValueError) as error:
        raise TfperfError(
            f"no scheduler of dask answers at {address}: does `dask scheduler` run there, and can it be reached?"
        ) from error
    try:
        _await_worker(client, address)
        executor: Any = client.get_executor(pure=False)
        run = partial(attempt_on_cluster, __version__)
        try:
            yield Workers(
                executor=executor, run=run, second=executor, check=partial(_check_connection, client, address)
            )
        except BaseException:
            executor.shutdown(wait=False)
            raise
    finally:
        client.close(timeout=1)


def _await_worker(client: Any, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
    except (TimeoutError, asyncio.TimeoutError) as error:
        raise TfperfError(f"the cluster at {address} has no worker: start some with `dask worker {address}`") from error
    except OSError as error:
        raise TfperfError(_LOST.format(address)) from error


def _check_connection(client: Any, address: str) -> None:
    if client.status != "running":
        raise TfperfError(_LOST.format(address))


def attempt_on_cluster(version: str, analyze: Analyze, files: Sequence[HostFile]) -> list[HostOutcome]:
    """Do what `attempt` does, in a worker of dask that asks on its way whether the result is still wanted."""
    from distributed import get_worker

    if version != __version__:
        raise TfperfError(
            f"the cluster has tfperf {__version__}, not {version} as this machine: install the same there"
        )
    worker: Any = get_worker()
    key = worker.get_current_task()

    def check(*_: int) -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise _UnwantedError

    # Dask starts workers with a setting of glibc by which it gives back each block at once: twice the processor time.
    keep_freed_memory()
    try:
        return [outcome for file in files for outcome in attempt(partial(analyze, progress=check), [file])]
    finally:
        give_back_memory()
