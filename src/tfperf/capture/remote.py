"""Profiling running jobs from outside: all workers at once, or continuously; and the servers of this machine.

Every call gets a reply, fails with a reason, or times out. After Ctrl-C, sessions end and their data still arrives. A
slow transfer and a stuck server look the same, but a working server answers a second call, `Terminate`, at once.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tfperf.base.errors import CaptureError, TraceFormatError
from tfperf.capture.address import Address
from tfperf.capture.client import DaemonThreads, PendingReply, ProfilerClient, profile_request
from tfperf.capture.machine import Listener, Machine
from tfperf.capture.outcomes import ENOUGH_SECONDS, IDLE, Captured, TracerOptions, captured_trace
from tfperf.capture.run_folder import RunFolder, RunName, check_run_name
from tfperf.formats.wire.schema import LARGEST_MESSAGE
from tfperf.formats.wire.trace_file import SUFFIX

Say = Callable[[str], object]
_RETRIED = {"not_listening", "unreachable", "busy", "timeout", "died", "idle"}
_PAUSE_SECONDS = 1.0
_LEAD_SECONDS, _LEAD_SECONDS_EACH = 0.3, 0.004
"""Time between the request and the common start of several workers: a constant, and a term per worker."""
_SAME_SIGNAL_SECONDS = 0.5
_ENDING = [
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if name in signal.Signals.__members__
]
_SHORT_PROFILE_MS = 200
_SERVER_DELAY_SECONDS = 2.0


class CaptureRequest(Struct, frozen=True, kw_only=True):
    """Options of a capture and its workers. Durations are in seconds."""

    workers: Sequence[Address]
    duration_s: float = ENOUGH_SECONDS
    options: TracerOptions = field(default_factory=TracerOptions)
    delay_s: float = 0.0
    timeout_s: float = 60.0
    """Maximum time for a reply, in addition to delay and duration."""
    retries: int = 0
    wait_for_activity_s: float = 0.0
    """Maximum wait for activity of an idle job; 0 does not wait."""
    tls_ca: Path | None = None
    max_reply_bytes: int = LARGEST_MESSAGE
    run: str | None = None
    """Name of the run, which is joined if it exists; None: the time."""
    all_or_nothing: bool = False
    """Keep no trace unless all workers return one."""


def profile_workers(
    request: CaptureRequest, logdir: str | Path, say: Say = lambda _: None
) -> tuple[Path, list[Captured]]:
    """Profile all workers at the same moment, into one run folder.

    Return the folder and one result per worker, in their order, including failures. `say` gets a line for each wait.
    The first Ctrl-C ends the sessions and keeps their data. Raises CaptureError `not_written` if the logdir cannot be
    used, and TfperfError for an invalid run name, before any request.
    """
    with contextlib.ExitStack() as stack:
        folder = RunFolder(logdir, RunName(check_run_name(request.run) if request.run is not None else ""))
        stack.callback(folder.drop_if_empty)
        folder.make()
        stop = stack.enter_context(stop_on_signal())
        captured = _Profiling(request, folder, stop, say).run(open_clients(stack, request))
        if request.all_or_nothing and not all(result.path for result in captured):
            for number, result in enumerate(captured):
                if result.path is not None:
                    result.path.unlink(missing_ok=True)
                    captured[number] = Captured(worker=result.worker, reason="dropped")
        return folder.path, captured


class _Profiling(Struct):
    """One call of `profile_workers`: each round profiles all workers without a trace."""

    request: CaptureRequest
    folder: RunFolder
    stop: threading.Event
    say: Say

    def run(self, clients: list[ProfilerClient]) -> list[Captured]:
        results: dict[ProfilerClient, Captured] = {}
        for attempt in range(self.request.retries + 1):
            left = [client for client in clients if client not in results or results[client].reason in _RETRIED]
            if not left or self.stop.is_set():
                break
            if attempt:
                self.say(f"trying again: {', '.join(sorted({results[client].message for client in left}))}")
                if self.stop.wait(_PAUSE_SECONDS):
                    break
            ready, errors = on_each(left, self._prepare, self.stop)
            results.update({client: failed(client, error) for client, error in errors.items()})
            if ready and not self.stop.is_set():
                results.update(self._profile(ready))
        interrupted = CaptureError("interrupted", "interrupted before profiling started")
        return [results.get(client) or failed(client, interrupted) for client in clients]

    def _prepare(self, client: ProfilerClient) -> None:
        """Connect and, if requested, wait until the job is active; raises CaptureError."""
        client.connect()
        if not self.request.wait_for_activity_s:
            return
        until, is_said = time.monotonic() + self.request.wait_for_activity_s, False
        while not self.stop.is_set():
            short = profile_request_for(client, self.request, self.folder, duration_ms=_SHORT_PROFILE_MS)
            if not client.profile(short, self.request.timeout_s).result().empty_trace or time.monotonic() > until:
                return
            if not is_said:
                self.say(f"{client.address} is idle; waiting up to {self.request.wait_for_activity_s:g} s for activity")
                is_said = True
            self.stop.wait(_PAUSE_SECONDS / 2)

    def _profile(self, clients: list[ProfilerClient]) -> dict[ProfilerClient, Captured]:
        request = self.request
        # Wait here for a long delay; servers get only its last seconds.
        if self.stop.wait(max(0.0, request.delay_s - _SERVER_DELAY_SECONDS)):
            return {}
        together_s = _LEAD_SECONDS + _LEAD_SECONDS_EACH * len(clients) if len(clients) > 1 else 0.0
        lead = min(request.delay_s, _SERVER_DELAY_SECONDS) + together_s
        start_ns = time.time_ns() + int(lead * 1e9) if lead else 0
        limits = TimeLimits(lead + request.duration_s + request.timeout_s, request.timeout_s)
        seconds = limits.of_call(len(clients))
        pending = {
            client: client.profile(profile_request_for(client, request, self.folder, start_ns), seconds)
            for client in clients
        }
        results, start_s = {}, time.monotonic() + lead
        ending = Ending(pending, self.folder.name, self.stop, self.say)
        replies = Replies(pending, partial(receive, folder=self.folder, request=request), limits)
        for client, kept in replies.as_they_come(ending):
            recorded_s = max(ending.since_s - start_s, 0.0)
            if ending.since_s and recorded_s < request.duration_s and kept.path and not kept.reason:
                kept = replace(kept, message=f"interrupted after {recorded_s:.1f} s; the recorded events are kept")
            results[client] = kept
            if kept.path:
                client.close()  # A connection keeps buffers as large as the largest reply.
        return results


def open_clients(stack: contextlib.ExitStack, request: CaptureRequest) -> list[ProfilerClient]:
    """Return a client for each worker; the stack closes them."""
    limits: dict[str, Any] = {"tls_ca": request.tls_ca, "max_reply_bytes": request.max_reply_bytes}
    return [stack.enter_context(ProfilerClient(address, **limits)) for address in request.workers]


def profile_request_for(
    client: ProfilerClient, request: CaptureRequest, folder: RunFolder, start_ns: int = 0, *, duration_ms: int = 0
) -> Any:
    """Return the ProfileRequest for a worker's trace into this folder; the default duration is the requested one."""
    duration_ms = duration_ms or max(1, round(request.duration_s * 1000))
    return profile_request(request.options, duration_ms, trace_place(client, folder), start_ns)


