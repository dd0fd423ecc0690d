"""How many cores a job can use: as its capture states, else as tf.data counts them."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, host, iterator_call, plane, trace_of

from tfperf.formats.wire.capture_plane import CAPTURE_PLANE
from tfperf.trace.host.cores import usable_cores, whole_cores

COUNTED = host(iterator_call("Root", 0, 10, 1, cpu_budget=8))


def test_nothing_tells(tmp_path: Path) -> None:
    assert usable_cores(trace_of(tmp_path, host(event("A:A", 0, 5)))) is None


def test_tf_data_counts_them(tmp_path: Path) -> None:
    assert usable_cores(trace_of(tmp_path, COUNTED)) == 8.0


def test_a_capture_knows_the_quota_too(tmp_path: Path) -> None:
    stated = plane(CAPTURE_PLANE, stats={"cpu_affinity": 8, "cpu_quota": 1.5})
    assert usable_cores(trace_of(tmp_path, COUNTED, stated)) == 1.5


@pytest.mark.parametrize(("cores", "whole"), [(0.5, 1), (1.4, 1), (2.0, 2), (3.6, 4)])
def test_threads_are_counted_by_whole_cores(cores: float, whole: int) -> None:
    assert whole_cores(cores) == whole
