"""The API of the program, and the time of its steps outside calls, in ops, and waiting for other hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Host
from tfperf.base.arrays import (
    EMPTY,
    MOST,
    Float64s,
    Int64s,
    Intervals,
    covers,
    difference,
    distinct,
    intersection,
    overlap,
    touches,
    union,
    union_all,
)
from tfperf.base.units import PS_PER_MS, percent
from tfperf.formats.hlo.hlo_proto import read_proto
from tfperf.formats.hlo.model import ProgramError
from tfperf.sections.diagnosis.cause import Range
from tfperf.sections.diagnosis.step_ops import StepOps, Work, average_work, callback_of, is_update, shown_name, step_ops
from tfperf.trace.device.kernels import TINY_PS
from tfperf.trace.event_names import (
    HOST_CALLBACK,
    JITTED_CALL,
    REQUEST,
    called_function,
    is_fetch,
    is_hlo_collective,
    is_jitted_call,
    is_python_frame,
    mask,
    parse_op,
    runs_keras_function,
)
from tfperf.trace.host.activities import Activity
from tfperf.trace.host.host_state import XLA_RUNS, State, call_times, calls_per_line
from tfperf.trace.host.python_activity import CpuTimes, Pauses, PythonActivity
from tfperf.trace.host.python_frames import python_function
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import last_around, outermost, parents
from tfperf.trace.steps.breakdown import CountedSteps
from tfperf.trace.steps.eager import NAMED, eager_calls, runs_keras_eagerly
from tfperf.trace.steps.step_calls import find_calls

if TYPE_CHECKING:
    from tfperf.trace.device.tpu_runs import TpuRuns
    from tfperf.trace.steps.breakdown import Breakdown

Api = Literal["keras", "tensorflow", "jax"]

_FIT = re.compile(r"(?:__inference_)?(?:train_function|multi_step_on_iterator|one_step_on_iterator)(?:_\d+)*$")
_NEARLY_ALL = 0.9
_REMAINDER = 0.25
"""Final share of the time between two calls in which no run is active."""
_JAX = re.compile(r"PjitFunction\(|p?jit_+\w+(?:\(\d+\))?$")


class Calls(Struct, frozen=True, kw_only=True):
    """Calls of the averaged steps, per step and in percent of their time."""

    runs_keras_eagerly: bool = False
    """Whether Keras calls no function: `compile(run_eagerly=True)`."""
    fetches: bool = False
    """Whether the program takes its batches from tf.data."""
    function_percent: float = 0.0
    """Time in a tf.function that Python calls."""
    functions_per_step: float = 0.0
    iterators_per_step: float = 0.0
    """Iterators of a dataset created per step."""
    puts_per_step: float = 0.0
    """Copies of host arrays to the device per step, in JAX."""
    requests_per_step: float = 0.0
    """Calls that another process sends."""
    small_puts_per_step: float = 0.0
    small_put_percent: float = 0.0
    """Copies of small host arrays in JAX, with the Python between them."""
    compiling_percent: float = 0.0
    """Share of the capture in which JAX compiles; 0 in captures with steps."""
    conversion_percent: float = 0.0
    """Time in which large NumPy arrays become tensors or JAX arrays."""
    conversions_per_step: float = 0.0
    conversion_bytes: int | None = None
    """The largest allocation in one; None if not recorded."""
    conversion_function: str = ""
    """The function with most of that time in its calls; empty if it is outside of calls."""


class Program(Struct, frozen=True, kw_only=True):
    """API of a program, and shares of the averaged steps; None if the trace does not show them."""

    api: Api
    outside_calls_percent: float | None = None
    """Time of the calling thread outside of calls."""
    op_percent: float | None = None
    """Time with an op of the step on the host, excluding collectives."""
    collective_percent: float = 0.0
    """Time in which the host communicates with others, or waits to do so."""
    is_tpu: bool = False
    is_fit: bool = False
    """Whether Keras takes the batches itself, as in `fit`."""
    hidden_python_percent: float = 0.0
    """Time of Python between calls during a run of an earlier call, if that ends before the next call."""
    collections: Collections | None = None
    """None if garbage collection is not recorded."""
    ready_outside: Range | None = None
    """Share of the time outside of calls in which the thread runs, or has no core; it waits for the rest."""
    ready_inside: Range | None = None
    work: Work | None = None
    """Work of host ops; None if no ops are recorded."""
    calls: Calls = Calls()
    host_loop: HostLoop | None = None
    """Activity of the program's thread in steps, if a TPU is done before each call."""
    on_gpus: Mapping[str, GpuPart] = {}
    """Callbacks and updates on GPUs, by code of the cause."""


