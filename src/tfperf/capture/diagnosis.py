"""Why there is no trace: how a call failed, turned into a reason and something to try.

The reasons are listed in docs/capture.md; scripts rely on them.
"""

from __future__ import annotations

import errno
import re
import socket
from typing import TYPE_CHECKING

from tfperf.capture.http2 import BrokenError, CallError, NoGreetingError, NoTlsError, NotReachedError
from tfperf.capture.rpc import BadReplyError, NotGrpcError, RefusedError, Status
from tfperf.errors import CaptureError

if TYPE_CHECKING:
    from tfperf.capture.address import Address

_SNIPPET = "start one in the job: tfperf.serve(), or tf.profiler.experimental.server.start(PORT)"
_BUSY = re.compile(r"another profil\w+ session|already_?exists|already (?:running|active)", re.IGNORECASE)


def call_error(address: Address, error: CallError, *, continuous: bool = False) -> CaptureError:
    """Return the error for a call that gave nothing."""
    if isinstance(error, RefusedError):
        return _refused(address, error, continuous=continuous)
    if isinstance(error, NotReachedError):
        return _not_reached(address, error.cause)
    if isinstance(error.cause, TimeoutError):
        return _silent(address, error)
    if isinstance(error, NoTlsError) or (isinstance(error, NoGreetingError) and _is_tls(error.cause)):
        return CaptureError(
            "tls", f"{address} and this client do not agree on TLS ({_words(error.cause)}); check --tls-ca, "
            "and that the server speaks TLS"
        )  # fmt: skip
    if isinstance(error, NoGreetingError | NotGrpcError):
        return CaptureError(
            "not_a_profiler",
            f"something listens on {address}, but it is no profiler server (it does not speak gRPC); {_SNIPPET}",
        )
    if isinstance(error, BadReplyError) or not isinstance(error.cause, OSError):
        return CaptureError("bad_reply", f"{address} sent no whole reply ({_words(error.cause)}); try again")
    return CaptureError("died", f"the connection to {address} broke while it was profiled: did the job end or crash?")


def _not_reached(address: Address, cause: Exception) -> CaptureError:
    if isinstance(cause, socket.gaierror):
        return CaptureError(
            "unknown_host", f"the name in {address} is not known here; check the spelling, or give the IP address"
        )
    if isinstance(cause, ConnectionRefusedError | FileNotFoundError) or _number(cause) == errno.EADDRNOTAVAIL:
        return CaptureError("not_listening", f"nothing listens on {address}; check the port, or {_SNIPPET}")
    if isinstance(cause, TimeoutError):
        return CaptureError("unreachable", f"{address} does not answer; check host, port and firewall")
    return CaptureError("unreachable", f"cannot reach {address}: {_words(cause)}; check host, port and firewall")


def _silent(address: Address, error: CallError) -> CaptureError:
    """Return the error for a server that was reached, and did not answer in time."""
    if isinstance(error, BrokenError):
        return CaptureError(
            "timeout",
            f"{address} took the request but did not answer in time; raise --timeout, or profile for less time",
        )
    hint = "is it a profiler server, and is its process alive (not stopped)?"
    if isinstance(error, NoTlsError):
        hint = "check that it speaks TLS"
    return CaptureError("timeout", f"{address} accepts connections but never answers; {hint}")


def _refused(address: Address, error: RefusedError, *, continuous: bool) -> CaptureError:
    status, details = error.status, _short(error.details)
    if _BUSY.search(error.details) or status == Status.ALREADY_EXISTS:
        return CaptureError(
            "busy", f"{address} is already being profiled by someone else; wait and try again (--retries)"
        )
    if status == Status.UNIMPLEMENTED:
        return _unimplemented(address, continuous=continuous)
    if status == Status.RESOURCE_EXHAUSTED:
        return CaptureError(
            "too_large", f"the trace of {address} is larger than allowed ({details}); "
            "profile for less time, or raise --max-size"
        )  # fmt: skip
    if status == Status.DEADLINE_EXCEEDED:
        return _silent(address, BrokenError(TimeoutError()))
    if status == Status.CANCELLED:
        return CaptureError("interrupted", f"profiling {address} was interrupted")
    words = f": {details}" if details else ""
    return CaptureError("refused", f"{address} refused the request ({status.name}{words})")


def _unimplemented(address: Address, *, continuous: bool) -> CaptureError:
    if continuous:
        return CaptureError(
            "unsupported", f"the server at {address} cannot profile continuously (an older TensorFlow?); "
            "leave out --continuous"
        )  # fmt: skip
    return CaptureError(
        "not_a_profiler", f"{address} is a gRPC server, but no profiler server (a port of tf.distribute?); {_SNIPPET}"
    )


def _is_tls(error: Exception) -> bool:
    """Whether TLS failed: of a server that asks for a certificate, that is learnt when it should greet."""
    import ssl

    return isinstance(error, ssl.SSLError)


def _number(error: Exception) -> int | None:
    return error.errno if isinstance(error, OSError) else None


def _words(error: Exception) -> str:
    """Return what an exception says, without its numbers and places in OpenSSL."""
    said = getattr(error, "verify_message", "") or getattr(error, "strerror", "") or str(error)
    return _short(re.sub(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$", "", str(said)))


def _short(words: str) -> str:
    """Return foreign words on one line."""
    line = " ".join(words.split())
    return line if len(line) <= 200 else line[:199] + "…"
