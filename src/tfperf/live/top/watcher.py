"""One worker, asked again and again: never while it still answers, and by one thread, so that never two ask at once."""

from __future__ import annotations

import itertools
import os
import threading
import time
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.errors import CaptureError, TfperfError
from tfperf.capture.address import Address
from tfperf.capture.client import PendingReply, ProfilerClient, profile_request
from tfperf.capture.connection import check_greeting
from tfperf.formats.wire.trace_file import SUFFIX
from tfperf.live.top.analyst import Analyst
from tfperf.live.top.board import Board
from tfperf.live.top.measured import Measured
from tfperf.live.top.pace import Pace
from tfperf.live.top.recording import record_trace
from tfperf.live.top.request import TopRequest
from tfperf.live.top.sample import GONE, Sample, described

_RECEIVERS = 4
"""How many replies are in memory at once."""
_LARGEST_REPLY = 200_000_000
_LONGEST_ANSWER_S = 600.0
_TRANSFER_S = 60.0
_LOOK_S = 5.0
"""How often to look whether a server that takes its time is still there."""
_TERMINATE_S = 0.3
_NOWHERE = Path("/dev/null/tfperf-top")
"""Older servers write a trace into a folder instead of sending it. This one nobody can make, so they refuse."""


class Shared(Struct, frozen=True):
    """What the threads of all workers share."""

    request: TopRequest
    board: Board
    analyst: Analyst
    origin_s: float
    """When the first round began, on the monotonic clock."""
    receiving: threading.Semaphore


class _Answer(Struct, kw_only=True):
    """What is known of a sample while it comes: fields of `Sample`, and what the server measured."""

    time_s: float
    duration_s: float
    answer_s: float = 0.0
    size_bytes: int = 0
    overhead_percent: float | None = None
    measured: Measured | None = None


def shared_by_all(request: TopRequest, board: Board) -> Shared:
    """Return what the threads of all workers share."""
    return Shared(request, board, Analyst(), time.monotonic(), threading.Semaphore(_RECEIVERS))


