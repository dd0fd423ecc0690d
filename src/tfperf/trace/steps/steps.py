"""Steps of one host: their windows, kinds and flags, and the detection rule."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import NO_NUMBERS, Bools, Int64s, covers, median, span_at, text_index
from tfperf.trace.event_names import concrete_function, infers, is_gradient, is_keras_predict, mask
from tfperf.trace.flaw import TIMES, Parts
from tfperf.trace.host.activities import xla_compilations
from tfperf.trace.host_trace import HostTrace

Confidence = Literal["high", "medium", "low", "none"]
WhichStep = int | Literal["median", "slowest"]
"""A step by number, or by its duration relative to the others."""
How = tuple[str, Confidence, str]
"""Name of the detection rule, its confidence, and a description."""

PARTIAL, RETRACE, SLOW_FIRST, END_ESTIMATED = "partial", "retrace", "slow first step", "end estimated"
OMITTED, COLLECTION = "omitted", "garbage collection"
FLAGS: Mapping[str, str] = {
    PARTIAL: "the capture has only part of it",
    RETRACE: "a function was traced or compiled in it",
    SLOW_FIRST: "the first step took over three times the median of the other steps of its kind",
    END_ESTIMATED: "the end of this last step was not recorded and is estimated",
    COLLECTION: "most of it is a Python garbage collection, and hardly any other step has one",
    OMITTED: "with attribution tensorflow: the first or last step, which TensorFlow's profiler omits",
}
"""Why a step is excluded from averages."""
UNLABELLED, ITERATION, INFERENCE = "step", "iteration", "inference"
"""Kind of a step that may or may not train, of one that does not train, and of one that answers a request."""


def step_word(kind: str) -> str:
    """Return the noun for a step of a kind: `step`, `iteration`, `training step`, `inference step`, `test step`."""
    words = {"train": "training step", "eval": "evaluation step", UNLABELLED: UNLABELLED, ITERATION: ITERATION}
    return words.get(kind, f"{kind} step")


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

    Rules find the starts of steps and the ends of their own work; `find_steps` turns these into windows [start_ps,
    end_ps) from start to start. `flags` holds, per step, why it is excluded from averages (empty: included). `batches`
    counts tf.data elements per step (more than 1 with `steps_per_execution`). `source` is the name of the rule,
    `explanation` its description.
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
    """A sentence for each loop that runs on another thread at the same time and is not part of steps."""
    enough: int = 3
    """Number of unflagged steps of a kind that is enough for averages."""
    on_cores: tuple[CoreSteps, ...] = ()
    """Windows of steps on each TPU core, by its own clock, if steps are program runs; `Steps` holds those of the
    slowest.
    """

    def __len__(self) -> int:
        """Return the number of steps, including flagged ones."""
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
        """Return the parts of the profile that determine the borders of steps: marks, if there are any."""
        if self.source not in ("markers", "device steps") or not self.end_known:
            return TIMES
        return frozenset({"steps", "device"} if self.on_cores or self.source == "device steps" else {"steps"})

    @property
    def duration_ps(self) -> Int64s:
        """Return the duration of each window."""
        return self.end_ps - self.start_ps

    @cached_property
    def averaged(self) -> Bools:
        """Return which steps are averaged: those without a flag, if there are `enough`; else all of their kind."""
        plain, (kinds, code) = self.plain, self._kind_index
        return np.asarray(plain | (np.bincount(code[plain], minlength=len(kinds)) < self.enough)[code], np.bool_)

    @cached_property
    def plain(self) -> Bools:
        """Return which steps have no flag."""
        flags, code = text_index(self.flags)
        return np.array([not flag for flag in flags], np.bool_)[code]

    @cached_property
    def _kind_index(self) -> tuple[list[str], Int64s]:
        return text_index(self.kinds)

    def are(self, kind: str) -> Bools:
        """Return which steps are of a kind."""
        kinds, code = self._kind_index
        return np.array([each == kind for each in kinds], np.bool_)[code]

    @cached_property
    def headline(self) -> Bools:
        """Return which steps the headline figures use: averaged ones of the headline kind."""
        return self.averaged & self.are(self.headline_kind)

    @property
    def kinds_told_apart(self) -> tuple[str, ...]:
        """Return the kind of each step if there are several kinds, else an empty tuple."""
        return self.kinds if len(set(self.kinds)) > 1 else ()

    @cached_property
    def headline_kind(self) -> str:
        """Return the kind of the headline figures: train if present, else the one with the longest total time."""
        kinds, code = self._kind_index
        total = dict(zip(kinds, np.bincount(code, self.duration_ps, len(kinds)).tolist(), strict=True))
        training = [kind for kind in total if kind.startswith("train")]
        return max(training or total, key=lambda kind: total[kind], default=UNLABELLED)


def chosen_step(steps: Steps, which: WhichStep) -> int | None:
    """Return the row of a step; None if there is none.

    `median` is the headline step nearest to their median duration, `slowest` the longest complete step of the capture.
    Of steps with the same number, the first is used.
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
    """Return unflagged steps of one batch each; `span` holds the start of each and the end of its own work."""
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
    """Return the empty result, with the reason."""
    return plain_steps(("none", "none", reason), (NO_NUMBERS, NO_NUMBERS), NO_NUMBERS, (), ())


def label_kinds(trace: HostTrace, start: Int64s, end: Int64s, names: list[str]) -> tuple[str, ...]:
    """Label steps of the same name `train` or `eval` by whether gradient or optimizer ops run in them.

    Forward steps are `inference` if their name says so; next to training steps, only those of Keras's `predict`.

    The label belongs to the concrete function (by the majority of its steps), because an op of an asynchronous step may
    run late. If no step shows such an op (an XLA-compiled function hides them), steps keep their name.
    """
    known = {name: INFERENCE if infers(name) else name for name in dict.fromkeys(names)}
    label_of = {
        name: each if each in ("train", "test", "eval", INFERENCE) else UNLABELLED for name, each in known.items()
    }
    plain = tuple(map(label_of.__getitem__, names))
    rows = trace.host_events(mask(trace.names, is_gradient))
    # Ops that XLA runs during compilation occur only in steps that compile.
    rows = rows[~covers(xla_compilations(trace), trace.start_ps[rows])]
    if not len(rows) or not len(start):
        return plain if len(set(names)) == 1 else tuple(map(known.__getitem__, names))
    times = np.sort(trace.start_ps[rows])
    training = np.searchsorted(times, end) > np.searchsorted(times, start)
    function_of = [concrete_function(name) for name in trace.names]
    rows = trace.host_events(np.array([bool(function) for function in function_of], np.bool_))
    rows = rows[np.argsort(trace.start_ps[rows], kind="stable")]
    functions = list(names)  # per step, its name and the first concrete function that it runs
    if len(rows):
        first = rows[np.minimum(np.searchsorted(trace.start_ps[rows], start), len(rows) - 1)]
        runs_one = (trace.start_ps[first] >= start) & (trace.start_ps[first] < end)
        for step, name in zip(np.flatnonzero(runs_one).tolist(), trace.name[first[runs_one]].tolist(), strict=True):
            functions[step] += f" {function_of[name]}"
    votes: dict[str, list[bool]] = {}
    for function, vote in zip(functions, training.tolist(), strict=True):
        votes.setdefault(function, []).append(vote)
    label = {function: "train" if 2 * sum(some) >= len(some) else "eval" for function, some in votes.items()}
    return tuple(
        INFERENCE if label[function] == "eval" and (is_keras_predict(name) or name == "predict") else label[function]
        for function, name in zip(functions, names, strict=True)
    )
