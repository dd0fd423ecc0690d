"""Views as files for trace viewers: Chrome's JSON, as chrome://tracing and Perfetto read it.

The graph view has executions at the times at which they were recorded; the scope and the code view have no times of
their own, so they are a layout: boxes as wide as their totals.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tfperf.base.arrays import Int64s
from tfperf.base.files import new_file
from tfperf.base.units import counted, format_bytes
from tfperf.formats.wire import json_lines as text
from tfperf.models.tfprof.attributes import PLACE, OptionError
from tfperf.models.tfprof.chrome_events import Events, Process, Timeline, names_at
from tfperf.models.tfprof.graph_timeline import real_time
from tfperf.models.tfprof.input_file import TfprofInputError
from tfperf.models.tfprof.layout import layout
from tfperf.models.tfprof.model import AVERAGE, Model
from tfperf.models.tfprof.options import Options
from tfperf.models.tfprof.views import View, show_tree

LARGE_BYTES = 200_000_000
"""From here on, viewers fail to open a file, or take minutes."""


def write_timeline(model: Model, view: View, options: Options, path: Path) -> list[str]:
    """Write what a view shows to this file, for a trace viewer; return what to tell about it.

    The graph view has a process for each device, with executions in lanes in which they do not overlap, arrows from
    device to device, and the memory of accelerators. Step -1 has all steps at their times, and a process that shows
    where each is. In the scope and code view, step -1 is the mean.

    Raises ValueError for the op view and for a step that was not recorded, TfprofInputError if there is nothing to
    draw, OutputError if the file cannot be written.
    """
    timeline = make_timeline(model, view, options)
    size = 0
    with new_file(path) as file:
        for chunk in timeline.chunks():
            size += file.write(chunk)
    return [*timeline.notes, *_large(path, size)]


def _large(path: Path, size: int) -> Iterator[str]:
    if size > LARGE_BYTES:
        smaller = "choose one step, or leave out short executions with --min-micros"
        yield f"{path} has {format_bytes(size)}, which viewers may fail to open: {smaller}"


def make_timeline(model: Model, view: View, options: Options) -> Timeline:
    """Return what the file of a view shows; raises as `write_timeline`."""
    if view == "op":
        raise OptionError("the op view has no timeline: the scope, graph and code views have")
    steps = model.recorded(options.step)
    if not any(len(each.intervals.node) for each in steps.values()):
        raise TfprofInputError("no execution was recorded, so there is no timeline: give records with --run-meta")
    return _layout(model, view, options) if view != "graph" else real_time(model, options, [*steps.items()])


def _layout(model: Model, view: View, options: Options) -> Timeline:
    shown = show_tree(model, view, options)
    boxes = layout(shown, "micros")
    rows = np.flatnonzero(boxes.width > 0)
    step = f"mean of {counted(len(model.steps), 'step')}" if options.step == AVERAGE else f"step {options.step}"
    own, width = shown.tree.own[PLACE["micros"]], boxes.width

    def lines(chosen: Int64s) -> Any:
        at = rows[chosen]
        head = text.line(',\n{"ph":"X","cat":"Layout","pid":1,"tid":1,"name":', names_at(shown.tree.names, at))
        place = text.line(head, ',"ts":', text.whole(boxes.start[at]), ',"dur":', text.whole(width[at]))
        return text.line(place, ',"args":{"total_us":', text.whole(width[at]), ',"own_us":', text.whole(own[at]), "}}")

    notes = [f"this is a layout, not time: in the {view} view, each box is as wide as its total micros"]
    if len(rows) < len(shown.tree):
        notes.append(f"{counted(len(shown.tree) - len(rows), 'row')} of 0 us not drawn")
    if not len(rows):
        raise TfprofInputError(f"nothing that the {view} view shows took time, so there is nothing to draw")
    title = f"Layout by total micros, not time: {view} view, {step}"
    return Timeline(processes=[Process(1, title, lanes=1)], events=[Events(boxes.start[rows], lines)], notes=notes)
