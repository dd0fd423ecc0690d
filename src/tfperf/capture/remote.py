"""Sampling running jobs: ask all workers at once, keep what comes, and say why something did not."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfperf.capture.address import Address
from tfperf.capture.client import Pending, ProfilerClient, Session
from tfperf.capture.interrupt import stop_on_signal
from tfperf.capture.options import TracerOptions
from tfperf.capture.store import RunFolder
from tfperf.capture.verdict import IDLE, judge
from tfperf.errors import CaptureError, TraceFormatError
from tfperf.outcomes import Captured
from tfperf.wire.profiler_service import OVERHEAD_KEY
from tfperf.wire.schema import LARGEST_MESSAGE
from tfperf.wire.trace_file import SUFFIX

if TYPE_CHECKING:
    from tfperf.wire.contents import Contents

_RETRIED = {"not_listening", "unreachable", "busy", "timeout", "died", "idle"}
_PAUSE_SECONDS = 1.0
_LEAD_SECONDS = 0.3
"""What several workers get to receive the request before they start at the same moment."""
_LOOK_MS = 200
_SERVER_DELAY_SECONDS = 2.0
_LAST_REPLY_SECONDS = 30.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Request:
    """What to ask of whom. Times are in seconds."""

    workers: Sequence[Address]
    duration_s: float = 2.0
    options: TracerOptions = field(default_factory=TracerOptions)
    delay_s: float = 0.0
    timeout_s: float = 60.0
    """What a server may take to answer, beyond delay and duration."""
    retries: int = 0
    wait_for_activity_s: float = 0.0
    """How long to wait for an idle job to do something; 0 is not at all."""
    tls_ca: Path | None = None
    max_reply_bytes: int = LARGEST_MESSAGE


def sample(
    request: Request, logdir: str | Path, say: Callable[[str], object] = lambda _: None
) -> tuple[Path, list[Captured]]:
    """Profile all workers at the same moment, into one run folder.

    Returns the folder and an entry for each worker, in their order, also for those that failed. `say` gets a line
    when there is something to wait for. The first Ctrl-C ends the sessions and keeps what came. Raises CaptureError
    `not_written` if the logdir cannot be used, before anything is asked.
    """
    with contextlib.ExitStack() as stack:
        folder = RunFolder(logdir)
        stack.callback(folder.drop_if_empty)
        folder.make()
        stop = stack.enter_context(stop_on_signal())
        return folder.path, _Sampling(request, folder, stop, say).run(open_clients(stack, request))


@dataclass(frozen=True)
class _Sampling:
    """One call of `sample`: rounds of asking all workers that have given nothing yet."""

    request: Request
    folder: RunFolder
    stop: threading.Event
    say: Callable[[str], object]

    def run(self, clients: list[ProfilerClient]) -> list[Captured]:
        """Return what came of each client."""
        found: dict[ProfilerClient, Captured] = {}
        for attempt in range(self.request.retries + 1):
            left = [client for client in clients if client not in found or found[client].reason in _RETRIED]
            if not left or self.stop.is_set():
                break
            if attempt:
                self.say(f"trying again: {', '.join(sorted({found[client].message for client in left}))}")
                if self.stop.wait(_PAUSE_SECONDS):
                    break
            found.update(self._round(left))
        return [found[client] for client in clients]

    def _round(self, clients: list[ProfilerClient]) -> dict[ProfilerClient, Captured]:
        """Ask all clients once."""
        with ThreadPoolExecutor(max_workers=min(len(clients), 64)) as pool:
            found = {
                client: failure
                for client, failure in zip(clients, pool.map(self._prepare, clients), strict=True)
                if failure
            }
        ready = [client for client in clients if client not in found]
        if ready and not self.stop.is_set():
            found.update(self._ask(ready))
        for client in ready:
            found.setdefault(client, failed(client, CaptureError("interrupted", "interrupted before profiling began")))
        return found

    def _prepare(self, client: ProfilerClient) -> Captured | None:
        """Connect, and wait until the job does something if that was asked for; return the failure, if any."""
        try:
            client.connect()
            if self.request.wait_for_activity_s:
                self._wait_for_activity(client)
        except CaptureError as error:
            return failed(client, error)
        return None

    def _wait_for_activity(self, client: ProfilerClient) -> None:
        """Take short looks until one is not empty, or the time is over."""
        until, told = time.monotonic() + self.request.wait_for_activity_s, False
        while not self.stop.is_set():
            look = replace(session_for(client, self.request, self.folder), duration_ms=_LOOK_MS)
            reply = client.profile(look, self.request.timeout_s).result()
            if not reply.empty_trace or time.monotonic() > until:
                return
            if not told:
                self.say(f"{client.address} is idle; waiting up to {self.request.wait_for_activity_s:g} s for activity")
                told = True
            self.stop.wait(_PAUSE_SECONDS / 2)

    def _ask(self, clients: list[ProfilerClient]) -> dict[ProfilerClient, Captured]:
        """Start all sessions, end them early if interrupted, and keep each trace when it comes."""
        request = self.request
        # A long delay is waited for here; servers only see the last seconds of it.
        if self.stop.wait(max(0.0, request.delay_s - _SERVER_DELAY_SECONDS)):
            return {}
        lead = min(request.delay_s, _SERVER_DELAY_SECONDS) + (_LEAD_SECONDS if len(clients) > 1 else 0.0)
        start_ns = time.time_ns() + int(lead * 1e9) if lead else 0
        seconds = lead + request.duration_s + request.timeout_s
        pending = {
            client: client.profile(session_for(client, request, self.folder, start_ns), seconds) for client in clients
        }
        found, began = {}, time.monotonic()
        for client, call in as_they_come(pending, _Interruption(self.stop, self.say, self.folder.name, pending).look):
            kept = receive(client, call, self.folder, request)
            if self.stop.is_set() and kept.path and not kept.reason:
                kept = replace(kept, message=f"interrupted after {time.monotonic() - began:.1f} s; what came is kept")
            found[client] = kept
        return found


@dataclass
class _Interruption:
    """What happens to the calls under way when the user has enough."""

    stop: threading.Event
    say: Callable[[str], object]
    session_id: str
    pending: dict[ProfilerClient, Pending]
    since: float = 0.0

    def look(self) -> None:
        """End the sessions once the stop is set; let go of the calls that still do not answer."""
        if not self.stop.is_set():
            return
        if not self.since:
            self.since = time.monotonic()
            self.say("interrupted: ending the session and waiting for what came (again to give up)")
            for client in self.pending:
                with contextlib.suppress(CaptureError):
                    client.terminate(self.session_id)
        elif time.monotonic() - self.since > _LAST_REPLY_SECONDS:
            for call in self.pending.values():
                call.cancel()


def open_clients(stack: contextlib.ExitStack, request: Request) -> list[ProfilerClient]:
    """Return a client for each worker; the stack closes them."""
    return [
        stack.enter_context(ProfilerClient(address, tls_ca=request.tls_ca, max_reply_bytes=request.max_reply_bytes))
        for address in request.workers
    ]


def session_for(client: ProfilerClient, request: Request, folder: RunFolder, start_ns: int = 0) -> Session:
    """Return what to ask of one worker for a trace that goes to this folder."""
    return Session(
        request.options, max(1, round(request.duration_s * 1000)), folder.name, client.address.label,
        str(folder.path.absolute().parent), start_ns,
    )  # fmt: skip


def as_they_come(
    pending: dict[ProfilerClient, Pending], meanwhile: Callable[[], object] = lambda: None
) -> Iterator[tuple[ProfilerClient, Pending]]:
    """Iterate over calls when they are done, each taken out of `pending`; `meanwhile` is called between looks."""
    while pending:
        for client in [client for client, call in pending.items() if call.done()]:
            yield client, pending.pop(client)
        meanwhile()
        time.sleep(_POLL_SECONDS)


def receive(client: ProfilerClient, call: Pending, folder: RunFolder, request: Request) -> Captured:
    """Store the trace of one worker and judge it; what failed is an entry with a reason."""
    address = client.address
    try:
        reply = call.result()
        if reply.xspace is not None:
            path, contents = folder.save(address.label, reply.xspace)
        elif reply.empty_trace:
            raise CaptureError("idle", f"{address}: {IDLE}")
        else:
            path, contents = _fetch(address, folder)
    except CaptureError as error:
        return failed(client, error)
    except TraceFormatError as error:
        return failed(client, CaptureError("bad_reply", f"{address} sent no whole trace: {error}"))
    reason, message = judge(contents, request.options, here=address.is_here, port=address.port)
    return Captured(
        str(address), path, contents.size_bytes if path else None, contents.event_count, reason,
        f"{address}: {message}" if message else "", _number(call.metadata(OVERHEAD_KEY)),
    )  # fmt: skip


def failed(client: ProfilerClient, error: CaptureError) -> Captured:
    """Return the entry of a worker that gave nothing."""
    return Captured(str(client.address), reason=error.reason, message=str(error))


def _fetch(address: Address, folder: RunFolder) -> tuple[Path | None, Contents]:
    """Pick up the trace that an older server wrote itself, where its disk is within reach."""
    place = folder.path.absolute() / f"{address.label}{SUFFIX}"
    if not place.is_file():
        raise CaptureError(
            "written_remotely", f"{address} has an older TensorFlow, which writes the trace itself: it lies at {place} "
            "on that machine; copy it from there"
        )  # fmt: skip
    return folder.adopt(address.label, place)


def _number(text: str | None) -> float | None:
    """Return a finite number that a server sent as text."""
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
