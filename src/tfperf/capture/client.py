"""A client for one profiler server: calls over a gRPC channel, a check of the address, and causes of failed calls.

gRPC reports every failed connection with the same status, and a text that changes with its version. So `check_greeting`
finds the cause with a plain socket: it connects, exchanges HTTP/2 settings and disconnects.
"""

from __future__ import annotations

import concurrent.futures
import errno
import math
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from tfperf.base.errors import CaptureError
from tfperf.base.units import format_bytes
from tfperf.capture.address import Address
from tfperf.capture.outcomes import TracerOptions
from tfperf.formats.wire.schema import LARGEST_MESSAGE, OPTIONS_VERSION, OVERHEAD_KEY, PROFILER, SERVICE, read_message
from tfperf.formats.wire.trace_file import SUFFIX

CONNECT_SECONDS = 5.0
_SHORT_CALL_SECONDS = 10.0


def profile_request(options: TracerOptions, duration_ms: int, place: Path, start_timestamp_ns: int = 0) -> Any:
    """Return a ProfileRequest.

    `place` is the trace's ROOT/SESSION/HOST.xplane.pb; only servers that cannot send a trace use ROOT. The session
    starts at `start_timestamp_ns` on the server's clock, or at once if that is 0.
    """
    session_id = place.parent.name
    levels = PROFILER.message_class("ProfileOptions")(
        version=OPTIONS_VERSION,
        include_dataset_ops=True,
        enable_hlo_proto=True,
        **options.levels,
        start_timestamp_ns=start_timestamp_ns,
        duration_ms=duration_ms,
        session_id=session_id,
    )
    for name, value in options.advanced.items():
        kind = {bool: "bool_value", int: "int64_value", str: "string_value"}[type(value)]
        setattr(levels.advanced_configuration.add(key=name).value, kind, value)
    return PROFILER.message_class("ProfileRequest")(
        duration_ms=duration_ms,
        opts=levels,
        repository_root=str(place.parent.parent),
        session_id=session_id,
        host_name=place.name.removesuffix(SUFFIX),
        emit_xspace=True,
    )


class PendingReply:
    """A call in progress. The server keeps the reply, except for its first bytes, until `result` reads it."""

    def __init__(self, call: Any, address: Address, fail: Callable[[Any], CaptureError]) -> None:
        self._call, self._address, self._fail = call, address, fail
        self._is_late = False
        self.is_answered = False
        """After `when_answered`: whether the reply has started, or the call has failed."""

    def when_answered(self, notify: Callable[[], object]) -> None:
        """Call `notify` from another thread once the reply starts or the call fails."""

        def wait() -> None:
            self._call.initial_metadata()
            self.is_answered = True
            notify()

        threading.Thread(target=wait, name="tfperf-reply", daemon=True).start()

    def cancel(self) -> None:
        """Cancel the call; `result` then raises CaptureError `interrupted`."""
        self._call.cancel()

    def expire(self) -> None:
        """Cancel a late call; `result` then raises CaptureError `timeout`."""
        self._is_late = True
        self._call.cancel()

    def overhead_percent(self) -> float | None:
        """Wait for the reply; return the slowdown of steps by profiling, if the server measured it."""
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
            raise bad_reply(self._address, "incomplete reply")
        if isinstance(reply, ValueError):
            raise bad_reply(self._address, str(reply))
        return reply


