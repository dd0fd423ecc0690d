"""Memory in use during a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builders import Event, event, host, trace_of

from tfperf.sections.timeline.analysis import MemoryInUse
from tfperf.sections.timeline.lanes import Window

US = 1_000_000


def noted(at: float, allocator: str, used: int, **stats: Any) -> Event:
    return event("MemoryAllocation", at, 0, allocator_name=allocator, bytes_allocated=used, **stats)


def test_what_is_in_use_when_the_step_starts_counts(tmp_path: Path) -> None:
    notes = (
        noted(10, "cpu", 100),
        noted(150, "cpu", 300, bytes_reserved=50),
        noted(250, "cpu", 7),
        noted(160, "gpu", 900),
    )
    memory = MemoryInUse(trace_of(tmp_path, host(*notes)))
    gpu, cpu = memory.curves(Window(100 * US, 200 * US))
    assert (cpu.title, cpu.times_ns.tolist(), cpu.used_bytes.tolist()) == ("cpu", [0, 50_000], [100, 350])
    assert (gpu.title, gpu.times_ns.tolist(), gpu.used_bytes.tolist()) == ("gpu", [60_000], [900])


def test_peaks_of_very_many_notes_stay(tmp_path: Path) -> None:
    notes = [noted(n, "cpu", 9_999 if n == 777 else 10) for n in range(2_000)]
    (curve,) = MemoryInUse(trace_of(tmp_path, host(*notes))).curves(Window(0, 2_000 * US))
    assert len(curve.times_ns) == 400
    assert int(curve.used_bytes.max()) == 9_999


def test_without_notes_there_is_no_curve(tmp_path: Path) -> None:
    memory = MemoryInUse(trace_of(tmp_path, host(event("x", 0, 10), noted(500, "cpu", -3), noted(900, "cpu", 5))))
    assert memory.curves(Window(0, 100 * US)) == ()
