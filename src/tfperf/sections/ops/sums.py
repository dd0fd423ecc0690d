"""Op sums by function, in the capture and in the averaged steps, for flame graphs.

The sums over functions equal those of the op tables. Time in steps is cut at step edges; a run counts in the step in
which it starts. If an op of a device ran for several functions, its runs are divided in proportion to kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Host, SectionSpec
from tfperf.base.arrays import MOST, NO_NUMBERS, Int64s, Intervals, covers, distinct_index, overlap, union
from tfperf.sections.ops.analysis import OTHERS, OpKey, equal_names, key_of_row, op_runs, tpu_keys, tpu_op_lines
from tfperf.trace.device.device_work import computing
from tfperf.trace.host.host_ops import NO_FUNCTION, FunctionCalls, function_calls, host_op_rows
from tfperf.trace.known_stats import DEVICE_OPS, HOST_OPS
from tfperf.trace.nesting import nest, own_parts, self_time
from tfperf.trace.steps.steps import Steps
from tfperf.trace.steps.tpu_steps import in_step_time

OP_SUMS = SectionSpec(
    name="op_sums",
    title="Sums of ops",
    rests_on=("steps",),
    analyze="tfperf.sections.ops.sums:analyze",
    combine="tfperf.sections.ops.sums:combine",
    combines_in_tree=True,
    shorten="tfperf.sections.ops.sums:shorten",
    stats=HOST_OPS | DEVICE_OPS,
    build="tfperf.sections.ops.section:build",  # required, but not called: no report contains it
)

_FUNCTION_OF_PROGRAM = re.compile(r"a_inference_(.+?)_\d+__|p?jit_(.+)")
"""Program names of functions in TensorFlow and JAX."""


class OpOfFunction(NamedTuple):
    """An op, and the function that it ran for (`NO_FUNCTION` if unknown)."""

    op: OpKey
    function: str


class OpSum(NamedTuple):
    """Sums of one op in the capture and in the averaged steps; `counts_kernels` is 1 if its runs are unknown."""

    calls: float
    self_ps: int
    step_calls: float
    step_self_ps: int
    counts_kernels: int

    def plus(self, other: OpSum) -> OpSum:
        """Return the sums added up."""
        calls, self_ps, step_calls, step_self_ps, _ = (one + more for one, more in zip(self, other, strict=True))
        both = max(self.counts_kernels, other.counts_kernels)
        return OpSum(calls, min(int(self_ps), MOST), step_calls, min(int(step_self_ps), MOST), both)


Sums = dict[OpOfFunction, OpSum]


class OpSums(Struct, frozen=True, kw_only=True):
    """The sums of both sides; `step_count` counts the steps of all hosts, `device_count` the devices that compute."""

    host: Sums
    device: Sums
    has_device: bool
    step_count: int
    device_count: int = 0


def analyze(host: Host) -> OpSums:
    """Add up the ops of a host."""
    steps: Steps = host["steps"].steps
    return sums_in(host, steps.only(np.flatnonzero(steps.headline)))


def sums_in(host: Host, steps: Steps) -> OpSums:
    """Add up the ops of a host, with `steps` as the averaged steps."""
    trace = host.trace
    counted = union(steps.start_ps, steps.end_ps)
    functions = function_calls(trace)
    of_device = {"gpu": _gpu_sums, "tpu": _tpu_sums}.get(trace.device_kind or "")
    return OpSums(
        host=_host_sums(host, functions, counted),
        device=of_device(host, functions, counted) if of_device else {},
        has_device=bool(trace.devices),
        step_count=len(steps),
        device_count=len(computing(host.device_times)),
    )


def combine(hosts: Sequence[OpSums]) -> OpSums:
    """Add up the sums of several hosts."""
    if len(hosts) == 1:
        return hosts[0]
    return OpSums(
        host=_added(pair for each in hosts for pair in each.host.items()),
        device=_added(pair for each in hosts for pair in each.device.items()),
        has_device=any(each.has_device for each in hosts),
        step_count=sum(each.step_count for each in hosts),
        device_count=sum(each.device_count for each in hosts),
    )


def shorten(sums: OpSums, most: int) -> OpSums:
    """Return the sums with the `most` largest ops of functions per side, and one row for all others."""
    if max(len(sums.host), len(sums.device)) <= most:
        return sums
    return replace(sums, host=_cut(sums.host, most), device=_cut(sums.device, most))


def _cut(sums: Sums, most: int) -> Sums:
    if len(sums) <= most:
        return sums
    others = OpOfFunction(OTHERS, NO_FUNCTION)
    ordered = sorted(sums.items(), key=lambda pair: -pair[1].self_ps)
    return _added([*ordered[:most], *((others, value) for _, value in ordered[most:])])


def _added(pairs: Iterable[tuple[OpOfFunction, OpSum]]) -> Sums:
    sums: Sums = {}
    for key, value in pairs:
        before = sums.get(key)
        sums[key] = value if before is None else before.plus(value)
    return sums


class _Groups(NamedTuple):
    """Events by group: the group of each event; one event and the sums of each group."""

    of_event: Int64s
    first: Int64s
    calls: Int64s
    self_ps: Int64s
    step_calls: Int64s
    step_self_ps: Int64s


def _grouped(key: Int64s, start: Int64s, self_ps: Int64s, step_self_ps: Int64s, counted: Intervals) -> _Groups:
    keys, of_event = distinct_index(key)
    first = np.zeros(len(keys), np.int64)
    first[of_event[::-1]] = np.arange(len(key))[::-1]

    def sums(values: Int64s) -> Int64s:
        totals = np.bincount(of_event, weights=values, minlength=len(keys))
        return np.minimum(totals, MOST).astype(np.int64)

    calls = np.bincount(of_event, minlength=len(keys)).astype(np.int64)
    step_calls = sums(covers(counted, start).astype(np.int64))
    return _Groups(of_event, first, calls, sums(self_ps), step_calls, sums(step_self_ps))


def _rows_of(groups: _Groups, key_of: Callable[[int], OpOfFunction]) -> Iterator[tuple[OpOfFunction, OpSum]]:
    columns = (groups.first, groups.calls, groups.self_ps, groups.step_calls, groups.step_self_ps)
    for event, calls, self_ps, step_calls, step_self_ps in zip(*(column.tolist() for column in columns), strict=True):
        yield key_of(event), OpSum(float(calls), self_ps, float(step_calls), step_self_ps, 0)


def _host_sums(host: Host, functions: FunctionCalls, counted: Intervals) -> Sums:
    trace, rows = host.trace, host_op_rows(host.trace)
    start, end = trace.start_ps[rows.row], trace.end_ps[rows.row]
    function = functions.of(rows.row)
    in_steps = own_time_in(start, end, rows.parent, counted)
    groups = _grouped((function + 1) * len(rows.ops) + rows.name, start, rows.self_ps, in_steps, counted)
    names = (*functions.names, NO_FUNCTION)

    def key_of(event: int) -> OpOfFunction:
        index = int(rows.name[event])
        op, hlo = rows.ops[index], rows.hlo.get(index, ("", ""))
        return of_function(OpKey(op.name, op.type, *hlo), names[int(function[event])])

    return _added(_rows_of(groups, key_of))


def own_time_in(start: Int64s, end: Int64s, parent: Int64s, counted: Intervals) -> Int64s:
    """Return the self time of each event within `counted`."""
    if not len(counted.start) or not len(start):
        return np.zeros(len(start), np.int64)
    event, begin, stop = own_parts(start, end, parent, np.ones(len(start), np.bool_))
    times = np.zeros(len(start), np.int64)
    np.add.at(times, event, overlap(counted, begin, stop))
    return times


def of_function(op: OpKey, function: str = NO_FUNCTION) -> OpOfFunction:
    """Return the key; a compiled op without a known function belongs to the function of its program."""
    if function != NO_FUNCTION or not op.hlo_module:
        return OpOfFunction(op, function)
    compiled = _FUNCTION_OF_PROGRAM.match(op.hlo_module)
    return OpOfFunction(op, next(filter(None, compiled.groups())) if compiled else op.hlo_module)


def _gpu_sums(host: Host, functions: FunctionCalls, counted: Intervals) -> Sums:
    trace, work = host.trace, host.device_work
    if not len(work.rows):
        return {}
    call = host.launch_links.of(work.rows)
    function = np.where(call >= 0, functions.of(np.maximum(call, 0)), -1)
    start, end = trace.start_ps[work.rows], trace.end_ps[work.rows]
    # Work without an op is listed by its name.
    name = np.where(work.op >= 0, 0, equal_names(trace)[trace.name[work.rows]])
    key = ((function + 1) * (len(work.ops) + 1) + work.op + 1) * len(trace.names) + name
    groups = _grouped(key, start, trace.duration_ps[work.rows], overlap(counted, start, end), counted)
    names = (*functions.names, NO_FUNCTION)

    def key_of(event: int) -> OpOfFunction:
        kernel = trace.names[int(trace.name[work.rows[event]])]
        return of_function(key_of_row(work, int(work.op[event]), kernel, event), names[int(function[event])])

    runs = op_runs(trace, work)
    events = np.bincount(work.op[work.op >= 0], minlength=len(work.ops))
    sums: list[tuple[OpOfFunction, OpSum]] = []
    for event, (group, value) in zip(groups.first.tolist(), _rows_of(groups, key_of), strict=True):
        op = int(work.op[event])
        if op >= 0:
            per_event = float(runs.runs[op]) / float(events[op])
            shared = (value.calls * per_event, value.self_ps, value.step_calls * per_event, value.step_self_ps)
            value = OpSum(*shared, int(not runs.is_known[op]))
        sums.append((group, value))
    return _added(sums)


def _tpu_sums(host: Host, _functions: FunctionCalls, counted: Intervals) -> Sums:
    """Add up the op lines of cores, by the functions of their programs; ops nest."""
    trace, key_of_name = host.trace, tpu_keys(host.trace)
    rows, above, count = [NO_NUMBERS], [NO_NUMBERS], 0
    for line in tpu_op_lines(trace):
        parent = nest(trace.start_ps[line.start : line.stop], trace.end_ps[line.start : line.stop]).parent
        rows.append(np.arange(line.start, line.stop))
        above.append(np.where(parent >= 0, parent + count, -1))
        count += len(parent)
    row, parent = np.concatenate(rows), np.concatenate(above)
    planes = np.array([line.plane for line in trace.lines], np.int64)[trace.line_of[row]] if len(row) else row
    start = in_step_time(trace, host["steps"].steps, planes, trace.start_ps[row])
    self_ps = self_time(trace.duration_ps[row], parent)
    in_steps = own_time_in(start, start + trace.duration_ps[row], parent, counted)
    groups = _grouped(trace.name[row], start, self_ps, in_steps, counted)
    return _added(_rows_of(groups, lambda event: of_function(key_of_name(int(trace.name[row[event]])))))
