"""The live view: a refreshed screen, one screen as text, or a line of JSON for each sample."""

from __future__ import annotations

import contextlib
import json
import queue
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tfperf.base.errors import CaptureError
from tfperf.capture.address import Address
from tfperf.capture.remote import stop_on_signal
from tfperf.live.board import TopRequest
from tfperf.live.openmetrics import metrics_served, metrics_text
from tfperf.live.sample import Measured, Sample
from tfperf.live.screen import Frame, text_lines
from tfperf.live.watcher import Watch
from tfperf.report.render import discard
from tfperf.report.render.text_table import joined
from tfperf.report.render.values import encodable, plain

if TYPE_CHECKING:
    from tfperf.report.render.screen import Screen

FORMAT = 1
_MOST_RANKED = 5

KEYS: Mapping[str, str] = {
    "format": "version of this list: 1. New keys can be added without a new version",
    "time": "time of the request: UTC, ISO 8601",
    "worker": "address of the profiler server",
    "task": "name of the worker in the cluster, if `--cluster-spec` has it",
    "sample": "number of this worker's sample, from 1",
    "ok": "whether a trace was received and analyzed",
    "reason": "reason if not, see [capture.md](capture.md#why-no-trace-was-received); null if `ok`",
    "message": "the reason as a sentence, or why the step time is unknown; null if there is no problem",
    "duration_s": "duration of the recording",
    "answer_s": "time from the request to the start of the reply",
    "trace_bytes": "size of the trace",
    "profiled_percent": "share of time since the first sample in which the worker was recording",
    "slowdown_percent": "increase of the step time by profiling",
    "step_time_ms": "mean of whole steps",
    "step_time_median_ms": "median of whole steps",
    "step_time_max_ms": "longest whole step",
    "steps": "number of whole steps",
    "kind": "kind of the steps, such as `train` or `eval`",
    "steps_per_second": "1000 / mean step time",
    "examples_per_second": "examples per second",
    "batch_size": "batch size over all replicas of the worker",
    "input_percent": "share of step time spent on waiting for input and copying it",
    "input_cost_low_percent": "lower bound of the cost of input, including CPU contention",
    "input_cost_high_percent": "upper bound of the cost of input",
    "categories": "object: percent of step time by category",
    "device_busy_percent": "share of step time in which devices compute or copy, averaged over devices",
    "memory_allocator": "name of the fullest allocator, on a device if there is one",
    "memory_peak_bytes": "peak bytes in use in the sample",
    "memory_capacity_bytes": "capacity of the allocator",
    "cause": "code of the first cause of the [diagnosis](diagnosis.md)",
    "cause_gain_percent": "share of step time that fixing it likely saves",
    "headline": "headline of the diagnosis",
    "ranked": "type of the listed ops: kernels, device ops or host ops",
    "top": "the five with the most time: list of objects with `name`, `type`, `percent`, `total_ms`",
}
"""All keys of an object in order, with their meanings. Unknown values are null."""


def sample_line(address: Address, sample: Sample) -> str:
    """Return a sample as one line of ASCII without control characters of terminals and CI runners."""
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
        "kind": encodable(measured.step_kind) or None,
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


_LOOK_S = 0.2
"""Interval between checks for samples and signals."""


@contextlib.contextmanager
def _watching(watch: Watch, metrics_port: int | None) -> Iterator[threading.Event]:
    """Watch all workers, and serve metrics on a given port; yield an event that Ctrl-C and SIGTERM set."""
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stop_on_signal())
        if metrics_port is not None:
            stack.enter_context(metrics_served(metrics_port, lambda: metrics_text(watch.board.views())))
        stack.enter_context(watch)
        yield stop


def show_live(request: TopRequest, screen: Screen, metrics_port: int | None = None) -> None:
    """Show all workers on the terminal until the user quits, or all requested samples are complete."""
    from tfperf.live.app import run

    watch = Watch(request)
    with _watching(watch, metrics_port) as stop:
        run(watch, stop, screen)
        _raise_failure(watch)


def show_once(request: TopRequest, screen: Screen) -> str:
    """Take one sample of each worker; return one screen as text. Raises CaptureError if all workers fail."""
    watch = Watch(replace(request, samples=1))
    with _watching(watch, None) as stop:
        while not watch.is_done and not stop.wait(_LOOK_S / 4):
            _raise_failure(watch)
        workers = watch.board.views()
    _raise_failure(watch)
    if stop.is_set():
        raise KeyboardInterrupt
    failed = [worker.last for worker in workers if worker.last is not None and worker.last.reason]
    if len(failed) == len(workers):
        more = f" (and {len(failed) - 1} more workers without traces)" if len(failed) > 1 else ""
        raise CaptureError(failed[0].reason or "bad_reply", failed[0].message + more)
    frame = Frame(screen.width, time.time(), screen.interactive)
    return joined(text_lines(workers, request, frame), colour=screen.colour)


def write_lines(request: TopRequest, metrics_port: int | None = None) -> bool:
    """Write each sample as a line of JSON until Ctrl-C, a closed pipe or the last one; return whether any is known."""
    samples: queue.Queue[tuple[Address, Sample]] = queue.Queue()
    watch, has_any = Watch(request, lambda address, sample: samples.put((address, sample))), False
    with _watching(watch, metrics_port) as stop:
        try:
            while not stop.is_set():
                is_done = watch.is_done
                with contextlib.suppress(queue.Empty):
                    while True:
                        address, sample = samples.get(timeout=0.0 if is_done else _LOOK_S)
                        has_any = has_any or sample.measured is not None
                        sys.stdout.write(sample_line(address, sample))
                        sys.stdout.flush()
                _raise_failure(watch)
                if is_done:
                    break
        except BrokenPipeError:
            discard(sys.stdout)
    return has_any


def _raise_failure(watch: Watch) -> None:
    if watch.board.failure is not None:
        raise watch.board.failure
