"""Calls and how they end: with a real gRPC server, and with servers made by hand that break one rule each.

The errors of calls (connection.py) are tested here, too.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from capture.conftest import free_port
from capture.double import Answer, response, serving
from capture.handmade import (
    CERTIFICATE,
    IS_GRPC,
    IS_OK,
    KEY,
    REQUEST,
    SECONDS,
    WHOLE,
    Handler,
    Headers,
    answer,
    answering,
    ask,
    data,
    frame,
    greet,
    headers,
    here,
    listening,
    message,
    profile_at,
    refusal,
    silent,
    trailers,
)
from protobytes import field

from tfperf.base.errors import CaptureError
from tfperf.capture.address import Address
from tfperf.capture.client import PendingReply, ProfilerClient
from tfperf.formats.wire.schema import LARGEST_MESSAGE

# --- what goes well ---


def test_the_reply_and_the_overhead_that_comes_with_it() -> None:
    def reply(request: Any, context: grpc.ServicerContext) -> bytes:
        context.set_trailing_metadata((("tfperf-overhead-percent", "3"), ("other", "4")))
        return response(b"trace")

    done = threading.Event()
    with serving({"Profile": reply}) as port, ProfilerClient(here(port)) as client:
        client.connect()
        pending = client.profile(REQUEST, SECONDS)
        pending.when_answered(done.set)
        response_message = pending.result()
        assert done.wait(SECONDS)
    assert (response_message.xspace, response_message.empty_trace, pending.overhead_percent()) == (b"trace", False, 3.0)


def test_the_calls_of_continuous_profiling() -> None:
    seen: list[str] = []

    def noting(name: str, reply: bytes) -> Answer:
        def respond(request: Any, context: grpc.ServicerContext) -> bytes:
            seen.append(f"{name} {request.session_id}")
            return reply

        return respond

    replies = {"StartContinuousProfiling": b"", "GetSnapshot": response(b"trace"), "StopContinuousProfiling": b""}
    with (
        serving({name: noting(name, reply) for name, reply in replies.items()}) as port,
        ProfilerClient(here(port)) as client,
    ):
        client.start_continuous(REQUEST)
        assert client.snapshot(SECONDS).result().xspace == b"trace"
        client.stop_continuous()
    assert seen == ["StartContinuousProfiling session", "GetSnapshot ", "StopContinuousProfiling "]


def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    assert ask(answer(WHOLE)) == b"trace"


def test_a_unix_socket_with_an_odd_name(tmp_path: Path) -> None:
    path = f"{tmp_path}/a b%41#?"
    with serving({"Profile": lambda request, context: response(b"trace")}, f"unix:{quote(path)}"):
        assert profile_at(Address("", 0, path)) == b"trace"


def test_an_encrypted_call() -> None:
    credentials = grpc.ssl_server_credentials([(KEY.read_bytes(), CERTIFICATE.read_bytes())])
    large = bytes(1_000_000)
    with serving({"Profile": lambda request, context: response(large)}, credentials=credentials) as port:
        assert profile_at(here(port), tls_ca=CERTIFICATE) == large


def test_a_large_reply() -> None:
    large = bytes(range(256)) * 80_000
    with serving({"Profile": lambda request, context: response(large)}) as port:
        assert profile_at(here(port)) == large


def test_a_server_that_announces_its_end_and_answers_first() -> None:
    going_away = frame(7, 0, 0, b"\0\0\0\1" + bytes(4))
    assert ask(answering(headers(IS_GRPC), data(WHOLE[:7]), going_away, data(WHOLE[7:]), trailers())) == b"trace"


def test_odd_metadata_does_no_harm() -> None:
    odd = [("grpc-status", "0"), ("empty", ""), ("text-bin", "AP8"), ("escape", "\x1b[2J")]
    assert ask(answer(WHOLE, tail=odd)) == b"trace"


# --- answers that are not replies ---


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        pytest.param(
            [("grpc-status", "7"), ("grpc-message", "not%20for%20you%2C %E2%82%AC")],
            "refused",
            "PERMISSION_DENIED (not for you, €)",
            id="7",
        ),
        pytest.param([("grpc-status", "3"), ("grpc-message", "a" * 300)], "refused", "INVALID_ARGUMENT (aaa", id="3"),
        pytest.param(
            [("grpc-status", "13"), ("grpc-message", "Another profiling session active.")],
            "busy",
            "someone else",
            id="13",
        ),
        pytest.param([("grpc-status", "6")], "busy", "someone else", id="6"),
        pytest.param([("grpc-status", "12")], "not_a_profiler", "is not a profiler server", id="12"),
        pytest.param([("grpc-status", "8"), ("grpc-message", "5 GB")], "too_large", "(5 GB)", id="8"),
        pytest.param([("grpc-status", "4")], "timeout", "--timeout", id="4"),
        pytest.param([("grpc-status", "1")], "interrupted", "interrupted", id="1"),
        pytest.param([("grpc-status", "14"), ("grpc-message", "stopping")], "died", "(stopping)", id="14"),
        pytest.param([("grpc-status", "2"), ("grpc-message", "a bug")], "refused", "UNKNOWN (a bug)", id="2"),
        pytest.param([("grpc-status", "17")], "refused", "UNKNOWN", id="17"),
        pytest.param([("other", "1")], "bad_reply", "no valid reply", id="none"),
        pytest.param([("grpc-status", "0")], "bad_reply", "incomplete", id="0"),
    ],
)
@pytest.mark.parametrize("alone", [False, True], ids=["trailers", "trailers only"])
def test_a_status_instead_of_a_reply(status: Headers, reason: str, words: str, alone: bool) -> None:
    frames = [trailers([*IS_GRPC, *status])] if alone else [headers(IS_GRPC), trailers(status)]
    error = refusal(answering(*frames))
    assert (error.reason, words in str(error)) == (reason, True), error
    assert len(str(error)) < 350


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(message(b"", flag=1), id="compressed"),
        pytest.param(WHOLE[:-1], id="cut short"),
        pytest.param(WHOLE[:4], id="cut in the head"),
        pytest.param(message(b"0123456789", length=LARGEST_MESSAGE), id="announced only"),
        pytest.param(message(b"no protobuf"), id="no protobuf"),
        pytest.param(message(field(8, b"trace")[:-2]), id="cut in a field"),
    ],
)
def test_data_that_is_not_a_reply(payload: bytes) -> None:
    error = refusal(answer(payload))
    assert (error.reason, "sent no valid reply" in str(error)) == ("bad_reply", True), error


def test_a_message_with_an_odd_flag_is_no_trace() -> None:
    """gRPC says so, or on a busy machine, in one of 25 cases, gives an empty message, which holds no trace either."""
    found: CaptureError | bytes
    try:
        found = ask(answer(message(b"abc", flag=255)))
    except CaptureError as error:
        found = error
    assert found == b"" or (isinstance(found, CaptureError) and found.reason == "bad_reply"), found


def test_a_reply_over_the_limit_names_the_limit_and_what_to_try() -> None:
    error = refusal(answering(headers(IS_GRPC), data(message(b"", length=5_000_001))), max_reply_bytes=5_000_000)
    assert (error.reason, "limit of 5.00 MB" in str(error)) == ("too_large", True)
    assert "shorter --duration, or raise --max-size" in str(error)
    assert refusal(answering(headers(IS_GRPC), data(message(b"", length=2**32 - 1)))).reason == "too_large"


@pytest.mark.parametrize("head", [("404", "text/html"), ("302", "text/html"), ("500", "text/plain")])
def test_an_http2_server_that_is_not_a_grpc_server(head: tuple[str, str]) -> None:
    status, kind = head
    error = refusal(answer(b"<html>", head=[(":status", status), ("content-type", kind)], tail=[("x", "y")]))
    assert (error.reason, "is not a profiler server" in str(error)) == ("not_a_profiler", True), error


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([headers(IS_GRPC), data(WHOLE), trailers([*IS_OK, ("Upper", "x")])], id="upper case"),
        pytest.param([frame(1, 4, 1, b"\xff\xff\xff\xff\xff\xff")], id="no HPACK"),
        pytest.param([b"\xff\xff\xff" + bytes(6)], id="large frame"),
        pytest.param([frame(7, 0, 0)], id="empty GOAWAY"),
        pytest.param([frame(3, 0, 1, b"\0\0\0\2")], id="RST_STREAM"),
        pytest.param([headers([(":status", "200"), ("content-type", "text/html")]), frame(0, 1, 1, b"<p>")], id="HTML"),
    ],
)
def test_a_server_that_breaks_the_rules(frames: list[bytes]) -> None:
    error = refusal(answering(*frames))
    assert (error.reason, "sent no valid reply" in str(error)) == ("bad_reply", True), error


@pytest.mark.parametrize(
    "handle",
    [
        pytest.param(answering(close=True), id="at once"),
        pytest.param(answering(headers(IS_GRPC), data(WHOLE[:-1]), close=True), id="within the message"),
        pytest.param(answering(headers(IS_GRPC), data(WHOLE), close=True), id="before the status"),
        pytest.param(answering(frame(7, 0, 0, bytes(8)), close=True), id="GOAWAY"),
    ],
)
def test_a_connection_that_breaks(handle: Handler) -> None:
    error = refusal(handle)
    assert (error.reason, "did the job end or crash?" in str(error)) == ("died", True), error


def test_a_server_that_greets_and_never_answers() -> None:
    begin = time.monotonic()
    error = refusal(greet, seconds=0.5)
    assert (error.reason, "--timeout" in str(error)) == ("timeout", True)
    assert time.monotonic() - begin > 0.45


def test_a_job_that_ends_between_greeting_and_call() -> None:
    with ProfilerClient(here(free_port())) as client, pytest.raises(CaptureError) as caught:
        client.profile(REQUEST, SECONDS).result()
    assert caught.value.reason == "died"


def test_a_certificate_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="name a PEM file") as caught:
        ProfilerClient(Address("localhost", 1), tls_ca=tmp_path / "none.pem")
    assert caught.value.reason == "tls"


# --- the end of a call ---


def answered(client: ProfilerClient) -> PendingReply:
    """Ask for a trace; return the call once its reply begins to come."""
    done = threading.Event()
    pending = client.profile(REQUEST, SECONDS)
    pending.when_answered(done.set)
    assert done.wait(SECONDS)
    assert pending.is_answered
    return pending


@pytest.mark.parametrize("handle", [silent, greet, answering(headers(IS_GRPC))])
def test_a_call_is_cancelled_from_another_thread(handle: Handler) -> None:
    with listening(handle) as port, ProfilerClient(here(port)) as client:
        pending = client.profile(REQUEST, 600)
        threading.Timer(0.1, pending.cancel).start()
        with pytest.raises(CaptureError) as caught:
            pending.result()
    assert caught.value.reason == "interrupted"


def test_closing_the_client_ends_the_calls_in_progress() -> None:
    with listening(silent) as port:
        with ProfilerClient(here(port)) as client:
            pending = [client.profile(REQUEST, 600), client.snapshot(600)]
        for call in pending:
            with pytest.raises(CaptureError, match="interrupted"):
                call.result()


def test_a_reply_waits_in_the_server_until_it_is_received() -> None:
    with listening(answer(WHOLE)) as port, ProfilerClient(here(port)) as client:
        assert answered(client).result().xspace == b"trace"


def test_a_reply_is_given_up_before_it_is_received() -> None:
    with listening(answering(headers(IS_GRPC), data(WHOLE))) as port, ProfilerClient(here(port)) as client:
        pending = answered(client)
        pending.cancel()
        with pytest.raises(CaptureError) as caught:
            pending.result()
    assert caught.value.reason == "interrupted"


def test_a_call_that_takes_too_long_for_its_caller() -> None:
    with listening(greet) as port, ProfilerClient(here(port)) as client:
        pending = client.profile(REQUEST, SECONDS)
        pending.expire()
        with pytest.raises(CaptureError, match="did not answer in time") as caught:
            pending.result()
    assert caught.value.reason == "timeout"


def test_a_process_does_not_wait_for_its_calls() -> None:
    script = (
        "import sys\n"
        "from capture.handmade import REQUEST, ProfilerClient, here\n"
        "client = ProfilerClient(here(int(sys.argv[1])))\n"
        "client.profile(REQUEST, 600)\n"
    )
    with listening(silent) as port:
        command = [sys.executable, "-c", script, str(port)]
        subprocess.run(command, check=True, timeout=60, cwd=Path(__file__).parents[1])
