"""The report section on memory: peaks per allocator, and the allocations then."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.many_hosts import MANY_HOSTS, MOST_ROWS
from tfperf.analysis.registry import Results, TableSpec, present
from tfperf.base.units import PS_PER_MS, format_bytes, format_ms, format_percent, listed, percent
from tfperf.report.model import Fact, Finding, Level, Quantity, Section, Sparkline, Table, at_levels
from tfperf.sections.memory import ALIVE, ALLOCATORS, BY_OP, BY_SCOPE, TIMELINE, columns_of
from tfperf.sections.memory.analysis import FULL_SHARE, Allocator, Memory, by_op, op_keys, scope_keys

_UNKNOWN_PERCENT = 50.0
_STEADY_SHARE = 0.01
_CHARTS = 4
_NEXT_TO_0 = 0.01
"""A capture start below this share of its duration counts as 0 on its clock."""

_NO_THREADS = "Memory use is unknown: host threads record allocations, and the profile has no host thread events."
_NO_EVENTS = (
    "Memory use is unknown: the profile has no allocations. On a GPU, profile with host tracer level 2 (the "
    "default of tfperf capture) while steps run; the allocator cuda_malloc_async may record no allocations. On a "
    "CPU, JAX records no allocations, and TensorFlow only those of large tensors (in builds with oneDNN)."
)
_ON_TPU = "Memory use is unknown: the profile has no allocations."
_STAR = "* replaces numbers: ops that differ only in them are summed; memory_alive in JSON and CSV lists each op."


def build(results: Results) -> Section:
    """Return the section; people see the contents of the allocator with the largest peak share only."""
    memory: Memory = results["memory"]
    if not memory.allocators:
        note = _NO_EVENTS
        if len(memory.hosts_without_threads) == memory.host_count:
            note = _NO_THREADS
        elif "steps" in results.sections and results["steps"].on_tpu:
            note = _ON_TPU
        elif memory.malformed_events:
            note = f"The {memory.malformed_events:,} allocator events do not record the memory in use."
        return Section("memory", "Memory", notes=(note,))
    charts = [sparkline(alike[0], names_of(alike, memory)) for alike in memory.alike[:_CHARTS]]
    times = [time for chart in charts for time in (chart.times[0], chart.times[-1])]
    if len(memory.captures_ps) == 1:  # on the clock of the allocators
        times += [time_ps / PS_PER_MS for time_ps in memory.captures_ps[0]]
    return Section(
        "memory",
        "Memory",
        findings=(*findings_of(memory), *_room(results)),
        facts=_facts(memory),
        charts=tuple(replace(chart, span=(min(times), max(times))) for chart in charts),
        tables=_tables(results),
        detail_notes=_notes(memory, before="the selected steps" if results.steps_text else "the capture"),
        pointer="More: -s memory.",
    )


def _facts(memory: Memory) -> tuple[Fact, ...]:
    fullest, *others = memory.alike[0]
    if not fullest.is_tpu:
        return ()
    heap = [(each.heap_peak_bytes, name_of(each, memory)) for each in memory.allocators if each.heap_peak_bytes]
    most = f"peak since the program started: {format_bytes(max(heap)[0])} on {max(heap)[1]}" if heap else ""
    on = f" of {fullest.name}" if others else ""
    return (
        Fact("stack", "Stack", fullest.stack_bytes, "bytes", f"of the peak{on}: temporaries of the loaded programs"),
        Fact("heap", "Heap", fullest.peak_bytes - fullest.stack_bytes, "bytes", most),
    )


def _tables(results: Results) -> tuple[Table, ...]:
    memory: Memory = results["memory"]
    levels: dict[str, Level] = {}
    if memory.host_count > 1:
        levels = {"host": "brief", "frees": "data", "fragmentation_percent": "data"}
    by_op = _of_fullest(BY_OP, results, lambda each: len({*op_keys(each.alive)}))
    by_scope = _of_fullest(BY_SCOPE, results, lambda each: len({*scope_keys(each.alive)}))
    star = _STAR if any("*" in str(op) for op in by_op.data["op"]) else ""
    # With many hosts, people see a few allocators and percentiles of all.
    alike = [group for group in memory.alike if len(group) > 1] if len(results.hosts) <= MANY_HOSTS else []
    only = ""
    if len(memory.allocators) > 1:
        fullest = name_of(memory.allocators[0], memory)
        count = len(memory.allocators)
        only = f"Text and Markdown show only {fullest}; JSON, CSV and HTML show all {count} allocators."
    # Without names, a single row would show the total.
    has_scopes = any(by_scope.data["scope"][row] for row in by_scope.rows_for_people or ())
    same = " ".join(f"Equal allocators in one row: {names_of(group, memory)}." for group in alike)
    order = {id(each): row for row, each in enumerate(memory.allocators)}
    return present(
        ALLOCATORS.build(
            results,
            columns=at_levels(ALLOCATORS.columns, levels),
            note=_clock_note(memory),
            rows_for_people=tuple(order[id(group[0])] for group in memory.alike) if alike else None,
            note_for_people=same,
        ),
        _first_rows(ALIVE, results, lambda each: len(each.alive), level="data", split_key="allocator"),
        replace(by_op, note=star, note_for_people=only),
        by_scope if has_scopes else replace(by_scope, level="data"),
        _first_rows(TIMELINE, results, lambda each: len(each.timeline.time_ms), level="data", split_key="allocator"),
    )


def _first_rows(
    spec: TableSpec, results: Results, rows_of: Callable[[Allocator], int], **attributes: Any
) -> Table | None:
    """Return a table; with many hosts, of the first allocators only, because all rows would not fit in memory."""
    if len(results.hosts) <= MANY_HOSTS:
        return spec.build(results, **attributes)
    memory: Memory = results["memory"]
    stops = list(accumulate(map(rows_of, memory.allocators)))
    first = replace(memory, allocators=memory.allocators[: bisect_left(stops, MOST_ROWS) + 1])
    return replace(spec.of(columns_of(spec.name, first)), total_rows=stops[-1], **attributes)


def _clock_note(memory: Memory) -> str:
    """Return the start of the capture on the clock of all times, if not near 0; hosts have separate clocks."""
    if len(memory.captures_ps) != 1:
        return ""
    ((start_ps, end_ps),) = memory.captures_ps
    if abs(start_ps) <= _NEXT_TO_0 * (end_ps - start_ps):
        return ""
    start, end = (format_ms(time_ps / PS_PER_MS) for time_ps in (start_ps, end_ps))
    return f"Times are on the clock of the trace; the capture lasts from {start} to {end} ms."


def _of_fullest(spec: TableSpec, results: Results, rows_of: Callable[[Allocator], int]) -> Table:
    table = _first_rows(spec, results, rows_of, level="full", split_key="allocator")
    assert table is not None
    fullest = results["memory"].allocators[0]
    owners = zip(table.data["host"], table.data["allocator"], strict=True)
    rows = tuple(row for row, owner in enumerate(owners) if owner == (fullest.host, fullest.name))
    return replace(table, rows_for_people=rows)


def sparkline(allocator: Allocator, name: str) -> Sparkline:
    """Return the memory in use of an allocator over time, between its minimum and maximum."""
    times, values = allocator.timeline.time_ms.tolist(), allocator.timeline.in_use_bytes.tolist()
    low, high = min(values), max(values)
    # Drawing 1% over the whole height would make noise look like large changes.
    is_steady = high - low < _STEADY_SHARE * high
    scale = "during the whole capture, within 1%" if is_steady else f"(highest), {format_bytes(low)} (lowest)"
    return Sparkline(
        title=f"{name}: {format_bytes(high)} in use {scale}, {format_ms(times[0])} to {format_ms(times[-1])} ms",
        times=tuple(times),
        values=tuple(map(float, values)),
        low=0.0 if is_steady else float(low),
        high=float(high),
        unit="bytes",
        level="full",
    )


def _and_more(allocators: Sequence[Allocator]) -> str:
    return f", and for {len(allocators) - 1} more allocators" if len(allocators) > 1 else ""


def _notes(memory: Memory, *, before: str) -> tuple[str, ...]:
    notes = []
    if memory.silent_hosts:
        recorded_none = f"{len(memory.silent_hosts)} of {memory.host_count} hosts recorded no allocations"
        notes.append(f"{recorded_none}: {listed(memory.silent_hosts)}.")
    if memory.malformed_events:
        notes.append(f"Events omitted because they do not record the memory in use: {memory.malformed_events:,}.")
    unsized = [each for each in memory.allocators if each.unsized_allocations]
    if unsized:
        first = unsized[0]
        notes.append(
            f"In {name_of(first, memory)}{_and_more(unsized)}, {first.unsized_allocations:,} of {first.allocations:,} "
            "allocations have no recorded size, so sums of allocated bytes are unknown. The memory in use is still "
            "known."
        )
    contradicted = [
        each
        for each in memory.allocators
        if each.contradictions or (each.before_bytes is None and not each.unsized_alive)
    ]
    if contradicted:
        first = contradicted[0]
        notes.append(
            f"In {name_of(first, memory)}{_and_more(contradicted)}, {first.contradictions:,} of "
            f"{first.allocations + first.frees:,} events contradict the previous event: some events were lost, or "
            "several allocators share the name. The memory in use is still correct; allocations listed as live may "
            "have been freed."
        )
    fullest = memory.allocators[0]
    if (fullest.before_percent or 0.0) >= _UNKNOWN_PERCENT:
        notes.append(
            f"{format_percent(fullest.before_percent)}% of the peak of {name_of(fullest, memory)} was allocated "
            f"before {before} (mostly variables), so its ops are unknown; a capture from the first step on records "
            "them."
        )
    if any(allocator.place == "host" for allocator in memory.allocators):
        notes.append(
            "Host allocators (mklcpu) record only their own allocations, but their capacity is the memory of the "
            "machine, so their used share has no meaning."
        )
    return tuple(notes)


CAPACITY_PERCENT = 90.0
FRAGMENTED_PERCENT = 25.0
FULL_WITHIN_STEPS = 100_000
"""Growth is a problem if it would fill the free memory within this many steps."""
GROWTH_BYTES_PER_STEP = 64 * 1024
"""Growth that is a problem for an allocator of unknown capacity."""
_LISTED = 8
_PRESSURE = ("memory_pressure",)


def findings_of(memory: Memory) -> tuple[Finding, ...]:
    """Return memory problems, the most severe first; without problems, one finding that says so.

    If several allocators have the same problem, the first is named and the others are counted. Without memory events
    there are no findings.
    """
    findings = []
    for judge in (_full, _was_full, _fragmented, _growing):
        judged = [(allocator, judge(allocator)) for allocator in memory.allocators]
        affected = [(allocator, finding) for allocator, finding in judged if finding is not None]
        if affected:
            allocator, finding = affected[0]
            others = len(affected) - 1
            more = f" The same applies to {others} more allocator{'s' * (others > 1)}." if others else ""
            findings.append(replace(finding, text=f"{name_of(allocator, memory)} {finding.text}{more}"))
    return tuple(findings) or _nothing_wrong(memory)


_ROOM_PERCENT = 80.0
"""Share of the capacity that a larger batch may need, because the estimate is rough and memory fragments."""


class LargerBatch(Struct, frozen=True):
    """A batch per replica that should fit in the fullest device: `times` as large as now, if all its memory grows."""

    examples: int
    times: int
    used_percent: float
    """Highest use now, since the program started."""
    allocator: Allocator


def batch_that_fits(results: Results) -> LargerBatch | None:
    """Return a batch two or four times as large; None if it may not fit, or if batch or memory are unknown."""
    memory, batch = results["memory"], results["batch"] if "batch" in results.sections else None
    devices = [each for each in memory.allocators if each.place == "device" and each.capacity_bytes]
    if batch is None or not batch.per_replica or batch.confidence not in {"high", "medium"} or not devices:
        return None
    if any(finding.severity == "problem" for finding in findings_of(memory)):
        return None
    fullest = max(devices, key=_highest_percent)
    used = _highest_percent(fullest)
    times = next((times for times in (4, 2) if times * used <= _ROOM_PERCENT), None)
    return None if times is None else LargerBatch(times * batch.per_replica, times, used, fullest)


def _room(results: Results) -> tuple[Finding, ...]:
    found = batch_that_fits(results)
    if found is None:
        return ()
    memory, batch, allocator = results["memory"], results["batch"], found.allocator
    replica = " per replica" if (batch.replicas or 1) > 1 else ""
    highest = format_bytes(max(allocator.peak_bytes, allocator.lifetime_peak_bytes or 0))
    used = Quantity("lifetime_peak", found.used_percent, of=_owner(allocator))
    needed = Quantity("larger_batch_peak", found.times * found.used_percent, of=_owner(allocator))
    text = (
        f"Room for a larger batch: since the program started, {batch.per_replica:,} examples{replica} used at most "
        f"{highest}, {used} of {name_of(allocator, memory)}. If all of this grows with the batch, "
        f"{found.examples:,} need {needed}."
    )
    return (Finding("larger_batch_fits", "info", text, quantities=(used, needed)),)


def name_of(allocator: Allocator, memory: Memory) -> str:
    """Return the name of an allocator, with its host if there are several."""
    return f"{allocator.name} on {allocator.host}" if memory.host_count > 1 else allocator.name


def names_of(alike: Sequence[Allocator], memory: Memory) -> str:
    """Return the names of similar allocators of one host, with the host if there are several."""
    names = listed(sorted((each.name for each in alike), key=lambda name: (len(name), name)), _LISTED)
    return f"{names} on {alike[0].host}" if memory.host_count > 1 else names


def is_full(allocator: Allocator) -> bool:
    """Return whether the peak is at least `CAPACITY_PERCENT` of the capacity."""
    # A host allocator can use all memory of the machine, and its free part is not recorded.
    return allocator.place != "host" and (allocator.peak_percent or 0.0) >= CAPACITY_PERCENT


def _full(allocator: Allocator) -> Finding | None:
    if not is_full(allocator):
        return None
    step = f", step {allocator.peak_step}" if allocator.peak_step is not None else ""
    share, time = _peak_share(allocator), Quantity("peak_at", allocator.peak_ms, "ms", of=_owner(allocator))
    text = (
        f"reaches {format_bytes(allocator.peak_bytes)}, {share} of its capacity, at {time}{step} "
        f"(threshold: {CAPACITY_PERCENT:.0f}%)."
    )
    quantities: tuple[Quantity, ...] = (share, time)
    if (largest := _largest_op(allocator)) is not None:
        op, share_of_op = largest
        text = f"{text.removesuffix('.')}; the largest: {op}, {share_of_op}."
        quantities = (*quantities, share_of_op)
    code = "pinned_memory_full" if allocator.place == "pinned host" else "memory_full"
    return Finding(code, "problem", text, causes=_PRESSURE, quantities=quantities)


def _largest_op(allocator: Allocator) -> tuple[str, Quantity] | None:
    """Return the op with the most memory at the peak, with its shape, and its share; None if it has little."""
    columns = by_op(allocator.alive, allocator.peak_bytes)
    row = next((row for row, op in enumerate(columns["op"]) if op), None)
    if row is None:
        return None
    op, shape, count, total = (columns[key][row] for key in ("op", "shape", "count", "total_bytes"))
    share = percent(total, allocator.peak_bytes) if isinstance(total, int) else None
    if share is None or share < _LEAST_PERCENT:
        return None
    text = f"{f'{count} x ' if count != 1 else ''}{op}{f' {shape}' if shape else ''}"
    return text, Quantity("largest_op", share, of=_owner(allocator))


_LEAST_PERCENT = 5.0
"""Share of the peak from which the largest op is named."""


def _owner(allocator: Allocator) -> str:
    return f"{allocator.name} on {allocator.host}"


def _peak_share(allocator: Allocator) -> Quantity:
    return Quantity("peak", allocator.peak_percent, of=_owner(allocator))


def _highest_percent(allocator: Allocator) -> float:
    """Return the share of the capacity at the highest use since the program started."""
    highest = max(allocator.peak_bytes, allocator.lifetime_peak_bytes or 0)
    return percent(highest, allocator.capacity_bytes or 0) or 0.0


def _was_full(allocator: Allocator) -> Finding | None:
    lifetime_percent = _highest_percent(allocator)
    if allocator.place == "host" or is_full(allocator) or lifetime_percent < CAPACITY_PERCENT:
        return None
    share = Quantity("lifetime_peak", lifetime_percent, of=_owner(allocator))
    text = (
        f"reached {format_bytes(allocator.lifetime_peak_bytes)}, {share} of its capacity, "
        f"outside the capture; within it, {format_bytes(allocator.peak_bytes)}. To see its contents, capture that "
        "time (the first steps, evaluation, a checkpoint)."
    )
    return Finding("memory_was_full", "hint", text, quantities=(share,))


def _fragmented(allocator: Allocator) -> Finding | None:
    fragmented = allocator.full_fragmentation_percent
    if allocator.place != "device" or fragmented is None or fragmented < FRAGMENTED_PERCENT:
        return None
    share = Quantity("full_fragmentation", fragmented, of=_owner(allocator))
    text = (
        f"is fragmented: up to {share} of its free memory is outside the largest free block while "
        f"{100 * FULL_SHARE:.0f}% or more of its capacity is in use (threshold: {FRAGMENTED_PERCENT:.0f}%). A large "
        "tensor may not fit although enough memory is free."
    )
    return Finding("memory_fragmented", "problem", text, causes=_PRESSURE, quantities=(share,))


def _growing(allocator: Allocator) -> Finding | None:
    growth, steps_left = allocator.growth_bytes_per_step, None
    if not growth:
        return None
    steps, rate = allocator.growth_steps, format_bytes(growth)
    text = f"grows steadily: over {steps} steps, the memory that stays in use grows by {rate} per step."
    if allocator.capacity_bytes:
        steps_left = (allocator.capacity_bytes - allocator.peak_bytes) / growth
        text += f" At this rate, it is full after {int(steps_left):,} more steps."
    is_problem = growth >= GROWTH_BYTES_PER_STEP if steps_left is None else steps_left <= FULL_WITHIN_STEPS
    return Finding("memory_growth", "problem", text, causes=_PRESSURE) if is_problem else None


def _nothing_wrong(memory: Memory) -> tuple[Finding, ...]:
    if not memory.allocators:
        return ()
    alike = memory.alike[0]
    fullest, name, peak = alike[0], names_of(alike, memory), format_bytes(alike[0].peak_bytes)
    if fullest.place == "host" or fullest.peak_percent is None:
        return (Finding("memory_fine", "info", f"No problem found: {name} peaks at {peak}."),)
    share = _peak_share(fullest)
    capacity = format_bytes(fullest.capacity_bytes)
    which = "" if fullest.is_tpu and len(memory.alike) == 1 else ", the fullest,"
    peaks, its = ("each peak", "their") if len(alike) > 1 else ("peaks", "its")
    text = f"No problem found: {name}{which} {peaks} at {peak}, {share} of {its} capacity of {capacity}."
    return (Finding("memory_fine", "info", text, quantities=(share,)),)
