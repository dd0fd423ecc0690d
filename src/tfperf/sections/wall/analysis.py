"""Partition of the whole capture into parts without gaps or overlaps.

Step windows are ordered by start, and each begins where the previous ones end. The time between two windows is a gap:
part of the evaluation if both are evaluation steps, else time between steps. The host activity that covers most of a
gap names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Host, Tabular
from tfperf.base.arrays import (
    EMPTY,
    NO_NUMBERS,
    Bools,
    Int64s,
    Intervals,
    is_any,
    median,
    overlap,
    text_index,
    touches,
    union,
)
from tfperf.base.display import Plotted
from tfperf.trace.event_names import is_python_frame, mask, parse_op
from tfperf.trace.host.activities import Activity
from tfperf.trace.host.python_frames import profiler_times, python_functions
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import outermost
from tfperf.trace.steps.breakdown import Breakdown
from tfperf.trace.steps.steps import COLLECTION, OMITTED, RETRACE, SLOW_FIRST

PartName = Literal["averaged", "first", "compiling", "partial", "omitted", "other_kinds"]
"""Classification of a window: an averaged step, a step excluded for one of four reasons, or a step of another kind."""
PARTS: tuple[PartName, ...] = get_args(PartName)
OMITTED_PARTS = PARTS[1:5]
_AVERAGED, _FIRST, _COMPILING, _PARTIAL, _OMITTED, _OTHER = range(len(PARTS))
_PART_OF_FLAG = {RETRACE: _COMPILING, SLOW_FIRST: _COMPILING, OMITTED: _OMITTED, COLLECTION: _OMITTED}
"""Part by step flag; steps with any other flag are partial."""
Content = Literal["collection", "checkpoint", "compile", "iterator", "summary", "python", "calls", "nothing"]
CONTENTS: tuple[Content, ...] = get_args(Content)
"""Contents of a gap, in order of precedence."""
_NAMES_A_GAP = 0.3
"""Minimum share of a gap that an activity must cover to name it."""
_SLOW = 2.0
"""A step is slow if it takes more than this times the median of its kind."""
_OF_MODE = 0.25
"""Minimum extra time of slow steps, as a share of their mean extra time weighted by that time."""
_REPEATS = 2
"""Minimum number of slow steps that form a second mode."""
_WITHOUT_WAITING = 0.1
"""Maximum time before a step, as a share of the step, for it to follow another one without waiting."""
_CHECKPOINT = re.compile(r".*\b(?:SaveV2|SaveSlices|MergeV2Checkpoints|RestoreV2|ShardedFilename)\b")
_ITERATOR = re.compile(r".*\b(?:MakeIterator|OneShotIterator|AnonymousIterator\w*|\w+Dataset(?:V\d)?|RootDataset)\b")
_SUMMARY = re.compile(r".*\b(?:Write\w*Summary|FlushSummaryWriter|Write\w*HistogramSummary)\b")


class Gap(Struct, frozen=True):
    """Time between two steps. `row` is the step before it; `starts_epoch`: an iterator was made in it."""

    row: int
    start_ps: int
    end_ps: int
    content: Content
    starts_epoch: bool


class ContentName(Struct, frozen=True):
    """The longest activity in the gaps of one content, and the time that it covers."""

    name: str
    covered_ps: int


class Wall(Plotted, Tabular, frozen=True, kw_only=True, eq=False, dict=True):
    """Wall time of one host's capture, in picoseconds on the clock of the trace.

    For a run of several hosts, the host with the longest training time per step is used, and named in `host`.
    `starts_ps` and `ends_ps` are the step windows, in order and without overlaps.
    """

    home = ("wall", "wall")

    host: str = ""
    start_ps: int = 0
    end_ps: int = 0
    is_session: bool = False
    """Whether this is the profiler's session, longer than from the first to the last event."""
    profiler_start_ps: int = 0
    """Profiler start-up time before the first step."""
    profiler_stop_ps: int = 0
    """Profiler stop time after the last step."""
    kind: str = ""
    kinds: tuple[str, ...] = ()
    starts_ps: Int64s = NO_NUMBERS
    ends_ps: Int64s = NO_NUMBERS
    codes: Int64s = NO_NUMBERS
    """Part of each window: an index into `PARTS`."""
    compile_ps: Int64s = NO_NUMBERS
    rows: Int64s = NO_NUMBERS
    """Counted steps of `kind`, without those that the capture cuts off."""
    names: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()
    contents: Mapping[Content, ContentName] = {}

    @property
    def capture_ps(self) -> int:
        """Return the duration of the capture."""
        return self.end_ps - self.start_ps

    @property
    def step_ps(self) -> Int64s:
        """Return the duration of each window."""
        return self.ends_ps - self.starts_ps

    def are(self, *parts: PartName) -> Bools:
        """Return whether each window is one of these parts."""
        return np.array([part in parts for part in PARTS])[self.codes]

    @property
    def is_other(self) -> Bools:
        """Return whether each window is a step of another kind."""
        return self.are("other_kinds")

    def part_ps(self, *parts: PartName) -> int:
        """Return the time of the windows of these parts."""
        return int(self.step_ps[self.are(*parts)].sum())

    @property
    def before_ps(self) -> int:
        """Return the time before the first step; all of the capture without steps."""
        return int(self.starts_ps[0]) - self.start_ps if len(self.starts_ps) else self.capture_ps

    @property
    def after_ps(self) -> int:
        """Return the time after the last step."""
        return self.end_ps - int(self.ends_ps[-1]) if len(self.ends_ps) else 0

    def _in_evaluation(self, gap: Gap) -> bool:
        """Return whether a gap is in the evaluation: between its steps, or next to one while functions are traced, or
        after one while results are computed.

        Other time next to the evaluation may be anything that happens at the end of an epoch.
        """
        before, after = map(bool, self.codes[gap.row : gap.row + 2] == _OTHER)
        if gap.content == "compile":
            return before or after
        return before and (after or gap.content == "calls")

    @cached_property
    def between(self) -> tuple[Gap, ...]:
        """Return the gaps between steps that are not part of the evaluation."""
        return tuple(gap for gap in self.gaps if not self._in_evaluation(gap))

    @property
    def between_ps(self) -> int:
        """Return the time between steps."""
        return sum(gap.end_ps - gap.start_ps for gap in self.between)

    @cached_property
    def other_kinds_ps(self) -> int:
        """Return the time of steps of other kinds, and between them."""
        inside = sum(gap.end_ps - gap.start_ps for gap in self.gaps if self._in_evaluation(gap))
        return self.part_ps("other_kinds") + inside

    @property
    def count(self) -> int:
        """Return the number of counted steps."""
        return len(self.rows)

    @property
    def span_ps(self) -> tuple[int, int]:
        """Return the start of the first counted step and the end of the last one."""
        return int(self.starts_ps[self.rows[0]]), int(self.ends_ps[self.rows[-1]])

    @property
    def loop_ps(self) -> int:
        """Return the wall time of the training loop, from the first counted step to the last step of any kind."""
        if not self.count:
            return 0
        start, end = self.span_ps
        others = self.ends_ps[self.is_other & (self.ends_ps > end)]
        return (int(others.max()) if len(others) else end) - start

    @property
    def steady_ps(self) -> int:
        """Return the wall time of the training loop without its first steps and one-time compilations."""
        return self.loop_ps - self._first_ps - self.compiled_once_ps

    @property
    def _first_ps(self) -> int:
        return int(self.step_ps[self.counted("first")].sum())

    @property
    def steady_count(self) -> int:
        """Return the number of counted steps, without the first ones."""
        return self.count - len(self.counted("first"))

    def _others_until(self, end_ps: int) -> int:
        start = self.span_ps[0]
        of_steps = self.is_other & (self.starts_ps >= start) & (self.ends_ps <= end_ps)
        inside = (gap for gap in self.gaps if self._in_evaluation(gap) and start <= gap.start_ps < end_ps)
        return int(self.step_ps[of_steps].sum()) + sum(gap.end_ps - gap.start_ps for gap in inside)

    @cached_property
    def evaluation_ps(self) -> int:
        """Return the time of other kinds in the training loop."""
        return self._others_until(self.span_ps[0] + self.loop_ps) if self.count else 0

    @cached_property
    def compiled_once_ps(self) -> int:
        """Return how much longer the evaluation with the most compilation compiles than any other in the loop."""
        if not self.count:
            return 0
        start = self.span_ps[0]
        evaluation = np.cumsum(~self.is_other)
        compile_ps = np.zeros(int(evaluation[-1]) + 1, np.int64)
        inside = self.is_other & (self.starts_ps >= start)
        np.add.at(compile_ps, evaluation[inside], np.minimum(self.compile_ps, self.step_ps)[inside])
        for gap in self.gaps:
            if gap.content == "compile" and gap.start_ps >= start and self._in_evaluation(gap):
                compile_ps[evaluation[gap.row]] += gap.end_ps - gap.start_ps
        second, most = np.sort(compile_ps)[-2:].tolist()
        return int(most - second)

    @cached_property
    def training_ps(self) -> int:
        """Return the wall time of `steady_count` steps: from the first counted step to the last one, without the first
        steps of the capture and steps of other kinds.
        """
        if not self.count:
            return 0
        start, end = self.span_ps
        return end - start - self._first_ps - self._others_until(end)

    @cached_property
    def gaps_in_loop(self) -> tuple[Gap, ...]:
        """Return the gaps in the training loop."""
        if not self.count:
            return ()
        start = self.span_ps[0]
        end = start + self.loop_ps
        return tuple(gap for gap in self.between if start <= gap.start_ps and gap.end_ps <= end)

    @property
    def fastest_ps(self) -> int | None:
        """Return the minimum duration of averaged steps that follow another one without waiting; None without one."""
        averaged, step_ps = self.are("averaged"), self.step_ps[1:]
        waited_ps = self.starts_ps[1:] - self.ends_ps[:-1]
        durations = step_ps[averaged[1:] & averaged[:-1] & (waited_ps <= _WITHOUT_WAITING * step_ps)]
        return int(durations.min()) if len(durations) else None

    def counted(self, *parts: PartName) -> Int64s:
        """Return the counted steps that are one of these parts."""
        return self.rows[self.are(*parts)[self.rows]]

    def slow(self, *parts: PartName) -> Int64s:
        """Return the steps of these parts that take over twice the median, if they form a second mode.

        A single step does not, nor does more than half of the steps. Next to much slower steps, a slightly slower step
        counts as normal.
        """
        rows, median_ps = self.counted(*parts), median(self.step_ps[self.counted("averaged", "compiling")])
        slow = rows[self.step_ps[rows] > _SLOW * median_ps]
        more = self.step_ps[slow] - median_ps
        slow = slow[more * more.sum() >= _OF_MODE * (more * more).sum()]
        return slow if _REPEATS <= len(slow) <= self.count // 2 else NO_NUMBERS

    def period(self, rows: Int64s) -> int:
        """Return the interval in steps at which these steps recur; 0 if it is not regular."""
        apart = np.diff(np.searchsorted(self.rows, rows))
        return int(apart[0]) if len(apart) >= _REPEATS and apart[0] > 1 and bool((apart == apart[0]).all()) else 0


