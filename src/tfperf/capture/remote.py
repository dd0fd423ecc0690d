"""Profiling running jobs: ask all workers at once, keep the traces that come, and say why others do not."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tfperf.base.errors import CaptureError, TraceFormatError
from tfperf.capture.address import Address
from tfperf.capture.client import PendingReply, ProfilerClient, profile_request
from tfperf.capture.ending import Ending, on_each
from tfperf.capture.outcomes import Captured
from tfperf.capture.replies import Replies, TimeLimits
from tfperf.capture.run_agreement import check_run_name
from tfperf.capture.run_folder import RunFolder
from tfperf.capture.run_name import RunName
from tfperf.capture.trace_problems import IDLE, captured_trace
from tfperf.capture.tracer_options import ENOUGH_SECONDS, TracerOptions
from tfperf.formats.wire.schema import LARGEST_MESSAGE
from tfperf.formats.wire.trace_file import SUFFIX

Say = Callable[[str], object]

_RETRIED = {"not_listening", "unreachable", "busy", "timeout", "died", "idle"}
_PAUSE_SECONDS = 1.0
_LEAD_SECONDS, _LEAD_SECONDS_EACH = 0.3, 0.004
"""How long several workers get to receive the request before they start at the same moment; more of them get longer."""
_SAME_SIGNAL_SECONDS = 0.5
_ENDING = [
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if name in signal.Signals.__members__
]
_SHORT_PROFILE_MS = 200
_SERVER_DELAY_SECONDS = 2.0


class CaptureRequest(Struct, frozen=True, kw_only=True):
    """What to ask of which workers. Durations are in seconds."""

    workers: Sequence[Address]
    duration_s: float = ENOUGH_SECONDS
    options: TracerOptions = field(default_factory=TracerOptions)
    delay_s: float = 0.0
    timeout_s: float = 60.0
    """How long a server may take to answer, beyond delay and duration."""
    retries: int = 0
    wait_for_activity_s: float = 0.0
    """How long to wait until an idle job works; 0 is not at all."""
    tls_ca: Path | None = None
    max_reply_bytes: int = LARGEST_MESSAGE
    run: str | None = None
    """The name of the run; it is joined if it exists. None: the time."""
    all_or_nothing: bool = False
    """Keep no trace unless all workers give one."""


def profile_workers(
    request: CaptureRequest, logdir: str | Path, say: Say = lambda _: None
) -> tuple[Path, list[Captured]]:
    """Profile all workers at the same moment, into one run folder.

    Returns the folder and one result per worker, in their order, also for those that failed. `say` gets a line
    whenever there is something to wait for. The first Ctrl-C ends the sessions and keeps what was recorded. Raises
    CaptureError `not_written` if the logdir cannot be used, and TfperfError for a run name that no folder can have,
    before any worker is asked.
    """
    with contextlib.ExitStack() as stack:
        folder = RunFolder(logdir, RunName(check_run_name(request.run) if request.run is not None else ""))
        stack.callback(folder.drop_if_empty)
        folder.make()
        stop = stack.enter_context(stop_on_signal())
        captured = _Profiling(request, folder, stop, say).run(open_clients(stack, request))
        if request.all_or_nothing and not all(result.path for result in captured):
            captured = [_dropped(result) for result in captured]
        return folder.path, captured


def _dropped(captured: Captured) -> Captured:
    """Remove the trace of a worker; return the result that says so."""
    if captured.path is None:
        return captured
    captured.path.unlink(missing_ok=True)
    return Captured(worker=captured.worker, reason="dropped")


class _Profiling(Struct):
    """One call of `profile_workers`: rounds in which all workers without a trace are asked."""

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
            results.update(self._ask_once(left))
        interrupted = CaptureError("interrupted", "interrupted before profiling started")
        return [results.get(client) or failed(client, interrupted) for client in clients]

    def _ask_once(self, clients: list[ProfilerClient]) -> dict[ProfilerClient, Captured]:
        """Connect to all clients and ask those that answer; return a result for each, unless it was interrupted."""
        ready, errors = on_each(clients, self._prepare, self.stop)
        results = {client: failed(client, error) for client, error in errors.items()}
        results.update(self._profile(ready) if ready and not self.stop.is_set() else {})
        return results

    def _prepare(self, client: ProfilerClient) -> None:
        """Connect and, if the request says so, wait until the job does something; raises CaptureError."""
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
        """Start all sessions, end them early if interrupted, and keep each trace when it comes."""
        request = self.request
        # A long delay passes here; servers see only its last seconds.
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
                kept = replace(kept, message=f"interrupted after {recorded_s:.1f} s; what was recorded is kept")
            results[client] = kept
            if kept.path:
                client.close()  # A connection keeps buffers as large as what came through it.
        return results


def open_clients(stack: contextlib.ExitStack, request: CaptureRequest) -> list[ProfilerClient]:
    """Return a client for each worker; the stack closes them."""
    limits: dict[str, Any] = {"tls_ca": request.tls_ca, "max_reply_bytes": request.max_reply_bytes}
    return [stack.enter_context(ProfilerClient(address, **limits)) for address in request.workers]


def profile_request_for(
    client: ProfilerClient, request: CaptureRequest, folder: RunFolder, start_ns: int = 0, *, duration_ms: int = 0
) -> Any:
    """Return the ProfileRequest for a trace of one worker that goes to this folder; by default as long as asked for."""
    duration_ms = duration_ms or max(1, round(request.duration_s * 1000))
    return profile_request(request.options, duration_ms, trace_place(client, folder), start_ns)


def trace_place(client: ProfilerClient, folder: RunFolder) -> Path:
    """Return where a server that cannot send its trace writes it, if it can write to this folder."""
    return folder.path.absolute() / f"{client.address.label}{SUFFIX}"


def receive(client: ProfilerClient, call: PendingReply, folder: RunFolder, request: CaptureRequest) -> Captured:
    """Store the trace of one worker and check what it holds; a failure is a result with a reason."""
    address = client.address
    try:
        reply = call.result()
        if reply.xspace:
            path, contents = folder.save(address.label, reply.xspace)
        elif reply.empty_trace:
            raise CaptureError("idle", f"{address}: {IDLE}")
        else:  # An older server writes the trace itself, perhaps to a disk that can be read here.
            place = trace_place(client, folder)
            if not place.is_file():
                problem = f"the older TensorFlow of {address} writes the trace itself, to {place} on its machine"
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
    """Return the result of a worker that gave nothing."""
    return Captured(worker=str(client.address), reason=error.reason, message=str(error))


@contextlib.contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Set an event at the first SIGINT, SIGTERM, SIGHUP or SIGQUIT; a later one acts as it did before.

    Signals within half a second count as one: `timeout` and shells send them to the process and to its group. Outside
    the main thread, which alone can handle signals, the event stays unset.

    A thread sets the event: a handler that did would wait for ever where it interrupts this thread in `wait()`, which
    holds the lock of the event.
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
                continue  # as `nohup` asks
            earlier_handlers.callback(signal.signal, kind, signal.SIG_DFL if earlier is None else earlier)
            signal.signal(kind, note)
        yield stop
