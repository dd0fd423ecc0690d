"""What is known about a tf.data pipeline: its stages, and the sections that threads cut it into."""

from __future__ import annotations

from dataclasses import dataclass

from tfperf.arrays import Int64s
from tfperf.intervals import Intervals

SLOW_CALL_PS = 50_000_000
"""A call of the outermost stage that takes longer than 50 us is slow (TensorFlow's own threshold)."""


@dataclass(frozen=True)
class StageStats:
    """One stage over all its calls; times are picoseconds, `None` is not known."""

    name: str
    path: str
    parent: int
    """Index of the consumer among the stages of the pipeline, -1 for the outermost."""
    depth: int
    dataset: str
    """TensorFlow's name of it, such as `PrefetchDataset:2`; read for the outermost stage and for prefetches only."""
    recorded: bool
    calls: int
    total_ps: int
    mean_ps: float
    p95_ps: float
    work_ps: int
    """What the stage itself does: calls without what they wait for in other stages, its threads, and its function."""
    busy_ps: int
    """Wall time in which the stage or its function worked."""
    blocked_ps: int
    """Wall time in which the consumer of the pipeline waited and this stage was what it waited for."""
    element_ps: float | None
    """Work for one element of the pipeline."""
    is_async: bool
    runs: int
    run_ps: int
    """Work of the user's function, on all threads."""
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


@dataclass(frozen=True)
class Section:
    """What one thread (or `workers` like it) does for each element: the work of these stages adds up."""

    kind: str
    """`consumer`, `producer` (the threads of an asynchronous stage) or `function` (what it runs in a pool)."""
    owner: int
    stages: tuple[int, ...]
    element_ps: float
    workers: int

    @property
    def limit_ps(self) -> float:
        """Return the least time between two elements of the pipeline that this section allows."""
        return self.element_ps / self.workers


@dataclass(frozen=True)
class Pipeline:
    """One pipeline of one host. Latencies are those of its outermost stage, in picoseconds."""

    host: str
    name: str
    is_device: bool
    is_fetched: bool
    """The program asks it itself."""
    is_handed_on: bool
    """A device pipeline asks it in the program's place; then waiting is that for the device pipelines."""
    is_cut: bool
    stages: tuple[StageStats, ...]
    sections: tuple[Section, ...]
    calls: int
    mean_ps: float
    p95_ps: float
    max_ps: int
    slow_calls: int
    call_begins: Int64s
    """When each call of the outermost stage begins."""
    waits: Intervals
    """When somebody waited for this pipeline."""
    waited_ps: int
    """Wall time in which somebody waited for this pipeline."""
    untold_ps: int
    """Part of it for which no stage can be named, because the call of it is cut off by the capture's edge."""
    span_ps: int
    """From the first to the last event of the pipeline."""
    cpu_ps: int
    """Work of the pipeline on all threads together."""
    beside_ps: int
    """Part of it that was done while nobody waited for the pipeline: beside the step."""
    steadiness: float
    """Of the ops in its functions: their time if all were as fast as the fastest tenth of their name, as a share of the
    time that they took. What is missing to 1 they may have waited for a core."""
    cores: int | None
    pool_threads: int | None
    blocking: int | None
    """Index of the stage that the consumer waits for most; None if it never waits long."""
    limiting: int | None
    """Index of the stage that limits how fast elements can come."""

    @property
    def limiting_section(self) -> Section | None:
        """Return the section that allows the fewest elements."""
        return max(self.sections, key=lambda own: own.limit_ps, default=None)

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
            if sum(other.parent == index for other in self.stages) != 1 or not _passes_on(stage.name):
                return None
        return None


@dataclass(frozen=True)
class TfData:
    """The pipelines of a capture, those that were waited for longest first."""

    pipelines: tuple[Pipeline, ...]
    steadiness: float = 1.0
    """As that of a pipeline, for the ops of the program outside its pipelines."""

    @property
    def main(self) -> Pipeline | None:
        """Return the host pipeline that was waited for longest."""
        return next(iter(self.whole), None)

    @property
    def whole(self) -> tuple[Pipeline, ...]:
        """Return the host pipelines of which calls are known: those that the program asks, if there are any."""
        found = tuple(own for own in self.pipelines if not own.is_device and not own.is_cut)
        return tuple(own for own in found if own.is_fetched or own.is_handed_on) or found


def _passes_on(name: str) -> bool:
    """Tell whether a stage only hands elements on, or sets options."""
    return name in ("Root", "Model", "MaxIntraOpParallelism", "PrivateThreadPool", "Options", "FinalizeDataset",
                    "AssertCardinality", "ForeverRepeat", "FiniteRepeat")  # fmt: skip
