"""A profiler server inside the job, for `tfperf capture`, with the protocol of TensorFlow's own server.

TensorFlow's server always listens on all interfaces. This one uses loopback by default, and writes no client's files.
"""

from __future__ import annotations

import atexit
import errno
import os
import shlex
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from tfperf.base.errors import CaptureError, TfperfError
from tfperf.base.process import resident_bytes
from tfperf.base.units import format_bytes
from tfperf.capture import local
from tfperf.capture.address import Address
from tfperf.capture.client import DaemonThreads
from tfperf.capture.framework import ready
from tfperf.capture.machine import USUAL_PORT, Machine, job_facts
from tfperf.capture.outcomes import TracerOptions
from tfperf.capture.session import Session, open_session
from tfperf.formats.wire.schema import LARGEST_MESSAGE, OVERHEAD_KEY, PROFILER, SERVICE, read_message

if TYPE_CHECKING:
    from tfperf.formats.wire.contents import Contents

_THREADS = 3
"""One may be busy with the session for long; the others answer Terminate and refuse more sessions."""
_MAX_CALLS = 64
_MAX_CONNECTIONS = 32
"""Each takes a file descriptor, and a job may be limited to 256 of them."""
_HANDSHAKE_MS, _IDLE_MS = 5_000, 600_000
"""Time limit of a silent connection until gRPC's handshake, and afterwards without a call."""
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_allowed_incoming_connections", _MAX_CONNECTIONS),
    ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
    ("grpc.max_connection_idle_ms", _IDLE_MS),
)
_EXPORT_SECONDS = 60.0
_SEND_SECONDS = 20.0


class Server:
    """A profiler server started by `serve`; the end of the `with` block, `stop` or the program stops it."""

    def __init__(self, host: str, port: int, server: Any, methods: ServerMethods, threads: Executor) -> None:
        self.host, self.port = host, port
        self._server, self._methods, self._threads = server, methods, threads
        self._process = os.getpid()
        # This also keeps a server without references alive.
        atexit.register(self.stop)

    @property
    def address(self) -> str:
        """The address of the server, as HOST:PORT."""
        return str(Address(self.host, self.port))

    @property
    def command(self) -> str:
        """The command line that profiles this job."""
        if self.host in ("127.0.0.1", "localhost"):  # The address that `--port` connects to.
            return f"tfperf capture --port {self.port}"
        host = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        return f"tfperf capture --worker {shlex.quote(str(Address(host, self.port)))}"

    def stop(self) -> None:
        """Stop listening. A running session ends now, and its data is still sent."""
        atexit.unregister(self.stop)
        if os.getpid() != self._process:
            return  # A forked child has the object, not the server.
        self._methods.finish(_EXPORT_SECONDS, _SEND_SECONDS)
        self._server.stop(None)
        self._threads.shutdown()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def serve(port: int = USUAL_PORT, *, host: str = "127.0.0.1") -> Server:
    """Start a profiler server in this job, and print to stderr the command that profiles it.

    Port 0 selects a free port. Only this machine can connect unless `host` is changed; any client can read the job. At
    most 32 connections are open; silent ones end. Each profile is of TensorFlow or JAX, whichever then computes. Raises
    CaptureError `port_taken` or `bad_address`.
    """
    _check_address(host, port)
    import grpc

    methods, threads = ServerMethods(), DaemonThreads(_THREADS, "tfperf-serve")
    server = grpc.server(
        cast(Any, threads),  # Declared as a ThreadPoolExecutor, but gRPC uses only `submit`.
        options=_OPTIONS,
        maximum_concurrent_rpcs=_MAX_CALLS,
    )
    make: Any = grpc.unary_unary_rpc_method_handler
    handlers = {name: make(method) for name, method in methods.by_name().items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    place = str(Address(host, port))
    try:
        bound = server.add_insecure_port(place)
    except RuntimeError as error:
        raise CaptureError("port_taken", f"cannot listen on {place}: {error}; choose another port") from error
    server.start()
    running = Server(host, bound, server, methods, threads)
    lines = [f"To profile this job: {running.command}"]
    if not Address(host, bound).is_here:
        warning = f"the profiler server listens on {running.address}; anyone who can connect to it can read this job."
        lines.append(f"Warning: {warning}")
    print(*lines, sep="\n", file=sys.stderr, flush=True)
    return running


def _check_address(host: str, port: int) -> None:
    """Try to listen, because gRPC does not report why it fails."""
    if not 0 <= port < 1 << 16:
        raise CaptureError("bad_address", f"port {port} is invalid; use 1 to 65535, or 0 for any free port")
    place = Address(host, port)
    try:
        _try_to_listen(host, port)
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None)
        if number == errno.EADDRINUSE:
            who = Machine().find_listener(port) or "another program or server"
            message = (
                f"{who} is using {place}; use another port, for example tfperf.serve(6010), or 0 for any free port"
            )
            raise CaptureError("port_taken", message) from error
        hint = "use a port above 1023" if number == errno.EACCES else "use an address of this machine"
        words = getattr(error, "strerror", None) or error
        raise CaptureError("bad_address", f"cannot listen on {place}: {words}; {hint}") from error