def analyze(host: Host) -> Wall:
    """Partition the capture of a host."""
    trace, breakdown = host.trace, host["steps"]
    steps = breakdown.steps
    order = np.argsort(steps.start_ps, kind="stable")
    start_ps, end_ps = _capture(trace)
    is_session = (start_ps, end_ps) != trace.extent_ps
    if not len(steps):
        return Wall(host=trace.host, start_ps=start_ps, end_ps=end_ps, is_session=is_session)
    starts = np.clip(steps.start_ps[order], start_ps, end_ps)
    reach = np.maximum.accumulate(np.clip(steps.end_ps[order], starts, end_ps))
    before = np.concatenate((starts[:1], reach[:-1]))
    starts, ends = np.maximum(starts, before), reach
    apart = np.flatnonzero(starts[1:] > ends[:-1])
    gaps, contents = _gaps(host, apart, ends[apart], starts[apart + 1])
    names, kinds = steps.names, steps.kinds
    if not np.array_equal(order, np.arange(len(order))):
        names, kinds = (tuple(map(texts.__getitem__, order.tolist())) for texts in (names, kinds))
    wall = Wall(
        host=trace.host,
        start_ps=start_ps,
        end_ps=end_ps,
        is_session=is_session,
        starts_ps=starts,
        ends_ps=ends,
        names=names,
        kinds=kinds,
        compile_ps=breakdown.time_ps["compilation"][order],
        gaps=gaps,
        contents=contents,
    )
    wall = _counting(wall, breakdown)
    starting, stopping = profiler_times(trace, "start"), profiler_times(trace, "stop")
    return replace(
        wall,
        profiler_start_ps=_covered(starting, start_ps, int(starts[0])),
        profiler_stop_ps=_covered(stopping, int(ends[-1]), end_ps),
    )


