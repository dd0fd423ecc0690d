"""What devices wait for, as blocks."""

from __future__ import annotations

from pathlib import Path

from sections.timeline.pictures import blocks_of_lane, gpu_host, gpu_window

from tfperf.sections.timeline.lanes import idle_gaps


def test_gaps_of_a_step_by_cause(tmp_path: Path) -> None:
    """As `synthetic_gpu.py` has it: 220 until the copy ends its gap, then gaps at 800 and from 850 on."""
    analyzed = gpu_host(tmp_path, "idle")
    first, second = idle_gaps(analyzed, gpu_window(analyzed, 1))
    assert (first.device, second.device) == ("GPU:0", "GPU:1")
    start_us = [(start - 1_000_000_000) // 1_000_000 for start in first.start_ps.tolist()]
    assert start_us == [0, 800, 850]
    assert [first.causes[cause] for cause in first.cause.tolist()] == [
        "Waiting for input", "Synchronising", "Python between calls"
    ]  # fmt: skip
    assert first.splits[0] == "Waiting for input 0.200 ms, Copying 0.010 ms, Launching 0.010 ms"
    assert first.splits[1] == ""


def test_they_are_the_first_lane_of_a_device(tmp_path: Path) -> None:
    picture = gpu_host(tmp_path)["timeline"].pictures[0]
    assert blocks_of_lane(picture, "GPU:0", "Idle, by cause")[0] == ("Waiting for input", 0, 0, 220)
    kinds = {name.name: name.kind for name in picture.names}
    assert kinds["Waiting for input"] == "Idle: Waiting for input"
