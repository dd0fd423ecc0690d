"""Data of a tf.data pipeline: its stages, and the segments between thread changes."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from tfperf.base.arrays import EMPTY, Int64s, Intervals, intersection

SLOW_CALL_PS = 50_000_000
"""A call of the outermost stage above 50 us is slow (TensorFlow's own threshold)."""
FEW_CORES, ALL_CORES = 0.4, 0.85
"""Shares of the host's cores: below the first, cores are idle; from the second, all are busy."""
_OWN_WAITING = 0.1
"""A stage needs at least this share of the waiting to be worth a change."""
_OPTIONS = ("Root", "Model", "MaxIntraOpParallelism", "PrivateThreadPool", "Options", "FinalizeDataset")
PASSING_ON = (*_OPTIONS, "AssertCardinality", "ForeverRepeat", "FiniteRepeat")
"""Stages that only pass elements on, or set options."""

MAPS = ("Map", "ParallelMap", "ParallelMapV2")
_RANDOM_OPS = re.compile(
    r"Random|Multinomial|RngReadAndSkip|RngSkip|Philox|SampleDistortedBoundingBox|TruncatedNormal|Stateful\w*(?:Uniform|Normal)"
)
_RANDOM_NAMES = re.compile(
    r"(?i)random|uniform|dropout|augment|jitter|shuffle|(?:^|[_/])(?:rand|noise|flip|mixup|cutout|cutmix)(?:[_/\d]|$)"
)
"""Parts of op names in random functions; cheap random ops themselves have no events."""

SegmentKind = Literal["consumer", "producer", "function"]


class StageStats(Struct, frozen=True, kw_only=True):
    """One stage over all its calls; times are picoseconds, None is unknown."""

    name: str
    path: str
    parent: int
    """Index of the consumer among the stages of the pipeline, -1 for the outermost."""
    depth: int
    dataset: str
    """TensorFlow's name, such as `PrefetchDataset:2`; read for the outermost stage and prefetches only."""
    calls: int
    total_ps: int
    mean_ps: float
    p95_ps: float
    work_ps: int | None
    """Work of the stage and its function, summed over threads; None if the trace does not show it."""
    busy_ps: int | None
    """Wall time with its code or function running on any thread; None as above."""
    held_ps: int
    """Time that it occupies threads, including waits for a pool thread or another host."""
    blocked_ps: int
    """Wall time in which the consumer of the pipeline waited for this stage."""
    element_ps: float | None
    """Work per element of the pipeline."""
    element_held_ps: float | None
    """Thread occupation per element."""
    is_async: bool
    runs: int
    run_ps: int
    """Work of the user's function, on all threads."""
    runs_at_once: float | None
    """Mean number of threads that execute its function in a pool while any run is active."""
    python: str
    """`py_function`, `numpy_function` or `from_generator` if the function holds the GIL."""
    ops: tuple[tuple[str, str, int, int], ...]
    """The ops of the function, the most time first: name, type, count, picoseconds."""
    parallelism: int | None
    autotuned: bool
    deterministic: bool | None
    buffer_limit: int | None
    buffered: float | None
    batch_size: int | None
    cycle_length: int | None

    @property
    def is_random(self) -> bool:
        """Return whether its function contains random ops, by their types or names."""
        return self.name.startswith("Random") or any(map(_is_random, self.ops))

    @property
    def random_share(self) -> float:
        """Return the share of random ops in the time of its ops, 0 to 1."""
        total_ps = sum(op[3] for op in self.ops)
        return sum(op[3] for op in self.ops if _is_random(op)) / total_ps if total_ps else 0.0


def _is_random(op: tuple[str, str, int, int]) -> bool:
    name, kind, _, _ = op
    return bool(_RANDOM_OPS.search(kind) or _RANDOM_NAMES.search(name))


class Segment(Struct, frozen=True):
    """Work of one thread (or `workers` equal ones) per element, summed over its stages."""

    kind: SegmentKind
    """producer: threads of an asynchronous stage; function: its function in a pool."""
    owner: int
    """Index of the asynchronous stage; for the consumer, of the outermost stage."""
    stages: tuple[int, ...]
    element_ps: float
    workers: int

    @property
    def limit_ps(self) -> float:
        """Return the minimum time between two elements of the pipeline that this segment allows."""
        return self.element_ps / self.workers


class Pipeline(Struct, frozen=True, kw_only=True):
    """One pipeline of one host. Latencies are those of its outermost stage, in picoseconds."""

    host: str
    name: str
    is_device: bool
    is_fetched: bool
    """The program itself fetches from it."""
    is_handed_on: bool
    """A device pipeline fetches from it; its waiting is then that for the device pipelines."""
    is_cut: bool
    """The capture contains no call of its outermost stage."""
    stages: tuple[StageStats, ...]
    segments: tuple[Segment, ...]
    calls: int
    mean_ps: float
    p95_ps: float
    max_ps: int
    slow_calls: int
    call_start_ps: Int64s
    """Start of each call of the outermost stage."""
    waits: Intervals
    waited_ps: int
    """Wall time waiting for this pipeline."""
    unattributed_ps: int
    """Part of it without a known stage, because the capture cuts off the call."""
    span_ps: int
    capture_ps: int
    """Duration of the capture; 0 if unknown."""
    cpu_ps: int
    """Time that its stages occupy threads, summed."""
    cores: int | None
    pool_threads: int | None
    blocking: int | None
    """Index of the blocking stage; None if waits are short."""
    limiting: int | None
    first_fetches: Intervals = EMPTY
    """The first call of each iterator that the program created in the capture, as at the start of an epoch."""
    making: Intervals = EMPTY
    """Waits for the creation of iterators inside the pipeline, as at the start of an epoch."""
    first_work_share: float = 0.0
    """Share of these waits with a stage working, 0 to 1: a buffer is filled then; else the iterator is created."""
    epoch_bytes: int | None = None
    """Bytes of all elements of one iterator; None without a complete iterator."""
    threads_at_work: float | None = None
    """Mean number of threads at work during waits for it; None if the trace does not show it."""
    threads_computing: float | None = None
    """Number of these that certainly need a core, because they neither run Python nor read."""

    @property
    def first_making_share(self) -> float:
        """Return the share of waiting for first elements with iterator creation, 0 to 1."""
        return intersection(self.first_fetches, self.making).total() / max(self.first_fetches.total(), 1)

    @property
    def final_prefetch(self) -> int | None:
        """Return the prefetch (or other asynchronous stage) that decouples the pipeline from its consumer.

        In a pipeline that feeds devices it is the outermost stage, because a separate thread fetches from it.
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
        """Return the batch size if the output of this stage is batched next, shuffled or not."""
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
        """Return whether enough of the attributable waiting is for this stage."""
        return self.stages[stage].blocked_ps >= _OWN_WAITING * max(self.waited_ps - self.unattributed_ps, 1)

    @property
    def busy_share(self) -> float | None:
        """Return its share of busy host cores while active; above 1, threads wait."""
        return self.work_ps / (self.cores * self.span_ps) if self.cores and self.span_ps else None

    @property
    def leaves_cores(self) -> bool:
        """Return whether many cores are idle during waits for it, as far as recorded."""
        is_known = self.cores is not None and self.threads_at_work is not None
        return is_known and (self.threads_at_work or 0.0) < FEW_CORES * (self.cores or 0)

    @property
    def fills_cores(self) -> bool:
        """Return whether all cores compute during waits for it."""
        is_known = self.cores is not None and self.threads_computing is not None
        return is_known and (self.threads_computing or 0.0) >= ALL_CORES * (self.cores or 0)

    @property
    def work_ps(self) -> int:
        """Return the work of its stages summed over threads, as far as recorded."""
        return sum(stage.work_ps or 0 for stage in self.stages)

    def workers(self, stage: int) -> int:
        """Return the number of threads that do the work of a stage."""
        return max((segment.workers for segment in self.segments if stage in segment.stages), default=1)

    def is_sequential(self, index: int) -> bool:
        """Return whether a stage produces its elements one at a time, without autotuning."""
        stage = self.stages[index]
        one_at_a_time = not stage.is_async or (stage.parallelism or 1) == 1
        return self.workers(index) == 1 and not stage.autotuned and one_at_a_time

    def inputs(self, stage: int) -> tuple[int, ...]:
        """Return the direct inputs of a stage."""
        return tuple(index for index, each in enumerate(self.stages) if each.parent == stage)

    def below(self, stage: int) -> tuple[int, ...]:
        """Return the direct and indirect inputs of a stage."""
        below = {stage}
        for index in range(stage + 1, len(self.stages)):  # consumers come first
            if self.stages[index].parent in below:
                below.add(index)
        return tuple(sorted(below - {stage}))

    @property
    def is_of_keras_arrays(self) -> bool:
        """Return whether Keras created it from arrays: batches of indices, zipped with the arrays."""
        for index, stage in enumerate(self.stages):
            tops = self.inputs(index) if stage.name == "Zip" else ()
            made_of = {self.stages[top].name: {self.stages[each].name for each in self.below(top)} for top in tops}
            if "FlatMap" in made_of and any("Repeat" in top and made_of[top] == {"FromTensor"} for top in made_of):
                return True
        return False

    @property
    def is_bare_generator(self) -> bool:
        """Return whether it only passes on the output of a Python generator, like pipelines that Keras creates."""
        around = {*PASSING_ON, "Prefetch", "FlatMap", "FromTensor", "TensorSlice", "AutoShard", "Rebatch"}
        return {stage.name for stage in self.stages} - around == {"Generator"}

    def consumers(self, stage: int) -> tuple[int, ...]:
        """Return a stage and its consumers up to the outermost."""
        chain = []
        while stage >= 0:
            chain.append(stage)
            stage = self.stages[stage].parent
        return tuple(chain)


def stage_name(pipeline: Pipeline, index: int | None) -> str | None:
    """Return the name of a stage by its index, None without one."""
    return pipeline.stages[index].name if index is not None else None


def whole_pipelines(pipelines: tuple[Pipeline, ...]) -> tuple[Pipeline, ...]:
    """Return the host pipelines with known calls: those that the program uses, if there are any."""
    whole = tuple(pipeline for pipeline in pipelines if not pipeline.is_device and not pipeline.is_cut)
    return tuple(pipeline for pipeline in whole if pipeline.is_fetched or pipeline.is_handed_on) or whole
