"""One step of a host as a picture."""

from __future__ import annotations

from collections.abc import Iterator

from tfperf.analysis.results import Host
from tfperf.base.units import counted, format_ms
from tfperf.report.step_picture import StepPicture
from tfperf.sections.timeline.block_names import BlockTexts
from tfperf.sections.timeline.lanes import MOST_LANES, LaneEvents, lane_events
from tfperf.sections.timeline.levels import levels_of
from tfperf.sections.timeline.links import links_of
from tfperf.sections.timeline.memory_curves import MemoryInUse
from tfperf.sections.timeline.places import CATEGORIES_OF_CAUSE
from tfperf.sections.timeline.ribbon import categories_ns, longest_places, ribbons
from tfperf.sections.timeline.window import Window
from tfperf.trace.steps.steps import Steps, step_word


def draw_step(host: Host, row: int, which: str, memory: MemoryInUse) -> StepPicture:
    """Return the picture of the step at a row of the steps; `which` says in words which one it is."""
    steps: Steps = host["steps"].steps
    window = Window(int(steps.start_ps[row]), int(steps.end_ps[row]))
    texts = BlockTexts(host)
    drawn = lane_events(host, window, texts)
    of_step = ribbons(host, row)
    return StepPicture(
        title=_title(steps, row, which),
        host=host.trace.host,
        step=int(steps.numbers[row]),
        duration_ns=window.duration_ns,
        categories=categories_ns(host, row),
        ribbons=of_step,
        groups=drawn.groups,
        levels=levels_of(drawn.events, window.duration_ns),
        names=tuple(texts.names),
        notes=tuple(texts.notes),
        links=links_of(host, drawn),
        memory=memory.curves(window),
        places=longest_places(of_step[0], CATEGORIES_OF_CAUSE) if of_step else {},
        remarks=tuple(_remarks(drawn)),
    )


def _title(steps: Steps, row: int, which: str) -> str:
    flag = f" ({steps.flags[row]})" if steps.flags[row] else ""
    what = f"{step_word(steps.kinds[row]).capitalize()} {steps.numbers[row]}{flag}"
    return f"{what}, {which}: {format_ms(int(steps.duration_ps[row]) / 1e9)} ms"


def _remarks(drawn: LaneEvents) -> Iterator[str]:
    """Say what is not drawn."""
    lanes = sum(group.omitted for group in drawn.groups)
    if lanes:
        are = "is" if lanes == 1 else "are"
        yield f"{counted(lanes, 'lane')} {are} not drawn: the {MOST_LANES} busiest of each group are."
    if drawn.omitted_groups:
        yield f"{counted(drawn.omitted_groups, 'group')} of lanes not drawn."
    if drawn.deeper:
        yield f"{counted(drawn.deeper, 'event')} not drawn: they lie too deep inside others."
