"""Why a call failed: the status of gRPC, turned into a reason of docs/capture.md and something to try."""

from __future__ import annotations

import re
from typing import Protocol

from tfperf.capture.address import Address
from tfperf.errors import CaptureError

SERVER_SNIPPET = "start one in the job: tfperf.serve(), or tf.profiler.experimental.server.start(PORT)"

# Servers agree on no status for these, and gRPC uses those of servers: only the text tells.
_BUSY = re.compile(r"another profil\w+ session|already_?exists|already (?:running|active)", re.IGNORECASE)
_NOT_GRPC = re.compile(r"http2 header with status", re.IGNORECASE)
_BAD_REPLY = re.compile(
    r"stream removed|no status received|rst_stream|compression bit|illegal header|http/2", re.IGNORECASE
)


class CallFailure(Protocol):
    """What a failed call of gRPC tells."""

    def code(self) -> object:
        """Return the status code, a `grpc.StatusCode`."""

    def details(self) -> str | None:
        """Return the text of the server or of gRPC."""


def call_error(address: Address, failure: CallFailure, max_reply_bytes: int, *, continuous: bool) -> CaptureError:
    """Return the error for a call that failed; `continuous` says that it was one of continuous profiling."""
    code, details = getattr(failure.code(), "name", "UNKNOWN"), one_line(failure.details() or "")
    words = f" ({details})" if details else ""
    if _BUSY.search(details) or code == "ALREADY_EXISTS":
        return CaptureError("busy", f"{address} is already being profiled; wait, or try again with --retries")
    if code == "UNIMPLEMENTED" and continuous:
        problem = "cannot profile continuously (an older TensorFlow?); leave out --continuous"
        return CaptureError("unsupported", f"the server at {address} {problem}")
    if code == "UNIMPLEMENTED" or _NOT_GRPC.search(details):
        problem = f"the server on {address} is not a profiler server{words}; {SERVER_SNIPPET}"
        return CaptureError("not_a_profiler", problem)
    if code == "RESOURCE_EXHAUSTED":
        problem = f"the trace of {address} is larger than the limit of {max_reply_bytes / 1e6:,.0f} MB{words}"
        fix = "use a shorter --duration, or raise --max-size (at most 2 GiB)"
        return CaptureError("too_large", f"{problem}; {fix}")
    if code == "DEADLINE_EXCEEDED":
        fix = "raise --timeout, or use a shorter --duration"
        return CaptureError("timeout", f"{address} accepted the request but did not answer in time; {fix}")
    if code == "UNAVAILABLE":
        problem = f"the connection to {address} broke during profiling{words}"
        return CaptureError("died", f"{problem}; did the job end or crash?")
    if code == "CANCELLED":
        return CaptureError("interrupted", f"profiling {address} was interrupted")
    if code in ("INTERNAL", "UNKNOWN") and _BAD_REPLY.search(details):
        return bad_reply(address, details)
    return CaptureError("refused", f"{address} refused the request: {code}{words}")


def bad_reply(address: Address, words: str) -> CaptureError:
    """Return the error for a reply that is incomplete or damaged."""
    return CaptureError("bad_reply", f"{address} sent no valid reply ({words}); try again")


def one_line(text: str) -> str:
    """Return text from elsewhere on one line, shortened."""
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:199] + "…"
