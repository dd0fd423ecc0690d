"""Servers made by hand: bytes on a socket, or HTTP/2 by h2, for what no real server does."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from capture.double import response
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from tfperf.capture.address import Address
from tfperf.capture.client import ProfilerClient, Session
from tfperf.capture.options import TracerOptions
from tfperf.errors import CaptureError

Handler = Callable[[socket.socket], object]
Headers = list[tuple[str, str]]

IS_GRPC: Headers = [(":status", "200"), ("content-type", "application/grpc")]
IS_OK: Headers = [("grpc-status", "0")]
SESSION = Session(TracerOptions(), 1, "session", "host", "logs")
SECONDS = 20.0
"""What a server waits at most, so that a failed test ends."""


@contextmanager
def listening(handle: Handler, address: str = "127.0.0.1") -> Iterator[int]:
    """Serve each connection by this function, in a thread of its own; gives the port."""
    lines: list[socket.socket] = []

    def serve(line: socket.socket) -> None:
        with line, suppress(OSError, ProtocolError):
            handle(line)

    def accept() -> None:
        while True:
            try:
                line, _ = server.accept()
            except OSError:
                return
            line.settimeout(SECONDS)
            lines.append(line)
            threading.Thread(target=serve, args=(line,), daemon=True).start()

    with socket.create_server((address, 0)) as server:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield server.getsockname()[1]
        finally:
            for closing in (server, *lines):
                with suppress(OSError):
                    closing.shutdown(socket.SHUT_RDWR)
            accepting.join(SECONDS)


def silent(line: socket.socket) -> None:
    """Take everything and say nothing, until the other side closes."""
    while line.recv(1 << 16):
        pass


def saying(data: bytes) -> Handler:
    """Return a server that says this as soon as it hears something, and closes."""

    def handle(line: socket.socket) -> None:
        line.recv(1 << 16)
        line.sendall(data)

    return handle


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def message(data: bytes, *, flag: int = 0, length: int | None = None) -> bytes:
    """Return a gRPC message; `length` is what it says about itself, if that is not true."""
    return struct.pack(">BI", flag, len(data) if length is None else length) + data


WHOLE = message(response(b"trace"))
SETTINGS = frame(4, 0, 0)


class Peer:
    """The server's side of one call, after the request has come."""

    def __init__(self, line: socket.socket, window: int) -> None:
        self.line, self.events = line, list[Any]()
        self.h2 = H2Connection(
            H2Configuration(client_side=False, validate_outbound_headers=False, normalize_outbound_headers=False)
        )
        self.h2.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = window
        self.h2.local_settings.acknowledge()
        self.h2.initiate_connection()
        self.flush()
        self.request = {name.decode(): value.decode() for name, value in self.wait_for(RequestReceived).headers}
        self.wait_for(StreamEnded)
        self.body = b"".join(event.data for event in self.events if isinstance(event, DataReceived))

    def flush(self) -> None:
        self.line.sendall(self.h2.data_to_send())

    def wait_for(self, kind: type[Any]) -> Any:
        """Read until something of that kind comes."""
        while not (found := [event for event in self.events if isinstance(event, kind)]):
            self.read()
        return found[0]

    def read(self) -> None:
        data = self.line.recv(1 << 16)
        if not data:
            raise ConnectionResetError
        for event in self.h2.receive_data(data):
            self.events.append(event)
            if isinstance(event, DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length, 1)
        self.flush()

    def head(self, headers: Headers = IS_GRPC, *, end: bool = False) -> Peer:
        self.h2.send_headers(1, headers, end_stream=end)
        self.flush()
        return self

    def data(self, data: bytes, *, end: bool = False, most: int = 1 << 24, padding: int | None = None) -> Peer:
        """Send data in frames of `most` bytes, as the client has room."""
        rest, extra = memoryview(data), 0 if padding is None else padding + 1
        while rest:
            size = min(most, len(rest), self.h2.local_flow_control_window(1) - extra)
            size = min(size, self.h2.max_outbound_frame_size - extra)
            if size <= 0:
                self.read()
                continue
            self.h2.send_data(1, bytes(rest[:size]), end_stream=end and size == len(rest), pad_length=padding)
            self.flush()
            rest = rest[size:]
        return self

    def tail(self, headers: Headers = IS_OK) -> Peer:
        return self.head(headers, end=True)


def answering(answer: Callable[[Peer], object], *, window: int = 65535) -> Handler:
    """Return a server that gives this answer to the first request, and waits until the client closes."""

    def handle(line: socket.socket) -> None:
        answer(Peer(line, window))
        silent(line)

    return handle


def answer(*data: bytes, head: Headers = IS_GRPC, tail: Headers = IS_OK) -> Handler:
    """Return a server that answers with these headers, data and trailers."""

    def give(peer: Peer) -> None:
        peer.head(head)
        for piece in data:
            peer.data(piece)
        peer.tail(tail)

    return answering(give)


def profile(port: int, *, host: str = "localhost", seconds: float = SECONDS, **options: Any) -> bytes:
    """Ask a server for a trace; return it."""
    with ProfilerClient(Address(host, port), **options) as client:
        return bytes(client.profile(SESSION, seconds).result().xspace or b"")


def ask(handle: Handler, **options: Any) -> bytes:
    """Ask such a server for a trace; return it."""
    with listening(handle) as port:
        return profile(port, **options)


def refusal(handle: Handler, **options: Any) -> CaptureError:
    """Ask such a server for a trace in vain; return why."""
    with pytest.raises(CaptureError) as caught:
        ask(handle, **options)
    return caught.value


def connect(address: Address, *, seconds: float = SECONDS, **options: Any) -> CaptureError:
    """Try to reach a server in vain; return why."""
    with ProfilerClient(address, **options) as client, pytest.raises(CaptureError) as caught:
        client.connect(seconds)
    return caught.value