def combine(walls: Sequence[Wall]) -> Wall:
    """Return the wall time of the host with the longest training time per step."""
    return max(walls, key=lambda wall: wall.training_ps / wall.steady_count if wall.steady_count else -1.0)


def narrow(wall: Wall, _: Breakdown, after: Breakdown) -> Wall:
    """Count only the steps of `after`."""
    return _counting(wall, after)


def _counting(wall: Wall, breakdown: Breakdown) -> Wall:
    steps = breakdown.steps
    kind = steps.headline_kind if len(steps) else wall.kind
    # With several steps at the same start, the last one counts.
    order = np.argsort(steps.start_ps, kind="stable")
    at = np.searchsorted(steps.start_ps[order], wall.starts_ps, side="right") - 1
    is_counted = is_any(wall.starts_ps, steps.start_ps)
    row = order[at[is_counted]]
    flags, flag_of = text_index(steps.flags)
    of_flag = np.array([_PART_OF_FLAG.get(flag, _PARTIAL) if flag else _AVERAGED for flag in flags], np.int64)
    flag = np.full(len(wall.starts_ps), _OMITTED)
    flag[is_counted] = of_flag[flag_of[row]]
    kinds, kind_of = text_index(wall.kinds)
    is_mine = np.array([other == kind for other in kinds], np.bool_)[kind_of]
    code = flag.copy()
    code[np.logical_and.accumulate((flag == _COMPILING) | ~is_mine) & (flag == _COMPILING)] = _FIRST
    code[is_counted] = np.where(steps.averaged[row], _AVERAGED, code[is_counted])
    code[~is_mine] = _OTHER
    mine = np.flatnonzero(is_mine & is_counted)
    # The capture shows the others only partly, so they would shorten the wall time per step.
    whole = mine[flag[mine] != _PARTIAL]
    return replace(wall, kind=kind, codes=code, rows=whole if len(whole) else mine)


