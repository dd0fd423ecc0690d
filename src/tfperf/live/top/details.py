"""What is shown of the chosen worker: its step, what it consists of, what to fix, and the ops that take most time."""

from __future__ import annotations

from collections.abc import Sequence

from tfperf.base.units import counted, format_bytes, format_ms, format_number, format_percent
from tfperf.live.top.board import WorkerView
from tfperf.live.top.measured import Measured, RankedTime
from tfperf.live.top.rows import Frame, cost_text, history_text, percent_text
from tfperf.live.top.sample import Sample
from tfperf.report.render.charts import category_letters, legend_lines, share_bar
from tfperf.report.render.text_table import Line, Part, cells, line_of, wrap
from tfperf.report.render.values import for_people

_LONGEST_BAR = 60
_SHOWN_CATEGORY = 0.5
"""Percent of the step from which a category is in the legend."""
_LONGEST_TEXT = 2
"""So many lines of a sentence are shown above the ops; all of them in the details."""


def detail_lines(worker: WorkerView, frame: Frame, height: int, *, is_whole: bool = False) -> list[Line]:
    """Return what is known of a worker in at most `height` lines; `is_whole` has all causes and its history too."""
    lines: list[Line] = [_title(worker, frame)]
    sample = worker.shown
    measured = sample.measured if sample is not None else None
    if measured is None or sample is None:
        lines += _why_nothing(worker, frame)
        if worker.known is not None and worker.known.measured is not None:
            ago_s = max(frame.now_s - worker.known.time_s, 0.0)
            lines.append(_plain(f"step {format_ms(worker.known.measured.step_ms)} ms, {ago_s:.0f} s ago", frame, "dim"))
        return lines[:height]
    if is_whole:
        lines += _history(worker, frame)
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
        said.append(f"{worker.failures:,} without an answer")
    sample = worker.shown
    if sample is not None:
        said.append(f"the last {max(frame.now_s - sample.time_s, 0.0):.0f} s ago")
    if worker.asked_s is not None:
        said.append(f"answering for {worker.asked_s:.0f} s" if worker.is_slow else "sampling now")
    name = worker.name if worker.name == str(worker.address) else f"{worker.name} at {worker.address}"
    text = frame.begin(f"{name}: {', '.join(said)}", frame.width)
    return line_of(text, "bold")


def _why_nothing(worker: WorkerView, frame: Frame) -> list[Line]:
    if worker.last is None:
        return [_plain("no sample yet", frame)]
    style = "" if worker.last.reason == "idle" else "red"
    return [line_of(text, style) for text in wrap(for_people(worker.last.message), frame.width)][:_LONGEST_TEXT]


def _history(worker: WorkerView, frame: Frame) -> list[Line]:
    values = [value for _, value in worker.history if value is not None]
    if not values:
        return []
    low, high = format_ms(min(values)), format_ms(max(values))
    span_s = frame.now_s - frame.earliest_s(worker)
    text = f"step ms in the last {span_s / 60:.0f} min, {low} to {high}: "
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
    """Return the figures beside the step time, as many on a line as fit."""
    cost = measured.input_cost_percent
    share = percent_text(measured.input_percent)
    facts = [f"input {share}" + ("" if cost is None else f", costs {cost_text(*cost)}")]
    if measured.steps_per_second is not None:
        facts.append(f"{format_number(measured.steps_per_second)} steps/s")
    if measured.examples_per_second is not None:
        facts.append(f"{format_number(measured.examples_per_second)} examples/s in batches of {measured.batch_size:,}")
    facts.append(f"device busy {percent_text(measured.device_busy_percent)}")
    memory = measured.memory
    if memory is not None:
        of = "" if memory.capacity_bytes is None else f" of {format_bytes(memory.capacity_bytes)}"
        facts.append(f"memory {format_bytes(memory.peak_bytes)}{of} ({for_people(memory.allocator)})")
    facts.append(f"sample of {format_bytes(sample.size_bytes)} came in {sample.answer_s:.1f} s")
    lines: list[str] = []
    for fact in facts:
        joined = f"{lines[-1]}   {fact}" if lines else fact
        if lines and cells(joined) <= frame.width:
            lines[-1] = joined
        else:
            lines.append(fact)
    return [_plain(line, frame) for line in lines]


def _cause_lines(measured: Measured, frame: Frame, *, is_whole: bool) -> list[Line]:
    """Return the first conclusion and what to do; in the details, all causes."""
    if measured.step_ms is None:
        return []
    causes = [(cause.text, cause.action) for cause in measured.causes]
    if not causes or measured.headline != causes[0][0]:
        causes.insert(0, (measured.headline, ""))
    lines: list[Line] = []
    for text, action in causes if is_whole else causes[:1]:
        most = 20 if is_whole else _LONGEST_TEXT
        # What follows says when it does not help.
        action = action if is_whole else action.partition("; ")[0]
        lines += _hanging("!! ", "bold red", text, frame)[:most]
        lines += _hanging("   try: ", "", action, frame)[:most] if action else []
    return lines


def _hanging(mark: str, style: str, text: str, frame: Frame) -> list[Line]:
    lines = wrap(for_people(text), max(frame.width - len(mark), 20))
    return [(Part(" " * len(mark) if number else mark, style), Part(line)) for number, line in enumerate(lines)]


def _ranked_lines(title: str, ranked: Sequence[RankedTime], frame: Frame, room: int) -> list[Line]:
    """Return the kernels or ops that take most time, in so many lines with their heading."""
    lines: list[Line] = [_plain(f" TIME  ms IN SAMPLE  {title.upper()}", frame, "dim")]
    for each in ranked[: room - 1]:
        head = f"{percent_text(each.percent):>6}  {format_ms(each.total_ms):>11}  "
        kind = f"{for_people(each.type)}: " if each.type and each.type not in each.name else ""
        name = frame.cut(f"{kind}{for_people(each.name)}", max(frame.width - len(head), 8))
        lines.append((Part(head), Part(name)))
    return lines
