"""Runs for tests: summaries made by hand (`run_of`), or taken from a small trace (`summarized`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from builders import Event, event, host, iterator_call, line, logdir_of, plane, space
from msgspec import structs

import tfperf
from tfperf.judge.run_summary import HostSummary, RankedEntry, Ranking, Rankings, RunSummary
from tfperf.judge.summarize import summarize_run
from tfperf.trace.steps.categories import CATEGORIES

STEADY = (10.0, 10.2, 9.8, 10.1, 9.9) * 10
"""Fifty steps of 10 ms on average."""


def host_of(times: Sequence[float] = STEADY, name: str = "a", **changes: Any) -> HostSummary:
    """A host whose steps are half input, half host compute."""
    half = sum(times) / len(times) / 2 if times else 0.0
    seen = {"input": half, "input_wait": half, "host_compute": half}
    summary = HostSummary(
        host=name,
        step_ms=tuple(times),
        step_count=len(times),
        category_ms={key: seen.get(key) for key in (*CATEGORIES, "input_wait", "host_to_device")} if times else {},
        input_percent=50.0,
        input_class="high",
        device_type="CPU",
        device_model="",
        device_count=0,
        half_precision_percent=None,
    )
    return structs.replace(summary, **changes)


def run_of(
    times: Sequence[float] = STEADY,
    label: str = "run",
    hosts: Sequence[HostSummary] = (),
    rankings: dict[str, Ranking] | None = None,
    **changes: Any,
) -> RunSummary:
    """A run of one host, or of the given ones; no rankings but the given ones."""
    all_hosts = tuple(hosts) or (host_of(times),)
    summary = RunSummary(
        label=label,
        run="2026",
        tfperf_version=tfperf.__version__,
        attribution="corrected",
        skip_first=0,
        step_kind="train",
        step_source="markers",
        step_confidence="high",
        batches_per_step=1,
        batch_size=8,
        hosts=all_hosts,
        host_count=len(all_hosts),
        rankings=Rankings(**(rankings or {})),
        allocators=(),
    )
    return structs.replace(summary, **changes)


def ranking_of(*entries: tuple[str, float | None] | RankedEntry, cut: int = 0) -> Ranking:
    """A ranking of entries (name, ms); `cut` more were omitted."""
    rows = tuple(entry if isinstance(entry, RankedEntry) else RankedEntry(entry[0], "", entry[1]) for entry in entries)
    return Ranking(rows, len(rows) + cut)


def job(wait: float = 30, step: float = 100, steps: int = 10) -> bytes:
    """Marked steps, in microseconds: wait for a tf.data pipeline (its Map works), then multiply for the rest."""
    events: list[Event] = []
    for n in range(steps):
        start = step * n
        events += [
            event("train", start, step, step_num=n),
            event("IteratorGetNextOp::DoCompute", start, wait, id=n),
            iterator_call("Root", start, wait, 1),
            iterator_call("Root::BatchV2", start, wait, 2, 1, batch_size=4),
            iterator_call("Root::BatchV2::Map", start, wait * 2 / 3, 3, 2),
            event("MatMul:MatMul", start + wait, step - wait),
        ]
    return space(host(*events))


def gpu_job(kernel: float = 40, steps: int = 10) -> bytes:
    """Marked steps of 100 us with a kernel and a copy to the device."""
    marked = [event("train", 100 * n, 100, step_num=n) for n in range(steps)]
    kernels = [event("gemm", 100 * n + 30, kernel, tf_op="d/MatMul:MatMul", correlation_id=n) for n in range(steps)]
    copies = [event("MemcpyH2D", 100 * n + 10, 10, correlation_id=100 + n) for n in range(steps)]
    return space(host(*marked), plane("/device:GPU:0", line("Stream #1", *kernels), line("Stream #2", *copies)))


def summarized(tmp_path: Path, label: str = "run", skip_first: int = 0, **hosts: bytes) -> RunSummary:
    """Write a trace, load it, and return its summary."""
    return summarize_run(tfperf.load(logdir_of(tmp_path / label, **hosts)), label, skip_first=skip_first)
