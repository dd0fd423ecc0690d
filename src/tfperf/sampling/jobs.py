"""Profile running jobs, once or continuously as a flight recorder, and scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfperf.capture.address import parse_address
from tfperf.capture.flight_recorder import record
from tfperf.capture.outcomes import Captured
from tfperf.capture.remote import CaptureRequest, Say, profile_workers
from tfperf.capture.script_plan import Plan
from tfperf.capture.script_run import run_script
from tfperf.errors import TfperfError
from tfperf.sampling.result import Sampled, longest_step_s


def sample(*workers: str, logdir: str | Path = "logs", **options: Any) -> Sampled:
    """Profile running jobs at the same moment: `tfperf.sample("localhost:6009").analyzed().report()`.

    `workers` are addresses of profiler servers, `options` fields of `tfperf.capture.remote.CaptureRequest`
    (`duration_s`, 2.0 by default, `delay_s`, `retries`, ...). A worker that fails does not raise: see `captured`, or
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


def sample_script(command: Sequence[str], plan: Plan, *, is_module: bool = False) -> tuple[int, Sampled]:
    """Run a script and profile it as planned, by `run_script`; return its exit code and the result."""
    exit_code, captured = run_script(command, plan, is_module=is_module)
    return exit_code, Sampled(captured.path.parent if captured.path else Path(plan.logdir), (captured,))
