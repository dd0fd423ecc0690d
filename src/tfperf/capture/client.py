"""One profiler server: the calls it takes, over one gRPC channel."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from tfperf.base.errors import CaptureError
from tfperf.capture.address import Address
from tfperf.capture.connection import CONNECT_SECONDS, bad_reply, call_error, check_greeting, late
from tfperf.capture.tracer_options import TracerOptions
from tfperf.formats.wire.profiler_service import OPTIONS_VERSION, OVERHEAD_KEY, SERVICE, message_class, read_message
from tfperf.formats.wire.schema import LARGEST_MESSAGE
from tfperf.formats.wire.trace_file import SUFFIX

_SHORT_CALL_SECONDS = 10.0


def profile_request(options: TracerOptions, duration_ms: int, place: Path, start_timestamp_ns: int = 0) -> Any:
    """Return a ProfileRequest.

    `place` is the trace's ROOT/SESSION/HOST.xplane.pb; ROOT matters only to servers that cannot send a trace.
    `start_timestamp_ns` is when to start, on the server's clock; 0 is at once.
    """
    session_id = place.parent.name
    levels = message_class("ProfileOptions")(
        version=OPTIONS_VERSION,
        include_dataset_ops=True,
        enable_hlo_proto=True,
        **asdict(options),
        start_timestamp_ns=start_timestamp_ns,
        duration_ms=duration_ms,
        session_id=session_id,
    )
    return message_class("ProfileRequest")(
        duration_ms=duration_ms,
        opts=levels,
        repository_root=str(place.parent.parent),
        session_id=session_id,
        host_name=place.name.removesuffix(SUFFIX),
        emit_xspace=True,
    )


class PendingReply:
    """A call in progress; `result` waits for its reply.

    The reply is read when `result` asks for it: until then, all but its first bytes wait in the server.
    """

    def __init__(self, call: Any, address: Address, fail: Callable[[Any], CaptureError]) -> None:
        self._call, self._address, self._fail = call, address, fail
        self._is_late = False
        self.is_answered = False
        """After `when_answered`: whether a reply comes, or the call has failed."""

    def when_answered(self, notify: Callable[[], object]) -> None:
        """Have `notify` called, from another thread, once a reply comes, or the call has failed."""

        def wait() -> None:
            self._call.initial_metadata()
            self.is_answered = True
            notify()

        threading.Thread(target=wait, name="tfperf-reply", daemon=True).start()

    def cancel(self) -> None:
        """Give the call up: `result` then raises CaptureError `interrupted`."""
        self._call.cancel()

    def expire(self) -> None:
        """Give the call up for it takes too long: `result` then raises CaptureError `timeout`."""
        self._is_late = True
        self._call.cancel()

    def overhead_percent(self) -> float | None:
        """Return by how much profiling made steps longer, if the server measured it; waits for the reply."""
        metadata = dict(self._call.trailing_metadata() or ())
        try:
            percent = float(metadata.get(OVERHEAD_KEY, "nan"))
        except ValueError:
            return None
        return percent if math.isfinite(percent) else None

    def result(self) -> Any:
        """Wait for the ProfileResponse; raises CaptureError with the cause if there is none."""
        import grpc

        try:
            reply = next(self._call, None)
            is_done = self._call.code() is grpc.StatusCode.OK
        except grpc.RpcError:
            is_done = False
        if not is_done:
            raise late(self._address) if self._is_late else self._fail(self._call) from None
        if reply is None:  # The status came without a message.
            raise bad_reply(self._address, "it is incomplete")
        if isinstance(reply, ValueError):
            raise bad_reply(self._address, str(reply))
        return reply


class ProfilerClient:
    """A channel to one profiler server; `with` closes it and ends the calls in progress.

    `tls_ca` is a file with the certificates to trust: the channel is then encrypted. A reply over `max_reply_bytes` is
    refused. Each call raises CaptureError with the cause.
    """

    def __init__(self, address: Address, *, tls_ca: Path | None = None, max_reply_bytes: int = LARGEST_MESSAGE) -> None:
        _silence_grpc()
        import grpc

        self.address = address
        self._tls_ca, self._max_reply_bytes = tls_ca, min(max_reply_bytes, LARGEST_MESSAGE)
        options = [
            ("grpc.max_receive_message_length", self._max_reply_bytes),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
            # Else a connection takes megabytes of a reply before anybody receives it.
            ("grpc.http2.bdp_probe", 0),
            # Of two channels to the same address, neither shares the other's connection, nor its pause after a failure.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if tls_ca is None:
            self._channel = grpc.insecure_channel(address.target, options)
            return
        try:
            credentials = grpc.ssl_channel_credentials(tls_ca.read_bytes())
        except OSError as error:
            raise CaptureError("tls", f"cannot read {tls_ca}: {error.strerror}; name a PEM file") from error
        self._channel = grpc.secure_channel(address.target, credentials, options)

    def __enter__(self) -> ProfilerClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, and the calls in progress; no other can be made."""
        self._channel.close()

    def connect(self, seconds: float = CONNECT_SECONDS) -> None:
        """Wait until a gRPC server answers at the address; raises CaptureError if none does."""
        check_greeting(self.address, seconds, tls_ca=self._tls_ca)

    def profile(self, request: Any, seconds: float) -> PendingReply:
        """Ask for a trace; the server gets `seconds` at most."""
        return self._call("Profile", request, seconds)

    def terminate(self, session_id: str) -> PendingReply:
        """End a session early: the server then answers the call that started it."""
        return self._call("Terminate", message_class("TerminateRequest")(session_id=session_id), _SHORT_CALL_SECONDS)

    def start_continuous(self, request: Any) -> None:
        """Record until `stop_continuous`."""
        self._call("StartContinuousProfiling", request, _SHORT_CALL_SECONDS, continuous=True).result()

    def snapshot(self, seconds: float) -> PendingReply:
        """Ask for what was recorded since the last snapshot."""
        return self._call("GetSnapshot", message_class("Empty")(), seconds, continuous=True)

    def stop_continuous(self) -> None:
        """End continuous profiling."""
        self._call("StopContinuousProfiling", message_class("Empty")(), _SHORT_CALL_SECONDS, continuous=True).result()

    def _call(self, method: str, request: Any, seconds: float, *, continuous: bool = False) -> PendingReply:
        # Of a call with one reply, gRPC would receive that at once, wanted or not.
        send: Any = self._channel.unary_stream(f"/{SERVICE}/{method}", type(request).SerializeToString, _parsed_reply)
        fail = partial(call_error, self.address, max_reply_bytes=self._max_reply_bytes, continuous=continuous)
        return PendingReply(send(request, timeout=seconds), self.address, fail)


def _silence_grpc() -> None:
    """Import gRPC without its own lines on stderr, unless the user asked for them; it reads the variable only now."""
    if "GRPC_VERBOSITY" not in os.environ:
        os.environ["GRPC_VERBOSITY"] = "NONE"
        import grpc  # noqa: F401

        del os.environ["GRPC_VERBOSITY"]


def _parsed_reply(data: bytes) -> Any:
    """Return the ProfileResponse, or the error: gRPC would replace one that is raised by words of its own."""
    try:
        return read_message("ProfileResponse", data)
    except ValueError as error:
        return error
