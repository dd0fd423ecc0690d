"""Hosts of one job, as the tests of runs of many hosts need them."""

from __future__ import annotations

from builders import event, host, line, plane, space


def job(number: int, kernel_count: int = 0) -> bytes:
    """Steps with ops and kernels, some of which are those of other hosts; and so many kernels beside them."""
    stats = {"correlation_id": 1}
    steps = [event("train", 1000 * step, 900 + number, step_num=step) for step in range(3)]
    ops = [event(f"layer_{number % 3}/MatMul:MatMul", 1000 * step + 10, 100 + number) for step in range(3)]
    calls = [event("work", 1000 * step, 800, tf_function_call="traced-nonXla") for step in range(3)]
    kernels = [event(f"gemm_{number % 2}", 1000 * step + 500, 20 + number, **stats) for step in range(3)]
    kernels += [event(f"kernel_{at + number % 5}", 1000 + at, 1) for at in range(kernel_count)]
    frames = [event(f"$train.py:{number % 4} load", 5, 90)]
    device = plane("/device:GPU:0", line("Stream #1", *kernels))
    return space(host(*steps, *ops, *calls, *frames), device)
