"""Ops of TensorFlow that GPUs ran without XLA, with their work where the profile has the shapes of their inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import MOST, Bools, Int64s, capped_sum, covers, group_equal, union
from tfperf.formats.hlo.products import Product
from tfperf.sections.ops.groups import NO_SCOPE, layer_of
from tfperf.sections.ops.op_runs import op_runs
from tfperf.sections.roofline.bounds import Work
from tfperf.sections.roofline.op_shapes import parse_shapes
from tfperf.sections.roofline.op_work import Layers, OpShapes, OpWork, work_of
from tfperf.sections.xla.analysis import capped_total, common_peaks, device_ps
from tfperf.trace.device.device_peaks import DevicePeaks, Precision, peaks_of
from tfperf.trace.device.device_work import DeviceWork, trace_texts

if TYPE_CHECKING:
    from tfperf.analysis.results import Host
    from tfperf.trace.host_trace import HostTrace
    from tfperf.trace.steps.steps import Steps


class FrameworkOp(Struct, frozen=True, kw_only=True):
    """An op of TensorFlow that ran with inputs of these shapes, and what one run of it computes and moves."""

    op: str
    type: str
    shapes: str
    runs: int
    events: int
    """Its kernels."""
    in_steps: int
    """Those of them that start in the steps that count."""
    time_ps: int
    matrix_flops: float
    flops: float
    bytes: float | None
    precision: Precision | None
    product: Product | None = None
    module: str = ""
    program_id: int | None = None
    source: str = ""

    @property
    def framework_op(self) -> str:
        """Return the op's name, as instructions of XLA have it."""
        return self.op

    @property
    def layer(self) -> str:
        """Return the layer of the model; empty without one."""
        layer = layer_of(self.op)
        return "" if layer == NO_SCOPE else layer

    @property
    def array_types(self) -> str:
        """Return the shapes of all that it reads."""
        return self.shapes

    @property
    def sizes(self) -> Mapping[str, int]:
        """Return M, N and K of a matrix product; empty for other ops."""
        return {} if self.product is None else self.product.sizes

    @property
    def key(self) -> tuple[object, ...]:
        """Return what it is merged by over hosts."""
        return (self.op, self.type, self.shapes, self.flops, self.bytes, self.precision)

    @property
    def work(self) -> Work:
        """Return what all runs amount to."""
        moved = None if self.bytes is None else self.bytes * self.runs
        return Work(flops=self.flops * self.runs, bytes=moved, time_ps=self.time_ps, precision=self.precision)

    @property
    def runs_in_steps(self) -> float:
        """Return how often it ran in the steps that count."""
        return self.runs * self.in_steps / self.events if self.events else 0.0


class FrameworkWork(Struct, frozen=True, kw_only=True):
    """Ops whose work is known, and the time of those with shapes that do not tell it, by the type of op."""

    ops: tuple[FrameworkOp, ...] = ()
    untold_ps: Mapping[str, int] = {}
    whole_ps: int = 0
    """The time of all that devices did, summed over streams."""
    peaks: DevicePeaks = DevicePeaks()
    step_ps: int = 0
    """The time of the steps that count, once for each device that works."""
    step_count: int = 0
    host_count: int = 1


class _Group(NamedTuple):
    """Kernels of one op with inputs of the same shapes."""

    shapes: OpShapes
    text: str
    runs: int
    is_counted: bool
    events: int
    in_steps: int
    time_ps: int


def analyze(host: Host) -> FrameworkWork:
    """Return the ops with known work that ran on GPUs; without shapes there are none.

    Times and peaks of devices are there if any work of theirs can be known: of these ops, or of programs of XLA.
    """
    trace, work = host.trace, host.device_work
    steps: Steps = host["steps"].steps
    groups = _groups(trace, work, steps) if trace.stat("shape").texts and len(work.rows) else []
    if not groups and host["xla"].place in (None, "cpu"):
        return FrameworkWork()
    layers = Layers(group.shapes for group in groups)
    found, untold = [], Counter[str]()
    for group in groups:
        of_run = work_of(group.shapes, layers) if group.is_counted else None
        if of_run is None:
            untold[group.shapes.type] += group.time_ps
        else:
            found.append(_op(group, of_run))
    return FrameworkWork(
        ops=_ordered(found),
        untold_ps=dict(untold),
        whole_ps=device_ps(host),
        peaks=common_peaks([peaks_of(trace.planes[plane], host.peaks) for plane in trace.devices]),
        step_ps=capped_sum(steps.duration_ps[steps.headline]) * len(host.device_times),
        step_count=int(steps.headline.sum()),
    )


