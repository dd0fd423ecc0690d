"""What kind of program a trace is of, and how its steps are spent: in no call, in ops, waiting for other hosts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.results import Host
from tfperf.base.arrays import EMPTY, Int64s, Intervals, difference, intersection, overlap, touches, union, union_all
from tfperf.sections.diagnosis.calls import Calls, CallTimes, combine_calls
from tfperf.sections.diagnosis.cause import Range
from tfperf.sections.diagnosis.host_loop import HostLoop, HostLoopTimes
from tfperf.sections.diagnosis.python_use import Collections, PythonUse
from tfperf.sections.diagnosis.step_ops import StepOps, Work, average, step_ops
from tfperf.trace.event_names import is_hlo_collective, mask, parse_op, runs_keras_function
from tfperf.trace.host.host_state import XLA_RUNS, HostStates, State, call_times, calls_per_line
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.counted import CountedSteps
from tfperf.trace.steps.eager_events import runs_keras_eagerly

if TYPE_CHECKING:
    from tfperf.trace.steps.breakdown import Breakdown

Api = Literal["keras", "tensorflow", "jax"]

_FIT = re.compile(r"(?:__inference_)?(?:train_function|multi_step_on_iterator|one_step_on_iterator)(?:_\d+)*$")
_NEARLY_ALL = 0.9
_REMAINDER = 0.25
"""The share of the time between two calls in which no run goes on any more, at the end of it."""
_JAX = re.compile(r"PjitFunction\(|p?jit_+\w+(?:\(\d+\))?$")


class Program(Struct, frozen=True, kw_only=True):
    """How a program is written, and shares of the steps that count; None where the trace cannot tell."""

    api: Api
    outside_calls_percent: float | None = None
    """In which the thread that makes the calls is in none."""
    op_percent: float | None = None
    """In which an op of the step runs on the host; collectives do not count."""
    collective_percent: float = 0.0
    """In which the host communicates with others, or waits for them to do so."""
    is_tpu: bool = False
    """Whether its devices are TPU cores."""
    is_fit: bool = False
    """Whether Keras takes the batches itself, in `fit` and its like."""
    hidden_python_percent: float = 0.0
    """In which Python runs between calls beside what an earlier call started, if that is done before the next call."""
    collections: Collections | None = None
    """None: runs of the garbage collector are not recorded."""
    ready_outside: Range | None = None
    """In which share of the time outside of calls the thread runs, or has no core; the rest it waits."""
    ready_inside: Range | None = None
    work: Work | None = None
    """What ops of the host take; None where none is recorded."""
    calls: Calls = Calls()
    host_loop: HostLoop | None = None
    """How the thread of the program spends its steps, if a TPU is done before each call."""


class ProgramTimes(Struct, frozen=True, eq=False, kw_only=True, dict=True):
    """The same of one host for each of its steps, in picoseconds, and which steps count."""

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

    @cached_property
    def program(self) -> Program:
        """Return the shares of the steps that count."""
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
        )


def analyze(host: Host) -> ProgramTimes:
    """Tell the API of the program by the functions that it calls, and how its steps are spent."""
    trace, steps, main = host.trace, host["steps"].steps, host.host_states.main

    def in_steps(times: Intervals) -> Int64s:
        return overlap(times, steps.start_ps, steps.end_ps)

    calls, exchanges = (
        call_times(trace, main),
        _times(trace, np.flatnonzero(mask(trace.names, is_collective)[trace.name])),
    )
    ops = _ops(trace, host.host_states)
    work, loops = step_ops(trace, host.host_states, steps, exchanges)
    ops = union_all([ops, loops])  # what executors do between the ops of a loop is the work of its op
    ops = difference(ops, exchanges) if len(exchanges.start) else ops
    api, counted = _api(trace), CountedSteps.of(steps)
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
    )


def narrow(times: ProgramTimes, _: Breakdown, after: Breakdown) -> ProgramTimes:
    """Count the steps of `after` alone."""
    return replace(times, steps=times.steps.counting(after))


def _api(trace: HostTrace) -> Api:
    if any(map(runs_keras_function, trace.names)) or runs_keras_eagerly(trace):
        return "keras"
    return "jax" if any(map(_JAX.match, trace.names)) else "tensorflow"


def _has_one_caller(trace: HostTrace, main: int | None) -> bool:
    """Tell whether one thread of Python makes nearly all calls: the CPU time that is recorded is that of one thread."""
    if main is None:
        return False
    calls = calls_per_line(trace)
    name = trace.lines[main].name.partition("/")[0]
    alike = [index for index, line in enumerate(trace.lines) if line.name.partition("/")[0] == name]
    return bool(calls[main] >= _NEARLY_ALL * calls[alike].sum())


def _hidden_python(host: Host, calls: Intervals, runs: Intervals) -> Intervals:
    """Return when Python goes on between calls beside runs that have ended well before the next call.

    Then the program waits for Python; what it hides would be the step without it. Where Python itself waits for a run,
    the next event says so, or comes at once when the run has ended.
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


