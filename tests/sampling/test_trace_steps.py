"""The steps of a trace file without an analysis."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, host, space

from tfperf.errors import TraceFormatError
from tfperf.sampling.trace_steps import longest_step_s, steps_of


def written(folder: Path, *durations_us: float) -> Path:
    path = folder / "w.xplane.pb"
    starts = [sum(durations_us[:number]) for number in range(len(durations_us))]
    steps = [
        event("train", start, duration, step_num=number, _r=1)
        for number, (start, duration) in enumerate(zip(starts, durations_us, strict=True))
    ]
    path.write_bytes(space(host(*steps or [event("op", 0, 1)])))
    return path


def test_steps_are_counted_and_the_longest_is_found(tmp_path: Path) -> None:
    trace = written(tmp_path, 10, 10, 30_000, 10)
    assert len(steps_of(trace)) == 4
    assert longest_step_s(trace) == pytest.approx(0.030)


def test_a_trace_without_steps(tmp_path: Path) -> None:
    assert longest_step_s(written(tmp_path)) == 0


def test_a_file_that_is_not_a_trace(tmp_path: Path) -> None:
    (tmp_path / "w.xplane.pb").write_bytes(b"not a trace")
    with pytest.raises(TraceFormatError):
        longest_step_s(tmp_path / "w.xplane.pb")
