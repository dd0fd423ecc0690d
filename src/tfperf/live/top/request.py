"""What the live view is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, field

from tfperf.capture.address import Address
from tfperf.capture.tracer_options import TracerOptions


class TopRequest(Struct, frozen=True, kw_only=True):
    """Which workers to sample, and how. Durations are in seconds."""

    workers: Sequence[Address]
    duration_s: float = 0.5
    interval_s: float = 5.0
    options: TracerOptions = field(default_factory=TracerOptions)
    tls_ca: Path | None = None
    logdir: Path = Path("logs")
    """Where samples go that are recorded."""
    records_all: bool = False
    samples: int | None = None
    """How often each worker is asked; None: without end."""
