"""The states of host threads that a device could be waiting for.

Each event of a host thread has a `State`; the innermost event with one counts. At any moment the first state in the
order of `State` holds for the host, from states that certainly delay a step to those that may not:

1. A step cannot run before its input is available, so a consumer inside a fetch comes first. Only the consumer counts:
   work of tf.data threads explains the delay, and does not delay steps at other times.
2. Tracing and compilation block the call that needs them; a copy to the device blocks the kernels that read it.
3. A call that launches work, or an op around such a call, leads to the next kernel. An op that launches nothing
   computes on the host. An executor without any op inside prepares launches.
4. Synchronization is waiting, so it counts only when no thread works: the waiting thread waits for another thread.
5. A runtime call without a visible event inside prepares a launch too.
6. A main thread outside of any call runs Python. That is known only for a thread whose calls are recorded.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tfperf.base.arrays import (
    EMPTY,
    Bools,
    Int64s,
    Intervals,
    difference,
    distinct,
    lookup,
    overlap,
    union,
    union_all,
    union_sorted,
)
from tfperf.trace.event_names import is_input_function, is_memory, is_python_frame, mask, parse_op
from tfperf.trace.host.activities import Activity, Codes, host_codes
from tfperf.trace.host.launches import LaunchLinks, launching_calls
from tfperf.trace.host_trace import HostTrace, by_line, once
from tfperf.trace.nesting import nest, own_parts


class State(IntEnum):
    """States of a host thread; at any moment the first in this order holds for the host."""

    NONE = 0
    INPUT = 1
    COMPILE = 2
    COPY = 3
    LAUNCH = 4
    COMPUTE = 5
    EXECUTOR = 6
    SYNC = 7
    CALL = 8
    PYTHON = 9
    OTHER = 10
    """Another event on a thread that is not the main one."""


# Patterns are strings, compiled at their first use, because a job without a device needs none of them.
_NOT_OF_THE_STEP = (
    r"Iterator::|(?:Prefetch|ParallelMap|ParallelInterleave|MapAndBatch|ParallelBatch)\w*(?:Produce|Consume)"
    r"|InstantiatedCapturedFunction|ThreadpoolListener::|(?:cu|hip|cuda)(?:Event|Stream)Query"
    r"|Acquire semaphore$|ReadSyncFlag$|CompleteCallbacks$|tpu::System::\S+=>Done$|MutexLock"
)
"""tf.data's own threads, polling, completed runs of a TPU, and waiting until a TPU has room for one more run."""
_WAIT_FOR_ROOM = "Acquire semaphore"
_FRAMES = (
    (r".* (?:block_until_ready|try_to_block|numpy|_numpy|__array__|synchronize)$", State.SYNC),
    (
        r".* (?:backend_compile\w*|compile_or_get_cached|trace_to_jaxpr\w*|lower_jaxpr\w*|func_graph_from_py_func)$",
        State.COMPILE,
    ),
)
_WAITS = (
    r"(?:cu|hip|cuda)(?:Stream|Ctx|Device|Event)Synchronize|TFE_TensorHandle|.*TensorHandle::(?:WaitReady|Resolve|Tensor)"
    r"|.*(?:BlockHostUntil|BlockUntilReady|block_until_ready|try_to_block|::Await\b|CopyToHost|ToLiteral)|np\.asarray"
    r"|.*numpy\(\)$|tpu::System::TransferFromDevice|(?:D2H|PCIe/Memcpy) Dispatch|(?:Xla)?Delinearize"
    r"|.*copy_to_host_async"
)
_COPIES = (
    r".*:_(?:Host)?(?:Send|Recv)$|EagerCopyToDevice$|CopyToDevice|.*(?:BufferFromHost|TransferToDevice|CopyRawToDevice)"
    r"|.*:InfeedEnqueue|H2D Dispatch|MapDmaBuffer|(?:Xla)?Linearize$|TransposePlan::Execute"
)
_COPY_CALL = r"(?i)(?:cu|hip|cuda)?memcpy|_?(?:InfeedEnqueue|TransferLiteral|TransferToDevice)"
_COPY_KIND = r"(?i).*memcpy\s*_?(h(?:to|2)d|d(?:to|2)h|d(?:to|2)d|p(?:to|2)p)"
_CALLS = (
    r"TFE_|Eager(?:Local|Kernel)?Execute|EagerCopyToDeviceAndAdd|KernelAndDevice|FunctionRun|PjitFunction|PJRT_|PjRt"
    r"|ExecuteReplicated|EagerService:"
)
_BEFORE_COPY_CALLS = (
    (_WAITS, State.SYNC),
    (r"(?:cu|hip|cuda)(?:Module|Library|Link)(?:Load|Complete|AddData|Get)", State.COMPILE),
    (r"(?i).*(?:PJRT_Client_Compile|backend_compile|trace_to_jaxpr|lower_jaxpr|XlaCompile)", State.COMPILE),
    (r".*TpuCompiler::Compile|XLA::TPU |LoadProgram|TfrtTpuClient::DefragmentMemory", State.COMPILE),
    (_COPIES, State.COPY),
)
_AFTER_COPY_CALLS = (
    (r"(?:cu|hip|cuda|nccl|rccl)[A-Z]", State.LAUNCH),
    (r".*(?:Executable_Execute|Executable::(?:Execute|Run)|ExecuteAsyncOnStream|ExecuteHelper)", State.LAUNCH),
    (r"tpu::System::(?:Execute|AllocateAndFill)|(?:EnqueueContinuation|DoEnqueue)Program$", State.LAUNCH),
    (_CALLS, State.CALL),
    (r"Executor(?:PropagateOutputs|DoneCallback)", State.EXECUTOR),
)


