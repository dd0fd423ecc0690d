"""Requests: their latency by model or function, and the batches that they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import HasTable, Host
from tfperf.base.arrays import (
    NO_NUMBERS,
    Bools,
    Int64s,
    distinct_index,
    extents,
    lookup,
    overlap,
    span_at,
    text_index,
    union,
)
from tfperf.base.units import PS_PER_MS, counted
from tfperf.trace.event_names import BATCH_SIZES, enters_batch, infers, is_jitted_call, is_keras_predict, judges, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import last_around, outermost
from tfperf.trace.steps.breakdown import lacks_devices
from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.requests import find_requests
from tfperf.trace.steps.step_calls import find_calls
from tfperf.trace.steps.steps import INFERENCE, ITERATION, Steps

if TYPE_CHECKING:
    from tfperf.trace.jax import JaxCalls

PREDICT, CALLS, JITTED = "predict", "tf.function calls", "jitted calls"
"""Sources of requests that are batches of Keras, or calls of a program."""


def needed(percent: int) -> int:
    """Return how many times a percentile needs so that it is not the longest one by lack of others: 100 for p99."""
    return -(-100 // (100 - percent))


def percentile_ms(ascending_ps: Int64s, percent: int) -> float | None:
    """Return the shortest time that `percent` of the times do not exceed; None for fewer times than `needed`."""
    count = len(ascending_ps)
    place = -(-percent * count // 100) - 1
    return int(ascending_ps[place]) / PS_PER_MS if count >= needed(percent) else None


class Requests(Struct, frozen=True, eq=False, kw_only=True):
    """Requests of one model, function or marker on one host or on all.

    `latency_ps` has the known latencies of requests that compile nothing, in ascending order. `per_second` is the rate
    at which requests begin, from the first to the last one of a host.
    """

    name: str
    source: str
    is_inference: bool
    """False: calls that may be evaluation."""
    count: int
    compiling: int
    latency_ps: Int64s
    per_second: float | None

    @property
    def noun(self) -> str:
        """Return the noun of one of them."""
        return {PREDICT: "batch", CALLS: "call", JITTED: "call"}.get(self.source, "request")

    def counted(self, count: int) -> str:
        """Return a number of them as text: `3 batches of predict`."""
        return f"{counted(count, self.noun, 'batches' if self.noun == 'batch' else '')} of {self.name}"


class Batches(Struct, frozen=True, kw_only=True):
    """Batches of one size on one host or on all: sums, of time in picoseconds.

    `rows` is the size with padding, None if it is not recorded. `entered` counts requests, or parts of them, whose wait
    for their batch is known; `waited_ps` is the sum.
    """

    rows: int | None
    count: int
    padding: int
    total_ps: int
    entered: int
    waited_ps: int


class HostRequests(Struct, frozen=True, eq=False, kw_only=True):
    """Requests and batches of one host; `waited_ps` ascends, of which `behind_ps` passes while batches run."""

    requests: tuple[Requests, ...] = ()
    batches: tuple[Batches, ...] = ()
    waited_ps: Int64s = NO_NUMBERS
    behind_ps: int = 0


def analyze(host: Host) -> HostRequests:
    """Measure the requests of a host: of a server, marked ones, batches of `predict`, or calls of jitted functions."""
    trace = host.trace
    steps = find_steps(trace) if host.as_tensorflow else host["steps"].steps
    kinds = {*steps.kinds}
    served = find_requests(trace)
    if served is not None and "train" not in kinds:
        traced = find_calls(trace).traced if served.source == CALLS else None
        spans = Spans(trace.start_ps[served.rows], trace.end_ps[served.rows], traced)
        return _with_batches(trace, _grouped(trace, served.names, served.source, spans), served.batches)
    is_jax = any(map(is_jitted_call, trace.names))
    if is_jax and not kinds <= {INFERENCE, ITERATION}:
        return HostRequests()
    found: tuple[Requests, ...] = ()
    if INFERENCE in kinds:
        is_keras = any(map(is_keras_predict, trace.names))
        found = () if is_keras else _marked(host, is_jax=is_jax)
        found = found or (() if is_jax else _predicted(host, steps, PREDICT if is_keras else CALLS))
    found = found or (_forward(trace) if is_jax and kinds else ())
    if lacks_devices(host["steps"]):  # the work that ends a call may be missing
        found = tuple(replace(each, latency_ps=NO_NUMBERS) for each in found)
    return HostRequests(requests=found)


class Spans(NamedTuple):
    """Starts and ends of requests; an end is -1 if it is unknown. `compiles` marks those that compile; None: none."""

    start: Int64s
    end: Int64s
    compiles: Bools | None = None


def _grouped(
    trace: HostTrace, names: Sequence[str], source: str, spans: Spans, *, sure: bool = True
) -> tuple[Requests, ...]:
    """Return the requests of each name, most requests first; those that are not `sure` are inference by their name."""
    texts, group = text_index(names)
    start = spans.start
    # A range of steps may cut the last one.
    end = np.where((spans.end >= trace.extent_ps[1]) & trace.is_part, -1, spans.end)
    compiles = np.zeros(len(start), np.bool_) if spans.compiles is None else spans.compiles
    found = []
    for number, name in enumerate(texts):
        mine = group == number
        span_ps = int(start[mine].max() - start[mine].min())
        measured = mine & ~compiles & (end >= 0)
        requests = Requests(
            name=name,
            source=source,
            is_inference=sure or infers(name),
            count=int(mine.sum()),
            compiling=int((mine & compiles).sum()),
            latency_ps=np.sort(end[measured] - start[measured]),
            per_second=(int(mine.sum()) - 1) * 1e12 / span_ps if span_ps else None,
        )
        found.append(requests)
    return tuple(sorted(found, key=lambda each: (-each.count, each.name)))


def _marked(host: Host, *, is_jax: bool) -> tuple[Requests, ...]:
    """Return the requests that the program marks as steps: from the start of the mark to the end of its work."""
    trace = host.trace
    rows = trace.stat("step_num").event.astype(np.int64)
    rows = rows[trace.on_host[rows] & (trace.duration_ps[rows] > 0) & mask(trace.names, infers)[trace.name[rows]]]
    rows = np.sort(outermost(trace, rows))
    start, end = trace.start_ps[rows], trace.end_ps[rows]
    if not len(rows):
        return ()
    if is_jax:
        jitted = _jitted(trace)
        if jitted is None:
            return ()
        row, until, compiles = jitted.row, _done(trace, jitted), jitted.compiles
    else:
        found = find_calls(trace)
        row, compiles = found.row, found.traced
        until = _work_end(host, found.start, found.end)
    inside = last_around(trace, rows, row)
    until, compiles, inside = until[inside >= 0], compiles[inside >= 0], inside[inside >= 0]
    np.maximum.at(end, inside, until)
    end[inside[until < 0]] = -1
    if trace.devices:  # the end of work that no call starts is unknown
        end[np.bincount(inside, minlength=len(rows)) == 0] = -1
    spans = Spans(start, end, np.bincount(inside[compiles], minlength=len(rows)) > 0)
    return _grouped(trace, [trace.names[name] for name in trace.name[rows].tolist()], "markers", spans)


def _predicted(host: Host, steps: Steps, source: str) -> tuple[Requests, ...]:
    """Return the calls of functions in steps that are inference, with one name for those of Keras's `predict`."""
    trace = host.trace
    calls = find_calls(trace)
    step = steps.at(calls.start)
    calls = calls.only((step >= 0) & np.append(steps.are(INFERENCE), False)[step])
    spans = Spans(calls.start, _work_end(host, calls.start, calls.end), calls.traced)
    named = [PREDICT if is_keras_predict(name) else name for name in calls.names]
    return _grouped(trace, [named[name] for name in calls.name.tolist()], source, spans)