class ProfilerClient:
    """A channel to one profiler server; `with` closes it and ends the calls in progress.

    `tls_ca`, a file of trusted certificates, encrypts it. Calls raise CaptureError, also above `max_reply_bytes`.
    """

    def __init__(self, address: Address, *, tls_ca: Path | None = None, max_reply_bytes: int = LARGEST_MESSAGE) -> None:
        # gRPC reads this variable on import. Without it, gRPC writes its own lines to stderr.
        is_set = "GRPC_VERBOSITY" in os.environ
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        import grpc

        if not is_set:
            del os.environ["GRPC_VERBOSITY"]
        self.address = address
        self._tls_ca, self._max_reply_bytes = tls_ca, min(max_reply_bytes, LARGEST_MESSAGE)
        options = [
            ("grpc.max_receive_message_length", self._max_reply_bytes),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
            # Otherwise a connection accepts megabytes of a reply before any code reads it.
            ("grpc.http2.bdp_probe", 0),
            # Channels to the same address must not share connections, or the pause after a failure.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if tls_ca is None:
            self._channel = grpc.insecure_channel(address.target, options)
            return
        try:
            credentials = grpc.ssl_channel_credentials(tls_ca.read_bytes())
        except OSError as error:
            raise CaptureError("tls", f"cannot read {tls_ca}: {error.strerror}; pass a PEM file") from error
        self._channel = grpc.secure_channel(address.target, credentials, options)

    def __enter__(self) -> ProfilerClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and end its calls; no call can be made afterwards."""
        self._channel.close()

    def connect(self, seconds: float = CONNECT_SECONDS) -> None:
        """Wait until a gRPC server answers at the address; raises CaptureError if no server does."""
        check_greeting(self.address, seconds, tls_ca=self._tls_ca)

    def profile(self, request: Any, seconds: float) -> PendingReply:
        """Request a trace; the server has at most `seconds`."""
        return self._call("Profile", request, seconds)

    def terminate(self, session_id: str) -> PendingReply:
        """End a session early; the server then answers the call that started it."""
        return self._call(
            "Terminate", PROFILER.message_class("TerminateRequest")(session_id=session_id), _SHORT_CALL_SECONDS
        )

    def start_continuous(self, request: Any) -> None:
        """Record until `stop_continuous`."""
        self._call("StartContinuousProfiling", request, _SHORT_CALL_SECONDS, continuous=True).result()

    def snapshot(self, seconds: float) -> PendingReply:
        """Request the data since the last snapshot."""
        return self._call("GetSnapshot", PROFILER.message_class("Empty")(), seconds, continuous=True)

    def stop_continuous(self) -> None:
        """End continuous profiling."""
        self._call(
            "StopContinuousProfiling", PROFILER.message_class("Empty")(), _SHORT_CALL_SECONDS, continuous=True
        ).result()

    def _call(self, method: str, request: Any, seconds: float, *, continuous: bool = False) -> PendingReply:
        def parsed(data: bytes) -> Any:
            try:
                return read_message("ProfileResponse", data)
            except ValueError as error:  # gRPC would replace the text of an error raised here.
                return error

        # For a unary call, gRPC would receive the whole reply at once.
        send: Any = self._channel.unary_stream(f"/{SERVICE}/{method}", type(request).SerializeToString, parsed)
        fail = partial(call_error, self.address, max_reply_bytes=self._max_reply_bytes, continuous=continuous)
        return PendingReply(send(request, timeout=seconds), self.address, fail)


SERVER_SNIPPET = (
    "start one in the job: tfperf.serve(), tf.profiler.experimental.server.start(PORT), or "
    "jax.profiler.start_server(PORT)"
)

# Servers return different statuses for these, and gRPC uses the same ones; only the text is specific.
_BUSY = r"(?i)another profil\w+ session|already_?exists|already (?:running|active)"
_NOT_GRPC = r"(?i)http2 header with status"
_BAD_REPLY = r"(?i)stream removed|no status received|rst_stream|compression bit|illegal header|http/2"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The first bytes from an HTTP/2 client, with an empty SETTINGS frame."""
_FRAME_HEAD_BYTES = 9
_SETTINGS, _SETTING_BYTES = 4, 6
_TLS_ALERT = b"\x15\x03"


def check_greeting(address: Address, seconds: float = CONNECT_SECONDS, *, tls_ca: Path | None = None) -> None:
    """Return if a gRPC server answers in time, else raise CaptureError with the cause; `tls_ca` is a PEM file."""
    deadline = time.monotonic() + seconds
    with _connect(address, deadline) as plain, _encrypted(plain, address, tls_ca, deadline) as connection:
        _exchange_settings(connection, address, deadline)


def _connect(address: Address, deadline: float) -> socket.socket:
    """Try the addresses of the host in turn, with an equal share of the time for each."""
    places, failures = _resolve(address, deadline), []
    for number, (family, place) in enumerate(places):
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.settimeout(_seconds_left(deadline) / (len(places) - number))
            connection.connect(place)
            return connection
        except OSError as error:
            connection.close()
            failures.append(error)
    # The first address is the most likely one, so its error is the most useful.
    first = failures[0]
    if isinstance(first, ConnectionRefusedError | FileNotFoundError) or first.errno == errno.EADDRNOTAVAIL:
        raise CaptureError("not_listening", f"no server listens on {address}; check the port, or {SERVER_SNIPPET}")
    raise _unreachable(address, first)


def _resolve(address: Address, deadline: float) -> list[tuple[int, Any]]:
    if address.path:
        if not hasattr(socket, "AF_UNIX"):
            raise CaptureError("unreachable", f"cannot reach {address}: this system does not support unix sockets")
        return [(socket.AF_UNIX, address.path)]
    # The system's resolver has no timeout.
    with DaemonThreads(1, "tfperf-resolve") as thread:
        lookup = thread.submit(socket.getaddrinfo, address.host, address.port, type=socket.SOCK_STREAM)
    try:
        return [(family, place) for family, *_, place in lookup.result(_seconds_left(deadline))]
    except concurrent.futures.TimeoutError:
        raise _unreachable(address, TimeoutError()) from None
    except (OSError, ValueError):  # ValueError: a part of the name is empty or too long.
        message = f"cannot resolve the host name in {address}; check the spelling, or use the IP address"
        raise CaptureError("unknown_host", message) from None


def _encrypted(connection: socket.socket, address: Address, tls_ca: Path | None, deadline: float) -> socket.socket:
    if tls_ca is None:
        return connection
    import ssl

    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(tls_ca)
        # As in gRPC, the file may contain an authority or the certificate of the server itself.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.set_alpn_protocols(["h2"])
        connection.settimeout(_seconds_left(deadline))
        return context.wrap_socket(connection, server_hostname=address.host.partition("%")[0] or "localhost")
    except TimeoutError:
        raise _silent(address, "check that it uses TLS") from None
    except OSError as error:
        raise _no_tls(address, _words(error)) from error


def _exchange_settings(connection: socket.socket, address: Address, deadline: float) -> None:
    """Send the client's settings and wait for the server's, which every HTTP/2 server sends first."""
    import ssl

    answer = b""
    try:
        connection.sendall(_PREFACE)
        while len(answer) < _FRAME_HEAD_BYTES and not answer.startswith(_TLS_ALERT):
            connection.settimeout(_seconds_left(deadline))
            data = connection.recv(_FRAME_HEAD_BYTES - len(answer))
            if not data:
                break
            answer += data
    except TimeoutError:
        raise _silent(
            address, "check that it is a profiler server, and that its process is running (not stopped)"
        ) from None
    except ssl.SSLError as error:  # A server that requires a client certificate fails only here.
        raise _no_tls(address, _words(error)) from error
    except OSError:
        pass
    if answer.startswith(_TLS_ALERT):
        raise _no_tls(address, "the server uses TLS, but --tls-ca is not set")
    is_settings = len(answer) == _FRAME_HEAD_BYTES and answer[3:4] == bytes([_SETTINGS])
    if not is_settings or int.from_bytes(answer[:3], "big") % _SETTING_BYTES:
        problem = f"the server on {address} is not a profiler server (it does not speak gRPC)"
        raise CaptureError("not_a_profiler", f"{problem}; {SERVER_SNIPPET}")


def _seconds_left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _unreachable(address: Address, error: OSError) -> CaptureError:
    timed_out = isinstance(error, TimeoutError)
    problem = f"{address} does not respond" if timed_out else f"cannot reach {address}: {_words(error)}"
    return CaptureError("unreachable", f"{problem}; check host, port and firewall")


def _silent(address: Address, hint: str) -> CaptureError:
    return CaptureError("timeout", f"{address} accepts connections but does not respond; {hint}")


def _no_tls(address: Address, words: str) -> CaptureError:
    return CaptureError("tls", f"TLS with {address} failed ({words}); check --tls-ca, and that the server uses TLS")


def _words(error: OSError) -> str:
    """Return the text of an exception without numbers and locations in OpenSSL's source."""
    text = getattr(error, "verify_message", "") or error.strerror or str(error)
    return one_line(re.sub(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$", "", text))


def call_error(address: Address, call: Any, max_reply_bytes: int, *, continuous: bool) -> CaptureError:
    """Return the error for a failed gRPC call; `continuous` marks calls of continuous profiling."""
    code, details = getattr(call.code(), "name", "UNKNOWN"), one_line(call.details() or "")
    words = f" ({details})" if details else ""
    if re.search(_BUSY, details) or code == "ALREADY_EXISTS":
        return CaptureError("busy", f"{address} is already being profiled; wait, or use --retries")
    if code == "UNIMPLEMENTED" and continuous:
        problem = "cannot profile continuously (older TensorFlow?); omit --continuous"
        return CaptureError("unsupported", f"the server at {address} {problem}")
    if code == "UNIMPLEMENTED" or re.search(_NOT_GRPC, details):
        problem = f"the server on {address} is not a profiler server{words}; {SERVER_SNIPPET}"
        return CaptureError("not_a_profiler", problem)
    if code == "RESOURCE_EXHAUSTED":
        problem = f"the trace of {address} is larger than the limit of {format_bytes(max_reply_bytes)}{words}"
        return CaptureError("too_large", f"{problem}; use a shorter --duration, or increase --max-size (at most 2 GiB)")
    if code == "DEADLINE_EXCEEDED":
        return late(address)
    if code == "UNAVAILABLE":
        problem = f"lost the connection to {address} during profiling{words}"
        return CaptureError("died", f"{problem}; check whether the job ended or crashed")
    if code == "CANCELLED":
        return CaptureError("interrupted", f"profiling {address} was interrupted")
    if code in ("INTERNAL", "UNKNOWN") and re.search(_BAD_REPLY, details):
        return bad_reply(address, details)
    return CaptureError("refused", f"{address} refused the request: {code}{words}")


def late(address: Address) -> CaptureError:
    """Return the error for a late reply."""
    fix = "increase --timeout, or use a shorter --duration"
    return CaptureError("timeout", f"{address} accepted the request but did not reply in time; {fix}")


def bad_reply(address: Address, words: str) -> CaptureError:
    """Return the error for a reply that is incomplete or damaged."""
    return CaptureError("bad_reply", f"{address} sent an invalid reply ({words}); try again")


def one_line(text: str, limit: int = 200) -> str:
    """Return external text on one line, truncated."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


Value = TypeVar("Value")


class DaemonThreads(Executor):
    """Daemon threads, all started at once, because Python 3.12 starts no thread after the main one has ended."""

    def __init__(self, count: int, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._count = count
        for _ in range(count):
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, fn: Callable[..., Value], /, *args: Any, **kwargs: Any) -> Future[Value]:
        """Run the call in the next free thread; the future has its outcome."""
        future: Future[Value] = Future()
        self._calls.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads after the submitted calls, without waiting for them even if `wait` is true."""
        for _ in range(self._count):
            self._calls.put(None)

    def _run(self) -> None:
        while item := self._calls.get():
            future, call = item
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
            del item, future, call  # They keep the call's objects alive.