def _try_to_listen(host: str, port: int) -> None:
    """Listen on each address of the host for a moment; raises OSError unless one belongs to this machine."""
    if not host:
        raise OSError(errno.EADDRNOTAVAIL, "no address")
    failures: list[OSError] = []
    places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in places:
        try:
            with socket.socket(family, kind, protocol) as trial:
                if os.name == "posix":
                    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(address)
                trial.listen()
        except OSError as error:
            failures.append(error)
    taken = [error for error in failures if error.errno == errno.EADDRINUSE]
    if taken or len(failures) == len(places):
        raise (taken or failures)[0]


BUSY = "Another profiling session active."
"""TensorFlow's own text, which its clients recognize."""
_MAX_DELAY_S = 60.0
_LONGEST_S = 300.0
"""Maximum duration of a session, or of a recording without a snapshot request."""
_LOOK_S = 1.0
"""Interval of memory checks while the job is profiled."""


class _RefusalError(Exception):
    """A call that ends with a status; `code` is its name in gRPC."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


class _RequestedSession(Struct, frozen=True):
    """The parsed ProfileRequest."""

    options: TracerOptions
    session_id: str
    duration_s: float
    delay_s: float
    ended: threading.Event = field(default_factory=threading.Event)
    """Set by Terminate, and by the end of the call or the server."""

    @classmethod
    def parse(cls, data: bytes) -> _RequestedSession:
        """Parse a ProfileRequest; raises _RefusalError if it is invalid."""
        request = _read("ProfileRequest", data)
        if not request.emit_xspace:
            problem = "this server only returns traces and does not write files for clients"
            fix = "use `tfperf capture`, or a client that sets emit_xspace"
            raise _RefusalError("FAILED_PRECONDITION", f"{problem}: {fix}")
        opts = request.opts
        options = TracerOptions()  # Without a version, TensorFlow ignores the levels and uses its defaults.
        if opts.version:
            try:
                levels = (opts.host_tracer_level, opts.device_tracer_level, opts.python_tracer_level)
                advanced = {
                    entry.key: getattr(entry.value, kind)
                    for entry in opts.advanced_configuration
                    if (kind := entry.value.WhichOneof("value"))
                }
                options = TracerOptions(*levels, advanced)
            except TfperfError as error:
                raise _RefusalError("INVALID_ARGUMENT", str(error)) from error
        delay_s = max(0.0, (opts.start_timestamp_ns - time.time_ns()) / 1e9)
        if delay_s > _MAX_DELAY_S:
            ahead = f"the start time is {delay_s:.0f} s ahead of this machine's clock"
            problem = f"{ahead}; the limit is {_MAX_DELAY_S:.0f} s"
            raise _RefusalError("INVALID_ARGUMENT", f"{problem}; check that the clocks agree")
        duration_s = (opts.duration_ms or request.duration_ms) / 1000
        if duration_s > _LONGEST_S:
            problem = f"the duration is {duration_s:g} s; the limit is {_LONGEST_S:.0f} s"
            raise _RefusalError("INVALID_ARGUMENT", f"{problem}; profile several times instead")
        return cls(options, request.session_id or opts.session_id, duration_s, delay_s)


def _read(message: str, data: bytes) -> Any:
    try:
        return read_message(message, data)
    except ValueError as error:
        raise _RefusalError("INVALID_ARGUMENT", f"the request is not a {message}") from error


class _Continuous(Struct, frozen=True):
    """A recording without an end time."""

    options: TracerOptions
    session: Session
    ended: threading.Event = field(default_factory=threading.Event)
    """Set when it is no longer current."""


class ServerMethods:
    """The methods of the server, which share one session."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._current: _RequestedSession | None = None
        self._finished = False
        self._unanswered = 0
        self._continuous: _Continuous | None = None

    def by_name(self) -> dict[str, Callable[[bytes, Any], bytes]]:
        """Return the methods of the service by name."""
        methods = {
            "Profile": self._profile,
            "Terminate": self._terminate,
            "StartContinuousProfiling": self._start_continuous,
            "GetSnapshot": self._snapshot,
            "StopContinuousProfiling": self._stop_continuous,
        }
        return {name: partial(_answer, method) for name, method in methods.items()}

    def finish(self, export_seconds: float, send_seconds: float) -> None:
        """End the session, refuse new ones, and wait until the trace is taken and sent."""
        with self._lock:
            self._finished = True
            if self._current:
                self._current.ended.set()
            if self._continuous:
                self._take_continuous().session.drop()
            self._lock.wait_for(lambda: self._current is None, export_seconds)
            self._lock.wait_for(lambda: not self._unanswered, send_seconds)

    def _profile(self, data: bytes, context: Any) -> bytes:
        asked = _RequestedSession.parse(data)

        def over() -> None:
            """End the session: the client has its reply, or has disconnected."""
            asked.ended.set()
            with self._lock:
                self._unanswered -= 1
                self._lock.notify_all()

        with self._lock:
            self._refuse_unless_free()
            self._current = asked
            self._unanswered += 1
        try:
            if not context.add_callback(over):
                over()
            return _record(asked, context)
        finally:
            with self._lock:
                self._current = None
                self._lock.notify_all()

    def _terminate(self, data: bytes, context: Any) -> bytes:
        """End the session with this id, or without an id the one that has none: clients can end only their own."""
        session_id = _read("TerminateRequest", data).session_id
        current = self._current  # Without the lock, because clients use the answer as a sign of life.
        if current and session_id == current.session_id:
            current.ended.set()
        return b""  # A TerminateResponse has no fields.

    def _start_continuous(self, data: bytes, context: Any) -> bytes:
        asked = _RequestedSession.parse(data)
        with self._lock:
            self._refuse_unless_free()
            self._record_on(asked.options)
        return b""

    def _snapshot(self, data: bytes, context: Any) -> bytes:
        with self._lock:
            recording = self._take_continuous()
            with recording.session.export() as file:
                self._record_on(recording.options)
                contents, session = _counted(file), recording.session
                facts = replace(job_facts(), **session.facts)
                return _reply(file, contents, facts.to_bytes(session.record, contents.start_ns))

    def _stop_continuous(self, data: bytes, context: Any) -> bytes:
        with self._lock:
            self._take_continuous().session.drop()
        return b""

    def _refuse_unless_free(self) -> None:
        if self._finished:
            raise _RefusalError("UNAVAILABLE", "the server is being stopped")
        if self._current or self._continuous or local.is_running():
            raise _RefusalError("INTERNAL", BUSY)

    def _record_on(self, options: TracerOptions) -> None:
        """Start recording; without snapshot requests, end it before it fills the memory of the job."""
        recording = self._continuous = _Continuous(options, _start_session(options))

        def expire() -> None:
            _wait(recording.ended, _LONGEST_S)
            with self._lock:
                if recording is self._continuous:
                    self._take_continuous().session.drop()

        threading.Thread(target=expire, daemon=True).start()

    def _take_continuous(self) -> _Continuous:
        recording, self._continuous = self._continuous, None
        if recording is None:
            raise _RefusalError("NOT_FOUND", "No continuous profiling session found.")
        recording.ended.set()
        return recording


