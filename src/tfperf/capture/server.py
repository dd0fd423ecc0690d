"""A profiler server inside the job, for `tfperf capture`: what TensorFlow's own server does, on loopback.

TensorFlow's server always listens on all interfaces. This one speaks the same protocol, and only ever sends a trace
in its reply: it writes no file for a client.
"""

from __future__ import annotations

import atexit
import errno
import os
import shlex
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar, cast

from tfperf.capture import local
from tfperf.capture.address import Address
from tfperf.capture.service import Sampler
from tfperf.errors import CaptureError
from tfperf.wire.profiler_service import SERVICE

_THREADS = 3
_MOST_CALLS = 64
_EXPORT_SECONDS = 60.0
_SEND_SECONDS = 20.0
_CONNECTED_AT_ONCE = ("127.0.0.1", "localhost")
"""What `tfperf capture --port` connects to."""
_ANY = ("0.0.0.0", "::")

Value = TypeVar("Value")


class Server:
    """A profiler server that `serve` started; it stops with the `with` block, by `stop`, or when the program ends."""

    def __init__(self, host: str, port: int, server: Any, sampler: Sampler, threads: Executor) -> None:
        self.host, self.port = host, port
        self._server, self._sampler, self._threads = server, sampler, threads
        self._process = os.getpid()
        # Also what keeps a server alive whose maker lets go of it.
        atexit.register(self.stop)

    @property
    def address(self) -> str:
        """Where it listens, as HOST:PORT."""
        return Address(self.host, self.port).target

    @property
    def command(self) -> str:
        """The command line that takes a profile of this job."""
        if self.host in _CONNECTED_AT_ONCE:
            return f"tfperf capture --port {self.port} --duration 2s"
        host = socket.gethostname() if self.host in _ANY else self.host
        return f"tfperf capture --worker {shlex.quote(Address(host, self.port).target)} --duration 2s"

    def stop(self) -> None:
        """Listen no more. A session under way ends now, and what it recorded is still sent."""
        atexit.unregister(self.stop)
        if os.getpid() != self._process:
            return  # A forked child has the object, not the server.
        self._sampler.finish(_EXPORT_SECONDS, _SEND_SECONDS)
        self._server.stop(None)
        self._threads.shutdown()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def serve(port: int = 0, *, host: str = "127.0.0.1") -> Server:
    """Start a profiler server in this job, and print to stderr the command that takes a profile from it.

    Port 0 is any free port. Only this machine can reach it unless `host` says otherwise: whoever reaches a profiler
    server can read the job. Raises CaptureError with reason `no_tensorflow`, `port_taken` or `bad_address`.
    """
    local.require_tensorflow()
    _check_address(host, port)
    import grpc

    sampler, threads = Sampler(), _Threads(_THREADS)
    server = grpc.server(
        cast(Any, threads),  # Declared as a ThreadPoolExecutor, of which gRPC uses `submit` alone.
        options=[("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)],
        maximum_concurrent_rpcs=_MOST_CALLS,
    )
    handlers: dict[str, Any] = {
        name: grpc.unary_unary_rpc_method_handler(method) for name, method in sampler.methods().items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    try:
        bound = server.add_insecure_port(Address(host, port).target)
    except RuntimeError as error:
        raise CaptureError("port_taken", f"cannot listen on {Address(host, port)}: {error}; try another") from error
    server.start()
    running = Server(host, bound, server, sampler, threads)
    _tell(running)
    return running


def _tell(server: Server) -> None:
    print(f"To profile this job: {server.command}", file=sys.stderr, flush=True)
    if not Address(server.host, server.port).is_here:
        print(
            f"Warning: the profiler server listens on {server.address}; whoever can reach it can read this job.",
            file=sys.stderr, flush=True,
        )  # fmt: skip


def _check_address(host: str, port: int) -> None:
    """Try to listen, to learn the cause if that fails: gRPC does not tell it."""
    if not 0 <= port < 1 << 16:
        raise CaptureError("bad_address", f"port {port} cannot be; ports go from 0 (any free one) to 65535")
    place = Address(host, port)
    try:
        _try_to_listen(host, port)
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None)
        if number == errno.EADDRINUSE:
            raise CaptureError(
                "port_taken", f"{place} is taken by another program or server; take another port, or 0 for a free one"
            ) from error
        hint = "take a port above 1023" if number == errno.EACCES else "name an address of this machine"
        words = getattr(error, "strerror", None) or error
        raise CaptureError("bad_address", f"cannot listen on {place}: {words}; {hint}") from error


def _try_to_listen(host: str, port: int) -> None:
    """Listen on each address of that name for a moment; it is enough if one of them exists here."""
    if not host:
        raise OSError(errno.EADDRNOTAVAIL, "no address")
    failures: list[OSError] = []
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as trial:
                if os.name == "posix":
                    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(address)
                trial.listen()
        except OSError as error:
            failures.append(error)
    taken = [error for error in failures if error.errno == errno.EADDRINUSE]
    if taken or len(failures) == len(found):
        raise (taken or failures)[0]


class _Threads(Executor):
    """A few threads for all calls. They are daemons: the end of the program waits for none, unlike for those of a pool.

    All begin at once, since Python 3.12 starts no thread any more when the main one is done. One may be busy for long,
    with the session; the others are there for Terminate and for those who are told to wait.
    """

    def __init__(self, count: int) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._count = count
        for _ in range(count):
            threading.Thread(target=self._run, name="tfperf-serve", daemon=True).start()

    def submit(self, fn: Callable[..., Value], /, *args: Any, **kwargs: Any) -> Future[Value]:
        """Run the call when a thread is free; its outcome is in the future."""
        future: Future[Value] = Future()
        self._calls.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads after the calls that are there."""
        for _ in range(self._count):
            self._calls.put(None)

    def _run(self) -> None:
        while item := self._calls.get():
            future, call = item
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
            del item, future, call  # They hold what the call held.
