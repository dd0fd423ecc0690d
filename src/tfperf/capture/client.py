"""One profiler server: the calls it takes, and what its refusals mean."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tfperf.capture.address import Address
from tfperf.capture.diagnosis import connection_error, rpc_error
from tfperf.capture.options import TracerOptions
from tfperf.errors import CaptureError
from tfperf.wire.profiler_service import OPTIONS_VERSION, SERVICE, Reply, message_class, split_reply
from tfperf.wire.schema import LARGEST_MESSAGE

if TYPE_CHECKING:
    from tfperf.capture.diagnosis import RpcFailure

CONNECT_SECONDS = 5.0
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

    def __init__(self, call: Any, fail: Callable[[RpcFailure], CaptureError]) -> None:
        self._call, self._fail = call, fail

    def done(self) -> bool:
        """Return whether `result` would not wait."""
        return bool(self._call.done())

    def cancel(self) -> None:
        """Let go of the call."""
        self._call.cancel()

    def metadata(self, key: str) -> str | None:
        """Return what the server says beside its reply."""
        return next((str(value) for name, value in self._call.trailing_metadata() or () if name == key), None)

    def result(self) -> Reply:
        """Wait for the reply; raises CaptureError with the cause if there is none."""
        import grpc

        try:
            return split_reply(self._call.result())
        except grpc.RpcError as error:
            raise self._fail(error) from None
        except grpc.FutureCancelledError:
            raise CaptureError("interrupted", "interrupted before the trace came") from None


class ProfilerClient:
    """A connection to one profiler server; closed by `with`.

    `tls_ca` is a file with the certificates to trust: the connection is then encrypted. Each call raises CaptureError
    with the cause.
    """

    def __init__(self, address: Address, *, tls_ca: Path | None = None, max_reply_bytes: int = LARGEST_MESSAGE) -> None:
        import grpc

        self.address = address
        self._encrypted = tls_ca is not None
        options: list[tuple[str, int]] = [
            ("grpc.max_receive_message_length", min(max_reply_bytes, LARGEST_MESSAGE)),
            # A second connection to the same address must not share the fate of the first.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if address.is_here:
            options.append(("grpc.enable_http_proxy", 0))
        if tls_ca is None:
            self._channel = grpc.insecure_channel(address.target, options)
        else:
            try:
                trusted = tls_ca.read_bytes()
            except OSError as error:
                raise CaptureError("tls", f"cannot read {tls_ca}: {error.strerror}; name a PEM file") from error
            self._channel = grpc.secure_channel(address.target, grpc.ssl_channel_credentials(trusted), options)

    def __enter__(self) -> ProfilerClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def connect(self, seconds: float = CONNECT_SECONDS) -> None:
        """Wait until the server greets as gRPC servers do; raises CaptureError if nobody does."""
        import grpc

        settled, states = threading.Event(), []

        def watch(state: Any) -> None:
            states.append(state)
            if state in (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE):
                settled.set()

        self._channel.subscribe(watch, try_to_connect=True)
        try:
            settled.wait(seconds)
        finally:
            self._channel.unsubscribe(watch)
        if grpc.ChannelConnectivity.READY in states:
            return
        details = "" if not settled.is_set() else self._details()
        raise connection_error(self.address, details, encrypted=self._encrypted)

    def _details(self) -> str:
        """Ask gRPC in vain, to learn why it does not connect."""
        import grpc

        try:
            self._call("Terminate", message_class("TerminateRequest")(), 1.0).result()
        except grpc.RpcError as error:
            return str(error.details() or "")
        return ""

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

    def _call(self, method: str, request: Any, seconds: float) -> Any:
        send: Any = self._channel.unary_unary(f"/{SERVICE}/{method}")
        return send.future(request.SerializeToString(), timeout=seconds)

    def _short(self, method: str, request: Any) -> None:
        import grpc

        try:
            self._call(method, request, _SHORT_CALL_SECONDS).result()
        except grpc.RpcError as error:
            raise self._continuous_error(error) from None

    def _profile_error(self, error: RpcFailure) -> CaptureError:
        return rpc_error(self.address, error)

    def _continuous_error(self, error: RpcFailure) -> CaptureError:
        return rpc_error(self.address, error, continuous=True)
