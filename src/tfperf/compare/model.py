"""What a comparison of two runs came to: plain values, which `check` judges and `diff` shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Stat = Literal["mean", "median", "p95"]
"""What stands for the step times of a run."""

Change = Literal["slower", "holds", "cannot tell"]
"""slower: the interval lies above the tolerance. holds: there is no sign of that, and enough steps to have seen it.
cannot tell: the interval is so wide that a regression could hide in it."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Step time after / step time before, with its bootstrap interval at `confidence` (0.9: 90 %)."""

    value: float
    low: float
    high: float
    confidence: float

    @property
    def half_width(self) -> float:
        """Return half the width of the interval."""
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether the second of two runs is slower than the first by more than `tolerance` (0.05: 5 %).

    `ratio` is None where a run has too few steps for any interval. `steps_needed` is how many steps in each run would
    tell, None where enough are there or nothing can be said. `why` says in one sentence how `change` was found.
    Hosts are those that were compared: the slowest of each run.
    """

    change: Change
    ratio: Ratio | None
    tolerance: float
    stat: Stat
    before_ms: float | None
    after_ms: float | None
    before_steps: int
    after_steps: int
    before_host: str
    after_host: str
    steps_needed: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One op, kernel, kind of copy, stage, tf.function, or cause of idle time; None: not known, or without meaning."""

    name: str
    """For stages their path."""
    detail: str
    """For ops their type; for stages their name."""
    ms: float | None
    """Milliseconds per step: self time of ops (summed over threads or streams) and tf.functions, time of kernels and
    copies, waiting of the step in which this stage is waited for, idle time of a device."""
    count: float | None = None
    """How often per step; for tf.functions, tracings in the capture."""
    element_ms: float | None = None
    """For stages: own work for one element, on all threads."""


@dataclass(frozen=True, slots=True)
class Part:
    """Entries, those that take longest first; `total_rows` says how many there were before the list was cut."""

    rows: tuple[Entry, ...]
    total_rows: int

    @property
    def is_cut(self) -> bool:
        """Tell whether entries were left out."""
        return self.total_rows > len(self.rows)


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """One host. `step_ms` are its averaged whole steps in time order (`step_count`, before a long list was cut)."""

    host: str
    step_ms: tuple[float, ...]
    step_count: int
    category_ms: dict[str, float | None]
    """Average of each category, and of the two parts of input, over these steps; empty without steps."""
    input_percent: float | None
    input_class: str
    device_type: str
    device_model: str
    device_count: int
    half_precision_percent: float | None
    """16-bit compute / all device compute; None without any."""


@dataclass(frozen=True, slots=True)
class AllocatorPeak:
    """The most bytes in use in an allocator, over all hosts."""

    name: str
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a run came to. `host_count` counts the hosts before a long list was cut to the slowest."""

    label: str
    run: str
    tfperf_version: str
    attribution: str
    skip_first: int
    step_kind: str
    step_source: str
    step_confidence: str
    batches_per_step: int | None
    """None where the trace shows none."""
    batch_size: int | None
    """Of the outermost stage that makes batches, in the pipeline that is waited for longest."""
    hosts: tuple[HostSnapshot, ...]
    host_count: int
    parts: dict[str, Part]
    """By the names in `snapshot.PARTS`; none where there are no steps to count by."""
    allocators: tuple[AllocatorPeak, ...]
    """Those that matter most first."""

    def part(self, name: str) -> Part:
        """Return a part, empty if it is not there."""
        return self.parts.get(name, Part((), 0))
