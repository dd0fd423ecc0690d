"""A gRPC call with one request and one reply, in a thread of its own. A reply is held once, whatever its size.

gRPC is HTTP/2 with five bytes before each message (is it compressed, how long is it) and a status in the trailers:
https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Generic, TypeVar

from tfperf import __version__
from tfperf.capture.http2 import CallError, Connection, Headers, NotReachedError

Outcome = TypeVar("Outcome")

_HEAD_BYTES = 5
_MOST_TIMEOUT = 99_999_999
"""gRPC writes a timeout with eight digits at most."""
_PATIENCE_SECONDS = 1.0
"""How much later than a call itself its waiter gives up: looking up a name knows no deadline."""


class Status(IntEnum):
    """What a server says about a call."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_STATUSES = {str(status.value): status for status in Status}
"""By the text in which a server writes them."""


class RefusedError(CallError):
    """A server answered with a status that is not OK, or a reply is not wanted."""

    def __init__(self, status: Status, details: str) -> None:
        super().__init__(ValueError(details))
        self.status, self.details = status, details


class NotGrpcError(CallError):
    """An HTTP/2 server answered that does not speak gRPC."""


class BadReplyError(CallError):
    """A gRPC server sent what is no whole reply."""


@dataclass(frozen=True, slots=True)
class Response:
    """The bytes of a reply, and what the server says beside it."""

    message: memoryview
    metadata: Mapping[str, str]


class Call(Generic[Outcome]):
    """Work on a connection that is opened for it, in a thread that nobody has to wait for."""

    def __init__(self, connection: Connection, work: Callable[[Connection], Outcome], until: float) -> None:
        self._connection, self._work, self._until = connection, work, until + _PATIENCE_SECONDS
        self._future: concurrent.futures.Future[Outcome] = concurrent.futures.Future()
        threading.Thread(target=self._run, name="tfperf-call", daemon=True).start()

    def _run(self) -> None:
        try:
            with self._connection as connection:
                outcome = self._work(connection)
        except BaseException as error:
            settle = partial(self._future.set_exception, error)
        else:
            settle = partial(self._future.set_result, outcome)
        with suppress(concurrent.futures.InvalidStateError):  # Cancelled meanwhile.
            settle()

    def done(self) -> bool:
        """Return whether `result` would not wait."""
        return self._future.done() or time.monotonic() > self._until

    def cancel(self) -> None:
        """End the call if it is under way: `result` then raises `concurrent.futures.CancelledError`."""
        self._future.cancel()
        self._connection.hang_up()

    def result(self) -> Outcome:
        """Wait for what the work gives; raises CallError if it fails."""
        try:
            return self._future.result(max(0.0, self._until - time.monotonic()))
        except concurrent.futures.TimeoutError as error:
            self.cancel()
            raise NotReachedError(TimeoutError("timed out")) from error


def ask(
    connection: Connection, authority: str, method: str, request: bytes, seconds: float, most_bytes: int
) -> Response:
    """Make a call; raises CallError if no whole reply of at most that size comes."""
    headers = [
        (":method", "POST"),
        (":scheme", "https" if connection.is_encrypted else "http"),
        (":path", method),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("grpc-timeout", _timeout(seconds)),
        ("user-agent", f"tfperf/{__version__}"),
    ]
    message = _Message(most_bytes)
    said: Headers | None = None
    for part in connection.exchange(headers, _head(request) + request):
        if isinstance(part, bytes):
            message.add(part)
        else:
            if said is None:
                _check_is_grpc(part)
            said = part
        if said is None:
            raise NotGrpcError(ValueError("no headers"))
    _check_status(said or {})
    return Response(message.whole(), said or {})


class _Message:
    """The one message of a reply, as it grows."""

    def __init__(self, most_bytes: int) -> None:
        self._received, self._most_bytes = bytearray(), most_bytes

    def add(self, data: bytes) -> None:
        """Take the next bytes. Room is made for what came, not for what a server says will come."""
        try:
            self._received += data
        except MemoryError:
            raise RefusedError(Status.RESOURCE_EXHAUSTED, f"no memory for {self._length} bytes") from None
        if len(self._received) < _HEAD_BYTES:
            return
        if self._received[0]:
            raise BadReplyError(ValueError("compressed, which was not asked for"))
        if self._length > self._most_bytes:
            raise RefusedError(Status.RESOURCE_EXHAUSTED, f"{self._length} bytes")
        if len(self._received) > _HEAD_BYTES + self._length:
            raise BadReplyError(ValueError("more than one message"))

    def whole(self) -> memoryview:
        """Return the message without the bytes before it."""
        if len(self._received) < _HEAD_BYTES:
            raise BadReplyError(ValueError("no message"))
        missing = _HEAD_BYTES + self._length - len(self._received)
        if missing:
            raise BadReplyError(ValueError(f"cut short: {missing} of {self._length} bytes are missing"))
        return memoryview(self._received)[_HEAD_BYTES:]

    @property
    def _length(self) -> int:
        return int.from_bytes(self._received[1:_HEAD_BYTES], "big")


def _head(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(_HEAD_BYTES - 1, "big")


def _timeout(seconds: float) -> str:
    milliseconds = max(1, round(seconds * 1000))
    return f"{milliseconds}m" if milliseconds <= _MOST_TIMEOUT else f"{min(milliseconds // 1000, _MOST_TIMEOUT)}S"


def _check_is_grpc(headers: Headers) -> None:
    kind = headers.get("content-type", "").partition(";")[0].partition("+")[0].strip().lower()
    if "grpc-status" not in headers and (headers.get(":status") != "200" or kind != "application/grpc"):
        raise NotGrpcError(ValueError(f"HTTP status {headers.get(':status')}, {kind or 'no content type'}"))


def _check_status(trailers: Headers) -> None:
    """Raise what the server said at the end, unless it is OK."""
    from urllib.parse import unquote

    status = _STATUSES.get(trailers.get("grpc-status", ""))
    if status is None:
        raise BadReplyError(ValueError("no status at the end"))
    if status != Status.OK:
        raise RefusedError(status, unquote(trailers.get("grpc-message", ""), errors="replace"))