def _record(asked: _RequestedSession, context: Any) -> bytes:
    if asked.ended.wait(asked.delay_s):
        raise _RefusalError("CANCELLED", "the session was stopped before it started")
    if ready() is None:  # Nothing computes yet.
        _wait(asked.ended, asked.duration_s)
        return bytes(PROFILER.message_class("ProfileResponse")(empty_trace=True).SerializeToString())
    session = _start_session(asked.options)
    started_s = time.perf_counter()
    _wait(asked.ended, asked.duration_s)
    ended_s = time.perf_counter()
    if not context.is_active():
        session.drop()
        raise _RefusalError("CANCELLED", "the client disconnected")
    with session.export() as file:
        contents = _counted(file)
        overhead = local.step_times.overhead(started_s, ended_s, contents.longest_recording_s)
        facts = replace(job_facts(), **session.facts, **overhead)
        reply = _reply(file, contents, facts.to_bytes(session.record, contents.start_ns))
    if "overhead_percent" in overhead:
        context.set_trailing_metadata(((OVERHEAD_KEY, f"{overhead['overhead_percent']:.2f}"),))
    return reply


def _wait(ended: threading.Event, seconds: float) -> None:
    """Wait for the end of a session, at most `seconds`, or until the job grows by more than a reply can hold."""
    end_s, most_bytes = time.monotonic() + seconds, resident_bytes() + LARGEST_MESSAGE
    while (left_s := end_s - time.monotonic()) > 0 and not ended.wait(min(left_s, _LOOK_S)):
        if resident_bytes() > most_bytes:
            return


