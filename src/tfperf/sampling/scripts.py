"""Profile a script that is run for that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tfperf.capture.script_plan import AFTER_SECONDS, DURATION_SECONDS, STEPS, Plan
from tfperf.capture.script_run import run_script
from tfperf.capture.tracer_options import TracerOptions
from tfperf.sampling.result import Sampled


def sample_script(
    command: Sequence[str],
    *,
    logdir: str | Path = "logs",
    is_module: bool = False,
    steps: tuple[int, int] | None = None,
    after_s: float | None = None,
    duration_s: float | None = None,
    options: TracerOptions | None = None,
) -> tuple[int, Sampled]:
    """Run `python COMMAND...` (or `python -m COMMAND...`) and profile it; return its exit code and the result.

    `steps` are the first and the last step to profile, `after_s` the seconds after which it is profiled by time;
    without either, steps are profiled if the script has any. See `tfperf.capture.script_run.run_script`.
    """
    plan = Plan(
        logdir=str(Path(logdir).absolute()),
        steps=None if after_s else steps or STEPS,
        after_s=None if steps else after_s or AFTER_SECONDS,
        duration_s=duration_s or DURATION_SECONDS,
        options=options or TracerOptions(),
    )
    outcome = run_script(command, plan, is_module=is_module)
    path = outcome.captured.path
    return outcome.exit_code, Sampled(path.parent if path else Path(logdir), (outcome.captured,))
