"""The tf.data pipelines of a host: which stages there are, each call of them, and each run of a user's function.

TensorFlow records one event per call of an iterator, named by the whole path (`Iterator::Root::Prefetch::Map`), with
the `id` of the iterator and that of its consumer (`parent_id`): 64 bits, all of them in use. Iterators are many (one
per file, one per epoch), stages are few: iterators of one pipeline with the same path are one stage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tfperf.arrays import Int64s
from tfperf.intervals import overlap, union
from tfperf.trace.event_names import is_fetch, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import nest
from tfperf.trace.pipeline_functions import FunctionRuns, find_function_runs
from tfperf.trace.pipeline_tree import Stage, Tree, build_tree

_HAND_OVER = re.compile(r"\w+Produce$")
_ITERATOR, _PRODUCE, _FUNCTION = 1, 2, 3


@dataclass(frozen=True)
class Calls:
    """Calls of stages (GetNext), in row order: which stage, when, and in which event of tf.data on the same thread.

    `around` is an index into these calls: the call that this one was made in, -1 if another thread's event or none
    is around it.
    """

    row: Int64s
    stage: Int64s
    begin: Int64s
    end: Int64s
    around: Int64s
    in_produce: Int64s
    """Index into `produce` of the hand-over that the call was made in, -1 for none."""

    def __len__(self) -> int:
        """Return the number of calls."""
        return len(self.row)


@dataclass(frozen=True)
class Produced:
    """Work of an asynchronous stage on its own threads (`PrefetchProduce`); the stage is -1 where nothing tells it."""

    stage: Int64s
    begin: Int64s
    end: Int64s


@dataclass(frozen=True)
class Pipelines:
    """All pipelines of a host. `roots` holds the index of the outermost stage of each."""

    stages: tuple[Stage, ...]
    roots: tuple[int, ...]
    calls: Calls
    produced: Produced
    runs: FunctionRuns
    device: tuple[bool, ...]
    """Per pipeline: it only moves what another one makes to a device."""
    fetched: tuple[bool, ...]
    """Per pipeline: the program asks it (else the worker of a data service, say)."""
    handed_on: tuple[bool, ...]
    """Per pipeline: a device pipeline asks it, not the program."""
    cut: tuple[bool, ...]
    """Per pipeline: its outermost stage has no call in the capture."""
    iterators: tuple[int, ...]
    """Per pipeline: how many outermost iterators it has had, one after the other (a program makes one per epoch)."""
    settings: dict[str, Int64s] = field(default_factory=dict)
    """What stages say of themselves (`parallelism`, `buffer_limit`, ...): per stage, the largest; -1: not said."""
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What stages say of themselves in words (`name`, `autotune`, `deterministic`); empty: not said."""
    buffered: tuple[float, ...] = ()
    """Per stage: how many elements its buffer held when it was asked, on average; NaN: not said."""

    def children(self, stage: int) -> list[int]:
        """Return the stages that a stage gets its elements from."""
        return [index for index, other in enumerate(self.stages) if other.parent == stage]

    def members(self, pipeline: int) -> list[int]:
        """Return the stages of a pipeline, outermost first, each before its inputs and these before the next input."""
        found, waiting = [], [self.roots[pipeline]]
        while waiting:
            stage = waiting.pop()
            found.append(stage)
            waiting += reversed(self.children(stage))
        return found


def find_pipelines(trace: HostTrace) -> Pipelines | None:
    """Rebuild the pipelines of a host; None if tf.data recorded nothing."""
    kind = np.array([_kind(name) for name in trace.names], np.uint8)
    rows = trace.host_events(kind > 0).astype(np.int64)
    rows = rows[(kind[trace.name[rows]] != _ITERATOR) | _has_id(trace, rows)]
    kinds = kind[trace.name[rows]]
    if not (kinds == _ITERATOR).any():
        return None
    above = _nest_rows(trace, rows)
    calls_at = np.flatnonzero(kinds == _ITERATOR)
    tree = build_tree(trace, rows[calls_at])
    stage = np.full(len(rows), -1, np.int64)
    stage[calls_at] = tree.stage_of_call
    produce_at = np.flatnonzero(kinds == _PRODUCE)
    stage[produce_at] = _owners(trace, rows, above, kinds, produce_at, stage, tree)
    function_at = np.flatnonzero(kinds == _FUNCTION)
    owner = _callers(trace, rows, above, function_at, stage, tree)
    runs = find_function_runs(trace, rows[function_at], owner)
    python = {stage for stage, _, kind in runs.ops if "PyFunc" in kind}
    device = tree.is_device(python)
    calls = _calls(trace, rows, above, kinds, calls_at, produce_at, stage)
    return Pipelines(
        tree.stages, tree.roots, calls,
        Produced(stage[produce_at], trace.start_ps[rows[produce_at]], trace.end_ps[rows[produce_at]]),
        runs, device, _fetched(trace, tree, calls), _handed_on(trace, tree, calls, device), tree.cut, tree.iterators,
        _settings(trace, rows[calls_at], tree), _labels(trace, rows[calls_at], tree),
        _buffered(trace, rows[calls_at], tree),
    )  # fmt: skip


