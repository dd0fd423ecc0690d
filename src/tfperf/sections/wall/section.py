"""The section about the wall time, and what other texts say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfperf.analysis.registry import present
from tfperf.base.arrays import median
from tfperf.base.units import PS_PER_MS, counted, format_ms, format_number
from tfperf.report.model import Fact, Section
from tfperf.sections.wall.analysis import OMITTED_PARTS, Wall
from tfperf.sections.wall.tables import WALL
from tfperf.trace.steps.steps import step_word

if TYPE_CHECKING:
    from tfperf.analysis.results import Results
    from tfperf.base.arrays import Int64s

DIFFERENT = 0.1
"""The two rates of steps are both stated where they differ by more than this share."""
_NO_WALL = ("ms", "steps_ms", "omitted_ms", "other_kinds_ms", "between_ms", "before_ms", "after_ms")


def build(results: Results) -> Section:
    """Build the section: the capture, the wall time per step, and the parts of the capture."""
    wall: Wall = results["wall"]
    facts = [Fact("capture", "Capture", wall.capture_ps / PS_PER_MS, "ms")]
    if wall.count:
        word = step_word(wall.kind)
        note = f"from the first to the last of {counted(wall.count, word)}"
        note += ", without steps of other kinds" if wall.evaluation_ps else ""
        facts.append(Fact("wall_step", "Wall time per step", wall_step_ms(wall), "ms", note))
    modes = modes_text(wall, wall.slow("averaged", "compiling"))
    host = (f"On {wall.host}.",) if results.has_several_hosts else ()
    return Section(
        "wall",
        "Wall time",
        facts=tuple(facts),
        tables=present(WALL.build(results, bar_key="percent")),
        notes=(*host, *((f"{modes}.",) if modes else ())),
    )


def wall_step_ms(wall: Wall) -> float | None:
    """Return the wall time of training per step, without steps of other kinds; None without steps."""
    return wall.training_ps / wall.count / PS_PER_MS if wall.count and wall.training_ps else None


def modes_text(wall: Wall, slow: Int64s) -> str:
    """Say how long some slow steps take, and how regularly they come; empty without any."""
    others = np.setdiff1d(wall.counted("averaged"), slow)
    if not len(slow) or not len(others):
        return ""
    slow_ms = float(wall.step_ps[slow].mean()) / PS_PER_MS
    median_ms = median(wall.step_ps[others]) / PS_PER_MS
    times = f"{format_ms(slow_ms)} ms, the others {format_ms(median_ms)} ms"
    period = wall.period(slow)
    if period:
        return f"Every {_ordinal(period)} step takes {times}"
    return f"{len(slow)} of {counted(wall.count, 'step')} take {times}"


def _ordinal(number: int) -> str:
    words = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return words.get(number, f"{number}{ending}")


def rate_text(wall: Wall, within_ms: float) -> str:
    """Return the steps per second of the wall time, and within steps where the two differ by more than 10%."""
    step_ms = wall_step_ms(wall)
    if step_ms is None:
        return f"{format_number(1000.0 / within_ms)} steps/s"
    text = f"{format_number(1000.0 / step_ms)} steps/s"
    if abs(step_ms - within_ms) > DIFFERENT * min(step_ms, within_ms):
        text += f" (in steps {format_number(1000.0 / within_ms)})"
    return text


def wall_summary(results: Results) -> dict[str, Any]:
    """Return the JSON keys of every report about the wall time; unknown where the section was not analyzed."""
    wall: Wall | None = results["wall"] if "wall" in results.sections else None
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
