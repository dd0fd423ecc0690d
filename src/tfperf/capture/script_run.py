"""Runs an unchanged script in its own process and profiles it there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec import Struct, json

from tfperf.base.files import replace_file
from tfperf.capture.local import no_trace
from tfperf.capture.outcomes import ENOUGH_SECONDS, Captured, TracerOptions
from tfperf.capture.run_folder import local_folder

_CHILD = "import sys; sys.path[:1] = filter(None, sys.path[:1]); from tfperf.capture.script_child import main; main()"
"""Removes the current folder, which `-c` puts first on sys.path, but `python SCRIPT` does not."""
_STOP_SECONDS = 30.0
"""Time limit for a script to write its trace after a stop request."""
_POLL_SECONDS = 0.05
_LOOK_SECONDS = 0.2
GRACE_SECONDS = 30.0
"""Time limit for a script to end after a profile, for example to save a model."""
_HUNG_SECONDS, _HUNG_CPU_SECONDS = 3.0, 0.1
"""A script hangs if Python runs none of its threads for this long, with at most this CPU time."""
_KILL_SECONDS = 1.0
"""Time limit for a hanging script to end by a signal."""
Tell = Callable[[Captured], bool]
"""A callback for a result with a trace; it returns whether the result is the wanted one."""


def run_script(
    command: Sequence[str],
    plan: Plan,
    tell: Tell = lambda _: True,
    *,
    is_module: bool = False,
    stop_after_profile: bool = False,
) -> tuple[int, Captured]:
    """Run `python COMMAND...` (or `python -m COMMAND...`) and profile it as planned.

    Return its exit code, in the form of a shell (128 + N for signal N), and the result of profiling it. The script
    shares stdin, stdout and stderr. It gets Ctrl-C from the terminal, and SIGTERM or SIGHUP once the trace is written.
    If the script continues after the trace, `tell` gets the result in another thread. With `stop_after_profile`, the
    script gets a SIGINT once `tell` returns true, and a SIGTERM if it hangs or still runs after `GRACE_SECONDS`; the
    exit code is 0 if one ends it. Raises CaptureError `not_written` before the run if the logdir cannot be used.
    """
    local_folder(plan.logdir)
    with tempfile.TemporaryDirectory(prefix="tfperf-run-") as folder:
        result_file = Path(folder) / "result.json"
        with ExitStack() as stack:
            stop_fd, ask_fd = os.pipe() if os.name == "posix" else (None, None)
            for end in (stop_fd, ask_fd):
                if end is not None:
                    stack.callback(os.close, end)
            orders = Orders(plan, is_module, str(result_file), stop_fd)
            process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, json.encode(orders).decode(), *command],
                pass_fds=[end for end in (stop_fd,) if end is not None],
            )
            watch = _Watch(process, result_file, tell, ask_fd if stop_after_profile else None, stops=stop_after_profile)
            with watch, _signals_passed_on(process, result_file, ask_fd):
                status = process.wait()
        exit_code = status if status >= 0 else 128 - status
        if exit_code in watch.expected:
            exit_code = 0
        killed = f"the script was killed (exit code {exit_code}) before a trace could be written"
        return exit_code, read_result(result_file) or no_trace("no_result", killed)


class _Watch:
    """Reports the result of a running script, and stops it if requested; `expected` are exit codes of a stop."""

    def __init__(
        self, process: subprocess.Popen[bytes], result_file: Path, tell: Tell, ask_fd: int | None, *, stops: bool
    ) -> None:
        self._process, self._result_file, self._tell, self._stops = process, result_file, tell, stops
        self._ask_fd = ask_fd
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="tfperf-watch", daemon=True)
        self.expected: tuple[int, ...] = ()

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        told: Path | None = None
        while not self._is_over.wait(_LOOK_SECONDS):
            captured = read_result(self._result_file)
            if captured is not None and captured.path not in (None, told):
                told = captured.path
                if self._tell(captured) and self._stops:
                    self._stop()
                    return

    def _stop(self) -> None:
        self.expected = (128 + signal.SIGINT, 128 + signal.SIGTERM)
        # The child process checks for this file, so that it ends without a traceback.
        self._result_file.with_suffix(".stop").touch()
        if self._ask_fd is None:
            self._process.terminate()
            return
        with suppress(OSError):
            os.write(self._ask_fd, BEAT)
        self._process.send_signal(signal.SIGINT)
        hangs = self._hangs_within(GRACE_SECONDS)
        if self._is_over.is_set():
            return
        self._process.terminate()
        if hangs and not self._is_over.wait(_KILL_SECONDS):
            self.expected += (128 + signal.SIGKILL,)
            self._process.kill()

    def _hangs_within(self, seconds: float) -> bool:
        """Wait; return whether the script hangs, because TensorFlow's destructors can deadlock with the GIL."""
        now_s = time.monotonic()
        until_s, beat, alive_s, cpu_s = now_s + seconds, 0, now_s, _cpu_seconds(self._process.pid)
        while now_s < until_s and not self._is_over.wait(_LOOK_SECONDS):
            before, now_s = beat, time.monotonic()
            with suppress(OSError):
                beat = self._result_file.with_suffix(".alive").stat().st_mtime_ns
            used_s = _cpu_seconds(self._process.pid)
            if beat != before or used_s is None or cpu_s is None or used_s - cpu_s > _HUNG_CPU_SECONDS:
                alive_s, cpu_s = now_s, used_s
            elif now_s - alive_s > _HUNG_SECONDS:
                return True
        return False


