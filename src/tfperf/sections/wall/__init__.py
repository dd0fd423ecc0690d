"""Wall time: the time of the whole capture, inside and outside of steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfperf.analysis.registry import SectionSpec, TableSpec, present
from tfperf.base.arrays import is_any, median
from tfperf.base.units import PS_PER_MS, counted, format_ms, format_number, listed, percent
from tfperf.report.model import Column, Data, Fact, Section
from tfperf.sections.wall.analysis import OMITTED_PARTS, Wall
from tfperf.trace.steps.steps import step_word

if TYPE_CHECKING:
    from tfperf.analysis.registry import Results
    from tfperf.base.arrays import Int64s
    from tfperf.sections.wall.analysis import Content, PartName

DIFFERENT = 0.1
"""Both step rates are reported if they differ by more than this share."""
_LONGER = "from the start to the stop of the profiler; the capture is from the first to the last event"
_NO_WALL = ("ms", "steps_ms", "omitted_ms", "other_kinds_ms", "between_ms", "before_ms", "after_ms")


def build(results: Results) -> Section:
    """Build the section: the capture, the wall time per step, and the parts of the capture."""
    wall = results["wall"]
    label, note = ("Profiler session", _LONGER) if wall.is_session else ("Capture", "")
    facts = [Fact("capture", label, wall.capture_ps / PS_PER_MS, "ms", note)]
    if wall.steady_count:
        note = f"from the first to the last of {steady_text(wall)}"
        facts.append(Fact("wall_step", "Wall time per step", wall_step_ms(wall), "ms", note))
    modes = modes_text(wall, wall.slow("averaged", "compiling"))
    host = (f"These times are from host {wall.host}.",) if results.has_several_hosts else ()
    return Section(
        "wall",
        "Wall time",
        facts=tuple(facts),
        tables=present(WALL.build(results, bar_key="percent")),
        notes=(*host, *((f"{modes}.",) if modes else ())),
    )


def wall_step_ms(wall: Wall) -> float | None:
    """Return the wall time of training per step, excluding first steps and other kinds; None without other steps."""
    return wall.training_ps / wall.steady_count / PS_PER_MS if wall.steady_count and wall.training_ps else None


def steady_text(wall: Wall) -> str:
    """Return the steps that the wall time per step is about: `8 training steps, excluding first steps`."""
    others = {"first steps": wall.steady_count < wall.count, "steps of other kinds": wall.evaluation_ps > 0}
    excluded = " and ".join(name for name, has in others.items() if has)
    return counted(wall.steady_count, step_word(wall.kind)) + f", excluding {excluded}" * bool(excluded)


def modes_text(wall: Wall, slow: Int64s) -> str:
    """Return the durations of slow steps and their regularity as text; empty without slow steps."""
    averaged = wall.counted("averaged")
    others = averaged[~is_any(averaged, slow)]
    if not len(slow) or not len(others):
        return ""
    slow_ms = float(wall.step_ps[slow].mean()) / PS_PER_MS
    median_ms = median(wall.step_ps[others]) / PS_PER_MS
    times = f"{format_ms(slow_ms)} ms, the others {format_ms(median_ms)} ms"
    period = wall.period(slow)
    if period:
        ending = {1: "st", 2: "nd", 3: "rd"}.get(period % 10, "th") if period % 100 not in (11, 12, 13) else "th"
        words = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}
        return f"Every {words.get(period, f'{period}{ending}')} step takes {times}"
    return f"{len(slow)} of {counted(wall.count, 'step')} take {times}"


def rate_text(wall: Wall, within_ms: float, *, within: bool = True) -> str:
    """Return steps per second of wall time; `within` adds the rate in steps if the two differ by more than 10%."""
    step_ms = wall_step_ms(wall)
    if step_ms is None:
        return f"{format_number(1000.0 / within_ms)} steps/s"
    text = f"{format_number(1000.0 / step_ms)} steps/s"
    if within and abs(step_ms - within_ms) > DIFFERENT * min(step_ms, within_ms):
        text += f" ({format_number(1000.0 / within_ms)} within steps)"
    return text


def wall_summary(results: Results) -> dict[str, Any]:
    """Return the JSON keys about wall time; unknown if the section was not analyzed."""
    wall = results["wall"] if "wall" in results.sections else None
    within = results["overview"].step_time_ms
    within_rate = 1000.0 / within.average if within is not None and within.average else None
    if wall is None or not wall.capture_ps:
        return {
            "wall": dict.fromkeys(_NO_WALL),
            "wall_step_ms": None,
            "steps_per_second": None,
            "steps_per_second_within": within_rate,
        }
    step_ms = wall_step_ms(wall)
    times_ps = (
        wall.capture_ps,
        wall.part_ps("averaged"),
        wall.part_ps(*OMITTED_PARTS),
        wall.other_kinds_ps,
        wall.between_ps,
        wall.before_ps,
        wall.after_ps,
    )
    return {
        "wall": dict(zip(_NO_WALL, (ps / PS_PER_MS for ps in times_ps), strict=True)),
        "wall_step_ms": step_ms,
        "steps_per_second": 1000.0 / step_ms if step_ms else None,
        "steps_per_second_within": within_rate,
    }


_PARTS: dict[PartName, tuple[str, str]] = {
    "averaged": ("averaged steps", "steps in the averages"),
    "first": ("first steps", "excluded: they trace, compile or take very long"),
    "compiling": ("compiling steps", "excluded: a function is traced or compiled in them"),
    "partial": ("partial steps", "excluded: the capture does not show their start or end"),
    "omitted": ("omitted steps", "excluded: a rare garbage collection, or steps that the averages skip"),
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
    wall = results["wall"]
    if not wall.capture_ps:
        return None
    rows = [*_rows(wall)]
    return {
        "part": [row.part for row in rows],
        "ms": [row.ps / PS_PER_MS for row in rows],
        "percent": [percent(row.ps, wall.capture_ps) for row in rows],
        "count": [row.number for row in rows],
        "detail": [row.detail for row in rows],
    }


def _rows(wall: Wall) -> Iterator[_Row]:
    if not len(wall.starts_ps):
        yield _Row("without any step", wall.capture_ps, 1, "no step was found")
    else:
        if wall.profiler_start_ps:
            yield _Row("starting the profiler", wall.profiler_start_ps, 1)
        yield _Row("before the first step", wall.before_ps - wall.profiler_start_ps, 1)
    for part, (title, detail) in _PARTS.items():
        if count := int(wall.are(part).sum()):
            yield _Row(title, wall.part_ps(part), count, detail)
    if count := int(wall.is_other.sum()):
        others = dict.fromkeys(wall.kinds[row] for row in np.flatnonzero(wall.is_other).tolist())
        yield _Row(OTHER_KINDS, wall.other_kinds_ps, count, f"{listed([*others])}, and the time between them")
    for content in CONTENT_TEXTS:  # time between steps, by content
        gaps = [gap for gap in wall.between if gap.content == content]
        if gaps:
            after = f"after {listed([wall.names[gap.row] for gap in gaps], 3)}"
            detail = "; ".join(filter(None, (after, wall.contents[content].name)))
            yield _Row(between_row(content), sum(gap.end_ps - gap.start_ps for gap in gaps), len(gaps), detail)
    if len(wall.starts_ps):
        yield _Row("after the last step", wall.after_ps - wall.profiler_stop_ps, 1)
    if wall.profiler_stop_ps:
        yield _Row("stopping the profiler", wall.profiler_stop_ps, 1)


def between_row(content: Content) -> str:
    """Return the name of the row for time between steps with this content."""
    return f"between steps: {CONTENT_TEXTS[content]}"


WALL = TableSpec(
    name="wall",
    title="Wall time by part",
    row="wall time of the whole capture, by part",
    details=(
        "One row per part of the profiler's session, or without its times, of the capture. The rows do not overlap, "
        "and `ms` adds up to it. With several hosts, the rows are of the host with the longest training time per step."
    ),
    columns=(
        Column("part", "Part", str, "", "part of the session or capture"),
        Column("ms", "Time", float, "ms", "wall time of the part"),
        Column("percent", "Share", float, "%", "share of the sum of all parts"),
        Column("count", "Count", int, "count", "number of steps or time intervals in the part"),
        Column("detail", "Meaning", str, "", "its steps, and the activity during the part"),
    ),
    data=_data,
    name_key="part",
)
TABLES = (WALL,)


SECTION = SectionSpec(
    name="wall",
    title="Wall time",
    rests_on=("steps",),
    analyze="tfperf.sections.wall.analysis:analyze",
    combine="tfperf.sections.wall.analysis:combine",
    narrow="tfperf.sections.wall.analysis:narrow",
    build="tfperf.sections.wall:build",
    tables=TABLES,
)
