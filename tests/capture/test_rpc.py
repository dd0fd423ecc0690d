"""Calls and their answers: of a real gRPC server, and of servers made by hand that break one rule each."""

from __future__ import annotations

import socket
import tracemalloc
from collections.abc import Callable
from typing import Any

import grpc
import h2.events
import pytest
from capture.double import response, serving
from capture.handmade import (
    IS_GRPC,
    SECONDS,
    SESSION,
    SETTINGS,
    WHOLE,
    Headers,
    Peer,
    answer,
    answering,
    ask,
    frame,
    message,
    refusal,
    saying,
    silent,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tfperf import __version__
from tfperf.capture.address import Address, parse_address
from tfperf.capture.client import ProfilerClient
from tfperf.capture.rpc import _timeout
from tfperf.errors import CaptureError
from tfperf.wire.profiler_service import message_class
from tfperf.wire.schema import LARGEST_MESSAGE

# --- what goes well ---


def test_the_reply_of_a_grpc_server_and_what_it_says_beside_it() -> None:
    def reply(request: Any, context: grpc.ServicerContext) -> bytes:
        context.set_trailing_metadata((("tfperf-overhead-percent", "3"), ("tfperf-overhead-percent", "4")))
        return response(b"trace")

    with serving({"Profile": reply}) as port, ProfilerClient(Address("localhost", port)) as client:
        client.connect()
        pending = client.profile(SESSION, SECONDS)
        found = pending.result()
        assert pending.done()
    assert (bytes(found.xspace or b""), found.empty_trace) == (b"trace", False)
    assert (pending.metadata("tfperf-overhead-percent"), pending.metadata("other")) == ("3", None)


def test_the_request() -> None:
    seen: list[Peer] = []

    def give(peer: Peer) -> None:
        seen.append(peer)
        peer.head().data(WHOLE).tail()

    ask(answering(give), seconds=12.5)
    (peer,) = seen
    authority = peer.request.pop(":authority")
    assert authority.startswith("localhost:")
    assert peer.request == {
        ":method": "POST", ":scheme": "http", ":path": "/tensorflow.ProfilerService/Profile", "te": "trailers",
        "content-type": "application/grpc", "grpc-timeout": "12500m", "user-agent": f"tfperf/{__version__}",
    }  # fmt: skip
    assert peer.body[:5] == message(peer.body[5:])[:5]
    assert message_class("ProfileRequest").FromString(peer.body[5:]).session_id == "session"


@pytest.mark.parametrize(("seconds", "text"), [(0.0001, "1m"), (60, "60000m"), (1e6, "1000000S"), (1e12, "99999999S")])
def test_a_timeout_has_eight_digits_at_most(seconds: float, text: str) -> None:
    assert _timeout(seconds) == text


@pytest.mark.parametrize(
    ("text", "authority"),
    [("a.b:1", "a.b:1"), ("[::1]:2", "[::1]:2"), ("[fe80::1%eth0]:3", "[fe80::1]:3"), ("unix:/run/s", "localhost")],
)
def test_how_a_request_calls_the_server(text: str, authority: str) -> None:
    assert parse_address(text).authority == authority


def test_a_large_reply_in_small_frames() -> None:
    large = bytes(range(256)) * 80_000
    found = ask(answering(lambda peer: peer.head().data(message(response(large)), most=10_000).tail()))
    assert found == large


@given(
    data=st.binary(max_size=300),
    most=st.integers(1, 320),
    padding=st.one_of(st.none(), st.integers(0, 255)),
)
@settings(max_examples=50, deadline=None)
def test_a_reply_may_come_in_any_pieces(data: bytes, most: int, padding: int | None) -> None:
    whole = message(response(data))
    found = ask(answering(lambda peer: peer.head().data(whole, most=most, padding=padding).tail()))
    assert found == data


def test_a_server_that_takes_a_byte_at_a_time() -> None:
    found = ask(answering(lambda peer: peer.head().data(WHOLE).tail(), window=1))
    assert found == b"trace"


def test_a_server_that_asks_whether_we_are_there() -> None:
    def give(peer: Peer) -> None:
        peer.h2.ping(b"--ping--")
        peer.flush()
        peer.wait_for(h2.events.PingAckReceived)
        peer.head().data(WHOLE).tail()

    assert ask(answering(give)) == b"trace"


def test_a_server_that_announces_its_end_and_answers_first() -> None:
    def give(peer: Peer) -> None:
        peer.line.sendall(frame(7, 0, 0, b"\x7f\xff\xff\xff" + bytes(4)))
        peer.head().data(WHOLE[:7])
        peer.line.sendall(frame(7, 0, 0, b"\0\0\0\1" + bytes(4)))
        peer.data(WHOLE[7:]).tail()

    assert ask(answering(give)) == b"trace"


def test_headers_that_precede_the_answer() -> None:
    assert ask(answering(lambda peer: peer.head([(":status", "103")]).head().data(WHOLE).tail())) == b"trace"


# --- answers that are no replies ---


@pytest.mark.parametrize(
    ("trailers", "reason", "words"),
    [
        ([("grpc-status", "7"), ("grpc-message", "not%20for%20you%2C %E2%82%AC %zz%")], "refused",
         "(PERMISSION_DENIED: not for you, € %zz%)"),
        ([("grpc-status", "3"), ("grpc-message", "%FF" + "a" * 300)], "refused", "(INVALID_ARGUMENT: \ufffdaaa"),
        ([("grpc-status", "13"), ("grpc-message", "Another profiling session active.")], "busy", "someone else"),
        ([("grpc-status", "6")], "busy", "someone else"),
        ([("grpc-status", "12")], "not_a_profiler", "is a gRPC server, but"),
        ([("grpc-status", "8"), ("grpc-message", "5 GB")], "too_large", "(5 GB)"),
        ([("grpc-status", "4")], "timeout", "--timeout"),
        ([("grpc-status", "1")], "interrupted", "interrupted"),
        ([("grpc-status", "17")], "bad_reply", "no status"),
        ([("grpc-status", "\u0661")], "bad_reply", "no status"),
        ([("other", "1")], "bad_reply", "no status"),
        ([("grpc-status", "0")], "bad_reply", "no message"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("alone", [False, True], ids=["trailers", "trailers only"])
def test_a_status_instead_of_a_reply(trailers: Headers, reason: str, words: str, alone: bool) -> None:
    def give(peer: Peer) -> None:
        peer.tail(IS_GRPC + trailers) if alone else peer.head().tail(trailers)

    error = refusal(answering(give))
    assert (error.reason, words in str(error)) == (reason, True), error
    assert len(str(error)) < 300


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((message(b"", flag=1),), "compressed"),
        ((message(b"abc", flag=255),), "compressed"),
        ((WHOLE, WHOLE), "more than one message"),
        ((WHOLE + b"\0",), "more than one message"),
        ((WHOLE[:-1],), "1 of 7 bytes are missing"),
        ((WHOLE[:4],), "no message"),
        ((message(b"0123456789", length=LARGEST_MESSAGE),), "bytes are missing"),
        ((message(b"no protobuf"),), "damaged"),
    ],
)
def test_data_that_is_no_reply(data: tuple[bytes, ...], words: str) -> None:
    error = refusal(answer(*data))
    assert (error.reason, words in str(error)) == ("bad_reply", True), error


def test_a_reply_that_is_too_large_is_refused_as_soon_as_its_length_is_known() -> None:
    error = refusal(answering(lambda peer: peer.head().data(message(b"", length=1001))), max_reply_bytes=1000)
    assert (error.reason, "(1001 bytes)" in str(error)) == ("too_large", True)
    assert refusal(answering(lambda peer: peer.head().data(message(b"", length=2**32 - 1)))).reason == "too_large"


def test_no_room_is_made_for_what_is_only_announced() -> None:
    tracemalloc.start()
    try:
        refusal(answer(message(b"0123456789", length=LARGEST_MESSAGE)))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "give",
    [
        lambda peer: peer.head().data(WHOLE).tail([("grpc-status", "0"), ("long", "x" * 70_000)]),
        lambda peer: peer.head().data(WHOLE).tail([("grpc-status", "0"), ("Upper", "x")]),
        lambda peer: peer.head([(":status", "200"), (":status", "200")]),
        lambda peer: peer.line.sendall(frame(0, 0, 1, WHOLE)),
        lambda peer: peer.line.sendall(frame(1, 4, 1, b"\xff\xff\xff\xff\xff\xff")),
        lambda peer: peer.line.sendall(frame(5, 4, 1, b"\0\0\0\2")),
        lambda peer: peer.line.sendall(b"\xff\xff\xff" + bytes(6)),
        lambda peer: peer.line.sendall(frame(1, 0, 1) + frame(9, 0, 1) * 100),
        lambda peer: peer.line.sendall(frame(8, 0, 0, b"\x7f\xff\xff\xff")),
    ],
    ids=["long", "upper case", "twice", "data first", "no HPACK", "push", "large frame", "endless headers", "window"],
)
def test_a_server_that_breaks_the_rules_of_http2(give: Callable[[Peer], object]) -> None:
    assert refusal(answering(give)).reason == "bad_reply"


def test_odd_metadata_does_no_harm() -> None:
    odd = [("grpc-status", "0"), ("empty", ""), ("text-bin", "AP8"), ("umlaut", "ü"), ("escape", "\x1b[2J")]
    assert ask(answer(WHOLE, tail=odd)) == b"trace"


@pytest.mark.parametrize(
    "give",
    [
        lambda peer: peer.line.shutdown(socket.SHUT_RDWR),
        lambda peer: peer.head().data(WHOLE[:-1]).line.shutdown(socket.SHUT_RDWR),
        lambda peer: peer.head().data(WHOLE).line.shutdown(socket.SHUT_RDWR),
        lambda peer: peer.line.sendall(frame(3, 0, 1, b"\0\0\0\2")),
        lambda peer: peer.line.sendall(frame(7, 0, 0, bytes(8))),
        lambda peer: peer.line.sendall(frame(7, 0, 0)),
    ],
    ids=["at once", "within the message", "before the status", "RST_STREAM", "GOAWAY", "GOAWAY of nothing"],
)
def test_a_connection_that_breaks(give: Callable[[Peer], object]) -> None:
    error = refusal(answering(give))
    assert (error.reason, "did the job end or crash?" in str(error)) == ("died", True)


frames = st.builds(
    frame,
    st.integers(0, 12),
    st.sampled_from([0, 1, 4, 5, 8, 32, 255]),
    st.sampled_from([0, 1, 2, 3, 2**31 - 1, 2**32 - 1]),
    st.binary(max_size=30),
)


@given(
    data=st.one_of(
        st.binary(max_size=100),
        st.lists(frames, max_size=8).map(b"".join),
        st.lists(frames, max_size=8).map(lambda parts: SETTINGS + b"".join(parts)),
    )
)
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_an_error_with_a_reason(data: bytes) -> None:
    def handle(line: socket.socket) -> None:
        saying(data)(line)
        line.shutdown(socket.SHUT_WR)
        silent(line)

    assert isinstance(refusal(handle), CaptureError)
