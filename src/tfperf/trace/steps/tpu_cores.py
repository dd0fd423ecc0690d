"""What each TPU core says of itself: how much of a step it waits for input, and of the capture it works."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import Int64s, union_all
from tfperf.trace.host.activities import TPU_WAITS, Activity, ActivityTimes


class CoreWork(Struct, frozen=True, eq=False, kw_only=True):
    """One TPU core. `input_percent` is, per step of the host, input / step time of that core.

    From its first to its last op, which take `span_ps`, it works for `duty_ps`: in any op but those that wait for data
    (infeed, outfeed, copies).
    """

    host: str
    device: str
    """`TPU:0`."""
    input_percent: npt.NDArray[np.float64]
    duty_ps: int
    span_ps: int

    def only(self, rows: Int64s) -> CoreWork:
        """Return the core with some of its steps."""
        return replace(self, input_percent=self.input_percent[rows])


def core_work(host: str, device: str, times: ActivityTimes, input_ps: Int64s) -> CoreWork:
    """Add up one core; `input_ps` is its input time in each step."""
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
