"""Small jobs whose figures can be read off their events."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

from builders import STEPS_LINE, Event, Plane, event, host, line, logdir_of, plane, space

import tfperf
from tfperf.judge.check import check
from tfperf.judge.config import CheckConfig
from tfperf.judge.grammar import read_limit
from tfperf.judge.limits import named_limit
from tfperf.judge.measure import JudgedHost, judged_hosts
from tfperf.judge.outcome import Judged, Outcome

OP, FETCH = "MatMul:MatMul", "IteratorGetNextOp::DoCompute"


def analysis_of(tmp_path: Path, **hosts: bytes) -> tfperf.Analysis:
    """The hosts of one run, with all sections analyzed."""
    return tfperf.load(logdir_of(tmp_path, **hosts))


def outcome_of(analysis: tfperf.Analysis, *limits: str | tuple[str, str], **settings: Any) -> Outcome:
    """What becomes of limits, each as text or as the name of an option and its value."""
    read = tuple(read_limit(limit) if isinstance(limit, str) else named_limit(*limit) for limit in limits)
    return check(analysis, CheckConfig(limits=read, **settings))


def judged_by(analysis: tfperf.Analysis, *limit: str, **settings: Any) -> Judged:
    """What becomes of one limit: its text, or the name of an option and its value; without, of the baseline."""
    limits = [limit] if len(limit) == 2 else limit
    (judged,) = outcome_of(analysis, *limits, **settings).judged
    return judged


def only_host(folder: Path, data: bytes, *, skip_first: int = 0, **options: Any) -> JudgedHost:
    """The only host of a run, as the gate sees it."""
    analysis = tfperf.load(logdir_of(folder, a=data), **options)
    (judged,) = judged_hosts(analysis, stat="mean", skip_first=skip_first, min_steps=3)
    return judged


def steps(
    *parts: tuple[str, float], count: int = 5, start: float = 0.0, length: float = 100.0, kind: str = "train"
) -> list[Event]:
    """Marked steps, each with events of these names and durations (us) one after the other."""
    events = []
    for number in range(count):
        begin = start + length * number
        events.append(event(kind, begin, length, step_num=number + round(start / length)))
        for name, duration in parts:
            events.append(event(name, begin, duration))
            begin += duration
    return events


def allocation(at_us: float, in_use: int, allocator: str, **more: Any) -> Event:
    stats = {
        "allocator_name": allocator,
        "bytes_reserved": 0,
        "bytes_allocated": in_use,
        "bytes_available": 1 << 30,
        "peak_bytes_in_use": in_use,
        "requested_bytes": 8,
        "allocation_bytes": 8,
        "addr": 64,
        **more,
    }
    return event("MemoryAllocation", at_us, 0, **stats)


def input_job(wait_us: float = 30.0, *, count: int = 5, step_us: float = 100.0) -> bytes:
    """Steps that wait for input, and compute for the rest of their time."""
    return space(host(*steps((FETCH, wait_us), (OP, step_us - wait_us), count=count, length=step_us)))


def half_fetched_job() -> bytes:
    """Ten marked steps of 100 us; the first five wait 30 us for input, the others show none."""
    return space(host(*steps((FETCH, 30)), *steps(start=500)))


def bare_job(*step_us: float) -> bytes:
    """Steps with these durations, and nothing in them."""
    ends_us = accumulate(step_us)
    marks = enumerate(zip(ends_us, step_us, strict=True))
    return space(host(*(event("train", end - length, length, step_num=number) for number, (end, length) in marks)))


def noisy_job(step_us: float, steps: int = 40) -> bytes:
    """Steps of about the same duration: 1 us longer and shorter in turn."""
    return bare_job(*(step_us + (-1) ** number for number in range(steps)))


def two_kinds_job(train_wait_us: float = 10.0, eval_wait_us: float = 70.0) -> bytes:
    """Five training steps, known by their gradient ops, then four evaluation steps; each waits for input."""
    train = steps((FETCH, train_wait_us), ("gradient_tape/x:MatMul", 100 - train_wait_us))
    evaluation = steps((FETCH, eval_wait_us), ("x:MatMul", 100 - eval_wait_us), count=4, start=500, kind="test")
    return space(host(*train, *evaluation))


def compiling_job(compiling_us: float, count: int = 5) -> bytes:
    """Steps of 100 us that build a graph, and compute for the rest of their time."""
    return space(host(*steps(("tf.function-graph_building", compiling_us), (OP, 100 - compiling_us), count=count)))


def job_without_steps() -> bytes:
    return space(host(event("idle", 0, 10)))


def device_alone() -> Plane:
    """Five runs of a module on a GPU, with a kernel and a copy in each, and no host."""
    modules = line("XLA Modules", *(event("jit_f", 100 * n, 100) for n in range(5)), id=STEPS_LINE + 2)
    kernels = line("Stream #1", *(event("gemm", 100 * n, 60, correlation_id=n + 1) for n in range(5)), id=1)
    copies = line("Stream #2", *(event("MemcpyH2D", 100 * n + 60, 5, correlation_id=n + 9) for n in range(5)), id=2)
    return plane("/device:GPU:0", modules, kernels, copies)