def _capture(trace: HostTrace) -> tuple[int, int]:
    """Return the start and end of the capture: the profiler session if recorded, extended to all events."""
    start_ps, end_ps = trace.extent_ps
    session = {} if trace.is_part else trace.session_stats
    zero = trace.clock_start_ns
    start_ns, stop_ns = session.get("profile_start_time"), session.get("profile_stop_time")
    if isinstance(start_ns, int) and isinstance(stop_ns, int) and zero is not None and start_ns < stop_ns:
        first, last = (start_ns - zero) * 1000, (stop_ns - zero) * 1000
        # A clock with another origin is not comparable with these events.
        if first <= end_ps and last >= start_ps:
            return min(start_ps, first), max(end_ps, last)
    return start_ps, end_ps


def _covered(times: Intervals, start_ps: int, end_ps: int) -> int:
    return int(overlap(times, np.array([start_ps]), np.array([max(start_ps, end_ps)]))[0])


def _gaps(host: Host, rows: Int64s, start: Int64s, end: Int64s) -> tuple[tuple[Gap, ...], dict[Content, ContentName]]:
    """Return the gaps after the windows at `rows`, named by the activity that covers most of each, and the contents."""
    if not len(rows):
        return (), {}
    trace, length = host.trace, end - start
    patterns = {"checkpoint": _CHECKPOINT, "iterator": _ITERATOR, "summary": _SUMMARY}
    named = {
        **{content: trace.host_events(mask(trace.names, each.match)) for content, each in patterns.items()},
        "python": _main(host, start, end, frames=True),
        "calls": _main(host, start, end, frames=False),
    }
    times = {content: union(trace.start_ps[of], trace.end_ps[of]) for content, of in named.items()}
    pauses = trace.python_activity.pauses
    times["collection"] = EMPTY if pauses is None else union(pauses.start_ps, pauses.end_ps)
    times["compile"] = host.busy_times.get(Activity.COMPILE, EMPTY)
    covered = {content: overlap(flat, start, end) for content, flat in times.items()}
    chosen = np.full(len(rows), CONTENTS.index("nothing"))
    for content in reversed(CONTENTS[:-1]):
        chosen[covered[content] >= np.maximum(_NAMES_A_GAP * length, 1)] = CONTENTS.index(content)
    epochs = touches(times["iterator"], start, end)
    contents: dict[Content, ContentName] = {}
    for index in np.flatnonzero(np.bincount(chosen)).tolist():
        content, of_content = CONTENTS[index], chosen == index
        flat = union(start[of_content], end[of_content])
        events = named.get("calls" if content == "nothing" else content, NO_NUMBERS)
        ps = int(covered[content][of_content].sum()) if content in covered else 0
        contents[content] = ContentName(_longest(trace, events, flat, is_frame=content == "python"), ps)
    columns = zip(rows.tolist(), start.tolist(), end.tolist(), chosen.tolist(), epochs.tolist(), strict=True)
    return tuple(Gap(row, a, b, CONTENTS[code], is_epoch) for row, a, b, code, is_epoch in columns), contents


