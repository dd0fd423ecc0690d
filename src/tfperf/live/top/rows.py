"""The table of workers: one line each, with as many columns as the window has room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from tfperf.base.units import format_ms, format_number, format_percent
from tfperf.live.top.board import HISTORY_S, WorkerView
from tfperf.live.top.measured import Measured
from tfperf.report.render.charts import SPARK_ASCII, SPARK_BLOCKS, share_bar
from tfperf.report.render.text_table import PLAIN_ELLIPSIS, Line, Part, begin_of, cells, shorten
from tfperf.report.render.values import ELLIPSIS, safe

_LEAST_HISTORY_S = 60.0
_GAP = "  "
_LONGEST_NAME, _LEAST_CAUSE, _WHOLE_CAUSE = 24, 12, 19
_WORTH_FIXING, _PROBLEM = 3.0, 15.0
"""Percent of the step that fixing the first cause must bring to be yellow, or red: as in the diagnosis."""
_ENOUGH = 28
"""No line of step times, no bar of categories and no cause needs more cells."""


class Frame(Struct, frozen=True):
    """What drawing depends on besides the workers: width, time, and whether lines and blocks can be drawn."""

    width: int
    now_s: float
    interactive: bool = True

    def cut(self, text: str, width: int) -> str:
        """Return text in so many cells, safe to show."""
        return shorten(safe(text), width, mark=ELLIPSIS if self.interactive else PLAIN_ELLIPSIS)

    def earliest_s(self, worker: WorkerView) -> float:
        """Return when the line of step times begins: with the first sample, at least a minute ago."""
        first_s = worker.history[0][0] if worker.history else self.now_s
        return max(min(first_s, self.now_s - _LEAST_HISTORY_S), self.now_s - HISTORY_S)

    def begin(self, text: str, width: int) -> str:
        """Return the begin of a text in so many cells: of words, unlike of names, it tells most."""
        text, mark = safe(text), ELLIPSIS if self.interactive else PLAIN_ELLIPSIS
        if cells(text) <= width:
            return text
        return begin_of(text, max(width - cells(mark), 0)).rstrip() + mark


class _Column(Struct, frozen=True):
    """A column: its title, how many cells it takes at least, and what it shows of a worker in so many cells."""

    title: str
    width: int
    cell: Callable[[WorkerView, Frame, int], Sequence[Part]]
    is_number: bool = True
    grows: bool = False


def table_lines(workers: Sequence[WorkerView], chosen: WorkerView | None, frame: Frame) -> list[Line]:
    """Return the heading, and a line for each worker; no line is wider than the frame."""
    columns = _columns_that_fit(max((cells(safe(worker.name)) for worker in workers), default=6), frame.width - 2)
    heading = _GAP.join(_aligned(column.title, column.width, column.is_number) for column in columns)
    lines: list[Line] = [(Part(f"  {heading}"[: frame.width].rstrip(), "dim"),)]
    for worker in workers:
        parts: list[Part] = [Part("> ", "bold") if worker == chosen else Part("  ")]
        for number, column in enumerate(columns):
            shown = column.cell(worker, frame, column.width)
            space = Part(" " * (column.width - sum(cells(part.text) for part in shown)))
            parts += [*([Part(_GAP)] if number else []), *([space, *shown] if column.is_number else [*shown, space])]
        lines.append(parts)
    return lines


def _columns_that_fit(name_width: int, width: int) -> list[_Column]:
    """Return the columns for a width: those that tell most come first, and what is left is for those that grow."""
    name = _Column("WORKER", min(max(name_width, 6), max(_LONGEST_NAME, width // 4)), _name, False)
    widths = {column.title: column.width for column in (name, _STEP, _CAUSE)}
    used = sum(widths.values()) + 2 * len(_GAP)
    for column in _BY_USE:
        more = _WHOLE_CAUSE - _LEAST_CAUSE if column is _CAUSE else column.width + len(_GAP)
        if used + more <= width:
            widths[column.title] = _WHOLE_CAUSE if column is _CAUSE else column.width
            used += more
    columns = [column for column in (name, *_IN_ORDER) if column.title in widths]
    growing = [column.title for column in columns if column.grows]
    left = width - used
    while left > 0 and (small := [title for title in growing if widths[title] < _ENOUGH]):
        for title in small[:left]:
            widths[title] += 1
            left -= 1
    widths["CAUSE"] += max(left, 0)
    return [_Column(each.title, widths[each.title], each.cell, each.is_number, each.grows) for each in columns]


def _aligned(text: str, width: int, is_number: bool) -> str:
    return f"{text:>{width}}" if is_number else f"{text:{width}}"


def _measured(worker: WorkerView) -> Measured | None:
    return worker.shown.measured if worker.shown is not None else None


def _name(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
    style = "red" if worker.is_gone else "bold"
    return (Part(frame.cut(worker.name, width), style),)


def _step(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
    measured = _measured(worker)
    return (Part(format_ms(measured.step_ms if measured else None)),)


def _rate(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
    measured = _measured(worker)
    return (Part(format_number(measured.steps_per_second if measured else None)),)


def _examples(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
    measured = _measured(worker)
    return (Part(format_number(measured.examples_per_second if measured else None)),)


def _input(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
    measured = _measured(worker)
    share = measured.input_percent if measured else None
    return (Part(percent_text(share), "bold red" if (share or 0.0) >= 20.0 else ""),)


def _cost(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
    measured = _measured(worker)
    cost = measured.input_cost_percent if measured else None
    return (Part("-" if cost is None else cost_text(*cost)),)


def _busy(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
    measured = _measured(worker)
    return (Part(percent_text(measured.device_busy_percent if measured else None)),)


def _memory(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
    measured = _measured(worker)
    memory = measured.memory if measured else None
    return (Part(percent_text(None if memory is None else memory.used_percent)),)


def percent_text(value: float | None) -> str:
    """Return a share with its sign; a dash if it is unknown."""
    return "-" if value is None else f"{format_percent(value)}%"


def cost_text(low: float, high: float) -> str:
    """Return a range of shares in whole percent."""
    least, most = f"{low:.0f}", f"{high:.0f}%"
    return most if f"{least}%" == most else f"{least}-{most}"


def _history(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
    return (Part(history_text(worker, frame, width), "cyan"),)


def history_text(worker: WorkerView, frame: Frame, width: int) -> str:
    """Return the step times of the last minutes as one line of so many cells that ends now; its scale begins at 0.

    A cell shows the longest step time of its stretch of time, else the one before; nothing where a sample had none.
    """
    earliest_s = frame.earliest_s(worker)
    longest: list[float | None] = [None] * width
    held, last = None, 0
    for time_s, value in worker.history:
        place = int(width * (time_s - earliest_s) / max(frame.now_s - earliest_s, 1e-9))
        cell = min(max(place, last), width - 1)
        longest[last + 1 : cell] = [held] * max(cell - last - 1, 0)
        if value is not None:
            longest[cell] = max(longest[cell] or 0.0, value)
        held, last = value, cell
    longest[last + 1 :] = [held] * (width - last - 1)
    marks, highest = (
        SPARK_BLOCKS if frame.interactive else SPARK_ASCII,
        max((each or 0.0 for each in longest), default=0.0),
    )
    if not highest:
        return ""
    texts = (" " if each is None else marks[min(int(each / highest * len(marks)), len(marks) - 1)] for each in longest)
    return "".join(texts).rstrip()


def _categories(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
    measured = _measured(worker)
    if measured is None or not measured.categories:
        return (Part(""),)
    return share_bar({each.title: each.percent for each in measured.categories}, width)


def _cause(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
    text, style = state_of(worker)
    return (Part(frame.begin(text, width), style),)


def state_of(worker: WorkerView) -> tuple[str, str]:
    """Return in some words what holds the worker up, or why nothing is known of it; and a style."""
    last, measured = worker.last, _measured(worker)
    if worker.is_slow:
        return f"answering for {worker.asked_s:.0f} s", "yellow"
    if last is None:
        return ("waiting for its first sample", "dim")
    if measured is None:
        words = last.reason.replace("_", " ")
        return (f"gone: {words}" if last.is_gone else words, "dim" if last.reason == "idle" else "red")
    if measured.step_ms is None:
        return "no steps", "yellow"
    cause = next(iter(measured.causes), None)
    if cause is None or cause.gain_percent < _WORTH_FIXING:
        return "nothing worth fixing", "green"
    return cause.title, "bold red" if cause.gain_percent >= _PROBLEM else "yellow"


_STEP = _Column("STEP ms", 7, _step)
_HISTORY = _Column("LAST MIN", 8, _history, False, True)
_RATE = _Column("STEPS/s", 7, _rate)
_EXAMPLES = _Column("EX/s", 7, _examples)
_INPUT = _Column("INPUT", 6, _input)
_COST = _Column("COSTS", 7, _cost)
_BUSY = _Column("DEVICE", 6, _busy)
_MEMORY = _Column("MEMORY", 6, _memory)
_BAR = _Column("CATEGORIES", 10, _categories, False, True)
_CAUSE = _Column("CAUSE", _LEAST_CAUSE, _cause, False, True)
_BY_USE = (_INPUT, _HISTORY, _CAUSE, _BAR, _RATE, _EXAMPLES, _BUSY, _COST, _MEMORY)
"""What room is given to besides worker, step time and the begin of a cause, what tells most first."""
_IN_ORDER = (_STEP, _HISTORY, _RATE, _EXAMPLES, _INPUT, _COST, _BUSY, _MEMORY, _BAR, _CAUSE)
