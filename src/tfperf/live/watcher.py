"""Samples workers: one thread for each, one process for analysis, and the pace that limits the cost of samples.

A worker gets no request while it still answers the last one. Sources of the measured cost:

- the server's own figure, which `tfperf.serve` sends with each trace: it compares the median step before the profile
  with the median step in it;
- step numbers of the program (`tfperf.step`, Keras 2): the number of steps and the time between two samples. This time
  includes pauses between steps, so steps outside of samples are at least that fast, and the difference is a lower
  bound of the cost;
- the CPU time of the analysis, if the job is on this machine.

Without the first two, as for Keras 3 with TensorFlow's own server, the cost is unknown.
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
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from tfperf.analysis.parallel.worker_pool import WorkerDiedError, WorkerProcess
from tfperf.base.errors import CaptureError, TfperfError
from tfperf.capture.address import Address
from tfperf.capture.client import PendingReply, ProfilerClient, check_greeting, profile_request
from tfperf.capture.run_folder import RunFolder
from tfperf.formats.wire.trace_file import SUFFIX
from tfperf.live.board import Board, TopRequest
from tfperf.live.sample import (
    GONE,
    Measured,
    NumberedSteps,
    Sample,
    described,
    measure,
    stay_in_the_background,
    write_page,
)

if TYPE_CHECKING:
    from typing_extensions import Self

_END_S = 0.4
"""Time limit for ending pending requests."""


class Watch:
    """Samples all workers of a request; `with` ends it. `on_sample` is called with each sample, from its thread."""

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
        """Return whether all workers have given the requested number of samples."""
        return not any(watcher.thread.is_alive() for watcher in self._watchers.values())

    def choose(self, address: Address) -> None:
        """Keep each reply of this worker in memory until the next one, so that it can be recorded."""
        for watcher in self._watchers.values():
            watcher.keeps_trace = watcher.address == address

    def pause(self, is_paused: bool) -> None:
        """Send no requests until the end of the pause."""
        for watcher in self._watchers.values():
            watcher.pause(is_paused)

    def record(self, address: Address) -> None:
        """Write the latest sample of a worker into the logdir, or the next one."""
        self._watchers[address].record()

    def open_page(self, address: Address) -> None:
        """Write the latest sample of a worker and its HTML report into the logdir, and open the report."""
        self._watchers[address].open_page()

    def end(self) -> None:
        """End all sessions and processes, without waiting for late ones."""
        for watcher in self._watchers.values():
            watcher.end()
        self._shared.analyst.ask_to_end()
        until_s = time.monotonic() + _END_S
        for watcher in self._watchers.values():
            if watcher.thread.ident is not None:
                watcher.thread.join(max(until_s - time.monotonic(), 0.0))
        self._shared.analyst.end()


_RECEIVERS = 4
_LARGEST_REPLY = 200_000_000
_LONGEST_ANSWER_S = 600.0
_TRANSFER_S = 60.0
_LOOK_S = 5.0
"""Interval of checks whether a slow server still exists."""
_TERMINATE_S = 0.3
_NOWHERE = Path("/dev/null/tfperf-top")
"""Older servers write a trace into a folder instead of sending it. This folder cannot be created, so they refuse."""


class Shared(Struct, frozen=True):
    """State shared by the threads of all workers."""

    request: TopRequest
    board: Board
    analyst: Analyst
    origin_s: float
    """Start of the first round, on the monotonic clock."""
    receiving: threading.Semaphore


class _Answer(Struct, kw_only=True):
    """The data of an incomplete sample: fields of `Sample`, and the server's measurements."""

    time_s: float
    duration_s: float
    answer_s: float = 0.0
    size_bytes: int = 0
    overhead_percent: float | None = None
    measured: Measured | None = None


def shared_by_all(request: TopRequest, board: Board) -> Shared:
    """Return the state shared by the threads of all workers."""
    return Shared(request, board, Analyst(), time.monotonic(), threading.Semaphore(_RECEIVERS))


