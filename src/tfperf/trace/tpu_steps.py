"""Steps on TPU cores: when each core is in a step, and whether its ops tell what it does there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tfperf.arrays import Int64s
from tfperf.trace.find_steps import step_line
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps import Steps
from tfperf.wire.event_columns import OP_LINES


class CoreSteps(NamedTuple):
    """The windows of the steps of one core (index of its plane), in picoseconds on the clock of the trace."""

    plane: int
    start_ps: Int64s
    end_ps: Int64s


def core_steps(trace: HostTrace, steps: Steps) -> list[CoreSteps]:
    """Return the windows of the steps on each core that recorded its steps; else those of the steps, on all cores.

    Cores step together, so a step lasts as long as the core that takes longest; what another one has left until then is
    part of its step, but for what its next step takes. Only steps that all cores have are returned.
    """
    if steps.source != "device steps":
        return [CoreSteps(plane, steps.start_ps, steps.end_ps) for plane in trace.devices]
    lines = [(plane, line) for plane in trace.devices if (line := step_line(trace, plane)) is not None]
    count = min(len(steps), *(line.stop - line.start for _, line in lines))
    rows = [slice(line.start, line.start + count) for _, line in lines]
    longest = np.max([trace.duration_ps[of_core] for of_core in rows], axis=0)
    return [_within(plane, trace.start_ps[of_core], longest) for (plane, _), of_core in zip(lines, rows, strict=True)]


def _within(plane: int, start_ps: Int64s, longest_ps: Int64s) -> CoreSteps:
    end_ps = start_ps + longest_ps
    end_ps[:-1] = np.minimum(end_ps[:-1], np.maximum(start_ps[1:], start_ps[:-1]))
    return CoreSteps(plane, start_ps, end_ps)


def has_ops(trace: HostTrace) -> bool:
    """Tell whether a TPU core recorded its ops."""
    return any(line.plane in trace.devices and line.name in OP_LINES and line.stop > line.start for line in trace.lines)


def has_categories(trace: HostTrace) -> bool:
    """Tell whether ops say what they do (`hlo_category`), without which waiting for input is like computing."""
    return bool(trace.name_stat("hlo_category")) or bool(len(trace.stat("hlo_category").event))
