"""Flaws of a trace: their severity, and the parts of the profile that they affect.

A figure is doubtful if a flaw affects (`TOUCHES`) a part that it depends on (`RESTS_ON` of `judge/measure.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Literal, get_args

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import NO_NUMBERS, Bools, Int64s, lookup
from tfperf.base.units import counted
from tfperf.formats.wire.event_columns import NO_STAT, EventColumns
from tfperf.formats.wire.planes import PlaneHeader
from tfperf.trace.event_names import (
    begins_task,
    gives_task,
    is_call,
    is_memory,
    mask,
    may_mark_steps,
    parse_op,
    takes_time,
)

Level = Literal["sound", "doubtful", "incomplete", "unsound"]
Part = Literal["steps", "calls", "input", "host", "device", "memory"]
"""Step markers; calls and tracing by Python; tf.data calls; other work of host threads; device work; allocations."""
Parts = frozenset[Part]

EVERYTHING: Parts = frozenset(get_args(Part))
TIMES: Parts = EVERYTHING - {"memory"}
"""The parts that divide step time: time missing in one part is counted in others."""

TOUCHES: Mapping[str, Parts] = {
    # Events may be missing, or have wrong times or names, in any part.
    **dict.fromkeys(("lost_events", "impossible_times", "repeated_planes", "repeated_events"), EVERYTHING),
    **dict.fromkeys(("copied_host", "other_capture", "other_profiler", "other_program"), EVERYTHING),
    **dict.fromkeys(("host_events_on_device", "nameless_events", "nameless_stats"), EVERYTHING),
    **dict.fromkeys(("run_before_call", "fetch_after_run", "clocks_disagree", "profiler_error"), EVERYTHING),
    **dict.fromkeys(("unused_names", "unused_stats", "misplaced_stats"), EVERYTHING),
    **dict.fromkeys(("lost_tasks", "missing_steps", "silence"), EVERYTHING),
    # Host threads may have different clocks.
    "late_runs": frozenset({"steps", "calls", "input", "host"}),
    # The last step before a pause ends when the device does.
    "work_before_launch": frozenset({"steps", "device"}),
    "late_work": frozenset({"steps", "device"}),
    "unlaunched_work": frozenset({"calls", "host"}),
    "empty_steps": frozenset({"steps"}),
    "fetches_apart": frozenset({"steps"}),
    "unnumbered_markers": frozenset({"steps"}),
    "overlapping_markers": frozenset({"steps"}),
    "unsure_steps": frozenset({"steps"}),
    "fetches_stop": frozenset({"input"}),
    "uncalled_stages": frozenset({"input"}),
    "unmade_elements": frozenset({"input"}),
    "calls_without_input": frozenset({"input"}),
    "unasked_functions": frozenset({"steps", "input"}),
    "misplaced_calls": frozenset({"calls", "input", "host"}),
    "crossing_events": frozenset({"calls", "input", "host"}),
    "missing_ids": frozenset({"calls", "input", "host"}),
    "timeless_calls": frozenset({"calls", "input", "host"}),
    "uncalled_runs": frozenset({"calls", "input", "host"}),
    "unrun_tasks": frozenset({"calls", "input", "host"}),
    "ops_outside": frozenset({"calls", "host"}),
    "unsaid_calls": frozenset({"calls"}),
    "unnamed_allocators": frozenset({"memory"}),
}
"""Code of a flaw -> the affected parts; without an entry, all. For `incomplete` flaws, `hides` lists unknown values."""


class Flaw(Struct, frozen=True):
    """A flaw of a trace. `text` is a clause that follows "the profile is damaged:".

    `incomplete`: events are missing that the profiler should have recorded, and `fix` states how to get them.
    """

    code: str
    text: str
    level: Level = "unsound"
    fix: str = ""
    hides: frozenset[str] = frozenset()
    """Step categories, and parts of input, that are unknown because of it."""

    def touches(self, parts: Parts) -> bool:
        """Return whether the flaw may affect a figure that depends on these parts."""
        return not parts.isdisjoint(TOUCHES.get(self.code, EVERYTHING))


def level_of(flaws: Iterable[Flaw]) -> Level:
    """Return the most severe level."""
    return max((flaw.level for flaw in flaws), key=get_args(Level).index, default="sound")


# --- oddities ---

_NOTED_BEFORE = frozenset({"group_id", "step_name", "is_eager"})
"""Stats of groups, whose names old profilers write before they look for groups."""
_SHARE = 0.1
"""A flaw in a tenth of the tasks is not a coincidence."""
_LOST_TASKS = 0.005
"""Real profiles have no gaps in task numbers; a larger share of gaps means lost events."""
_FEW_TASKS = 2
_WAITING = 16
"""When a capture ends, tasks wait for a thread: at most a dozen in real profiles of small machines."""
_LONG_RUN = 0.05
"""A stopping profiler leaves threads one by one: from then on, fewer than this share of the tasks are consecutive."""
_SHORTEST_RUN = 4


def _is_call_or_memory(name: str) -> bool:
    return is_call(name) or is_memory(name)


_OF_PYTHON: Mapping[str, Callable[[str], bool]] = {
    "graph_type": _is_call_or_memory,
    "step_num": _is_call_or_memory,
    "tf_function_call": lambda name: _is_call_or_memory(name) or (":" in name and parse_op(name).kind == "tensorflow"),
}
"""Stats written by Python, with the events that never have them. Users name the events of the first two."""


class Oddities(Struct, frozen=True):
    """Inconsistent events and names, which profilers do not write."""

    nameless_events: int = 0
    nameless_stats: int = 0
    """Events whose name is not in the file, and stats of such events."""
    timeless_calls: int = 0
    misplaced_stats: tuple[str, ...] = ()
    """Stats written only by Python, on events of TensorFlow."""
    markers_without_number: int = 0
    """User-written step markers without the number of the step."""
    unused_names: int = 0
    unused_stats: tuple[str, ...] = ()
    """Stat names that tfperf uses, in the file but without a stat."""
    tasks: int = 0
    """Tasks that host threads submitted to thread pools. TensorFlow and JAX number them consecutively."""
    lost_tasks: int = 0
    """Missing task numbers."""
    begun_tasks: int = 0

    def flaws(self, event_count: int) -> Iterator[Flaw]:
        """Yield the flaws of a trace with `event_count` events; unnamed events are misclassified or ignored."""
        if self.timeless_calls:
            # With a clock in microseconds, a few calls can have none.
            calls = counted(self.timeless_calls, "call")
            yield Flaw("timeless_calls", f"{calls} of tf.data or functions without a duration", "doubtful")
        if self.nameless_events:
            events = counted(self.nameless_events, "event")
            yield Flaw("nameless_events", f"{events} of {event_count:,} without a name")
        if self.nameless_stats:
            yield Flaw("nameless_stats", f"{counted(self.nameless_stats, 'event stat')} without a name")
        if self.misplaced_stats:
            stats = ", ".join(sorted({*self.misplaced_stats}))
            text = f"TensorFlow events have stats that only Python writes ({stats}): names may be swapped"
            yield Flaw("misplaced_stats", text, "doubtful")
        if self.markers_without_number:
            text = f"{counted(self.markers_without_number, 'step marker')} without a step number: stats may be missing"
            yield Flaw("unnumbered_markers", text, "doubtful")
        if self.unused_names:
            # A profiler writes a name with its first event.
            text = f"{counted(self.unused_names, 'event name')} without events: events may be missing"
            yield Flaw("unused_names", text, "doubtful")
        if self.unused_stats:
            text = (
                f"stats that the file lists have no values ({', '.join(sorted({*self.unused_stats}))}): stats may "
                "be missing, or their names swapped"
            )
            yield Flaw("unused_stats", text, "doubtful")
        if self.lost_tasks > max(_FEW_TASKS, _LOST_TASKS * self.tasks):
            count = self.tasks + self.lost_tasks
            text = f"{self.lost_tasks:,} of {counted(count, 'thread pool task')} are missing"
            level: Level = "unsound" if self.lost_tasks > _SHARE * count else "doubtful"
            yield Flaw("lost_tasks", f"{text} (by their numbers): events are missing", level)
        waiting = self.tasks - self.begun_tasks
        if waiting > max(_WAITING, _SHARE * self.tasks):
            text = f"{waiting:,} of {counted(self.tasks, 'thread pool task')} never start: events may be missing"
            yield Flaw("unrun_tasks", text, "doubtful")

    def plus(self, other: Oddities) -> Oddities:
        """Return the sum of both."""
        return Oddities(*(operator.add(*pair) for pair in zip(self._values(), other._values(), strict=True)))

    def _values(self) -> tuple[int | tuple[str, ...], ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__)


class OdditiesOfPlane:
    """Counts inconsistencies of a plane, batch by batch."""

    def __init__(self, header: PlaneHeader) -> None:
        self._header = header
        names = (*header.event_names, "")  # the last one is for events without a name
        self._nameless, self._calls = mask(names, operator.not_), mask(names, takes_time)
        self._used = np.zeros(len(names), np.bool_)
        self._stats = header.carried_stats
        self._nameless_events, self._nameless_stats, self._timeless_calls = 0, 0, 0
        self._with_stat = {stat: np.zeros(len(names), np.bool_) for stat in _OF_PYTHON}
        self._unnumbered = np.zeros(len(names), np.int64)
        self._gives_task, self._begins_task = mask(names, gives_task), mask(names, begins_task)
        self._tasks: list[Int64s] = []
        self._begun_tasks = 0

    def add(self, events: EventColumns) -> None:
        """Count a batch; `name` of its events indexes the names of the plane."""
        name = events.name
        self._used[name] = True
        if (self._used & self._nameless).any():
            self._nameless_events += int(self._nameless[name].sum())
        if (self._used & self._calls).any():
            timeless = (events.duration_ps == 0) & ~events.aggregated
            self._timeless_calls += int((self._calls[name] & timeless).sum())
        self._stats |= events.stat_names
        self._nameless_stats += events.nameless_stats
        for stat in _OF_PYTHON.keys() & events.stats.keys():
            self._with_stat[stat][name[events.stats[stat].event]] = True
        starts, numbered = (events.stats.get(stat, NO_STAT) for stat in ("_r", "step_num"))
        rows = starts.event[starts.value > 0]
        np.add.at(self._unnumbered, name[rows[lookup(numbered.event, rows) < 0]], 1)
        if (self._used & self._gives_task).any():
            number = events.stats.get("_p", NO_STAT)
            self._tasks.append(number.value[self._gives_task[name[number.event]]])
        if (self._used & self._begins_task).any():
            self._begun_tasks += int(self._begins_task[name].sum())

    def counted(self, meaningful: Set[str], kind: str) -> Oddities:
        """Return the counts of a plane of this kind; `meaningful` are the stats that tfperf uses."""
        odd = Oddities(self._nameless_events, self._nameless_stats, self._timeless_calls)
        if kind == "host":
            misplaced = tuple(
                stat for stat, never_on in _OF_PYTHON.items() if self._count(self._with_stat[stat], never_on)
            )
            markers = self._count(self._unnumbered, may_mark_steps)
            odd = replace(odd, misplaced_stats=misplaced, markers_without_number=markers)
            tasks = np.concatenate((NO_NUMBERS, *self._tasks))
            odd = replace(odd, tasks=len(tasks), lost_tasks=_missing(tasks), begun_tasks=self._begun_tasks)
        if kind not in ("host", "gpu"):
            return odd
        # On planes of these kinds, profilers write a name with its first event or stat.
        unused = ({*self._header.stat_names.values()} & meaningful) - self._stats - _NOTED_BEFORE
        unused_names = int((~(self._used | self._nameless)).sum())
        return replace(odd, unused_names=unused_names, unused_stats=tuple(sorted(unused)))

    def _count(self, of_names: Bools | Int64s, wanted: Callable[[str], bool]) -> int:
        names = self._header.event_names
        return sum(int(of_names[name]) for name in np.flatnonzero(of_names[:-1]).tolist() if wanted(names[name]))


def _missing(numbers: Int64s) -> int:
    """Return how many numbers are missing, up to the last one that many follow without a gap."""
    ordered = np.sort(numbers[numbers > 0])
    steps = np.diff(ordered)
    if not len(steps) or np.median(steps) > 2:
        return 0
    borders = np.concatenate(([0], np.flatnonzero(steps > 1) + 1, [len(ordered)]))
    long = np.flatnonzero(np.diff(borders) >= max(_SHORTEST_RUN, _LONG_RUN * len(ordered)))
    last = int(borders[long[-1] + 1] if len(long) else len(ordered)) - 1
    return int((steps[:last] - 1).clip(0).sum())
