"""Runs for tests: made by hand (`run_of`), or taken from a small trace (`taken`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from builders import Event, event, host, iterator_call, line, logdir_of, plane, space

import tfperf
from tfperf.sections.steps.breakdown import CATEGORIES
from tfperf.compare.model import Entry, HostSnapshot, Part, Snapshot
from tfperf.compare.snapshot import take

STEADY = (10.0, 10.2, 9.8, 10.1, 9.9) * 10
"""Fifty steps of 10 ms on average."""


def host_of(times: Sequence[float] = STEADY, name: str = "a", **changes: Any) -> HostSnapshot:
    """A host whose steps are half input, half host compute."""
    mean = sum(times) / len(times) if times else 0.0
    known = {"input": mean / 2, "input_wait": mean / 2, "host_compute": mean / 2}
    category = {key: known.get(key) for key in (*CATEGORIES, "input_wait", "host_to_device")} if times else {}
    made = HostSnapshot(name, tuple(times), len(times), category, 50.0, "high", "CPU", "", 0, None)
    return replace(made, **changes)


def run_of(
    times: Sequence[float] = STEADY, label: str = "run", hosts: Sequence[HostSnapshot] = (), **changes: Any
) -> Snapshot:
    """A run of one host, or of the given ones."""
    all_hosts = tuple(hosts) or (host_of(times),)
    made = Snapshot(
        label, "2026", tfperf.__version__, "corrected", 0, "train", "markers", "high", 1, 8, all_hosts, len(all_hosts),
        {}, (),
    )  # fmt: skip
    return replace(made, **changes)


def part_of(*entries: tuple[str, float | None] | Entry, cut: int = 0) -> Part:
    """A part of entries (name, ms); `cut` more were left out."""
    rows = tuple(own if isinstance(own, Entry) else Entry(own[0], "", own[1]) for own in entries)
    return Part(rows, len(rows) + cut)


def job(wait: float = 30, step: float = 100, steps: int = 10) -> bytes:
    """Marked steps, in microseconds: wait for a tf.data pipeline (its Map works), then multiply for the rest."""
    events: list[Event] = []
    for n in range(steps):
        begin = step * n
        events += [
            event("train", begin, step, step_num=n),
            event("IteratorGetNextOp::DoCompute", begin, wait),
            iterator_call("Root", begin, wait, 1),
            iterator_call("Root::BatchV2", begin, wait, 2, 1, batch_size=4),
            iterator_call("Root::BatchV2::Map", begin, wait * 2 / 3, 3, 2),
            event("MatMul:MatMul", begin + wait, step - wait),
        ]
    return space(host(*events))


def gpu_job(kernel: float = 40, steps: int = 10) -> bytes:
    """Marked steps of 100 us with a kernel and a copy to the device."""
    marked = [event("train", 100 * n, 100, step_num=n) for n in range(steps)]
    kernels = [event("gemm", 100 * n + 30, kernel, tf_op="d/MatMul:MatMul", correlation_id=n) for n in range(steps)]
    copies = [event("MemcpyH2D", 100 * n + 10, 10, correlation_id=100 + n) for n in range(steps)]
    return space(host(*marked), plane("/device:GPU:0", line("Stream #1", *kernels), line("Stream #2", *copies)))


def taken(tmp_path: Path, label: str = "run", skip_first: int = 0, **hosts: bytes) -> Snapshot:
    """Write a trace, load it, and take what it came to."""
    return take(tfperf.load(logdir_of(tmp_path / label, **hosts)), label, skip_first=skip_first)