class Watcher:
    """Samples one worker in its own thread until `end`, or the requested number of samples."""

    def __init__(self, address: Address, shared: Shared) -> None:
        self.address = address
        self._shared, request = shared, shared.request
        self._pace = Pace(duration_s=request.duration_s, interval_s=request.interval_s, is_here=address.is_here)
        self._wake = threading.Event()
        """Set by an answer, the end, or the end of a pause."""
        self._is_ended = self._is_paused = self._records_next = False
        self.keeps_trace = False
        """Whether the reply of the latest sample stays in memory, so that it can be recorded."""
        self._trace = b""
        self.thread = threading.Thread(target=self._run, name="tfperf-watcher", daemon=True)

    def end(self) -> None:
        """End the current session, if any, and the thread, without waiting for it."""
        self._is_ended = True
        self._wake.set()

    def pause(self, is_paused: bool) -> None:
        """Send no requests until the end of the pause; a running request continues."""
        self._is_paused = is_paused
        self._wake.set()

    def record(self) -> None:
        """Write the latest sample into the logdir or, if it is no longer in memory, the next one."""
        if self._trace:
            threading.Thread(target=self._write, args=(self._trace,), name="tfperf-record", daemon=True).start()
        else:
            self._records_next = True
            self._shared.board.tell(f"the next sample of {self.address} will be recorded")

    def open_page(self) -> None:
        """Write the latest sample and its HTML report into the logdir, and open the report in a browser."""
        if self._trace:
            self._shared.board.tell("writing the page")
            threading.Thread(target=self._write_page, args=(self._trace,), name="tfperf-page", daemon=True).start()
        else:
            self._shared.board.tell(f"no sample of {self.address} is in memory yet; press o after the next one")

    def _write_page(self, trace: bytes) -> None:
        import webbrowser

        from tfperf.export.timeline.viewer_server import has_browser

        path, note = record_trace(self._shared.request.logdir, self.address, trace)
        if path is not None:
            page = path.with_name(f"{path.name.removesuffix(SUFFIX)}.html")
            try:
                self._shared.analyst.write_page(path, page)
                is_open = has_browser() and webbrowser.open(page.resolve().as_uri())
                note = f"opened {page}" if is_open else f"wrote {page}; no browser can open on this machine"
            except TfperfError as error:
                note = f"no page: {error}"
        self._shared.board.tell(note)

    def _run(self) -> None:
        try:
            self._sample_on()
        except BaseException as error:  # Report a bug after the screen is closed.
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
        """Take and analyze a sample; store each result in `answer` at once. Raises TfperfError."""
        request, session = self._shared.request, f"tfperf-top-{os.getpid()}-{id(self)}-{number}"
        place = _NOWHERE / session / f"{self.address.label}{SUFFIX}"
        # One channel per request: a broken one would pause before it reconnects, and buffers grow with replies.
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
        limit = threading.Timer(_TRANSFER_S, call.expire)
        limit.daemon = True
        limit.start()
        try:
            reply = call.result()
        finally:
            limit.cancel()
        if reply.empty_trace and not reply.xspace:
            raise CaptureError("idle", f"{self.address}: no events were recorded")
        if not reply.xspace:
            problem = f"TensorFlow at {self.address} is too old: its server does not send traces"
            raise CaptureError("unsupported", f"{problem}; use tfperf capture")
        trace: bytes = reply.xspace
        return trace

    def _wait_for_answer(self, client: ProfilerClient, call: PendingReply, session: str, due_s: float) -> None:
        """Wait until a reply starts, or the call has failed; raises CaptureError if the server no longer exists."""
        look_s = due_s + _LOOK_S
        while not call.is_answered:
            if self._is_ended:
                # No code waits for this session any more, so end it.
                ended = threading.Event()
                client.terminate(session).when_answered(ended.set)
                ended.wait(_TERMINATE_S)
                raise CaptureError("interrupted", "the live view has ended")
            if time.monotonic() > look_s:
                # A plain connection checks only that the process exists; a stopped one is silent but may continue.
                try:
                    check_greeting(self.address, tls_ca=self._shared.request.tls_ca)
                except CaptureError as error:
                    if error.reason in GONE:
                        raise
                look_s = time.monotonic() + _LOOK_S
            self._wait(look_s - time.monotonic())

    def _write(self, trace: bytes) -> None:
        self._shared.board.tell(record_trace(self._shared.request.logdir, self.address, trace)[1])


_LONGEST_S = 120.0
"""Time limit for analyzing a sample, which blocks those of other workers."""


class Analyst:
    """A process that starts with the first sample, and again after a crash. Thread-safe."""

    def __init__(self) -> None:
        self._process: WorkerProcess | None = None
        self._lock = threading.Lock()
        self._is_ended = False

    def measure(self, trace: bytes) -> Measured:
        """Return the figures of a serialized XSpace; raises TfperfError for any failure."""
        measured: Measured = self._answer(measure, trace)
        return measured

    def write_page(self, trace: Path, page: Path) -> None:
        """Write the HTML report of a recorded sample; raises TfperfError for any failure."""
        self._answer(write_page, trace, page)

    def _answer(self, function: Callable[..., Any], *arguments: object) -> Any:
        with self._lock:
            if self._is_ended:
                raise CaptureError("interrupted", "the sample was received too late for analysis")
            try:
                return self._call(function, *arguments)
            except (WorkerDiedError, MemoryError) as error:
                problem = f"the analysis of a sample ran out of memory or took over {_LONGEST_S:g} s"
                raise CaptureError("bad_reply", f"{problem}; use a shorter --duration") from error
            except TfperfError:
                raise
            except Exception as error:  # One odd trace must not end the view of all workers.
                problem = f"a tfperf bug prevents the analysis of the sample: {type(error).__name__}: {error}"
                raise CaptureError(
                    "bad_reply", f"{problem}; press r to record the trace, and report the bug with it"
                ) from error

    def _call(self, function: Callable[..., Any], *arguments: object) -> Any:
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
            return self._process.call(function, *arguments)[0]
        finally:
            limit.cancel()

    def ask_to_end(self) -> None:
        """End the process at any point, without waiting, and start no other."""
        was_asked, self._is_ended = self._is_ended, True
        # A second signal would arrive while the process ends.
        if self._process is not None and not was_asked:
            self._process.ask_to_end()

    def end(self) -> None:
        """End the process, and wait for its exit."""
        self.ask_to_end()
        if self._process is not None:
            self._process.end()


