"""Why a trace cannot show a category: what is missing in it, and what to try."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import STEPS_LINE, Plane, event, host, host_of, line, plane, trace_of

from tfperf.trace.steps.breakdown import NO_DEVICE, why_unknown

MARKS = [event("train", 100 * number, 100, step_num=number) for number in range(4)]
GPU = plane("/device:GPU:0", line("Stream #1(Compute)", *(event("gemm", 100 * n, 10) for n in range(4))))
TPU = plane("/device:TPU:0", line("Steps", *(event(str(n), 100 * n, 100) for n in range(4)), id=STEPS_LINE))


@pytest.mark.parametrize(
    ("planes", "category", "reason"),
    [
        ((host(*MARKS),), "kernel_launch", NO_DEVICE),
        ((host(*MARKS),), "host_to_device", NO_DEVICE),
        ((host(*MARKS),), "input", "the trace does not show where input comes from"),
        ((host(*MARKS), GPU), "host_to_device", "the trace does not show where input comes from"),
        ((TPU,), "compilation", "the steps are those of a TPU core"),
    ],
)
def test_the_reason_is_what_is_missing(tmp_path: Path, planes: tuple[Plane, ...], category: str, reason: str) -> None:
    breakdown = host_of(trace_of(tmp_path, *planes), "steps")["steps"]
    assert category in breakdown.unknown
    assert why_unknown(breakdown, category).startswith(reason)