def _work_end(host: Host, start: Int64s, end: Int64s) -> Int64s:
    """Return the end of each call (ascending) with the device work that it launches; -1 if that is unknown."""
    trace = host.trace
    if not trace.devices:
        return end
    if trace.device_kind == "tpu" or (start[1:] < end[:-1]).any():
        return np.full(len(end), -1, np.int64)
    links = host.launch_links
    call = span_at(start, end, trace.start_ps[links.host])
    launched = links.device[call >= 0]
    _, done = extents(call[call >= 0], trace.start_ps[launched], trace.end_ps[launched], len(start))
    return np.where(done >= 0, np.maximum(done, end), -1)


def _jitted(trace: HostTrace) -> JaxCalls | None:
    """Return the calls of jitted functions, None if they are unknown."""
    from tfperf.trace.jax import find_jax_calls  # few traces are of JAX

    return find_jax_calls(trace)


def _done(trace: HostTrace, calls: JaxCalls) -> Int64s:
    """Return the end of the work of each call; -1 if it is unknown, as of calls on several threads at a time."""
    if trace.device_kind != "tpu" and (calls.start[1:] < calls.end[:-1]).any():
        return np.full(len(calls.row), -1, np.int64)
    return np.where(calls.work.end >= 0, np.maximum(calls.work.end, calls.end), -1)


