"""A profiler server inside the job, for `tfperf capture`: what TensorFlow's own server does, on loopback.

TensorFlow's server always listens on all interfaces. This one speaks the same protocol, and only sends traces in
replies: it writes no file for a client.
"""

from __future__ import annotations

import atexit
import errno
import os
import shlex
import socket
import sys
from concurrent.futures import Executor
from typing import Any, cast

from tfperf.base.errors import CaptureError
from tfperf.capture.address import Address
from tfperf.capture.daemon_threads import DaemonThreads
from tfperf.capture.machine import USUAL_PORT, Machine
from tfperf.capture.server_methods import ServerMethods
from tfperf.capture.tensorflow_session import require_tensorflow
from tfperf.formats.wire.profiler_service import SERVICE

_THREADS = 3
"""One may be busy for long, with the session; the others answer Terminate and those who are to wait."""
_MAX_CALLS = 64
_MAX_CONNECTIONS = 32
"""Each takes a file descriptor. A job may be limited to 256 of them."""
_HANDSHAKE_MS, _IDLE_MS = 5_000, 600_000
"""How long a connection may say nothing before it is one of gRPC, and afterwards without a call."""
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
    """A profiler server that `serve` started; it stops with the `with` block, by `stop`, or when the program ends."""

    def __init__(self, host: str, port: int, server: Any, methods: ServerMethods, threads: Executor) -> None:
        self.host, self.port = host, port
        self._server, self._methods, self._threads = server, methods, threads
        self._process = os.getpid()
        # This also keeps a server alive that nobody holds.
        atexit.register(self.stop)

    @property
    def address(self) -> str:
        """Where it listens, as HOST:PORT."""
        return str(Address(self.host, self.port))

    @property
    def command(self) -> str:
        """The command line that takes a profile of this job."""
        if self.host in ("127.0.0.1", "localhost"):  # What `--port` connects to.
            return f"tfperf capture --port {self.port}"
        host = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        return f"tfperf capture --worker {shlex.quote(str(Address(host, self.port)))}"

    def stop(self) -> None:
        """Stop listening. A running session ends now, and what it recorded is still sent."""
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
    """Start a profiler server in this job, and print to stderr the command that takes a profile from it.

    Port 0 is any free port. Only this machine can reach it unless `host` says otherwise: whoever reaches a profiler
    server can read the job. It has 32 connections at most, and closes those that say nothing.
    Raises CaptureError with reason `no_tensorflow`, `port_taken` or `bad_address`.
    """
    require_tensorflow()
    _check_address(host, port)
    import grpc

    methods, threads = ServerMethods(), DaemonThreads(_THREADS, "tfperf-serve")
    server = grpc.server(
        cast(Any, threads),  # Declared as a ThreadPoolExecutor, of which gRPC uses `submit` alone.
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
        raise CaptureError("port_taken", f"cannot listen on {place}: {error}; use another port") from error
    server.start()
    running = Server(host, bound, server, methods, threads)
    lines = [f"To profile this job: {running.command}"]
    if not Address(host, bound).is_here:
        warning = f"the profiler server listens on {running.address}; everyone who can reach it can read this job."
        lines.append(f"Warning: {warning}")
    print(*lines, sep="\n", file=sys.stderr, flush=True)
    return running


def _check_address(host: str, port: int) -> None:
    """Try to listen, to learn the cause if that fails: gRPC does not tell it."""
    if not 0 <= port < 1 << 16:
        raise CaptureError("bad_address", f"port {port} is invalid; write 1 to 65535, or 0 for a free one")
    place = Address(host, port)
    try:
        _try_to_listen(host, port)
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None)
        if number == errno.EADDRINUSE:
            who = Machine().find_listener(port) or "another program or server"
            message = f"{who} uses {place}; use another port, as in tfperf.serve(6010), or 0 for a free one"
            raise CaptureError("port_taken", message) from error
        hint = "use a port above 1023" if number == errno.EACCES else "name an address of this machine"
        words = getattr(error, "strerror", None) or error
        raise CaptureError("bad_address", f"cannot listen on {place}: {words}; {hint}") from error


def _try_to_listen(host: str, port: int) -> None:
    """Listen on each address of the host for a moment; raises OSError unless one of them is of this machine."""
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
