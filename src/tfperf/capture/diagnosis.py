"""Why there is no trace: what gRPC and the server said, turned into a reason and something to try.

The reasons are listed in docs/capture.md; scripts rely on them.
"""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Any, Protocol

from tfperf.errors import CaptureError, Reason

if TYPE_CHECKING:
    from tfperf.capture.address import Address

_PROBE_SECONDS = 2.0
_SNIPPET = "start one in the job: tfperf.serve(), or tf.profiler.experimental.server.start(PORT)"
_CONNECTIONS: tuple[tuple[str, Reason, str], ...] = (
    # What gRPC says (any of these words), the reason, and the message.
    (
        "connection refused|no such file|cannot assign requested address",
        "not_listening",
        "nothing listens on {address}; check the port, or " + _SNIPPET,
    ),
    (
        "lookup|resol|domain name",
        "unknown_host",
        "the name in {address} is not known here; check the spelling, or give the IP address",
    ),
    (
        "ssl|tls|certificate|handshake|security",
        "tls",
        "{address} and this client do not agree on TLS ({details}); check --tls-ca, and that the server speaks TLS",
    ),
    (
        r"http/?[12]|settings frame|socket closed|connection reset|eof|frame",
        "not_a_profiler",
        "something listens on {address}, but it is no profiler server (it does not speak gRPC); " + _SNIPPET,
    ),
)
_BUSY = re.compile(r"another profil\w+ session|already_?exists|already (?:running|active)", re.IGNORECASE)
_LOST = re.compile(r"socket closed|connection reset|recvmsg|goaway|broken pipe|eof|connection refused", re.IGNORECASE)


class RpcFailure(Protocol):
    """The part of `grpc.RpcError` that is used here."""

    def code(self) -> Any:
        """Return the status code."""

    def details(self) -> str | None:
        """Return the server's or gRPC's own words."""


def connection_error(address: Address, details: str, *, encrypted: bool = False) -> CaptureError:
    """Return the error for a connection that did not come about; no details: nobody answered in time."""
    if not details:
        return _silent(address, encrypted=encrypted)
    words = details.lower()
    for pattern, reason, message in _CONNECTIONS:
        if re.search(pattern, words):
            return CaptureError(reason, message.format(address=address, details=_short(details)))
    return CaptureError("unreachable", f"cannot reach {address}: {_short(details)}; check host, port and firewall")


def _silent(address: Address, *, encrypted: bool) -> CaptureError:
    """Tell a server that does not answer from a machine that is not reached."""
    if not _accepts(address):
        return CaptureError("unreachable", f"{address} does not answer; check host, port and firewall")
    hint = (
        "check that it speaks TLS" if encrypted else "is it a profiler server, and is its process alive (not stopped)?"
    )
    return CaptureError("timeout", f"{address} accepts connections but never answers; {hint}")


def _accepts(address: Address) -> bool:
    """Return whether a plain connection comes about."""
    family = getattr(socket, "AF_UNIX", None)
    try:
        if address.path and family is not None:
            with socket.socket(family, socket.SOCK_STREAM) as plain:
                plain.settimeout(_PROBE_SECONDS)
                plain.connect(address.path)
            return True
        with socket.create_connection((address.host, address.port), _PROBE_SECONDS):
            return True
    except OSError:
        return False


def rpc_error(address: Address, error: RpcFailure, *, continuous: bool = False) -> CaptureError:
    """Return the error for a call that a server refused, or that broke."""
    code, details = error.code().name, error.details() or ""
    if _BUSY.search(details) or code == "ALREADY_EXISTS":
        return CaptureError(
            "busy", f"{address} is already being profiled by someone else; wait and try again (--retries)"
        )
    if code == "UNIMPLEMENTED":
        return _unimplemented(address, continuous=continuous)
    if code == "RESOURCE_EXHAUSTED":
        return CaptureError(
            "too_large", f"the trace of {address} is larger than allowed ({_short(details)}); "
            "profile for less time, or raise --max-size"
        )  # fmt: skip
    if code == "DEADLINE_EXCEEDED":
        return CaptureError(
            "timeout",
            f"{address} took the request but did not answer in time; raise --timeout, or profile for less time",
        )
    if code == "UNAVAILABLE" and _LOST.search(details):
        return CaptureError(
            "died", f"the connection to {address} broke while it was profiled: did the job end or crash?"
        )
    if code == "CANCELLED":
        return CaptureError("interrupted", f"profiling {address} was interrupted")
    words = f": {_short(details)}" if details else ""
    return CaptureError("refused", f"{address} refused the request ({code}{words})")


def _unimplemented(address: Address, *, continuous: bool) -> CaptureError:
    if continuous:
        return CaptureError(
            "unsupported", f"the server at {address} cannot profile continuously (an older TensorFlow?); "
            "leave out --continuous"
        )  # fmt: skip
    return CaptureError(
        "not_a_profiler", f"{address} is a gRPC server, but no profiler server (a port of tf.distribute?); {_SNIPPET}"
    )


def _short(details: str) -> str:
    """Return foreign words on one line."""
    line = " ".join(details.split())
    return line if len(line) <= 200 else line[:199] + "…"
