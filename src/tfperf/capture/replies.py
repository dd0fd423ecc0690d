"""Replies of many servers: a few are received at a time, so that memory is bounded, each within its time.

A call is answered when the first bytes of its reply are there. The rest is left to the connection, which holds it back
in the server, until a receiver takes it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import queue
import time
from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct, field

from tfperf.capture.client import PendingReply, ProfilerClient
from tfperf.capture.daemon_threads import DaemonThreads
from tfperf.capture.outcomes import Captured

RECEIVERS = 4
"""How many replies are in memory at once."""
_POLL_SECONDS = 0.02
_LAST_SECONDS = 2.0
"""How long a receiver may take to put away what it has when nobody waits for it any more."""

Receive = Callable[[ProfilerClient, PendingReply], Captured]


class TimeLimits(Struct, frozen=True):
    """How long servers may take, in seconds."""

    answer_s: float
    """From the request until the reply begins to come."""
    transfer_s: float
    """From then on, for each reply."""

    def of_call(self, count: int) -> float:
        """Return how long the last of so many calls may take, with all those that are received before it."""
        return self.answer_s + self.transfer_s * (1 + count // RECEIVERS)


class Replies(Struct):
    """Receives the replies of calls, and ends those that take too long."""

    pending: dict[ProfilerClient, PendingReply]
    """The calls whose outcome is still to come."""
    receive: Receive
    limits: TimeLimits
    _asked_s: float = field(default_factory=time.monotonic)
    _begun_s: dict[ProfilerClient, float] = field(default_factory=dict)
    """When receiving each began, on the monotonic clock."""

    def as_they_come(self, meanwhile: Callable[[], object]) -> Iterator[tuple[ProfilerClient, Captured]]:
        """Iterate over outcomes in the order in which they are there; `meanwhile` is called often."""
        done: queue.SimpleQueue[tuple[ProfilerClient, concurrent.futures.Future[Captured]]] = queue.SimpleQueue()
        with DaemonThreads(min(RECEIVERS, len(self.pending)), "tfperf-receive") as receivers:

            def start(client: ProfilerClient, call: PendingReply) -> None:
                receiving = receivers.submit(self._take, client, call)
                receiving.add_done_callback(lambda future: done.put((client, future)))

            for client, call in self.pending.items():
                call.when_answered(partial(start, client, call))
            try:
                while self.pending:
                    with contextlib.suppress(queue.Empty):
                        client, received = done.get(timeout=_POLL_SECONDS)
                        del self.pending[client]
                        yield client, received.result()
                    self._end_late()
                    meanwhile()
            finally:
                self._give_up(done)

    def _take(self, client: ProfilerClient, call: PendingReply) -> Captured:
        self._begun_s[client] = time.monotonic()
        return self.receive(client, call)

    def _end_late(self) -> None:
        now_s = time.monotonic()
        for client, call in self.pending.items():
            begun_s = self._begun_s.get(client)
            is_late = not call.is_answered and now_s - self._asked_s > self.limits.answer_s
            if is_late or (begun_s is not None and now_s - begun_s > self.limits.transfer_s):
                call.expire()

    def _give_up(self, done: queue.SimpleQueue[tuple[ProfilerClient, concurrent.futures.Future[Captured]]]) -> None:
        """End what is left, and let files that are being written be put away: nothing half done stays."""
        for call in self.pending.values():
            call.cancel()
        until_s = time.monotonic() + _LAST_SECONDS
        left = set(self._begun_s) & set(self.pending)
        while left and (wait_s := until_s - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                left.discard(done.get(timeout=wait_s)[0])
