"""How `tfperf run` profiles a script: handed from the command to the process of the script, and the result back."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, json

from tfperf.base.files import replace_file
from tfperf.capture.outcomes import Captured
from tfperf.capture.tracer_options import ENOUGH_SECONDS, TracerOptions

AFTER_SECONDS = 10.0
STEPS = (10, 209)
"""Of a training: at most these; fewer of longer steps (`Plan.enough_s`)."""


class Plan(Struct, frozen=True, kw_only=True):
    """When to profile a script: at `steps` of its training (first and last), or `after_s` seconds after its start.

    With both, time counts only if no step of a training has started by then. `enough_s` says after how long not all
    steps need be profiled; with None, they all are.
    """

    logdir: str
    steps: tuple[int, int] | None
    after_s: float | None
    duration_s: float
    enough_s: float | None = None
    options: TracerOptions
    run: str | None = None
    """The name of the run; None: TFPERF_RUN, or what the processes of the job agree on."""


def choose_plan(
    logdir: Path,
    options: TracerOptions,
    *,
    steps: tuple[int, int] | None = None,
    after_s: float | None = None,
    duration_s: float | None = None,
    run: str | None = None,
) -> Plan:
    """Return the plan for what was asked for: by steps, by time, or without either by steps if the script has any."""
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
    """What the process of the script is told: the plan, where to write the result, and how it is asked to stop.

    `stop_fd` is the read end of a pipe: a byte means that a signal is about to come; `BEAT`, that the script is to end,
    and its process to show meanwhile that Python runs.
    """

    plan: Plan
    is_module: bool
    result_file: str
    stop_fd: int | None


def write_result(file: Path, captured: Captured) -> None:
    """Write a result for the other process, whole or not at all."""
    replace_file(file, json.encode(captured, enc_hook=str))


def read_result(file: Path) -> Captured | None:
    """Read what `write_result` wrote; None if there is no file."""
    try:
        return json.decode(file.read_bytes(), type=Captured, dec_hook=lambda kind, text: kind(text))
    except FileNotFoundError:
        return None
