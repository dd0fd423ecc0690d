"""The report section on kernels, copies, launches and device time."""

from __future__ import annotations

from tfperf.analysis.registry import Results, present
from tfperf.base.units import PS_PER_MS, format_ms, format_number, format_percent
from tfperf.report.model import Fact, Finding, Level, Quantity, Section, Table, at_levels
from tfperf.report.shown import MOST_EACH
from tfperf.sections.kernels import (
    API_CALLS,
    ASYNC_COPIES,
    COMPUTE_PRECISION,
    COPIES,
    DEVICE_TIME,
    KERNEL_FAMILIES,
    KERNEL_REGIONS,
    KERNEL_SEQUENCES,
    KERNELS,
    KERNELS_BY_NAME,
    LAUNCHES,
)
from tfperf.sections.kernels.analysis import DeviceTotals, Kernels
from tfperf.trace.host.activities import Attribution

_CANDIDATES = "Candidates for one kernel each, if they compute on the same data: XLA (jit), or a fused op or kernel."
_BY_NAME = "One row per kernel name. Use --by kernel for a row per op and launch shape, with full names."
_NO_KERNELS = "No kernels: the devices recorded only copies or derived lines."
_TPU = "TPUs run whole programs, not kernels. -s ops lists their ops, -s xla their HLO ops."
_SHARED_MEMORY = "Shared memory is the sum of static and dynamic: the profile does not record them separately."
_EARLY = "Negative delays: {:,} of {:,} launching calls returned after their first kernel had started."
_AT_LEAST = (
    "GB/s is between bytes / time in flight and bytes / time waited: a copy may wait for another one, or finish "
    "before the core waits for it."
)
_UNMATCHED = "{:,} of {:,} kernels have no known host call."
_BEFORE = (
    "{:,} of {:,} launching calls began after their first kernel had started: the clocks of host and device disagree, "
    "so delays are wrong by that difference."
)
_AS_TENSORFLOW = (
    "As in TensorFlow's profiler: only kernels with launch details, its rules for tensor cores, and whole nanoseconds. "
    "Times of devices, copies and launches do not depend on the attribution."
)


def build(results: Results) -> Section:
    """Return the section."""
    kernels: Kernels = results["kernels"]
    levels: dict[str, Level] = {} if results.has_several_hosts else {"host": "data"}
    shown: dict[str, Level] = {column.key: "brief" for column in COMPUTE_PRECISION.columns}
    precision = at_levels(COMPUTE_PRECISION.columns, shown | levels)
    each: Level = "brief" if results.view.by == "kernel" else "data"
    by_name: Level = "data" if results.view.by == "kernel" else "brief"
    of_devices: Level = "brief" if len(kernels.devices) > MOST_EACH else "data"
    launches = [kernel.launch for kernel in kernels.kernels]
    has_sums = any(each.shared_bytes is not None and each.static_shared_bytes is None for each in launches)
    names = KERNELS_BY_NAME.build(results, bar_key="percent", level=by_name, note=_BY_NAME)
    families = KERNEL_FAMILIES.build(results)
    return Section(
        "kernels",
        "TPU cores" if _is_tpu(kernels) else "GPU kernels",
        findings=kernel_findings(kernels, names, families),
        facts=_facts(kernels, several_hosts=results.has_several_hosts),
        tables=present(
            names,
            KERNELS.build(results, level=each),
            families,
            KERNEL_SEQUENCES.build(results, level="full", note=_CANDIDATES),
            COPIES.build(results, columns=at_levels(COPIES.columns, levels)),
            ASYNC_COPIES.build(results, note=_AT_LEAST),
            KERNEL_REGIONS.build(results),
            LAUNCHES.build(results, columns=at_levels(LAUNCHES.columns, levels)),
            API_CALLS.build(results, columns=at_levels(API_CALLS.columns, levels), level="full"),
            COMPUTE_PRECISION.build(results, columns=precision, level="data"),
            DEVICE_TIME.build(results, columns=at_levels(DEVICE_TIME.columns, levels), level=of_devices),
        ),
        notes=_notes(kernels, results.attribution),
        detail_notes=(_SHARED_MEMORY,) if has_sums else (),
    )


def _is_tpu(kernels: Kernels) -> bool:
    return any(device.device.startswith("TPU") for device in kernels.devices)


