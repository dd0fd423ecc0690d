"""The table of the wall time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tfperf.analysis.registry import TableSpec
from tfperf.base.units import PS_PER_MS, listed, percent
from tfperf.report.model import Column, Data

if TYPE_CHECKING:
    from tfperf.analysis.results import Results
    from tfperf.sections.wall.analysis import Content, PartName, Wall

_PARTS: dict[PartName, tuple[str, str]] = {
    "averaged": ("averaged steps", "steps in the averages"),
    "first": ("first steps", "omitted: they trace, compile or take very long"),
    "compiling": ("compiling steps", "omitted: a function is traced or compiled in them"),
    "partial": ("partial steps", "omitted: the capture does not show where they start or end"),
    "omitted": ("omitted steps", "omitted: a rare garbage collection, or steps that the averages leave out"),
}
OTHER_KINDS = "steps of other kinds"
CONTENT_TEXTS: dict[Content, str] = {
    "collection": "garbage collection of Python",
    "checkpoint": "saving or restoring a checkpoint",
    "compile": "tracing or compiling",
    "iterator": "starting an input iterator",
    "summary": "writing summaries",
    "python": "Python",
    "calls": "calls outside steps",
    "nothing": "nothing is recorded (Python, callbacks or I/O)",
}


class _Row(NamedTuple):
    part: str
    ps: int
    number: int
    detail: str = ""


def _data(results: Results) -> Data | None:
    wall: Wall = results["wall"]
    if not wall.capture_ps:
        return None
    rows = [*_before_rows(wall), *_step_rows(wall), *_between_rows(wall), *_after_rows(wall)]
    return {
        "part": [row.part for row in rows],
        "ms": [row.ps / PS_PER_MS for row in rows],
        "percent": [percent(row.ps, wall.capture_ps) for row in rows],
        "count": [row.number for row in rows],
        "detail": [row.detail for row in rows],
    }


def _before_rows(wall: Wall) -> Iterator[_Row]:
    if not len(wall.starts_ps):
        yield _Row("without any step", wall.capture_ps, 1, "no step was found")
        return
    if wall.profiler_start_ps:
        yield _Row("starting the profiler", wall.profiler_start_ps, 1)
    yield _Row("before the first step", wall.before_ps - wall.profiler_start_ps, 1)


def _after_rows(wall: Wall) -> Iterator[_Row]:
    if len(wall.starts_ps):
        yield _Row("after the last step", wall.after_ps - wall.profiler_stop_ps, 1)
    if wall.profiler_stop_ps:
        yield _Row("stopping the profiler", wall.profiler_stop_ps, 1)


def _step_rows(wall: Wall) -> Iterator[_Row]:
    for part, (title, detail) in _PARTS.items():
        if count := int(wall.are(part).sum()):
            yield _Row(title, wall.part_ps(part), count, detail)
    if count := int(wall.is_other.sum()):
        others = dict.fromkeys(wall.kinds[row] for row in np.flatnonzero(wall.is_other).tolist())
        yield _Row(OTHER_KINDS, wall.other_kinds_ps, count, f"{listed([*others])}, and the time between them")


def _between_rows(wall: Wall) -> Iterator[_Row]:
    """Yield the time between steps by what ran there."""
    for content in CONTENT_TEXTS:
        gaps = [gap for gap in wall.between if gap.content == content]
        if gaps:
            after = f"after {listed([wall.names[gap.row] for gap in gaps], 3)}"
            detail = "; ".join(filter(None, (after, wall.contents[content].name)))
            yield _Row(between_row(content), sum(gap.end_ps - gap.start_ps for gap in gaps), len(gaps), detail)


def between_row(content: Content) -> str:
    """Return the name of the row with the time between steps in which this runs."""
    return f"between steps: {CONTENT_TEXTS[content]}"


WALL = TableSpec(
    name="wall",
    title="Wall time of the capture",
    row="where the time of the whole capture goes",
    details=(
        "One row per part of the capture, from its start to its end. The rows do not overlap, and `ms` adds up to the "
        "capture. With several hosts, it is the host whose training takes longest per step."
    ),
    columns=(
        Column("part", "Part", str, "", "part of the capture"),
        Column("ms", "Time", float, "ms", "wall time of the part"),
        Column("percent", "Share", float, "%", "share of the capture"),
        Column("count", "Count", int, "count", "how many steps, or stretches of time, the part has"),
        Column("detail", "What it is", str, "", "which steps, and what ran there"),
    ),
    data=_data,
    name_key="part",
)
TABLES = (WALL,)
