"""Conclusions about memory: allocators that are nearly full, fragmented, or grow; else that nothing is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfperf.base.units import format_bytes, listed
from tfperf.report.model import Finding, Quantity
from tfperf.sections.memory.allocator import FULL_SHARE, Allocator

if TYPE_CHECKING:
    from tfperf.sections.memory.analysis import Memory

CAPACITY_PERCENT = 90.0
FRAGMENTED_PERCENT = 25.0
FULL_WITHIN_STEPS = 100_000
"""Growth is a problem where it would fill what is free within so many steps."""
GROWTH_BYTES_PER_STEP = 64 * 1024
"""The same for an allocator whose capacity is unknown."""
_LISTED = 8
"""So many chips of one host are named."""
_PRESSURE = ("memory_pressure",)
"""The cause of the diagnosis that problems are evidence for."""


def findings_of(memory: Memory) -> tuple[Finding, ...]:
    """Return what is wrong with memory, the most severe first; else one sentence that nothing is.

    Of several allocators with the same problem, the first is named and the others are counted. Without events of
    memory, there are no findings.
    """
    findings = []
    for judge in (_full, _was_full, _fragmented, _growing):
        judged = [(allocator, judge(allocator)) for allocator in memory.allocators]
        affected = [(allocator, finding) for allocator, finding in judged if finding is not None]
        if affected:
            allocator, finding = affected[0]
            others = len(affected) - 1
            more = f" The same holds for {others} more allocator{'s' * (others > 1)}." if others else ""
            findings.append(replace(finding, text=f"{name_of(allocator, memory)} {finding.text}{more}"))
    return tuple(findings) or _nothing_wrong(memory)


def name_of(allocator: Allocator, memory: Memory) -> str:
    """Return the name of an allocator, with its host if there are several."""
    return f"{allocator.name} on {allocator.host}" if memory.host_count > 1 else allocator.name


def names_of(alike: Sequence[Allocator], memory: Memory) -> str:
    """Return the names of allocators of one host that are alike, with the host if there are several."""
    names = listed(sorted((each.name for each in alike), key=lambda name: (len(name), name)), _LISTED)
    return f"{names} on {alike[0].host}" if memory.host_count > 1 else names


def _is_full(allocator: Allocator) -> bool:
    # What a host's allocator may take is all memory of the machine; how much of that is free is not noted.
    return allocator.place != "host" and (allocator.peak_percent or 0.0) >= CAPACITY_PERCENT


def _full(allocator: Allocator) -> Finding | None:
    if not _is_full(allocator):
        return None
    step = f", step {allocator.peak_step}" if allocator.peak_step is not None else ""
    share, time = _peak_share(allocator), Quantity("peak_at", allocator.peak_ms, "ms", of=_owner(allocator))
    text = (
        f"reaches {format_bytes(allocator.peak_bytes)}, {share} of its capacity, at {time}{step} "
        f"(threshold {CAPACITY_PERCENT:.0f}%)."
    )
    code = "pinned_memory_full" if allocator.place == "pinned host" else "memory_full"
    return Finding(code, "problem", text, causes=_PRESSURE, quantities=(share, time))


def _owner(allocator: Allocator) -> str:
    return f"{allocator.name} on {allocator.host}"


def _peak_share(allocator: Allocator) -> Quantity:
    return Quantity("peak", allocator.peak_percent, of=_owner(allocator))


def _lifetime_percent(allocator: Allocator) -> float:
    if not allocator.capacity_bytes or allocator.lifetime_peak_bytes is None:
        return 0.0
    return 100.0 * allocator.lifetime_peak_bytes / allocator.capacity_bytes


def _was_full(allocator: Allocator) -> Finding | None:
    lifetime_percent = _lifetime_percent(allocator)
    if allocator.place == "host" or _is_full(allocator) or lifetime_percent < CAPACITY_PERCENT:
        return None
    share = Quantity("lifetime_peak", lifetime_percent, of=_owner(allocator))
    text = (
        f"reached {format_bytes(allocator.lifetime_peak_bytes)}, {share} of its capacity, "
        f"outside the capture; within it, {format_bytes(allocator.peak_bytes)}. What lay there then, only a capture of "
        "that moment shows (the first steps, evaluation, a checkpoint)."
    )
    return Finding("memory_was_full", "hint", text, quantities=(share,))


def _fragmented(allocator: Allocator) -> Finding | None:
    percent = allocator.full_fragmentation_percent
    if allocator.place != "device" or percent is None or percent < FRAGMENTED_PERCENT:
        return None
    share = Quantity("full_fragmentation", percent, of=_owner(allocator))
    text = (
        f"is fragmented: up to {share} of the memory that it holds free is not in its largest "
        f"piece, while {100 * FULL_SHARE:.0f}% or more of its capacity is in use (threshold "
        f"{FRAGMENTED_PERCENT:.0f}%). A large tensor may not fit although enough is free."
    )
    return Finding("memory_fragmented", "problem", text, causes=_PRESSURE, quantities=(share,))


def _growing(allocator: Allocator) -> Finding | None:
    growth, steps_left = allocator.growth_bytes_per_step, None
    if not growth:
        return None
    text = (
        f"grows steadily: over {allocator.growth_steps} steps, what stays in use grows by {format_bytes(growth)} per "
        "step."
    )
    if allocator.capacity_bytes:
        steps_left = (allocator.capacity_bytes - allocator.peak_bytes) / growth
        text += f" At that rate it is full after {int(steps_left):,} more steps."
    is_problem = growth >= GROWTH_BYTES_PER_STEP if steps_left is None else steps_left <= FULL_WITHIN_STEPS
    return Finding("memory_growth", "problem", text, causes=_PRESSURE) if is_problem else None


def _nothing_wrong(memory: Memory) -> tuple[Finding, ...]:
    if not memory.allocators:
        return ()
    alike = memory.alike[0]
    fullest, name, peak = alike[0], names_of(alike, memory), format_bytes(alike[0].peak_bytes)
    if fullest.place == "host" or fullest.peak_percent is None:
        return (Finding("memory_fine", "info", f"No problem seen: {name} peaks at {peak}."),)
    share = _peak_share(fullest)
    capacity = format_bytes(fullest.capacity_bytes)
    which = "" if fullest.is_tpu and len(memory.alike) == 1 else ", the fullest,"
    peaks, its = ("each peak", "their") if len(alike) > 1 else ("peaks", "its")
    text = f"No problem seen: {name}{which} {peaks} at {peak}, {share} of {its} capacity of {capacity}."
    return (Finding("memory_fine", "info", text, quantities=(share,)),)
