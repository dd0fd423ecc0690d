"""Pictures of steps of small traces."""

from __future__ import annotations

from pathlib import Path

from builders import Plane, host_of, read_back, trace_of
from synthetic_gpu import synthetic_gpu

from tfperf.analysis.registry import Host
from tfperf.report.model import Blocks, StepPicture
from tfperf.sections.timeline.lanes import Window
from tfperf.trace.steps.steps import WhichStep

US = 1_000


def pictures_of(tmp_path: Path, *planes: Plane, step: WhichStep | None = None) -> tuple[StepPicture, ...]:
    host = Host(trace_of(tmp_path, *planes), step=step)
    host.analyze(("steps", "hosts", "idle", "timeline"))
    pictures: tuple[StepPicture, ...] = host["timeline"].pictures
    return pictures


def gpu_host(tmp_path: Path, *sections: str) -> Host:
    """The synthetic job on two GPUs (`synthetic_gpu.py`)."""
    return host_of(read_back(tmp_path, synthetic_gpu()), *(sections or ("timeline",)))


def gpu_window(host: Host, step: int) -> Window:
    steps = host["steps"].steps
    return Window(int(steps.start_ps[step]), int(steps.end_ps[step]))


def blocks_of_lane(picture: StepPicture, group: str, lane: str) -> list[tuple[str, int, int, int]]:
    """Return the blocks of a lane at the finest level: name, row in the lane, start and duration in us."""
    row = 0
    for each in picture.groups:
        for drawn in each.lanes:
            if (each.title, drawn.title) == (group, lane):
                return _blocks(picture, picture.levels[-1], row, row + drawn.rows)
            row += drawn.rows
    raise AssertionError(f"no lane {lane} in {group}: {[[lane.title for lane in g.lanes] for g in picture.groups]}")


def _blocks(picture: StepPicture, level: Blocks, first: int, stop: int) -> list[tuple[str, int, int, int]]:
    columns = zip(
        *(column.tolist() for column in (level.name, level.row, level.start_ns, level.duration_ns)), strict=True
    )
    return [
        (picture.names[name].name, row - first, start // US, duration // US)
        for name, row, start, duration in columns
        if first <= row < stop
    ]
