"""Pipelines small enough to work out by hand. Times are in microseconds, of a step of 100."""

from __future__ import annotations

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
    consumer = repeat(
        4, call("Root", work_us - wait_us, wait_us, 1), call("Root::Prefetch", work_us - wait_us, wait_us, 2, 1)
    )
    producer = repeat(
        4,
        event("PrefetchProduce", 0, work_us),
        call("Root::Prefetch::BatchV2", 0, work_us, 3, 2),
        call("Root::Prefetch::BatchV2::Map", 0, map_us, 4, 3),
    )
    return line("python", *consumer), line("reader", *producer)


def parallel_map(function_us: float, read_us: float, parallelism: int) -> list[Line]:
    """Root > ParallelMapV2 > TFRecord: the function runs in a pool, and the step waits all the time."""
    consumer = repeat(
        4,
        call("Root", 0, 100, 1, threadpool_size=2, cpu_budget=2),
        call("Root::ParallelMapV2", 0, 100, 2, 1, parallelism=parallelism),
    )
    runner, pool = [], []
    for turn in range(4):
        at = 100 * turn
        runner += [
            event("ParallelMapProduce", at, read_us + 1),
            call("Root::ParallelMapV2::TFRecord", at, read_us, 3, 2),
            event("InstantiatedCapturedFunction::RunAsync", at + read_us, 1, id=100 + turn),
        ]
        pool += [
            event("ExecutorState::Process", at + read_us, function_us, id=100 + turn),
            event("map/DecodeJpeg:DecodeJpeg", at + read_us, function_us - 1),
        ]
    return [line("python", *consumer), line("runner", *runner), line("pool", *pool)]


STEP, STEPS = 100.0, 5
"""Duration of a step, and how many there are, where a test has steps."""


def steps() -> list[Event]:
    return marks(STEPS, STEP)


def each_step(*events: Event) -> list[Event]:
    return repeat(STEPS, *events, every=STEP)


def inline_map(map_us: float, op: str = "DecodeJpeg", cores: int = 4) -> tuple[Line, Line]:
    """A map that works in the step's own thread, and whose function runs in a pool."""
    threads, pool = [], []
    for turn in range(STEPS):
        at = STEP * turn
        threads += [
            call("Root", at, map_us, 1, cpu_budget=cores),
            call("Root::Map", at, map_us, 2, 1),
            event("InstantiatedCapturedFunction::Run", at, map_us, id=70 + turn),
        ]
        pool += [event("ExecutorState::Process", at, map_us, id=70 + turn), event(f"{op}:{op}", at, map_us)]
    return line("python", *steps(), *threads), line("pool", *pool)


def behind_a_reader(read_us: float, wait_us: float) -> tuple[Line, Line]:
    """Root > Prefetch > TFRecord: the step waits at its end for what its reader does all the time."""
    start = STEP - wait_us
    python = line(
        "python",
        *steps(),
        *each_step(call("Root", start, wait_us, 1, cpu_budget=2), call("Root::Prefetch", start, wait_us, 2, 1)),
    )
    reader = line(
        "reader", *each_step(event("PrefetchProduce", 0, read_us), call("Root::Prefetch::TFRecord", 0, read_us, 3, 2))
    )
    return python, reader


def small_elements(batch: int, op_us: float) -> tuple[Line, ...]:
    """MapAndBatch whose function is one op for each element, every 20 us."""
    python = line(
        "python",
        *steps(),
        *each_step(
            call("Root", 0, 80, 1, cpu_budget=2, threadpool_size=2),
            call("Root::MapAndBatch", 0, 80, 2, 1, batch_size=batch, parallelism=1),
        ),
    )
    runner, pool = [], []
    for turn in range(batch * STEPS):
        at = STEP / batch * turn
        runner += [
            event("MapAndBatchProduce", at, 2),
            call("Root::MapAndBatch::Range", at, 1, 3, 2),
            event("InstantiatedCapturedFunction::RunAsync", at + 1, 1, id=70 + turn),
        ]
        pool += [event("ExecutorState::Process", at + 2, 18, id=70 + turn), event("Cast:Cast", at + 3, op_us)]
    return python, line("runner", *runner), line("pool", *pool)


def waiting_job(*path: str, busy_us: float = 60, op: str = "", **stats: Any) -> tuple[Line, Line]:
    """Steps of 100 us that first wait for the innermost of these stages, which works all the while.

    Its function runs ops of these types, one after the other; `NAME:TYPE` names one.
    """
    events: list[Event] = []
    pool: list[Event] = []
    for turn in range(STEPS):
        at = STEP * turn
        events += [event("train", at, STEP, step_num=turn), event("IteratorGetNextOp::DoCompute", at, busy_us)]
        for depth in range(len(path) + 1):
            name = "::".join(("Root", *path[:depth]))
            inner = stats if depth == len(path) else {}
            events.append(call(name, at, busy_us, depth + 1, depth or None, cpu_budget=2, threadpool_size=2, **inner))
        if op:
            events.append(event("InstantiatedCapturedFunction::Run", at, busy_us, id=70 + turn))
            pool.append(event("ExecutorState::Process", at, busy_us, id=70 + turn))
            names = [each if ":" in each else f"{each}:{each}" for each in op.split()]
            each_us = busy_us / len(names)
            pool += [event(name, at + each_us * number, each_us) for number, name in enumerate(names)]
    return line("python", *events), line("pool", *pool)


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
