"""Whether a gRPC server answers at an address (connect, exchange HTTP/2 settings, disconnect), and why a call failed.

gRPC reports every connection that fails by the same status and a sentence that changes with its version. A plain
socket tells the causes apart.
"""

from __future__ import annotations

import concurrent.futures
import errno
import re
import socket
import time
from pathlib import Path
from typing import Any

from tfperf.base.errors import CaptureError
from tfperf.base.units import format_bytes
from tfperf.capture.address import Address
from tfperf.capture.daemon_threads import DaemonThreads

CONNECT_SECONDS = 5.0
SERVER_SNIPPET = "start one in the job: tfperf.serve(), or tf.profiler.experimental.server.start(PORT)"

# Servers agree on no status for these, and gRPC uses those of servers: only the text tells.
_BUSY = r"(?i)another profil\w+ session|already_?exists|already (?:running|active)"
_NOT_GRPC = r"(?i)http2 header with status"
_BAD_REPLY = r"(?i)stream removed|no status received|rst_stream|compression bit|illegal header|http/2"

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What an HTTP/2 client sends first, with an empty SETTINGS frame."""
_FRAME_HEAD_BYTES = 9
_SETTINGS, _SETTING_BYTES = 4, 6
_TLS_ALERT = b"\x15\x03"


def check_greeting(address: Address, seconds: float = CONNECT_SECONDS, *, tls_ca: Path | None = None) -> None:
    """Return if a gRPC server answers within this time; raises CaptureError with the cause otherwise.

    `tls_ca` is a PEM file with the certificates to trust: the connection is then encrypted.
    """
    deadline = time.monotonic() + seconds
    with _connect(address, deadline) as plain, _encrypted(plain, address, tls_ca, deadline) as connection:
        _exchange_settings(connection, address, deadline)


def _connect(address: Address, deadline: float) -> socket.socket:
    """Try the addresses of the host one after the other, each for its share of the time."""
    places, failures = _resolve(address, deadline), []
    for number, (family, place) in enumerate(places):
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.settimeout(_seconds_left(deadline) / (len(places) - number))
            connection.connect(place)
            return connection
        except OSError as error:
            connection.close()
            failures.append(error)
    # The first address is the most likely one, so its error says most.
    first = failures[0]
    if isinstance(first, ConnectionRefusedError | FileNotFoundError) or first.errno == errno.EADDRNOTAVAIL:
        raise CaptureError("not_listening", f"nothing listens on {address}; check the port, or {SERVER_SNIPPET}")
    raise _unreachable(address, first)


def _resolve(address: Address, deadline: float) -> list[tuple[int, Any]]:
    """Return family and socket address of each place that the address stands for."""
    if address.path:
        if not hasattr(socket, "AF_UNIX"):
            raise CaptureError("unreachable", f"cannot reach {address}: this system has no unix sockets")
        return [(socket.AF_UNIX, address.path)]
    # The system's resolver has no time limit of its own.
    with DaemonThreads(1, "tfperf-resolve") as thread:
        lookup = thread.submit(socket.getaddrinfo, address.host, address.port, type=socket.SOCK_STREAM)
    try:
        return [(family, place) for family, *_, place in lookup.result(_seconds_left(deadline))]
    except concurrent.futures.TimeoutError:
        raise _unreachable(address, TimeoutError()) from None
    except (OSError, ValueError):  # ValueError: a part of the name is empty or too long.
        message = f"the host name in {address} is unknown here; check the spelling, or use the IP address"
        raise CaptureError("unknown_host", message) from None


def _encrypted(connection: socket.socket, address: Address, tls_ca: Path | None, deadline: float) -> socket.socket:
    if tls_ca is None:
        return connection
    import ssl

    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(tls_ca)
        # As in gRPC: the file may hold an authority, or the certificate of the server itself.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.set_alpn_protocols(["h2"])
        connection.settimeout(_seconds_left(deadline))
        return context.wrap_socket(connection, server_hostname=address.host.partition("%")[0] or "localhost")
    except TimeoutError:
        raise _silent(address, "check that it uses TLS") from None
    except OSError as error:
        raise _no_tls(address, _words(error)) from error


def _exchange_settings(connection: socket.socket, address: Address, deadline: float) -> None:
    """Send the client's settings and wait for the server's, which come first from every HTTP/2 server."""
    import ssl

    answer = b""
    try:
        connection.sendall(_PREFACE)
        while len(answer) < _FRAME_HEAD_BYTES and not answer.startswith(_TLS_ALERT):
            connection.settimeout(_seconds_left(deadline))
            data = connection.recv(_FRAME_HEAD_BYTES - len(answer))
            if not data:
                break
            answer += data
    except TimeoutError:
        raise _silent(address, "is it a profiler server, and does its process still run (not stopped)?") from None
    except ssl.SSLError as error:  # Of a server that wants a certificate of the client, this is learned only now.
        raise _no_tls(address, _words(error)) from error
    except OSError:
        pass
    if answer.startswith(_TLS_ALERT):
        raise _no_tls(address, "the server uses TLS, and no --tls-ca is given")
    is_settings = len(answer) == _FRAME_HEAD_BYTES and answer[3:4] == bytes([_SETTINGS])
    if not is_settings or int.from_bytes(answer[:3], "big") % _SETTING_BYTES:
        problem = f"the server on {address} is not a profiler server (it does not speak gRPC)"
        raise CaptureError("not_a_profiler", f"{problem}; {SERVER_SNIPPET}")


def _seconds_left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _unreachable(address: Address, error: OSError) -> CaptureError:
    timed_out = isinstance(error, TimeoutError)
    problem = f"{address} does not answer" if timed_out else f"cannot reach {address}: {_words(error)}"
    return CaptureError("unreachable", f"{problem}; check host, port and firewall")


def _silent(address: Address, hint: str) -> CaptureError:
    return CaptureError("timeout", f"{address} accepts connections but never answers; {hint}")


def _no_tls(address: Address, words: str) -> CaptureError:
    return CaptureError("tls", f"TLS with {address} failed ({words}); check --tls-ca, and whether the server uses TLS")


def _words(error: OSError) -> str:
    """Return the text of an exception without numbers and places in OpenSSL's source."""
    text = getattr(error, "verify_message", "") or error.strerror or str(error)
    return one_line(re.sub(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$", "", text))


def call_error(address: Address, call: Any, max_reply_bytes: int, *, continuous: bool) -> CaptureError:
    """Return the error for a failed call of gRPC; `continuous` says that it was one of continuous profiling."""
    code, details = getattr(call.code(), "name", "UNKNOWN"), one_line(call.details() or "")
    words = f" ({details})" if details else ""
    if re.search(_BUSY, details) or code == "ALREADY_EXISTS":
        return CaptureError("busy", f"{address} is already being profiled by someone else; wait, or use --retries")
    if code == "UNIMPLEMENTED" and continuous:
        problem = "cannot profile continuously (an older TensorFlow?); leave out --continuous"
        return CaptureError("unsupported", f"the server at {address} {problem}")
    if code == "UNIMPLEMENTED" or re.search(_NOT_GRPC, details):
        problem = f"the server on {address} is not a profiler server{words}; {SERVER_SNIPPET}"
        return CaptureError("not_a_profiler", problem)
    if code == "RESOURCE_EXHAUSTED":
        problem = f"the trace of {address} is larger than the limit of {format_bytes(max_reply_bytes)}{words}"
        return CaptureError("too_large", f"{problem}; use a shorter --duration, or raise --max-size (at most 2 GiB)")
    if code == "DEADLINE_EXCEEDED":
        return late(address)
    if code == "UNAVAILABLE":
        problem = f"the connection to {address} broke during profiling{words}"
        return CaptureError("died", f"{problem}; did the job end or crash?")
    if code == "CANCELLED":
        return CaptureError("interrupted", f"profiling {address} was interrupted")
    if code in ("INTERNAL", "UNKNOWN") and re.search(_BAD_REPLY, details):
        return bad_reply(address, details)
    return CaptureError("refused", f"{address} refused the request: {code}{words}")


def late(address: Address) -> CaptureError:
    """Return the error for a reply that takes too long."""
    fix = "raise --timeout, or use a shorter --duration"
    return CaptureError("timeout", f"{address} accepted the request but did not answer in time; {fix}")


def bad_reply(address: Address, words: str) -> CaptureError:
    """Return the error for a reply that is incomplete or damaged."""
    return CaptureError("bad_reply", f"{address} sent no valid reply ({words}); try again")


def one_line(text: str, limit: int = 200) -> str:
    """Return text from elsewhere on one line, shortened."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