def _kind(name: str) -> int:
    if name.startswith("Iterator::"):
        return _ITERATOR
    if name.startswith("InstantiatedCapturedFunction::"):
        return _FUNCTION
    return _PRODUCE if _HAND_OVER.match(name) else 0


def _has_id(trace: HostTrace, rows: Int64s) -> npt.NDArray[np.bool_]:
    event = trace.stat("id").event
    if not len(event):
        return np.zeros(len(rows), np.bool_)
    return np.asarray(event[np.minimum(np.searchsorted(event, rows), len(event) - 1)] == rows, np.bool_)


def _nest_rows(trace: HostTrace, rows: Int64s) -> Int64s:
    """Return, for each row, the index into `rows` of the one around it on its thread (-1: none)."""
    above = np.full(len(rows), -1, np.int64)
    for line in trace.host_lines:
        first, last = np.searchsorted(rows, (line.start, line.stop)).tolist()
        if last > first:
            own = rows[first:last]
            found = nest(trace.start_ps[own], trace.end_ps[own]).parent
            above[first:last] = np.where(found >= 0, found + first, -1)
    return above


def _calls(
    trace: HostTrace, rows: Int64s, above: Int64s, kinds: npt.NDArray[np.uint8], calls_at: Int64s, produce_at: Int64s,
    stage: Int64s,
) -> Calls:  # fmt: skip
    index = np.full(len(rows) + 1, -1, np.int64)
    index[calls_at] = np.arange(len(calls_at))
    produce_index = np.full(len(rows) + 1, -1, np.int64)
    produce_index[produce_at] = np.arange(len(produce_at))
    around = above[calls_at]
    return Calls(
        rows[calls_at], stage[calls_at], trace.start_ps[rows[calls_at]], trace.end_ps[rows[calls_at]],
        index[around], produce_index[around],
    )  # fmt: skip


def _owners(
    trace: HostTrace, rows: Int64s, above: Int64s, kinds: npt.NDArray[np.uint8], produce_at: Int64s, stage: Int64s,
    tree: Tree,
) -> Int64s:  # fmt: skip
    """Return which stage each hand-over belongs to: the consumer of what it fetches; else as others on its thread."""
    consumer = np.array([own.parent for own in tree.stages], np.int64)
    position = np.full(len(rows), -1, np.int64)
    position[produce_at] = np.arange(len(produce_at))
    fetched = np.flatnonzero((kinds == _ITERATOR) & (above >= 0))
    fetched = fetched[kinds[above[fetched]] == _PRODUCE]
    owner = np.full(len(produce_at), -1, np.int64)
    # Written from the last to the first, so that the first fetch decides.
    owner[position[above[fetched[::-1]]]] = consumer[stage[fetched[::-1]]]
    alike = trace.line_of[rows[produce_at]].astype(np.int64) * len(trace.names) + trace.name[rows[produce_at]]
    _, group = np.unique(alike, return_inverse=True)
    group = group.reshape(-1)
    usual = np.full(int(group.max(initial=-1)) + 1, -1, np.int64)
    usual[group[owner >= 0]] = owner[owner >= 0]
    return np.where(owner >= 0, owner, usual[group]) if len(group) else owner


def _fetched(trace: HostTrace, tree: Tree, calls: Calls) -> tuple[bool, ...]:
    """Tell of which pipelines a call of the outermost stage lies in a fetch of the program."""
    fetches = trace.host_events(mask(trace.names, is_fetch)).astype(np.int64)
    found = []
    for root in tree.roots:
        rows = calls.row[calls.stage == root]
        around = fetches[np.maximum(np.searchsorted(fetches, rows) - 1, 0)] if len(fetches) else rows
        inside = (around < rows) & (trace.line_of[around] == trace.line_of[rows])
        found.append(bool((inside & (trace.end_ps[around] >= trace.end_ps[rows])).any()))
    return tuple(found)


