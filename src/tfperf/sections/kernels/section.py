"""The section about kernels: which take the time, copies, launches, and where the time of each device goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tfperf.sections.kernels.copies import Copies
from tfperf.sections.kernels.analysis import DeviceUse, Kernels
from tfperf.sections.kernels.launches import DeviceLaunches

from tfperf.report.model import Column, Fact, Finding, Section, Table
from tfperf.reports import kernels_columns as columns
from tfperf.trace.activities import Attribution
from tfperf.units import PS_PER_MS, format_percent

TINY_PERCENT = 50.0
"""Share of kernels shorter than 10 us from which there is advice, if as many find their stream idle."""
MISSED_PERCENT = 10.0
"""Share of kernel time from which advice is given on ops that tensor cores could do."""
COPY_PERCENT = 5.0
"""Share of the capture that slow copies to the device must take for advice."""
ONE_KERNEL_PERCENT = 50.0
"""Share of kernel time from which one kernel is named."""
_SLOW_GB, _LARGE_BYTES = 5.0, 1 << 20
_TITLE = "GPU kernels"
_NO_DEVICE = "No kernels: no device recorded anything in this trace."
_NO_KERNELS = "No kernels: the devices of this trace recorded copies or nothing but derived lines."
_TPU = "No kernels: a TPU runs whole programs. -s ops lists their ops."
_COMBINED = "Shared memory is static and dynamic together: the trace does not tell them apart."
_THEIRS = (
    "As TensorFlow has it: only kernels with launch details, its rules for tensor cores, and whole nanoseconds. The "
    "times of devices, copies and launches are ours in both attributions."
)
_FEWER = (
    "launch less and larger work: a larger batch, jit_compile=True (XLA fuses small ops), "
    "compile(steps_per_execution=...) in Keras"
)
_PRECISION = (
    "mixed precision: keras.mixed_precision.set_global_policy('mixed_float16'), 'mixed_bfloat16' from NVIDIA's A100 "
    "on; units, channels and batch in multiples of 8"
)
_COPY_AHEAD = (
    "copy ahead from pinned memory: end the tf.data pipeline with .prefetch(tf.data.AUTOTUNE) and feed it to Keras or "
    "a tf.function as it is, not through NumPy; send smaller types (uint8) and convert them on the device"
)


def kernels_section(kernels: Kernels, attribution: Attribution, host_count: int, top: int | None) -> Section:
    """Build the section; `top` is for people: it cuts the kernels and leaves out what other parts say already."""
    if not kernels.devices:
        return Section("kernels", _TITLE, notes=(_NO_DEVICE,))
    tables = [table if top is None else table.head(top) for table in _tables(kernels, host_count, whole=top is None)]
    return Section(
        "kernels", _TITLE, kernel_advice(kernels), _facts(kernels, host_count, top), (), tuple(tables),
        _notes(kernels, attribution),
    )  # fmt: skip


# --- facts ---


def _facts(kernels: Kernels, host_count: int, top: int | None) -> tuple[Fact, ...]:
    shown = kernels.devices if top is None else kernels.devices[:top]
    facts = [_device_fact(own, several=host_count > 1) for own in shown]
    if len(kernels):
        facts.insert(0, _total_fact(kernels))
        facts += _tensor_core_facts(kernels)
    return tuple(facts)


def _total_fact(kernels: Kernels) -> Fact:
    count = int(kernels.occurrences.sum())
    value = float(kernels.total_ps.sum(dtype="float64")) / PS_PER_MS
    return Fact("kernel_time", "Time of all kernels", value, "ms", f"{count:,} kernels, summed over streams")


def _device_fact(own: DeviceUse, *, several: bool) -> Fact:
    """Return the line that lets a reader check the table: what the device did adds up to the capture."""
    label = f"{own.host} {own.device}" if several else own.device
    compute, copies, idle = in_ms((own.compute_ps, own.copies_alone_ps, own.idle_ps))
    (wall,) = in_ms((own.wall_ps,))
    text = f"{compute} ms compute + {copies} ms copies + {idle} ms idle = {wall} ms wall"
    total = compute if own.kernel_sum_ps == own.compute_ps else in_ms((own.kernel_sum_ps,), own.wall_ps)[0]
    note = f"kernels sum to {total} ms" + ", since streams overlap" * (own.kernel_sum_ps > own.compute_ps)
    (hidden,) = in_ms((own.copies_ps - own.copies_alone_ps,), own.wall_ps)
    if float(hidden.replace(",", "")):
        note += f"; {hidden} ms of copies run beside compute"
    return Fact(f"device_time_{label}", label, text, "", note)


def in_ms(parts: Sequence[int], like_ps: int = 0) -> list[str]:
    """Show picoseconds as milliseconds, rounded so that the parts add up to their rounded sum.

    All have the digits that suit the sum (or `like_ps`). Every part is cut, and what is missing then goes to those cut
    most.
    """
    total = sum(parts)
    digits = _digits(like_ps or total)
    unit = int(PS_PER_MS) // 10**digits
    cut = [part // unit for part in parts]
    missing = (total + unit // 2) // unit - sum(cut)
    for at in sorted(range(len(parts)), key=lambda at: -(parts[at] % unit))[:missing]:
        cut[at] += 1
    return [f"{value / 10**digits:,.{digits}f}" for value in cut]


def _digits(total_ps: int) -> int:
    return 0 if total_ps >= 10_000 * PS_PER_MS else 1 if total_ps >= 100 * PS_PER_MS else 3


def _tensor_core_facts(kernels: Kernels) -> list[Fact]:
    if kernels.has_tensor_cores is False:
        return []
    whole = float(kernels.total_ps.sum(dtype="float64"))
    used, unknown = kernels.on_tensor_cores_ps()
    note = "of kernel time, by the names of the kernels"
    if unknown:
        note += f"; names do not tell of {format_percent(100.0 * unknown / whole)}%"
    return [Fact("tensor_core_percent", "On tensor cores", 100.0 * used / whole, "%", note)]


# --- tables ---


def _tables(kernels: Kernels, host_count: int, *, whole: bool) -> list[Table]:
    tables = []
    if len(kernels):
        every = _table("kernels", "Kernels by total time", columns.KERNELS, kernels.columns())
        tables.append(replace(every, bar_key="percent"))
        if whole:
            by_name = kernels.by_name()
            named = _table("kernels_by_name", "Kernels by name", columns.KERNELS_BY_NAME, by_name)
            tables.append(replace(named, bar_key="percent"))
    if kernels.copies:
        tables.append(_table("copies", "Copies", columns.COPIES, _copy_data(kernels.copies)))
    if kernels.launches.devices:
        data = kernels.launches.columns()
        tables.append(_table("launches", "Launching kernels", columns.LAUNCHES, data))
    if whole:
        tables.append(_table("device_time", "Time of each device", columns.DEVICE_TIME, _time_data(kernels.devices)))
    return [table if host_count > 1 else _without_host(table) for table in tables]


def _table(name: str, title: str, declared: tuple[Column, ...], data: Mapping[str, Sequence[Any]]) -> Table:
    rows = len(data[declared[0].key])
    return Table(name, title, declared, {column.key: data[column.key] for column in declared}, rows)


def _without_host(table: Table) -> Table:
    """Return the table as people see it where there is one host."""
    return replace(table, columns=tuple(
        replace(column, compact=column.compact and column.key != "host") for column in table.columns
    ))  # fmt: skip


def _copy_data(copies: tuple[Copies, ...]) -> dict[str, list[Any]]:
    data: dict[str, list[Any]] = {
        key: [getattr(own, key) for own in copies]
        for key in ("host", "device", "kind", "count", "total_bytes", "mean_bytes", "memory")
    }
    rates = [own.gb_per_second for own in copies]
    data["gb_per_second"] = [None if rate is None else float(f"{rate:.3g}") for rate in rates]
    return {**data, "total_ms": [own.total_ps / PS_PER_MS for own in copies]}


def _time_data(devices: tuple[DeviceUse, ...]) -> dict[str, list[Any]]:
    keys = ("compute", "copies_alone", "idle", "wall", "kernel_sum", "copies")
    return {
        "host": [own.host for own in devices],
        "device": [own.device for own in devices],
        **{f"{key}_ms": [getattr(own, f"{key}_ps") / PS_PER_MS for own in devices] for key in keys},
    }


# --- notes ---


def _notes(kernels: Kernels, attribution: Attribution) -> tuple[str, ...]:
    if not len(kernels):
        return (_TPU if any(own.device.startswith("TPU") for own in kernels.devices) else _NO_KERNELS,)
    notes = [_THEIRS] if attribution == "tensorflow" else []
    whole = float(kernels.total_ps.sum(dtype="float64"))
    pairs = list(zip(kernels.kernels, kernels.total_ps.tolist(), strict=True))
    unnamed = sum(total for row, total in pairs if not row.op.name)
    if unnamed:
        notes.append(f"The trace names no op for {format_percent(100.0 * unnamed / whole)}% of the kernel time.")
    launches = [row.launch for row in kernels.kernels]
    if any(own.shared_bytes is not None and own.static_shared_bytes is None for own in launches):
        notes.append(_COMBINED)
    return (*notes, *_launch_notes(kernels.launches.devices))


def _launch_notes(devices: tuple[DeviceLaunches, ...]) -> list[str]:
    notes = []
    early, before, unmatched = (sum(getattr(own, key) for own in devices)
                                for key in ("early", "before", "unmatched_kernels"))  # fmt: skip
    launched, kernels = sum(own.launches for own in devices), sum(own.kernels for own in devices)
    if early:
        notes.append(
            f"Negative delays: {early:,} of {launched:,} kernels began before the call that launched them had returned."
        )
    if before:
        notes.append(
            f"{before:,} of {launched:,} kernels begin before the call that launched them: the clocks of host and "
            "device disagree, so delays are off by that much."
        )
    if unmatched:
        notes.append(f"No call of the host was found for {unmatched:,} of {kernels:,} kernels.")
    return notes


# --- advice ---


def kernel_advice(kernels: Kernels) -> tuple[Finding, ...]:
    """Return advice on launching, tensor cores, copies to the device, and a kernel that stands out."""
    if not len(kernels):
        return tuple(_copy_advice(kernels))
    return (*_launch_advice(kernels), *_precision_advice(kernels), *_copy_advice(kernels), *_one_kernel(kernels))


def _launch_advice(kernels: Kernels) -> list[Finding]:
    own = kernels.launches.busiest
    if own is None or own.tiny_percent is None or own.unqueued_percent is None:
        return []
    if own.tiny_percent < TINY_PERCENT or own.unqueued_percent < TINY_PERCENT:
        return []
    text = (
        f"Small kernels keep {own.device} waiting for the host: {format_percent(own.tiny_percent)}% of its kernels "
        f"take less than 10 us, and {format_percent(own.unqueued_percent)}% find their stream idle when they are "
        f"launched (advice from {TINY_PERCENT:.0f}% each)."
    )
    return [Finding("small_kernels", "hint", text, _FEWER)]


def _precision_advice(kernels: Kernels) -> list[Finding]:
    missed = kernels.missed_tensor_cores()
    share = 100.0 * sum(missed.values()) / max(float(kernels.total_ps.sum(dtype="float64")), 1.0)
    if kernels.has_tensor_cores is not True or share < MISSED_PERCENT:
        return []
    text = (
        f"Ops that tensor cores could do take {format_percent(share)}% of the kernel time without them (most: "
        f"{next(iter(missed))}; advice from {MISSED_PERCENT:.0f}%)."
    )
    return [Finding("no_tensor_cores", "hint", text, _PRECISION)]


def _copy_advice(kernels: Kernels) -> list[Finding]:
    wall = {(own.host, own.device): own.wall_ps for own in kernels.devices}
    slow = [own for own in kernels.copies if own.kind == "H2D" and _is_slow(own, wall[own.host, own.device])]
    if not slow:
        return []
    worst = max(slow, key=lambda own: own.total_ps)
    rate, memory = worst.gb_per_second, worst.memory
    told = [f"{rate:.3g} GB/s"] if rate is not None else []
    told += [f"from {memory} memory"] if memory else []
    share = format_percent(100.0 * worst.total_ps / wall[worst.host, worst.device])
    text = (
        f"Copies to {worst.device} take {share}% of the capture ({', '.join(told)}; advice from {COPY_PERCENT:.0f}% if "
        f"pageable, or below {_SLOW_GB:.0f} GB/s for copies of 1 MiB and more)."
    )
    return [Finding("slow_copies", "hint", text, _COPY_AHEAD)]


def _is_slow(own: Copies, wall_ps: int) -> bool:
    rate, mean = own.gb_per_second, own.mean_bytes
    below = rate is not None and mean is not None and rate < _SLOW_GB and mean >= _LARGE_BYTES
    return 100.0 * own.total_ps >= COPY_PERCENT * wall_ps > 0 and (2 * own.pageable_ps >= own.total_ps or below)


def _one_kernel(kernels: Kernels) -> list[Finding]:
    found: dict[str, Any] = kernels.by_name()
    if found["percent"][0] < ONE_KERNEL_PERCENT:
        return []
    share = format_percent(found["percent"][0])
    text = f"{found['kernel'][0]} takes {share}% of the kernel time (named from {ONE_KERNEL_PERCENT:.0f}%)."
    return [Finding("one_kernel", "info", text, "look at its ops first: nothing else can gain as much")]
