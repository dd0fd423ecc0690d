"""Run a script and profile it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tfperf.capture.script_plan import Plan
from tfperf.capture.script_run import run_script
from tfperf.sampling.result import Sampled


def sample_script(command: Sequence[str], plan: Plan, *, is_module: bool = False) -> tuple[int, Sampled]:
    """Run a script and profile it as planned; return its exit code and the result.

    See `tfperf.capture.script_run.run_script`.
    """
    outcome = run_script(command, plan, is_module=is_module)
    path = outcome.captured.path
    return outcome.exit_code, Sampled(path.parent if path else Path(plan.logdir), (outcome.captured,))
