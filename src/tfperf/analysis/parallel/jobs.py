"""How many processes pay: by the cores, the memory and the bytes that there are to read."""

from __future__ import annotations

from collections.abc import Sequence

from tfperf.base.available_memory import available_bytes
from tfperf.trace.logdir import HostFile

START_S = 0.5
"""Until a worker process has started and imported what it needs."""
HOST_S, BYTE_S = 0.01, 1 / 80e6
"""What the analysis of a host takes: each host, and each byte of its file."""
WORKER_BYTES, BYTES_PER_BYTE = 150e6, 2.5
"""What a worker holds: at all times, and for each byte of the file that it reads."""
FORKED_BYTES = 1 << 24
"""Of a file, so that a copy of the process pays."""


def jobs_for(files: Sequence[HostFile], wanted: int | None = None) -> int:
    """Return how many worker processes to use; 1 means none: this process does the work itself.

    `wanted` is what the user asks for. Without it, there are as many as the process has cores, no more than the memory
    is enough for, and none where the work takes hardly longer than to start them.
    """
    if wanted is not None or len(files) < 2:
        return min(wanted or 1, len(files))
    sizes = [file.size_bytes or 0 for file in files]
    work_s = HOST_S * len(files) + BYTE_S * sum(sizes)
    if work_s < 2 * START_S:
        return 1
    fitting = available_bytes() / (WORKER_BYTES + BYTES_PER_BYTE * max(sizes))
    jobs = max(int(min(_cores(), fitting, len(files))), 1)
    return jobs if START_S + work_s / jobs < work_s else 1


def may_fork(file: HostFile, wanted: int | None) -> bool:
    """Return whether a copy of this process may do a part of the work on a single host: it is large enough."""
    size = file.size_bytes or 0
    return wanted != 1 and size >= FORKED_BYTES and _cores() > 1 and available_bytes() > BYTES_PER_BYTE * size


def _cores() -> int:
    from tfperf.capture.machine import job_facts

    return int(job_facts().cores or 1)
