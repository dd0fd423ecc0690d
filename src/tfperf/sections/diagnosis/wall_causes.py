"""Causes outside the averaged steps: time between steps, evaluation, slow steps. Shares are of the wall time.

Wall time is from the start of the first training step to the end of the last step, excluding first steps of the capture
that trace or take very long. `Case.wall_share` scales percentages of the average step to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from tfperf.base.arrays import median
from tfperf.base.units import PS_PER_MS, counted, format_ms, format_percent, listed, without_middle
from tfperf.sections.diagnosis.case import LEAST_PERCENT, LONGEST_NAME, Case
from tfperf.sections.diagnosis.cause import Cause, Evidence, Range
from tfperf.sections.wall import CONTENT_TEXTS, OTHER_KINDS, between_row, modes_text
from tfperf.trace.steps.categories import CATEGORY_TITLES

if TYPE_CHECKING:
    from tfperf.base.arrays import Int64s
    from tfperf.sections.wall.analysis import Content, Gap, Wall

_EVALUATION_PERCENT = 20.0
"""Threshold for evaluation as a cause, in percent of the wall time."""
_NAMED = 2
_SHORT_MS = 10.0
"""On a machine with other programs, a thread may not run for a few milliseconds."""
_EPOCH_TURN_MS = 100.0
"""Without callbacks, Keras takes less at the end of an epoch, to replace the iterator."""
_REPLACES_ITERATOR = re.compile(r".*(?:Delete|Destroy|Iterator|Dataset)")
_GENERIC = ("host_compute", "kernel_launch", "output")
"""Categories in which a slow step may be longer without a cause that explains it."""
_IN_NO_CATEGORY = ("python_between_steps", "waiting_in_calls", "garbage_collection")
_ACTIONS: dict[Content, str] = {
    "collection": "collect_less_often",
    "checkpoint": "save_less_often",
    "compile": "keep_signature",
    "iterator": "longer_epochs",
    "summary": "less_between",
    "python": "less_between",
    "calls": "less_between",
    "nothing": "less_between",
}


def between_steps(case: Case) -> Cause | None:
    """Check for time between steps: the end of an epoch, a checkpoint, Python."""
    wall = case.wall
    gaps = () if wall is None else wall.gaps_in_loop
    if wall is None or not gaps:
        return None
    total_ps = _total_ps(gaps)
    share = 100.0 * total_ps / wall.steady_ps
    if share < LEAST_PERCENT:
        return None
    is_special = any(gap.starts_epoch or gap.content not in ("calls", "nothing") for gap in gaps)
    is_regular = bool(wall.period(np.array([gap.row for gap in gaps], np.int64)))
    if not is_special and not is_regular and total_ps < _SHORT_MS * PS_PER_MS * len(gaps):
        return None  # other programs may cause short gaps at irregular times
    by_content = {gap.content: _total_ps([each for each in gaps if each.content == gap.content]) for gap in gaps}
    content = max(by_content, key=lambda each: by_content[each])
    over_wall, cost = case.over_wall(), Range(share, share)
    part = by_content[content] / total_ps
    # Tracing in a single gap, such as that of the first evaluation, does not recur.
    again = sum(gap.content == "compile" for gap in gaps) > 1
    action = "profile_later" if content == "compile" and not again else _ACTIONS[content]
    longer_epochs = "longer_epochs_of_arrays" if case.feeds_keras_arrays else "longer_epochs"
    action = longer_epochs if action == "longer_epochs" else action
    actions = [over_wall.action(action, Range(share * part, share * part))]
    if action == "less_between" and (at_epochs := [gap for gap in gaps if gap.starts_epoch]):
        of_epochs = share * _total_ps(at_epochs) / total_ps
        longer = over_wall.action(longer_epochs, Range(of_epochs, of_epochs))
        is_short = len(at_epochs) == len(gaps) and total_ps < _EPOCH_TURN_MS * PS_PER_MS * len(gaps)
        is_own = is_short and content == "calls" and _REPLACES_ITERATOR.match(wall.contents[content].name)
        actions = [longer] if is_own and case.program.api == "keras" else [*actions, longer]
    of_evaluations = share * _total_ps([gap for gap in gaps if wall.is_other[gap.row + 1]]) / total_ps
    if of_evaluations:
        actions.append(over_wall.action("evaluate_less", Range(of_evaluations, of_evaluations)))
    return over_wall.cause(
        "between_steps",
        "Time between steps",
        cost,
        _gaps_text(wall, gaps, content, part),
        # The rest is the time of the other contents.
        actions=actions,
        rests_on=(Evidence("wall", "wall", between_row(content)),),
        confidence="medium" if content == "nothing" else "high",
    )


def _total_ps(gaps: Sequence[Gap]) -> int:
    return sum(gap.end_ps - gap.start_ps for gap in gaps)


def _gaps_text(wall: Wall, gaps: Sequence[Gap], content: Content, part: float) -> str:
    """Return the number of gaps, their position, and the content of most of their time, as text."""
    mean_ms = _total_ps(gaps) / len(gaps) / PS_PER_MS
    text = f"{counted(len(gaps), 'gap')} of {format_ms(mean_ms)} ms{' on average' * (len(gaps) > 1)}"
    epochs = sum(gap.starts_epoch for gap in gaps)
    if epochs == len(gaps):
        text += f"{', each' * (len(gaps) > 1)} at the start of an epoch or an evaluation"
    else:
        text += f", the first after {wall.names[gaps[0].row]}"
    name = without_middle(wall.contents[content].name, LONGEST_NAME)
    what = CONTENT_TEXTS[content]
    if content == "nothing":
        return f"{text}; {what}"
    if content in ("python", "calls"):
        what = f"{'function' if content == 'python' else 'call'} {name}" if name else what
    elif name:
        what += f" ({name})"
    return f"{text}; most of it is {what}" if part > 0.5 else f"{text}; {format_percent(100.0 * part)}% is {what}"


def evaluation(case: Case) -> Cause | None:
    """Check for evaluation that takes a large part of the wall time."""
    wall = case.wall
    if wall is None or not case.summary.kind.startswith("train"):
        return None
    # One-time compilation is part of the first evaluation, however many follow.
    share = 100.0 * (wall.evaluation_ps - wall.compiled_once_ps) / wall.steady_ps
    if share < _EVALUATION_PERCENT:
        return None
    others = int(wall.is_other.sum())
    phases = int(np.count_nonzero(np.diff(wall.is_other.astype(np.int8)) == 1) + bool(wall.is_other[0]))
    detail = (
        f"{counted(others, 'step')} in {counted(phases, 'phase')}, compared with {counted(wall.count, 'training step')}"
    )
    return case.over_wall().cause(
        "evaluation",
        "Evaluation",
        Range(share, share),
        detail,
        actions=("evaluate_less",),
        rests_on=(Evidence("wall", "wall", OTHER_KINDS),),
    )


def compiling_percent(case: Case) -> Range | None:
    """Return the wall time cost of steps that compile, other than the first ones; None if averages include them."""
    wall = case.wall
    if wall is None:
        return None
    rows = np.flatnonzero(wall.are("compiling"))
    plain = np.flatnonzero(wall.are("averaged"))
    if not len(rows) or not len(plain):
        return None
    compile_ps = int(wall.compile_ps[rows].sum())
    # The first run after compilation includes preparation, which later runs do not.
    longer_ps = int(np.maximum(wall.step_ps[rows] - wall.step_ps[plain].mean(), wall.compile_ps[rows]).sum())
    cost = Range(100.0 * compile_ps / wall.steady_ps, 100.0 * longer_ps / wall.steady_ps)
    return cost if cost.high >= LEAST_PERCENT else None


def compiling_text(wall: Wall) -> str:
    """Return which steps compile, other than the first ones, and their duration, as a clause to append."""
    rows = wall.counted("compiling")
    modes = modes_text(wall, rows)
    return f"{modes[:1].lower()}{modes[1:]}"


def slow_steps(case: Case) -> Cause | None:
    """Check for averaged steps that take over twice the median, at a regular interval, by their extra compute or
    launches.

    Their extra uncategorized time is Python between calls, which `with_slow_steps` reports.
    """
    longer = _longer(case)
    if longer is None:
        return None
    wall, slow, percents = longer
    costs = {part: min(percents[part], case.ledger.left(part)) for part in _GENERIC}
    share = sum(costs.values()) * case.wall_share
    # Irregular slow steps may be slow because other programs use the cores.
    if share < LEAST_PERCENT or not wall.period(slow):
        return None
    main = max(costs, key=lambda part: costs[part])
    is_shown = case.results.has_device and not case.results.is_other_kind
    waits = case.waiting(case.results["idle"].percents["synchronise"]) if is_shown else {}
    what = "waiting for results" if waits.get(main, 0.0) >= costs[main] / 2.0 else CATEGORY_TITLES[main]
    for part, most in costs.items():
        case.ledger.claim(part, most=most)
    modes = modes_text(wall, slow)
    types = [without_middle(name, LONGEST_NAME) for name in case.of_pace["functions"].eager.own_types[:_NAMED]]
    ops = f" ({listed(types)})" if main == "host_compute" and case.ledger.of_kernels >= costs[main] / 2.0 else ""
    return case.over_wall().cause(
        "slow_steps",
        "Extra time in slow steps",
        Range(share, share),
        f"{modes[:1].lower()}{modes[1:]}; the additional time is {what}{ops}",
        actions=("less_often",),
        rests_on=(Evidence("steps", "steps", wall.names[int(slow[0])]),),
        confidence="medium",
    )


def with_slow_steps(case: Case, causes: Sequence[Cause]) -> list[Cause]:
    """Return the causes; those of uncategorized time mention slow steps with more than half of it."""
    longer = _longer(case)
    if longer is None:
        return [*causes]
    wall, slow, percents = longer
    modes = modes_text(wall, slow)
    return [
        replace(cause, detail=f"{cause.detail}; {modes[:1].lower()}{modes[1:]}")
        if cause.code in _IN_NO_CATEGORY
        and cause.cost_percent is not None
        and percents["all_others"] > cause.cost_percent.high / 2
        else cause
        for cause in causes
    ]


def _longer(case: Case) -> tuple[Wall, Int64s, dict[str, float]] | None:
    """Return the slow steps among the averaged ones, and their extra time by category, in percent of the step."""
    wall = case.wall
    if wall is None:
        return None
    slow = wall.slow("averaged")
    breakdown = case.of_pace["steps"]
    steps = breakdown.steps
    is_slow = steps.headline & np.isin(steps.start_ps, wall.starts_ps[slow])
    plain = steps.headline & ~is_slow
    total_ps = int(steps.duration_ps[steps.headline].sum())
    if not is_slow.any() or not plain.any() or not total_ps:
        return None
    return (
        wall,
        slow,
        {
            part: 100.0 * max(float((times[is_slow] - median(times[plain])).sum()), 0.0) / total_ps
            for part, times in breakdown.time_ps.items()
        },
    )