class ProgramTimes(Struct, frozen=True, eq=False, kw_only=True, dict=True):
    """Times of one host for each of its steps, in picoseconds, and the averaged steps."""

    api: Api
    steps: CountedSteps
    calls_ps: Int64s | None
    op_ps: Int64s | None
    collective_ps: Int64s
    is_tpu: bool
    is_fit: bool
    hidden_python_ps: Int64s
    python: PythonUse
    work: StepOps | None
    calls: CallTimes
    host_loop: HostLoopTimes | None
    on_gpus: Mapping[str, GpuPartTimes]

    @cached_property
    def program(self) -> Program:
        """Return the shares of the averaged steps."""
        steps = self.steps
        inside = None if self.calls_ps is None else steps.percent(self.calls_ps)
        ready, collections = self.python.ready, self.python.collections
        outside_ready, inside_ready = (
            (None, None) if ready is None or self.calls_ps is None else ready.shares(steps, self.calls_ps)
        )
        return Program(
            api=self.api,
            outside_calls_percent=None if inside is None else 100.0 - inside,
            op_percent=None if self.op_ps is None else steps.percent(self.op_ps),
            collective_percent=steps.percent(self.collective_ps) or 0.0,
            is_tpu=self.is_tpu,
            is_fit=self.is_fit,
            hidden_python_percent=steps.percent(self.hidden_python_ps) or 0.0,
            collections=None if collections is None else collections.counted(steps),
            ready_outside=outside_ready,
            ready_inside=inside_ready,
            work=None if self.work is None else self.work.counted(steps),
            calls=self.calls.counted(steps),
            host_loop=None if self.host_loop is None else self.host_loop.counted(steps),
            on_gpus={code: part.counted(steps) for code, part in self.on_gpus.items()},
        )


def analyze(host: Host) -> ProgramTimes:
    """Determine the API of the program from the functions that it calls, and the times of its steps."""
    trace, steps, main = host.trace, host["steps"].steps, host.host_states.main

    def in_steps(times: Intervals) -> Int64s:
        return overlap(times, steps.start_ps, steps.end_ps)

    calls, exchanges = (
        call_times(trace, main),
        _times(trace, np.flatnonzero(mask(trace.names, is_collective)[trace.name])),
    )
    work, loops = step_ops(trace, host.host_states, steps, exchanges)
    # Ops on any host thread, without those of tf.data functions; executors between the ops of a loop belong to it.
    computing = [times[State.COMPUTE] for times in host.host_states.lines.values() if State.COMPUTE in times]
    runs = np.flatnonzero(mask(trace.names, lambda name: name.startswith(XLA_RUNS))[trace.name])
    thunks = trace.stat("hlo_op").event.astype(np.int64)
    ops = union_all([*computing, _times(trace, runs), _times(trace, thunks), loops])
    ops = difference(ops, exchanges) if len(exchanges.start) else ops
    api: Api = "jax" if any(map(_JAX.match, trace.names)) else "tensorflow"
    if any(map(runs_keras_function, trace.names)) or runs_keras_eagerly(trace):
        api = "keras"
    counted = CountedSteps.of(steps)
    all_steps = union(steps.start_ps, steps.end_ps)
    idle = difference(all_steps, union_all([*host.busy_times.values()]))
    hidden = EMPTY if api != "jax" or calls is None or trace.devices else _hidden_python(host, calls, ops)
    return ProgramTimes(
        api=api,
        is_fit=any(map(_FIT.match, trace.names)),
        hidden_python_ps=in_steps(hidden),
        python=PythonUse.of(trace.python_activity, idle, calls if _has_one_caller(trace, main) else None, counted),
        steps=counted,
        calls_ps=None if calls is None else in_steps(calls),
        op_ps=in_steps(ops) if len(ops.start) else None,
        collective_ps=in_steps(exchanges),
        is_tpu=trace.device_kind == "tpu",
        work=work,
        calls=CallTimes.of(host),
        host_loop=HostLoopTimes.of(host),
        on_gpus=_on_gpus(host),
    )


def narrow(times: ProgramTimes, _: Breakdown, after: Breakdown) -> ProgramTimes:
    """Count only the steps of `after`."""
    return replace(times, steps=times.steps.counting(after))


def _has_one_caller(trace: HostTrace, main: int | None) -> bool:
    """Return whether one Python thread makes nearly all calls, because CPU time is recorded for one thread."""
    if main is None:
        return False
    calls = calls_per_line(trace)
    name = trace.lines[main].name.partition("/")[0]
    alike = [index for index, line in enumerate(trace.lines) if line.name.partition("/")[0] == name]
    return bool(calls[main] >= _NEARLY_ALL * calls[alike].sum())


