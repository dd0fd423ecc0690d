"""The steps in a trace file, found without an analysis of the trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfperf.trace.steps import Steps


def steps_of(trace: Path) -> Steps:
    """Read a trace file and return its steps; raises TraceFormatError."""
    from tfperf.trace.find_steps import find_steps
    from tfperf.trace.read import read_host

    return find_steps(read_host(trace))


def longest_step_s(trace: Path) -> float:
    """Return the duration of the longest step whose start and end are in the trace, in seconds; 0 if there is none."""
    from tfperf.trace.steps import END_ESTIMATED, PARTIAL

    steps = steps_of(trace)
    whole = [flag not in (PARTIAL, END_ESTIMATED) for flag in steps.flags]
    return float(steps.duration_ps[whole].max(initial=0)) / 1e12
