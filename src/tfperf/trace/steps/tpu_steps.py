"""Steps on TPU cores: the windows of each core, its categories, its input waiting time, and its duty cycle."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import Int64s, union_all
from tfperf.formats.wire.event_columns import OP_LINES, STEPS_LINE, Line
from tfperf.trace.host.activities import TPU_WAITS, Activity, ActivityTimes
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.steps import CoreSteps, Steps


def core_steps(trace: HostTrace, steps: Steps) -> list[CoreSteps]:
    """Return the windows of the steps on each core that recorded its steps; else those of the steps, on all cores.

    Cores step together, so a step lasts as long as on the slowest core; the remaining time on another core is part of
    its step, except for the time of its next step. Only steps that all cores have are returned. If steps are program
    runs, each core has its own windows, from run to run; one that runs other programs has those of the steps.
    """
    if steps.source != "device steps":
        own = {each.plane: each for each in steps.on_cores}
        spans = {
            plane: [trace.on_device_clock(plane, ps) for ps in (steps.start_ps, steps.end_ps)]
            for plane in trace.devices
        }
        return [own.get(plane) or CoreSteps(plane, *span) for plane, span in spans.items()]
    lines = [(plane, line) for plane in trace.devices if (line := step_line(trace, plane)) is not None]
    count = min(len(steps), *(line.stop - line.start for _, line in lines))
    rows = [slice(line.start, line.start + count) for _, line in lines]
    longest = np.max([trace.duration_ps[of_core] for of_core in rows], axis=0)
    cores = []
    for (plane, _), of_core in zip(lines, rows, strict=True):
        start_ps = trace.start_ps[of_core]
        end_ps = start_ps + longest
        end_ps[:-1] = np.minimum(end_ps[:-1], np.maximum(start_ps[1:], start_ps[:-1]))
        cores.append(CoreSteps(plane, start_ps, end_ps))
    return cores


def in_step_time(trace: HostTrace, steps: Steps, plane: Int64s, ps: Int64s) -> Int64s:
    """Return times of cores (plane indices) as if each were in a step when `steps` (all of the host) are.

    The work of a core in its own window of a step therefore counts in that step.
    """
    moved = ps.copy()
    for core in core_steps(trace, steps) if len(steps) else ():
        mine = np.flatnonzero(plane == core.plane)
        step = np.maximum(np.searchsorted(core.start_ps, ps[mine], side="right") - 1, 0)
        since = ps[mine] - core.start_ps[step]
        inside = (since >= 0) & (ps[mine] < core.end_ps[step])
        last = np.where(inside, steps.duration_ps[step] - 1, since)  # a core may take longer than the step lasts
        moved[mine] = steps.start_ps[step] + np.minimum(since, last)
    return moved


def has_ops(trace: HostTrace) -> bool:
    """Return whether a TPU core recorded its ops."""
    return any(line.plane in trace.devices and line.name in OP_LINES and line.stop > line.start for line in trace.lines)


def has_categories(trace: HostTrace) -> bool:
    """Return whether ops have an `hlo_category`, without which waiting for input looks like computing."""
    return bool(trace.name_stat("hlo_category")) or bool(len(trace.stat("hlo_category").event))


# --- work of cores ---


class CoreWork(Struct, frozen=True, eq=False, kw_only=True):
    """One TPU core. `input_percent` is, per step of the host, input / step time of that core.

    From its first to its last op (`span_ps`), it works for `duty_ps`: in any op except those that wait for data
    (infeed, outfeed, copies).
    """

    host: str
    device: str
    input_percent: npt.NDArray[np.float64]
    duty_ps: int
    span_ps: int

    def only(self, rows: Int64s) -> CoreWork:
        """Return the core with some of its steps."""
        return replace(self, input_percent=self.input_percent[rows])


def core_work(host: str, device: str, times: ActivityTimes, input_ps: Int64s) -> CoreWork:
    """Return the totals of one core; `input_ps` is its input time in each step."""
    explain_idle = (Activity.BARRIER, Activity.WAIT_WHILE_IDLE)
    ops = {activity: busy for activity, busy in times.busy.items() if activity not in explain_idle}
    every = union_all(list(ops.values()))
    waiting = union_all([busy for activity, busy in ops.items() if activity in TPU_WAITS])
    return CoreWork(
        host=host,
        device=device,
        input_percent=100.0 * input_ps / np.maximum(times.end - times.start, 1),
        duty_ps=every.total() - waiting.total(),
        span_ps=int(every.end[-1] - every.start[0]) if len(every.start) else 0,
    )


def duty_percent(cores: tuple[CoreWork, ...]) -> float | None:
    """Return the duty cycle of several cores, sum over sum; None if none of them recorded an op."""
    span_ps = sum(core.span_ps for core in cores)
    return 100.0 * sum(core.duty_ps for core in cores) / span_ps if span_ps else None


def step_line(trace: HostTrace, plane: int) -> Line | None:
    """Return the step line of a device plane, if it holds events."""
    for line in trace.lines:
        if line.plane == plane and line.stop > line.start and (line.name == "Steps" or line.id == STEPS_LINE):
            return line
    return None