_AWAITS_RUN = r".* (?:block_until_ready|try_to_block)$"
"""Frames of JAX in which Python waits until a run has ended."""
_QUARTER, _AT_ONCE = 0.25, 0.1
XLA_RUNS = ("ThunkExecutor::Execute", "CpuExecutable::Execute")
"""Events of XLA that run a whole program on a CPU: all of it is work of the program."""


@lru_cache(maxsize=1 << 15)  # hosts of a run have the same names
def state_of(name: str) -> State:
    """Return the state of an event of this name; copies from a device count as waiting for it."""
    if is_memory(name) or re.match(_NOT_OF_THE_STEP, name):
        return State.NONE
    if is_python_frame(name):
        return _first_match(name, _FRAMES) or State.PYTHON
    if state := _first_match(name, _BEFORE_COPY_CALLS):
        return state
    if re.match(_COPY_CALL, name):  # a copy to the device, waiting for a result, or (inside devices) a launch
        copy = re.match(_COPY_KIND, name)
        kind = copy.group(1).lower() if copy else "h"
        return State.COPY if kind[0] == "h" else State.SYNC if kind[-1] == "h" else State.LAUNCH
    if state := _first_match(name, _AFTER_COPY_CALLS):
        return state
    return State.COMPUTE if ":" in name and parse_op(name).kind in ("tensorflow", "jax") else State.OTHER


def _first_match(name: str, patterns: tuple[tuple[str, State], ...]) -> State | None:
    return next((state for pattern, state in patterns if re.match(pattern, name)), None)


_FROM_PYTHON = ("TFE_", "EagerExecute", "EagerLocalExecute", "EagerKernelExecute", "PjitFunction")
"""Calls from Python; workers of a cluster run functions too, but without Python."""
_BY_ACTIVITY = {
    Activity.WAIT_INPUT: State.INPUT,
    Activity.STAGING: State.COPY,
    Activity.HOST_TO_DEVICE: State.COPY,
    Activity.COMPILE: State.COMPILE,
    Activity.KERNEL_LAUNCH: State.EXECUTOR,
}


