"""Advice on kernels: launching, tensor cores, copies to the device, and a kernel that stands out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfperf.report.model import Finding
from tfperf.units import format_percent

if TYPE_CHECKING:
    from tfperf.sections.kernels.analysis import Kernels
    from tfperf.sections.kernels.devices import Copies

TINY_PERCENT = 50.0
"""Share of kernels shorter than 10 us from which there is advice, if as many find their stream idle."""
MISSED_PERCENT = 10.0
"""Share of kernel time from which advice is given on ops that tensor cores could do."""
COPY_PERCENT = 5.0
"""Share of the capture that slow copies to the device must take for advice."""
ONE_KERNEL_PERCENT = 50.0
"""Share of kernel time from which one kernel is named."""
_SLOW_GB, _LARGE_BYTES = 5.0, 1 << 20
_LAUNCH_LESS = (
    "launch less and larger work: a larger batch, jit_compile=True (XLA fuses small ops), "
    "compile(steps_per_execution=...) in Keras"
)
_MIXED_PRECISION = (
    "mixed precision: keras.mixed_precision.set_global_policy('mixed_float16'), 'mixed_bfloat16' from NVIDIA's A100 "
    "on; units, channels and batch in multiples of 8"
)
_COPY_AHEAD = (
    "copy ahead from pinned memory: end the tf.data pipeline with .prefetch(tf.data.AUTOTUNE) and feed it to Keras or "
    "a tf.function as it is, not through NumPy; send smaller types (uint8) and convert them on the device"
)


def kernel_advice(kernels: Kernels | None) -> tuple[Finding, ...]:
    """Return the advice; none without a device."""
    if kernels is None:
        return ()
    rules = (_launch_advice, _precision_advice, _copy_advice, _largest_kernel) if len(kernels) else (_copy_advice,)
    return tuple(finding for rule in rules if (finding := rule(kernels)) is not None)


def _launch_advice(kernels: Kernels) -> Finding | None:
    """Judge the device with the most kernels."""
    device = max(kernels.launches, key=lambda launches: launches.kernels, default=None)
    tiny, unqueued = (device.tiny_kernel_percent, device.unqueued_percent) if device else (None, None)
    if device is None or tiny is None or unqueued is None or min(tiny, unqueued) < TINY_PERCENT:
        return None
    text = (
        f"Small kernels keep {device.device} waiting for the host: {format_percent(tiny)}% of its kernels take less "
        f"than 10 us, and {format_percent(unqueued)}% find their stream idle when they are launched (threshold "
        f"{TINY_PERCENT:.0f}% each)."
    )
    return Finding("small_kernels", "hint", text, _LAUNCH_LESS)


def _precision_advice(kernels: Kernels) -> Finding | None:
    missed = kernels.missed_tensor_cores()
    percent = 100.0 * sum(missed.values()) / max(kernels.whole_ps, 1.0)
    if kernels.has_tensor_cores is not True or percent < MISSED_PERCENT:
        return None
    text = (
        f"Ops that tensor cores could do take {format_percent(percent)}% of the kernel time without them (most: "
        f"{next(iter(missed))}; threshold {MISSED_PERCENT:.0f}%)."
    )
    return Finding("no_tensor_cores", "hint", text, _MIXED_PRECISION)


def _copy_advice(kernels: Kernels) -> Finding | None:
    wall_ps = {(device.host, device.device): device.wall_ps for device in kernels.devices}
    slow = [copies for copies in kernels.copies if _is_slow(copies, wall_ps[copies.host, copies.device])]
    if not slow:
        return None
    worst = max(slow, key=lambda copies: copies.total_ps)
    details = [f"{worst.gb_per_second:.3g} GB/s"] if worst.gb_per_second is not None else []
    details += [f"from {worst.memory} memory"] if worst.memory else []
    percent = format_percent(100.0 * worst.total_ps / wall_ps[worst.host, worst.device])
    text = (
        f"Copies to {worst.device} take {percent}% of the capture ({', '.join(details)}; threshold "
        f"{COPY_PERCENT:.0f}% if pageable, or below {_SLOW_GB:.0f} GB/s for copies of 1 MiB and more)."
    )
    return Finding("slow_copies", "hint", text, _COPY_AHEAD)


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
    text = f"{name} takes {format_percent(percent)}% of the kernel time (named from {ONE_KERNEL_PERCENT:.0f}%)."
    return Finding("one_kernel", "info", text, "look at its ops first: nothing else can gain as much")
