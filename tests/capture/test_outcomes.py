"""The results of a capture and of a check, as lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tfperf.base.errors import CaptureError, Reason
from tfperf.capture.outcomes import Captured, Check

TRACE = Captured(worker="w:1", path=Path("/l/w.xplane.pb"), size_bytes=1_250_000, event_count=70_000)


@pytest.mark.parametrize(
    ("overhead", "words"),
    [(None, "(1.25 MB, 70,000 events)"), (0.4, "70,000 events, steps took no longer)"), (12.6, "took 13 % longer)")],
)
def test_a_trace_in_one_line(overhead: float | None, words: str) -> None:
    captured = replace(TRACE, overhead_percent=overhead)
    assert captured.describe().startswith("the trace is in /l/w.xplane.pb (")
    assert captured.describe().endswith(words)


def test_no_trace_in_one_line() -> None:
    assert Captured(worker="w:1", reason="idle", message="it sleeps").describe() == "nothing was captured: it sleeps"


@pytest.mark.parametrize(("reason", "status"), [("busy", "warn"), ("written_remotely", "warn"), ("died", "fail")])
def test_an_error_as_a_check(reason: Reason, status: str) -> None:
    check = Check.of_error("profiler", CaptureError(reason, "something is wrong; try this; then that"))
    assert (check.name, check.status, check.found) == ("profiler", status, "something is wrong")
    assert check.fix == "try this; then that"
