"""Links from the work of a device to the call that launched it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from builders import event, host, line, plane, trace_of

from tfperf.trace.launch_links import launch_links


def test_work_is_linked_by_correlation_id(tmp_path: Path) -> None:
    """Rows 0 to 2 are calls of the host; 0 is no id, and of two calls with the same id the first counts."""
    calls = [event("launch", 0, 1, correlation_id=7), event("again", 2, 1, correlation_id=7), event("other", 4, 1)]
    kernels = [
        event("linked", 5, 1, correlation_id=7),
        event("unknown", 6, 1, correlation_id=8),
        event("without", 7, 1),
        event("zero", 8, 1, correlation_id=0),
    ]
    trace = trace_of(tmp_path, host(*calls), plane("/device:GPU:0", line("Stream #1", *kernels)))
    links = launch_links(trace, np.arange(3, 7))
    assert (links.device.tolist(), links.host.tolist()) == ([3], [0])
    assert links.of(np.array([3, 4, 5, 6])).tolist() == [0, -1, -1, -1]


def test_a_trace_without_ids_has_no_links(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("a", 0, 1)), plane("/device:GPU:0", line("Stream #1", event("k", 1, 1))))
    assert launch_links(trace, np.array([1])).of(np.array([1])).tolist() == [-1]
