"""What the profiler records."""

from __future__ import annotations

from msgspec import Struct

from tfperf.base.errors import TfperfError

ENOUGH_SECONDS = 4.0
"""How long to profile where nobody says so: 40 steps of 100 ms, 200 of 20 ms, which is what a comparison takes."""


class TracerOptions(Struct, frozen=True):
    """Levels of TensorFlow's tracers.

    `host_tracer_level` is 0 (off), 1 (events that the program marks itself), 2 (also expensive operations) or 3 (also
    cheap ones); `device_tracer_level` is 0 or 1; `python_tracer_level` is 0 or 1 (every Python call, which slows the
    job down a lot). Raises TfperfError for any other level.
    """

    host_tracer_level: int = 2
    device_tracer_level: int = 1
    python_tracer_level: int = 0

    def __post_init__(self) -> None:
        for name, limit in {"host_tracer_level": 3, "device_tracer_level": 1, "python_tracer_level": 1}.items():
            if not 0 <= int(getattr(self, name)) <= limit:
                raise TfperfError(f"{name} is {getattr(self, name)}; it must be from 0 to {limit}")
