"""A pool of worker processes on this machine, as an executor.

`concurrent.futures.ProcessPoolExecutor` is not suitable: a worker that dies loses the results of all hosts; workers
outlive a killed parent; and they run the main script again, which fails without `if __name__ == "__main__"`. Here a
worker that dies fails only its current call.

Workers are started, not forked, because threads of Arrow may hold locks that a forked process never releases. Only a
process that has imported nothing with threads, such as the command line at its start, may be forked on request.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from tfperf.analysis.parallel.worker_main import main, read_message, write_message
from tfperf.base.errors import TfperfWarning
from tfperf.base.process import address_space, can_fork
from tfperf.base.units import format_bytes

_START = "import sys; sys.path[:] = sys.argv[1:]; from tfperf.analysis.parallel.worker_main import main; main()"
"""Sets `sys.path` of this process before any import, because `-c` puts the current folder first."""
_PATIENCE_S = 0.5
"""Seconds that a worker may take to end on request."""


class WorkerDiedError(Exception):
    """The worker process ended during a call."""


class WorkerTraceback(Exception):  # noqa: N818  (it is no error, but where one comes from)
    """The traceback of an exception in a worker: the cause of the exception raised here."""

    def __str__(self) -> str:
        return f"in a worker process:\n{self.args[0]}"


def packed_call(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> bytes:
    """Return a call as a message to a worker."""
    return pickle.dumps((function, arguments, keywords), pickle.HIGHEST_PROTOCOL)


def unpacked(answer: bytes) -> tuple[Any, tuple[str, ...]]:
    """Return the value of an answer and its warnings, or raise the exception of the function."""
    value, failure, text, warned = pickle.loads(answer)
    if failure is not None:
        raise failure from WorkerTraceback(text)
    return value, warned


class WorkerProcess:
    """A process that answers calls in sequence. With `may_fork`, it is a forked copy if that is safe (saves 0.1 s)."""

    def __init__(self, *, may_fork: bool = False) -> None:
        is_copy = may_fork and can_fork()
        # A separate session: Ctrl-C in a terminal reaches only the parent, which then ends its workers.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={"OPENBLAS_NUM_THREADS": "1", **os.environ},
            preexec_fn=_serve_as_copy if is_copy else None,  # noqa: PLW1509  (there are no threads)
        )

    def call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> tuple[Any, tuple[str, ...]]:
        """Call a function in the process; return its value and warnings. Raises its exceptions, and WorkerDiedError."""
        return unpacked(self.answer(packed_call(function, *arguments, **keywords)))

    def answer(self, message: bytes) -> bytes:
        """Return the answer to a packed call. Raises WorkerDiedError."""
        calls, replies = self._process.stdin, self._process.stdout
        assert calls is not None
        assert replies is not None
        with suppress(OSError, ValueError):
            write_message(calls, message)
            if (reply := read_message(replies)) is not None:
                return reply
        self.end()
        raise WorkerDiedError(_death(self._process.returncode))

    @property
    def id(self) -> int:
        """Return the process ID."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Return whether the process is still running."""
        return self._process.poll() is None

    def ask_to_end(self) -> None:
        """Signal the process to end, without waiting."""
        self._process.terminate()

    def end(self) -> None:
        """End the process and wait for its exit."""
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def _serve_as_copy() -> None:
    """Run as a worker in the forked copy, whose streams are already set, without starting another program."""
    # The parent waits until the copy closes the pipe that would report a failed program start.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    main()


class WorkerPool(Executor):
    """`count` worker processes, started on demand; `with` ends them, at once on an exception such as Ctrl-C."""

    def __init__(self, count: int) -> None:
        # Threads wait for processes, so that futures, queue and cancellation are those of the standard library. Two per
        # process: while one unpacks a result, the process works for the other.
        self._threads = ThreadPoolExecutor(2 * count, thread_name_prefix="tfperf-worker")
        self._idle: SimpleQueue[WorkerProcess | None] = SimpleQueue()
        """Idle processes, None for each that can be started, and None for all when the pool is closed."""
        for _ in range(count):
            self._idle.put(None)
        self._processes: list[WorkerProcess] = []
        self._warned: set[str] = set()
        self._lock, self._is_closed = threading.Lock(), False

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Future[Any]:
        """Submit a call to a worker; function and arguments are pickled."""
        return self._threads.submit(self._call, function, *arguments, **keywords)

    def _call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        message = packed_call(function, *arguments, **keywords)
        worker = self._idle_process()
        try:
            answer = worker.answer(message)
        finally:
            self._idle.put(worker if worker.is_alive else None)
        value, warned = unpacked(answer)
        for warning in {*warned} - self._warned:  # once, not once per worker
            self._warned.add(warning)
            warnings.warn_explicit(warning, TfperfWarning, "tfperf", 1)
        return value

    def _idle_process(self) -> WorkerProcess:
        worker = self._idle.get()
        with self._lock:
            if self._is_closed:
                self._idle.put(None)  # for the next waiting thread
                raise WorkerDiedError("the pool is closed")
            if worker is None:
                worker = WorkerProcess()
                self._processes.append(worker)
        return worker

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers: after their work if `wait`, else at once; cancel waiting calls if `cancel_futures`."""
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures or not wait)
        with self._lock:
            self._is_closed = True
        self._idle.put(None)
        for worker in self._processes:
            worker.ask_to_end()
        for worker in self._processes:
            worker.end()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.shutdown(wait=kind is None)


def _death(exit_code: int) -> str:
    name = signal.Signals(-exit_code).name if -exit_code in {*signal.Signals} else str(-exit_code)
    short = ""
    if name == "SIGKILL":
        short = " (possibly out of memory; use fewer --jobs)"
    elif name != "SIGTERM" and address_space() < math.inf:
        # Libraries end the process in different ways when an allocation fails.
        short = f": out of memory, `ulimit -v` limits a process to {format_bytes(address_space())}"
    if exit_code >= 0:
        return f"its worker process ended with exit code {exit_code}{short}"
    return f"its worker process was killed by {name}{short}"
