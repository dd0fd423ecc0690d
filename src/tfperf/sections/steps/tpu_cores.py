"""What each TPU core says of itself: how much of a step it waits for input, and of the capture it computes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tfperf.arrays import Int64s, union_all
from tfperf.trace.activities import Activity, ActivityTimes

_OFF_DUTY = (Activity.WAIT_INPUT, Activity.HOST_TO_DEVICE, Activity.DEVICE_TO_HOST)
"""Ops of a core that wait for the host, or hand something over to it."""


class CoreWork(Struct, frozen=True, eq=False, kw_only=True):
    """One TPU core. `input_percent` is, per step of the host, input / step time of that core.

    From its first to its last op, which take `span_ps`, it computes for `duty_ps`: any op but infeed, outfeed and
    transfers from and to the host.
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
    ops = {activity: busy for activity, busy in times.busy.items() if activity != Activity.WAIT_WHILE_IDLE}
    every = union_all(list(ops.values()))
    waiting = union_all([busy for activity, busy in ops.items() if activity in _OFF_DUTY])
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
