"""The section about memory: how full each allocator became, what lay in it then, and what to change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfperf.sections.memory.analysis import FULL_SHARE, Allocator, Memory

from tfperf.report.model import Column, Finding, Section, Severity, Sparkline, Table
from tfperf.reports import memory_columns
from tfperf.units import format_bytes, format_ms, format_percent

CAPACITY_PERCENT = 90.0
FRAGMENTED_PERCENT = 25.0
GROWTH_STEPS = 100_000
"""There is advice where growth would fill what is free within so many steps."""
GROWTH_BYTES = 64 * 1024
"""The same for an allocator whose capacity is not known, in bytes per step."""
_ROOM_PERCENT = 50.0
_UNKNOWN_PERCENT = 50.0
_STEADY = 0.01
_CHARTS = 4

_TITLE = "Memory"
_NO_THREADS = "The trace holds no event of any host thread, and allocators note their work there."
_NO_EVENTS = (
    "No allocator noted anything, so nothing is known about memory. On a GPU, profile with host tracer level 2 (what "
    "tfperf capture takes) while steps run; TF_GPU_ALLOCATOR=cuda_malloc_async may note nothing at all. On a CPU, only "
    "some builds of TensorFlow note anything (those with oneDNN), and only large tensors."
)
_DEVICE_FULL = (
    "use a smaller batch; keras.mixed_precision.set_global_policy('mixed_float16') halves activations; "
    "tf.recompute_grad(layer) computes them again instead of keeping them; if other processes use the device too, "
    "tf.config.experimental.set_memory_growth(gpu, True) in all of them"
)
_PINNED_FULL = "raise TF_GPU_HOST_MEM_LIMIT_IN_MB, or prefetch fewer batches"
_FRAGMENTED = (
    "keep shapes constant (pad, or put sequences of like length together), and try "
    "TF_GPU_ALLOCATOR=cuda_malloc_async (TensorFlow 2.5 and CUDA 11.2, or later)"
)
_GROWTH = (
    "look for tensors that Python keeps (a list of losses: append float(loss) instead), for models made in a loop "
    "(tf.keras.backend.clear_session() between them), and for functions that are traced again (-s functions)"
)
_ROOM = "a larger batch may use the device better, if steps do not wait for input (-s input)"


def memory_section(found: Memory, top: int | None) -> Section:
    """Build the section; `top` is for people: it cuts tables and shows of one allocator only what lay in it."""
    if not found.allocators:
        return Section("memory", _TITLE, notes=_silent_notes(found))
    shown = found.allocators if top is None else found.allocators[:1]
    tables = [_allocators_table(found), *_alive_tables(found, shown, for_people=top is not None)]
    charts = tuple(sparkline(own, found.hosts) for own in found.allocators[:_CHARTS])
    return Section(
        "memory", _TITLE, findings(found), (), charts,
        tuple(table if top is None else table.head(top) for table in tables), _notes(found),
    )  # fmt: skip


def brief_memory_section(found: Memory, top: int | None) -> Section:
    """Build what stands in a whole report for people: what is wrong, if anything is, and the fullest allocators."""
    if not found.allocators:
        return Section("memory", _TITLE, notes=_silent_notes(found))
    table = _allocators_table(found)
    shown = table if top is None else table.head(top)
    return Section("memory", _TITLE, findings(found), tables=(shown,), notes=("More: -s memory.",))


# --- findings ---


def findings(found: Memory) -> tuple[Finding, ...]:
    """Return what is wrong with memory, the gravest first; else one sentence that nothing is; nothing of no events."""
    if not found.allocators:
        return ()
    several = found.hosts > 1
    advice = [
        *_finding("memory_full", "problem", found.allocators, _is_full, _full_text, several),
        *_finding("memory_was_full", "hint", found.allocators, _was_full, _was_full_text, several),
        *_finding("memory_fragmented", "problem", found.allocators, _is_fragmented, _fragmented_text, several),
        *_finding("memory_growth", "problem", found.allocators, _grows, _growth_text, several),
    ]
    return tuple(advice) or (_nothing(found, several),)


def _finding(
    code: str, severity: Severity, allocators: Sequence[Allocator], is_so: Callable[[Allocator], bool],
    text: Callable[[Allocator], tuple[str, str]], several_hosts: bool,
) -> list[Finding]:  # fmt: skip
    """Return the finding for the first allocator that it is true of; the others are counted."""
    which = [own for own in allocators if is_so(own)]
    if not which:
        return []
    said, action = text(which[0])
    more = f" The same holds for {len(which) - 1} more." if len(which) > 1 else ""
    return [Finding(code, severity, f"{_name(which[0], several_hosts)} {said}{more}", action)]


def _name(own: Allocator, several_hosts: bool) -> str:
    return f"{own.name} on {own.host}" if several_hosts else own.name


def _is_full(own: Allocator) -> bool:
    # What a host's allocator may take is all memory of the machine; how much of that is free nobody notes.
    return own.place != "host" and (own.peak_percent or 0.0) >= CAPACITY_PERCENT


def _full_text(own: Allocator) -> tuple[str, str]:
    step = f", step {own.peak_step}" if own.peak_step is not None else ""
    text = (
        f"comes to {format_bytes(own.peak_bytes)}, {format_percent(own.peak_percent)}% of its capacity, at "
        f"{format_ms(own.peak_ms)} ms{step} (advice from {CAPACITY_PERCENT:.0f}%)."
    )
    return text, _PINNED_FULL if own.place == "pinned host" else _DEVICE_FULL


def _lifetime_percent(own: Allocator) -> float:
    if not own.capacity_bytes or own.lifetime_peak_bytes is None:
        return 0.0
    return 100.0 * own.lifetime_peak_bytes / own.capacity_bytes


def _was_full(own: Allocator) -> bool:
    return own.place != "host" and not _is_full(own) and _lifetime_percent(own) >= CAPACITY_PERCENT


def _was_full_text(own: Allocator) -> tuple[str, str]:
    text = (
        f"came to {format_bytes(own.lifetime_peak_bytes)}, {format_percent(_lifetime_percent(own))}% of its capacity, "
        f"outside the capture; in it, to {format_bytes(own.peak_bytes)}."
    )
    return text, "capture when that happens (the first steps, evaluation, a checkpoint) to see what lies there then"


def _is_fragmented(own: Allocator) -> bool:
    return own.place == "device" and (own.full_fragmentation_percent or 0.0) >= FRAGMENTED_PERCENT


def _fragmented_text(own: Allocator) -> tuple[str, str]:
    text = (
        f"is fragmented: up to {format_percent(own.full_fragmentation_percent)}% of the memory that it holds free is "
        f"not in its largest piece, while {100 * FULL_SHARE:.0f}% or more of its capacity is in use (advice from "
        f"{FRAGMENTED_PERCENT:.0f}%). A large tensor may find no place although enough is free."
    )
    return text, _FRAGMENTED


def _steps_left(own: Allocator) -> float | None:
    """Return after how many steps the allocator is full if it goes on growing; None: capacity unknown."""
    if not own.capacity_bytes or not own.growth_bytes_per_step:
        return None
    return (own.capacity_bytes - own.peak_bytes) / own.growth_bytes_per_step


def _grows(own: Allocator) -> bool:
    left = _steps_left(own)
    return left <= GROWTH_STEPS if left is not None else (own.growth_bytes_per_step or 0.0) >= GROWTH_BYTES


def _growth_text(own: Allocator) -> tuple[str, str]:
    left = _steps_left(own)
    text = (
        f"grows steadily: over {own.growth_steps} steps, what stays in use grows by "
        f"{format_bytes(own.growth_bytes_per_step)} a step."
    )
    if left is not None:
        text += f" At that rate it is full after {int(left):,} more steps."
    return text, _GROWTH


def _nothing(found: Memory, several_hosts: bool) -> Finding:
    own = found.allocators[0]
    text = "No problem seen"
    if own.place == "host" or own.peak_percent is None:
        return Finding("memory_fine", "info", f"{text}: {_name(own, several_hosts)} peaks at {_peak(own)}.")
    text += f": {_name(own, several_hosts)}, the fullest, peaks at {_peak(own)}"
    text += f", {format_percent(own.peak_percent)}% of its capacity of {format_bytes(own.capacity_bytes)}."
    has_room = own.place == "device" and 0 < _lifetime_percent(own) <= _ROOM_PERCENT
    return Finding("memory_fine", "info", text, _ROOM if has_room else "")


def _peak(own: Allocator) -> str:
    return format_bytes(own.peak_bytes)


# --- tables and charts ---


def _table(
    name: str, title: str, declared: tuple[Column, ...], data: Mapping[str, Sequence[Any]], note: str = ""
) -> Table:
    rows = len(data[declared[0].key])
    return Table(name, title, declared, {column.key: data[column.key] for column in declared}, rows, note)


def _allocators_table(found: Memory) -> Table:
    declared = memory_columns.allocators(several_hosts=found.hosts > 1)
    return _table("memory_allocators", "Allocators, the fullest first", declared, found.columns())


def _alive_tables(found: Memory, allocators: tuple[Allocator, ...], *, for_people: bool) -> list[Table]:
    """Return what lay in the allocators at their peaks; people see sums, and the timeline as a chart instead."""
    shown = Memory(allocators, found.hosts, (), (), 0)
    left = len(found.allocators) - len(allocators)
    where = f"the peak of {_name(allocators[0], found.hosts > 1)}" if for_people else "the peak of each allocator"
    by_op, by_scope = (_with_names(columns) for columns in (shown.op_columns(), shown.scope_columns()))
    note = " ".join([_STAR] * any("*" in str(op) for op in by_op["op"]) + [_MORE.format(left)] * bool(left))
    tables = [
        _table("memory_by_op", f"Alive at {where}, by op", memory_columns.BY_OP, by_op, note),
        _table("memory_by_scope", f"Alive at {where}, by name scope", memory_columns.BY_SCOPE, by_scope),
    ]
    if for_people:
        # Without names one line would say that it is all.
        return tables if any(by_scope["scope"]) else tables[:1]
    return [
        _table("memory_alive", f"Alive at {where}", memory_columns.ALIVE, shown.alive_columns()),
        *tables,
        _table("memory_timeline", "Memory in use over time", memory_columns.TIMELINE, shown.timeline_columns()),
    ]


_STAR = "Where several ops add up, as those of layers do, their numbers are shown as *. In JSON and CSV: each op."
_MORE = "Not shown are other allocators ({}); JSON and CSV have them."
_WHAT = {
    "tensor": "(no name)",
    "before the capture": "(allocated before the capture)",
    "reserved": "(stack, reserved)",
}


def _with_names(columns: dict[str, list[object]]) -> dict[str, list[object]]:
    names = columns["op" if "op" in columns else "scope"]
    return {**columns, "what": [text or _WHAT[str(kind)] for text, kind in zip(names, columns["kind"], strict=True)]}


def sparkline(own: Allocator, hosts: int = 1) -> Sparkline:
    """Return the memory in use of an allocator over time, drawn between its least and its most."""
    times, values = own.timeline.time_ms.tolist(), own.timeline.in_use_bytes.tolist()
    low, high = min(values), max(values)
    # Stretching a hundredth over the whole height would show noise as a mountain range.
    steady = high - low < _STEADY * high
    scale = "all the time, within 1%" if steady else f"(highest), {format_bytes(low)} (lowest)"
    title = (
        f"{_name(own, hosts > 1)}: {format_bytes(high)} in use {scale}, {format_ms(times[0])} to "
        f"{format_ms(times[-1])} ms"
    )
    low = 0 if steady else low
    return Sparkline(title, tuple(times), tuple(map(float, values)), float(low), float(high), "bytes")


# --- notes ---


def _silent_notes(found: Memory) -> tuple[str, ...]:
    if len(found.threads_missing) == found.hosts:
        return (_NO_THREADS,)
    if found.malformed_events:
        return (f"The {found.malformed_events:,} events of allocators do not say how much is in use.",)
    return (_NO_EVENTS,)


def _notes(found: Memory) -> tuple[str, ...]:
    notes = []
    if found.silent_hosts:
        named = ", ".join(found.silent_hosts[:3])
        notes.append(f"{len(found.silent_hosts)} of {found.hosts} hosts noted nothing about memory: {named}.")
    if found.malformed_events:
        notes.append(f"{found.malformed_events:,} events are left out: they do not say how much is in use.")
    notes += _contradictions(found)
    own = found.allocators[0]
    if (own.before_percent or 0.0) >= _UNKNOWN_PERCENT:
        notes.append(
            f"{format_percent(own.before_percent)}% of the peak of {_name(own, found.hosts > 1)} was allocated before "
            "the capture (variables, mostly), so nothing tells by what; a capture from the first step on does."
        )
    if any(own.place == "host" for own in found.allocators):
        notes.append(
            "Allocators of the host (mklcpu) note only what they give out themselves; their capacity is the memory of "
            "the machine, so how full they are says nothing."
        )
    return tuple(notes)


def _contradictions(found: Memory) -> list[str]:
    broken = [own for own in found.allocators if own.contradictions or own.before_bytes is None]
    if not broken:
        return []
    own = broken[0]
    more = f", and in {len(broken) - 1} more allocators" if len(broken) > 1 else ""
    return [
        f"In {_name(own, found.hosts > 1)}{more}, {own.contradictions:,} of {own.allocations + own.frees:,} events do "
        "not follow from the one before: some were lost, or several allocators share the name. What is in use is right "
        "all the same; what is listed as alive may have been freed."
    ]
