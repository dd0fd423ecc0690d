"""The view as lines: the request, the table of workers, and the details of one; the live view and `--once` use them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from tfperf.base.units import counted, format_bytes, format_ms, format_number, format_percent
from tfperf.live.board import TopRequest, WorkerView
from tfperf.live.graphs import by_cell, cause_graph, step_graph
from tfperf.live.sample import Measured, RankedTime, Sample
from tfperf.live.verdict import PROBLEM
from tfperf.report.palette import ROLES
from tfperf.report.render.charts import SPARK_ASCII, SPARK_BLOCKS, apportion, segment_bar_lines
from tfperf.report.render.text_table import (
    PLAIN_ELLIPSIS,
    Line,
    Part,
    begin_of,
    cells,
    line_of,
    shorten,
    width_of,
    wrap,
)
from tfperf.report.render.values import ELLIPSIS, for_people, safe

Order = Literal["worst", "name", "step", "input"]
ORDERS: tuple[Order, ...] = ("worst", "name", "step", "input")


def ordered(workers: Sequence[WorkerView], order: Order) -> list[WorkerView]:
    """Return the sorted workers: unknown values come last, and failing workers count as the worst."""
    return sorted(workers, key=_KEYS[order])


def _by_name(worker: WorkerView) -> tuple[object, ...]:
    return (worker.name, worker.address.port)


def _step_ms(worker: WorkerView) -> float | None:
    return worker.shown.measured.step_ms if worker.shown is not None and worker.shown.measured is not None else None


def _input_percent(worker: WorkerView) -> float:
    measured = worker.shown.measured if worker.shown is not None else None
    return -1.0 if measured is None or measured.input_percent is None else measured.input_percent


def _by_trouble(worker: WorkerView) -> tuple[object, ...]:
    """Return a sort key: no answer, long steps, input share. Steps within 10% are equal, so the order is stable."""
    step_ms = _step_ms(worker)
    has_problem = worker.last is not None and worker.last.measured is None and worker.last.reason != "idle"
    size = -round(7 * math.log2(step_ms)) if step_ms else 0
    share = round(_input_percent(worker) / 10)
    return (not has_problem, not worker.is_gone, step_ms is None, size, -share, *_by_name(worker))


_KEYS: Mapping[Order, Callable[[WorkerView], tuple[object, ...]]] = {
    "worst": _by_trouble,
    "name": _by_name,
    "step": lambda worker: (_step_ms(worker) is None, -(_step_ms(worker) or 0.0), *_by_name(worker)),
    "input": lambda worker: (-_input_percent(worker), *_by_name(worker)),
}


def worst_of(workers: Sequence[WorkerView]) -> WorkerView | None:
    """Return the first of the sorted workers with a sample, else the first one; None without workers."""
    return next((worker for worker in workers if worker.shown is not None), next(iter(workers), None))


def text_lines(workers: Sequence[WorkerView], request: TopRequest, frame: Frame) -> list[Line]:
    """Return all workers, and the details of the worst one, as text of any length."""
    shown = ordered(workers, "worst")
    chosen = worst_of(shown)
    lines = [*head_lines(workers, request, chosen, frame), *table_lines(shown, None, frame)]
    return lines if chosen is None else [*lines, line_of(""), *detail_lines(chosen, frame, 30)]


def head_lines(
    workers: Sequence[WorkerView], request: TopRequest, chosen: WorkerView | None, frame: Frame, state: str = ""
) -> list[Line]:
    """Return the line with the number of workers, the state and the time, and how much the chosen one is profiled."""
    gone = sum(worker.is_gone for worker in workers)
    text = f"tfperf top: {counted(len(workers), 'worker')}" + (f", {gone} gone" if gone else "") + state
    clock = time.strftime("%H:%M:%S", time.localtime(frame.now_s))
    space = " " * max(frame.width - cells(text) - len(clock), 2)
    head = line_of(frame.cut(f"{text}{space}{clock}", frame.width), "bold")
    return [head, *(line_of(text, "dim") for text in wrap(_cost_of(request, chosen), frame.width)[:2])]


def _cost_of(request: TopRequest, chosen: WorkerView | None) -> str:
    last = chosen.last if chosen is not None else None
    asked = f"{_seconds(request.duration_s)} every {_seconds(request.interval_s)}"
    if last is None or not last.profiled_percent:
        return asked
    text = f"{asked}: profiling {format_percent(last.profiled_percent)}% of the time"
    slowdown = last.slowdown_percent
    if slowdown is None:
        return f"{text}; overhead unknown"
    cost = last.profiled_percent * slowdown / 100.0
    return f"{text}, with steps {slowdown:.0f}% longer: {format_percent(cost)}% overhead"


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:g} s"


_GAP = "  "
_LONGEST_NAME, _LEAST_CAUSE, _WHOLE_CAUSE = 24, 12, 19
_ENOUGH = 28
"""Maximum useful width of a step time history, a category bar or a cause."""


class Frame(Struct, frozen=True):
    """The width, time and character set for drawing."""

    width: int
    now_s: float
    interactive: bool = True

    def cut(self, text: str, width: int) -> str:
        """Return text cut to a number of cells, safe to print."""
        return shorten(safe(text), width, mark=ELLIPSIS if self.interactive else PLAIN_ELLIPSIS)

    def begin(self, text: str, width: int) -> str:
        """Return the first cells of a text: the most informative part of sentences, unlike names."""
        text, mark = safe(text), ELLIPSIS if self.interactive else PLAIN_ELLIPSIS
        if cells(text) <= width:
            return text
        return begin_of(text, max(width - cells(mark), 0)).rstrip() + mark


class _Column(Struct, frozen=True):
    """A column: its title, minimum width, and text for a worker at a width."""

    title: str
    width: int
    cell: Callable[[WorkerView, Frame, int], Sequence[Part]]
    is_number: bool = True
    grows: bool = False


def table_lines(workers: Sequence[WorkerView], chosen: WorkerView | None, frame: Frame) -> list[Line]:
    """Return the heading and a line per worker, each at most as wide as the frame."""
    columns = _columns_that_fit(
        max((cells(safe(worker.name)) for worker in workers), default=6),
        frame.width - 2,
        _BY_USE if all(worker.mark is None for worker in workers) else (_CHANGE, *_BY_USE),
    )
    heading = _GAP.join(f"{each.title:{'>' if each.is_number else '<'}{each.width}}" for each in columns)
    lines: list[Line] = [(Part(f"  {heading}"[: frame.width].rstrip(), "dim"),)]
    for worker in workers:
        parts: list[Part] = [Part("> ", "bold") if worker == chosen else Part("  ")]
        for number, column in enumerate(columns):
            shown = column.cell(worker, frame, column.width)
            space = Part(" " * (column.width - sum(cells(part.text) for part in shown)))
            parts += [*([Part(_GAP)] if number else []), *([space, *shown] if column.is_number else [*shown, space])]
        lines.append(parts)
    return lines


def _columns_that_fit(name_width: int, width: int, by_use: Sequence[_Column]) -> list[_Column]:
    """Return the columns for a width, by priority; the remaining cells go to flexible columns."""
    name = _Column(
        "WORKER",
        min(max(name_width, 6), max(_LONGEST_NAME, width // 4)),
        lambda worker, frame, width: (Part(frame.cut(worker.name, width), "red" if worker.is_gone else "bold"),),
        False,
    )
    widths = {column.title: column.width for column in (name, _STEP, _CAUSE)}
    used = sum(widths.values()) + 2 * len(_GAP)
    for column in by_use:
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


def _measured(worker: WorkerView) -> Measured | None:
    return worker.shown.measured if worker.shown is not None else None


def percent_text(value: float | None) -> str:
    """Return a share in percent; a dash if it is unknown."""
    return "-" if value is None else f"{format_percent(value)}%"


def cost_text(low: float, high: float) -> str:
    """Return a range of shares in whole percent."""
    least, most = f"{low:.0f}", f"{high:.0f}%"
    return most if f"{least}%" == most else f"{least}-{most}"


def history_text(worker: WorkerView, frame: Frame, width: int) -> str:
    """Return the step times of the last minutes as one line of `width` cells that ends now; its scale starts at 0.

    A cell shows the longest step time of its interval, or else the previous one, or a blank for a sample without one.
    """
    values = [None if point is None else point.step_ms for point in by_cell(worker, frame.now_s, width)]
    marks = SPARK_BLOCKS if frame.interactive else SPARK_ASCII
    highest = max((each or 0.0 for each in values), default=0.0)
    if not highest:
        return ""
    texts = (" " if each is None else marks[min(int(each / highest * len(marks)), len(marks) - 1)] for each in values)
    return "".join(texts).rstrip()


def change_text(worker: WorkerView) -> str:
    """Return the change of the step time since the mark in percent; a dash if it is unknown."""
    now_ms = worker.since_mark_ms
    if worker.mark is None or now_ms is None:
        return "-"
    return f"{100.0 * (now_ms / worker.mark.step_ms - 1.0):+.0f}%"


def state_of(worker: WorkerView) -> tuple[str, str]:
    """Return a short description of the worker's bottleneck or failure, and a style."""
    last, measured = worker.last, _measured(worker)
    if worker.is_slow:
        return f"no reply for {worker.asked_s:.0f} s", "yellow"
    if last is None:
        return ("waiting for the first sample", "dim")
    if measured is None:
        words = last.reason.replace("_", " ")
        return (f"gone: {words}" if last.is_gone else words, "dim" if last.reason == "idle" else "red")
    if measured.step_ms is None:
        return "no steps", "yellow"
    verdict = worker.verdict
    if verdict is None or verdict.cause is None:
        return "no cause worth fixing", "green"
    return verdict.cause.title, "bold red" if verdict.gain_percent >= PROBLEM else "yellow"


