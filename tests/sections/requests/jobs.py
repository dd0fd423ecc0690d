"""A server with requests that wait for a batch."""

from __future__ import annotations

from typing import Any

from builders import Plane, event, line, plane, u64

BATCH_ID = u64((1 << 63) + 7)
"""The profiler's ids of batches use all 64 bits."""


def server(request: str = "SessionRun", **stats: Any) -> Plane:
    """Two clients of 100 and 90 us, whose rows wait 55 and 45 us for a batch of 30 us with two rows of padding."""
    return plane(
        "/host:CPU",
        line("client 1", event(request, 0, 100, **stats), id=1),
        line("client 2", event(request, 10, 90, **stats), id=2),
        line("tf_Compute", *(event("ScheduleOutputTask", at, 1, size=1, _pt=4, _p=BATCH_ID) for at in (5, 15)), id=3),
        line(
            "batch_threads",
            event("ProcessBatch", 60, 30, _ct=4, _c=BATCH_ID, _r=2),
            event("ConcatInputTensors", 61, 1, batch_size_after_padding=4, padding_amount=2),
            id=4,
        ),
    )
