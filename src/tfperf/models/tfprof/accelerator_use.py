"""For which part of a step accelerators compute."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import NO_NUMBERS, Int64s, union
from tfperf.models.tfprof.model import Executions, Model
from tfperf.models.tfprof.run_metadata import is_accelerator, is_all_streams

_US_PER_MS = 1000.0


class UsedDevice(Struct, frozen=True, kw_only=True):
    """An accelerator in the last step that has kernels of it; times in ms, by the microseconds of the records."""

    device: str
    step: int
    kernel_ms: float
    """Summed time of its kernels."""
    step_ms: float
    """From the first start to the last end of its nodes, on any device."""
    utilization_percent: float
    """What tfprof calls utilization: kernels that run at once add up, so it may be more than 100."""
    busy_percent: float
    """The part of the step in which at least one kernel runs."""


def used_devices(model: Model) -> list[UsedDevice]:
    """Return the accelerators that nodes ran on, by name; those without kernels are left out."""
    devices = sorted({device for device in model.device if is_accelerator(device)})
    number = {device: place for place, device in enumerate(devices)}
    of_node = np.array([number.get(device, -1) for device in model.device], np.int64)
    found: dict[str, UsedDevice] = {}
    for step in sorted(model.steps, reverse=True):
        if len(found) == len(devices):
            break
        for used in _in_step(model, devices, step, of_node):
            found.setdefault(used.device, used)
    return [found[device] for device in devices if device in found]


def _in_step(model: Model, devices: list[str], step: int, of_node: Int64s) -> Iterator[UsedDevice]:
    """Yield what accelerators did in a step: those of its nodes that have kernels."""
    executions: Executions = model.steps[step]
    device = of_node[executions.node]
    timed = (device >= 0) & (executions.started > 0)
    micros, last = np.zeros(len(devices), np.int64), np.zeros(len(devices), np.int64)
    first = np.full(len(devices), np.iinfo(np.int64).max)
    np.add.at(micros, device[device >= 0], executions.accelerator_micros[device >= 0])
    np.minimum.at(first, device[timed], executions.started[timed])
    np.maximum.at(last, device[timed], executions.ended[timed])
    busy = _busy(model, executions, of_node)
    for place in np.flatnonzero((micros > 0) & (last > first)).tolist():
        span, kernels = int(last[place] - first[place]), int(micros[place])
        yield UsedDevice(
            device=devices[place],
            step=step,
            kernel_ms=kernels / _US_PER_MS,
            step_ms=span / _US_PER_MS,
            utilization_percent=100.0 * kernels / span,
            busy_percent=100.0 * min(busy.get(place, 0), span) / span,
        )


def _busy(model: Model, executions: Executions, of_node: Int64s) -> dict[int, int]:
    """Return for accelerators, by number, how many microseconds at least one kernel runs."""
    singles = executions.intervals
    streams = np.array([is_all_streams(each) for each in model.devices], np.bool_)
    rows = np.flatnonzero(streams[singles.device] & (of_node[singles.node] >= 0)) if len(streams) else NO_NUMBERS
    device = of_node[singles.node[rows]]
    rows = rows[np.argsort(device, kind="stable")]
    numbers, first = np.unique(of_node[singles.node[rows]], return_index=True)
    return {
        number: union(singles.start[part], singles.start[part] + singles.duration[part]).total()
        for number, part in zip(numbers.tolist(), np.split(rows, first[1:]), strict=bool(len(numbers)))
    }
