"""XLA programs: their HLO ops with times and runs, and the programs themselves.

Only programs that ran in the capture are read, because a profile contains every program that the process compiled.
Events refer to HLO ops by program id and op name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec.structs import replace

from tfperf.analysis.registry import Host, Tabular
from tfperf.base.arrays import MOST, capped_sum, union
from tfperf.sections.roofline.bounds import Judged, judge
from tfperf.trace.device.device_peaks import DevicePeaks, peaks_of
from tfperf.trace.device.device_work import computing, trace_texts
from tfperf.trace.event_names import called_program, compiles_program, is_jitted_call, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import innermost_around
from tfperf.trace.steps.steps import Steps
from tfperf.trace.steps.tpu_steps import core_steps

if TYPE_CHECKING:
    from tfperf.formats.hlo.model import Module
    from tfperf.sections.xla.instructions import HloModule, HloOp, OpTimes, Place

    _Row = TypeVar("_Row", HloOp, HloModule)


class Xla(Tabular, frozen=True, kw_only=True, dict=True):
    """HLO ops and programs, the longest first; `place` is where they ran (None if nowhere).

    Shares refer to `whole_ps`: all work of the devices, or all spans of HLO ops on a host.
    """

    home = ("xla", "hlo_ops")

    place: Place | None = None
    ops: tuple[HloOp, ...] = ()
    modules: tuple[HloModule, ...] = ()
    whole_ps: int = 0
    peaks: DevicePeaks = DevicePeaks()
    """Peaks of the devices; empty if devices of several kinds ran."""
    step_ps: int = 0
    """Time of the averaged steps, once for each device that computes in them."""
    step_count: int = 0
    device_count: int = 0
    """Number of devices that compute in the capture; 0 on a host."""

    @cached_property
    def judged(self) -> tuple[Judged, ...]:
        """Return the bound of each HLO op, and its shares of the device peaks."""
        return tuple(Judged() if op.work is None else judge(op.work, self.peaks) for op in self.ops)

    @property
    def lost(self) -> tuple[HloModule, ...]:
        """Return the programs that ran but are missing or damaged in the trace."""
        return tuple(module for module in self.modules if module.instructions is None)


def analyze(host: Host) -> Xla:
    """Join the events of HLO ops with their programs; without such events nothing is read."""
    trace = host.trace
    if not trace.devices and not len(trace.stat("hlo_op").event):
        return Xla()
    # Imported here because most programs of a host without a device are not compiled by XLA.
    from tfperf.sections.xla.instructions import CONTAINERS, joined_ops, op_times, read_programs, with_plans

    steps: Steps = host["steps"].steps
    counts = steps.headline
    windows = core_steps(trace, steps) if trace.device_kind == "tpu" else ()
    on_cores = {plane: union(start[counts[: len(start)]], end[counts[: len(end)]]) for plane, start, end in windows}
    counted = union(steps.start_ps[counts], steps.end_ps[counts])
    times = op_times(trace, host.device_work, counted, on_cores)
    if not times.ops:
        return Xla()
    programs = read_programs(trace, {op.key.program for op in times.ops} | times.programs.keys())
    ops = joined_ops(trace, times.ops, programs)
    if times.place == "cpu":
        ops = [op for op in ops if op.opcode not in CONTAINERS]
    return Xla(
        place=times.place,
        ops=_ordered(ops),
        modules=_ordered(with_plans(trace, _modules(times, programs, compile_times(trace)), programs, times.place)),
        whole_ps=capped_total(op.time_ps for op in ops) if times.place == "cpu" else device_ps(host),
        peaks=common_peaks([peaks_of(trace.planes[plane], host.peaks) for plane in trace.devices]),
        step_ps=capped_sum(steps.duration_ps[counts]) * len(computing(host.device_times, counted)),
        step_count=int(counts.sum()),
        device_count=0 if times.place == "cpu" else len(computing(host.device_times)),
    )


def common_peaks(peaks: Sequence[DevicePeaks]) -> DevicePeaks:
    """Return the peaks of all devices if they are equal, else none."""
    return peaks[0] if peaks and all(each == peaks[0] for each in peaks) else DevicePeaks()


def device_ps(host: Host) -> int:
    """Return the time of all device work, summed over streams."""
    work = host.device_work
    kernels_ps = sum(device.kernel_sum_ps for device in host.device_times)
    return min(kernels_ps + capped_sum(host.trace.duration_ps[work.rows[work.moves]]), MOST)


def _modules(times: OpTimes, programs: dict[int | None, Module], compiled: dict[str, int]) -> list[HloModule]:
    """Return the programs that ran; a compile time has only a program name, which must be unique."""
    from tfperf.sections.xla.instructions import joined_module, program_keys

    modules = [joined_module(key, programs.get(key.program), times) for key in program_keys(times)]
    names = Counter(module.module for module in modules)
    return [
        replace(module, compile_ps=compiled.get(module.module)) if names[module.module] == 1 else module
        for module in modules
    ]


def combine(hosts: Sequence[Xla]) -> Xla:
    """Add up equal HLO ops and programs of several hosts."""
    ran = [host for host in hosts if host.place is not None]
    if len(ran) < 2:
        return next(iter(ran), Xla())
    places = {host.place for host in ran}
    return Xla(
        place=ran[0].place if len(places) == 1 else "cpu",
        ops=_ordered(_merged(op for host in ran for op in host.ops)),
        modules=_ordered(_merged(module for host in ran for module in host.modules)),
        whole_ps=capped_total(host.whole_ps for host in ran),
        peaks=common_peaks([host.peaks for host in ran]),
        step_ps=capped_total(host.step_ps for host in ran),
        step_count=sum(host.step_count for host in ran),
        device_count=sum(host.device_count for host in ran),
    )


def shorten(xla: Xla, most: int) -> Xla:
    """Return the `most` longest HLO ops and programs, and one row for all others of each."""
    plans = [plan for module in xla.modules for plan in module.plans.values()]
    if max(len(xla.ops), len(xla.modules), *(len(plan.buffers) for plan in plans)) <= most:
        return xla
    from tfperf.sections.xla.instructions import other_instructions, other_programs

    return replace(
        xla,
        ops=_ordered(_cut(xla.ops, most, other_instructions)),
        modules=_ordered(
            replace(module, plans={name: plan.cut(most) for name, plan in module.plans.items()})
            for module in _cut(xla.modules, most, other_programs)
        ),
    )


def _cut(rows: Sequence[_Row], most: int, others: Callable[[Sequence[_Row]], _Row]) -> list[_Row]:
    short = list(rows[:most])
    if len(rows) > most:
        short.append(others(rows[most:]))
    return short


def _merged(rows: Iterable[_Row]) -> list[_Row]:
    merged: dict[object, _Row] = {}
    fields = ("runs", "events", "in_steps", "devices", "time_ps", "least_ps")
    for row in rows:
        before = merged.get(row.key)
        if before is None:
            merged[row.key] = row
            continue
        pairs = {field: (getattr(before, field), getattr(row, field)) for field in fields if hasattr(row, field)}
        sums = {field: None if None in pair else min(sum(pair), MOST) for field, pair in pairs.items()}
        merged[row.key] = replace(before, is_estimated=before.is_estimated or row.is_estimated, **sums)
    return list(merged.values())


def capped_total(times_ps: Iterable[int]) -> int:
    """Return the sum, at most `MOST`."""
    return min(sum(times_ps), MOST)


def _ordered(rows: Iterable[_Row]) -> tuple[_Row, ...]:
    """Return rows by descending time; among equal times, those with an unknown program come first."""
    return tuple(sorted(rows, key=lambda row: (-row.time_ps, [(part is not None, part) for part in row.key])))


# --- XLA compile times ---
# On hosts with CPUs and GPUs, the compilation event contains the program name. On hosts with TPUs, only the enclosing
# call of the jitted function does.

_WHOLE = "Client::Compile"
"""Suffix of the event around the whole compilation of one program."""
_OF_CALL = "backend_compile"
"""Enclosing event that JAX records."""


def compile_times(trace: HostTrace) -> dict[str, int]:
    """Return compile times in picoseconds by module name; modules with equal names are added up."""
    if trace.device_kind == "tpu":
        return _of_calls(trace)
    backends = trace.host_events(mask(trace.names, compiles_program))
    whole = trace.host_events(mask(trace.names, lambda name: name.endswith(_WHOLE)))
    texts = trace_texts(trace, "name")
    times: dict[str, int] = {}
    for line in trace.host_lines:
        inside, outer = (rows[(rows >= line.start) & (rows < line.stop)] for rows in (backends, whole))
        if not len(inside):
            continue
        around = (
            innermost_around(trace, outer, trace.start_ps[inside]) if len(outer) else np.full(len(inside), -1, np.int64)
        )
        time_ps = trace.duration_ps[np.where(around >= 0, around, inside)]
        for text, each in zip(trace.number_at("name", inside, -1).tolist(), time_ps.tolist(), strict=True):
            times[texts[text]] = min(times.get(texts[text], 0) + each, MOST)
    return {name: time_ps for name, time_ps in times.items() if name}


def _of_calls(trace: HostTrace) -> dict[str, int]:
    """Return compile times in calls of jitted functions, by the program of the innermost enclosing call."""
    compilations = trace.host_events(mask(trace.names, lambda name: name == _OF_CALL))
    calls = trace.host_events(mask(trace.names, is_jitted_call))
    times: dict[str, int] = {}
    for line in trace.host_lines:
        inside, outer = (rows[(rows >= line.start) & (rows < line.stop)] for rows in (compilations, calls))
        if not len(inside) or not len(outer):
            continue
        around = innermost_around(trace, outer, trace.start_ps[inside])
        for call, time_ps in zip(around.tolist(), trace.duration_ps[inside].tolist(), strict=True):
            if call >= 0:
                program = called_program(trace.names[trace.name[call]])
                times[program] = min(times.get(program, 0) + time_ps, MOST)
    return times
