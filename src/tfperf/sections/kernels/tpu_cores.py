"""Asynchronous copies and collectives of TPU cores by instruction, and the waits for them per step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, get_args

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Host
from tfperf.base.arrays import (
    MOST,
    NO_NUMBERS,
    Bools,
    Float64s,
    Int64s,
    covers,
    distinct,
    distinct_index,
    group_sums,
    overlap,
    union,
)
from tfperf.formats.hlo.model import HOST_MEMORY, Module
from tfperf.formats.wire.event_columns import OP_LINES, TRACE_ME_LINE
from tfperf.trace.device.tpu_copies import AsyncKind, AsyncRuns, Way, async_runs, bytes_of
from tfperf.trace.event_names import mask
from tfperf.trace.steps.breakdown import Breakdown, CountedSteps
from tfperf.trace.steps.tpu_steps import core_steps

if TYPE_CHECKING:
    Key = TypeVar("Key")
    Row = TypeVar("Row", "AsyncCopy", "KernelRegion")

AWAITED = 0.01
"""A copy is hidden if its core waits for less than this share of its time in flight."""


class AsyncCopy(Struct, frozen=True, kw_only=True):
    """All copies or collectives of one instruction, over runs and cores; times are sums in picoseconds.

    `paired` counts those with a known start; `flight_ps` covers only these.
    """

    module: str
    program_id: int | None
    copy: str
    """Name of the instruction that awaits it."""
    way: Way
    array: str = ""
    """Name of the copied parameter in the program, else the instruction that produces the copied value."""
    source: str = ""
    """Program line that uses the copied value, or produces it if the copy leaves the device memory."""
    shape: str = ""
    bytes: int | None = None
    """Size of one copy."""
    count: int
    paired: int
    in_steps: int
    """Copies awaited in the averaged steps."""
    flight_ps: int
    waited_ps: int
    paired_waited_ps: int

    @property
    def key(self) -> tuple[str, int | None, str, str]:
        """Return the key by which hosts are merged."""
        return (self.module, self.program_id, self.copy, self.shape)

    @property
    def least_gb_per_second(self) -> float | None:
        """Return bytes / time in flight; a lower bound, because a copy may end early or wait for another."""
        return _rate(self.bytes, self.paired, self.flight_ps)

    @property
    def most_gb_per_second(self) -> float | None:
        """Return bytes / time waited, if it was waited for; an upper bound, because it may have begun before."""
        is_awaited = self.waited_ps >= AWAITED * self.flight_ps
        return _rate(self.bytes, self.count, self.waited_ps) if is_awaited else None


def _rate(size: int | None, count: int, time_ps: int) -> float | None:
    return None if size is None or not time_ps else 1000.0 * size * count / time_ps


class Traffic(Struct, frozen=True, eq=False, kw_only=True):
    """Traffic in one direction per step of a host, averaged over its cores.

    `awaited_bytes` counts copies that cores wait for, `link_ps` is the time with any of these in flight, and
    `waited_ps` is the time of waiting.
    """

    way: Way
    steps: CountedSteps
    bytes: Float64s
    awaited_bytes: Float64s
    link_ps: Int64s
    waited_ps: Int64s

    def mean(self, name: str) -> float:
        """Return the mean of a field over the averaged steps."""
        values = getattr(self, name)[self.steps.counted]
        return float(values.mean()) if len(values) else 0.0


class AsyncCopies(Struct, frozen=True, kw_only=True):
    """Copies and collectives of one or more hosts, the longest wait first."""

    copies: tuple[AsyncCopy, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    kept_bytes: int | None = None
    """Host memory held by arrays of the copying programs, of the program with the most; None if unknown."""
    are_donated: bool = False
    """Whether that program returns arrays to host memory only in the memory of its inputs."""

    def of_way(self, way: Way) -> tuple[Traffic, ...]:
        """Return the traffic in one direction, per host."""
        return tuple(each for each in self.traffic if each.way == way)


def async_copies(host: Host) -> AsyncCopies:
    """Add up the copies and collectives of the cores of a host."""
    trace, breakdown = host.trace, host["steps"]
    if trace.device_kind != "tpu":
        return AsyncCopies()
    runs = async_runs(trace)
    if not len(runs):
        return AsyncCopies()
    from tfperf.sections.xla.instructions import read_programs  # a profile without copies needs no programs

    programs = read_programs(trace, {kind.program for kind in runs.kinds})
    counted = breakdown.steps.headline
    windows = {plane: (start, end) for plane, start, end in core_steps(trace, breakdown.steps)}
    in_steps = np.zeros(len(runs), np.bool_)
    for plane, (start, end) in windows.items():
        of_core = runs.plane == plane
        in_steps[of_core] = covers(
            union(start[counted[: len(start)]], end[counted[: len(end)]]), runs.awaited_ps[of_core]
        )
    copies = [
        _copy(kind, programs.get(kind.program), runs, np.flatnonzero(runs.kind == place), in_steps)
        for place, kind in enumerate(runs.kinds)
    ]
    plans = [module.buffers or {} for module in programs.values()]
    kept = [plan[HOST_MEMORY] for plan in plans if HOST_MEMORY in plan]
    most = max(kept, key=lambda sizes: sizes.parameters + sizes.outputs, default=None)
    return AsyncCopies(
        copies=_ordered_copies(copies),
        traffic=tuple(_traffic(way, runs, windows, CountedSteps.of(breakdown.steps)) for way in get_args(Way)),
        kept_bytes=None if most is None else most.parameters + most.outputs,
        are_donated=most is not None and bool(most.aliased) and not most.outputs,
    )


def _ordered_copies(copies: Sequence[AsyncCopy]) -> tuple[AsyncCopy, ...]:
    return tuple(sorted(copies, key=lambda each: (-each.waited_ps, -each.flight_ps, each.copy)))


def _copy(kind: AsyncKind, module: Module | None, runs: AsyncRuns, rows: Int64s, in_steps: Bools) -> AsyncCopy:
    flight, waited = (runs.end_ps - runs.begun_ps)[rows], (runs.end_ps - runs.awaited_ps)[rows]
    paired = runs.is_paired[rows]
    array, source, shape = ("", "", kind.shape) if module is None else _described(kind, module)
    return AsyncCopy(
        module=module.name if module else "",
        program_id=kind.program,
        copy=kind.done,
        way=kind.way,
        array=array,
        source=source,
        shape=shape.partition("{")[0],
        bytes=bytes_of(shape),
        count=len(rows),
        paired=int(paired.sum()),
        in_steps=int(in_steps[rows].sum()),
        flight_ps=int(flight[paired].sum()),
        waited_ps=int(waited.sum()),
        paired_waited_ps=int(waited[paired].sum()),
    )


_SAME = ("bitcast", "reshape", "get-tuple-element")
"""Instructions that pass their operand on unchanged."""


def _described(kind: AsyncKind, module: Module) -> tuple[str, str, str]:
    """Return the copied array, the line that uses or produces it, and the shape of the copied value."""
    at = module.by_name.get(kind.done)
    if at is None:
        return "", "", kind.shape
    computation, place = module.computations[at[0]], at[1]
    done = computation.instructions[place]
    users = [computation.instructions[user] for user in computation.users[place]]
    made = done
    while made.operands and (made.opcode.endswith(("-start", "-done")) or made.opcode in _SAME):
        made = computation.operands_of(made)[0]
    array = made.metadata.op_name if made.opcode == "parameter" else ""
    roots = (user for user in users if user == computation.root_instruction)
    results = {index for root in roots for index, operand in enumerate(root.operands) if operand == place}
    if at[0] == module.entry_at and results:
        taken = {module.aliases.get((index,)) for index in results}
        named = (each for each in computation.instructions if each.opcode == "parameter" and each.parameter in taken)
        array = next((each.metadata.op_name for each in named), array)
    lines = [str(each.metadata.source) for each in ([made, *users] if kind.way == "to_host" else [*users, made])]
    return array or made.name, next(filter(None, lines), ""), kind.shape or str(done.shape)


def _traffic(way: Way, runs: AsyncRuns, windows: Mapping[int, tuple[Int64s, Int64s]], steps: CountedSteps) -> Traffic:
    sizes = np.array([float(bytes_of(kind.shape) or 0) for kind in runs.kinds])[runs.kind]
    is_way = np.array([kind.way == way for kind in runs.kinds], np.bool_)[runs.kind]
    is_awaited = runs.end_ps - runs.awaited_ps >= AWAITED * (runs.end_ps - runs.begun_ps)
    count = min((len(start) for start, _ in windows.values()), default=0)
    moved, awaited = (np.zeros((len(windows), count)) for _ in range(2))
    link, waited = (np.zeros((len(windows), count), np.int64) for _ in range(2))
    for core, (plane, (start, end)) in enumerate(windows.items()):
        start, end = start[:count], end[:count]
        rows = np.flatnonzero(is_way & (runs.plane == plane))
        step = np.searchsorted(start, runs.awaited_ps[rows], side="right") - 1
        is_inside = (step >= 0) & (runs.awaited_ps[rows] < end[np.maximum(step, 0)]) if count else step >= 0
        rows, step = rows[is_inside], step[is_inside]
        np.add.at(moved[core], step, sizes[rows])
        np.add.at(awaited[core], step, np.where(is_awaited[rows], sizes[rows], 0.0))
        rows = rows[is_awaited[rows]]
        link[core] = overlap(union(runs.begun_ps[rows], runs.end_ps[rows]), start, end)
        waited[core] = overlap(union(runs.awaited_ps[rows], runs.end_ps[rows]), start, end)
    cores = max(len(windows), 1)
    return Traffic(
        way=way,
        steps=CountedSteps(steps.start_ps[:count], steps.duration_ps[:count], steps.counted[:count]),
        bytes=moved.sum(axis=0) / cores,
        awaited_bytes=awaited.sum(axis=0) / cores,
        link_ps=link.sum(axis=0) // cores,
        waited_ps=waited.sum(axis=0) // cores,
    )


def narrow_copies(copies: AsyncCopies, after: Breakdown) -> AsyncCopies:
    """Restrict the copies to the steps of `after`."""
    return replace(copies, traffic=tuple(replace(each, steps=each.steps.counting(after)) for each in copies.traffic))


def combine_copies(parts: Sequence[AsyncCopies]) -> AsyncCopies:
    """Add up equal instructions of several hosts."""
    sums = ("count", "paired", "in_steps", "flight_ps", "waited_ps", "paired_waited_ps")
    most = max(parts, key=lambda part: part.kept_bytes or -1, default=AsyncCopies())
    return AsyncCopies(
        copies=_ordered_copies(_merged((copy for part in parts for copy in part.copies), sums)),
        traffic=tuple(each for part in parts for each in part.traffic),
        kept_bytes=most.kept_bytes,
        are_donated=most.are_donated,
    )


def _merged(rows: Iterable[Row], sums: Sequence[str]) -> list[Row]:
    merged: dict[object, Row] = {}
    for each in rows:
        before = merged.get(each.key)
        if before is not None:
            each = replace(before, **{name: min(getattr(before, name) + getattr(each, name), MOST) for name in sums})
        merged[each.key] = each
    return list(merged.values())


# --- regions that kernels of TPU cores mark ---
# Pallas kernels mark the parts of their pipeline (`ep_wait_in`, `ep_run_kernel`) if the program was compiled for
# tracing; regions can be nested.

_OF_RUNTIME = ("dependency-wait", "barrier-cores")
"""Regions of the runtime before a program begins its work."""


class KernelRegion(Struct, frozen=True, kw_only=True):
    """A region of a kernel, over runs and cores; times are in picoseconds."""

    kernel: str
    program_id: int | None
    region: str
    count: int
    total_ps: int
    runs: int
    """Runs of the kernel."""
    kernel_ps: int

    @property
    def key(self) -> tuple[str, int | None, str]:
        """Return the key by which hosts are merged."""
        return (self.kernel, self.program_id, self.region)

    @property
    def waits(self) -> bool:
        """Return whether the kernel only waits for data in this region."""
        return "wait" in self.region


class KernelWaits(Struct, frozen=True, eq=False, kw_only=True):
    """Run time of a kernel, and its waits for data, per step of a host, averaged over its cores."""

    kernel: str
    program_id: int | None
    steps: CountedSteps
    kernel_ps: Int64s
    waited_ps: Int64s


class Regions(Struct, frozen=True, kw_only=True):
    """Kernel regions of one or more hosts, the longest kernel first."""

    regions: tuple[KernelRegion, ...] = ()
    waits: tuple[KernelWaits, ...] = ()


def kernel_regions(host: Host) -> Regions:
    """Add up the regions of the kernels of a host."""
    trace = host.trace
    lines = [line for line in trace.lines if line.plane in trace.devices and line.name == TRACE_ME_LINE]
    marks = np.concatenate([NO_NUMBERS, *(np.arange(line.start, line.stop) for line in lines)])
    if trace.device_kind != "tpu" or not len(marks):
        return Regions()
    marks = marks[~mask(trace.names, lambda name: name in _OF_RUNTIME)[trace.name[marks]]]
    kernel = np.full(len(marks), -1, np.int64)
    planes = np.array([line.plane for line in trace.lines], np.int64)[trace.line_of[marks]]
    for line in (line for line in trace.lines if line.plane in trace.devices and line.name in OP_LINES):
        here = np.flatnonzero(planes == line.plane)
        last = np.searchsorted(trace.start_ps[line.start : line.stop], trace.start_ps[marks[here]], side="right") - 1
        row = line.start + np.maximum(last, 0)
        is_inside = (last >= 0) & (trace.start_ps[marks[here]] < trace.end_ps[np.minimum(row, len(trace.name) - 1)])
        kernel[here] = np.where(is_inside, row, kernel[here])
    is_call = np.zeros(len(trace.names), np.bool_)
    for name in distinct(trace.name[kernel[kernel >= 0]]).tolist():
        is_call[name] = (
            trace.name_stat("hlo_category").get(name) == "custom-call" or " custom-call(" in trace.names[name]
        )
    in_kernel = (kernel >= 0) & is_call[trace.name[kernel]]
    marks, kernel = marks[in_kernel], kernel[in_kernel]
    if not len(marks):
        return Regions()
    # Each core has its own names.
    programs = trace.name_stat("program_id")

    def instruction(name: int) -> tuple[str, int | None]:
        program = programs.get(name)
        hlo_op = trace.display_names[name] or trace.names[name].partition(" = ")[0].lstrip("%")
        return hlo_op, program if isinstance(program, int) else None

    kernels, which = _indexed(trace.name[kernel], instruction)
    names, region = _indexed(trace.name[marks], lambda name: trace.names[name])
    regions, waits = [], []
    sums = {tuple(key): numbers[:2] for key, numbers in group_sums(trace.duration_ps[marks], [which, region])}
    is_wait = np.array(["wait" in name for name in names], np.bool_)[region]
    for place, (hlo_op, program_id) in enumerate(kernels):
        rows = distinct(kernel[which == place])
        regions += [
            KernelRegion(
                kernel=hlo_op,
                program_id=program_id,
                region=names[of_region],
                count=count,
                total_ps=total_ps,
                runs=len(rows),
                kernel_ps=int(trace.duration_ps[rows].sum()),
            )
            for (of_kernel, of_region), (count, total_ps) in sums.items()
            if of_kernel == place
        ]
        kernel_ps, waited_ps = (_in_steps(host, events) for events in (rows, marks[is_wait & (which == place)]))
        waits.append(
            KernelWaits(
                kernel=hlo_op,
                program_id=program_id,
                steps=CountedSteps.of(host["steps"].steps.only(np.arange(len(kernel_ps)))),
                kernel_ps=kernel_ps,
                waited_ps=waited_ps,
            )
        )
    return Regions(regions=_ordered_regions(regions), waits=tuple(waits))


def _indexed(names: Int64s, text_of: Callable[[int], Key]) -> tuple[list[Key], Int64s]:
    values, index = distinct_index(names)
    texts = [text_of(name) for name in values.tolist()]
    unique = list(dict.fromkeys(texts))
    return unique, np.array([unique.index(text) for text in texts], np.int64)[index]


def _in_steps(host: Host, rows: Int64s) -> Int64s:
    trace, windows = host.trace, core_steps(host.trace, host["steps"].steps)
    planes = np.array([line.plane for line in trace.lines], np.int64)[trace.line_of[rows]]
    count = min((len(window.start_ps) for window in windows), default=0)
    times = np.zeros(count, np.int64)
    for plane, start, end in windows:
        flat = union(trace.start_ps[rows[planes == plane]], trace.end_ps[rows[planes == plane]])
        times += overlap(flat, start[:count], end[:count])
    return times // max(len(windows), 1)


def _ordered_regions(regions: Sequence[KernelRegion]) -> tuple[KernelRegion, ...]:
    return tuple(sorted(regions, key=lambda each: (-each.kernel_ps, each.kernel, -each.total_ps, each.region)))


def combine_regions(parts: Sequence[Regions]) -> Regions:
    """Add up equal regions of several hosts."""
    sums = ("count", "total_ps", "runs", "kernel_ps")
    regions = _merged((region for part in parts for region in part.regions), sums)
    return Regions(regions=_ordered_regions(regions), waits=tuple(each for part in parts for each in part.waits))


def narrow_regions(regions: Regions, after: Breakdown) -> Regions:
    """Restrict the waits to the steps of `after`."""
    return replace(regions, waits=tuple(replace(each, steps=each.steps.counting(after)) for each in regions.waits))