def _facts(kernels: Kernels, *, several_hosts: bool) -> tuple[Fact, ...]:
    few = kernels.devices if len(kernels.devices) <= MOST_EACH else ()
    devices = tuple(_device_fact(device, several_hosts=several_hosts) for device in few)
    if not len(kernels):
        return devices
    on_devices = f" on {len(kernels.launches)} devices" if len(kernels.launches) > 1 else ""
    note = f"{int(kernels.occurrences.sum()):,} kernels{on_devices}, summed over streams"
    total = Fact("kernel_time", "Total kernel time", kernels.whole_ps / PS_PER_MS, "ms", note)
    if kernels.has_tensor_cores is False:
        return (total, *devices)
    used_ps, unknown_ps = (kernels.time_by_tensor_cores_ps(answer) for answer in (True, None))
    note = "of kernel time, by kernel name"
    used, unknown = (
        Quantity(key, 100.0 * part_ps / kernels.whole_ps, of="kernel time")
        for key, part_ps in (("tensor_cores", used_ps), ("tensor_cores_unknown", unknown_ps))
    )
    if unknown_ps:
        note += f"; unknown for {unknown}"
    fact = Fact("tensor_core_percent", f"On {kernels.tensor_cores}", used.value, "%", note, quantities=(used, unknown))
    return (total, *devices, fact)


def _device_fact(device: DeviceTotals, *, several_hosts: bool) -> Fact:
    label = f"{device.host} {device.device}" if several_hosts else device.device
    times_ps = device.compute_ps, device.copies_alone_ps, device.idle_ps, device.wall_ps, device.kernel_sum_ps
    hidden_ps = device.copies_ps - device.copies_alone_ps
    compute, copies, idle, wall, kernel_sum, hidden, exchanging = (
        f"{format_ms(ps / PS_PER_MS)} ms" for ps in (*times_ps, hidden_ps, device.collectives_alone_ps)
    )
    collectives = f" + {exchanging} collectives" * bool(device.collectives_alone_ps)
    if device.device.startswith("TPU"):
        waiting = f" + {copies} waiting for data" * bool(device.copies_alone_ps)
        text = f"{compute} in {'other ' * bool(collectives)}ops{collectives}{waiting} + {idle} idle = {wall}"
        return Fact(f"device_time_{label}", label, f"{text}, first to last op")
    text = f"{compute} compute{collectives} + {copies} copies and memsets + {idle} idle = {wall} wall"
    overlaps = device.kernel_sum_ps > device.compute_ps + device.collectives_alone_ps
    note = f"kernels sum to {kernel_sum}" + ", because kernels overlap" * overlaps
    hidden_exchange_ps = device.collectives_ps - device.collectives_alone_ps
    if hidden_exchange_ps > 0:
        note += f"; {format_ms(hidden_exchange_ps / PS_PER_MS)} ms of collectives overlap compute"
    if hidden_ps > 0:
        note += f"; {hidden} of copies and memsets overlap {'kernels' if collectives else 'compute'}"
    return Fact(f"device_time_{label}", label, text, note=note)


def _notes(kernels: Kernels, attribution: Attribution) -> tuple[str, ...]:
    if not len(kernels):
        return (_TPU if _is_tpu(kernels) else _NO_KERNELS,)
    notes = [_AS_TENSORFLOW] if attribution == "tensorflow" else []
    rows = zip(kernels.kernels, kernels.total_ps.tolist(), strict=True)
    without_op_ps = sum(total_ps for kernel, total_ps in rows if not kernel.op.name)
    if without_op_ps:
        percent = format_percent(100.0 * without_op_ps / kernels.whole_ps)
        notes.append(f"The profile has no op for {percent}% of the kernel time.")
    keys = ("launches", "kernels", "early", "before", "unmatched_kernels")
    sums = (sum(getattr(device, key) for device in kernels.launches) for key in keys)
    launched, all_kernels, early, before, unmatched = sums
    texts = ((_EARLY, early, launched), (_BEFORE, before, launched), (_UNMATCHED, unmatched, all_kernels))
    return (*notes, *(text.format(count, whole) for text, count, whole in texts if count))


TINY_PERCENT = 50.0
"""Threshold for the share of kernels shorter than 10 us, and of kernels that find their stream idle."""
MISSED_PERCENT = 10.0
"""Threshold for the share of kernel time in ops that could use tensor cores but do not."""
COPY_PERCENT = 5.0
"""Threshold for the share of slow copies to the device in the capture."""
ONE_KERNEL_PERCENT = 50.0
"""Threshold for the share of one kernel in kernel time."""
_SLOW_GB, _LARGE_BYTES = 5.0, 1_000_000