def _op(group: _Group, of_run: OpWork) -> FrameworkOp:
    return FrameworkOp(
        op=group.shapes.name,
        type=group.shapes.type,
        shapes=group.text,
        runs=group.runs,
        events=group.events,
        in_steps=group.in_steps,
        time_ps=group.time_ps,
        matrix_flops=float(of_run.matrix_flops),
        flops=float(of_run.flops),
        bytes=None if of_run.bytes is None else float(of_run.bytes),
        precision=of_run.precision,
        product=of_run.product,
    )


def shorten(work: FrameworkWork, most: int) -> FrameworkWork:
    """Return so many ops, those that take longest; what bounds the time of all others is then unknown."""
    return work if len(work.ops) <= most else replace(work, ops=work.ops[:most])


def _groups(trace: HostTrace, work: DeviceWork, steps: Steps) -> list[_Group]:
    """Return the kernels whose op and shapes the profile has, by both; what XLA compiled is not among them."""
    is_op = np.array([not op.hlo_op for op in work.ops] + [False], np.bool_)
    places = np.flatnonzero(is_op[work.op] & ~work.moves)
    shape, equation = (trace.number_at(stat, work.rows[places], -1) for stat in ("shape", "equation"))
    places, shape, equation = (column[shape >= 0] for column in (places, shape, equation))
    if not len(places):
        return []
    order, starts = group_equal([work.op[places], shape, equation])
    of_row = np.empty(len(places), np.int64)
    of_row[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(places)))
    first = order[starts]
    runs, is_counted = _runs(trace, work, places, of_row, first)
    rows = work.rows[places]
    counts = steps.headline
    inside = covers(union(steps.start_ps[counts], steps.end_ps[counts]), trace.start_ps[rows])
    shapes, equations = trace_texts(trace, "shape"), trace_texts(trace, "equation")
    found = []
    for at, (lead, begin, end) in enumerate(zip(first.tolist(), starts, [*starts[1:], len(places)], strict=True)):
        inputs = parse_shapes(shapes[shape[lead]])
        if inputs is None:
            continue
        op, members = work.ops[work.op[places[lead]]], order[begin:end]
        kernels = tuple(sorted({trace.names[name] for name in np.unique(trace.name[rows[members]]).tolist()}))
        found.append(
            _Group(
                OpShapes(op.name, op.type, inputs, equations[equation[lead]], kernels),
                shapes[shape[lead]],
                int(runs[at]),
                bool(is_counted[at]),
                len(members),
                int(inside[members].sum()),
                capped_sum(trace.duration_ps[rows[members]]),
            )
        )
    return found


def _runs(trace: HostTrace, work: DeviceWork, places: Int64s, of_row: Int64s, first: Int64s) -> tuple[Int64s, Bools]:
    """Return how often each group ran, and whether that is known: an op with several shapes counts for each of them."""
    ops = work.op[places[first]]
    group = np.full(len(work.rows), -1, np.int64)
    group[places] = of_row
    runs = op_runs(trace, replace(work, op=group, ops=tuple(work.ops[op] for op in ops.tolist())))
    # The lines of ops that a profiler derived do not tell shapes apart.
    shapes_of_op = np.bincount(ops, minlength=len(work.ops))
    whole = op_runs(trace, work)
    sums = np.bincount(ops, runs.runs, minlength=len(work.ops)).astype(np.int64)
    return runs.runs, runs.is_known & ((shapes_of_op[ops] == 1) | (sums == whole.runs)[ops])


def combine(hosts: Sequence[FrameworkWork]) -> FrameworkWork:
    """Add up equal ops of several hosts."""
    known = [host for host in hosts if host.whole_ps]
    if len(known) < 2:
        return next(iter(known), FrameworkWork())
    merged: dict[object, FrameworkOp] = {}
    untold = Counter[str]()
    for host in known:
        untold.update(host.untold_ps)
        for op in host.ops:
            before = merged.get(op.key)
            sums = {field: getattr(op, field) + getattr(before, field, 0) for field in _SUMS}
            merged[op.key] = replace(op, **{field: min(value, MOST) for field, value in sums.items()})
    return FrameworkWork(
        ops=_ordered(merged.values()),
        untold_ps={kind: min(time_ps, MOST) for kind, time_ps in untold.items()},
        whole_ps=capped_total(host.whole_ps for host in known),
        peaks=common_peaks([host.peaks for host in known]),
        step_ps=capped_total(host.step_ps for host in known),
        step_count=sum(host.step_count for host in known),
        host_count=sum(host.host_count for host in known),
    )


_SUMS = ("runs", "events", "in_steps", "time_ps")


def _ordered(ops: Iterable[FrameworkOp]) -> tuple[FrameworkOp, ...]:
    return tuple(sorted(ops, key=lambda op: (-op.time_ps, op.op, op.shapes)))
