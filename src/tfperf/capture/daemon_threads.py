"""An executor whose threads never keep the program from ending, unlike those of a ThreadPoolExecutor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

Value = TypeVar("Value")


class DaemonThreads(Executor):
    """A fixed number of daemon threads.

    All start at once: Python 3.12 starts no thread after the main one has ended, when a server may still get calls.
    """

    def __init__(self, count: int, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._count = count
        for _ in range(count):
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, fn: Callable[..., Value], /, *args: Any, **kwargs: Any) -> Future[Value]:
        """Run the call when a thread is free; its outcome is in the future."""
        future: Future[Value] = Future()
        self._calls.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads after the calls submitted so far; never waits for them, whatever the arguments say."""
        for _ in range(self._count):
            self._calls.put(None)

    def _run(self) -> None:
        while item := self._calls.get():
            future, call = item
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
            del item, future, call  # They keep alive what the call kept alive.