def trace_place(client: ProfilerClient, folder: RunFolder) -> Path:
    """Return the path for a server that writes its own trace, if it can access this folder."""
    return folder.path.absolute() / f"{client.address.label}{SUFFIX}"


def receive(client: ProfilerClient, call: PendingReply, folder: RunFolder, request: CaptureRequest) -> Captured:
    """Store the trace of a worker and check its contents; a failure is a result with a reason."""
    address = client.address
    try:
        reply = call.result()
        if reply.xspace:
            path, contents = folder.save(address.label, reply.xspace)
        elif reply.empty_trace:
            raise CaptureError("idle", f"{address}: {IDLE}")
        else:  # An older server writes the trace itself, perhaps to a disk that is readable here.
            place = trace_place(client, folder)
            if not place.is_file():
                problem = f"{address} runs an older TensorFlow, which wrote the trace to {place} on its machine"
                raise CaptureError("written_remotely", f"{problem}; copy it from there")
            path, contents = folder.adopt(address.label, place)
    except CaptureError as error:
        return failed(client, error)
    except TraceFormatError as error:
        return failed(client, CaptureError("bad_reply", f"the trace of {address} is damaged: {error}"))
    captured = captured_trace(str(address), path, contents, request.options, is_here=address.is_here, port=address.port)
    message = f"{address}: {captured.message}" if captured.message else ""
    return replace(captured, message=message, overhead_percent=call.overhead_percent())


