"""The methods of the server of `serve`: one session of TensorFlow's profiler at a time, returned as a reply."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from tfperf.base.available_memory import resident_bytes
from tfperf.base.errors import CaptureError, TfperfError
from tfperf.base.units import format_bytes
from tfperf.capture import local
from tfperf.capture.job_facts import job_facts
from tfperf.capture.tensorflow_session import TensorflowSession
from tfperf.capture.tracer_options import TracerOptions
from tfperf.formats.wire.profiler_service import OVERHEAD_KEY, message_class, read_message
from tfperf.formats.wire.schema import LARGEST_MESSAGE

if TYPE_CHECKING:
    from tfperf.formats.wire.contents import Contents

BUSY = "Another profiling session active."
"""TensorFlow's own text, which its clients recognize."""
_MAX_DELAY_S = 60.0
_LONGEST_S = 300.0
"""How long a session may last, and a recording from which nobody fetches a snapshot."""
_LOOK_S = 1.0
"""How often to look at the memory of the job while it is profiled."""


class _RefusalError(Exception):
    """A call that ends with a status; `code` is its name in gRPC."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


class _RequestedSession(Struct, frozen=True):
    """What a ProfileRequest asks for."""

    options: TracerOptions
    session_id: str
    duration_s: float
    delay_s: float
    ended: threading.Event = field(default_factory=threading.Event)
    """Set by Terminate, by the end of the call, and by the end of the server."""

    @classmethod
    def parse(cls, data: bytes) -> _RequestedSession:
        """Read a ProfileRequest; raises _RefusalError if it is invalid."""
        request = _read("ProfileRequest", data)
        if not request.emit_xspace:
            problem = "this server only returns traces and never writes files for a client"
            fix = "use `tfperf capture`, or any client that sets emit_xspace"
            raise _RefusalError("FAILED_PRECONDITION", f"{problem}: {fix}")
        opts = request.opts
        options = TracerOptions()  # Without a version, TensorFlow ignores the levels and takes its defaults.
        if opts.version:
            try:
                options = TracerOptions(opts.host_tracer_level, opts.device_tracer_level, opts.python_tracer_level)
            except TfperfError as error:
                raise _RefusalError("INVALID_ARGUMENT", str(error)) from error
        delay_s = max(0.0, (opts.start_timestamp_ns - time.time_ns()) / 1e9)
        if delay_s > _MAX_DELAY_S:
            ahead = f"the start is {delay_s:.0f} s ahead on this machine's clock"
            problem = f"{ahead}, and {_MAX_DELAY_S:.0f} s is the limit"
            raise _RefusalError("INVALID_ARGUMENT", f"{problem}; do the clocks agree?")
        duration_s = (opts.duration_ms or request.duration_ms) / 1000
        if duration_s > _LONGEST_S:
            problem = f"a duration of {duration_s:g} s, and {_LONGEST_S:.0f} s is the limit"
            raise _RefusalError("INVALID_ARGUMENT", f"{problem}; profile several times instead")
        return cls(options, request.session_id or opts.session_id, duration_s, delay_s)


def _read(message: str, data: bytes) -> Any:
    try:
        return read_message(message, data)
    except ValueError as error:
        raise _RefusalError("INVALID_ARGUMENT", f"the request is not a {message}") from error


class _Continuous(Struct, frozen=True):
    """A recording without an end."""

    options: TracerOptions
    session: TensorflowSession
    ended: threading.Event = field(default_factory=threading.Event)
    """Set when it is no longer current."""


class ServerMethods:
    """The methods of the server, which share one session."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._current: _RequestedSession | None = None
        self._finished = False
        self._unanswered = 0
        self._continuous: _Continuous | None = None

    def by_name(self) -> dict[str, Callable[[bytes, Any], bytes]]:
        """Return the method of each name in the service."""
        methods = {
            "Profile": self._profile,
            "Terminate": self._terminate,
            "StartContinuousProfiling": self._start_continuous,
            "GetSnapshot": self._snapshot,
            "StopContinuousProfiling": self._stop_continuous,
        }
        return {name: partial(_answer, method) for name, method in methods.items()}

    def finish(self, export_seconds: float, send_seconds: float) -> None:
        """End the session, start no other, and wait until the trace is taken and sent."""
        with self._lock:
            self._finished = True
            if self._current:
                self._current.ended.set()
            if self._continuous:
                self._take_continuous().session.drop()
            self._lock.wait_for(lambda: self._current is None, export_seconds)
            self._lock.wait_for(lambda: not self._unanswered, send_seconds)

    def _profile(self, data: bytes, context: Any) -> bytes:
        asked = _RequestedSession.parse(data)

        def over() -> None:
            """End the session: the client has its reply, or is gone."""
            asked.ended.set()
            with self._lock:
                self._unanswered -= 1
                self._lock.notify_all()

        with self._lock:
            self._refuse_unless_free()
            self._current = asked
            self._unanswered += 1
        try:
            if not context.add_callback(over):
                over()
            return _record(asked, context)
        finally:
            with self._lock:
                self._current = None
                self._lock.notify_all()

    def _terminate(self, data: bytes, context: Any) -> bytes:
        """End the session of that id: a client can end its own only, so no id ends none that has one."""
        session_id = _read("TerminateRequest", data).session_id
        current = self._current  # Without the lock: clients take the answer for a sign of life.
        if current and session_id == current.session_id:
            current.ended.set()
        return b""  # A TerminateResponse has no fields.

    def _start_continuous(self, data: bytes, context: Any) -> bytes:
        asked = _RequestedSession.parse(data)
        with self._lock:
            self._refuse_unless_free()
            self._record_on(asked.options)
        return b""

    def _snapshot(self, data: bytes, context: Any) -> bytes:
        """Return what was recorded since the last snapshot, and go on recording."""
        with self._lock:
            recording = self._take_continuous()
            with recording.session.export() as file:
                self._record_on(recording.options)
                contents, session = _counted(file), recording.session
                facts = replace(job_facts(), **session.facts)
                return _reply(file, contents, facts.to_bytes(session.record, contents.start_ns))

    def _stop_continuous(self, data: bytes, context: Any) -> bytes:
        with self._lock:
            self._take_continuous().session.drop()
        return b""

    def _refuse_unless_free(self) -> None:
        if self._finished:
            raise _RefusalError("UNAVAILABLE", "the server is being stopped")
        if self._current or self._continuous or local.is_running():
            raise _RefusalError("INTERNAL", BUSY)

    def _record_on(self, options: TracerOptions) -> None:
        """Start recording; if nobody fetches a snapshot, end it before it fills the memory of the job."""
        recording = self._continuous = _Continuous(options, _start_session(options))

        def expire() -> None:
            _wait(recording.ended, _LONGEST_S)
            with self._lock:
                if recording is self._continuous:
                    self._take_continuous().session.drop()

        threading.Thread(target=expire, daemon=True).start()

    def _take_continuous(self) -> _Continuous:
        """Return the recording, which is no longer current; raises _RefusalError if there is none."""
        recording, self._continuous = self._continuous, None
        if recording is None:
            raise _RefusalError("NOT_FOUND", "No continuous profiling session found.")
        recording.ended.set()
        return recording


