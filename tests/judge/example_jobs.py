"""Small jobs whose figures can be read off their events."""

from __future__ import annotations

from pathlib import Path

from builders import Event, event, host, iterator_call, logdir_of, space

import tfperf


def analysis_of(tmp_path: Path, **hosts: bytes) -> tfperf.Analysis:
    """The hosts of one run, with all sections analyzed."""
    return tfperf.load(logdir_of(tmp_path, **hosts))


def input_job(wait_us: float = 30.0, *, steps: int = 5, step_us: float = 100.0) -> bytes:
    """Steps that wait for input, and compute for the rest of their time."""
    events: list[Event] = []
    for number in range(steps):
        start_us = step_us * number
        events += [
            event("train", start_us, step_us, step_num=number),
            event("IteratorGetNextOp::DoCompute", start_us, wait_us),
            event("MatMul:MatMul", start_us + wait_us, step_us - wait_us),
        ]
    return space(host(*events))


def pipeline_job(wait_us: float) -> bytes:
    """Six steps of 1 ms that wait for a map stage, which runs in the thread of the step."""
    events: list[Event] = []
    for number in range(6):
        start_us = 1000.0 * number
        events += [
            event("train", start_us, 1000, step_num=number),
            event("IteratorGetNextOp::DoCompute", start_us, wait_us, id=number),
            iterator_call("Root", start_us, wait_us, 1),
            iterator_call("Root::Map", start_us, wait_us - 1, 2, 1),
            event("MatMul:MatMul", start_us + wait_us, 1000 - wait_us),
        ]
    return space(host(*events))


def bare_job(*step_us: float) -> bytes:
    """Steps with these durations, and nothing in them."""
    starts_us = [sum(step_us[:number]) for number in range(len(step_us))]
    steps = zip(starts_us, step_us, strict=True)
    return space(
        host(*(event("train", start, duration, step_num=number) for number, (start, duration) in enumerate(steps)))
    )


def noisy_job(step_us: float, steps: int = 40) -> bytes:
    """Steps of about the same duration: 1 us longer and shorter in turn."""
    return bare_job(*(step_us + (-1) ** number for number in range(steps)))


def two_kinds_job(train_wait_us: float = 10.0, eval_wait_us: float = 70.0) -> bytes:
    """Five training steps, told by their gradient ops, then four eval steps; each takes 100 us and waits for input."""
    events: list[Event] = []
    for number in range(9):
        start_us, is_train = 100.0 * number, number < 5
        wait_us = train_wait_us if is_train else eval_wait_us
        events += [
            event("train" if is_train else "test", start_us, 100, step_num=number),
            event("IteratorGetNextOp::DoCompute", start_us, wait_us),
            event("gradient_tape/x:MatMul" if is_train else "x:MatMul", start_us + wait_us, 100 - wait_us),
        ]
    return space(host(*events))


def compiling_job(compiling_us: float, steps: int = 5) -> bytes:
    """Steps of 100 us that build a graph, and compute for the rest of their time."""
    events: list[Event] = []
    for number in range(steps):
        start_us = 100.0 * number
        events += [
            event("train", start_us, 100, step_num=number),
            event("tf.function-graph_building", start_us, compiling_us),
            event("MatMul:MatMul", start_us + compiling_us, 100 - compiling_us),
        ]
    return space(host(*events))


def job_without_steps() -> bytes:
    return space(host(event("idle", 0, 10)))