class HostStates(Struct, frozen=True, eq=False, dict=True):
    """The states of a host: `code` holds the `State` of every event, `lines` the flat times of each thread by state."""

    code: Codes
    lines: dict[int, dict[State, Intervals]]
    main: int | None
    """Index of the line of the main thread; None: no thread's calls are recorded."""
    recorded: Intervals
    """From the first to the last event of any host thread; the state is unknown outside."""
    drives: dict[int, frozenset[int]]
    """Line -> planes of the devices that it launches work for; lines without launches are absent."""

    def until(self, plane: int) -> tuple[tuple[State, Intervals], ...]:
        """Return, by state in order, when it or an earlier one holds for a device, without threads unrelated to it."""
        strangers = frozenset(line for line, planes in self.drives.items() if plane not in planes)
        return self._of_all_lines if not strangers else self._covered(strangers)

    @cached_property
    def _of_all_lines(self) -> tuple[tuple[State, Intervals], ...]:
        return self._covered(frozenset())

    def _covered(self, without: frozenset[int]) -> tuple[tuple[State, Intervals], ...]:
        covered, until = EMPTY, []
        for state in list(State)[1:]:
            parts = [sets[state] for line, sets in self.lines.items() if state in sets and line not in without]
            if state == State.PYTHON and self.main is not None:
                parts = [self.recorded]
            if parts:
                covered = union_all([covered, *parts])
                until.append((state, covered))
        return tuple(until)


def host_states(trace: HostTrace, links: LaunchLinks) -> HostStates:
    """Return the states of host threads; `links` show which thread launches work on which device."""
    code = _codes(trace)
    main = main_line(trace)
    lines: dict[int, dict[State, Intervals]] = {}
    starts, ends = [], []
    for_room = mask(trace.names, _WAIT_FOR_ROOM.__eq__)
    for index, line in enumerate(trace.lines):
        if trace.planes[line.plane].kind != "host" or line.derived or line.stop <= line.start:
            continue
        rows = slice(line.start, line.stop)
        states = code[rows]
        if line.name.startswith("tf_data_"):
            states[states != State.INPUT] = State.NONE
        elif index == main:
            states[states == State.OTHER] = State.PYTHON
        else:  # only Python of the main thread matters
            states[states == State.PYTHON] = State.NONE
        lines[index] = _times(states, trace.start_ps[rows], trace.end_ps[rows], for_room[trace.name[rows]])
        starts.append(int(trace.start_ps[rows].min()))
        ends.append(int(trace.end_ps[rows].max()))
    recorded = Intervals(np.array([min(starts)]), np.array([max(ends)])) if starts else EMPTY
    count = max(len(trace.planes), 1)
    pairs = distinct(trace.line_of[links.host].astype(np.int64) * count + trace.plane_of(links.device))
    of_pairs, planes = np.divmod(pairs, count)
    drives = {line: frozenset(planes[of_pairs == line].tolist()) for line in of_pairs.tolist()}
    return HostStates(code, lines, main, recorded, drives)


def _codes(trace: HostTrace) -> Codes:
    """Return the state of every event by its name, its launches, and the function that it works for."""
    by_name = np.array([state_of(name) for name in trace.names], np.uint8)
    activities = host_codes(trace, "corrected", has_device=True)
    for activity, state in _BY_ACTIVITY.items():
        by_name[activities == activity] = state
    for stat in ("tf_function_call", "step_num"):
        by_name[trace.name[trace.stat(stat).event]] = State.PYTHON
    code = by_name[trace.name]
    rows = launching_calls(trace)[0]
    # Files before 2021 give the call the name of the kernel.
    unnamed = np.isin(code[rows], (State.OTHER, State.PYTHON, State.COMPUTE))
    code[rows[unnamed]] = State.LAUNCH
    calls = rows[code[rows] == State.LAUNCH].astype(np.int64)
    for line, places in by_line(trace.host_lines, calls):
        ops = np.flatnonzero(code[line.start : line.stop] == State.COMPUTE) + line.start
        if len(ops):
            when = trace.start_ps[calls[places]]
            inside = np.searchsorted(when, trace.end_ps[ops]) - np.searchsorted(when, trace.start_ps[ops])
            code[ops[inside > 0]] = State.LAUNCH
    _silence_input_functions(trace, code)
    return code


