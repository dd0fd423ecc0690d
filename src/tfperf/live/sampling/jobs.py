"""Profile running jobs, once or continuously as a flight recorder, and scripts."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfperf.base.errors import TfperfError
from tfperf.capture.address import parse_address
from tfperf.capture.flight_recorder import record
from tfperf.capture.outcomes import Captured
from tfperf.capture.remote import CaptureRequest, Say, profile_workers
from tfperf.capture.script_plan import Plan
from tfperf.capture.script_run import run_script
from tfperf.live.sampling.result import Sampled, longest_step_s

_LARGEST_BESIDE = 200_000_000
"""Bytes of a trace that is analyzed beside the job that it is of: a larger one would take its memory and time."""


def sample(*workers: str, logdir: str | Path = "logs", **options: Any) -> Sampled:
    """Profile running jobs at the same moment: `tfperf.sample("localhost:6009").analyzed().report()`.

    `workers` are addresses of profiler servers, `options` fields of `tfperf.capture.remote.CaptureRequest`
    (`duration_s`, 4.0 by default, `delay_s`, `retries`, ...). A worker that fails does not raise: see `captured`, or
    call `raise_problem`. Raises CaptureError `bad_address`, or `not_written` if the logdir cannot be used.
    """
    return sample_once(CaptureRequest(workers=[parse_address(worker) for worker in workers], **options), logdir)


def sample_once(request: CaptureRequest, logdir: str | Path, say: Say = lambda _: None) -> Sampled:
    """Profile all workers of the request at the same moment; see `tfperf.capture.remote.profile_workers`."""
    folder, captured = profile_workers(request, logdir, say)
    return Sampled(next((result.path.parent for result in captured if result.path), folder), tuple(captured))


def sample_continuously(
    request: CaptureRequest,
    logdir: str | Path,
    say: Say = lambda _: None,
    *,
    keep: int = 5,
    slow_step_s: float | None = None,
) -> Sampled:
    """Profile continuously until Ctrl-C and keep the last traces, only those with a step over `slow_step_s` if given.

    See `tfperf.capture.flight_recorder.record`.
    """

    def has_slow_step(captured: Sequence[Captured]) -> bool:
        traces = [result.path for result in captured if result.path]
        try:
            return slow_step_s is None or any(longest_step_s(trace) > slow_step_s for trace in traces)
        except TfperfError:
            return False

    captured = record(request, logdir, say, keep=keep, is_wanted=has_slow_step)
    return Sampled(Path(logdir) / "plugins" / "profile", tuple(captured))


def sample_script(
    command: Sequence[str],
    plan: Plan,
    say: Say = lambda _: None,
    *,
    is_module: bool = False,
    stop_after_profile: bool = False,
) -> tuple[int, Sampled]:
    """Run a script and profile it as planned, by `run_script`; return its exit code and the result, analyzed.

    `say` gets a line when the profile is written, and one with its first conclusion, while the script goes on.
    """
    told: list[Sampled] = []

    def tell(captured: Captured) -> bool:
        sampled = _sampled(plan, captured)
        if (captured.size_bytes or 0) <= _LARGEST_BESIDE:
            _yield_to_the_job()
            with contextlib.suppress(MemoryError):
                sampled = sampled.analyzed()
        # Taken for want of steps, it is not the last word: they may come yet.
        is_wanted = plan.steps is None or plan.after_s is None or sampled.analysis is None or sampled.has_steps
        if is_wanted:
            told.append(sampled)
            for line in filter(None, (captured.describe(), sampled.headline)):
                say(line)
        return is_wanted

    exit_code, captured = run_script(command, plan, tell, is_module=is_module, stop_after_profile=stop_after_profile)
    is_told = bool(told) and told[-1].captured[0].path == captured.path
    if captured.path and not is_told:
        say(captured.describe())
    sampled = told[-1] if is_told else _sampled(plan, captured)
    sampled = sampled if sampled.is_analyzed else sampled.analyzed()
    return exit_code, sampled


def _yield_to_the_job() -> None:
    """Let this thread have a processor only where nobody else wants it (Linux has priorities of threads)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


def _sampled(plan: Plan, captured: Captured) -> Sampled:
    return Sampled(captured.path.parent if captured.path else Path(plan.logdir), (captured,))
