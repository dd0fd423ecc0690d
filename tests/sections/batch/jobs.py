"""Small jobs for the tests of the batch size: marked steps of 100 us, with what shows their input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builders import Event, Plane, event, iterator_call, line, plane, result_of
from builders import gpu as stream

from tfperf.sections.batch.analysis import HostBatch

STEPS = 10


def steps(count: int = STEPS, **stats: Any) -> list[Event]:
    """Marked steps, one after the other; `stats` are those of the markers."""
    return [event("train", 100 * n, 100, step_num=n, **stats) for n in range(count)]


def fetches(
    shapes: str = "", path: str = "Root", *, per_step: int = 1, id: int = 1, stage: int = 0, count: int = STEPS
) -> list[Event]:
    """Fetches in each step, of elements of these shapes; the stage at the end of the path makes batches of `stage`."""
    events = []
    for n in range(count):
        for fetch in range(per_step):
            start = 100 * n + 5 + 10 * fetch
            shown: dict[str, Any] = {"shapes": shapes} if shapes else {}
            got = event("IteratorGetNextOp::DoCompute", start, 8, id=1000 * id + start)
            events += [got, iterator_call("Root", start, 8, id, **shown)]
            names = path.split("::")
            for depth in range(1, len(names)):
                sized = {"batch_size": stage} if stage and depth == len(names) - 1 else {}
                call = iterator_call("::".join(names[: depth + 1]), start, 8, id + depth, id + depth - 1, **sized)
                events.append(call)
    return events


def allocations(*outputs: tuple[str, str], region: str = "output", allocator: str = "GPU_0_bfc") -> list[Event]:
    """In each step, memory for these ops and shapes."""
    same: dict[str, Any] = {"region_type": region, "allocator_name": allocator, "bytes_allocated": 100}
    return [
        event("MemoryAllocation", 100 * n + 30 + place, 0, tf_op=op, shape=shape, **same)
        for n in range(STEPS)
        for place, (op, shape) in enumerate(outputs)
    ]


def ops(*names: str) -> list[Event]:
    """In each step, these ops."""
    return [event(name, 100 * n + 30 + place, 1) for n in range(STEPS) for place, name in enumerate(names)]


def job(*events: list[Event]) -> Plane:
    """A host whose threads each have one of these lists of events."""
    return plane("/host:CPU", *(line(f"thread {number}", *some) for number, some in enumerate(events)))


def gpu(number: int = 0) -> Plane:
    return stream(*(event("gemm", 100 * n + 40, 20) for n in range(STEPS)), number=number)


def batch_of(tmp_path: Path, *planes: Plane) -> HostBatch:
    """What is concluded about a host."""
    batch: HostBatch = result_of(tmp_path, "batch", *planes)
    return batch