def _hidden_python(host: Host, calls: Intervals, runs: Intervals) -> Intervals:
    """Return the time of Python between calls, during runs that end well before the next call.

    Then the program waits for Python, and the hidden time is that of a step without it. If Python itself waits for a
    run, the next event shows it, or starts as soon as the run ends.
    """
    trace, states, main = host.trace, host.host_states, host.host_states.main
    if main is None or not len(calls.start):
        return EMPTY
    rows = slice(trace.lines[main].start, trace.lines[main].stop)
    awaited = trace.start_ps[rows][states.code[rows] == State.SYNC]
    start, end = calls.end[:-1], calls.start[1:]
    goes_on = ~touches(runs, end - (_REMAINDER * (end - start)).astype(np.int64), end) & ~np.isin(end, awaited)
    between = Intervals(start[goes_on], end[goes_on])
    return intersection(difference(between, states.lines.get(main, {}).get(State.SYNC, EMPTY)), runs)


def is_collective(name: str) -> bool:
    """Return whether a host event is an exchange with other replicas: the op, or the executor that negotiates it."""
    of_executor = name.startswith(("CollectiveExecutor::", "BaseCollectiveExecutor::", "CollectiveOp"))
    return of_executor or parse_op(name).type.startswith("Collective") or is_hlo_collective(name)


def _times(trace: HostTrace, rows: Int64s) -> Intervals:
    rows = rows[trace.on_host[rows]]
    return union(trace.start_ps[rows], trace.end_ps[rows])


def pace_setter(programs: Sequence[Program]) -> int | None:
    """Return the index of the host that waits least, so the others wait for it; None if no hosts communicate."""
    shares = [program.collective_percent for program in programs]
    return shares.index(min(shares)) if len(shares) > 1 and min(shares) > 0 else None


