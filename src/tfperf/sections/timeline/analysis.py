"""Which steps of a host are drawn, and their pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.results import Host
from tfperf.base.display import Shown, cut
from tfperf.base.units import counted
from tfperf.report.step_picture import StepPicture
from tfperf.sections.timeline.drawing import draw_step
from tfperf.sections.timeline.memory_curves import MemoryInUse
from tfperf.trace.steps.steps import CoreSteps, Steps, WhichStep, chosen_step


class DrawnSteps(Shown, Struct, frozen=True):
    """Pictures of steps, those of each host one after the other; `why_none` is empty if there are any."""

    pictures: tuple[StepPicture, ...] = ()
    why_none: str = ""
    lacks_asked_step: bool = False
    """Whether there are none because no host has the step that was asked for."""

    def __repr__(self) -> str:
        return cut(f"<DrawnSteps: {counted(len(self.pictures), 'picture')}>")


def analyze(host: Host) -> DrawnSteps:
    """Draw the step that is asked for; else the median one and the slowest whole one."""
    steps: Steps = host["steps"].steps
    if host.as_tensorflow:
        return DrawnSteps(why_none="attribution tensorflow gives steps a time axis of their own; omit --attribution")
    if host.is_one_of_many:
        return DrawnSteps(why_none="there are too many hosts: --host NAME draws the steps of one")
    if not len(steps):
        return DrawnSteps(why_none=f"there are no steps: {steps.explanation}")
    chosen = dict(_chosen(steps, host.drawn_step))
    if not chosen:
        return DrawnSteps(why_none=_no_such_step(steps, host.drawn_step), lacks_asked_step=True)
    host = _on_one_clock(host)
    memory = MemoryInUse(host.trace)
    return DrawnSteps(tuple(draw_step(host, row, which, memory) for row, which in chosen.items()))


def _on_one_clock(host: Host) -> Host:
    """Return the host with events of devices on its own clock, beside which they are drawn."""
    trace = host.trace
    if not trace.device_clocks:
        return host
    drawn = Host(trace.on_one_clock(), host.attribution, host.step_marker, host.peaks, host.drawn_step)
    steps: Steps = host["steps"].steps  # on the clock of the chips
    windows = (*steps.on_cores, CoreSteps(trace.devices[0], steps.start_ps, steps.end_ps))
    *on_cores, whole = (
        CoreSteps(plane, trace.on_host_clock(plane, start_ps), trace.on_host_clock(plane, end_ps))
        for plane, start_ps, end_ps in windows
    )
    steps = replace(steps, start_ps=whole.start_ps, end_ps=whole.end_ps, on_cores=tuple(on_cores))
    drawn.results = {**host.results, "steps": replace(host["steps"], steps=steps)}
    return drawn


def _chosen(steps: Steps, asked: WhichStep | None) -> Iterator[tuple[int, str]]:
    """Yield the rows of the steps to draw, and which each is, in words."""
    words = {"median": "the median", "slowest": "the slowest"}
    rows: dict[int, list[str]] = {}
    for which in ("median", "slowest") if asked is None else (asked,):
        row = chosen_step(steps, which)
        if row is not None:
            rows.setdefault(row, []).append(words.get(str(which), "as asked for"))
    for row, parts in rows.items():
        yield row, " and ".join(parts)


def _no_such_step(steps: Steps, asked: WhichStep | None) -> str:
    first, last = int(steps.numbers.min()), int(steps.numbers.max())
    known = f"the only step is {first}" if first == last else f"the steps are {first}..{last}"
    return f"there is no step {asked}; {known}"


def combine(hosts: Sequence[DrawnSteps]) -> DrawnSteps:
    """Put the pictures of several hosts side by side."""
    pictures = tuple(picture for host in hosts for picture in host.pictures)
    if pictures:
        return DrawnSteps(pictures)
    # Helpers of a job have no steps at all, which says less.
    lacking = [host for host in hosts if host.lacks_asked_step] or [*hosts]
    return DrawnSteps((), lacking[0].why_none, lacking[0].lacks_asked_step)
