"""Servers made by hand: bytes on a socket, for what no real gRPC server does."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from capture.double import response

from tfperf.base.errors import CaptureError
from tfperf.capture.address import Address
from tfperf.capture.client import ProfilerClient, profile_request
from tfperf.capture.outcomes import TracerOptions

Handler = Callable[[socket.socket], object]
Headers = Sequence[tuple[str, str]]

IS_GRPC: Headers = [(":status", "200"), ("content-type", "application/grpc")]
IS_OK: Headers = [("grpc-status", "0")]
REQUEST = profile_request(TracerOptions(), 1, Path("logs/session/host.xplane.pb"))
CERTIFICATE, KEY = (Path(__file__).parent / f"localhost.{ending}" for ending in ("pem", "key"))
"""Of a server that is called localhost."""
SECONDS = 20.0
"""How long a server waits at most, so that a failed test ends."""


@contextmanager
def listening(handle: Handler, address: str = "127.0.0.1") -> Iterator[int]:
    """Serve each connection by this function, in a thread of its own; gives the port."""
    connections: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            handle(connection)

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            connection.settimeout(SECONDS)
            connections.append(connection)
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server((address, 0)) as server:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield server.getsockname()[1]
        finally:
            for closing in (server, *connections):
                with suppress(OSError):
                    closing.shutdown(socket.SHUT_RDWR)
            accepting.join(SECONDS)


def silent(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def greet(connection: socket.socket) -> None:
    """Do what a gRPC server does first, and then say nothing."""
    connection.sendall(SETTINGS)
    silent(connection)


def saying(data: bytes) -> Handler:
    def handle(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(data)

    return handle


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def message(data: bytes, *, flag: int = 0, length: int | None = None) -> bytes:
    """Return a gRPC message; `length` is what it says about itself, if that is not true."""
    return struct.pack(">BI", flag, len(data) if length is None else length) + data


WHOLE = message(response(b"trace"))
SETTINGS = frame(4, 0, 0)
END_STREAM, END_HEADERS = 1, 4


def headers(fields: Headers, *, end: bool = False) -> bytes:
    """Return a frame with headers or trailers, each name and value in full."""

    def text(value: str) -> bytes:
        data = value.encode()
        if len(data) < 127:
            return bytes([len(data)]) + data
        rest, length = len(data) - 127, b"\x7f"
        while rest > 127:
            rest, length = rest >> 7, length + bytes([rest & 127 | 128])
        return length + bytes([rest]) + data

    block = b"".join(b"\0" + text(name) + text(value) for name, value in fields)
    return frame(1, END_HEADERS | (END_STREAM if end else 0), 1, block)


def data(payload: bytes) -> bytes:
    return b"".join(frame(0, 0, 1, payload[start : start + 16384]) for start in range(0, len(payload), 16384))


def trailers(fields: Headers = IS_OK) -> bytes:
    return headers(fields, end=True)


def answering(*frames: bytes, close: bool = False) -> Handler:
    """Return a server that answers the first request with these frames, and then waits, or closes."""

    def handle(connection: socket.socket) -> None:
        connection.sendall(SETTINGS)
        received = b""
        while not _has_request(received):
            part = connection.recv(1 << 16)
            if not part:
                return
            received += part
        connection.sendall(b"".join(frames))
        if close:
            connection.shutdown(socket.SHUT_RDWR)
        silent(connection)

    return handle


def _has_request(received: bytes) -> bool:
    """Whether a whole request has come: a frame of the first stream that ends it."""
    start = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    while start + 9 <= len(received):
        kind, flags = received[start + 3], received[start + 4]
        stream = int.from_bytes(received[start + 5 : start + 9], "big")
        start += 9 + int.from_bytes(received[start : start + 3], "big")
        if stream and kind in (0, 1) and flags & END_STREAM and start <= len(received):
            return True
    return False


def answer(*payloads: bytes, head: Headers = IS_GRPC, tail: Headers = IS_OK) -> Handler:
    return answering(headers(head), *(data(payload) for payload in payloads), trailers(tail))


def here(port: int) -> Address:
    """Return the address of a server on this machine, by the name that its certificate has."""
    return Address("localhost", port)


def profile_at(address: Address, *, seconds: float = SECONDS, **options: Any) -> bytes:
    with ProfilerClient(address, **options) as client:
        client.connect(seconds)
        return bytes(client.profile(REQUEST, seconds).result().xspace)


def ask(handle: Handler, **options: Any) -> bytes:
    with listening(handle) as port:
        return profile_at(Address("127.0.0.1", port), **options)


def refusal(handle: Handler, **options: Any) -> CaptureError:
    with pytest.raises(CaptureError) as caught:
        ask(handle, **options)
    return caught.value
