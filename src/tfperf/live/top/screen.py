"""The whole screen as lines: what is asked of the jobs, the table of workers, the chosen one, and the keys."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import Struct

from tfperf.base.units import counted, format_percent
from tfperf.live.top.board import WorkerView
from tfperf.live.top.details import detail_lines
from tfperf.live.top.look import HELP, Look, ordered
from tfperf.live.top.request import TopRequest
from tfperf.live.top.rows import Frame, table_lines
from tfperf.report.render.text_table import Line, cells, line_of, wrap
from tfperf.report.render.values import for_people

_LEAST_DETAILS = 9
"""So many lines are kept for the chosen worker where the window has them."""
_KEYS = "q quit  ? help  Enter details  s sort  p pause  r record"


class Seen(Struct, frozen=True):
    """What is to be drawn: the workers as they are now, what was asked for, and the last note."""

    workers: Sequence[WorkerView]
    request: TopRequest
    note: str = ""


def chosen_of(seen: Seen, look: Look) -> WorkerView | None:
    """Return the worker whose details are shown: the one that was chosen, else the first that has any."""
    shown = ordered(seen.workers, look.order)
    first = next((worker for worker in shown if worker.shown is not None), next(iter(shown), None))
    return next((worker for worker in shown if worker.address == look.chosen), first)


def screen_lines(seen: Seen, look: Look, frame: Frame, height: int) -> list[Line]:
    """Return at most `height` lines for a terminal, none wider than the frame."""
    if look.shows_help:
        return _help_lines(frame)[:height]
    chosen = chosen_of(seen, look)
    head = _head_lines(seen, look, chosen, frame)
    foot = [line_of(frame.begin(seen.note or f"{_KEYS}  sorted: {look.order}", frame.width), "reverse")]
    room = max(height - len(head) - len(foot), 1)
    if chosen is None:
        body: list[Line] = []
    elif look.shows_details:
        body = detail_lines(chosen, frame, room, is_whole=True)
    else:
        body = _both(ordered(seen.workers, look.order), chosen, frame, room)
    body = body[:room]
    return [*head, *body, *([line_of("")] * (room - len(body))), *foot][:height]


def text_lines(seen: Seen, frame: Frame) -> list[Line]:
    """Return all workers, and the details of the worst: one screen as text, as long as it needs to be."""
    look = Look()
    shown, chosen = ordered(seen.workers, look.order), chosen_of(seen, look)
    lines = [*_head_lines(seen, look, chosen, frame), *table_lines(shown, None, frame)]
    return lines if chosen is None else [*lines, line_of(""), *detail_lines(chosen, frame, 30)]


def _both(shown: Sequence[WorkerView], chosen: WorkerView, frame: Frame, room: int) -> list[Line]:
    """Return the table, cut around the chosen worker if it is long, and below it the details."""
    # A heading, a blank line, and where not all are shown, a line that says so.
    rows = min(len(shown), max(room - _LEAST_DETAILS - 3, 1))
    first = min(max(shown.index(chosen) - rows // 2, 0), len(shown) - rows)
    lines = table_lines(shown[first : first + rows], chosen, frame)
    above, below = first, len(shown) - first - rows
    if above or below:
        places = ((above, "above"), (below, "below"))
        hidden = ", ".join(f"{counted(count, 'worker')} {place}" for count, place in places if count)
        lines.append(line_of(frame.cut(f"  {hidden}", frame.width), "dim"))
    details = detail_lines(chosen, frame, max(room - len(lines) - 1, 0))
    return [*lines, line_of(""), *details] if details else lines


def _head_lines(seen: Seen, look: Look, chosen: WorkerView | None, frame: Frame) -> list[Line]:
    """Return who is watched, and what that takes of the time of the job."""
    gone = sum(worker.is_gone for worker in seen.workers)
    state = f"tfperf top: {counted(len(seen.workers), 'worker')}" + (f", {gone} gone" if gone else "")
    state += ", PAUSED" if look.is_paused else ""
    clock = time.strftime("%H:%M:%S", time.localtime(frame.now_s))
    space = " " * max(frame.width - cells(state) - len(clock), 2)
    head = line_of(frame.cut(f"{state}{space}{clock}", frame.width), "bold")
    return [head, *(line_of(text, "dim") for text in wrap(_cost_of(seen.request, chosen), frame.width)[:2])]


def _cost_of(request: TopRequest, chosen: WorkerView | None) -> str:
    """Say how much of the time of the job is profiled, and what that costs it, if anything tells."""
    last = chosen.last if chosen is not None else None
    asked = f"{_seconds(request.duration_s)} every {_seconds(request.interval_s)}"
    if last is None or not last.profiled_percent:
        return asked
    text = f"{asked}: {format_percent(last.profiled_percent)}% of the time is profiled"
    slowdown = last.slowdown_percent
    if slowdown is None:
        return f"{text}; what that costs is unknown"
    cost = last.profiled_percent * slowdown / 100.0
    return f"{text}, with steps {slowdown:.0f}% longer: that costs {format_percent(cost)}%"


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:g} s"


def _help_lines(frame: Frame) -> list[Line]:
    lines: list[Line] = [line_of("Keys", "bold")]
    for keys, meaning in HELP:
        texts = wrap(meaning, max(frame.width - 20, 20))
        lines += [line_of(f"{'' if number else keys:18}{text}") for number, text in enumerate(texts)]
    about = (
        "STEP ms is the average over the whole steps of the last sample. INPUT is the share of the step that waits for "
        "data and copies it, COSTS has what the threads of the pipeline take besides. DEVICE is how much of the steps "
        "the devices work, MEMORY how full the fullest allocator became. A dash is unknown."
    )
    return [*lines, line_of(""), *map(line_of, wrap(for_people(about), frame.width))]