def failed(client: ProfilerClient, error: CaptureError) -> Captured:
    """Return the result of a worker without a trace."""
    return Captured(worker=str(client.address), reason=error.reason, message=str(error))


@contextlib.contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Set an event at the first SIGINT, SIGTERM, SIGHUP or SIGQUIT; later signals have their previous effect.

    Signals within half a second count as one, because `timeout` and shells send them to the process and to its group.
    Outside the main thread, which alone can handle signals, the event stays unset. Another thread sets the event,
    because a handler that interrupts `wait()` in this thread would wait forever for the event's lock.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    first_s: list[float] = []
    came: SimpleQueue[bool] = SimpleQueue()

    def set_when_it_comes() -> None:
        if came.get():
            stop.set()

    threading.Thread(target=set_when_it_comes, daemon=True).start()
    with contextlib.ExitStack() as earlier_handlers:
        earlier_handlers.callback(came.put, False)

        def note(number: int, frame: FrameType | None) -> None:
            now = time.monotonic()
            first_s.append(now)
            came.put(True)
            if now - first_s[0] > _SAME_SIGNAL_SECONDS:
                earlier_handlers.close()
                signal.raise_signal(number)

        for kind in _ENDING:
            earlier = signal.getsignal(kind)
            if earlier is signal.SIG_IGN and kind not in (signal.SIGINT, signal.SIGTERM):
                continue  # as `nohup` requires
            earlier_handlers.callback(signal.signal, kind, signal.SIG_DFL if earlier is None else earlier)
            signal.signal(kind, note)
        yield stop


class _Recording(Struct, frozen=True):
    """The traces of all workers over one interval, in their own run folder."""

    folder: RunFolder
    captured: tuple[Captured, ...]

    def delete(self) -> None:
        with contextlib.suppress(OSError):
            for result in self.captured:
                if result.path:
                    result.path.unlink()
        self.folder.drop_if_empty()


def record(
    request: CaptureRequest,
    logdir: str | Path,
    say: Say = lambda _: None,
    *,
    keep: int = 5,
    is_wanted: Callable[[Sequence[Captured]], bool] = lambda _: True,
) -> list[Captured]:
    """Profile continuously until Ctrl-C, or until no worker answers.

    Every `request.duration_s`, the new traces are fetched into a run folder; the last `keep` recordings for which
    `is_wanted` is true stay on disk. Return their results, the newest last, then those of failed workers.
    """
    RunFolder(logdir)  # Raises before any request if the logdir cannot be used.
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stop_on_signal())
        clients, kept = open_clients(stack, request), deque[_Recording]()
        lost = _start(clients, request, logdir, stop)
        running = [client for client in clients if client not in lost]
        if running:
            say(f"recording one trace per {request.duration_s:g} s and keeping the last {keep}; press Ctrl-C to stop")
        try:
            while running and not stop.is_set():
                stop.wait(request.duration_s)
                recording, failures = _fetch(running, request, logdir, stop)
                lost.update(failures)
                running = [client for client in running if client not in failures]
                if not recording.captured:
                    continue
                if not is_wanted(recording.captured):
                    recording.delete()
                    continue
                kept.append(recording)
                say(f"kept {recording.folder.path}")
                if len(kept) > keep:
                    kept.popleft().delete()
        finally:
            on_each_within(MUTE_SECONDS, running, ProfilerClient.stop_continuous)
        if running and not kept:
            say("no recording met the conditions, so none was kept")
        results = [result for recording in kept for result in recording.captured]
        return [*results, *(lost[client] for client in clients if client in lost)]