MOVEMENT_PERCENT = 30.0
"""Threshold for the share of sorts, gathers and scatters in kernel time."""


def kernel_findings(kernels: Kernels, names: Table | None, families: Table | None) -> tuple[Finding, ...]:
    """Return findings on the kernels of all hosts; the tables of their names and families are None without kernels."""
    found = [_small_kernels(kernels), _missed_tensor_cores(kernels), _slow_copies(kernels)]
    if names is not None and families is not None:
        found += [_largest_kernel(names), _data_movement(families)]
    return tuple(finding for finding in found if finding is not None)


def _data_movement(families: Table) -> Finding | None:
    rows = zip(*(families.data[key] for key in ("family", "percent", "kernel")), strict=True)
    moves = ((share, name) for family, share, name in rows if family == "sort, gather, scatter")
    percent, kernel = next(moves, (0.0, ""))
    if percent < MOVEMENT_PERCENT:
        return None
    share = Quantity("data_movement", percent, of="kernel time")
    text = (
        f"Sorts, gathers and scatters take {share} of kernel time (largest: {kernel}; threshold: "
        f"{MOVEMENT_PERCENT:.0f}%)."
    )
    return Finding("data_movement", "hint", text, quantities=(share,))


def _small_kernels(kernels: Kernels) -> Finding | None:
    device = max(kernels.launches, key=lambda launches: launches.kernels, default=None)
    tiny, unqueued = (device.tiny_kernel_percent, device.unqueued_percent) if device else (None, None)
    if device is None or tiny is None or unqueued is None or min(tiny, unqueued) < TINY_PERCENT:
        return None
    short, early = (
        Quantity(key, share, of=device.device)
        for key, share in (("tiny_kernels", tiny), ("unqueued_kernels", unqueued))
    )
    text = (
        f"Small kernels leave {device.device} waiting for the host: {short} of its kernels take less than 10 us, "
        f"and {early} of its launching calls find the stream idle (threshold: {TINY_PERCENT:.0f}% each)."
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
        f"{share} of kernel time is in ops that could use {kernels.tensor_cores} but do not (largest: "
        f"{next(iter(missed))}; threshold: {MISSED_PERCENT:.0f}%)."
    )
    return Finding("no_tensor_cores", "hint", text, causes=("device_compute_32bit",), quantities=(share,))


def _slow_copies(kernels: Kernels) -> Finding | None:
    wall_ps = {(device.host, device.device): device.wall_ps for device in kernels.devices}
    slow = []
    for copies in kernels.copies:
        rate, mean = copies.gb_per_second, copies.mean_bytes
        is_below = rate is not None and mean is not None and rate < _SLOW_GB and mean >= _LARGE_BYTES
        is_pageable = 2 * copies.pageable_ps >= copies.total_ps
        takes_long = 100.0 * copies.total_ps >= COPY_PERCENT * wall_ps[copies.host, copies.device] > 0
        if copies.kind == "H2D" and takes_long and (is_pageable or is_below):
            slow.append(copies)
    if not slow:
        return None
    worst = max(slow, key=lambda copies: copies.total_ps)
    details = [f"{format_number(worst.gb_per_second)} GB/s"] if worst.gb_per_second is not None else []
    details += [f"from {worst.memory} memory"] if worst.memory else []
    percent = 100.0 * worst.total_ps / wall_ps[worst.host, worst.device]
    share = Quantity("slow_copies", percent, of=f"capture, {worst.device}")
    text = (
        f"Copies to {worst.device} take {share} of the capture ({', '.join(details)}; threshold: "
        f"{COPY_PERCENT:.0f}%, for pageable memory or copies of 1 MB or more below {_SLOW_GB:.0f} GB/s)."
    )
    return Finding("slow_copies", "hint", text, causes=("input_copy",), quantities=(share,))


def _largest_kernel(names: Table) -> Finding | None:
    name, percent = names.data["kernel"][0], names.data["percent"][0]
    if percent < ONE_KERNEL_PERCENT:
        return None
    share = Quantity("one_kernel", percent, of="kernel time")
    text = f"{name} takes {share} of kernel time (threshold: {ONE_KERNEL_PERCENT:.0f}%)."
    return Finding("one_kernel", "info", text, quantities=(share,))
