"""What a change of the input pipeline would buy, from the trace alone.

Operational bounds: a step cannot be faster than what its own thread does (the consumer's work, and the pipeline's
stages that run in that thread), than the slowest section of the pipeline, and than all work that needs the host's cores
divided by their number. A change moves work between sections, or takes it away. The low end of a range is the largest
of these bounds. The high end allows for what the bounds leave out: parallel work is less than perfectly efficient, what
should overlap does so only in part, and on a host without a device the step computes on the cores that the pipeline
uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tfperf.analyzers.pipeline import Pipeline, StageStats, TfData
from tfperf.analyzers.step_breakdown import Breakdown
from tfperf.arrays import Int64s
from tfperf.intervals import overlap
from tfperf.units import PS_PER_MS

PARALLEL_EFFICIENCY = 0.85
OVERLAP = 0.9
UNDISTURBED, DISTURBED = 0.93, 1.1
"""What the same work may take at another moment, of what it takes in the profile."""
STEADIEST = 0.75
"""What ops may take, of their time in the profile, where some of the same name are faster: else they had more to do."""
SIBLING = 0.4
"""How much faster a thread is whose core does not run another one beside it: what is called a core is often half of
one."""
HARDLY_WAITS = 0.95
"""A step that works for so much of its time may gain nothing from whatever is done to the pipeline."""
NOISE = 1.05
"""How much longer than in the profile a step may take at another moment."""
GREED = 1.2
"""How much slower threads can be that fight for Python's lock."""
LAUNCH_PS = 5_000_000
"""What an op costs whatever the size of its input: at most about 5 us; the rest grows with the batch."""

_SOURCES = frozenset({"TFRecord", "TFRecordV2", "TextLine", "FixedLengthRecord", "FixedLengthRecordV2", "Generator",
                      "TensorSlice", "FromTensor", "SSTable", "RecordIO", "LMDB", "ArrayRecord"})  # fmt: skip
_ASSUMED_CORES = 8


@dataclass(frozen=True)
class Load:
    """What a step costs, in milliseconds: in its own thread, in sections of the pipeline, and on the host's cores."""

    consumer: float
    inline: float
    """Stages of the pipeline that run in the consumer's thread."""
    sections: tuple[tuple[float, int], ...]
    """Work of each other section for a step, and how many threads share it."""
    cpu: float
    """Work of the pipeline on all threads together."""
    beside: float
    """The part of it that is done while the consumer works."""
    steadiness: float
    rivals: float
    """How many threads of the pipeline work, on average, while the consumer does."""


@dataclass(frozen=True)
class Estimate:
    """What a change would lead to: a range of step times and of input-bound shares, and what it rests on."""

    change: str
    stage: int | None
    low_ms: float
    high_ms: float
    low_input_percent: float
    high_input_percent: float
    assumption: str


@dataclass(frozen=True)
class Outlook:
    """Estimates for the pipeline that is waited for longest, the one that promises most first.

    `step_ms` and `wait_ms` are averages over the steps that count; the `stage` of an estimate is one of `pipeline`.
    """

    pipeline: Pipeline
    step_ms: float
    wait_ms: float
    elements_per_step: float
    cores: int | None
    estimates: tuple[Estimate, ...]

    @property
    def input_percent(self) -> float:
        """Return the share of the step in which it waits for this pipeline."""
        return 100.0 * self.wait_ms / self.step_ms


def estimate(found: TfData, breakdown: Breakdown, *, has_device: bool) -> Outlook | None:
    """Estimate what changes of the main pipeline would buy; None without steps, or without a whole pipeline in them."""
    rows = np.flatnonzero(breakdown.headline)
    begin, end = breakdown.steps.start_ps[rows], breakdown.steps.end_ps[rows]
    if not len(rows) or not found.whole:
        return None
    pipeline = max(found.whole, key=lambda own: int(overlap(own.waits, begin, end).sum()))
    waited = float(overlap(pipeline.waits, begin, end).mean()) / PS_PER_MS
    step = float((end - begin).mean()) / PS_PER_MS
    per_step = _elements_per_step(pipeline, begin, end)
    if not per_step or not step:
        return None
    cores = pipeline.cores or pipeline.pool_threads
    load = _load(pipeline, step - waited, per_step)
    model = _Model(load, step, cores or _ASSUMED_CORES, found.steadiness, has_device=has_device)
    estimates = [model.judge(*change) for change in _changes(pipeline, load, per_step, model.cores)]
    order = sorted(estimates, key=lambda own: (own.low_ms + own.high_ms, own.change))
    return Outlook(pipeline, step, waited, per_step, cores, tuple(order))


def _elements_per_step(pipeline: Pipeline, begin: Int64s, end: Int64s) -> float:
    """Return how many elements of the pipeline a step takes: calls of its outermost stage that begin in it."""
    times = np.sort(pipeline.call_begins)
    return float((np.searchsorted(times, end) - np.searchsorted(times, begin)).mean())


