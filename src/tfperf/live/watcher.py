"""Samples workers: one thread for each, one process that analyzes, and the pace that limits what samples cost.

A worker is never asked while it still answers. What can be measured of the cost, and what each figure rests on:

- the server's own figure, which `tfperf.serve` sends with each trace: the median step before the profile against the
  median step in it;
- steps that the program numbers (`tfperf.step`, Keras 2): so many steps were made between two samples, in so much time.
  That time has the pauses between steps too, so the steps outside of samples are no slower than that, and what samples
  add is at least the difference;
- the CPU time of the analysis, where the job is on this machine.

Without the first two, as for a job of Keras 3 with TensorFlow's own server, the cost is unknown.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from tfperf.analysis.parallel.worker_pool import WorkerDiedError, WorkerProcess
from tfperf.base.errors import CaptureError, TfperfError
from tfperf.capture.address import Address
from tfperf.capture.client import PendingReply, ProfilerClient, check_greeting, profile_request
from tfperf.capture.run_folder import RunFolder
from tfperf.formats.wire.trace_file import SUFFIX
from tfperf.live.board import Board, TopRequest
from tfperf.live.sample import GONE, Measured, NumberedSteps, Sample, described, measure, stay_in_the_background

if TYPE_CHECKING:
    from typing_extensions import Self

_END_S = 0.4
"""How long requests that go on may take to be ended."""


class Watch:
    """Samples all workers of a request; `with` ends that. `on_sample` is called with each sample, from its thread."""

    def __init__(self, request: TopRequest, on_sample: Callable[[Address, Sample], object] | None = None) -> None:
        self.request = request
        self.board = Board(request.workers, on_sample)
        self._shared = shared_by_all(request, self.board)
        self._watchers = {address: Watcher(address, self._shared) for address in request.workers}

    def __enter__(self) -> Self:
        for watcher in self._watchers.values():
            watcher.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    @property
    def is_done(self) -> bool:
        """Tell whether all workers have given as many samples as were asked for."""
        return not any(watcher.thread.is_alive() for watcher in self._watchers.values())

    def choose(self, address: Address) -> None:
        """Keep the replies of this worker in memory until the next one comes, so that they can be recorded."""
        for watcher in self._watchers.values():
            watcher.keeps_trace = watcher.address == address

    def pause(self, is_paused: bool) -> None:
        """Ask no worker until the pause is over."""
        for watcher in self._watchers.values():
            watcher.pause(is_paused)

    def record(self, address: Address) -> None:
        """Write the latest sample of a worker into the logdir, or the next one."""
        self._watchers[address].record()

    def end(self) -> None:
        """End the sessions that go on and all processes; whoever takes longer is not waited for."""
        for watcher in self._watchers.values():
            watcher.end()
        self._shared.analyst.ask_to_end()
        until_s = time.monotonic() + _END_S
        for watcher in self._watchers.values():
            if watcher.thread.ident is not None:
                watcher.thread.join(max(until_s - time.monotonic(), 0.0))
        self._shared.analyst.end()


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
                if self._records_next or self._shared.request.records_all:
                    self._records_next = False
                    self._write(trace)
                self._trace = trace if self.keeps_trace else b""
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
                # Nobody waits for this session any more: the job is not profiled in vain.
                ended = threading.Event()
                client.terminate(session).when_answered(ended.set)
                ended.wait(_TERMINATE_S)
                raise CaptureError("interrupted", "the live view has ended")
            if time.monotonic() > look_s:
                # Only a connection: whether the machine and the process are there. A server that is silent, such as a
                # stopped process, may go on later.
                try:
                    check_greeting(self.address, tls_ca=self._shared.request.tls_ca)
                except CaptureError as error:
                    if error.reason in GONE:
                        raise
                look_s = time.monotonic() + _LOOK_S
            self._wait(look_s - time.monotonic())

    def _write(self, trace: bytes) -> None:
        self._shared.board.tell(record_trace(self._shared.request.logdir, self.address, trace))


_LONGEST_S = 120.0
"""How long the analysis of a sample may take: it holds up those of other workers."""


class Analyst:
    """A process that is started when there is a sample, and again if it dies of one. Threads may share it."""

    def __init__(self) -> None:
        self._process: WorkerProcess | None = None
        self._lock = threading.Lock()
        self._is_ended = False

    def measure(self, trace: bytes) -> Measured:
        """Return the figures of a serialized XSpace; raises TfperfError if there are none, whatever the reason."""
        with self._lock:
            if self._is_ended:
                raise CaptureError("interrupted", "the sample came too late to be analyzed")
            try:
                measured = self._measure(trace)
            except (WorkerDiedError, MemoryError) as error:
                problem = f"the analysis of a sample ran out of memory, or took over {_LONGEST_S:g} s"
                raise CaptureError("bad_reply", f"{problem}; use a shorter --duration") from error
            except TfperfError:
                raise
            except Exception as error:  # One odd trace must not end the view of all workers.
                problem = f"a bug of tfperf keeps the sample from being analyzed: {type(error).__name__}: {error}"
                raise CaptureError("bad_reply", f"{problem}; press r and report it with the trace") from error
        return measured

    def _measure(self, trace: bytes) -> Measured:
        if self._process is not None and not self._process.is_alive:
            self._process.end()
            self._process = None
        if self._process is None:
            self._process = WorkerProcess()
            self._process.call(stay_in_the_background)
        limit = threading.Timer(_LONGEST_S, self._process.ask_to_end)
        limit.daemon = True
        limit.start()
        try:
            measured: Measured = self._process.call(measure, trace)[0]
        finally:
            limit.cancel()
        return measured

    def ask_to_end(self) -> None:
        """End the process, whatever it is doing, and start no other; does not wait."""
        was_asked, self._is_ended = self._is_ended, True
        # A second signal would come while the process ends.
        if self._process is not None and not was_asked:
            self._process.ask_to_end()

    def end(self) -> None:
        """End the process, and wait until it is gone."""
        self.ask_to_end()
        if self._process is not None:
            self._process.end()


MOST_COST = 0.02
"""The share of its time that samples may take from a job, where it is measured."""
MOST_ANALYSIS = 0.05
"""The share of one processor that analysis may take on the machine of the job."""
LONGEST_PAUSE_S = 300.0
_LONGEST_RETRY_S = 60.0
_LONGEST_STRETCH = 8
"""A sample without a whole step is followed by one twice as long, up to so many times the duration."""
_MANY_STEPS = 8
"""So many whole steps are enough to shorten a sample that was made longer."""
_LEAST_BETWEEN = 5
"""Fewer steps between two samples say nothing about their time."""
_REMEMBERED = 5
_EARLY = 0.25
"""By what part of an interval a sample may come sooner than it is due."""


class Pace(Struct, kw_only=True):
    """The pace at which one worker is sampled: every `interval_s`, for `duration_s`, and more slowly if that costs."""

    duration_s: float
    interval_s: float
    is_here: bool = False
    """Whether the job is on this machine."""
    _stretch: int = 1
    _failures: int = 0
    _begun_s: float | None = None
    _recorded_s: float = 0.0
    _before: NumberedSteps | None = None
    _analysis_s: deque[float] = field(default_factory=lambda: deque(maxlen=2))
    """CPU time of the last two analyses; of these the shorter counts, since the first one imports its modules."""
    _slowdowns: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    @property
    def next_duration_s(self) -> float:
        """Return how long the next sample is to record."""
        return self.duration_s * self._stretch

    @property
    def slowdown_percent(self) -> float | None:
        """Return by how much profiling makes steps longer, the median of the latest samples; None: unknown."""
        return median(self._slowdowns) if self._slowdowns else None

    def begin(self, now_s: float) -> None:
        """Note that a sample begins, on the monotonic clock."""
        if self._begun_s is None:
            self._begun_s = now_s

    def profiled_percent(self, due_s: float) -> float:
        """Return the share of the time in which the worker records: from the first sample until the next one begins."""
        return 100.0 * self._recorded_s / max(due_s - (self._begun_s or 0.0), self.interval_s)

    def learn(self, measured: Measured | None, answer_s: float, overhead_percent: float | None) -> None:
        """Take into account what the last request came to; `overhead_percent` is what the server measured."""
        self._recorded_s += min(answer_s, self.next_duration_s)
        if measured is None:
            self._failures, self._before = self._failures + 1, None
            return
        self._failures = 0
        self._analysis_s.append(measured.cpu_s)
        between = slowdown_between(self._before, measured)
        stated = overhead_percent if overhead_percent is not None else between
        if stated is not None:
            self._slowdowns.append(stated)
        self._before = measured.numbered
        if measured.step_ms is None:
            self._stretch = min(2 * self._stretch, _LONGEST_STRETCH)
        elif measured.step_count >= 2 * _MANY_STEPS:
            self._stretch = max(self._stretch // 2, 1)

    def due_s(self, begun_s: float, last: Sample, origin_s: float) -> float:
        """Return when the next sample begins, on the monotonic clock: a multiple of the interval after `origin_s`.

        So all workers are asked at the same moments: workers that train in step all wait for one that is slowed.
        """
        rounds = (begun_s + self.pause_s(last) - origin_s) / self.interval_s
        return origin_s + math.ceil(rounds - _EARLY) * self.interval_s

    def pause_s(self, last: Sample) -> float:
        """Return how long after the begin of the last sample the next one may begin."""
        if last.measured is None and last.reason != "idle":
            # A port is soon tried; a server that refuses, or sends garbage, is left alone for longer.
            tries = 0 if last.is_gone else min(self._failures, 8)
            return max(min(self.interval_s * 2.0**tries, _LONGEST_RETRY_S), self.interval_s)
        pauses = [self.interval_s * self._stretch, 2 * last.answer_s]
        if self.slowdown_percent is not None:
            pauses.append(min(last.answer_s * self.slowdown_percent / 100.0 / MOST_COST, LONGEST_PAUSE_S))
        if self.is_here and len(self._analysis_s) > 1:
            pauses.append(min(min(self._analysis_s) / MOST_ANALYSIS, LONGEST_PAUSE_S))
        return max(pauses)


def slowdown_between(before: NumberedSteps | None, now: Measured) -> float | None:
    """Return by how much longer steps are in a sample than between it and the one before, at least; None: unknown."""
    after = now.numbered
    if before is None or after is None or after.first - before.last < _LEAST_BETWEEN or after.last == after.first:
        return None
    between_ns = (after.first_ns - before.last_ns) / (after.first - before.last)
    within_ns = (after.last_ns - after.first_ns) / (after.last - after.first)
    return max(100.0 * (within_ns / between_ns - 1.0), 0.0) if between_ns > 0 else None


def record_trace(logdir: Path, address: Address, trace: bytes) -> str:
    """Write a trace into a run folder of its own; return a line that says where it is, or why it is nowhere."""
    try:
        folder = RunFolder(logdir)
        try:
            path, _ = folder.save(address.label, trace)
        finally:
            folder.drop_if_empty()
    except TfperfError as error:
        return f"not recorded: {error}"
    if path is None:
        return "not recorded: the sample has no events"
    return f"recorded: {path} (tfperf analyze {path.parent})"
