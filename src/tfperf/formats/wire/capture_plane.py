"""The plane that tfperf's captures add to a trace, for facts that the profiler does not record.

Other programs find planes by name and ignore this one. Its stats are facts about the job. Its lines are a
`PythonRecord`: garbage collections, and the CPU time of threads per sampling interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, get_args, get_type_hints

from msgspec import Struct
from msgspec.structs import asdict

from tfperf.formats.wire.schema import message_class

CAPTURE_PLANE = "/tfperf:capture"
_FORMAT = 1
_LARGEST = 1 << 53
_LONGEST_TEXT = 200
_FROM_ZERO = {"task_index", "gc_count"}
"""Whole numbers that can be 0."""
PAUSES_LINE = "Garbage collection"
CPU_LINE = "CPU time of thread"

RECORD_STATS = ("thread", "generation", "collected", "place", "cpu_ns", "queued_ns")


class Pause(NamedTuple):
    """A garbage collection, which blocks Python. `start_ns` counts from 1970."""

    start_ns: int
    duration_ns: int
    thread: int
    """System thread id."""
    generation: int
    collected: int
    """Number of freed objects."""
    place: str
    """The running line of Python: `file.py:12 function`."""


class CpuSample(NamedTuple):
    """A thread's accumulated CPU use at `time_ns`, in nanoseconds since 1970."""

    time_ns: int
    cpu_ns: int
    queued_ns: int
    """Time in the run queue, waiting for a core; 0 if the system does not report it."""


class PythonRecord(Struct, frozen=True, kw_only=True):
    """Python's activity during a capture."""

    pauses: Sequence[Pause] = ()
    samples: Mapping[int, Sequence[CpuSample]] = {}
    """By system thread id; at least two per thread."""


_SECONDS_PER_EVENT, _SECONDS_PER_COSTLY_EVENT = 1e-6, 3e-6


def longest_recording_s(event_count: int, costly_count: int) -> float:
    """Return how long recording the events can take, in seconds: 1 us per event, 3 us per costly one.

    Kernels and Python calls are costly. A larger increase of the step time has another reason, such as a busy machine,
    or an input pipeline whose buffers the first steps emptied.
    """
    return (event_count - costly_count) * _SECONDS_PER_EVENT + costly_count * _SECONDS_PER_COSTLY_EVENT


class CaptureFacts(Struct, frozen=True, kw_only=True):
    """Facts from a capture that are not in the trace, each a stat of the plane; None: unknown, not written."""

    format: int = _FORMAT
    tfperf_version: str | None = None
    tensorflow_version: str | None = None
    keras_version: str | None = None
    python_version: str | None = None
    cpu_model: str | None = None
    cpu_count: int | None = None
    """Logical CPUs of the machine."""
    cpu_affinity: int | None = None
    """CPUs that the process may use."""
    cpu_quota: float | None = None
    """CPU quota of the process's cgroups, in CPUs; None without a limit."""
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """Memory limit of the process's cgroups; None without a limit."""
    gpu_driver_version: str | None = None
    cuda_version: str | None = None
    """The version that TensorFlow was built for."""
    batch_size: int | None = None
    """Examples per Keras batch, over all replicas and workers."""
    steps_per_execution: int | None = None
    """Batches per call of Keras's compiled function."""
    replicas: int | None = None
    """Synchronized model replicas on all workers."""
    local_replicas: int | None = None
    """Replicas in this process."""
    overhead_percent: float | None = None
    """Increase of the median step time by profiling."""
    usual_step_ms: float | None = None
    """Median step time before the capture."""
    busy_cores: float | None = None
    """Average cores in use by the process during the capture: CPU time / duration."""
    task_type: str | None = None
    """The process's job in TF_CONFIG (worker, chief, ps, ...)."""
    task_index: int | None = None
    """Index in that job, from 0; without TF_CONFIG, the rank in the cluster."""
    cluster_size: int | None = None
    cluster_id: str | None = None
    """A hash that is equal for the tasks of one cluster."""
    gc_count: int | None = None
    """Python garbage collections during the capture, except of generation 0 (the youngest objects)."""
    gc_ms: float | None = None
    """Total time of these collections."""
    start_time_us: int | None = None
    """Start of the capture in microseconds since 1970, by the process's clock."""

    @property
    def cores(self) -> float | None:
        """Return the cores that the process can use, by its affinity and its cgroup quota."""
        limits = (self.cpu_affinity or self.cpu_count, self.cpu_quota)
        return min((float(limit) for limit in limits if limit), default=None)

    @property
    def usable_memory_bytes(self) -> int | None:
        """Return the memory that the process can use."""
        return min((limit for limit in (self.memory_bytes, self.memory_limit_bytes) if limit), default=None)

    @staticmethod
    def of(stats: Mapping[str, object]) -> CaptureFacts:
        """Return the facts in these stats; impossible values are unknown."""
        known: dict[str, Any] = {name: _value(name, stats.get(name), kind) for name, kind in _kinds().items()}
        return CaptureFacts(**{name: value for name, value in known.items() if value is not None})

    def to_bytes(self, record: PythonRecord | None = None, start_ns: int | None = None) -> bytes:
        """Return bytes to append to a trace file, without the record if `start_ns`, the trace's origin, is None."""
        space: Any = message_class("XSpace")()
        plane = space.planes.add(name=CAPTURE_PLANE.encode())
        facts = {name: value for name, value in asdict(self).items() if value is not None}
        for number, (name, value) in enumerate(facts.items(), start=1):
            entry = plane.stat_metadata.add(key=number)
            entry.value.id, entry.value.name = number, name.encode()
            stat = plane.stats.add(metadata_id=number)
            if isinstance(value, str):
                stat.str_value = value[:_LONGEST_TEXT].encode("utf-8", "replace")
            elif isinstance(value, float):
                stat.double_value = value
            else:
                stat.int64_value = value
        if record is not None and start_ns is not None:
            _add_lines(plane, record, start_ns, len(facts))
        data: bytes = space.SerializeToString()
        return data