def _ops(trace: HostTrace, states: HostStates) -> Intervals:
    """Return when ops of the step run on any thread of the host: those of tf.data's functions do not count."""
    computing = [times[State.COMPUTE] for times in states.lines.values() if State.COMPUTE in times]
    runs = np.flatnonzero(mask(trace.names, lambda name: name.startswith(XLA_RUNS))[trace.name])
    thunks = trace.stat("hlo_op").event.astype(np.int64)
    return union_all([*computing, _times(trace, runs), _times(trace, thunks)])


def is_collective(name: str) -> bool:
    """Tell whether a host event is an exchange with other replicas: the op, or the executor that agrees on it."""
    of_executor = name.startswith(("CollectiveExecutor::", "BaseCollectiveExecutor::", "CollectiveOp"))
    return of_executor or parse_op(name).type.startswith("Collective") or is_hlo_collective(name)


def _times(trace: HostTrace, rows: Int64s) -> Intervals:
    rows = rows[trace.on_host[rows]]
    return union(trace.start_ps[rows], trace.end_ps[rows])


def pace_setter(programs: Sequence[Program]) -> int | None:
    """Return the host that others wait for: the one that waits least itself, as an index; None if none communicate."""
    shares = [program.collective_percent for program in programs]
    return shares.index(min(shares)) if len(shares) > 1 and min(shares) > 0 else None


def combine(programs: Sequence[Program]) -> Program:
    """Return the program of a run: hosts of one job run the same; shares are averages over the hosts that tell."""
    apis = [program.api for program in programs]
    return Program(
        api=max(apis, key=apis.count),
        outside_calls_percent=_average([program.outside_calls_percent for program in programs]),
        op_percent=_average([program.op_percent for program in programs]),
        collective_percent=_average([program.collective_percent for program in programs]) or 0.0,
        is_tpu=any(program.is_tpu for program in programs),
        host_loop=max(
            (program.host_loop for program in programs if program.host_loop is not None),
            key=lambda each: each.waiting,
            default=None,
        ),
        calls=combine_calls([program.calls for program in programs]),
        is_fit=any(program.is_fit for program in programs),
        hidden_python_percent=_average([program.hidden_python_percent for program in programs]) or 0.0,
        collections=max(
            (program.collections for program in programs if program.collections is not None),
            key=lambda each: each.percent,
            default=None,
        ),
        ready_outside=_average_range([program.ready_outside for program in programs]),
        ready_inside=_average_range([program.ready_inside for program in programs]),
        work=average([program.work for program in programs]),
    )


def _average_range(ranges: Sequence[Range | None]) -> Range | None:
    lows = _average([None if each is None else each.low for each in ranges])
    highs = _average([None if each is None else each.high for each in ranges])
    return None if lows is None or highs is None else Range(lows, highs)


def _average(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None
