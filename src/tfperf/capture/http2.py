"""One request over an HTTP/2 connection of its own, over TCP, TLS or a unix socket; every wait has an end.

h2 speaks the protocol. Here are the socket and the deadline, and each way to fail is an exception of its own.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfperf.capture.address import Address

CONNECT_SECONDS = 5.0
Headers = dict[str, str]

_WINDOW_BYTES = 16 << 20
"""What a server may send before it hears from us: much, so that it never waits."""
_FRAME_BYTES = 256 << 10
_READ_BYTES = 256 << 10
_FRAME_HEAD_BYTES = 9
_SETTINGS, _GOAWAY = 4, 7
_TLS_ALERT = b"\x15\x03"


class CallError(Exception):
    """A call that gave nothing; `cause` is what was raised where it broke."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class NotReachedError(CallError):
    """Nobody was reached at that address."""


class NoTlsError(CallError):
    """Somebody was reached, but no encrypted connection came about."""


class NoGreetingError(CallError):
    """Whoever was reached does not greet as HTTP/2 servers do."""


class BrokenError(CallError):
    """The connection was there, and failed before the answer was whole."""


class Connection:
    """A connection to one server; opened and closed by `with`. `until` is when to give up (of `time.monotonic`).

    `hang_up` is for another thread. All else raises CallError.
    """

    def __init__(self, address: Address, until: float, *, tls_ca: Path | None = None) -> None:
        self._address, self._until, self._tls_ca = address, until, tls_ca
        self._socket: socket.socket | None = None
        self._received = bytearray()
        self._hung_up = False
        # So that no socket is shut down that was closed and is somebody else's by now.
        self._lock = threading.Lock()

    def __enter__(self) -> Connection:
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is spoken."""
        return self._tls_ca is not None

    def hang_up(self) -> None:
        """End the connection, and whatever waits for it; nothing comes of it any more."""
        with self._lock:
            self._hung_up = True
            if self._socket is not None:
                with suppress(OSError):
                    # Not the method of an encrypted socket: that one forgets its keys while the other thread reads.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def exchange(self, headers: Sequence[tuple[str, str]], body: bytes) -> Iterator[Headers | bytes]:
        """Send a request; give the headers of the answer, its bytes as they come, and its trailers if it has any."""
        from h2.events import DataReceived, PushedStreamReceived, ResponseReceived, StreamEnded, StreamReset
        from h2.events import TrailersReceived as Trailers

        with _failing_as(BrokenError):
            stream = self._h2.get_next_available_stream_id()
            self._h2.send_headers(stream, headers)
            unsent = memoryview(body)
            while True:
                unsent = self._send_what_fits(stream, unsent)
                for event in self._next_events(stream):
                    if isinstance(event, DataReceived):
                        self._h2.acknowledge_received_data(event.flow_controlled_length, stream)
                        yield event.data
                    elif isinstance(event, ResponseReceived | Trailers):
                        yield _as_text(event.headers)
                    elif isinstance(event, StreamEnded):
                        return
                    elif isinstance(event, StreamReset | PushedStreamReceived):
                        raise ConnectionResetError("the server ended the call")

    def _open(self) -> None:
        with _failing_as(NotReachedError):
            self._connect()
        if self._tls_ca is not None:
            with _failing_as(NoTlsError):
                self._encrypt(self._tls_ca)
        with _failing_as(NoGreetingError):
            self._greet()

    def _close(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()

    def _connect(self) -> None:
        """Try the addresses of the name one after the other, each for its share of the time."""
        places, failures = _places(self._address), []
        until = min(self._until, time.monotonic() + CONNECT_SECONDS)
        for number, (family, place) in enumerate(places):
            try:
                self._use(socket.socket(family, socket.SOCK_STREAM))
                self._line.settimeout(_left(until) / (len(places) - number))
                self._line.connect(place)
            except OSError as error:
                self._close()
                failures.append(error)
            else:
                if not self._address.path:
                    with suppress(OSError):
                        # Else a request waits until the server has acknowledged the packet before it.
                        self._line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return
        # The likeliest address comes first, so its error says most.
        raise failures[0]

    def _encrypt(self, tls_ca: Path) -> None:
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(tls_ca)
        # The file says whom to trust, be it an authority or the server itself.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.set_alpn_protocols(["h2"])
        name = self._address.host.partition("%")[0] or "localhost"
        self._use(context.wrap_socket(self._line, server_hostname=name, do_handshake_on_connect=False))
        self._line.settimeout(_left(min(self._until, time.monotonic() + CONNECT_SECONDS)))
        self._line.do_handshake()  # type: ignore[attr-defined]

    def _greet(self) -> None:
        """Exchange settings: what no other kind of server does."""
        from h2.config import H2Configuration
        from h2.connection import H2Connection
        from h2.settings import SettingCodes

        self._h2 = H2Connection(H2Configuration(header_encoding=None))
        self._h2.initiate_connection()
        self._h2.update_settings(
            {
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW_BYTES,
                SettingCodes.MAX_FRAME_SIZE: _FRAME_BYTES,
            }
        )
        self._h2.increment_flow_control_window(_WINDOW_BYTES - self._h2.inbound_flow_control_window)
        self._flush()
        while len(self._received) < _FRAME_HEAD_BYTES:
            self._receive()
            if self._tls_ca is None and self._received.startswith(_TLS_ALERT):
                raise NoTlsError(ConnectionError("it speaks TLS, and no --tls-ca is given"))
        if self._received[3] != _SETTINGS:
            raise ConnectionError("no settings come first")
        self._h2.receive_data(self._next_frame())
        self._flush()

    def _send_what_fits(self, stream: int, unsent: memoryview) -> memoryview:
        """Send as much of the request as the server takes now; return the rest."""
        while unsent:
            size = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size, len(unsent))
            if size <= 0:
                break
            self._h2.send_data(stream, bytes(unsent[:size]), end_stream=size == len(unsent))
            unsent = unsent[size:]
        self._flush()
        return unsent

    def _next_events(self, stream: int) -> list[Any]:
        """Wait for a frame; return what it means. h2 answers what needs an answer."""
        frame = self._next_frame()
        if frame[3] == _GOAWAY:
            # To h2 this is the end. But a server that says it lets calls finish that it has taken.
            last = int.from_bytes(frame[_FRAME_HEAD_BYTES : _FRAME_HEAD_BYTES + 4], "big") & 0x7FFF_FFFF
            if last < stream:
                raise ConnectionAbortedError("the server takes no calls any more")
            return []
        return self._h2.receive_data(frame)

    def _next_frame(self) -> bytes:
        """Wait for a whole frame: one at a time, so that h2 never holds more."""
        size = _FRAME_HEAD_BYTES
        while len(self._received) < size or len(self._received) < (size := self._frame_size()):
            self._receive()
        frame = bytes(self._received[:size])
        del self._received[:size]
        return frame

    def _frame_size(self) -> int:
        from h2.exceptions import FrameTooLargeError

        size = int.from_bytes(self._received[:3], "big")
        if size > _FRAME_BYTES:
            raise FrameTooLargeError(f"a frame of {size} bytes")
        return _FRAME_HEAD_BYTES + size

    def _receive(self) -> None:
        # A socket that was shut down before it was connected does not know that.
        self._check_wanted()
        self._line.settimeout(_left(self._until))
        data = self._line.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the connection was closed")
        self._received += data

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._line.settimeout(_left(self._until))
            self._line.sendall(data)

    @property
    def _line(self) -> socket.socket:
        assert self._socket is not None, "opened"
        return self._socket

    def _use(self, line: socket.socket) -> None:
        with self._lock:
            self._socket = line
        self._check_wanted()

    def _check_wanted(self) -> None:
        if self._hung_up:
            raise ConnectionAbortedError("hung up")


def _places(address: Address) -> list[tuple[int, Any]]:
    """Return the family and the address of each socket that the name stands for."""
    if address.path:
        family = getattr(socket, "AF_UNIX", None)
        if family is None:
            raise OSError("there are no unix sockets on this system")
        return [(family, address.path)]
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except ValueError as error:
        # Names that cannot be: with an empty or too long part.
        raise socket.gaierror(socket.EAI_NONAME, str(error)) from error
    return [(family, place) for family, _, _, _, place in found]


def _left(until: float) -> float:
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("timed out")
    return seconds


def _as_text(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Return headers by name, the first of each."""
    found: Headers = {}
    for name, value in headers:
        found.setdefault(name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
    return found


@contextmanager
def _failing_as(kind: type[CallError]) -> Iterator[None]:
    """Raise what sockets and h2 raise as this kind of CallError."""
    from h2.exceptions import ProtocolError

    try:
        yield
    except (OSError, ProtocolError) as error:
        raise kind(error) from error
