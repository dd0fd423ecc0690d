"""Profile a program for some seconds, some seconds after its start."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from tfperf.capture.outcomes import Captured
from tfperf.capture.safe_profile import SafeProfile
from tfperf.capture.script_plan import Plan

_IMPORT_POLL_SECONDS = 0.2
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 5.0, 60.0


class TimedProfile:
    """A thread that takes one profile; `tell` gets the result.

    It waits until the program has imported TensorFlow. With `retry_idle`, it tries again while TensorFlow does nothing.
    """

    def __init__(self, plan: Plan, after_s: float, tell: Callable[[Captured], object], *, retry_idle: bool) -> None:
        self._plan, self._after_s, self._tell, self._retry_idle = plan, after_s, tell, retry_idle
        self._is_over = threading.Event()
        self._lock = threading.RLock()
        self._session: SafeProfile | None = None
        self.result: Captured | None = None
        self._thread = threading.Thread(target=self._run, name="tfperf-run", daemon=True)

    def start(self) -> None:
        """Start to wait."""
        self._thread.start()

    def finish(self, note: str = "") -> None:
        """Stop if it runs, keep what was recorded, and never start again."""
        self._is_over.set()
        self._stop(note)

    def _run(self) -> None:
        pause_s = self._after_s
        while not self._is_over.wait(pause_s) and self.result is None:
            if "tensorflow" not in sys.modules:
                pause_s = _IMPORT_POLL_SECONDS
                continue
            if self._start_session():
                self._is_over.wait(self._plan.duration_s)
            self._stop()
            pause_s = _FIRST_PAUSE_SECONDS if pause_s < _FIRST_PAUSE_SECONDS else min(2 * pause_s, _MAX_PAUSE_SECONDS)

    def _start_session(self) -> bool:
        with self._lock:
            if self._is_over.is_set():
                return False
            self._session = SafeProfile(self._plan.logdir, self._plan.options, self.finish)
            return self._session.start()

    def _stop(self, note: str = "") -> None:
        with self._lock:
            session, self._session = self._session, None
            result = session.stop(note) if session else None
            if result is None or (self._retry_idle and result.reason == "idle" and not self._is_over.is_set()):
                return
            self.result = result
            self._tell(result)
