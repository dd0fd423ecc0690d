"""Calls in daemon threads."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from tfperf.capture.client import DaemonThreads


def test_results_and_errors_are_in_the_futures() -> None:
    with DaemonThreads(2, "test") as threads:
        futures = [threads.submit(divmod, 7, divisor) for divisor in (2, 0)]
    assert futures[0].result(20) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        futures[1].result(20)


def test_calls_run_side_by_side() -> None:
    barrier = threading.Barrier(3)
    with DaemonThreads(3, "test") as threads:
        futures = [threads.submit(barrier.wait, 20) for _ in range(3)]
    assert sorted(future.result(20) for future in futures) == [0, 1, 2]


def test_the_end_of_the_program_waits_for_none() -> None:
    script = (
        "import time; from tfperf.capture.client import DaemonThreads\n"
        "with DaemonThreads(1, 'test') as threads: threads.submit(time.sleep, 600)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
