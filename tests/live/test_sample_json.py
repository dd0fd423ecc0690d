"""Samples as lines of JSON: the keys stay, unknown is null, and nothing acts on a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from live.views import EVIL, measured, sample
from msgspec.structs import replace

from tfperf.capture.address import Address
from tfperf.live.sample import FirstCause, MemoryUse, RankedTime, Sample
from tfperf.live.top import KEYS, sample_line


def document(of: Sample) -> dict[str, Any]:
    line = sample_line(Address("w0", 6009, task="worker-0"), of)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    values: dict[str, Any] = json.loads(line)
    return values


def test_a_sample() -> None:
    values = document(sample(measured(), slowdown_percent=3.0))
    top = values.pop("top")
    assert values == {
        "format": 1,
        "time": "2027-01-15T07:59:58.000+00:00",
        "worker": "w0:6009",
        "task": "worker-0",
        "sample": 1,
        "ok": True,
        "reason": None,
        "message": None,
        "duration_s": 0.5,
        "answer_s": 0.6,
        "trace_bytes": 123_000,
        "profiled_percent": 10.0,
        "slowdown_percent": 3.0,
        "step_time_ms": 20.0,
        "step_time_median_ms": 19.0,
        "step_time_max_ms": 31.0,
        "steps": 24,
        "steps_per_second": 50.0,
        "examples_per_second": 1600.0,
        "batch_size": 32,
        "input_percent": 66.0,
        "input_cost_low_percent": 66.0,
        "input_cost_high_percent": 78.4,
        "categories": {"input": 66.0, "host_compute": 24.0, "all_others": 10.0, "device_compute": None},
        "device_busy_percent": 12.5,
        "memory_allocator": "GPU_0_bfc",
        "memory_peak_bytes": 3_000_000_000,
        "memory_capacity_bytes": 4_000_000_000,
        "cause": "input_wait",
        "cause_gain_percent": 60.0,
        "headline": "Waiting for tf.data takes 66.0% of the step: the stage waited for is Map.",
        "ranked": "host ops",
    }
    assert len(top) == 5
    assert top[0] == {"name": "layer_1/MatMul", "type": "MatMul", "percent": 50.0, "total_ms": 9.0}


@pytest.mark.parametrize(
    "of",
    [sample(None, reason="not_listening", message="nothing there"), sample(measured(step_ms=None, why="no steps"))],
)
def test_every_object_has_every_key_in_the_same_order(of: Sample) -> None:
    values = document(of)
    assert list(values) == list(KEYS)
    assert values["step_time_ms"] is None, "never 0"


def test_a_failure_has_a_reason_and_no_figure() -> None:
    values = document(sample(None, reason="not_listening", message="nothing there"))
    assert (values["ok"], values["reason"], values["message"]) == (False, "not_listening", "nothing there")
    known = {"format", "time", "worker", "task", "sample", "ok", "reason", "message", "duration_s", "profiled_percent"}
    assert {key for key, value in values.items() if value is not None} == known


def test_numbers_that_json_does_not_have_are_null() -> None:
    values = document(sample(measured(step_ms=float("nan"), device_busy_percent=float("inf"))))
    assert values["step_time_ms"] is None
    assert values["device_busy_percent"] is None


def test_hostile_names_come_through_and_nothing_acts_on_them() -> None:
    evil = replace(
        measured(),
        headline=EVIL,
        causes=(FirstCause(EVIL, EVIL, EVIL, EVIL, 1.0),),
        memory=MemoryUse(EVIL, 1, None),
        ranked=(RankedTime(EVIL, EVIL, 1.0, 1.0),),
    )
    line = sample_line(Address("w0", 6009), sample(evil, message=EVIL))
    assert line[:-1].isprintable()
    assert line.isascii()
    assert "##[" not in line
    assert json.loads(line)["top"][0]["name"] == EVIL.replace("\udc80", "\ufffd")


def test_the_page_lists_every_key(root: Path, compare_gold: Callable[[Path, str], None]) -> None:
    page = root / "docs" / "top.md"
    rows = "".join(f"| `{key}` | {meaning} |\n" for key, meaning in KEYS.items())
    before, start, rest = page.read_text(encoding="utf-8").partition("<!-- sample keys -->\n")
    _, end, after = rest.partition("<!-- end -->")
    compare_gold(page, f"{before}{start}| key | meaning |\n|---|---|\n{rows}{end}{after}")
