"""The options of the live view, and the state of all workers: threads write it, the screen reads it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field

from tfperf.capture.address import Address
from tfperf.capture.outcomes import TracerOptions
from tfperf.live.sample import Sample


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


class WorkerView(Struct, frozen=True, kw_only=True):
    """A snapshot of one worker. `last` is the latest sample, `known` the latest with a step time."""

    address: Address
    last: Sample | None = None
    known: Sample | None = None
    history: tuple[tuple[float, float | None], ...] = ()
    """Time and step time in milliseconds of samples in the last minutes; None: unknown step time."""
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


class _Row(Struct):
    address: Address
    last: Sample | None = None
    known: Sample | None = None
    history: deque[tuple[float, float | None]] = field(default_factory=lambda: deque(maxlen=_MOST_POINTS))
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
                    history=tuple(point for point in row.history if point[0] >= earliest_s),
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
            step_ms = sample.measured.step_ms if sample.measured else None
            row.history.append((sample.time_s, step_ms))
            self.version += 1
        if self._on_sample is not None:
            self._on_sample(address, sample)

    def tell(self, note: str) -> None:
        """Record an event for the line at the bottom."""
        with self._lock:
            self.note, self.version = note, self.version + 1
