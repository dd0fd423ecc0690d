"""How the thread of a program on a TPU spends its steps, where each begins with a call that the TPU waits for.

Such a program calls once the TPU is done with the step before, so a step is what the thread does: it calls, it awaits
the result, and for the rest it runs Python.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int64s, difference, distinct, overlap, union, union_all
from tfperf.formats.hlo.hlo_proto import read_proto
from tfperf.formats.hlo.model import ProgramError
from tfperf.trace.event_names import called_function, is_python_frame, mask
from tfperf.trace.host.host_state import State
from tfperf.trace.host.python_packages import python_function
from tfperf.trace.nesting import parents
from tfperf.trace.steps.counted import CountedSteps

if TYPE_CHECKING:
    from tfperf.analysis.results import Host
    from tfperf.trace.device.tpu_runs import TpuRuns
    from tfperf.trace.host_trace import HostTrace

_OF_JAX = re.compile(r"\$(?:api|array|basearray|core|pjit|profiler|traceback_util|tree_util|util)\.py:\d+ ")
"""Files of JAX through which a program awaits results."""


class HostLoop(Struct, frozen=True):
    """What the thread does, in percent of the steps that count; the rest is Python.

    `function` is what takes most of the calls, `waits_by` what takes most of the waiting, and `place` says where: in a
    function of Python, or else after the line that called the program when it was traced. Texts may be empty.
    """

    calling: float
    waiting: float
    function: str
    waits_by: str
    place: str

    def late(self, idle: float) -> float:
        """Return in which share of the step the TPU would be idle if the thread did not wait; now it is in `idle`."""
        return max(idle - self.waiting, 0.0)

    @property
    def calling_share(self) -> float:
        """Return the share of calls in what the thread does but waiting, from 0 to 1."""
        return min(self.calling / (100.0 - self.waiting), 1.0) if self.waiting < 100.0 else 0.0


class HostLoopTimes(Struct, frozen=True, eq=False):
    """The same of one host for each of its steps, in picoseconds."""

    calling_ps: Int64s
    waiting_ps: Int64s
    function: str
    waits_by: str
    place: str

    @classmethod
    def of(cls, host: Host) -> HostLoopTimes | None:
        """Return what the thread does; None unless steps begin with calls that come when the TPU is done."""
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
        """Return the shares of the steps that count."""
        calling, waiting = steps.percent(self.calling_ps) or 0.0, steps.percent(self.waiting_ps) or 0.0
        return HostLoop(calling, waiting, self.function, self.waits_by, self.place)


def _waits(host: Host, lines: list[int]) -> tuple[str, str]:
    """Return what waits for longest on the threads, and the function that calls it; empty if that is not recorded."""
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
    """Return the line that called the function of the main program when it was traced, if the program states it."""
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
