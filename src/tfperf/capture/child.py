"""The process of a script that `tfperf run` profiles: watches for its moment, runs the script, and tells what came.

Whatever the script does, it does as without tfperf: its arguments, modules, output, signals and exit code are its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tfperf.capture import local
from tfperf.capture.as_main import run_as_main
from tfperf.capture.keras import ProfileCallback
from tfperf.capture.keras_hook import hook_keras
from tfperf.capture.plan import Orders, write_result
from tfperf.capture.quiet import nothing
from tfperf.capture.timed import TimedProfile
from tfperf.outcomes import Captured

_NEVER = (sys.maxsize - 1, sys.maxsize)


def main() -> None:
    """Do what the first argument orders with the script that the others name."""
    orders = Orders.from_json(sys.argv[1])
    job = _Job(orders)
    job.begin()
    atexit.register(_end_by_interrupt, job)  # Registered first, called last.
    try:
        run_as_main(sys.argv[2:], is_module=orders.is_module)
    except KeyboardInterrupt:
        job.interrupted = True
        raise
    finally:
        job.main_is_over()


def _end_by_interrupt(job: _Job) -> None:
    """End as Python does after Ctrl-C, by the signal; it forgets that when other code is compiled at the exit."""
    if job.interrupted and os.name == "posix":
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


class _Job:
    """The script and what is done about it."""

    def __init__(self, orders: Orders) -> None:
        self._orders, self._plan = orders, orders.plan
        self._process = os.getpid()
        self.interrupted = False
        self._began = time.monotonic()
        self._lock = threading.RLock()
        self._callback = _Callback(self)
        self._timed: TimedProfile | None = None
        if self._plan.after_s is not None:
            patient = self._plan.batches is not None
            self._timed = TimedProfile(self._plan, self._plan.after_s, lambda _: self._write(), patient=patient)

    def begin(self) -> None:
        """Get ready, before the script begins."""
        hook_keras(self._callback)
        _count_steps(self._callback)
        self._watch_exits()
        if self._orders.stop_fd is not None:
            threading.Thread(target=self._listen, name="tfperf-stop", daemon=True).start()
        if self._timed:
            self._timed.start()

    def main_is_over(self) -> None:
        """Note that the script is through, but for its threads: nothing begins any more once those are."""
        atexit.register(self.conclude)

    def step_seen(self) -> None:
        """Note that a step of a training begins: with a plan for steps, the one for time is off."""
        if self._timed and self._plan.batches:
            self._timed.finish()

    def conclude(self) -> None:
        """End whatever runs and tell what came, the script being at its end."""
        if os.getpid() != self._process:
            return  # A forked child.
        with contextlib.suppress(Exception):
            if self._timed:
                self._timed.finish("the script ended while it was profiled")
            self._callback.close()
            self._write(over=True)

    def told(self) -> None:
        """Take note of a result of the callback."""
        self._write()

    def _write(self, *, over: bool = False) -> None:
        with self._lock:
            found = self._best() or (self._why_not() if over else None)
            if found is not None:
                with contextlib.suppress(OSError):
                    write_result(Path(self._orders.result_file), found)

    def _best(self) -> Captured | None:
        """Return the trace of steps rather than that of a time, and any trace rather than a reason why not."""
        # Without batches to profile, the callback only marks steps.
        results = [self._plan.batches and self._callback.result, self._timed and self._timed.result]
        found = [result for result in results if result]
        return next((result for result in found if result.path), found[0] if found else None)

    def _why_not(self) -> Captured:
        seconds, plan = time.monotonic() - self._began, self._plan
        if "tensorflow" not in sys.modules:
            return nothing("no_tensorflow", "the script did not import TensorFlow, so there was nothing to profile")
        if plan.after_s is None:
            return nothing(
                "no_steps", "no training with Keras or tfperf.step was seen; profile by time with --after 10s"
            )
        if seconds < plan.after_s:
            earlier = f"{max(seconds / 2, 0.1):.1g}s"
            return nothing(
                "no_steps", f"the script ended after {seconds:.1f} s, before profiling began at {plan.after_s:g} s; "
                f"pass --after {earlier}"
            )  # fmt: skip
        return nothing("idle", "TensorFlow did nothing that the profiler records")

    def _watch_exits(self) -> None:
        """Have `os._exit`, which calls no exit function, tell what came."""
        leave = os._exit

        def _exit(status: int) -> Any:
            self.conclude()
            leave(status)

        os._exit = _exit

    def _listen(self) -> None:
        """Wait to be asked to stop, which the other process does before it passes on a signal that would kill."""
        fd = self._orders.stop_fd
        if fd is not None:
            with contextlib.suppress(OSError):
                os.set_inheritable(fd, False)
                if os.read(fd, 1):
                    self.conclude()
                    Path(self._orders.result_file).with_suffix(".stopped").touch()


class _Callback(ProfileCallback):
    """The callback that every call of Keras in the script gets."""

    def __init__(self, job: _Job) -> None:
        plan = job._plan
        super().__init__(
            plan.logdir, plan.batches or _NEVER, limit_s=plan.limit_s, verbose=False,
            host_tracer_level=plan.options.host_tracer_level, device_tracer_level=plan.options.device_tracer_level,
            python_tracer_level=plan.options.python_tracer_level,
        )  # fmt: skip
        self._job = job

    def _begin(self, mode: str, batch: int, name: str = "", number: int | None = None) -> None:
        self._job.step_seen()
        super()._begin(mode, batch, name, number)

    def _hint(self, first: int, stop: int) -> str:
        return f"pass --steps {first}..{stop}"

    def _tell(self, captured: Captured) -> None:
        self._job.told()


def _count_steps(callback: ProfileCallback) -> None:
    """Make `tfperf.step` of the script count as well."""

    class CountedStep(local.step):
        __slots__ = ("_counting",)

        def __enter__(self) -> CountedStep:
            local.require_tensorflow()
            self._counting = callback.watched_step(self._name, self._number)
            if not self._counting.__enter__():
                super().__enter__()
            return self

        def __exit__(self, *error: object) -> None:
            super().__exit__(*error)
            self._counting.__exit__(None, None, None)

    CountedStep.__name__ = CountedStep.__qualname__ = "step"
    vars(local)["step"] = CountedStep