class Watcher:
    """Samples one worker in a thread of its own until it is ended, or has given as many samples as were asked for."""

    def __init__(self, address: Address, shared: Shared) -> None:
        self.address = address
        self._shared, request = shared, shared.request
        self._pace = Pace(duration_s=request.duration_s, interval_s=request.interval_s, is_here=address.is_here)
        self._wake = threading.Event()
        """Set when there is something new: an answer, the end, a pause that is over."""
        self._is_ended = self._is_paused = self._records_next = False
        self.keeps_trace = False
        """Whether the reply of the latest sample stays in memory, so that it can be recorded."""
        self._trace = b""
        self.thread = threading.Thread(target=self._run, name="tfperf-watcher", daemon=True)

    def end(self) -> None:
        """End the session that goes on, if any, and the thread; does not wait for it."""
        self._is_ended = True
        self._wake.set()

    def pause(self, is_paused: bool) -> None:
        """Ask no more until the pause is over; a request that goes on is not broken off."""
        self._is_paused = is_paused
        self._wake.set()

    def record(self) -> None:
        """Write the latest sample into the logdir, or if it is not in memory any more, the next one."""
        if self._trace:
            threading.Thread(target=self._write, args=(self._trace,), name="tfperf-record", daemon=True).start()
        else:
            self._records_next = True
            self._shared.board.tell(f"the next sample of {self.address} will be recorded")

    def _run(self) -> None:
        try:
            self._sample_on()
        except BaseException as error:  # A bug is shown where the screen is not in its way.
            self._shared.board.failure = error

    def _sample_on(self) -> None:
        most = self._shared.request.samples
        counts = itertools.count(1) if most is None else iter(range(1, most + 1))
        due_s = self._shared.origin_s
        for number in counts:
            while not self._is_ended and (self._is_paused or time.monotonic() < due_s):
                self._wait(None if self._is_paused else due_s - time.monotonic())
            if self._is_ended:
                return
            begun_s = time.monotonic()
            self._pace.begin(begun_s)
            sample = self._sample(number)
            if self._is_ended:
                return
            due_s = self._pace.due_s(begun_s, sample, self._shared.origin_s)
            sample = replace(sample, profiled_percent=self._pace.profiled_percent(due_s))
            self._shared.board.add(self.address, sample, is_kept=bool(self._trace))

    def _wait(self, seconds: float | None) -> None:
        self._wake.wait(None if seconds is None else max(seconds, 0.0))
        self._wake.clear()

    def _sample(self, number: int) -> Sample:
        """Ask once, and return what came of it."""
        answer, error = _Answer(time_s=time.time(), duration_s=self._pace.next_duration_s), None
        self._shared.board.asking(self.address, time.monotonic())
        try:
            self._ask(number, answer)
        except TfperfError as raised:
            error = raised
        finally:
            self._shared.board.asking(self.address, None)
        reason, message = described(error, self.address)
        self._pace.learn(answer.measured, answer.answer_s, answer.overhead_percent)
        return Sample(
            number=number,
            time_s=answer.time_s,
            duration_s=answer.duration_s,
            answer_s=answer.answer_s,
            size_bytes=answer.size_bytes,
            measured=answer.measured,
            reason=reason,
            message=message,
            slowdown_percent=self._pace.slowdown_percent,
        )

    def _ask(self, number: int, answer: _Answer) -> None:
        """Take a sample and have it analyzed; what is known of it is noted as it comes. Raises TfperfError."""
        request, session = self._shared.request, f"tfperf-top-{os.getpid()}-{id(self)}-{number}"
        place = _NOWHERE / session / f"{self.address.label}{SUFFIX}"
        # A channel for each request: one that broke would wait before it connects again, and buffers grow with replies.
        with ProfilerClient(self.address, tls_ca=request.tls_ca, max_reply_bytes=_LARGEST_REPLY) as client:
            client.connect()
            asked_s = time.monotonic()
            message = profile_request(request.options, max(1, round(1000 * answer.duration_s)), place)
            call = client.profile(message, _LONGEST_ANSWER_S)
            call.when_answered(self._wake.set)
            self._wait_for_answer(client, call, session, asked_s + answer.duration_s)
            answer.answer_s = time.monotonic() - asked_s
            with self._shared.receiving:
                trace = self._receive(call)
                self._shared.board.asking(self.address, None)
                answer.size_bytes, answer.overhead_percent = len(trace), call.overhead_percent()
                self._keep(trace)
                answer.measured = self._shared.analyst.measure(trace)

    def _receive(self, call: PendingReply) -> bytes:
        """Return the trace in a reply; raises CaptureError if there is none."""
        limit = threading.Timer(_TRANSFER_S, call.expire)
        limit.daemon = True
        limit.start()
        try:
            reply = call.result()
        finally:
            limit.cancel()
        if reply.empty_trace and not reply.xspace:
            raise CaptureError("idle", f"{self.address}: the job did nothing that the profiler records")
        if not reply.xspace:
            problem = f"the TensorFlow of {self.address} is too old: its server does not send traces"
            raise CaptureError("unsupported", f"{problem}; use tfperf capture")
        trace: bytes = reply.xspace
        return trace

    def _wait_for_answer(self, client: ProfilerClient, call: PendingReply, session: str, due_s: float) -> None:
        """Wait until a reply begins to come, or the call has failed.

        However long the server takes, no other request is made. Raises CaptureError if it is not there any more.
        """
        look_s = due_s + _LOOK_S
        while not call.is_answered:
            if self._is_ended:
                self._end_session(client, session)
                raise CaptureError("interrupted", "the live view has ended")
            if time.monotonic() > look_s:
                # Only a connection: whether the machine and the process are there.
                self._check_there()
                look_s = time.monotonic() + _LOOK_S
            self._wait(look_s - time.monotonic())

    def _check_there(self) -> None:
        """Raise CaptureError if the server is gone. One that is silent, such as a stopped process, may go on later."""
        try:
            check_greeting(self.address, tls_ca=self._shared.request.tls_ca)
        except CaptureError as error:
            if error.reason in GONE:
                raise

    def _end_session(self, client: ProfilerClient, session: str) -> None:
        """Have the server end the session that nobody waits for any more, so that the job is not profiled in vain."""
        ended = threading.Event()
        client.terminate(session).when_answered(ended.set)
        ended.wait(_TERMINATE_S)

    def _keep(self, trace: bytes) -> None:
        if self._records_next or self._shared.request.records_all:
            self._records_next = False
            self._write(trace)
        self._trace = trace if self.keeps_trace else b""

    def _write(self, trace: bytes) -> None:
        self._shared.board.tell(record_trace(self._shared.request.logdir, self.address, trace))
