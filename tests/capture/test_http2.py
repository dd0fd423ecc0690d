"""Whom one reaches, and whom not: every way in which no connection comes about, and how a call ends."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from capture.conftest import free_port
from capture.double import response
from capture.handmade import (
    SECONDS,
    SESSION,
    SETTINGS,
    WHOLE,
    Handler,
    Peer,
    answer,
    answering,
    connect,
    frame,
    listening,
    message,
    profile,
    refusal,
    saying,
    silent,
)

from tfperf.capture.address import Address
from tfperf.capture.client import ProfilerClient
from tfperf.errors import CaptureError

CERTIFICATE, KEY = (Path(__file__).parent / f"localhost.{ending}" for ending in ("pem", "key"))


def here(port: int) -> Address:
    return Address("localhost", port)


def resolve(monkeypatch: pytest.MonkeyPatch, *places: tuple[str, int]) -> None:
    """Let every name stand for these addresses."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


def calls_under_way() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tfperf-call"]


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.005)


# --- nobody, or somebody else ---


def test_nobody_listens(tmp_path: Path) -> None:
    for address in (here(free_port()), Address("", 0, str(tmp_path / "none")), Address("", 0, str(tmp_path))):
        error = connect(address)
        assert (error.reason, "nothing listens on" in str(error)) == ("not_listening", True)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "a" * 70 + ".example"])
def test_a_name_that_is_not_known(host: str) -> None:
    error = connect(Address(host, 1))
    assert (error.reason, "check the spelling" in str(error)) == ("unknown_host", True)


def test_a_path_that_cannot_be() -> None:
    error = connect(Address("", 0, "/" + "a" * 200))
    assert (error.reason, "too long" in str(error)) == ("unreachable", True)


@pytest.fixture
def full_queue() -> Iterator[Address]:
    """A listener with a full queue: Linux drops what wants to connect, as a firewall does."""
    with socket.socket() as full, socket.socket() as first:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        first.connect(full.getsockname())
        yield Address(*full.getsockname())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux does that")
def test_a_machine_that_does_not_answer(full_queue: Address) -> None:
    error = connect(full_queue, seconds=0.3)
    assert (error.reason, "does not answer" in str(error)) == ("unreachable", True)


@pytest.mark.parametrize(
    "handle",
    [
        saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        saying(b"SSH-2.0-OpenSSH_9.6\r\n"),
        saying(b""),
        saying(b"abc"),
        saying(frame(6, 0, 0, bytes(8))),
        saying(frame(4, 0, 0, b"\0\5\0\0\0\1")),
        saying(frame(4, 0, 0, b"odd")),
        answer(b"<html>", head=[(":status", "404"), ("content-type", "text/html")]),
        answer(b"<html>", head=[(":status", "200"), ("content-type", "text/html")]),
        answer(WHOLE, head=[(":status", "200"), ("content-type", "application/grpc-web+proto")]),
        answer(WHOLE, head=[(":status", "200")]),
    ],
    ids=[
        "HTTP/1", "SSH", "closes", "short", "PING first", "odd setting", "odd settings", "404", "HTML", "gRPC-Web",
        "no type",
    ],
)  # fmt: skip
def test_something_else_listens(handle: Handler) -> None:
    error = refusal(handle)
    assert (error.reason, "does not speak gRPC" in str(error)) == ("not_a_profiler", True)


def test_a_server_that_accepts_and_says_nothing() -> None:
    with listening(silent) as port:
        assert (error := connect(here(port), seconds=0.3)).reason == "timeout"
        assert "accepts connections but never answers; is it a profiler" in str(error)
        assert (error := connect(here(port), seconds=0.3, tls_ca=CERTIFICATE)).reason == "timeout"
        assert "check that it speaks TLS" in str(error)


def test_a_server_that_greets_and_says_nothing_more() -> None:
    def greet(line: socket.socket) -> None:
        line.sendall(SETTINGS)
        silent(line)

    with listening(greet) as port, ProfilerClient(here(port)) as client:
        client.connect()
        begin = time.monotonic()
        with pytest.raises(CaptureError, match="--timeout") as caught:
            client.profile(SESSION, 0.3).result()
    assert caught.value.reason == "timeout"
    assert 0.25 < time.monotonic() - begin < SECONDS


# --- encryption ---


def encrypted(handle: Handler) -> Handler:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    context.set_alpn_protocols(["h2"])

    def shake(line: socket.socket) -> None:
        with context.wrap_socket(line, server_side=True) as secret:
            handle(secret)

    return shake


