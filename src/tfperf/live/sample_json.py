"""Samples as JSON, one object on a line, for log collectors: docs/top.md lists the keys, which stay as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from tfperf.capture.address import Address
from tfperf.live.sample import Measured, Sample
from tfperf.report.render.values import encodable, plain

FORMAT = 1
_MOST_RANKED = 5

KEYS: Mapping[str, str] = {
    "format": "version of this list: 1. New keys may come without a new number",
    "time": "when the worker was asked: UTC, ISO 8601",
    "worker": "address of the profiler server",
    "task": "what the cluster calls the worker, where `--cluster-spec` says it",
    "sample": "number of the sample of this worker, from 1",
    "ok": "whether a trace came and could be analyzed",
    "reason": "why not, in a word of [capture.md](capture.md#why-no-trace-was-received); null if `ok`",
    "message": "the same as a sentence, or why there is no step time; null if there is nothing to say",
    "duration_s": "how long was recorded",
    "answer_s": "from the request until the reply began to come",
    "trace_bytes": "size of the trace",
    "profiled_percent": "share of the time since the first sample in which the worker was recording",
    "slowdown_percent": "by how much profiling makes steps longer",
    "step_time_ms": "average over whole steps",
    "step_time_median_ms": "their median",
    "step_time_max_ms": "the longest of them",
    "steps": "number of whole steps",
    "steps_per_second": "1000 / average step time",
    "examples_per_second": "the same in examples",
    "batch_size": "examples of a batch, over all replicas of the worker",
    "input_percent": "share of the step that waits for data and copies it",
    "input_cost_low_percent": "what input costs at least, with what its threads take from the step",
    "input_cost_high_percent": "what it costs at most",
    "categories": "object: percent of the step by category",
    "device_busy_percent": "share of the steps in which devices work or copy, on average over devices",
    "memory_allocator": "the fullest allocator, a device's where there is one",
    "memory_peak_bytes": "most in use in the sample",
    "memory_capacity_bytes": "what it can hold",
    "cause": "code of the first cause of the [diagnosis](diagnosis.md)",
    "cause_gain_percent": "share of the step that fixing it likely brings",
    "headline": "the first conclusion as a sentence",
    "ranked": "what `top` lists: kernels, device ops or host ops",
    "top": "the five that take most time: list of objects with `name`, `type`, `percent`, `total_ms`",
}
"""Every key of an object, in its order, and what it means. What is unknown is null."""


def sample_line(address: Address, sample: Sample) -> str:
    """Return a sample as one line of ASCII, on which neither a terminal nor a CI runner acts."""
    values = {**_of_request(address, sample), **_of_trace(sample.measured)}
    document = {key: plain(values.get(key)) if key not in ("categories", "top") else values.get(key) for key in KEYS}
    text = json.dumps(document, allow_nan=False)
    return f"{text.replace('##', '#' + chr(92) + 'u0023')}\n"


def _of_request(address: Address, sample: Sample) -> dict[str, Any]:
    measured = sample.measured
    return {
        "format": FORMAT,
        "time": datetime.fromtimestamp(sample.time_s, timezone.utc).isoformat(timespec="milliseconds"),
        "worker": encodable(str(address)),
        "task": encodable(address.task) or None,
        "sample": sample.number,
        "ok": measured is not None,
        "reason": sample.reason or None,
        "message": encodable(sample.message or (measured.why if measured else "")) or None,
        "duration_s": sample.duration_s,
        "answer_s": sample.answer_s if measured is not None else None,
        "trace_bytes": sample.size_bytes if measured is not None else None,
        "profiled_percent": sample.profiled_percent,
        "slowdown_percent": sample.slowdown_percent,
    }


def _of_trace(measured: Measured | None) -> dict[str, Any]:
    if measured is None:
        return {}
    cost, memory = measured.input_cost_percent, measured.memory
    cause = next(iter(measured.causes), None)
    return {
        "step_time_ms": measured.step_ms,
        "step_time_median_ms": measured.median_step_ms,
        "step_time_max_ms": measured.slowest_step_ms,
        "steps": measured.step_count,
        "steps_per_second": measured.steps_per_second,
        "examples_per_second": measured.examples_per_second,
        "batch_size": measured.batch_size,
        "input_percent": measured.input_percent,
        "input_cost_low_percent": cost and cost[0],
        "input_cost_high_percent": cost and cost[1],
        "categories": {each.key: plain(each.percent) for each in measured.categories} or None,
        "device_busy_percent": measured.device_busy_percent,
        "memory_allocator": memory and encodable(memory.allocator),
        "memory_peak_bytes": memory and memory.peak_bytes,
        "memory_capacity_bytes": memory and memory.capacity_bytes,
        "cause": cause and cause.code,
        "cause_gain_percent": cause and cause.gain_percent,
        "headline": encodable(measured.headline) or None,
        "ranked": measured.ranked_are or None,
        "top": [
            {
                "name": encodable(each.name),
                "type": encodable(each.type) or None,
                "percent": plain(each.percent),
                "total_ms": plain(each.total_ms),
            }
            for each in measured.ranked[:_MOST_RANKED]
        ],
    }
