"""Profile for some seconds, some seconds after the program began, whatever it does then."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from tfperf.capture.plan import Plan
from tfperf.capture.quiet import QuietProfile
from tfperf.outcomes import Captured

_LOOK_SECONDS = 0.2
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 5.0, 60.0


class TimedProfile:
    """A thread that takes one profile; `tell` gets the result.

    It waits until the program imported TensorFlow. With `patient`, it tries again as long as TensorFlow does nothing.
    """

    def __init__(self, plan: Plan, after_s: float, tell: Callable[[Captured], object], *, patient: bool) -> None:
        self._plan, self._after_s, self._tell, self._patient = plan, after_s, tell, patient
        self._over = threading.Event()
        self._lock = threading.RLock()
        self._session: QuietProfile | None = None
        self.result: Captured | None = None
        self._thread = threading.Thread(target=self._run, name="tfperf-run", daemon=True)

    def start(self) -> None:
        """Begin to wait."""
        self._thread.start()

    def finish(self, note: str = "") -> None:
        """Stop if it runs, keep what came, and never begin again."""
        self._over.set()
        self._stop(note)

    def _run(self) -> None:
        pause = self._after_s
        while not self._over.wait(pause) and self.result is None:
            if "tensorflow" not in sys.modules:
                pause = _LOOK_SECONDS
                continue
            if self._begin():
                self._over.wait(self._plan.duration_s)
            self._stop()
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS) if pause >= _FIRST_PAUSE_SECONDS else _FIRST_PAUSE_SECONDS

    def _begin(self) -> bool:
        with self._lock:
            if self._over.is_set():
                return False
            self._session = QuietProfile(self._plan.logdir, self._plan.options, self.finish)
            return self._session.start()

    def _stop(self, note: str = "") -> None:
        with self._lock:
            session, self._session = self._session, None
            found = session.stop(note) if session else None
            if found is None or (self._patient and found.reason == "idle" and not self._over.is_set()):
                return
            self.result = found
            self._tell(found)
