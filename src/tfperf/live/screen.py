"""The screen as lines: the request, the table of workers, the chosen worker, and the keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from tfperf.base.units import counted, format_bytes, format_ms, format_number, format_percent
from tfperf.live.board import HISTORY_S, TopRequest, WorkerView
from tfperf.live.look import HELP, Look, ordered
from tfperf.live.sample import Measured, RankedTime, Sample
from tfperf.report.render.charts import SPARK_ASCII, SPARK_BLOCKS, category_letters, legend_lines, share_bar
from tfperf.report.render.text_table import PLAIN_ELLIPSIS, Line, Part, begin_of, cells, line_of, shorten, wrap
from tfperf.report.render.values import ELLIPSIS, for_people, safe

_LEAST_DETAILS = 9
"""Minimum number of lines for the chosen worker, if the window is large enough."""
_KEYS = "q quit  ? help  Enter details  s sort  p pause  r record"


class Seen(Struct, frozen=True):
    """Data to draw: the current workers, the request, and the last note."""

    workers: Sequence[WorkerView]
    request: TopRequest
    note: str = ""


def chosen_of(seen: Seen, look: Look) -> WorkerView | None:
    """Return the worker with details: the chosen one, else the first with a sample."""
    shown = ordered(seen.workers, look.order)
    first = next((worker for worker in shown if worker.shown is not None), next(iter(shown), None))
    return next((worker for worker in shown if worker.address == look.chosen), first)


def screen_lines(seen: Seen, look: Look, frame: Frame, height: int) -> list[Line]:
    """Return at most `height` lines for a terminal, each at most as wide as the frame."""
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
    """Return all workers, and the details of the worst one, as text of any length."""
    look = Look()
    shown, chosen = ordered(seen.workers, look.order), chosen_of(seen, look)
    lines = [*_head_lines(seen, look, chosen, frame), *table_lines(shown, None, frame)]
    return lines if chosen is None else [*lines, line_of(""), *detail_lines(chosen, frame, 30)]


def _both(shown: Sequence[WorkerView], chosen: WorkerView, frame: Frame, room: int) -> list[Line]:
    """Return the table, cut around the chosen worker if it is long, and the details below it."""
    # A heading, a blank line and, if some workers are hidden, a line with their number.
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
    gone = sum(worker.is_gone for worker in seen.workers)
    state = f"tfperf top: {counted(len(seen.workers), 'worker')}" + (f", {gone} gone" if gone else "")
    state += ", PAUSED" if look.is_paused else ""
    clock = time.strftime("%H:%M:%S", time.localtime(frame.now_s))
    space = " " * max(frame.width - cells(state) - len(clock), 2)
    head = line_of(frame.cut(f"{state}{space}{clock}", frame.width), "bold")
    return [head, *(line_of(text, "dim") for text in wrap(_cost_of(seen.request, chosen), frame.width)[:2])]


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


def _help_lines(frame: Frame) -> list[Line]:
    lines: list[Line] = [line_of("Keys", "bold")]
    for keys, meaning in HELP:
        texts = wrap(meaning, max(frame.width - 20, 20))
        lines += [line_of(f"{'' if number else keys:18}{text}") for number, text in enumerate(texts)]
    about = (
        "STEP ms is the mean of the whole steps in the last sample. INPUT is the share of the step spent on waiting "
        "for input and copying it; COSTS also includes CPU contention with pipeline threads. DEVICE is the share of "
        "the steps in which devices are busy, MEMORY the peak use of the fullest allocator. A dash means unknown."
    )
    return [*lines, line_of(""), *map(line_of, wrap(for_people(about), frame.width))]


_LEAST_HISTORY_S = 60.0
_GAP = "  "
_LONGEST_NAME, _LEAST_CAUSE, _WHOLE_CAUSE = 24, 12, 19
_WORTH_FIXING, _PROBLEM = 3.0, 15.0
"""Minimum gain of the first cause, in percent of the step, for yellow and for red, as in the diagnosis."""
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

    def earliest_s(self, worker: WorkerView) -> float:
        """Return the start of the step time history: the first sample, but at least a minute ago."""
        first_s = worker.history[0][0] if worker.history else self.now_s
        return max(min(first_s, self.now_s - _LEAST_HISTORY_S), self.now_s - HISTORY_S)

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
    columns = _columns_that_fit(max((cells(safe(worker.name)) for worker in workers), default=6), frame.width - 2)
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


def _columns_that_fit(name_width: int, width: int) -> list[_Column]:
    """Return the columns for a width, by priority; the remaining cells go to flexible columns."""
    name = _Column(
        "WORKER",
        min(max(name_width, 6), max(_LONGEST_NAME, width // 4)),
        lambda worker, frame, width: (Part(frame.cut(worker.name, width), "red" if worker.is_gone else "bold"),),
        False,
    )
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
    cause = next(iter(measured.causes), None)
    if cause is None or cause.gain_percent < _WORTH_FIXING:
        return "no cause worth fixing", "green"
    return cause.title, "bold red" if cause.gain_percent >= _PROBLEM else "yellow"


def _figure(
    title: str, width: int, text: Callable[[Measured], str], style: Callable[[Measured], str] = lambda _: ""
) -> _Column:
    def cell(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
        measured = _measured(worker)
        return (Part("-") if measured is None else Part(text(measured), style(measured)),)

    return _Column(title, width, cell)


def _bar(worker: WorkerView, frame: Frame, width: int) -> Sequence[Part]:
    categories = measured.categories if (measured := _measured(worker)) else ()
    return share_bar({each.title: each.percent for each in categories}, width) if categories else (Part(""),)


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
_BAR = _Column("CATEGORIES", 10, _bar, False, True)
_CAUSE = _Column("CAUSE", _LEAST_CAUSE, _cause, False, True)
_BY_USE = (_INPUT, _HISTORY, _CAUSE, _BAR, _RATE, _EXAMPLES, _BUSY, _COST, _MEMORY)
"""Columns by decreasing priority, in addition to worker, step time and the start of a cause."""
_IN_ORDER = (_STEP, _HISTORY, _RATE, _EXAMPLES, _INPUT, _COST, _BUSY, _MEMORY, _BAR, _CAUSE)
_LONGEST_BAR = 60
_SHOWN_CATEGORY = 0.5
"""Minimum percent of the step for a category in the legend."""
_LONGEST_TEXT = 2
"""Maximum lines of a sentence above the ops; the details show all lines."""


def detail_lines(worker: WorkerView, frame: Frame, height: int, *, is_whole: bool = False) -> list[Line]:
    """Return the details of a worker in at most `height` lines; `is_whole` adds all causes and the history."""
    lines: list[Line] = [_title(worker, frame)]
    sample = worker.shown
    measured = sample.measured if sample is not None else None
    if measured is None or sample is None:
        if worker.last is None:
            lines.append(_plain("no sample yet", frame))
        else:
            style = "" if worker.last.reason == "idle" else "red"
            texts = wrap(for_people(worker.last.message), frame.width)
            lines += [line_of(text, style) for text in texts[:_LONGEST_TEXT]]
        if worker.known is not None and worker.known.measured is not None:
            ago_s = max(frame.now_s - worker.known.time_s, 0.0)
            lines.append(_plain(f"step {format_ms(worker.known.measured.step_ms)} ms, {ago_s:.0f} s ago", frame, "dim"))
        return lines[:height]
    if is_whole:
        lines += _history_lines(worker, frame)
    lines += _step_lines(measured, frame)
    lines += _cause_lines(measured, frame, is_whole=is_whole)
    lines += _fact_lines(sample, measured, frame)
    room = height - len(lines)
    if measured.ranked and room >= 2:
        lines += _ranked_lines(measured.ranked_are, measured.ranked, frame, room)
    return lines[:height]


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


def _history_lines(worker: WorkerView, frame: Frame) -> list[Line]:
    values = [value for _, value in worker.history if value is not None]
    if not values:
        return []
    low, high = format_ms(min(values)), format_ms(max(values))
    span_s = frame.now_s - frame.earliest_s(worker)
    text = f"step time (ms), last {span_s / 60:.0f} min, {low} to {high}: "
    room = max(min(frame.width - len(text), _LONGEST_BAR), 1)
    return [(Part(text), Part(history_text(worker, frame, room), "cyan"))]


def _step_lines(measured: Measured, frame: Frame) -> list[Line]:
    if measured.step_ms is None:
        return [line_of(text, "yellow") for text in wrap(for_people(measured.why), frame.width)][:_LONGEST_TEXT]
    kind = f"{measured.step_kind} " if measured.step_kind not in ("step", "train") else ""
    steps = f"over {counted(measured.step_count, f'whole {kind}step')}"
    spread = f"median {format_ms(measured.median_step_ms)}, slowest {format_ms(measured.slowest_step_ms)}"
    lines = [_plain(f"step {format_ms(measured.step_ms)} ms {steps}, {spread}", frame)]
    titles = tuple(each.title for each in measured.categories)
    present = [
        (letter, f"{each.title} {format_percent(each.percent)}%")
        for letter, each in zip(category_letters(titles), measured.categories, strict=True)
        if (each.percent or 0.0) >= _SHOWN_CATEGORY
    ]
    bar = share_bar({each.title: each.percent for each in measured.categories}, min(frame.width, _LONGEST_BAR))
    return [*lines, bar, *legend_lines(present, frame.width)]


def _fact_lines(sample: Sample, measured: Measured, frame: Frame) -> list[Line]:
    cost = measured.input_cost_percent
    share = percent_text(measured.input_percent)
    facts = [f"input {share}" + ("" if cost is None else f", costs {cost_text(*cost)}")]
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


def _cause_lines(measured: Measured, frame: Frame, *, is_whole: bool) -> list[Line]:
    if measured.step_ms is None:
        return []
    causes = [(cause.text, cause.action) for cause in measured.causes]
    if not causes or measured.headline != causes[0][0]:
        causes.insert(0, (measured.headline, ""))
    lines: list[Line] = []
    for text, action in causes if is_whole else causes[:1]:
        most = 20 if is_whole else _LONGEST_TEXT
        # The rest states when the action does not help.
        action = action if is_whole else action.partition("; ")[0]
        lines += _hanging("!! ", "bold red", text, frame)[:most]
        lines += _hanging("   try: ", "", action, frame)[:most] if action else []
    return lines


def _hanging(mark: str, style: str, text: str, frame: Frame) -> list[Line]:
    lines = wrap(for_people(text), max(frame.width - len(mark), 20))
    return [(Part(" " * len(mark) if number else mark, style), Part(line)) for number, line in enumerate(lines)]


def _ranked_lines(title: str, ranked: Sequence[RankedTime], frame: Frame, room: int) -> list[Line]:
    lines: list[Line] = [_plain(f" TIME  ms IN SAMPLE  {title.upper()}", frame, "dim")]
    for each in ranked[: room - 1]:
        head = f"{percent_text(each.percent):>6}  {format_ms(each.total_ms):>11}  "
        kind = f"{for_people(each.type)}: " if each.type and each.type not in each.name else ""
        name = frame.cut(f"{kind}{for_people(each.name)}", max(frame.width - len(head), 8))
        lines.append((Part(head), Part(name)))
    return lines
