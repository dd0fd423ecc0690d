"""Steps of one host: their windows, kinds and flags, and how they were found."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import NO_NUMBERS, Bools, Int64s, covers, median, span_at, text_index
from tfperf.trace.event_names import concrete_function, is_gradient, mask
from tfperf.trace.flaw import TIMES, Parts
from tfperf.trace.host.activities import xla_compilations
from tfperf.trace.host_trace import HostTrace

Confidence = Literal["high", "medium", "low", "none"]
WhichStep = int | Literal["median", "slowest"]
"""A step by its number, or by its duration among the others."""
How = tuple[str, Confidence, str]
"""Name of the rule that found steps, how sure it is, and the rule in words."""

PARTIAL, RETRACE, SLOW_FIRST, END_ESTIMATED = "partial", "retrace", "slow first step", "end estimated"
OMITTED, COLLECTION = "omitted", "garbage collection"
FLAGS: Mapping[str, str] = {
    PARTIAL: "the capture shows only a part of it",
    RETRACE: "a function was traced or compiled in it",
    SLOW_FIRST: "the first step took over three times as long as the median of the others of its kind",
    END_ESTIMATED: "the end of this last step is not recorded, but estimated",
    COLLECTION: "most of it is a garbage collection of Python, and hardly any other step has one",
    OMITTED: "with attribution tensorflow: the first or the last step, which TensorFlow's profiler leaves out",
}
"""Why a step does not count in averages."""
UNLABELLED, ITERATION = "step", "iteration"
"""Kinds of steps of which it is unknown whether they train, and of those that surely do not."""


def step_word(kind: str) -> str:
    """Return what a step of a kind is called: `step`, `iteration`, `train step`."""
    return kind if kind in (UNLABELLED, ITERATION) else f"{kind} step"


class Pause(Struct, frozen=True):
    """Time between two steps that belongs to neither (checkpoint, end of an epoch, change of phase)."""

    start_ps: int
    end_ps: int
    after_step: str


class CoreSteps(NamedTuple):
    """The steps of one TPU core (index of its plane): int64 picoseconds on its own clock."""

    plane: int
    start_ps: Int64s
    end_ps: Int64s


class Steps(Struct, frozen=True, eq=False, kw_only=True, dict=True):
    """The steps of one host, in time order.

    Rules find where steps start and where their own work ends; of that, `find_steps` makes windows [start_ps, end_ps)
    that run from start to start. `flags` holds, per step, why it does not count in averages (empty: it counts).
    `batches` counts tf.data elements per step (more than 1 with `steps_per_execution`). `source` names the rule,
    `explanation` says it in words.
    """

    source: str
    confidence: Confidence
    explanation: str
    start_ps: Int64s
    end_ps: Int64s
    numbers: Int64s
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    flags: tuple[str, ...]
    batches: Int64s
    end_known: bool = True
    """False: the end of the last step is not recorded, but estimated."""
    pauses: tuple[Pause, ...] = ()
    notes: tuple[str, ...] = ()
    other_loops: tuple[str, ...] = ()
    """A sentence for each loop that runs on another thread at the same time, which is in no step."""
    enough: int = 3
    """So many steps of a kind without a flag are enough for averages."""
    on_cores: tuple[CoreSteps, ...] = ()
    """Where steps are runs of programs on TPU cores: their windows on each core, by its own clock.

    Rules tell there from when to when a core works for each step, as they do for the steps, which are those of the
    slowest core on the clock of the host."""

    def __len__(self) -> int:
        """Return the number of steps, flagged ones included."""
        return len(self.start_ps)

    def only(self, rows: Int64s) -> Steps:
        """Return the steps at `rows`; pauses between them are dropped."""
        names, kinds, flags = (tuple(texts[i] for i in rows.tolist()) for texts in (self.names, self.kinds, self.flags))
        return replace(
            self,
            start_ps=self.start_ps[rows],
            end_ps=self.end_ps[rows],
            numbers=self.numbers[rows],
            names=names,
            kinds=kinds,
            flags=flags,
            batches=self.batches[rows],
            pauses=(),
            on_cores=tuple(CoreSteps(each.plane, each.start_ps[rows], each.end_ps[rows]) for each in self.on_cores),
        )

    def at(self, times_ps: Int64s) -> Int64s:
        """Return, for each time, the row of the step around it; -1 outside of all."""
        return span_at(self.start_ps, self.end_ps, times_ps)

    @property
    def rests_on(self) -> Parts:
        """Return the parts of the profile that say where steps start and end: marks, if there are any."""
        if self.source not in ("markers", "device steps") or not self.end_known:
            return TIMES
        return frozenset({"steps", "device"} if self.on_cores or self.source == "device steps" else {"steps"})

    @property
    def duration_ps(self) -> Int64s:
        """Return the duration of each window."""
        return self.end_ps - self.start_ps

    @cached_property
    def averaged(self) -> Bools:
        """Tell which steps count in averages: those without a flag, if `enough` are; else all of their kind."""
        plain, (kinds, code) = self.plain, self._kind_index
        return np.asarray(plain | (np.bincount(code[plain], minlength=len(kinds)) < self.enough)[code], np.bool_)

    @cached_property
    def plain(self) -> Bools:
        """Tell which steps have no flag."""
        flags, code = text_index(self.flags)
        return np.array([not flag for flag in flags], np.bool_)[code]

    @cached_property
    def _kind_index(self) -> tuple[list[str], Int64s]:
        return text_index(self.kinds)

    def are(self, kind: str) -> Bools:
        """Tell which steps are of a kind."""
        kinds, code = self._kind_index
        return np.array([each == kind for each in kinds], np.bool_)[code]

    @cached_property
    def headline(self) -> Bools:
        """Tell which steps the headline figures are about: averaged ones of the headline kind."""
        return self.averaged & self.are(self.headline_kind)

    @property
    def kinds_told_apart(self) -> tuple[str, ...]:
        """Return the kind of each step if there are several, else nothing."""
        return self.kinds if len(set(self.kinds)) > 1 else ()

    @cached_property
    def headline_kind(self) -> str:
        """Return the kind that headline figures are about: train if there is one, else the most time-consuming."""
        kinds, code = self._kind_index
        total = dict(zip(kinds, np.bincount(code, self.duration_ps, len(kinds)).tolist(), strict=True))
        training = [kind for kind in total if kind.startswith("train")]
        return max(training or total, key=lambda kind: total[kind], default=UNLABELLED)


def chosen_step(steps: Steps, which: WhichStep) -> int | None:
    """Return the row of a step; None if there is none.

    `median` is the one of the headline steps whose duration is nearest to their median, `slowest` the longest that the
    capture shows whole. Of steps with the same number, the first is taken.
    """
    if isinstance(which, int):
        rows = np.flatnonzero(steps.numbers == which)
        return int(rows[0]) if len(rows) else None
    rows = np.flatnonzero(steps.headline)
    if which == "slowest":
        is_whole = np.array([flag not in (PARTIAL, END_ESTIMATED) for flag in steps.flags], np.bool_)
        rows = np.flatnonzero(is_whole) if is_whole.any() else rows
    if not len(rows):
        return None
    durations = steps.duration_ps[rows]
    distance = -durations if which == "slowest" else np.abs(durations - median(durations))
    return int(rows[np.argmin(distance)])


def plain_steps(
    how: How, span: tuple[Int64s, Int64s], numbers: Int64s, names: tuple[str, ...], kinds: tuple[str, ...]
) -> Steps:
    """Return steps without flags, of one batch each; `span` is where each starts and where its own work ends."""
    source, confidence, explanation = how
    start, end = span
    return Steps(
        source=source,
        confidence=confidence,
        explanation=explanation,
        start_ps=start,
        end_ps=end,
        numbers=numbers,
        names=names,
        kinds=kinds,
        flags=("",) * len(start),
        batches=np.ones(len(start), np.int64),
    )


def no_steps(reason: str) -> Steps:
    """Return the empty result, with the reason why nothing was found."""
    return plain_steps(("none", "none", reason), (NO_NUMBERS, NO_NUMBERS), NO_NUMBERS, (), ())


def label_kinds(trace: HostTrace, start: Int64s, end: Int64s, names: list[str]) -> tuple[str, ...]:
    """Label steps of the same name `train` or `eval` by whether gradient or optimizer ops run in them.

    The label belongs to the concrete function (most of its steps decide), since an op of an asynchronous step may run
    late. Where no step shows such an op (an XLA-compiled function hides them) steps keep their name.
    """
    label_of = {name: name if name in ("train", "test", "eval") else UNLABELLED for name in dict.fromkeys(names)}
    plain = tuple(map(label_of.__getitem__, names))
    rows = trace.host_events(mask(trace.names, is_gradient))
    # What XLA computes while it compiles shows in those steps only that compile.
    rows = rows[~covers(xla_compilations(trace), trace.start_ps[rows])]
    if not len(rows) or not len(start):
        return plain if len(set(names)) == 1 else tuple(names)
    times = np.sort(trace.start_ps[rows])
    training = np.searchsorted(times, end) > np.searchsorted(times, start)
    function_of = [concrete_function(name) for name in trace.names]
    rows = trace.host_events(np.array([bool(function) for function in function_of], np.bool_))
    rows = rows[np.argsort(trace.start_ps[rows], kind="stable")]
    functions = list(names)  # per step, its name and the concrete function that it runs first
    if len(rows):
        first = rows[np.minimum(np.searchsorted(trace.start_ps[rows], start), len(rows) - 1)]
        runs_one = (trace.start_ps[first] >= start) & (trace.start_ps[first] < end)
        for step, name in zip(np.flatnonzero(runs_one).tolist(), trace.name[first[runs_one]].tolist(), strict=True):
            functions[step] += f" {function_of[name]}"
    votes: dict[str, list[bool]] = {}
    for function, vote in zip(functions, training.tolist(), strict=True):
        votes.setdefault(function, []).append(vote)
    label = {function: "train" if 2 * sum(some) >= len(some) else "eval" for function, some in votes.items()}
    return tuple(label[function] for function in functions)
