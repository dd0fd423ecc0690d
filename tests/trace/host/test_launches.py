from __future__ import annotations

from pathlib import Path

import numpy as np
from builders import event, host, line, plane, trace_of, u64

from tfperf.trace.host.launches import launch_links


def test_work_is_linked_by_correlation_id(tmp_path: Path) -> None:
    """Rows 0 to 3 are on the host: two calls of id 7, one of id 9, and one without an id; 0 is no id."""
    ids = {"once": 7, "again": 7, "graph": 9}
    calls = [event(name, start, 1, correlation_id=id) for start, (name, id) in enumerate(ids.items())]
    kernels = [
        event("of two calls", 5, 1, correlation_id=7),
        event("linked", 6, 1, correlation_id=9),
        event("unknown", 7, 1, correlation_id=8),
        event("without", 8, 1),
        event("zero", 9, 1, correlation_id=0),
        event("of the same call", 10, 1, correlation_id=9),
    ]
    gpu = plane("/device:GPU:0", line("Stream #1", *kernels))
    trace = trace_of(tmp_path, host(*calls, event("other", 4, 1, correlation_id=0)), gpu)
    links = launch_links(trace, np.arange(4, 10))
    assert (links.device.tolist(), links.host.tolist()) == ([5, 9], [2, 2])
    assert links.of(np.arange(4, 10)).tolist() == [-1, 2, -1, -1, -1, 2]


def test_ids_may_have_64_bits(tmp_path: Path) -> None:
    """An id from 2^63 on is negative in the columns, and no less an id."""
    call, kernel = (event(name, 0, 1, correlation_id=u64((1 << 64) - 2)) for name in ("launch", "kernel"))
    trace = trace_of(tmp_path, host(call), plane("/device:GPU:0", line("Stream #1", kernel)))
    assert launch_links(trace, np.array([1])).of(np.array([1])).tolist() == [0]


def test_a_trace_without_ids_has_no_links(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("a", 0, 1)), plane("/device:GPU:0", line("Stream #1", event("k", 1, 1))))
    assert launch_links(trace, np.array([1])).of(np.array([1])).tolist() == [-1]