def _add_lines(plane: Any, record: PythonRecord, start_ns: int, stat_count: int) -> None:
    """Add a line of collections, and a line of CPU intervals per thread; stat ids continue after `stat_count`."""
    numbers = {name: number for number, name in enumerate(RECORD_STATS, start=stat_count + 1)}
    for name, number in numbers.items():
        entry = plane.stat_metadata.add(key=number)
        entry.value.id, entry.value.name = number, name.encode()
    names: dict[str, int] = {}

    def add(line: Any, name: str, time_ns: int, duration_ns: int, **stats: int | str) -> None:
        event = line.events.add(metadata_id=names.setdefault(name, len(names) + 1))
        event.offset_ps, event.duration_ps = (time_ns - start_ns) * 1000, duration_ns * 1000
        for stat, value in stats.items():
            if isinstance(value, str):
                event.stats.add(metadata_id=numbers[stat], str_value=value[:_LONGEST_TEXT].encode("utf-8", "replace"))
            else:
                event.stats.add(metadata_id=numbers[stat], int64_value=value)

    line = plane.lines.add(name=PAUSES_LINE.encode())
    for pause in record.pauses:
        name = f"garbage collection, generation {pause.generation}"
        facts = {"thread": pause.thread, "generation": pause.generation, "collected": pause.collected}
        add(line, name, pause.start_ns, pause.duration_ns, **facts, place=pause.place)
    for thread, samples in record.samples.items():
        line = plane.lines.add(id=thread, name=f"{CPU_LINE} {thread}".encode())
        for before, after in pairwise(samples):
            cpu_ns, queued_ns = after.cpu_ns - before.cpu_ns, after.queued_ns - before.queued_ns
            times = {"cpu_ns": max(cpu_ns, 0), "queued_ns": max(queued_ns, 0)}
            add(line, "CPU time", before.time_ns, after.time_ns - before.time_ns, **times)
    for name, number in names.items():
        entry = plane.event_metadata.add(key=number)
        entry.value.id, entry.value.name = number, name.encode()


@cache
def _kinds() -> dict[str, type]:
    return {
        name: next(kind for kind in (get_args(hint) or (hint,)) if kind is not type(None))
        for name, hint in get_type_hints(CaptureFacts).items()
    }


def _value(name: str, value: object, kind: type) -> int | float | str | None:
    """Return a stat if it has the type of its field and is possible, else None."""
    if kind is str:
        return value[:_LONGEST_TEXT] if isinstance(value, str) and value else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    if kind is int:
        least = 0 if name in _FROM_ZERO else 1
        return value if isinstance(value, int) and least <= value <= _LARGEST else None
    return float(value) if 0 <= value <= _LARGEST else None
