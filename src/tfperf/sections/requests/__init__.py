"""Requests: the latency of inference, and batches and queues of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfperf.analysis.registry import Results, SectionSpec, TableSpec, present
from tfperf.base.units import PS_PER_MS, counted, format_number, percent
from tfperf.base.units import format_ms as format_ms
from tfperf.report.model import Column, Data, Fact, Finding, Quantity, Ranked, Section
from tfperf.trace.known_stats import JAX, REQUESTS

if TYPE_CHECKING:
    from tfperf.sections.requests.analysis import AllRequests, Requests

_PERCENTILES = (50, 95, 99)
_LEAST_SHARE = 20.0
"""Minimum share of padding, or of waiting, in percent, that a finding reports as a problem to fix."""
_MOSTLY = 50.0


def _requests(results: Results) -> Data | None:
    from tfperf.sections.requests.analysis import percentile_ms

    rows = results["requests"].requests
    if not rows:
        return None
    known = [each.latency_ps for each in rows]
    return {
        "request": [each.name for each in rows],
        "kind": ["inference" if each.is_inference else "unknown" for each in rows],
        "source": [each.source for each in rows],
        "count": [each.count for each in rows],
        "measured": [len(ps) for ps in known],
        "compiling": [each.compiling for each in rows],
        **{f"p{each}_ms": [percentile_ms(ps, each) for ps in known] for each in _PERCENTILES},
        "average_ms": [float(ps.mean()) / PS_PER_MS if len(ps) else None for ps in known],
        "maximum_ms": [int(ps[-1]) / PS_PER_MS if len(ps) else None for ps in known],
        "per_second": [each.per_second for each in rows],
    }


def _batches(results: Results) -> Data | None:
    rows = results["requests"].batches
    if not rows:
        return None
    return {
        "batch_size": [each.rows for each in rows],
        "count": [each.count for each in rows],
        "average_ms": [each.total_ps / each.count / PS_PER_MS for each in rows],
        "padding": [None if each.rows is None else each.padding for each in rows],
        "padding_percent": [
            None if each.rows is None else percent(each.padding, each.rows * each.count) for each in rows
        ],
        "requests": [each.entered or None for each in rows],
        "wait_ms": [each.waited_ps / each.entered / PS_PER_MS if each.entered else None for each in rows],
    }


REQUESTS_TABLE = TableSpec(
    name="requests",
    title="Requests",
    row="requests by model, function or marker, with their latency",
    details=(
        "One row per model, function or marker, the most requests first. [Requests](requests.md) explains the columns. "
        "A percentile is empty if the profile has too few requests: p99 needs 100, p95 needs 20."
    ),
    columns=(
        Column("request", "Request", str, "", "model, function or marker"),
        Column("kind", "Kind", str, "", "inference, or unknown for forward calls that may be evaluation"),
        Column("source", "Source", str, "", "the events that are requests", level="data"),
        Column("count", "Requests", int, "count", "requests in the capture"),
        Column("measured", "Measured", int, "count", "requests with known latency that compile nothing", level="data"),
        Column("compiling", "Compiling", int, "count", "requests that compile, which the times exclude", level="data"),
        Column("p50_ms", "p50", float, "ms", "latency that half of the requests do not exceed"),
        Column("p95_ms", "p95", float, "ms", "latency that 95% of the requests do not exceed"),
        Column("p99_ms", "p99", float, "ms", "latency that 99% of the requests do not exceed"),
        Column("average_ms", "Average", float, "ms", "mean latency", level="data"),
        Column("maximum_ms", "Max", float, "ms", "longest latency"),
        Column("per_second", "Per second", float, "", "requests that begin per second"),
    ),
    data=_requests,
    name_key="request",
    ranked=Ranked("count"),
)
BATCHES_TABLE = TableSpec(
    name="request_batches",
    title="Batches of requests",
    row="batches of requests by size, with padding and waiting",
    details="One row per batch size. Only if a server forms batches.",
    columns=(
        Column("batch_size", "Batch size", int, "count", "rows of a batch, including padding"),
        Column("count", "Batches", int, "count", "batches of this size"),
        Column("average_ms", "Average", float, "ms", "mean time of processing a batch"),
        Column("padding", "Padding", int, "count", "rows of padding in all of them"),
        Column("padding_percent", "Padding", float, "%", "share of padding in the rows"),
        Column("requests", "Requests", int, "count", "requests, or parts of them, whose wait is known"),
        Column("wait_ms", "Wait", float, "ms", "mean wait of a request for its batch to begin"),
    ),
    data=_batches,
    name_key="batch_size",
)
TABLES = (REQUESTS_TABLE, BATCHES_TABLE)


def build(results: Results) -> Section:
    """Build the section: latency, waiting, padding, and the tables."""
    found = results["requests"]
    if not found.requests and not found.batches:
        return Section("requests", "Requests", level="full", notes=("The profile has no requests.",))
    notes = []
    for each in found.requests:
        if each.compiling:
            notes.append(f"Times exclude {each.counted(each.compiling)} that compiled.")
        if unknown := each.count - each.compiling - len(each.latency_ps):
            notes.append(f"The latency of {each.counted(unknown)} is unknown.")
        if not each.is_inference:
            notes.append(f"The calls of {each.name} may be inference or evaluation: the profile does not show which.")
    is_sure = found.main is not None or bool(found.batches)
    return Section(
        "requests",
        "Requests",
        level="brief" if is_sure else "full",
        findings=tuple(lost_latency(found)),
        facts=latency_facts(found),
        tables=present(REQUESTS_TABLE.build(results), BATCHES_TABLE.build(results)),
        notes=tuple(notes),
    )


def latency_facts(found: AllRequests) -> tuple[Fact, ...]:
    """Return the latency of the main requests, the wait for batches, and the padding; those that are known."""
    from tfperf.sections.requests.analysis import percentile_ms

    facts = []
    main = found.main
    if main is not None and len(main.latency_ps):
        times = {each: percentile_ms(main.latency_ps, each) for each in _PERCENTILES}
        quantities = tuple(_quantity(main, f"p{each}", ms) for each, ms in times.items() if ms is not None)
        longest = _quantity(main, "maximum", int(main.latency_ps[-1]) / PS_PER_MS)
        value, first = (longest, "longest") if times[50] is None else (quantities[0], "p50")
        text = ", ".join(f"{each.key.removeprefix('latency ')} {each}" for each in (*quantities[1:], longest))
        rate = "" if main.per_second is None else f", {format_number(main.per_second)}/s"
        note = f"{first} of {main.counted(len(main.latency_ps))}; {text}{rate}"
        # A caller of predict() waits for all batches, and for what it does before them.
        label = "Batch time" if main.noun == "batch" else "Latency"
        facts.append(Fact("latency", label, value.value, "ms", note, quantities=(*quantities, longest)))
    if len(found.waited_ps):
        share = waited_share(found)
        note = f"mean of {counted(len(found.waited_ps), 'request')}, before their batch begins"
        wait = Quantity("wait", float(found.waited_ps.mean()) / PS_PER_MS, "ms", "requests")
        note += "" if share is None else f": {share} of the latency"
        facts.append(Fact("wait", "Queue", wait.value, "ms", note, quantities=(wait, *([share] if share else []))))
    if padding := _padding(found):
        count = sum(each.count for each in found.batches)
        rows = sum((each.rows or 0) * each.count for each in found.batches)
        note = f"of {rows:,} rows in {counted(count, 'batch', 'batches')}"
        facts.append(Fact("padding", "Padding", padding.value, "%", note, quantities=(padding,)))
    return tuple(facts)


def _quantity(requests: Requests, key: str, ms: float) -> Quantity:
    return Quantity(f"latency {key}", ms, "ms", requests.name)


def waited_share(found: AllRequests) -> Quantity | None:
    """Return the share of waiting in the latency; None if a request is not one wait."""
    latencies = [each.latency_ps for each in found.requests]
    total = sum(int(ps.sum()) for ps in latencies)
    if not total or len(found.waited_ps) != sum(map(len, latencies)):
        return None
    return Quantity("waited", 100.0 * int(found.waited_ps.sum()) / total, of="requests")


def _padding(found: AllRequests) -> Quantity | None:
    if not found.batches or any(each.rows is None for each in found.batches):
        return None
    rows = sum((each.rows or 0) * each.count for each in found.batches)
    return Quantity("padding", percent(sum(each.padding for each in found.batches), rows), of="batches")


def lost_latency(found: AllRequests) -> list[Finding]:
    """Return findings on the latency: waiting for a batch, and padding."""
    findings = []
    share = waited_share(found)
    if share is not None and (share.value or 0.0) >= _LEAST_SHARE:
        behind = Quantity("behind batches", 100.0 * found.behind_ps / max(int(found.waited_ps.sum()), 1), of="waits")
        idle = (behind.value or 0.0) < _MOSTLY
        text = f"Requests wait {share} of their latency for a batch; in {behind} of that time, other batches run."
        action = (
            "lower batch_timeout_micros (smaller batches): most waits are not for other batches, but for more requests"
            if idle
            else "make batches faster, or add replicas of the server: most waits are for other batches"
        )
        findings.append(Finding("request_queue", "hint", text, action, quantities=(share, behind)))
    padding = _padding(found)
    if padding is not None and (padding.value or 0.0) >= _LEAST_SHARE:
        worst = max(found.batches, key=lambda each: each.padding)
        usual = format_number((worst.rows or 0) - worst.padding / worst.count)
        text = f"Padding takes {padding} of the rows that the model computes."
        action = f"add a smaller size to allowed_batch_sizes: batches of {worst.rows} have {usual} rows on average"
        findings.append(Finding("request_padding", "hint", text, action, quantities=(padding,)))
    return findings


SECTION = SectionSpec(
    name="requests",
    title="Requests",
    rests_on=("steps",),
    analyze="tfperf.sections.requests.analysis:analyze",
    combine="tfperf.sections.requests.analysis:combine",
    stats=REQUESTS | JAX,
    build="tfperf.sections.requests:build",
    tables=TABLES,
)