def _cpu_seconds(process: int) -> float | None:
    """Return the CPU time of a process; None if the system does not report it (not Linux)."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


@contextmanager
def _signals_passed_on(process: subprocess.Popen[bytes], result_file: Path, ask_fd: int | None) -> Iterator[None]:
    """Leave Ctrl-C to the script, and let it write its trace before it gets a fatal signal."""

    def signal_when_stopped(number: int) -> None:
        stopped, until = result_file.with_suffix(".stopped"), time.monotonic() + _STOP_SECONDS
        while process.poll() is None and not stopped.exists() and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        process.send_signal(number)

    def pass_on(number: int, frame: FrameType | None) -> None:
        if ask_fd is not None:
            with suppress(OSError):
                os.write(ask_fd, b"!")
        # In a thread, because this process cannot see the script end while the handler runs.
        threading.Thread(target=signal_when_stopped, args=(number,), daemon=True).start()

    handlers: dict[int, Any] = {signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: pass_on}
    if hasattr(signal, "SIGHUP"):
        handlers[signal.SIGHUP] = pass_on
    with ExitStack() as earlier_handlers:
        for number, handler in handlers.items():
            earlier_handlers.callback(signal.signal, number, signal.signal(number, handler))
        yield


AFTER_SECONDS = 10.0
STEPS = (10, 209)
"""Default steps of a training; longer steps reduce the number (`Plan.enough_s`)."""


class Plan(Struct, frozen=True, kw_only=True):
    """When to profile a script: at `steps` of its training (first and last), or `after_s` seconds after its start.

    With both, time counts only without a training step by then. `enough_s`, unless None, may end the profile early.
    """

    logdir: str
    steps: tuple[int, int] | None
    after_s: float | None
    duration_s: float
    enough_s: float | None = None
    options: TracerOptions
    run: str | None = None
    """The name of the run; None: TFPERF_RUN, or agreed on by the processes of the job."""


def choose_plan(
    logdir: Path,
    options: TracerOptions,
    *,
    steps: tuple[int, int] | None = None,
    after_s: float | None = None,
    duration_s: float | None = None,
    run: str | None = None,
) -> Plan:
    """Return the plan: by steps, by time, or by default by steps if the script has any."""
    return Plan(
        logdir=str(logdir.absolute()),
        steps=None if after_s else steps or STEPS,
        after_s=None if steps else after_s or AFTER_SECONDS,
        duration_s=duration_s or ENOUGH_SECONDS,
        enough_s=None if steps else ENOUGH_SECONDS,
        options=options,
        run=run,
    )


BEAT = b"."


class Orders(Struct, frozen=True):
    """Arguments for the process of the script: the plan, the path of the result, and the stop request.

    `stop_fd` is the read end of a pipe. A byte announces a signal; `BEAT` requests an end, and heartbeats until then.
    """

    plan: Plan
    is_module: bool
    result_file: str
    stop_fd: int | None


def write_result(file: Path, captured: Captured) -> None:
    """Write a result for the other process, completely or not at all."""
    replace_file(file, json.encode(captured, enc_hook=str))


def read_result(file: Path) -> Captured | None:
    """Read the result of `write_result`; None without a file."""
    try:
        return json.decode(file.read_bytes(), type=Captured, dec_hook=lambda kind, text: kind(text))
    except FileNotFoundError:
        return None
