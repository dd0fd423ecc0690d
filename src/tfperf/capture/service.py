"""What the profiler server of `serve` answers: one session of TensorFlow's profiler at a time, sent as a reply."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NoReturn

from tfperf.capture import local
from tfperf.capture.options import TracerOptions
from tfperf.errors import CaptureError, TfperfError
from tfperf.wire.profiler_service import OVERHEAD_KEY, read_message, reply_head
from tfperf.wire.schema import LARGEST_MESSAGE

BUSY = "Another profiling session active."
"""TensorFlow's own words, which its clients know."""
_LONGEST_DELAY_S = 60.0
_UNFETCHED_SECONDS = 300.0


class _RefusalError(Exception):
    """A call that ends with a status: `code` is the name of gRPC's."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


@dataclass(frozen=True)
class _Asked:
    """What a ProfileRequest asks for."""

    options: TracerOptions
    session_id: str
    duration_s: float
    delay_s: float
    ended: threading.Event = field(default_factory=threading.Event)
    """Set by Terminate, by the end of the call, and by the end of the server."""

    @classmethod
    def parse(cls, data: bytes) -> _Asked:
        """Read a ProfileRequest; raises CaptureError if it asks for what cannot be."""
        request = _read("ProfileRequest", data)
        if not request.emit_xspace:
            raise _RefusalError(
                "FAILED_PRECONDITION", "this server only returns traces and never writes files for a client: "
                "use `tfperf capture`, or any client that sets emit_xspace"
            )  # fmt: skip
        asked = request.opts
        duration_s = min((asked.duration_ms or request.duration_ms) / 1000, threading.TIMEOUT_MAX)
        return cls(_levels(asked), request.session_id or asked.session_id, duration_s, _delay(asked.start_timestamp_ns))


def _read(message: str, data: bytes) -> Any:
    try:
        return read_message(message, data)
    except ValueError as error:
        raise _RefusalError("INVALID_ARGUMENT", f"the request is no {message}") from error


def _levels(asked: Any) -> TracerOptions:
    if not asked.version:
        return TracerOptions()  # TensorFlow ignores levels without a version, and takes its defaults.
    try:
        return TracerOptions(asked.host_tracer_level, asked.device_tracer_level, asked.python_tracer_level)
    except TfperfError as error:
        raise _RefusalError("INVALID_ARGUMENT", str(error)) from error


def _delay(start_timestamp_ns: int) -> float:
    """Return the seconds until then, by the clock of this machine."""
    delay_s = max(0.0, (start_timestamp_ns - time.time_ns()) / 1e9)
    if delay_s > _LONGEST_DELAY_S:
        raise _RefusalError(
            "INVALID_ARGUMENT", f"the start lies {delay_s:.0f} s ahead by this machine's clock; "
            f"{_LONGEST_DELAY_S:.0f} s is the most; do the clocks agree?"
        )  # fmt: skip
    return delay_s


@dataclass
class _Continuous:
    """A recording without end."""

    options: TracerOptions
    session: local.TensorflowSession
    expiry: threading.Timer | None = None


class Sampler:
    """The calls of the server. One session at a time."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._current: _Asked | None = None
        self._finished = False
        self._unanswered = 0
        self._continuous: _Continuous | None = None

    def methods(self) -> dict[str, Callable[[bytes, Any], bytes]]:
        """Return what answers each method of the service."""
        return {
            "Profile": self.profile,
            "Terminate": self.terminate,
            "StartContinuousProfiling": partial(self._guarded, self._start_continuous),
            "GetSnapshot": partial(self._guarded, self._snapshot),
            "StopContinuousProfiling": partial(self._guarded, self._stop_continuous),
        }

    def profile(self, data: bytes, context: Any) -> bytes:
        """Answer Profile: a ProfileResponse with the trace of the time that was asked for."""
        try:
            asked = _Asked.parse(data)
            self._enter(asked)
            try:
                self._watch(asked, context)
                return _record(asked, context)
            finally:
                self._leave()
        except (_RefusalError, TfperfError) as error:
            _refuse(error, context)

    def terminate(self, data: bytes, context: Any) -> bytes:
        """Answer Terminate: end the session of that name, or any if there is no name."""
        try:
            session_id = _read("TerminateRequest", data).session_id
        except _RefusalError as error:
            _refuse(error, context)
        with self._lock:
            if self._current and session_id in ("", self._current.session_id):
                self._current.ended.set()
        return b""  # A TerminateResponse has no fields.

    def finish(self, export_seconds: float, send_seconds: float) -> None:
        """End the session, begin no other, and wait until the trace is taken and sent."""
        with self._lock:
            self._finished = True
            if self._current:
                self._current.ended.set()
            self._drop_continuous()
            self._lock.wait_for(lambda: self._current is None, export_seconds)
            self._lock.wait_for(lambda: not self._unanswered, send_seconds)

    def _enter(self, asked: _Asked) -> None:
        with self._lock:
            if self._finished:
                raise _RefusalError("UNAVAILABLE", "the server is being stopped")
            if self._current or self._continuous or local.running():
                raise _RefusalError("INTERNAL", BUSY)
            self._current = asked

    def _guarded(self, answer: Callable[[bytes], bytes], data: bytes, context: Any) -> bytes:
        """Answer a call of continuous profiling; no other such call runs meanwhile."""
        try:
            with self._lock:
                return answer(data)
        except (_RefusalError, TfperfError) as error:
            _refuse(error, context)

    def _start_continuous(self, data: bytes) -> bytes:
        asked = _Asked.parse(data)
        if self._current or self._continuous or local.running():
            raise _RefusalError("INTERNAL", BUSY)
        self._continuous = _Continuous(asked.options, _begin(asked.options))
        self._expect_snapshots()
        return b""

    def _snapshot(self, data: bytes) -> bytes:
        """Return what was recorded since the last snapshot, and go on recording."""
        if not self._continuous:
            raise _RefusalError("NOT_FOUND", "No continuous profiling session found.")
        options = self._continuous.options
        with self._continuous.session.export() as file:
            self._forget_continuous()
            self._continuous = _Continuous(options, _begin(options))
            self._expect_snapshots()
            return _reply(file)

    def _stop_continuous(self, data: bytes) -> bytes:
        if not self._continuous:
            raise _RefusalError("NOT_FOUND", "No continuous profiling session found.")
        self._drop_continuous()
        return b""

    def _expect_snapshots(self) -> None:
        """End the recording if nobody fetches it any more: it would fill the memory of the job."""
        recording = self._continuous

        def expire() -> None:
            with self._lock:
                if recording is self._continuous:
                    self._drop_continuous()

        assert recording is not None
        recording.expiry = threading.Timer(_UNFETCHED_SECONDS, expire)
        recording.expiry.daemon = True
        recording.expiry.start()

    def _forget_continuous(self) -> local.TensorflowSession | None:
        recording, self._continuous = self._continuous, None
        if recording and recording.expiry:
            recording.expiry.cancel()
        return recording.session if recording else None

    def _drop_continuous(self) -> None:
        session = self._forget_continuous()
        if session:
            session.drop()

    def _watch(self, asked: _Asked, context: Any) -> None:
        """End the session when the call is over, because the client is gone; note when it has its reply."""

        def over() -> None:
            asked.ended.set()
            with self._lock:
                self._unanswered -= 1
                self._lock.notify_all()

        with self._lock:
            self._unanswered += 1
        if not context.add_callback(over):
            over()

    def _leave(self) -> None:
        with self._lock:
            self._current = None
            self._lock.notify_all()


