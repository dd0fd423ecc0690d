"""One profiler server: the calls it takes, and what its refusals mean."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tfperf.capture.address import Address
from tfperf.capture.diagnosis import call_error
from tfperf.capture.http2 import CONNECT_SECONDS, CallError, Connection
from tfperf.capture.options import TracerOptions
from tfperf.capture.rpc import Call, Outcome, Response, ask
from tfperf.errors import CaptureError
from tfperf.wire.profiler_service import OPTIONS_VERSION, SERVICE, Reply, message_class, split_reply
from tfperf.wire.schema import LARGEST_MESSAGE

_SHORT_CALL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Session:
    """What is asked of a server: levels, times, and where a server that cannot send the trace shall write it."""

    options: TracerOptions
    duration_ms: int
    session_id: str
    host_name: str
    repository_root: str
    start_timestamp_ns: int = 0
    """When to start, on the server's clock; 0 is at once."""

    def request(self) -> Any:
        """Return the ProfileRequest."""
        levels = message_class("ProfileOptions")(
            version=OPTIONS_VERSION,
            include_dataset_ops=True,
            enable_hlo_proto=True,
            host_tracer_level=self.options.host_tracer_level,
            device_tracer_level=self.options.device_tracer_level,
            python_tracer_level=self.options.python_tracer_level,
            start_timestamp_ns=self.start_timestamp_ns,
            duration_ms=self.duration_ms,
            session_id=self.session_id,
        )
        return message_class("ProfileRequest")(
            duration_ms=self.duration_ms,
            opts=levels,
            repository_root=self.repository_root,
            session_id=self.session_id,
            host_name=self.host_name,
            emit_xspace=True,
        )


class Pending:
    """A call under way; `result` waits for what it gives."""

    def __init__(self, call: Call[Response], fail: Callable[[CallError], CaptureError]) -> None:
        self._call, self._fail = call, fail

    def done(self) -> bool:
        """Return whether `result` would not wait."""
        return self._call.done()

    def cancel(self) -> None:
        """Let go of the call."""
        self._call.cancel()

    def metadata(self, key: str) -> str | None:
        """Return what the server says beside its reply; waits and raises as `result` does."""
        return _settled(self._call, self._fail).metadata.get(key)

    def result(self) -> Reply:
        """Wait for the reply; raises CaptureError with the cause if there is none."""
        return split_reply(_settled(self._call, self._fail).message)


class ProfilerClient:
    """Calls to one profiler server, each over a connection of its own; `with` ends those under way.

    `tls_ca` is a file with the certificates to trust: the connections are then encrypted. Each call raises CaptureError
    with the cause.
    """

    def __init__(self, address: Address, *, tls_ca: Path | None = None, max_reply_bytes: int = LARGEST_MESSAGE) -> None:
        self.address = address
        self._tls_ca, self._most_bytes = tls_ca, min(max_reply_bytes, LARGEST_MESSAGE)
        self._calls: weakref.WeakSet[Call[Any]] = weakref.WeakSet()
        """Those under way are kept alive by their threads; those that are done, by whoever wants the reply."""
        if tls_ca is not None:
            _check_readable(tls_ca)

    def __enter__(self) -> ProfilerClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for call in list(self._calls):
            call.cancel()

    def connect(self, seconds: float = CONNECT_SECONDS) -> None:
        """Wait until the server greets as gRPC servers do; raises CaptureError if nobody does."""
        _settled(self._start(lambda connection: None, seconds), self._profile_error)

    def profile(self, session: Session, seconds: float) -> Pending:
        """Ask for a trace; the server takes the time of the session, and `seconds` at most."""
        return Pending(self._call("Profile", session.request(), seconds), self._profile_error)

    def terminate(self, session_id: str) -> None:
        """End a session before its time: the server then answers the call that began it."""
        self._short("Terminate", message_class("TerminateRequest")(session_id=session_id))

    def start_continuous(self, session: Session) -> None:
        """Record until `stop_continuous`."""
        self._short("StartContinuousProfiling", session.request())

    def snapshot(self, seconds: float) -> Pending:
        """Ask for what was recorded since the last snapshot."""
        return Pending(self._call("GetSnapshot", message_class("Empty")(), seconds), self._continuous_error)

    def stop_continuous(self) -> None:
        """End continuous profiling."""
        self._short("StopContinuousProfiling", message_class("Empty")())

    def _call(self, method: str, request: Any, seconds: float) -> Call[Response]:
        data, path = request.SerializeToString(), f"/{SERVICE}/{method}"
        return self._start(
            lambda connection: ask(connection, self.address.authority, path, data, seconds, self._most_bytes), seconds
        )

    def _start(self, work: Callable[[Connection], Outcome], seconds: float) -> Call[Outcome]:
        until = time.monotonic() + seconds
        call = Call(Connection(self.address, until, tls_ca=self._tls_ca), work, until)
        self._calls.add(call)
        return call

    def _short(self, method: str, request: Any) -> None:
        _settled(self._call(method, request, _SHORT_CALL_SECONDS), self._continuous_error)

    def _profile_error(self, error: CallError) -> CaptureError:
        return call_error(self.address, error)

    def _continuous_error(self, error: CallError) -> CaptureError:
        return call_error(self.address, error, continuous=True)


def _settled(call: Call[Outcome], fail: Callable[[CallError], CaptureError]) -> Outcome:
    """Wait for a call; raises CaptureError if it failed or was cancelled."""
    try:
        return call.result()
    except CallError as error:
        raise fail(error) from None
    except CancelledError:
        raise CaptureError("interrupted", "interrupted before the trace came") from None


def _check_readable(tls_ca: Path) -> None:
    try:
        tls_ca.open("rb").close()
    except OSError as error:
        raise CaptureError("tls", f"cannot read {tls_ca}: {error.strerror}; name a PEM file") from error
