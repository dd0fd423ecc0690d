"""What is known about a tf.data pipeline: its stages, and the segments that threads cut it into."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from tfperf.base.arrays import EMPTY, Int64s, Intervals, intersection

SLOW_CALL_PS = 50_000_000
"""A call of the outermost stage that takes longer than 50 us is slow (TensorFlow's own threshold)."""
FEW_CORES, ALL_CORES = 0.4, 0.85
"""Of the host's cores: below the first, more could be at work; from the second on, all are."""
_OWN_WAITING = 0.1
"""A stage is worth a change if so much of the waiting for the pipeline is for it."""
_OPTIONS = ("Root", "Model", "MaxIntraOpParallelism", "PrivateThreadPool", "Options", "FinalizeDataset")
PASSING_ON = (*_OPTIONS, "AssertCardinality", "ForeverRepeat", "FiniteRepeat")
"""Stages that only hand elements on, or set options."""

MAPS = ("Map", "ParallelMap", "ParallelMapV2")
_RANDOM_OPS = re.compile(
    r"Random|Multinomial|RngReadAndSkip|RngSkip|Philox|SampleDistortedBoundingBox|TruncatedNormal|Stateful\w*(?:Uniform|Normal)"
)
"""Parts of the types of random ops."""
_RANDOM_NAMES = re.compile(
    r"(?i)random|uniform|dropout|augment|jitter|shuffle|(?:^|[_/])(?:rand|noise|flip|mixup|cutout|cutmix)(?:[_/\d]|$)"
)
"""Parts of the names of ops in random functions: cheap random ops themselves leave no event."""

SegmentKind = Literal["consumer", "producer", "function"]


class StageStats(Struct, frozen=True, kw_only=True):
    """One stage over all its calls; times are picoseconds, None is unknown."""

    name: str
    path: str
    parent: int
    """Index of the consumer among the stages of the pipeline, -1 for the outermost."""
    depth: int
    dataset: str
    """TensorFlow's name of it, such as `PrefetchDataset:2`; read for the outermost stage and for prefetches only."""
    calls: int
    total_ps: int
    mean_ps: float
    p95_ps: float
    work_ps: int | None
    """What code of the stage, and its function, ran on all threads together; None: the trace does not show it."""
    busy_ps: int | None
    """Wall time in which code of the stage, or its function, ran on any thread; None as above."""
    held_ps: int
    """How long it holds threads, waiting for a thread of the pool or for another host included."""
    blocked_ps: int
    """Wall time in which the consumer of the pipeline waited and this stage was what it waited for."""
    element_ps: float | None
    """Work for one element of the pipeline; None: unknown."""
    element_held_ps: float | None
    """How long it holds threads for one element."""
    is_async: bool
    runs: int
    run_ps: int
    """Work of the user's function, on all threads."""
    runs_at_once: float | None
    """How many threads work on runs of it in a pool, on average over the time in which any run is under way."""
    python: str
    """`py_function`, `numpy_function` or `from_generator` if the function holds the interpreter lock."""
    ops: tuple[tuple[str, str, int, int], ...]
    """The ops of the function, the one with the most time first: name, type, count, picoseconds."""
    parallelism: int | None
    autotuned: bool
    deterministic: bool | None
    buffer_limit: int | None
    buffered: float | None
    batch_size: int | None
    cycle_length: int | None

    @property
    def is_random(self) -> bool:
        """Return whether its function has ops that give another result each time: by their types, or their names."""
        return self.name.startswith("Random") or any(map(_is_random, self.ops))

    @property
    def random_share(self) -> float:
        """Return which part of the time of its ops is of random ones, 0 to 1."""
        total_ps = sum(op[3] for op in self.ops)
        return sum(op[3] for op in self.ops if _is_random(op)) / total_ps if total_ps else 0.0


def _is_random(op: tuple[str, str, int, int]) -> bool:
    name, kind, _, _ = op
    return bool(_RANDOM_OPS.search(kind) or _RANDOM_NAMES.search(name))


class Segment(Struct, frozen=True):
    """What one thread (or `workers` like it) does for each element: the work of these stages adds up."""

    kind: SegmentKind
    """producer: the threads of an asynchronous stage; function: what such a stage runs in a pool."""
    owner: int
    """Index of the asynchronous stage; of the consumer, the outermost stage."""
    stages: tuple[int, ...]
    element_ps: float
    workers: int

    @property
    def limit_ps(self) -> float:
        """Return the least time between two elements of the pipeline that this segment allows."""
        return self.element_ps / self.workers


class Pipeline(Struct, frozen=True, kw_only=True):
    """One pipeline of one host. Latencies are those of its outermost stage, in picoseconds."""

    host: str
    name: str
    is_device: bool
    is_fetched: bool
    """The program asks it itself."""
    is_handed_on: bool
    """A device pipeline asks it in the program's place; then waiting is that for the device pipelines."""
    is_cut: bool
    """No call of its outermost stage lies in the capture."""
    stages: tuple[StageStats, ...]
    segments: tuple[Segment, ...]
    calls: int
    mean_ps: float
    p95_ps: float
    max_ps: int
    slow_calls: int
    call_start_ps: Int64s
    """When each call of the outermost stage starts."""
    waits: Intervals
    waited_ps: int
    """Wall time in which somebody waited for this pipeline."""
    unattributed_ps: int
    """Part of it for which no stage can be named, because the call of it is cut off by the capture's edge."""
    span_ps: int
    """From the first to the last event of the pipeline."""
    capture_ps: int
    """Duration of the capture; 0: unknown."""
    cpu_ps: int
    """How long its stages hold threads, all together."""
    cores: int | None
    pool_threads: int | None
    blocking: int | None
    """Index of the stage that the consumer waits for most; None if it never waits long."""
    limiting: int | None
    """Index of the stage that limits how fast elements can come."""
    first_fetches: Intervals = EMPTY
    """The first call of each iterator that the program made in the capture, as at the start of an epoch."""
    making: Intervals = EMPTY
    """When the program waits while iterators are made inside of the pipeline, as at the start of an epoch."""
    first_work_share: float = 0.0
    """In which part of the waiting for them a stage works, 0 to 1: a buffer fills then, else the iterator is made."""
    epoch_bytes: int | None = None
    """Bytes of the elements that an iterator hands out from its first to its last one; None: no such iterator."""
    threads_at_work: float | None = None
    """How many threads of the host work while anyone waits for it, on average; None: the trace does not show it."""
    threads_computing: float | None = None
    """How many of them certainly need a core: not in Python, and not reading."""

    @property
    def first_making_share(self) -> float:
        """Return in which part of the waiting for first elements iterators are made, 0 to 1."""
        return intersection(self.first_fetches, self.making).total() / max(self.first_fetches.total(), 1)

    @property
    def final_prefetch(self) -> int | None:
        """Return the prefetch (or another asynchronous stage) that decouples the pipeline from its consumer.

        Of a pipeline that is handed on to devices that is the outermost stage: a thread of its own asks it.
        """
        if self.is_handed_on:
            return 0
        for index, stage in enumerate(self.stages):
            if stage.is_async or stage.name.startswith("DataService"):
                return index
            if sum(other.parent == index for other in self.stages) != 1 or stage.name not in PASSING_ON:
                return None
        return None

    def next_batch_size(self, stage: int) -> int | None:
        """Return the batch size if what this stage makes is batched next, shuffled or not."""
        if self.stages[stage].name == "MapAndBatch":
            return self.stages[stage].batch_size
        if self.stages[stage].name not in MAPS:
            return None
        consumers = (self.stages[each] for each in self.consumers(stage)[1:])
        consumer = next((each for each in consumers if "Shuffle" not in each.name), None)
        return consumer.batch_size if consumer is not None and "Batch" in consumer.name else None

    def is_mostly_overhead(self, stage: int) -> bool:
        """Return whether steps wait for many short runs of a function much longer than these work."""
        each = self.stages[stage]
        is_short = bool(each.runs) and each.run_ps < SLOW_CALL_PS * each.runs
        return is_short and self.is_waited_for(stage) and each.blocked_ps > 2 * each.held_ps

    def is_waited_for(self, stage: int) -> bool:
        """Return whether enough of the waiting for which stages can be named is for this one."""
        return self.stages[stage].blocked_ps >= _OWN_WAITING * max(self.waited_ps - self.unattributed_ps, 1)

    @property
    def busy_share(self) -> float | None:
        """Return the share of the host's cores that it keeps busy while it is active (more than 1: threads wait)."""
        return self.work_ps / (self.cores * self.span_ps) if self.cores and self.span_ps else None

    @property
    def leaves_cores(self) -> bool:
        """Tell whether many cores have nothing to do while anyone waits for it, as far as the trace shows."""
        is_known = self.cores is not None and self.threads_at_work is not None
        return is_known and (self.threads_at_work or 0.0) < FEW_CORES * (self.cores or 0)

    @property
    def fills_cores(self) -> bool:
        """Tell whether all cores compute while anyone waits for it."""
        is_known = self.cores is not None and self.threads_computing is not None
        return is_known and (self.threads_computing or 0.0) >= ALL_CORES * (self.cores or 0)

    @property
    def work_ps(self) -> int:
        """Return the work of its stages on all threads together, as far as the trace shows it."""
        return sum(stage.work_ps or 0 for stage in self.stages)

    def workers(self, stage: int) -> int:
        """Return how many threads do the work of a stage."""
        return max((segment.workers for segment in self.segments if stage in segment.stages), default=1)

    def is_sequential(self, index: int) -> bool:
        """Tell whether a stage makes one element after the other, and nobody chose more at a time for it."""
        stage = self.stages[index]
        one_at_a_time = not stage.is_async or (stage.parallelism or 1) == 1
        return self.workers(index) == 1 and not stage.autotuned and one_at_a_time

    def inputs(self, stage: int) -> tuple[int, ...]:
        """Return the stages that a stage gets its elements from."""
        return tuple(index for index, each in enumerate(self.stages) if each.parent == stage)

    def below(self, stage: int) -> tuple[int, ...]:
        """Return the stages that a stage gets its elements from, and all that these get theirs from."""
        below = {stage}
        for index in range(stage + 1, len(self.stages)):  # consumers come first
            if self.stages[index].parent in below:
                below.add(index)
        return tuple(sorted(below - {stage}))

    @property
    def is_of_keras_arrays(self) -> bool:
        """Return whether Keras made it from arrays: batches of indices, zipped with the arrays themselves."""
        for index, stage in enumerate(self.stages):
            tops = self.inputs(index) if stage.name == "Zip" else ()
            made_of = {self.stages[top].name: {self.stages[each].name for each in self.below(top)} for top in tops}
            if "FlatMap" in made_of and any("Repeat" in top and made_of[top] == {"FromTensor"} for top in made_of):
                return True
        return False

    @property
    def is_bare_generator(self) -> bool:
        """Return whether it only hands on what a Python generator yields, as pipelines that Keras makes do."""
        around = {*PASSING_ON, "Prefetch", "FlatMap", "FromTensor", "TensorSlice", "AutoShard", "Rebatch"}
        return {stage.name for stage in self.stages} - around == {"Generator"}

    def consumers(self, stage: int) -> tuple[int, ...]:
        """Return a stage, the one that asks it, and so on to the outermost."""
        chain = []
        while stage >= 0:
            chain.append(stage)
            stage = self.stages[stage].parent
        return tuple(chain)


def stage_name(pipeline: Pipeline, index: int | None) -> str | None:
    """Return the name of a stage by its index, None without one."""
    return pipeline.stages[index].name if index is not None else None


def whole_pipelines(pipelines: tuple[Pipeline, ...]) -> tuple[Pipeline, ...]:
    """Return the host pipelines of which calls are known: those that the program asks, if there are any."""
    whole = tuple(pipeline for pipeline in pipelines if not pipeline.is_device and not pipeline.is_cut)
    return tuple(pipeline for pipeline in whole if pipeline.is_fetched or pipeline.is_handed_on) or whole
