"""What becomes of calls to servers after Ctrl-C: sessions end, what they recorded comes, and nobody waits for the mute.

A server that takes its time to send a large trace, and one that is stuck, look the same. A second call tells them
apart: `Terminate`, which every server answers at once, whatever it is doing.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct, field

from tfperf.base.errors import CaptureError
from tfperf.capture.client import PendingReply, ProfilerClient
from tfperf.capture.daemon_threads import DaemonThreads

MUTE_SECONDS = 2.0
"""How long a server may take to answer `Terminate`."""
_LAST_REPLY_SECONDS = 30.0
"""How long one that answered may take to send what it recorded."""
_POLL_SECONDS = 0.02
_MAX_THREADS = 256


class Ending(Struct):
    """Ends the sessions of pending calls once `stop` is set; to be called often while waiting for them."""

    pending: Mapping[ProfilerClient, PendingReply]
    session_id: str
    stop: threading.Event
    say: Callable[[str], object] = lambda _: None
    since_s: float = 0.0
    """When the sessions were ended, on the monotonic clock; 0 if they were not."""
    _asked: list[PendingReply] = field(default_factory=list)
    """Calls that are cancelled if nobody holds them."""
    _awake: set[ProfilerClient] = field(default_factory=set)

    def __call__(self) -> None:
        """End the sessions at the first call after the stop; later give up the calls of servers that say nothing."""
        if not self.stop.is_set():
            return
        if not self.since_s:
            self.since_s = time.monotonic()
            self.say("interrupted: ending the session and waiting for what it recorded (Ctrl-C again to give up)")
            for client in self.pending:
                self._asked.append(client.terminate(self.session_id))
                self._asked[-1].when_answered(partial(self._awake.add, client))
        waited_s = time.monotonic() - self.since_s
        for client, call in self.pending.items():
            if not call.is_answered and waited_s > (_LAST_REPLY_SECONDS if client in self._awake else MUTE_SECONDS):
                call.cancel()


def on_each(
    clients: Sequence[ProfilerClient], work: Callable[[ProfilerClient], object], stop: threading.Event
) -> tuple[list[ProfilerClient], dict[ProfilerClient, CaptureError]]:
    """Do something with all clients at once, until the stop; return those where it was done, and the errors of others.

    A client where it goes on at the stop has the error `interrupted`.
    """
    done: list[ProfilerClient] = []
    # Daemon threads: nobody waits for a host that does not answer.
    with DaemonThreads(min(len(clients), _MAX_THREADS), "tfperf-client") as threads:
        calls = {threads.submit(work, client): client for client in clients}
    errors = {client: CaptureError("interrupted", "interrupted before profiling started") for client in clients}
    waiting: set[concurrent.futures.Future[object]] = set(calls)
    while waiting and not stop.is_set():
        ended, waiting = concurrent.futures.wait(waiting, _POLL_SECONDS, concurrent.futures.FIRST_COMPLETED)
        for call in ended:
            try:
                call.result()
                done.append(calls[call])
                del errors[calls[call]]
            except CaptureError as error:
                errors[calls[call]] = error
    return done, errors


def on_each_within(seconds: float, clients: Sequence[ProfilerClient], work: Callable[[ProfilerClient], object]) -> None:
    """Do something with all clients at once and wait so long at most; what fails, fails."""
    with DaemonThreads(max(min(len(clients), _MAX_THREADS), 1), "tfperf-client") as threads:
        concurrent.futures.wait([threads.submit(work, client) for client in clients], seconds)