def _record(asked: _RequestedSession, context: Any) -> bytes:
    if asked.ended.wait(asked.delay_s):
        raise _RefusalError("CANCELLED", "the session was ended before it started")
    session = _start_session(asked.options)
    started_s = time.perf_counter()
    _wait(asked.ended, asked.duration_s)
    ended_s = time.perf_counter()
    if not context.is_active():
        session.drop()
        raise _RefusalError("CANCELLED", "the client is gone")
    with session.export() as file:
        contents = _counted(file)
        overhead = local.step_times.overhead(started_s, ended_s, contents.longest_recording_s)
        facts = replace(job_facts(), **session.facts, **overhead)
        reply = _reply(file, contents, facts.to_bytes(session.record, contents.start_ns))
    if "overhead_percent" in overhead:
        context.set_trailing_metadata(((OVERHEAD_KEY, f"{overhead['overhead_percent']:.2f}"),))
    return reply


def _wait(ended: threading.Event, seconds: float) -> None:
    """Wait for the end of a session, so long at most; it comes early where the job grows by more than a reply holds."""
    end_s, most_bytes = time.monotonic() + seconds, resident_bytes() + LARGEST_MESSAGE
    while (left_s := end_s - time.monotonic()) > 0 and not ended.wait(min(left_s, _LOOK_S)):
        if resident_bytes() > most_bytes:
            return


def _start_session(options: TracerOptions) -> TensorflowSession:
    try:
        scratch = Path(tempfile.mkdtemp(prefix="tfperf-"))
    except OSError as error:
        raise CaptureError("not_written", f"the job has no space for temporary files: {error}") from error
    return TensorflowSession(options, scratch)


def _counted(file: Path) -> Contents:
    from tfperf.formats.wire.contents import look_into

    return look_into(file)


def _reply(file: Path, contents: Contents, addition: bytes) -> bytes:
    """Return the ProfileResponse with a trace, and behind it what is known about the job."""
    if contents.size_bytes + len(addition) > LARGEST_MESSAGE - 100:
        problem = (
            f"the trace takes {format_bytes(contents.size_bytes)}, more than a reply can hold; use a shorter duration"
        )
        raise _RefusalError("RESOURCE_EXHAUSTED", problem)
    reply = message_class("ProfileResponse")(empty_trace=not contents.event_count, xspace=file.read_bytes() + addition)
    return bytes(reply.SerializeToString())


def _answer(method: Callable[[bytes, Any], bytes], data: bytes, context: Any) -> bytes:
    """Answer a call; an error becomes the status that TensorFlow's server has for it."""
    import grpc

    try:
        return method(data, context)
    except (_RefusalError, TfperfError) as error:
        is_busy = isinstance(error, CaptureError) and error.reason == "busy"
        code = error.code if isinstance(error, _RefusalError) else "INTERNAL"
        context.abort(grpc.StatusCode[code], BUSY if is_busy else str(error))
        raise AssertionError("abort returned") from error