def _start(
    clients: Sequence[ProfilerClient], request: CaptureRequest, logdir: str | Path, stop: threading.Event
) -> dict[ProfilerClient, Captured]:
    def start(client: ProfilerClient) -> None:
        client.connect()
        client.start_continuous(profile_request_for(client, request, RunFolder(logdir)))

    _, errors = on_each(clients, start, stop)
    return {client: failed(client, error) for client, error in errors.items()}


def _fetch(
    clients: Sequence[ProfilerClient], request: CaptureRequest, logdir: str | Path, stop: threading.Event
) -> tuple[_Recording, dict[ProfilerClient, Captured]]:
    """Fetch the recordings since the last fetch; return them and the failures. An idle job is not a failure."""
    folder = RunFolder(logdir)
    limits = TimeLimits(request.timeout_s, request.timeout_s)
    pending = {client: client.snapshot(limits.of_call(len(clients))) for client in clients}
    replies = Replies(pending, partial(receive, folder=folder, request=request), limits)
    captured, failures = [], {}
    try:
        for client, result in replies.as_they_come(Ending(pending, folder.name, stop)):
            if result.path:
                captured.append(result)
            elif result.reason != "idle":
                failures[client] = result
    finally:
        folder.drop_if_empty()
    return _Recording(folder, tuple(captured)), failures


_CONNECT_SECONDS = 2.0
_NO_SESSION = "tfperf-looks-around"
"""A session id that no server has: ending it does nothing, and only profiler servers have this call."""


class ServerHere(Struct, frozen=True):
    """A profiler server on this machine, and its process."""

    address: Address
    listener: Listener

    def __str__(self) -> str:
        return f"--port {self.address.port} ({self.listener})"


def find_servers(machine: Machine | None = None) -> list[ServerHere]:
    """Return the profiler servers on this machine by port, for processes that this user may inspect."""
    machine = machine or Machine()
    places = {port: listener for port, listener in machine.listeners() if machine.has_profiler(listener.process)}
    with contextlib.ExitStack() as stack:
        clients = {stack.enter_context(ProfilerClient(Address("localhost", port))): port for port in sorted(places)}

        def ask(client: ProfilerClient) -> None:
            client.connect(_CONNECT_SECONDS)
            client.terminate(_NO_SESSION).result()

        answering, _ = on_each(list(clients), ask, threading.Event()) if clients else ([], {})
        ports = sorted(clients[client] for client in answering)
    return [ServerHere(Address("localhost", port), places[port]) for port in ports]


RECEIVERS = 4
"""Maximum number of replies in memory."""
_LAST_SECONDS = 2.0
"""Maximum time for a receiver to store its data after the others have stopped waiting."""
Receive = Callable[[ProfilerClient, PendingReply], Captured]