def _load(pipeline: Pipeline, consumer: float, per_step: float) -> Load:
    apart = pipeline.span_ps - pipeline.waited_ps
    inline = [own for own in pipeline.sections if own.kind == "consumer"]
    others = [own for own in pipeline.sections if own.kind != "consumer"]
    scale = per_step / PS_PER_MS
    return Load(
        consumer, sum(own.element_ps for own in inline) * scale,
        tuple((own.element_ps * scale, own.workers) for own in others),
        sum(own.element_ps for own in pipeline.sections) * scale,
        pipeline.beside_ps / max(pipeline.cpu_ps, 1) * sum(own.element_ps for own in pipeline.sections) * scale,
        pipeline.steadiness, pipeline.beside_ps / apart if apart > 0 else 0.0,
    )  # fmt: skip


@dataclass(frozen=True)
class _Model:
    """The step as it is, and how a changed load is turned into a range.

    On a host without a device, the step and the pipeline compute on the same cores. Whoever is beside the other is
    slowed down, by how much depends on how many threads the step has, which the profile does not show: one, or as many
    as there are cores. Both are tried.
    """

    now: Load
    step: float
    cores: int
    steadiness: float
    has_device: bool

    def judge(
        self, change: str, stage: int | None, best: Load, worst: Load, assumption: str, greed: float = 1.0
    ) -> Estimate:
        """Return the range for a load at best and at worst; at worst, threads slow each other down by `greed`."""
        threads = (0.0,) if self.has_device else (1.0, float(self.cores))
        low = UNDISTURBED * min(self._least(best, own) for own in threads)
        high = max(self._most(worst, own) for own in (threads[0], sum(threads) / len(threads)))
        if self.now.consumer > HARDLY_WAITS * self.step:
            high = self.step * NOISE
        high = max(min(high, self.step * NOISE) * greed, low)
        shares = [100.0 * max(1.0 - self.now.consumer / time, 0.0) if time else 0.0 for time in (low, high)]
        return Estimate(change, stage, low, high, shares[0], shares[1], assumption)

    def _slowed(self, threads: float) -> float:
        """Return how much longer than alone the consumer takes, if it has so many threads."""
        return max((threads + self.now.rivals) / self.cores, 1.0) if threads else 1.0

    def _least(self, load: Load, threads: float) -> float:
        """Return the largest of the bounds, for work that nothing slows down."""
        slowed = self._slowed(threads)
        consumer = load.consumer * min(1.0 / slowed, self._undisturbed)
        alone = self._alone(self.now.beside * (1.0 - 1.0 / slowed))
        sections = [work * alone / min(workers, self.cores) for work, workers in load.sections]
        shared = (load.cpu * alone + threads * consumer) / self.cores
        return max(consumer + load.inline, *sections, shared)

    def _alone(self, waited: float) -> float:
        """Return which share of its time the pipeline takes alone; `waited` is what it may have waited for cores."""
        work = self.now.cpu
        if not work:
            return 1.0
        return min(1.0 - waited / work, max(self.now.steadiness, STEADIEST))

    def _relief(self, load: Load, threads: float) -> float:
        """Return to what degree (0 to 1) siblings of the cores in use get free, if the pipeline has less to do."""
        half = self.cores / 2.0
        shared = min(max((threads + self.now.rivals - half) / half, 0.0), 1.0)
        return shared * max(1.0 - load.cpu / self.now.cpu, 0.0) if threads and self.now.cpu else 0.0

    @property
    def _undisturbed(self) -> float:
        """Return which share of its time the consumer takes if all of its ops are as fast as they sometimes are."""
        return 1.0 if self.has_device or not self.now.rivals else self.steadiness

    def _most(self, load: Load, threads: float) -> float:
        """Return the bound for parallel work that is not efficient, and for what overlaps only in part."""
        consumer = load.consumer / self._slowed(threads) / (1.0 + SIBLING * self._relief(load, threads))
        sections = [
            work / (1.0 if workers == 1 else min(workers, self.cores) * PARALLEL_EFFICIENCY)
            for work, workers in load.sections
        ]
        own, slowest = consumer + load.inline, max(sections, default=0.0)
        together = max(own, slowest) + (1.0 - OVERLAP) * min(own, slowest)
        return max(together, (load.cpu + threads * consumer) / self.cores) * DISTURBED


Change = tuple[str, int | None, Load, Load, str, float]


