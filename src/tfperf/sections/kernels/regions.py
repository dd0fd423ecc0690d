"""Regions that kernels of TPU cores mark: how long each lasts in a kernel, and how much of a step kernels wait in them.

Pallas kernels mark the parts of their pipeline (`ep_wait_in`, `ep_run_kernel`) where the program was compiled to trace
them; a region can hold others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import MOST, NO_NUMBERS, Int32s, Int64s, distinct, distinct_index, group_sums, overlap, union
from tfperf.formats.wire.event_columns import OP_LINES, TRACE_ME_LINE
from tfperf.trace.event_names import mask
from tfperf.trace.steps.counted import CountedSteps
from tfperf.trace.steps.tpu_steps import core_steps

if TYPE_CHECKING:
    from tfperf.analysis.results import Host
    from tfperf.trace.host_trace import HostTrace
    from tfperf.trace.steps.breakdown import Breakdown

    Key = TypeVar("Key")


_OF_RUNTIME = ("dependency-wait", "barrier-cores")
"""What the runtime marks before a program begins its work."""


class KernelRegion(Struct, frozen=True, kw_only=True):
    """A region of a kernel, over runs and cores; times are picoseconds."""

    kernel: str
    """Name of the instruction."""
    program_id: int | None
    region: str
    count: int
    total_ps: int
    runs: int
    """Of the kernel."""
    kernel_ps: int

    @property
    def key(self) -> tuple[str, int | None, str]:
        """Return what it is merged by over hosts."""
        return (self.kernel, self.program_id, self.region)

    @property
    def waits(self) -> bool:
        """Tell whether the kernel does nothing there but wait for data."""
        return "wait" in self.region


class KernelWaits(Struct, frozen=True, eq=False, kw_only=True):
    """How long a kernel runs, and waits for data, in each step of a host, on average over its cores."""

    kernel: str
    program_id: int | None
    steps: CountedSteps
    kernel_ps: Int64s
    waited_ps: Int64s


class Regions(Struct, frozen=True, kw_only=True):
    """All of the cores of one host, or of several; those of the longest kernel first."""

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
    # Each core has names of its own.
    kernels, which = _indexed(trace.name[kernel], lambda name: _kernel(trace, name))
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
    return Regions(regions=_ordered(regions), waits=tuple(waits))


def _indexed(names: Int32s, text_of: Callable[[int], Key]) -> tuple[list[Key], Int64s]:
    """Return the distinct texts of names, and for each name the index of its text."""
    values, index = distinct_index(names)
    texts = [text_of(name) for name in values.tolist()]
    unique = list(dict.fromkeys(texts))
    return unique, np.array([unique.index(text) for text in texts], np.int64)[index]


def _kernel(trace: HostTrace, name: int) -> tuple[str, int | None]:
    """Return the name of an instruction and the id of its program, by the name of its events."""
    program = trace.name_stat("program_id").get(name)
    hlo_op = trace.display_names[name] or trace.names[name].partition(" = ")[0].lstrip("%")
    return hlo_op, program if isinstance(program, int) else None


def _in_steps(host: Host, rows: Int64s) -> Int64s:
    """Return how long any of these events lasts in each step, on average over the cores."""
    trace, windows = host.trace, core_steps(host.trace, host["steps"].steps)
    planes = np.array([line.plane for line in trace.lines], np.int64)[trace.line_of[rows]]
    count = min((len(window.start_ps) for window in windows), default=0)
    times = np.zeros(count, np.int64)
    for plane, start, end in windows:
        flat = union(trace.start_ps[rows[planes == plane]], trace.end_ps[rows[planes == plane]])
        times += overlap(flat, start[:count], end[:count])
    return times // max(len(windows), 1)


def _ordered(regions: Sequence[KernelRegion]) -> tuple[KernelRegion, ...]:
    return tuple(sorted(regions, key=lambda each: (-each.kernel_ps, each.kernel, -each.total_ps, each.region)))


def _added(one: KernelRegion, other: KernelRegion) -> KernelRegion:
    names = ("count", "total_ps", "runs", "kernel_ps")
    return replace(one, **{name: min(getattr(one, name) + getattr(other, name), MOST) for name in names})


def combine(parts: Sequence[Regions]) -> Regions:
    """Add up equal regions of several hosts."""
    merged: dict[tuple[str, int | None, str], KernelRegion] = {}
    for each in (region for part in parts for region in part.regions):
        merged[each.key] = _added(merged[each.key], each) if each.key in merged else each
    return Regions(regions=_ordered([*merged.values()]), waits=tuple(each for part in parts for each in part.waits))


def narrow(regions: Regions, after: Breakdown) -> Regions:
    """Count the steps of `after` alone."""
    return replace(regions, waits=tuple(replace(each, steps=each.steps.counting(after)) for each in regions.waits))
