"""The options of the live view, and the state of all workers: threads write it, the screen reads it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field

from tfperf.base.units import counted
from tfperf.capture.address import Address
from tfperf.capture.outcomes import TracerOptions
from tfperf.live.sample import Sample
from tfperf.live.verdict import Mark, Verdict, judged, pooled_ms
from tfperf.report.palette import Role


class TopRequest(Struct, frozen=True, kw_only=True):
    """Options for sampling workers. Durations are in seconds."""

    workers: Sequence[Address]
    duration_s: float = 0.5
    interval_s: float = 5.0
    options: TracerOptions = field(default_factory=TracerOptions)
    tls_ca: Path | None = None
    logdir: Path = Path("logs")
    records_all: bool = False
    samples: int | None = None
    """Number of samples of each worker; None: unlimited."""


HISTORY_S = 300.0
_MOST_POINTS = 600
_SLOW_S = 5.0
_KEPT = 12
"""Number of samples that stay in memory with all their figures."""


class Point(Struct, frozen=True):
    """A sample in the history: its time, mean step time in milliseconds (None: unknown), kind of step and causes."""

    time_s: float
    step_ms: float | None = None
    kind: str = ""
    roles: tuple[tuple[Role, float], ...] = ()
    """Percent of the step by role, in the order of the palette."""


class WorkerView(Struct, frozen=True, kw_only=True):
    """A snapshot of one worker. `last` is the latest sample, `known` the latest with a step time."""

    address: Address
    last: Sample | None = None
    known: Sample | None = None
    history: tuple[Point, ...] = ()
    """The samples in the last minutes."""
    kept: tuple[Sample, ...] = ()
    """The last samples with a step time, oldest first."""
    verdict: Verdict | None = None
    """Diagnosis over the last samples with the kind of step of `known`."""
    mark: Mark | None = None
    asked_s: float | None = None
    """Duration of the current request; None without one."""
    samples: int = 0
    failures: int = 0
    is_kept: bool = False
    """Whether the latest sample can still be recorded."""

    @property
    def name(self) -> str:
        """Return the address of the worker, or its task in the cluster."""
        return self.address.task or str(self.address)

    @property
    def is_slow(self) -> bool:
        """Return whether the reply takes much longer than the recording, so that the figures are old."""
        longest_s = _SLOW_S + (2 * self.last.duration_s if self.last is not None else 0.0)
        return self.asked_s is not None and self.asked_s > longest_s

    @property
    def is_gone(self) -> bool:
        """Return whether no server answers there."""
        return self.last is not None and self.last.is_gone

    @property
    def shown(self) -> Sample | None:
        """Return the latest sample if it has figures, else None."""
        return self.last if self.last is not None and self.last.measured is not None else None

    @property
    def since_mark_ms(self) -> float | None:
        """Return the median step time of the last samples since the mark; None: unknown."""
        return None if self.mark is None else pooled_ms(self.kept, self.mark.kind, self.mark.time_s)


class _Row(Struct):
    address: Address
    last: Sample | None = None
    known: Sample | None = None
    history: deque[Point] = field(default_factory=lambda: deque(maxlen=_MOST_POINTS))
    kept: deque[Sample] = field(default_factory=lambda: deque(maxlen=_KEPT))
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """By kind of step."""
    mark: Mark | None = None
    asked_since_s: float | None = None
    samples: int = 0
    failures: int = 0
    is_kept: bool = False


class Board:
    """The workers in the order of the request. `on_sample` is called with each sample, from its thread."""

    def __init__(
        self, addresses: Sequence[Address], on_sample: Callable[[Address, Sample], object] | None = None
    ) -> None:
        self._rows = [_Row(address) for address in addresses]
        self._row_of = {row.address: row for row in self._rows}
        self._on_sample = on_sample
        self._lock = threading.Lock()
        self.version = 0
        self.note = ""
        """The last event other than a sample, for example a recording."""
        self.failure: BaseException | None = None
        """The error that ended a thread unexpectedly."""

    def views(self) -> tuple[WorkerView, ...]:
        """Return a snapshot of all workers."""
        now_s, earliest_s = time.monotonic(), time.time() - HISTORY_S
        with self._lock:
            return tuple(
                WorkerView(
                    address=row.address,
                    last=row.last,
                    known=row.known,
                    history=tuple(point for point in row.history if point.time_s >= earliest_s),
                    kept=tuple(row.kept),
                    verdict=row.verdicts.get(row.kept[-1].step_kind) if row.kept else None,
                    mark=row.mark,
                    asked_s=None if row.asked_since_s is None else now_s - row.asked_since_s,
                    samples=row.samples,
                    failures=row.failures,
                    is_kept=row.is_kept,
                )
                for row in self._rows
            )

    def asking(self, address: Address, since_s: float | None) -> None:
        """Record that a request started at `since_s` on the monotonic clock; None: no request."""
        with self._lock:
            self._row_of[address].asked_since_s = since_s
            self.version += 1

    def add(self, address: Address, sample: Sample, *, is_kept: bool = False) -> None:
        """Record a sample of a worker."""
        with self._lock:
            row = self._row_of[address]
            row.last, row.is_kept = sample, is_kept
            row.samples += sample.measured is not None
            row.failures += sample.measured is None and sample.reason != "idle"
            if sample.is_known:
                row.known = sample
                row.kept.append(sample)
                kind = sample.step_kind
                of_kind = [each for each in row.kept if each.step_kind == kind]
                row.verdicts[kind] = judged(row.verdicts.get(kind), of_kind)
            row.history.append(_point(sample))
            self.version += 1
        if self._on_sample is not None:
            self._on_sample(address, sample)

    def mark(self) -> None:
        """Make the step times of the last samples the baseline of each worker, and tell how many have one."""
        now_s, count = time.time(), 0
        with self._lock:
            for row in self._rows:
                kind = row.kept[-1].step_kind if row.kept else ""
                step_ms = pooled_ms(row.kept, kind)
                row.mark = None if step_ms is None else Mark(now_s, kind, step_ms)
                count += step_ms is not None
        clock = time.strftime("%H:%M:%S", time.localtime(now_s))
        self.tell(f"marked {counted(count, 'worker')} at {clock}" if count else "no step time to mark yet")

    def tell(self, note: str) -> None:
        """Record an event for the line at the bottom."""
        with self._lock:
            self.note, self.version = note, self.version + 1


def _point(sample: Sample) -> Point:
    measured = sample.measured
    if measured is None or measured.step_ms is None:
        return Point(sample.time_s)
    shares: dict[Role, float] = {}
    for each in measured.bar.segments if measured.bar is not None else ():
        shares[each.role] = shares.get(each.role, 0.0) + 100.0 * each.value / measured.step_ms
    return Point(sample.time_s, measured.step_ms, measured.step_kind, tuple(shares.items()))