def _silence_input_functions(trace: HostTrace, code: Codes) -> None:
    """Ignore executors that run tf.data functions, and all events inside: they share threads with the step."""
    captured = trace.host_events(mask(trace.names, is_input_function))
    ids = distinct(trace.number_at("id", captured))
    work = trace.host_events(mask(trace.names, lambda name: name.startswith("ExecutorState::Process")))
    id_of_work = trace.number_at("id", work)
    runs = work[(lookup(ids, id_of_work) >= 0) & (id_of_work != 0)]
    for line, places in by_line(trace.host_lines, runs):
        start = trace.start_ps[line.start : line.stop]
        first = runs[places] - line.start
        after = np.maximum(np.searchsorted(start, trace.end_ps[runs[places]]), first + 1)
        depth = np.bincount(first, minlength=len(start) + 1) - np.bincount(after, minlength=len(start) + 1)
        code[line.start : line.stop][np.cumsum(depth)[:-1] > 0] = State.NONE


def _times(code: Codes, start: Int64s, end: Int64s, for_room: Bools) -> dict[State, Intervals]:
    """Return when one thread is in each state; while it waits for the device or for room on it, it does not work."""
    sets = {}
    for state in np.flatnonzero(np.bincount(code)).tolist():
        if state not in (State.NONE, State.PYTHON):
            which = code == state
            sets[State(state)] = union_sorted(start[which], end[which])
    waits = union_all([sets.get(State.SYNC, EMPTY), union(start[for_room], end[for_room])])
    if len(waits.start):
        for state in {State.LAUNCH, State.COMPUTE, State.EXECUTOR} & sets.keys():
            sets[state] = difference(sets[state], waits)
    return sets


def main_line(trace: HostTrace) -> int | None:
    """Return the thread that runs steps: the one with most markers, else function calls, else calls; None without
    calls.
    """
    calls = calls_per_line(trace)
    if not calls.any():
        return None
    for stat in ("step_num", "tf_function_call"):
        rows = trace.stat(stat).event
        marks = np.where(calls > 0, _per_line(trace, rows[trace.on_host[rows]]), 0)
        if marks.any():
            return int(marks.argmax())
    return int(calls.argmax())


@once
def calls_per_line(trace: HostTrace) -> Int64s:
    """Return the number of calls from Python on each line of the trace."""
    return _per_line(trace, trace.host_events(mask(trace.names, lambda name: name.startswith(_FROM_PYTHON))))


def call_times(trace: HostTrace, main: int | None) -> Intervals | None:
    """Return when the main thread is in a call, without step markers and Python frames; None without calls.

    JAX frames that wait for a run are calls, because waiting for results is not Python of the program. JAX methods in
    C++ that wait for a run leave no event. If frames are recorded, the thread may be in one of these while XLA runs the
    program on other threads and no frame begins or ends: it is if most such times in a Python function end with the
    run. Times that end later had no core.
    """
    if main is None:
        return None
    is_mark = mask(trace.names, lambda name: is_python_frame(name) and not re.match(_AWAITS_RUN, name))
    is_mark[trace.name[trace.stat("step_num").event]] = True
    rows = slice(trace.lines[main].start, trace.lines[main].stop)
    is_call = ~is_mark[trace.name[rows]]
    calls = union(trace.start_ps[rows][is_call], trace.end_ps[rows][is_call])
    is_frame = mask(trace.names, is_python_frame)[trace.name[rows]]
    runs = trace.host_events(mask(trace.names, lambda name: name.startswith(XLA_RUNS)))
    if not is_frame.any() or not len(runs):
        return calls
    begin, stop = trace.start_ps[rows], trace.end_ps[rows]
    frame, start, end = own_parts(begin, stop, nest(begin, stop).parent, is_frame)
    running = union(trace.start_ps[runs], trace.end_ps[runs])
    may_await = overlap(running, start, end) >= _QUARTER * (end - start)
    name, start, end = trace.name[rows][frame[may_await]], start[may_await], end[may_await]
    after = (end - np.minimum(running.end[np.searchsorted(running.start, end) - 1], end)) / (end - start)
    awaiting = [each for each in np.unique(name) if np.median(after[name == each]) <= _AT_ONCE]
    awaits = np.isin(name, awaiting)
    return union_all([calls, union(start[awaits], end[awaits])])


def _per_line(trace: HostTrace, rows: npt.NDArray[np.signedinteger]) -> Int64s:
    return np.bincount(trace.line_of[rows], minlength=len(trace.lines))
