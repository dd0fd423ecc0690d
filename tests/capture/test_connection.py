"""Which servers greet as gRPC servers do, and why others do not: every way in which no connection comes about."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from capture.conftest import free_port
from capture.handmade import CERTIFICATE, KEY, Handler, frame, greet, here, listening, saying, silent

from tfperf.base.errors import CaptureError
from tfperf.capture.address import Address
from tfperf.capture.client import check_greeting


def failure(address: Address, seconds: float = 20.0, *, tls_ca: Path | None = None) -> CaptureError:
    with pytest.raises(CaptureError) as caught:
        check_greeting(address, seconds, tls_ca=tls_ca)
    return caught.value


def resolve(monkeypatch: pytest.MonkeyPatch, *places: tuple[str, int]) -> None:
    """Let every name stand for these addresses."""
    entries = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: entries)


def encrypted(handle: Handler) -> Handler:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    context.set_alpn_protocols(["h2"])

    def shake(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secret:
            handle(secret)

    return shake


# --- a gRPC server ---


def test_a_server_that_greets() -> None:
    with listening(greet) as port:
        check_greeting(here(port))
    with listening(encrypted(greet)) as port:
        check_greeting(here(port), tls_ca=CERTIFICATE)


def test_a_greeting_that_comes_byte_by_byte() -> None:
    def hesitate(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame(4, 0, 0, bytes(6)):
            connection.sendall(bytes([byte]))
        silent(connection)

    with listening(hesitate) as port:
        check_greeting(here(port))


def test_the_second_address_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(greet) as port:
        resolve(monkeypatch, ("127.0.0.1", free_port()), ("127.0.0.1", port))
        check_greeting(Address("two.example", port))


# --- nobody, or somebody else ---


def test_nobody_listens(tmp_path: Path) -> None:
    for address in (here(free_port()), Address("", 0, str(tmp_path / "none")), Address("", 0, str(tmp_path))):
        error = failure(address)
        assert (error.reason, "nothing listens on" in str(error)) == ("not_listening", True)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "a" * 70 + ".example"])
def test_an_unknown_name(host: str) -> None:
    error = failure(Address(host, 1))
    assert (error.reason, "check the spelling" in str(error)) == ("unknown_host", True)


def test_an_invalid_path() -> None:
    error = failure(Address("", 0, "/" + "a" * 200))
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
    error = failure(full_queue, 0.3)
    assert (error.reason, "does not answer" in str(error)) == ("unreachable", True)


def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(20) and [])
    try:
        assert failure(Address("slow.example", 1), 0.1).reason == "unreachable"
    finally:
        release.set()


@pytest.mark.parametrize(
    "handle",
    [
        pytest.param(saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), id="HTTP/1"),
        pytest.param(saying(b"SSH-2.0-OpenSSH_9.6\r\n"), id="SSH"),
        pytest.param(saying(b""), id="closes"),
        pytest.param(saying(b"abc"), id="short"),
        pytest.param(saying(frame(6, 0, 0, bytes(8))), id="PING first"),
        pytest.param(saying(frame(4, 0, 0, b"odd")), id="odd settings"),
    ],
)
def test_something_else_listens(handle: Handler) -> None:
    with listening(handle) as port:
        error = failure(here(port))
    assert (error.reason, "does not speak gRPC" in str(error)) == ("not_a_profiler", True)


def test_a_server_that_accepts_and_says_nothing() -> None:
    with listening(silent) as port:
        assert (error := failure(here(port), 0.3)).reason == "timeout"
        assert "accepts connections but never answers; is it a profiler" in str(error)
        assert (error := failure(here(port), 0.3, tls_ca=CERTIFICATE)).reason == "timeout"
        assert "check that it uses TLS" in str(error)


# --- encryption ---


def test_a_server_that_speaks_tls_to_a_client_that_does_not() -> None:
    with listening(saying(b"\x15\x03\x01\0\2\2\x46")) as port:
        error = failure(here(port))
    assert (error.reason, "no --tls-ca is given" in str(error)) == ("tls", True)
    with listening(encrypted(silent)) as port:
        assert failure(here(port)).reason == "not_a_profiler", "OpenSSL closes without a word"


@pytest.mark.parametrize("handle", [saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), saying(b""), greet])
def test_a_client_that_speaks_tls_to_a_server_that_does_not(handle: Handler) -> None:
    with listening(handle) as port:
        assert failure(here(port), tls_ca=CERTIFICATE).reason == "tls"


def test_a_certificate_for_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(encrypted(greet)) as port:
        resolve(monkeypatch, ("127.0.0.1", port))
        error = failure(Address("other.example", port), tls_ca=CERTIFICATE)
    assert (error.reason, "Hostname mismatch" in str(error)) == ("tls", True)


def test_a_file_without_certificates() -> None:
    with listening(encrypted(greet)) as port:
        assert failure(here(port), tls_ca=Path(__file__)).reason == "tls"
