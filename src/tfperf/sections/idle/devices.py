"""The devices of a capture: what each did in the steps, and the idle time of those that recorded work.

A device that does nothing is a fact of its own, not an idle time: its idle time says nothing of what the others wait
for. So averages, gaps and sentences are of the devices that work.
"""

from __future__ import annotations

from functools import cached_property

from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.base.units import percent
from tfperf.sections.idle.tables import Cause, Use
from tfperf.trace.device.device_time import device_label

DOES_NOTHING: frozenset[Use] = frozenset({"no kernel", "silent"})
"""What counts as doing nothing. A device that works outside of the averaged steps has work to do."""


class DeviceUse(Struct, frozen=True, kw_only=True):
    """A device that the trace lists, and what it did in the steps that count (without steps: in the capture)."""

    host: str
    device: str
    """The name of its plane: `/device:GPU:0`."""
    use: Use
    busy_percent: float | None
    """Share of the counted windows in which it works or copies; None: it recorded no work at all."""
    compute_percent: float | None

    @property
    def label(self) -> str:
        """Return `GPU:0`."""
        return device_label(self.device)


class DeviceIdle(Struct, frozen=True, kw_only=True, dict=True):
    """The idle time of one device: one entry per window, in picoseconds; `counted` tells which are in averages."""

    host: str
    device: str
    counted: Bools
    window_ps: Int64s
    busy_ps: Int64s
    compute_ps: Int64s
    """The part of `busy_ps` in which kernels run (on a TPU, ops)."""
    all_compute_ps: int
    """The same in the whole capture, also outside of windows."""
    time_ps: dict[Cause, Int64s]
    """Adds up to `window_ps` less `busy_ps`."""
    gap_counts: dict[Cause, int]
    """How many gaps in counted windows have time of that cause."""
    gap_count: int
    """Gaps in counted windows."""
    all_gap_count: int
    """Gaps in all windows."""

    @cached_property
    def step_count(self) -> int:
        """Return the number of counted windows."""
        return int(self.counted.sum())

    def total_ps(self, cause: Cause) -> int:
        """Return the time of a cause in counted windows."""
        return int(self.time_ps[cause][self.counted].sum())

    @cached_property
    def counted_idle_ps(self) -> int:
        """Return the idle time in counted windows."""
        return int((self.window_ps - self.busy_ps)[self.counted].sum())

    @cached_property
    def counted_window_ps(self) -> int:
        """Return the duration of the counted windows."""
        return int(self.window_ps[self.counted].sum())

    @property
    def works_percent(self) -> float:
        """Return the share of the counted windows in which it works or copies; a TPU that waits for data does not."""
        works_ps = self.compute_ps if self.device.startswith("/device:TPU:") else self.busy_ps
        return 100.0 * int(works_ps[self.counted].sum()) / max(self.counted_window_ps, 1)

    @cached_property
    def use(self) -> Use:
        """Return what the device did in the counted windows."""
        if self.compute_ps[self.counted].any():
            return "works"
        if self.busy_ps[self.counted].any():
            return "copies"
        return "outside" if self.all_compute_ps else "no kernel"

    def percent(self, cause: Cause | None = None) -> float:
        """Return the share of the counted windows that is idle, for one cause or for all."""
        part = self.counted_idle_ps if cause is None else self.total_ps(cause)
        return 100.0 * part / max(self.counted_window_ps, 1)


def use_of(host: str, name: str, device: DeviceIdle | None) -> DeviceUse:
    """Return what a listed device did; `device` is its idle time, None if it recorded no work."""
    if device is None:
        return DeviceUse(host=host, device=name, use="silent", busy_percent=None, compute_percent=None)
    whole_ps = device.counted_window_ps
    busy, compute = (percent(int(part[device.counted].sum()), whole_ps) for part in (device.busy_ps, device.compute_ps))
    return DeviceUse(host=host, device=name, use=device.use, busy_percent=busy, compute_percent=compute)
