"""What stands out among kernels: launching, tensor cores, copies to the device, and a single kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfperf.base.units import format_number
from tfperf.report.model import Finding, Quantity

if TYPE_CHECKING:
    from tfperf.sections.kernels.analysis import Kernels
    from tfperf.sections.kernels.devices import Copies

TINY_PERCENT = 50.0
"""Share of kernels shorter than 10 us from which they are named, if as many find their stream idle."""
MISSED_PERCENT = 10.0
"""Share of kernel time from which ops that tensor cores could do are named."""
COPY_PERCENT = 5.0
"""Share of the capture from which slow copies to the device are named."""
ONE_KERNEL_PERCENT = 50.0
"""Share of kernel time from which one kernel is named."""
_SLOW_GB, _LARGE_BYTES = 5.0, 1_000_000


def kernel_findings(kernels: Kernels | None) -> tuple[Finding, ...]:
    """Return what stands out; nothing without a device."""
    if kernels is None:
        return ()
    rules = (_small_kernels, _missed_tensor_cores, _slow_copies, _largest_kernel) if len(kernels) else (_slow_copies,)
    return tuple(finding for rule in rules if (finding := rule(kernels)) is not None)


def _small_kernels(kernels: Kernels) -> Finding | None:
    """Judge the device with the most kernels."""
    device = max(kernels.launches, key=lambda launches: launches.kernels, default=None)
    tiny, unqueued = (device.tiny_kernel_percent, device.unqueued_percent) if device else (None, None)
    if device is None or tiny is None or unqueued is None or min(tiny, unqueued) < TINY_PERCENT:
        return None
    short, early = (
        Quantity(key, share, of=device.device)
        for key, share in (("tiny_kernels", tiny), ("unqueued_kernels", unqueued))
    )
    text = (
        f"Small kernels keep {device.device} waiting for the host: {short} of its kernels take less than 10 us, and "
        f"{early} find their stream idle when they are launched (threshold {TINY_PERCENT:.0f}% each)."
    )
    causes = ("launch_bound", "small_work_per_step")
    return Finding("small_kernels", "hint", text, causes=causes, quantities=(short, early))


def _missed_tensor_cores(kernels: Kernels) -> Finding | None:
    missed = kernels.missed_tensor_cores()
    percent = 100.0 * sum(missed.values()) / max(kernels.whole_ps, 1.0)
    if kernels.has_tensor_cores is not True or percent < MISSED_PERCENT:
        return None
    share = Quantity("missed_tensor_cores", percent, of="kernel time")
    text = (
        f"Ops that could use tensor cores take {share} of the kernel time without them (most: {next(iter(missed))}; "
        f"threshold {MISSED_PERCENT:.0f}%)."
    )
    return Finding("no_tensor_cores", "hint", text, causes=("device_compute_32bit",), quantities=(share,))


def _slow_copies(kernels: Kernels) -> Finding | None:
    wall_ps = {(device.host, device.device): device.wall_ps for device in kernels.devices}
    slow = [copies for copies in kernels.copies if _is_slow(copies, wall_ps[copies.host, copies.device])]
    if not slow:
        return None
    worst = max(slow, key=lambda copies: copies.total_ps)
    details = [f"{format_number(worst.gb_per_second)} GB/s"] if worst.gb_per_second is not None else []
    details += [f"from {worst.memory} memory"] if worst.memory else []
    percent = 100.0 * worst.total_ps / wall_ps[worst.host, worst.device]
    share = Quantity("slow_copies", percent, of=f"capture, {worst.device}")
    text = (
        f"Copies to {worst.device} take {share} of the capture ({', '.join(details)}; threshold "
        f"{COPY_PERCENT:.0f}% if pageable, or below {_SLOW_GB:.0f} GB/s for copies of 1 MB and more)."
    )
    return Finding("slow_copies", "hint", text, causes=("input_copy",), quantities=(share,))


def _is_slow(copies: Copies, wall_ps: int) -> bool:
    rate, mean = copies.gb_per_second, copies.mean_bytes
    is_below = rate is not None and mean is not None and rate < _SLOW_GB and mean >= _LARGE_BYTES
    is_pageable = 2 * copies.pageable_ps >= copies.total_ps
    takes_long = 100.0 * copies.total_ps >= COPY_PERCENT * wall_ps > 0
    return copies.kind == "H2D" and takes_long and (is_pageable or is_below)


def _largest_kernel(kernels: Kernels) -> Finding | None:
    by_name: dict[str, list[Any]] = kernels.by_name()
    name, percent = by_name["kernel"][0], by_name["percent"][0]
    if percent < ONE_KERNEL_PERCENT:
        return None
    share = Quantity("one_kernel", percent, of="kernel time")
    text = f"{name} takes {share} of the kernel time (named from {ONE_KERNEL_PERCENT:.0f}%)."
    return Finding("one_kernel", "info", text, quantities=(share,))