def _changes(pipeline: Pipeline, load: Load, per_step: float, cores: int) -> Iterator[Change]:
    """Propose what could be changed, with the load at best and at worst."""
    scale = per_step / PS_PER_MS
    if pipeline.final_prefetch is None and load.inline:
        moved = replace(load, inline=0.0, sections=(*load.sections, (load.inline, 1)))
        yield "prefetch", None, moved, moved, "the pipeline works while the step computes", 1.0
    for index, stage in enumerate(pipeline.stages):
        work = (stage.element_ps or 0.0) * scale
        if work < 0.02 * (load.consumer + load.inline):
            continue
        function = stage.run_ps / max(stage.work_ps, 1) * work
        if stage.runs and function and _sequential(pipeline, index):
            yield _parallel(pipeline, load, index, function, cores)
        if stage.name in _SOURCES:
            yield _parallel(pipeline, load, index, work, cores)
    limiting = pipeline.limiting
    if limiting is not None and not any("Cache" in stage.name for stage in _consumers(pipeline, limiting)):
        yield _cached(pipeline, load, limiting, scale)
    for index, stage in enumerate(pipeline.stages):
        if stage.runs and _batch_after(pipeline, index) and not stage.python:
            yield _vectorized(pipeline, load, index, scale)


def _sequential(pipeline: Pipeline, index: int) -> bool:
    """Tell whether a stage's function runs one at a time."""
    stage = pipeline.stages[index]
    alone = all(own.workers == 1 for own in pipeline.sections if index in own.stages)
    return alone and stage.name in ("Map", "MapAndBatch", "ParallelMapV2", "ParallelMap") and not stage.autotuned and (
        not stage.is_async or (stage.parallelism or 1) == 1
    )  # fmt: skip


def _consumers(pipeline: Pipeline, index: int) -> Iterator[StageStats]:
    while index >= 0:
        yield pipeline.stages[index]
        index = pipeline.stages[index].parent


def _without(pipeline: Pipeline, load: Load, taken: dict[int, float]) -> Load:
    """Take work (milliseconds per step) of stages out of the sections that do it."""
    inline, sections, position = load.inline, [], 0
    for section in pipeline.sections:
        less = sum(taken.get(stage, 0.0) for stage in section.stages)
        if section.kind == "consumer":
            inline = max(inline - less, 0.0)
            continue
        work, workers = load.sections[position]
        position += 1
        if section.kind == "producer" and any(own.kind == "function" and own.owner == section.owner for own in
                                              pipeline.sections):  # fmt: skip
            less -= taken.get(section.owner, 0.0)
        sections.append((max(work - less, 0.0), workers))
    return replace(load, inline=inline, sections=tuple(sections), cpu=max(load.cpu - sum(taken.values()), 0.0))


def _parallel(pipeline: Pipeline, load: Load, index: int, work: float, cores: int) -> Change:
    """Let several threads do what one does now."""
    stage = pipeline.stages[index]
    rest = _without(pipeline, load, {index: work})
    spread = replace(rest, sections=(*rest.sections, (work, cores)), cpu=load.cpu)
    if stage.name in _SOURCES:
        words = "several files; a gain as far as reading them, not the disk or network, takes the time"
        return "parallel_read", index, spread, load, words, 1.0
    if stage.python:
        words = "Python code runs one thread at a time: no gain if it computes, up to this if it waits"
        return "parallel_map", index, spread, load, words, GREED
    return "parallel_map", index, spread, spread, f"calls do not depend on each other; {cores} cores", 1.0


def _cached(pipeline: Pipeline, load: Load, index: int, scale: float) -> Change:
    """Keep what a stage makes: it and all before it work in the first epoch only."""
    gone = {
        other: (stage.element_ps or 0.0) * scale
        for other, stage in enumerate(pipeline.stages)
        if index in _line_up(pipeline, other)
    }
    kept = _without(pipeline, load, gone)
    return "cache", index, kept, kept, "from the second epoch on; the elements fit into memory", 1.0


def _line_up(pipeline: Pipeline, index: int) -> Iterator[int]:
    while index >= 0:
        yield index
        index = pipeline.stages[index].parent


def _batch_after(pipeline: Pipeline, index: int) -> int | None:
    """Return the batch size if what this stage makes is batched next."""
    stage = pipeline.stages[index]
    if stage.name == "MapAndBatch":
        return stage.batch_size
    if stage.name not in ("Map", "ParallelMap", "ParallelMapV2") or stage.parent < 0:
        return None
    consumer = pipeline.stages[stage.parent]
    return consumer.batch_size if "Batch" in consumer.name else None


def _vectorized(pipeline: Pipeline, load: Load, index: int, scale: float) -> Change:
    """Run the function once for a batch: what each op costs whatever its size is paid once."""
    stage, batch = pipeline.stages[index], _batch_after(pipeline, index) or 1
    work = (stage.element_ps or 0.0) * scale
    per_run = work / stage.runs if stage.runs else 0.0
    ops_ps = sum(time for _, _, _, time in stage.ops)
    count = sum(times for _, _, times, _ in stage.ops)
    fixed = min(LAUNCH_PS * count, ops_ps)
    share = ops_ps / max(stage.work_ps, 1)
    grows = (ops_ps - fixed) / max(stage.work_ps, 1) * work
    least = _without(pipeline, load, {index: max(work - grows - per_run, 0.0)})
    most = _without(pipeline, load, {index: max(work * (1.0 - share), 0.0) * (1.0 - 1.0 / batch)})
    return "vectorize", index, least, most, "the function works on whole batches as it does on one element", 1.0