def _main(host: Host, start: Int64s, end: Int64s, *, frames: bool) -> Int64s:
    """Return the events that overlap a gap: Python frames or outermost calls, on the calling thread if it is known."""
    trace, main = host.trace, host.host_states.main
    lines = trace.host_lines if main is None else (trace.lines[main],)
    rows = np.concatenate([NO_NUMBERS, *(np.arange(line.start, line.stop) for line in lines)])
    is_frame = mask(trace.names, is_python_frame)[trace.name[rows]]
    rows = rows[is_frame == frames]
    rows = rows[touches(Intervals(start, end), trace.start_ps[rows], trace.end_ps[rows])]
    return rows if frames else outermost(trace, rows)


def _longest(trace: HostTrace, rows: Int64s, gaps: Intervals, *, is_frame: bool) -> str:
    """Return the activity with most time in the gaps: op, call or innermost long Python function; empty if none."""
    if not len(rows):
        return ""
    inside = overlap(gaps, trace.start_ps[rows], trace.end_ps[rows]).astype(np.float64)
    total = np.bincount(trace.name[rows], weights=inside, minlength=len(trace.names))
    if not total.any():
        return ""
    if not is_frame:
        name = trace.names[int(total.argmax())].rpartition(": ")[2]
        return parse_op(name).type or name
    candidates = np.flatnonzero(total >= 0.6 * min(float(gaps.total()), float(total.max())))
    candidates = candidates[np.argsort(total[candidates], kind="stable")]
    functions = python_functions([trace.names[index] for index in candidates.tolist()])
    own = next((each.shown for each in functions if not each.package), "")
    inner = functions[0].shown
    return own if own == inner else f"{own}, in it {inner}" if own else inner