def _handed_on(trace: HostTrace, tree: Tree, calls: Calls, device: tuple[bool, ...]) -> tuple[bool, ...]:
    """Tell which pipelines feed device pipelines: asked by a thread that does so, or while a generator of one runs."""
    generators = [index for index, own in enumerate(tree.stages) if own.name == "Generator" and device[own.pipeline]]
    if not generators:
        return (False,) * len(device)
    asking = np.isin(calls.stage, generators)
    busy = union(calls.begin[asking], calls.end[asking])
    feeding = np.array([line.name.startswith("tf_data_multi_device_iterator") for line in trace.lines], np.bool_)
    found = []
    for is_device, root in zip(device, tree.roots, strict=True):
        mine = calls.stage == root
        begin, end = calls.begin[mine], calls.end[mine]
        inside = int(overlap(busy, begin, end).sum())
        by_thread = bool(feeding[trace.line_of[calls.row[mine]]].any())
        found.append(not is_device and bool(len(begin)) and (by_thread or 2 * inside > int((end - begin).sum())))
    return tuple(found)


def _callers(trace: HostTrace, rows: Int64s, above: Int64s, function_at: Int64s, stage: Int64s, tree: Tree) -> Int64s:
    """Return which stage runs each function: that of the event around it.

    Older versions record no event around it, and it may be cut off by the capture's edge. Then it is a consumer of what
    was called just before on the thread: the nearest one that is known to run functions, else the nearest.
    """
    consumer = [own.parent for own in tree.stages]
    owner = np.where(above[function_at] >= 0, stage[np.maximum(above[function_at], 0)], -1)
    running = set(owner.tolist()) - {-1}
    calls = np.flatnonzero((above < 0) & (stage >= 0))
    lost = np.flatnonzero((owner < 0) & (above[function_at] < 0))
    if not len(calls) or not len(lost):
        return owner
    before = calls[np.maximum(np.searchsorted(calls, function_at[lost]) - 1, 0)]
    near = (before < function_at[lost]) & (trace.line_of[rows[before]] == trace.line_of[rows[function_at[lost]]])
    of_stage = {index: _running_consumer(consumer, index, running) for index in set(stage[before].tolist())}
    owner[lost] = np.where(near, [of_stage[index] for index in stage[before].tolist()], -1)
    return owner


def _running_consumer(consumer: list[int], stage: int, running: set[int]) -> int:
    """Return the nearest consumer of a stage that is known to run functions, else the nearest."""
    above = consumer[stage]
    while above >= 0 and above not in running:
        above = consumer[above]
    return above if above >= 0 else consumer[stage]


def _settings(trace: HostTrace, rows: Int64s, tree: Tree) -> dict[str, Int64s]:
    """Return what stages say of themselves, the largest value of all calls."""
    found = {}
    for name in ("parallelism", "buffer_limit", "batch_size", "cycle_length", "cpu_budget", "threadpool_size"):
        value = trace.number_at(name, rows, -1)
        found[name] = np.full(len(tree.stages), -1, np.int64)
        np.maximum.at(found[name], tree.stage_of_call, value)
    return found


def _labels(trace: HostTrace, rows: Int64s, tree: Tree) -> dict[str, tuple[str, ...]]:
    """Return what stages say of themselves in words, the last that they said."""
    found = {}
    for name in ("name", "autotune", "deterministic"):
        said = np.full(len(tree.stages), -1, np.int64)
        value = trace.number_at(name, rows, -1)
        said[tree.stage_of_call[value >= 0]] = value[value >= 0]
        texts = trace.stat(name).texts
        found[name] = tuple(texts[index] if index >= 0 else "" for index in said.tolist())
    return found


def _buffered(trace: HostTrace, rows: Int64s, tree: Tree) -> tuple[float, ...]:
    """Return the average fill of buffers. Versions that tell it leave it out for an empty one."""
    value = trace.number_at("buffered_elements", rows, -1)
    limit = trace.number_at("buffer_limit", rows, -1)
    count = len(tree.stages)
    tells = np.bincount(tree.stage_of_call[value >= 0], minlength=count) > 0
    if len(trace.stat("cpu_budget").event):  # newer than the first version that tells it
        tells |= np.bincount(tree.stage_of_call[limit >= 0], minlength=count) > 0
    total = np.bincount(tree.stage_of_call, weights=np.maximum(value, 0), minlength=count)
    times = np.bincount(tree.stage_of_call, minlength=count)
    return tuple((total / np.where(tells & (times > 0), times, np.nan)).tolist())