def _start_session(options: TracerOptions) -> Session:
    if ready() is None:
        raise CaptureError("idle", "the job has not started TensorFlow or JAX yet; try again later")
    try:
        scratch = Path(tempfile.mkdtemp(prefix="tfperf-"))
    except OSError as error:
        raise CaptureError("not_written", f"the job has no space for temporary files: {error}") from error
    return open_session(options, scratch)


def _counted(file: Path) -> Contents:
    from tfperf.formats.wire.contents import look_into

    return look_into(file)


def _reply(file: Path, contents: Contents, addition: bytes) -> bytes:
    if contents.size_bytes + len(addition) > LARGEST_MESSAGE - 100:
        problem = f"the trace has {format_bytes(contents.size_bytes)}, too large for a reply; use a shorter duration"
        raise _RefusalError("RESOURCE_EXHAUSTED", problem)
    reply = PROFILER.message_class("ProfileResponse")(
        empty_trace=not contents.event_count, xspace=file.read_bytes() + addition
    )
    return bytes(reply.SerializeToString())


def _answer(method: Callable[[bytes, Any], bytes], data: bytes, context: Any) -> bytes:
    """Run a method; errors become the status codes of TensorFlow's server."""
    import grpc

    try:
        return method(data, context)
    except (_RefusalError, TfperfError) as error:
        is_busy = isinstance(error, CaptureError) and error.reason == "busy"
        code = error.code if isinstance(error, _RefusalError) else "INTERNAL"
        context.abort(grpc.StatusCode[code], BUSY if is_busy else str(error))
        raise AssertionError("abort returned") from error