def _record(asked: _Asked, context: Any) -> bytes:
    """Wait for the start, profile until the end, and return the reply."""
    if asked.ended.wait(asked.delay_s):
        raise _RefusalError("CANCELLED", "the session was ended before it began")
    session = _begin(asked.options)
    began = time.perf_counter()
    asked.ended.wait(asked.duration_s)
    ended = time.perf_counter()
    if not context.is_active():
        session.drop()
        raise _RefusalError("CANCELLED", "the client went away")
    with session.export() as file:
        reply = _reply(file)
    overhead = local.step_times.overhead_percent(began, ended)
    if overhead is not None:
        context.set_trailing_metadata(((OVERHEAD_KEY, f"{overhead:.2f}"),))
    return reply


def _begin(options: TracerOptions) -> local.TensorflowSession:
    try:
        scratch = Path(tempfile.mkdtemp(prefix="tfperf-"))
    except OSError as error:
        raise CaptureError("not_written", f"the job has no place for temporary files: {error}") from error
    return local.TensorflowSession(options, scratch)


def _reply(file: Path) -> bytes:
    """Return the ProfileResponse; put together here, because a protobuf message would copy the trace once more."""
    from tfperf.wire.contents import look_into

    contents = look_into(file)
    if contents.size_bytes > LARGEST_MESSAGE - 100:
        size = f"{contents.size_bytes / 1e9:.1f} GB"
        raise _RefusalError(
            "RESOURCE_EXHAUSTED", f"the trace takes {size}, more than a reply can hold; profile for less time"
        )
    head = reply_head(contents.size_bytes, empty_trace=not contents.event_count)
    with file.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as trace:
        return b"".join((head, trace))


def _refuse(error: Exception, context: Any) -> NoReturn:
    """End the call with a status as TensorFlow's server gives it, where that one has it."""
    import grpc

    busy = isinstance(error, CaptureError) and error.reason == "busy"
    code = error.code if isinstance(error, _RefusalError) else "INTERNAL"
    context.abort(grpc.StatusCode[code], BUSY if busy else str(error))
    raise AssertionError("abort returned")