MOST_COST = 0.02
"""Maximum share of a job's time for samples, if it is measured."""
MOST_ANALYSIS = 0.05
"""Maximum share of one core for analysis on the job's machine."""
LONGEST_PAUSE_S = 300.0
_LONGEST_RETRY_S = 60.0
_LONGEST_STRETCH = 8
"""A sample without a whole step doubles the next duration, up to this multiple of the requested one."""
_MANY_STEPS = 8
"""Number of whole steps that shortens an extended sample."""
_LEAST_BETWEEN = 5
"""Minimum number of steps between two samples for a step time."""
_REMEMBERED = 5
_EARLY = 0.25
"""Part of an interval by which a sample may come early."""


class Pace(Struct, kw_only=True):
    """The pace of one worker's samples: every `interval_s`, for `duration_s`, and slower if they cost too much."""

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
    """CPU time of the last two analyses; the shorter one counts, because the first one imports its modules."""
    _slowdowns: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    @property
    def next_duration_s(self) -> float:
        """Return the duration of the next sample."""
        return self.duration_s * self._stretch

    @property
    def slowdown_percent(self) -> float | None:
        """Return the slowdown of steps by profiling, the median of the latest samples; None: unknown."""
        return median(self._slowdowns) if self._slowdowns else None

    def begin(self, now_s: float) -> None:
        """Record the start of a sample, on the monotonic clock."""
        if self._begun_s is None:
            self._begun_s = now_s

    def profiled_percent(self, due_s: float) -> float:
        """Return the share of the time from the first sample to `due_s` in which the worker records."""
        return 100.0 * self._recorded_s / max(due_s - (self._begun_s or 0.0), self.interval_s)

    def learn(self, measured: Measured | None, answer_s: float, overhead_percent: float | None) -> None:
        """Update the pace with the last request; `overhead_percent` is the server's measurement."""
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
        """Return the start of the next sample, on the monotonic clock: a multiple of the interval after `origin_s`.

        So requests reach all workers at the same moments: workers that train in lockstep all wait for a slow one.
        """
        rounds = (begun_s + self.pause_s(last) - origin_s) / self.interval_s
        return origin_s + math.ceil(rounds - _EARLY) * self.interval_s

    def pause_s(self, last: Sample) -> float:
        """Return the minimum time from the start of the last sample to the next one."""
        if last.measured is None and last.reason != "idle":
            # Retry a closed port soon, and wait longer for a server that refuses or sends garbage.
            tries = 0 if last.is_gone else min(self._failures, 8)
            return max(min(self.interval_s * 2.0**tries, _LONGEST_RETRY_S), self.interval_s)
        pauses = [self.interval_s * self._stretch, 2 * last.answer_s]
        if self.slowdown_percent is not None:
            pauses.append(min(last.answer_s * self.slowdown_percent / 100.0 / MOST_COST, LONGEST_PAUSE_S))
        if self.is_here and len(self._analysis_s) > 1:
            pauses.append(min(min(self._analysis_s) / MOST_ANALYSIS, LONGEST_PAUSE_S))
        return max(pauses)


def slowdown_between(before: NumberedSteps | None, now: Measured) -> float | None:
    """Return the minimum slowdown of steps in a sample against those since the previous sample; None: unknown."""
    after = now.numbered
    if before is None or after is None or after.first - before.last < _LEAST_BETWEEN or after.last == after.first:
        return None
    between_ns = (after.first_ns - before.last_ns) / (after.first - before.last)
    within_ns = (after.last_ns - after.first_ns) / (after.last - after.first)
    return max(100.0 * (within_ns / between_ns - 1.0), 0.0) if between_ns > 0 else None


def record_trace(logdir: Path, address: Address, trace: bytes) -> tuple[Path | None, str]:
    """Write a trace into its own run folder; return its path, and a line with it or with the error."""
    try:
        folder = RunFolder(logdir)
        try:
            path, _ = folder.save(address.label, trace)
        finally:
            folder.drop_if_empty()
    except TfperfError as error:
        return None, f"not recorded: {error}"
    if path is None:
        return None, "not recorded: the sample has no events"
    return path, f"recorded: {path} (tfperf analyze {path.parent})"