def _figure(
    title: str, width: int, text: Callable[[Measured], str], style: Callable[[Measured], str] = lambda _: ""
) -> _Column:
    def cell(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
        measured = _measured(worker)
        return (Part("-") if measured is None else Part(text(measured), style(measured)),)

    return _Column(title, width, cell)


def _bar(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
    bar = measured.bar if (measured := _measured(worker)) else None
    if bar is None:
        return (Part(""),)
    looks = [ROLES[each.role] for each in bar.segments]
    counts = apportion([each.value for each in bar.segments], width)
    return [
        Part(look.letter * count, f"{look.ink} on {look.colour}")
        for look, count in zip(looks, counts, strict=True)
        if count
    ] or (Part(""),)


def _cause(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
    text, style = state_of(worker)
    return (Part(frame.begin(text, width), style),)


_STEP = _figure("STEP ms", 7, lambda measured: format_ms(measured.step_ms))
_HISTORY = _Column(
    "LAST MIN", 8, lambda worker, frame, width: (Part(history_text(worker, frame, width), "cyan"),), False, True
)
_RATE = _figure("STEPS/s", 7, lambda measured: format_number(measured.steps_per_second))
_EXAMPLES = _figure("EX/s", 7, lambda measured: format_number(measured.examples_per_second))
_INPUT = _figure(
    "INPUT",
    6,
    lambda measured: percent_text(measured.input_percent),
    lambda measured: "bold red" if (measured.input_percent or 0.0) >= 20.0 else "",
)
_COST = _figure(
    "COSTS", 7, lambda measured: cost_text(*measured.input_cost_percent) if measured.input_cost_percent else "-"
)
_BUSY = _figure("DEVICE", 6, lambda measured: percent_text(measured.device_busy_percent))
_MEMORY = _figure("MEMORY", 6, lambda measured: percent_text(measured.memory.used_percent if measured.memory else None))
_CHANGE = _Column("MARK", 6, lambda worker, frame, width: (Part(change_text(worker)),))
_BAR = _Column("BY CAUSE", 10, _bar, False, True)
_CAUSE = _Column("CAUSE", _LEAST_CAUSE, _cause, False, True)
_BY_USE = (_INPUT, _HISTORY, _CAUSE, _BAR, _RATE, _EXAMPLES, _BUSY, _COST, _MEMORY)
"""Columns by decreasing priority, in addition to worker, step time and the start of a cause."""
_IN_ORDER = (_STEP, _CHANGE, _HISTORY, _RATE, _EXAMPLES, _INPUT, _COST, _BUSY, _MEMORY, _BAR, _CAUSE)
_LEAST_SHARE = 1.0
"""Minimum percent of the time for an op in the list."""
_LONGEST_TEXT = 2
"""Maximum lines of a sentence in the details; the screen of a step shows all lines."""
_GRAPH_LINES = (4, 10)
"""Minimum and maximum height of a graph."""
_SIDE_BY_SIDE = 70
"""Minimum width for two graphs in a row."""
_MOST_OPS = 5
"""Number of ops that have priority over higher graphs."""


def detail_lines(worker: WorkerView, frame: Frame, height: int, *, has_graphs: bool = False) -> list[Line]:
    """Return the details of a worker in at most `height` lines, optionally with graphs over time.

    Without a current sample, the last good one follows the reason.
    """
    lines: list[Line] = [_title(worker, frame)]
    sample = worker.shown
    if sample is None or not sample.is_known:
        lines += _why_lines(worker, frame)
        if worker.known is not None:
            ago_s = max(frame.now_s - worker.known.time_s, 0.0)
            lines += [line_of(""), _plain(f"the last good sample, {ago_s:.0f} s ago:", frame, "bold")]
        sample = worker.known or sample
    if sample is None or sample.measured is None:
        return lines[:height]
    lines += _step_lines(sample.measured, frame)
    lines += _verdict_lines(worker, frame)
    facts = _fact_lines(worker, sample, sample.measured, frame)
    ops = ranked_lines(sample.measured, frame, height)
    if has_graphs:
        rest = height - len(lines) - len(facts) - min(len(ops), _MOST_OPS + 1) - 3
        if rest < _GRAPH_LINES[0]:
            rest = height - len(lines) - 3
        if rest >= _GRAPH_LINES[0]:
            lines += _graph_lines(worker, frame, min(rest, _GRAPH_LINES[1]))
    lines += facts
    room = height - len(lines)
    return [*lines, *(ops[:room] if room >= 2 else [])][:height]


def _plain(text: str, frame: Frame, style: str = "") -> Line:
    return line_of(frame.cut(text, frame.width), style)


def _title(worker: WorkerView, frame: Frame) -> Line:
    said = [counted(worker.samples, "sample")]
    if worker.failures:
        said.append(f"{worker.failures:,} failed")
    sample = worker.shown
    if sample is not None:
        said.append(f"last {max(frame.now_s - sample.time_s, 0.0):.0f} s ago")
    if worker.asked_s is not None:
        said.append(f"no reply for {worker.asked_s:.0f} s" if worker.is_slow else "sampling now")
    name = worker.name if worker.name == str(worker.address) else f"{worker.name} at {worker.address}"
    text = frame.begin(f"{name}: {', '.join(said)}", frame.width)
    return line_of(text, "bold")


def _why_lines(worker: WorkerView, frame: Frame) -> list[Line]:
    """Return why the latest sample has no step time."""
    last = worker.last
    if last is None:
        return [_plain("no sample yet", frame)]
    if last.measured is not None:
        text, style = last.measured.why, "yellow"
    else:
        text, style = last.message, "" if last.reason == "idle" else "red"
    return [line_of(each, style) for each in wrap(for_people(text), frame.width)][:_LONGEST_TEXT]


def _step_lines(measured: Measured, frame: Frame) -> list[Line]:
    """Return the step time with the kind of step, and the step by cause."""
    if measured.step_ms is None:
        return []
    kind = "" if measured.step_kind in ("", "step") else f"{measured.step_kind} "
    steps = f"over {counted(measured.step_count, f'whole {kind}step')}"
    spread = f"median {format_ms(measured.median_step_ms)}, slowest {format_ms(measured.slowest_step_ms)}"
    lines = [_plain(f"step {format_ms(measured.step_ms)} ms {steps}, {spread}", frame)]
    return lines if measured.bar is None else [*lines, *segment_bar_lines([measured.bar], frame.width)]


def _verdict_lines(worker: WorkerView, frame: Frame) -> list[Line]:
    """Return the first cause over the last samples, on what it rests, and what to change."""
    verdict, known = worker.verdict, worker.known
    if verdict is None or known is None or known.measured is None:
        return []
    cause, count = verdict.cause, len(verdict.gains)
    kind = "" if known.step_kind in ("", "step") else f"{known.step_kind} "
    said = f"over {counted(count, f'{kind}sample')}"
    if count > 1:
        seconds = known.time_s - verdict.since_s
        since = f"{max(seconds, 0.0):.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        said += f", stable for {since}"
    if cause is not None:
        said += f": a fix saves {cost_text(min(verdict.gains), max(verdict.gains))} of the time"
    text = known.measured.headline if cause is None else cause.text
    lines = _hanging("!! " if cause is not None else "   ", "bold red", text, frame)[:_LONGEST_TEXT]
    lines += _hanging("   ", "dim", said, frame)[:1]
    # The rest of an action states when it does not help.
    action = cause.action.partition("; ")[0] if cause is not None else ""
    return lines + (_hanging("   try: ", "", action, frame)[:_LONGEST_TEXT] if action else [])


def _graph_lines(worker: WorkerView, frame: Frame, height: int) -> list[Line]:
    if frame.width < _SIDE_BY_SIDE:
        return step_graph(worker, frame.now_s, frame.width, height, interactive=frame.interactive)
    width = (frame.width - len(_GAP)) // 2
    left = step_graph(worker, frame.now_s, width, height, interactive=frame.interactive)
    right = cause_graph(worker, frame.now_s, width, height)
    if not left or not right:
        return left or right
    right += [()] * (len(left) - len(right))
    return [
        [*one, Part(" " * (width - width_of(one) + len(_GAP))), *other] for one, other in zip(left, right, strict=True)
    ]


def _fact_lines(worker: WorkerView, sample: Sample, measured: Measured, frame: Frame) -> list[Line]:
    facts = []
    if worker.mark is not None:
        clock = time.strftime("%H:%M:%S", time.localtime(worker.mark.time_s))
        now_ms = worker.since_mark_ms
        was = f"since mark {clock}"
        if now_ms is None:
            facts.append(f"{was}: no sample yet")
        else:
            facts.append(f"{was}: {format_ms(worker.mark.step_ms)} to {format_ms(now_ms)} ms, {change_text(worker)}")
    cost = measured.input_cost_percent
    share = percent_text(measured.input_percent)
    facts.append(f"input {share}" + ("" if cost is None else f", costs {cost_text(*cost)}"))
    if measured.steps_per_second is not None:
        facts.append(f"{format_number(measured.steps_per_second)} steps/s")
    if measured.examples_per_second is not None:
        facts.append(f"{format_number(measured.examples_per_second)} examples/s (batch size {measured.batch_size:,})")
    facts.append(f"device busy {percent_text(measured.device_busy_percent)}")
    memory = measured.memory
    if memory is not None:
        of = "" if memory.capacity_bytes is None else f" of {format_bytes(memory.capacity_bytes)}"
        facts.append(f"memory {format_bytes(memory.peak_bytes)}{of} ({for_people(memory.allocator)})")
    facts.append(f"sample of {format_bytes(sample.size_bytes)} received in {sample.answer_s:.1f} s")
    lines: list[str] = []
    for fact in facts:
        joined = f"{lines[-1]}   {fact}" if lines else fact
        if lines and cells(joined) <= frame.width:
            lines[-1] = joined
        else:
            lines.append(fact)
    return [_plain(line, frame) for line in lines]


def _hanging(mark: str, style: str, text: str, frame: Frame) -> list[Line]:
    lines = wrap(for_people(text), max(frame.width - len(mark), 20))
    look = style if not mark.strip() else ""
    return [(Part(" " * len(mark) if number else mark, style), Part(line, look)) for number, line in enumerate(lines)]


def ranked_lines(measured: Measured, frame: Frame, room: int) -> list[Line]:
    """Return the ops or kernels with 1% of the time and more in at most `room` lines; empty without any."""
    ranked: list[RankedTime] = [each for each in measured.ranked if each.percent >= _LEAST_SHARE]
    if not ranked:
        return []
    lines: list[Line] = [_plain(f" SHARE      TIME ms  {measured.ranked_are.upper()}", frame, "dim")]
    for each in ranked[: room - 1]:
        head = f"{percent_text(each.percent):>6}  {format_ms(each.total_ms):>11}  "
        kind = f"{for_people(each.type)}: " if each.type and each.type not in each.name else ""
        name = frame.cut(f"{kind}{for_people(each.name)}", max(frame.width - len(head), 8))
        lines.append((Part(head), Part(name)))
    return lines


def sample_lines(worker: WorkerView, sample: Sample, place: str, frame: Frame) -> list[Line]:
    """Return one sample with known steps in full: its step by cause in ms, its steps, all causes and its ops."""
    measured = sample.measured
    if measured is None:
        return []
    clock = time.strftime("%H:%M:%S", time.localtime(sample.time_s))
    kind = measured.step_kind if measured.step_kind not in ("", "step") else "step"
    title = f"{worker.name}: sample {sample.number} at {clock}, kind {kind}, {place}"
    lines = [line_of(frame.begin(title, frame.width), "bold"), *_step_lines(measured, frame), line_of("")]
    bar = measured.bar
    if bar is not None:
        share = max(7, *(cells(each.share) for each in bar.segments))
        lines.append(_plain(f"TIME ms  {'OF STEP':>{share}}  CAUSE", frame, "dim"))
        for each in bar.segments:
            saved = f", a fix saves {format_ms(each.saved)} ms" if each.saved else ""
            text = f"{for_people(each.title)}{saved}"
            head = f"{format_ms(each.value):>7}  {each.share:>{share}}  "
            lines.append(_plain(f"{head}{text}", frame))
        lines += _steps_of_sample(bar.values, frame)
    for cause in measured.causes:
        lines += [line_of(""), *_hanging("!! ", "bold red", cause.text, frame)]
        lines += _hanging("   try: ", "", cause.action, frame) if cause.action else []
    ops = ranked_lines(measured, frame, 100)
    return [*lines, line_of(""), *_fact_lines(worker, sample, measured, frame), *([line_of("")] if ops else []), *ops]


def _steps_of_sample(values: Sequence[float], frame: Frame) -> list[Line]:
    """Return the step times of a sample, one cell for each."""
    if len(values) < 2:
        return []
    marks, highest = SPARK_BLOCKS if frame.interactive else SPARK_ASCII, max(values)
    text = f"steps, {format_ms(min(values))} to {format_ms(highest)} ms: "
    shown = values[: max(frame.width - len(text), 1)]
    cells_of = (marks[min(int(each / highest * len(marks)), len(marks) - 1)] for each in shown)
    return [line_of(""), (Part(text), Part("".join(cells_of), "cyan"))]