def test_an_encrypted_call() -> None:
    peers: list[Peer] = []

    def give(peer: Peer) -> None:
        peers.append(peer)
        peer.head().data(message(response(bytes(1_000_000)))).tail()

    with listening(encrypted(answering(give))) as port:
        found = profile(port, tls_ca=CERTIFICATE)
    assert found == bytes(1_000_000)
    assert peers[0].request[":scheme"] == "https"


def test_an_encrypted_call_is_cancelled() -> None:
    served = threading.Event()
    handle = answering(lambda peer: served.set())
    with (
        listening(encrypted(handle)) as port,
        ProfilerClient(here(port), tls_ca=CERTIFICATE) as client,
    ):
        pending = client.profile(SESSION, SECONDS)
        assert served.wait(SECONDS)
    with pytest.raises(CaptureError, match="interrupted"):
        pending.result()
    wait_until(lambda: not calls_under_way())


def test_a_server_that_speaks_tls_to_a_client_that_does_not() -> None:
    with listening(saying(b"\x15\x03\x01\0\2\2\x46")) as port:
        error = connect(here(port))
    assert (error.reason, "no --tls-ca is given" in str(error)) == ("tls", True)
    with listening(encrypted(silent)) as port:
        assert connect(here(port)).reason == "not_a_profiler", "OpenSSL closes without a word"


@pytest.mark.parametrize("handle", [saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), saying(b""), answer(WHOLE)])
def test_a_client_that_speaks_tls_to_a_server_that_does_not(handle: Handler) -> None:
    with listening(handle) as port:
        assert connect(here(port), tls_ca=CERTIFICATE).reason == "tls"


def test_a_certificate_for_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(encrypted(silent)) as port:
        resolve(monkeypatch, ("127.0.0.1", port))
        with pytest.raises(CaptureError, match="Hostname mismatch") as caught:
            profile(port, host="other.example", tls_ca=CERTIFICATE)
    assert caught.value.reason == "tls"


def test_a_certificate_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="name a PEM file") as caught:
        ProfilerClient(Address("localhost", 1), tls_ca=tmp_path / "none.pem")
    assert caught.value.reason == "tls"


# --- the end of a call ---


def test_a_call_is_cancelled_from_another_thread() -> None:
    begin = time.monotonic()
    with listening(answering(lambda peer: peer.head())) as port, ProfilerClient(here(port)) as client:
        pending = client.profile(SESSION, 600)
        threading.Timer(0.1, pending.cancel).start()
        with pytest.raises(CaptureError) as caught:
            pending.result()
        assert caught.value.reason == "interrupted"
        assert pending.done()
        wait_until(lambda: not calls_under_way())
    assert time.monotonic() - begin < SECONDS


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux does that")
def test_a_call_is_cancelled_while_it_connects(full_queue: Address) -> None:
    with ProfilerClient(full_queue) as client:
        pending = client.profile(SESSION, 600)
    with pytest.raises(CaptureError, match="interrupted"):
        pending.result()
    wait_until(lambda: not calls_under_way())


def test_closing_the_client_ends_what_is_under_way() -> None:
    with listening(silent) as port:
        with ProfilerClient(here(port)) as client:
            pending = [client.profile(SESSION, 600), client.snapshot(600)]
        for call in pending:
            with pytest.raises(CaptureError, match="interrupted"):
                call.result()
        wait_until(lambda: not calls_under_way())


def test_a_reply_that_came_outlives_its_client_and_a_late_cancel() -> None:
    with listening(answer(WHOLE)) as port, ProfilerClient(here(port)) as client:
        pending = client.profile(SESSION, SECONDS)
        wait_until(pending.done)
        pending.cancel()
    assert pending.result().xspace is not None


def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(SECONDS) and [])
    try:
        assert connect(Address("slow.example", 1), seconds=0.1).reason == "unreachable"
    finally:
        release.set()


def test_a_process_does_not_wait_for_its_calls() -> None:
    script = (
        "import sys\n"
        "from capture.test_http2 import SESSION, ProfilerClient, here\n"
        "client = ProfilerClient(here(int(sys.argv[1])))\n"
        "client.profile(SESSION, 600)\n"
    )
    with listening(silent) as port:
        command = [sys.executable, "-c", script, str(port)]
        subprocess.run(command, check=True, timeout=60, cwd=Path(__file__).parents[1])


def test_the_second_address_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(answer(WHOLE)) as port:
        resolve(monkeypatch, ("127.0.0.1", free_port()), ("127.0.0.1", port))
        assert profile(port, host="two.example") == b"trace"