def _forward(trace: HostTrace) -> tuple[Requests, ...]:
    """Return the calls of jitted functions that compute forward, from the call to the end of its work."""
    calls = _jitted(trace)
    if calls is None:
        return ()
    judging = np.array([judges(name) for name in calls.names], np.bool_)[calls.name]
    chosen = calls.of_class("forward") & ~judging
    spans = Spans(calls.start[chosen], _done(trace, calls)[chosen], calls.compiles[chosen])
    names = [calls.names[name] for name in calls.name[chosen].tolist()]
    return _grouped(trace, names, JITTED, spans, sure=False)


def _with_batches(trace: HostTrace, found: tuple[Requests, ...], rows: Int64s) -> HostRequests:
    """Return the requests with the batches of a host, by size, and the waits of requests for their batch."""
    if not len(rows):
        return HostRequests(requests=found)
    rows = np.sort(rows)
    start, end = trace.start_ps[rows], trace.end_ps[rows]
    sized = trace.host_events(mask(trace.names, BATCH_SIZES.__contains__))
    place = last_around(trace, rows, sized)
    size, known = trace.known_at("batch_size_after_padding", sized)
    padding = trace.number_at("padding_amount", sized)
    after, padded = np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.int64)
    is_known = (place >= 0) & known & (padding >= 0) & (padding <= size)
    after[place[is_known]], padded[place[is_known]] = size[is_known], padding[is_known]
    # A batch consumes what its requests produce.
    entered = trace.host_events(mask(trace.names, enters_batch))
    producer, produces = trace.known_at("_p", entered)
    consumer, consumes = trace.known_at("_c", rows)
    order = np.argsort(consumer, kind="stable")
    batch = np.append(order, -1)[lookup(consumer[order], producer)]
    times = trace.start_ps[entered]
    is_linked = produces & (batch >= 0) & consumes[batch] & (times <= start[batch])
    batch, times = batch[is_linked], times[is_linked]
    waited = start[batch] - times
    sizes, group = distinct_index(after)
    sums = {"padding": (group, padded), "total_ps": (group, end - start), "waited_ps": (group[batch], waited)}
    sums |= {"count": (group, np.ones_like(group)), "entered": (group[batch], np.ones_like(batch))}
    totals = {key: np.zeros(len(sizes), np.int64) for key in sums}
    for key, (index, values) in sums.items():
        np.add.at(totals[key], index, values)
    batches = tuple(
        Batches(rows=None if size < 0 else size, **{key: int(total[number]) for key, total in totals.items()})
        for number, size in enumerate(sizes.tolist())
    )
    behind = int(overlap(union(start, end), times, start[batch]).sum())
    return HostRequests(requests=found, batches=batches, waited_ps=np.sort(waited), behind_ps=behind)


class AllRequests(HasTable, HostRequests, frozen=True, eq=False, kw_only=True):
    """The requests and batches of a run; the model or function with most requests comes first."""

    home = ("requests", "requests")

    @property
    def main(self) -> Requests | None:
        """Return the inference with most requests; None if nothing is known to be inference."""
        return next((each for each in self.requests if each.is_inference), None)


def combine(hosts: Sequence[HostRequests]) -> AllRequests:
    """Merge the requests of one name, and the batches of one size, of all hosts."""
    requests: dict[tuple[str, str], list[Requests]] = {}
    batches: dict[int | None, list[Batches]] = {}
    for host in hosts:
        for each in host.requests:
            requests.setdefault((each.source, each.name), []).append(each)
        for batch in host.batches:
            batches.setdefault(batch.rows, []).append(batch)
    merged = []
    for same in requests.values():
        rates = [each.per_second for each in same if each.per_second is not None]
        all_of = replace(
            same[0],
            count=sum(each.count for each in same),
            compiling=sum(each.compiling for each in same),
            latency_ps=np.sort(np.concatenate([each.latency_ps for each in same])),
            per_second=sum(rates) if len(rates) == len(same) else None,
        )
        merged.append(all_of)
    keys = ("count", "padding", "total_ps", "entered", "waited_ps")
    sums = [
        Batches(rows=rows, **{key: sum(getattr(each, key) for each in same) for key in keys})
        for rows, same in batches.items()
    ]
    return AllRequests(
        requests=tuple(sorted(merged, key=lambda each: (-each.count, each.name))),
        batches=tuple(sorted(sums, key=lambda each: (each.rows is None, each.rows or 0))),
        waited_ps=np.sort(np.concatenate([NO_NUMBERS, *(host.waited_ps for host in hosts)])),
        behind_ps=sum(host.behind_ps for host in hosts),
    )
