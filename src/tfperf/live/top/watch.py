"""All watchers together: started, chosen, paused, and ended within a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfperf.capture.address import Address
from tfperf.live.top.board import Board
from tfperf.live.top.request import TopRequest
from tfperf.live.top.sample import Sample
from tfperf.live.top.watcher import Watcher, shared_by_all

if TYPE_CHECKING:
    from typing_extensions import Self

_END_S = 0.4
"""How long requests that go on may take to be ended."""


class Watch:
    """Samples all workers of a request; `with` ends that. `on_sample` is called with each sample, from its thread."""

    def __init__(self, request: TopRequest, on_sample: Callable[[Address, Sample], object] | None = None) -> None:
        self.request = request
        self.board = Board(request.workers, on_sample)
        self._shared = shared_by_all(request, self.board)
        self._watchers = {address: Watcher(address, self._shared) for address in request.workers}

    def __enter__(self) -> Self:
        for watcher in self._watchers.values():
            watcher.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    @property
    def is_done(self) -> bool:
        """Tell whether all workers have given as many samples as were asked for."""
        return not any(watcher.thread.is_alive() for watcher in self._watchers.values())

    def choose(self, address: Address) -> None:
        """Keep the replies of this worker in memory until the next one comes, so that they can be recorded."""
        for watcher in self._watchers.values():
            watcher.keeps_trace = watcher.address == address

    def pause(self, is_paused: bool) -> None:
        """Ask no worker until the pause is over."""
        for watcher in self._watchers.values():
            watcher.pause(is_paused)

    def record(self, address: Address) -> None:
        """Write the latest sample of a worker into the logdir, or the next one."""
        self._watchers[address].record()

    def end(self) -> None:
        """End the sessions that go on and all processes; whoever takes longer is not waited for."""
        for watcher in self._watchers.values():
            watcher.end()
        self._shared.analyst.ask_to_end()
        until_s = time.monotonic() + _END_S
        for watcher in self._watchers.values():
            if watcher.thread.ident is not None:
                watcher.thread.join(max(until_s - time.monotonic(), 0.0))
        self._shared.analyst.end()
