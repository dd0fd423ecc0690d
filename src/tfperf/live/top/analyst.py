"""The process that analyzes samples, one after the other."""

from __future__ import annotations

import threading

from tfperf.analysis.parallel.worker_pool import WorkerDiedError, WorkerProcess
from tfperf.base.errors import CaptureError, TfperfError
from tfperf.live.top.measured import Measured, measure, stay_in_the_background

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
