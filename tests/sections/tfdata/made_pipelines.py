"""Pipelines small enough to work out by hand. Times are in microseconds, of a step of 100."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from builders import Event, Line, event, gpu, known, line, marks, plane, repeat, result_of
from builders import iterator_call as call

from tfperf.formats.wire.capture_plane import CAPTURE_PLANE
from tfperf.sections.tfdata.analysis import TfData
from tfperf.sections.tfdata.pipeline import Pipeline, StageStats

US = 1_000_000
"""Picoseconds."""


def analyzed(tmp_path: Path, *lines: Line, has_device: bool = False, **stated: float) -> TfData:
    """What is found out about a host with these threads, whose capture states these facts (`cpu_affinity`, ...)."""
    planes = [plane("/host:CPU", *lines)]
    # A short kernel at the very end is enough to have a device, and changes nothing else.
    planes += [gpu(event("gemm", 499, 1))] if has_device else []
    planes += [plane(CAPTURE_PLANE, stats=stated)] if stated else []
    result: TfData = result_of(tmp_path, "tfdata", *planes)
    return result


def main_of(tmp_path: Path, *lines: Line, **stated: float) -> Pipeline:
    return known(analyzed(tmp_path, *lines, has_device=False, **stated).main)


def stage_of(pipeline: Pipeline, name: str) -> StageStats:
    (stage,) = [stage for stage in pipeline.stages if stage.name == name]
    return stage


def name_of(pipeline: Pipeline, index: int | None) -> str | None:
    return None if index is None else pipeline.stages[index].name


def waited(pipeline: Pipeline) -> dict[str, float]:
    """Microseconds that the consumer waited for each stage."""
    return {stage.name: stage.blocked_ps / US for stage in pipeline.stages if stage.blocked_ps}


def in_one_thread(map_us: float, batch_us: float, read_us: float) -> list[Event]:
    """Root > BatchV2 > Map > TFRecord, each with this time of its own, and Root with 1."""
    whole = map_us + batch_us + read_us
    return repeat(
        4,
        call("Root", 0, whole + 1, 1),
        call("Root::BatchV2", 0.5, whole, 2, 1),
        call("Root::BatchV2::Map", 0.5 + batch_us, map_us + read_us, 3, 2),
        call("Root::BatchV2::Map::TFRecord", 0.5 + batch_us + map_us, read_us, 4, 3),
    )


def behind_a_prefetch(wait_us: float, batch_us: float, map_us: float) -> tuple[Line, Line]:
    """The consumer waits for the last `wait_us` of what its producer does: Root > Prefetch > BatchV2 > Map."""
    work_us = batch_us + map_us
    start = work_us - wait_us
    asked = call("Root", start, wait_us, 1), call("Root::Prefetch", start, wait_us, 2, 1)
    work = event("PrefetchProduce", 0, work_us), call("Root::Prefetch::BatchV2", 0, work_us, 3, 2)
    mapping = call("Root::Prefetch::BatchV2::Map", 0, map_us, 4, 3)
    return line("python", *repeat(4, *asked)), line("reader", *repeat(4, *work, mapping))


def in_a_pool(
    *thread: Event,
    starts: tuple[float, float],
    runs: tuple[float, float],
    ops: Sequence[Event] = (),
    count: int = 4,
    every: float = 100,
) -> tuple[Line, Line]:
    """A thread that does this each time, and starts a function, which runs in a pool: from when, and for how long."""
    turns = [(every * turn, 70 + turn) for turn in range(count)]
    runner = [event("InstantiatedCapturedFunction::RunAsync", at + starts[0], starts[1], id=run) for at, run in turns]
    pool = [event("ExecutorState::Process", at + runs[0], runs[1], id=run) for at, run in turns]
    pool += repeat(count, *ops, every=every)
    return line("runner", *repeat(count, *thread, every=every), *runner), line("pool", *pool)


def parallel_map(function_us: float, read_us: float, parallelism: int) -> list[Line]:
    """Root > ParallelMapV2 > TFRecord: the function runs in a pool, and the step waits all the time."""
    consumer = repeat(
        4,
        call("Root", 0, 100, 1, threadpool_size=2, cpu_budget=2),
        call("Root::ParallelMapV2", 0, 100, 2, 1, parallelism=parallelism),
    )
    reading = event("ParallelMapProduce", 0, read_us + 1), call("Root::ParallelMapV2::TFRecord", 0, read_us, 3, 2)
    op = event("map/DecodeJpeg:DecodeJpeg", read_us, function_us - 1)
    return [line("python", *consumer), *in_a_pool(*reading, starts=(read_us, 1), runs=(read_us, function_us), ops=[op])]


STEP, STEPS = 100.0, 5
"""Duration of a step, and how many there are, where a test has steps."""


def steps() -> list[Event]:
    return marks(STEPS, STEP)


def each_step(*events: Event) -> list[Event]:
    return repeat(STEPS, *events, every=STEP)


def behind_a_reader(read_us: float, wait_us: float) -> tuple[Line, Line]:
    """Root > Prefetch > TFRecord: the step waits at its end for what its reader does all the time."""
    start = STEP - wait_us
    asked = call("Root", start, wait_us, 1, cpu_budget=2), call("Root::Prefetch", start, wait_us, 2, 1)
    reading = event("PrefetchProduce", 0, read_us), call("Root::Prefetch::TFRecord", 0, read_us, 3, 2)
    return line("python", *steps(), *each_step(*asked)), line("reader", *each_step(*reading))


def small_elements(batch: int, op_us: float) -> tuple[Line, ...]:
    """MapAndBatch whose function is one op for each element, every 20 us."""
    asked = each_step(
        call("Root", 0, 80, 1, cpu_budget=2, threadpool_size=2),
        call("Root::MapAndBatch", 0, 80, 2, 1, batch_size=batch, parallelism=1),
    )
    reading = event("MapAndBatchProduce", 0, 2), call("Root::MapAndBatch::Range", 0, 1, 3, 2)
    op, every = event("Cast:Cast", 3, op_us), STEP / batch
    threads = in_a_pool(*reading, starts=(1, 1), runs=(2, 18), ops=[op], count=batch * STEPS, every=every)
    return line("python", *steps(), *asked), *threads


def waiting_job(*path: str, busy_us: float = 60, op: str = "", cores: int = 2, **stats: Any) -> tuple[Line, Line]:
    """Steps of 100 us that first wait for the innermost of these stages, which works all the while.

    Its function runs ops of these types, one after the other; `NAME:TYPE` names one.
    """
    names, pool = ["Root", *path], list[Event]()
    events = [event("IteratorGetNextOp::DoCompute", 0, busy_us)]
    for depth in range(len(names)):
        known_stats = {"cpu_budget": cores, "threadpool_size": 2, **(stats if depth == len(path) else {})}
        events.append(call("::".join(names[: depth + 1]), 0, busy_us, depth + 1, depth or None, **known_stats))
    python = [*steps(), *each_step(*events)]
    if op:
        runs = [(STEP * turn, busy_us, 70 + turn) for turn in range(STEPS)]
        python += [event("InstantiatedCapturedFunction::Run", at, us, id=run) for at, us, run in runs]
        ops = [each if ":" in each else f"{each}:{each}" for each in op.split()]
        each_us = busy_us / len(ops)
        pool += [event("ExecutorState::Process", at, us, id=run) for at, us, run in runs]
        pool += each_step(*(event(name, each_us * number, each_us) for number, name in enumerate(ops)))
    return line("python", *python), line("pool", *pool)


def keras_arrays() -> list[Event]:
    """Calls of the pipeline that Keras makes from arrays: batches of indices, zipped with the arrays."""
    root = "Root::ParallelMapV2::Zip"
    calls = [call("Root", 1, 6, 1), call("Root::ParallelMapV2", 2, 5, 2, 1), call(root, 2, 5, 3, 2)]
    calls += [call(f"{root}[0]::FlatMap", 2, 1, 4, 3), call(f"{root}[0]::FlatMap::Range", 2, 1, 5, 4)]
    calls += [call(f"{root}[1]::ForeverRepeat", 4, 1, 6, 3), call(f"{root}[1]::ForeverRepeat::FromTensor", 4, 1, 7, 6)]
    return calls


def inline_map(map_us: float, op: str = "DecodeJpeg", cores: int = 4) -> tuple[Line, Line]:
    """A map that works in the step's own thread, and whose function runs in a pool."""
    return waiting_job("Map", busy_us=map_us, op=op, cores=cores)


def training_and_evaluation(*, eval_stage: str, eval_root: int) -> Line:
    """Steps of 100 us: in training they wait 10 us for a map, in evaluation 60 us for this stage of this iterator.

    Without a stage, the program fetches in evaluation, but no call of a pipeline is recorded.
    """
    events: list[Event] = []
    for turn in range(2 * STEPS):
        at, is_train = STEP * turn, turn < STEPS
        kind, wait, root, stage = ("train", 10, 1, "Map") if is_train else ("eval", 60, eval_root, eval_stage)
        events += [event(kind, at, STEP, step_num=turn), event("IteratorGetNextOp::DoCompute", at, wait)]
        if stage:
            events.append(call("Root", at, wait, root, cpu_budget=2))
            events.append(call(f"Root::{stage}", at, wait, root + 1, root))
    return line("python", *events)