def combine(programs: Sequence[Program]) -> Program:
    """Return the program of a run, the same on all hosts; shares are averages over the hosts that have them."""
    apis = [program.api for program in programs]

    def average(name: str, part: str = "") -> float | None:
        values = [getattr(program, name) for program in programs]
        known = [getattr(value, part) if part else value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    def range_of(name: str) -> Range | None:
        low, high = average(name, "low"), average(name, "high")
        return None if low is None or high is None else Range(low, high)

    loops = [program.host_loop for program in programs if program.host_loop is not None]
    collections = [program.collections for program in programs if program.collections is not None]
    return Program(
        api=max(apis, key=apis.count),
        outside_calls_percent=average("outside_calls_percent"),
        op_percent=average("op_percent"),
        collective_percent=average("collective_percent") or 0.0,
        is_tpu=any(program.is_tpu for program in programs),
        host_loop=max(loops, key=lambda each: each.waiting, default=None),
        calls=combine_calls([program.calls for program in programs]),
        is_fit=any(program.is_fit for program in programs),
        hidden_python_percent=average("hidden_python_percent") or 0.0,
        collections=max(collections, key=lambda each: each.percent, default=None),
        ready_outside=range_of("ready_outside"),
        ready_inside=range_of("ready_inside"),
        work=average_work([program.work for program in programs]),
        on_gpus=_combined([program.on_gpus for program in programs]),
    )


class GpuPart(Struct, frozen=True):
    """A part of the averaged steps on GPUs: its share of their time, how often it occurs, and the ops of most of it."""

    percent: float
    per_step: float
    ops: tuple[str, ...]


class GpuPartTimes(Struct, frozen=True, eq=False):
    """A part of the steps of one host on its GPUs, in picoseconds per step, and how often it begins on one of them."""

    ps: Int64s
    count: Int64s
    ops: tuple[str, ...]

    def counted(self, steps: CountedSteps) -> GpuPart:
        """Return the part of the averaged steps."""
        return GpuPart(steps.percent(self.ps) or 0.0, steps.sum(self.count) / max(steps.count, 1), self.ops)


_RUNS_THUNKS = "GpuExecutable::ExecuteThunks"
"""Event of XLA around a run of a program for a GPU, callbacks included."""
_MOST_NAMED = 3


def _on_gpus(host: Host) -> dict[str, GpuPartTimes]:
    """Return the time that GPUs wait for Python called by their programs, and the time of short update kernels.

    A callback copies its inputs to the host, waits for Python, and copies the results back. It lasts from its first
    copy until the next other work of the device begins, or else until the run of the program ends. While another kernel
    or copy runs, it costs nothing. A callback without inputs and results is not recorded.
    """
    trace, work, steps = host.trace, host.device_work, host["steps"].steps
    sources = {(op.module, op.op): op.source for op in host["xla"].ops}
    codes = []
    for op in work.ops:
        updates = is_update(op.name, op.type, sources.get((op.hlo_module, op.hlo_op), ""))
        codes.append(callback_of(op.name) or ("unfused_update" if updates else ""))
    kinds = [*filter(None, dict.fromkeys(codes))]
    if not kinds or not len(steps):
        return {}
    of_row = np.array([*(kinds.index(code) if code else -1 for code in codes), -1], np.int8)[work.op]
    callbacks = np.isin(of_row, [kinds.index(code) for code in kinds if code in _CALLBACKS])
    start, end = trace.start_ps[work.rows], trace.end_ps[work.rows]
    busy = union(start[~callbacks], end[~callbacks])
    runs = trace.host_events(mask(trace.names, _RUNS_THUNKS.__eq__))
    found = {}
    for kind, code in enumerate(kinds):
        mine = np.flatnonzero(of_row == kind)
        if code in _CALLBACKS:
            run = last_around(trace, runs, host.launch_links.of(work.rows[mine]))
            until = np.maximum(end[mine], np.append(trace.end_ps[runs], 0)[run])
            for plane in distinct(work.plane[mine]).tolist():
                others = np.append(np.sort(start[(work.plane == plane) & ~callbacks]), MOST)
                here = work.plane[mine] == plane
                until[here] = np.minimum(until[here], others[np.searchsorted(others, start[mine][here])])
            taken = difference(union(start[mine], until), busy)
        else:
            mine = mine[~work.moves[mine] & (end[mine] - start[mine] < TINY_PS)]
            until, taken = end[mine], union(start[mine], end[mine])
        of_one = work.plane[mine] == np.bincount(work.plane[mine], minlength=1).argmax()
        begun = np.sort(start[mine][of_one])
        if code in _CALLBACKS:
            begun = union(start[mine][of_one], until[of_one]).start  # a call makes one copy per array
        first, last = np.searchsorted(begun, (steps.start_ps, steps.end_ps))
        most = np.argsort(-np.bincount(work.op[mine], end[mine] - start[mine], len(work.ops)), kind="stable")
        ops = [work.ops[place] for place in most.tolist() if codes[place] == code]
        names = dict.fromkeys(shown_name(op.name) if code in _CALLBACKS else op.hlo_op or op.type for op in ops)
        found[code] = GpuPartTimes(
            overlap(taken, steps.start_ps, steps.end_ps), np.asarray(last - first, np.int64), tuple(names)[:_MOST_NAMED]
        )
    return found


_CALLBACKS = ("python_in_graph", "print_in_graph")


def _combined(hosts: Sequence[Mapping[str, GpuPart]]) -> dict[str, GpuPart]:
    """Return the average over hosts, with the ops of the host where they take most."""
    found = {}
    for code in dict.fromkeys(code for host in hosts for code in host):
        known = [host[code] for host in hosts if code in host]
        percent, per_step = (sum(each.percent for each in known), sum(each.per_step for each in known))
        most = max(known, key=lambda each: each.percent)
        found[code] = GpuPart(percent / len(hosts), per_step / len(known), most.ops)
    return found


_MAKES_ITERATOR = "MakeIterator"
_PUTS = "DevicePut"
_TO_TENSOR = frozenset({"tf.constant", "convert_to_tensor"})
_TO_DEVICE = frozenset({_PUTS, "H2D Dispatch"})
"""Copies of host arrays in JAX: the call, and the copy on a thread of the CPU client."""
_COMPILES = re.compile(r"backend_compile|CompileToBackendResult$|CompileModuleToLlvmIr$|PjRtCApiCompiler::Compile")
"""Events of a compilation: of Python, and of XLA, whose threads show them if the capture starts inside of it."""
_SMALL_PUTS = frozenset({_PUTS, "DevicePutWithSharding", "shard_args"})
_LARGE_BYTES = 1 << 20
_LEAST_COPY_PS = PS_PER_MS
"""In JAX, a shorter time is the overhead of a call, whatever the size of the array."""


class CallTimes(Struct, frozen=True, eq=False, kw_only=True):
    """Times of calls on one host for each of its steps, in picoseconds."""

    runs_keras_eagerly: bool
    fetches: bool
    function_ps: Int64s
    functions: Int64s
    iterators: Int64s
    puts: Int64s
    requests: Int64s
    small_puts: Int64s
    small_put_ps: Int64s
    compiling_percent: float
    conversion_ps: Int64s
    conversions: Int64s
    conversion_bytes: int | None
    conversion_function: str

    @classmethod
    def of(cls, host: Host) -> CallTimes:
        """Find the calls of a host."""
        trace, steps = host.trace, host["steps"].steps
        functions = find_calls(trace)
        conversions, largest = _conversions(host)
        puts = trace.host_events(mask(trace.names, _PUTS.__eq__))
        small, small_end_ps = _small_puts(trace)

        def count(times: Int64s) -> Int64s:
            first, last = np.searchsorted(np.sort(times), (steps.start_ps, steps.end_ps))
            return np.asarray(last - first, np.int64)

        def in_steps(start: Int64s, end: Int64s) -> Int64s:
            return overlap(union(start, end), steps.start_ps, steps.end_ps)

        rows, texts = eager_calls(trace), trace.stat("eager_op").texts
        by_text = np.append(mask(texts, _MAKES_ITERATOR.__eq__), False)[trace.number_at("eager_op", rows, -1)]
        by_name = mask(trace.names, f"{NAMED}{_MAKES_ITERATOR}".__eq__)[trace.name[rows]]
        return cls(
            runs_keras_eagerly=runs_keras_eagerly(trace),
            fetches=any(map(is_fetch, trace.names)),
            function_ps=in_steps(functions.start, functions.end),
            functions=count(functions.start),
            iterators=count(trace.start_ps[rows[by_text | by_name]]),
            puts=count(trace.start_ps[puts]),
            requests=count(trace.start_ps[trace.host_events(mask(trace.names, REQUEST.__eq__))]),
            small_puts=count(trace.start_ps[small]),
            small_put_ps=in_steps(trace.start_ps[small], small_end_ps),
            compiling_percent=0.0 if len(steps) else _compiling_percent(trace),
            conversion_ps=in_steps(trace.start_ps[conversions], trace.end_ps[conversions]),
            conversions=count(trace.start_ps[conversions]),
            conversion_bytes=largest,
            conversion_function=_function_around(trace, conversions),
        )

    def counted(self, steps: CountedSteps) -> Calls:
        """Return the calls of the averaged steps."""
        count = max(steps.count, 1)
        return Calls(
            runs_keras_eagerly=self.runs_keras_eagerly,
            fetches=self.fetches,
            function_percent=steps.percent(self.function_ps) or 0.0,
            functions_per_step=steps.sum(self.functions) / count,
            iterators_per_step=steps.sum(self.iterators) / count,
            puts_per_step=steps.sum(self.puts) / count,
            requests_per_step=steps.sum(self.requests) / count,
            small_puts_per_step=steps.sum(self.small_puts) / count,
            small_put_percent=steps.percent(self.small_put_ps) or 0.0,
            compiling_percent=self.compiling_percent,
            conversion_percent=steps.percent(self.conversion_ps) or 0.0,
            conversions_per_step=steps.sum(self.conversions) / count,
            conversion_bytes=self.conversion_bytes,
            conversion_function=self.conversion_function,
        )


def combine_calls(calls: Sequence[Calls]) -> Calls:
    """Return the average over hosts."""
    most = max(calls, key=lambda each: each.conversion_percent)
    numbers = [name for name in Calls.__struct_fields__ if name.endswith(("_percent", "_per_step"))]
    return replace(
        most,
        runs_keras_eagerly=any(each.runs_keras_eagerly for each in calls),
        fetches=any(each.fetches for each in calls),
        **{name: sum(getattr(each, name) for each in calls) / len(calls) for name in numbers},
    )


def _conversions(host: Host) -> tuple[Int64s, int | None]:
    """Return the rows of copies of large NumPy arrays, outside of tracing, and the largest allocation (JAX: None)."""
    trace = host.trace
    puts = trace.host_events(mask(trace.names, _TO_DEVICE.__contains__))
    puts, largest = puts[trace.duration_ps[puts] >= _LEAST_COPY_PS], None
    rows = outermost(trace, trace.host_events(mask(trace.names, _TO_TENSOR.__contains__)))
    if trace.allocations is None:
        return puts, None
    memory = trace.allocations
    sizes = memory.number("requested_bytes", 0)
    large = np.flatnonzero(memory.allocates & (sizes >= _LARGE_BYTES))
    large = large[~covers(host.busy_times.get(Activity.COMPILE, EMPTY), memory.start_ps[large])]
    large = large[np.argsort(memory.start_ps[large], kind="stable")]
    first, last = np.searchsorted(memory.start_ps[large], (trace.start_ps[rows], trace.end_ps[rows]))
    rows, first, last = (each[last > first] for each in (rows, first, last))
    if len(rows):
        bounds = np.stack((first, last), axis=1).ravel()
        largest = int(np.maximum.reduceat(np.append(sizes[large], 0), bounds)[::2].max())
    return np.sort(np.concatenate((rows, puts))), largest


def _compiling_percent(trace: HostTrace) -> float:
    """Return the share of the capture in which XLA compiles for JAX on any thread, in percent."""
    rows = trace.host_events(mask(trace.names, _COMPILES.match))
    times, (start_ps, end_ps) = union(trace.start_ps[rows], trace.end_ps[rows]), trace.extent_ps
    return percent(int((times.end - times.start).sum()), end_ps - start_ps) or 0.0


def _small_puts(trace: HostTrace) -> tuple[Int64s, Int64s]:
    """Return the rows of short copies of host arrays in JAX, each with its end, or else the start of the next copy.

    The Python between two copies of a thread belongs to them, unless a jitted function is called there. Copies of
    arguments of a callback belong to the callback.
    """
    rows = outermost(trace, trace.host_events(mask(trace.names, _SMALL_PUTS.__contains__)))
    rows = np.sort(rows[trace.duration_ps[rows] < _LEAST_COPY_PS])
    rows = rows[last_around(trace, trace.host_events(mask(trace.names, HOST_CALLBACK.match)), rows) < 0]
    end_ps = trace.end_ps[rows]
    if len(rows):
        calls = np.sort(trace.host_events(mask(trace.names, is_jitted_call)))
        # The rows of a thread are in the order of their starts.
        follows = (np.diff(trace.line_of[rows]) == 0) & (np.diff(np.searchsorted(calls, rows)) == 0)
        end_ps[:-1] = np.where(follows, trace.start_ps[rows[1:]], end_ps[:-1])
    return rows, end_ps


def _function_around(trace: HostTrace, rows: Int64s) -> str:
    """Return the function with most of the time of these rows in its calls; empty if all is outside of calls."""
    jitted = trace.host_events(mask(trace.names, is_jitted_call))
    calls = np.sort(np.concatenate((trace.stat("tf_function_call").event.astype(np.int64), jitted)))
    around = np.append(calls, -1)[last_around(trace, calls, rows)]
    name = trace.name[around[around >= 0]]
    if not len(name):
        return ""
    most = np.bincount(name, weights=trace.duration_ps[rows[around >= 0]]).argmax()
    return trace.names[int(most)].removeprefix(JITTED_CALL).removesuffix(")")


_OF_JAX = re.compile(r"\$(?:api|array|basearray|core|pjit|profiler|traceback_util|tree_util|util)\.py:\d+ ")
"""Files of JAX through which a program waits for results."""


class HostLoop(Struct, frozen=True):
    """Steps of a program thread on a TPU, in percent of their time; the rest is Python.

    The program calls after the TPU is done with the step before, and then waits for the result. `function` takes most
    of the calls, and `waits_by` most of the waiting. `place` is a Python function, or else the line that called the
    program when it was traced. Texts may be empty.
    """

    calling: float
    waiting: float
    function: str
    waits_by: str
    place: str

    def late(self, idle: float) -> float:
        """Return the share of the step in which the TPU would be idle without waiting; `idle` is the current share."""
        return max(idle - self.waiting, 0.0)

    @property
    def calling_share(self) -> float:
        """Return the share of calls in the thread's time without waiting, from 0 to 1."""
        return min(self.calling / (100.0 - self.waiting), 1.0) if self.waiting < 100.0 else 0.0


class HostLoopTimes(Struct, frozen=True, eq=False):
    """Times of the thread on one host for each of its steps, in picoseconds."""

    calling_ps: Int64s
    waiting_ps: Int64s
    function: str
    waits_by: str
    place: str

    @classmethod
    def of(cls, host: Host) -> HostLoopTimes | None:
        """Return the times of the thread; None unless steps begin with calls after the TPU is done."""
        trace, steps = host.trace, host["steps"].steps
        if trace.device_kind != "tpu" or steps.source == "device steps" or steps.on_cores or not len(steps):
            return None
        from tfperf.trace.device.tpu_runs import find_runs  # few traces are of TPUs

        runs = find_runs(trace)
        calls = distinct(runs.call[runs.call >= 0])
        if not len(calls):
            return None
        states, lines = host.host_states, distinct(trace.line_of[calls]).tolist()
        waits = [states.lines[line][State.SYNC] for line in lines if State.SYNC in states.lines.get(line, {})]
        calling = union(trace.start_ps[calls], trace.end_ps[calls])
        name = np.bincount(trace.name[calls], weights=trace.duration_ps[calls]).argmax()
        waits_by, place = _waits(host, lines)
        return cls(
            overlap(calling, steps.start_ps, steps.end_ps),
            overlap(difference(union_all(waits), calling), steps.start_ps, steps.end_ps),
            called_function(trace.names[name]),
            waits_by,
            place or _called_from(trace, runs),
        )

    def counted(self, steps: CountedSteps) -> HostLoop:
        """Return the shares of the averaged steps."""
        calling, waiting = steps.percent(self.calling_ps) or 0.0, steps.percent(self.waiting_ps) or 0.0
        return HostLoop(calling, waiting, self.function, self.waits_by, self.place)


def _waits(host: Host, lines: list[int]) -> tuple[str, str]:
    """Return the event with most waiting on the threads, and the function that calls it; empty if not recorded."""
    trace = host.trace
    rows = np.concatenate([np.arange(trace.lines[line].start, trace.lines[line].stop) for line in sorted(lines)])
    waits = host.host_states.code[rows] == State.SYNC
    rows = rows[waits | mask(trace.names, is_python_frame)[trace.name[rows]]]
    waits = host.host_states.code[rows] == State.SYNC
    above = parents(trace, rows)
    outer = np.flatnonzero(waits & ~np.append(waits, False)[above])
    if not len(outer):
        return "", ""
    name = trace.name[rows]
    longest = np.bincount(name[outer], weights=trace.duration_ps[rows[outer]]).argmax()
    at = int(above[outer[name[outer] == longest][0]])
    while at >= 0 and _OF_JAX.match(trace.names[name[at]]):
        at = int(above[at])
    caller = python_function(trace.names[name[at]]) if at >= 0 else None
    text = trace.names[longest]
    waits_by = python_function(text).name if is_python_frame(text) else text
    return waits_by, "" if caller is None or not caller.file else f"in {caller.shown}"


def _called_from(trace: HostTrace, runs: TpuRuns) -> str:
    """Return the line that called the function of the main program when it was traced, if the program contains it."""
    main = int(np.bincount(runs.name, weights=runs.duration_ps).argmax())
    at = np.flatnonzero((runs.name == main) & runs.known)[:1].tolist()
    serialized = (trace.hlo_protos or {}).get(int(runs.program[at[0]])) if at else None
    if serialized is None:
        return ""
    try:
        instructions = read_proto(serialized).entry.instructions
    except ProgramError:
        return ""
    stack = next((each.metadata.stack for each in instructions if len(each.metadata.stack) > 1), ())
    return f"after the call in {stack[-1].file.rpartition('/')[2]}:{stack[-1].line}" if stack else ""


_LEAST_COVERED = 0.9
"""Minimum recorded share of a time for a conclusion about it."""
_HALF = 0.5
_FEW = 2
_FULL = 2
"""The generation whose collection visits all objects."""


class Collections(Struct, frozen=True, kw_only=True):
    """Garbage collection in the averaged steps."""

    percent: float
    """In percent of the step time."""
    alone_percent: float
    """Without any other event, in percent of the step time."""
    count: int
    full_count: int
    """Collections that visit all objects."""
    longest_ms: float
    most_steps: int
    """The minimum number of steps that hold half of the time."""
    rare_steps: int
    """Number of steps with nearly all of that time, if one or two of many have it, at no regular interval; else 0."""
    step_count: int
    place: str
    """The Python line in most of that time; empty if unknown, or if no line is in most of it."""


class CollectionTimes(Struct, frozen=True, eq=False, kw_only=True):
    """Garbage collection in each step of a host."""

    total_ps: Int64s
    alone_ps: Int64s
    count: Int64s
    full_count: Int64s
    longest_ps: Int64s
    place: str

    @classmethod
    def of(cls, pauses: Pauses, idle: Intervals, steps: CountedSteps) -> CollectionTimes:
        """Measure pauses in each step; `idle` is the time without events."""
        start, end = steps.start_ps, steps.start_ps + steps.duration_ps
        times = union(pauses.start_ps, pauses.end_ps)
        first, last = np.searchsorted(pauses.start_ps, start), np.searchsorted(pauses.start_ps, end)
        lengths = np.append(pauses.end_ps - pauses.start_ps, 0)
        full = np.concatenate(([0], np.cumsum(pauses.generation == _FULL)))
        bounds = np.stack((first, last), axis=1).ravel()
        longest = np.maximum.reduceat(lengths, bounds)[::2] if len(bounds) else lengths[:0]
        return cls(
            total_ps=overlap(times, start, end),
            alone_ps=overlap(intersection(times, idle), start, end),
            count=last - first,
            full_count=full[last] - full[first],
            longest_ps=np.where(last > first, longest, 0),
            place=_most_of(pauses, steps),
        )

    def counted(self, steps: CountedSteps) -> Collections | None:
        """Return the collections in the averaged steps."""
        percent, alone_percent = steps.percent(self.total_ps), steps.percent(self.alone_ps)
        if percent is None or alone_percent is None:
            return None
        times = self.total_ps[steps.counted]
        ordered = np.sort(times)[::-1]
        most = int(np.searchsorted(np.cumsum(ordered), _HALF * ordered.sum())) + 1 if ordered.any() else 0
        return Collections(
            percent=percent,
            alone_percent=alone_percent,
            count=steps.sum(self.count),
            full_count=steps.sum(self.full_count),
            longest_ms=float(self.longest_ps[steps.counted].max()) / PS_PER_MS,
            most_steps=most,
            rare_steps=_rare_steps(times),
            step_count=steps.count,
            place=self.place,
        )


def _rare_steps(times: Int64s) -> int:
    """Return the number of steps with nearly all of these times, if these are one or two of many, aperiodic; else 0."""
    order = np.argsort(-times, kind="stable")
    number = int(np.searchsorted(np.cumsum(times[order]), _NEARLY_ALL * times.sum())) + 1
    if number > _FEW or number >= _HALF * len(times):
        return 0
    first, last = int(order[:number].min()), int(order[:number].max())
    has_period = number == _FEW and max(first, len(times) - 1 - last) < last - first
    return 0 if has_period else number


def _most_of(pauses: Pauses, steps: CountedSteps) -> str:
    counted = union(steps.start_ps[steps.counted], (steps.start_ps + steps.duration_ps)[steps.counted])
    times = overlap(counted, pauses.start_ps, pauses.end_ps)
    places = dict.fromkeys(pauses.places, 0)
    for place in places:
        places[place] = int(times[[each == place for each in pauses.places]].sum())
    most = max(places, key=lambda place: places[place], default="")
    return most if places and places[most] > _HALF * times.sum() else ""


class ReadyTimes(Struct, frozen=True, eq=False, kw_only=True):
    """Time in each step in which the thread was ready (running or without a core), outside and inside of calls."""

    outside: tuple[Float64s, Float64s]
    """Lowest and highest value."""
    inside: tuple[Float64s, Float64s]
    outside_ps: Int64s
    inside_ps: Int64s
    """Recorded time outside and inside of calls."""

    @classmethod
    def of(cls, cpu: CpuTimes, calls: Intervals, steps: CountedSteps) -> ReadyTimes:
        """Measure the recorded time of each step."""
        start, end = steps.start_ps, steps.start_ps + steps.duration_ps
        recorded = union(cpu.start_ps, cpu.end_ps)
        outside, inside = difference(recorded, calls), intersection(recorded, calls)
        return cls(
            outside=cpu.within(outside, start, end),
            inside=cpu.within(inside, start, end),
            outside_ps=overlap(outside, start, end),
            inside_ps=overlap(inside, start, end),
        )

    def shares(self, steps: CountedSteps, calls_ps: Int64s) -> tuple[Range | None, Range | None]:
        """Return the ready share of the thread outside and inside of calls, in percent; None if too little is known."""
        inside_ps = steps.sum(calls_ps)
        outside_ps = steps.total_ps - inside_ps
        parts = ((self.outside, self.outside_ps, outside_ps), (self.inside, self.inside_ps, inside_ps))
        outside, inside = (
            _share([float(each[steps.counted].sum()) for each in bounds], steps.sum(recorded), whole)
            for bounds, recorded, whole in parts
        )
        return outside, inside


def _share(bounds: Sequence[float], recorded_ps: int, whole_ps: int) -> Range | None:
    if recorded_ps <= 0 or recorded_ps < _LEAST_COVERED * whole_ps:
        return None
    return Range(*(100.0 * min(max(bound / recorded_ps, 0.0), 1.0) for bound in bounds))


class PythonUse(Struct, frozen=True, eq=False, kw_only=True):
    """Python on the calling thread, as recorded in captures of tfperf; None if not recorded."""

    collections: CollectionTimes | None = None
    ready: ReadyTimes | None = None

    @classmethod
    def of(cls, activity: PythonActivity, idle: Intervals, calls: Intervals | None, steps: CountedSteps) -> PythonUse:
        """Measure the recorded Python activity."""
        return cls(
            collections=None if activity.pauses is None else CollectionTimes.of(activity.pauses, idle, steps),
            ready=None if activity.cpu is None or calls is None else ReadyTimes.of(activity.cpu, calls, steps),
        )