class TimeLimits(Struct, frozen=True):
    """Time limits for servers, in seconds."""

    answer_s: float
    """From the request until the start of the reply."""
    transfer_s: float
    """From the start of the reply to its end."""

    def of_call(self, count: int) -> float:
        """Return the time limit for the last of `count` calls, including the transfers before it."""
        return self.answer_s + self.transfer_s * (1 + count // RECEIVERS)


class Replies(Struct):
    """Receives the replies of calls, and ends late calls."""

    pending: dict[ProfilerClient, PendingReply]
    receive: Receive
    limits: TimeLimits
    _asked_s: float = field(default_factory=time.monotonic)
    _begun_s: dict[ProfilerClient, float] = field(default_factory=dict)
    """Start of each transfer, on the monotonic clock."""

    def as_they_come(self, meanwhile: Callable[[], object]) -> Iterator[tuple[ProfilerClient, Captured]]:
        """Yield outcomes in order of arrival; call `meanwhile` often."""
        # `SimpleQueue.get` waits forever if a signal handler takes longer than the timeout (Python 3.11).
        done: queue.Queue[tuple[ProfilerClient, concurrent.futures.Future[Captured]]] = queue.Queue()
        with DaemonThreads(min(RECEIVERS, len(self.pending)), "tfperf-receive") as receivers:

            def take(client: ProfilerClient, call: PendingReply) -> Captured:
                self._begun_s[client] = time.monotonic()
                return self.receive(client, call)

            def start(client: ProfilerClient, call: PendingReply) -> None:
                receiving = receivers.submit(take, client, call)
                receiving.add_done_callback(lambda future: done.put((client, future)))

            for client, call in self.pending.items():
                call.when_answered(partial(start, client, call))
            try:
                while self.pending:
                    with contextlib.suppress(queue.Empty):
                        client, received = done.get(timeout=_POLL_SECONDS)
                        del self.pending[client]
                        yield client, received.result()
                    now_s = time.monotonic()
                    for client, call in self.pending.items():
                        begun_s = self._begun_s.get(client)
                        is_late = not call.is_answered and now_s - self._asked_s > self.limits.answer_s
                        if is_late or (begun_s is not None and now_s - begun_s > self.limits.transfer_s):
                            call.expire()
                    meanwhile()
            finally:
                self._give_up(done)

    def _give_up(self, done: queue.Queue[tuple[ProfilerClient, concurrent.futures.Future[Captured]]]) -> None:
        """End the remaining calls, and let receivers finish their files, so that no partial file stays."""
        for call in self.pending.values():
            call.cancel()
        until_s = time.monotonic() + _LAST_SECONDS
        left = set(self._begun_s) & set(self.pending)
        while left and (wait_s := until_s - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                left.discard(done.get(timeout=wait_s)[0])


MUTE_SECONDS = 2.0
"""Maximum time for a server to answer `Terminate`."""
_LAST_REPLY_SECONDS = 30.0
"""Maximum time for this server to send its recording."""
_POLL_SECONDS = 0.02
_MAX_THREADS = 256


class Ending(Struct):
    """Ends the sessions of pending calls once `stop` is set; call it often while waiting for them."""

    pending: Mapping[ProfilerClient, PendingReply]
    session_id: str
    stop: threading.Event
    say: Callable[[str], object] = lambda _: None
    since_s: float = 0.0
    """Time at which the sessions were ended, on the monotonic clock; 0 before that."""
    _asked: list[PendingReply] = field(default_factory=list)
    """Held here, because gRPC cancels calls without references."""
    _awake: set[ProfilerClient] = field(default_factory=set)

    def __call__(self) -> None:
        """End the sessions at the first call after the stop; later, give up servers that do not answer."""
        if not self.stop.is_set():
            return
        if not self.since_s:
            self.since_s = time.monotonic()
            self.say("interrupted: stopping the session and fetching the trace (press Ctrl-C again to abort)")
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
    """Run `work` for all clients in parallel; return the successful ones, and errors (`interrupted` at the stop)."""
    done: list[ProfilerClient] = []
    # Daemon threads, so that an unresponsive host cannot block exit.
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
    """Run `work` for all clients in parallel, for at most `seconds`; ignore errors."""
    with DaemonThreads(max(min(len(clients), _MAX_THREADS), 1), "tfperf-client") as threads:
        concurrent.futures.wait([threads.submit(work, client) for client in clients], seconds)
