"""What Python calls: tf.functions, and ops that it runs eagerly beside them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.results import Host
from tfperf.analysis.tabular import Tabular
from tfperf.base.arrays import group_sums, touches
from tfperf.base.units import PS_PER_MS
from tfperf.sections.functions.eager import EagerOps, find_eager_ops, shorten_eager_ops, sum_eager_ops
from tfperf.sections.functions.jitted import (
    OTHER_FUNCTIONS,
    JittedFunctions,
    find_barriers,
    jitted_functions,
    shorten_jitted,
    single_ops,
    sum_jitted,
)
from tfperf.trace.event_names import canonical, is_jitted_call, runs_keras_function
from tfperf.trace.host.activities import xla_compilations
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import parents, self_time
from tfperf.trace.steps.breakdown import Breakdown

_MODES = {"traced": "traced", "not_traced": "notTraced", "eager": "eager", "concrete": "concrete"}
"""Modes of calls: as columns name them, and as traces do."""
_SEVERAL_FUNCTIONS = 3
"""From so many calls on that are each the nth tracing, a program makes functions in a loop."""


class Functions(Tabular, frozen=True):
    """tf.functions that were called, the one with the largest self time first; ops run eagerly; jitted functions."""

    home = ("functions", "tf_functions")

    functions: tuple[FunctionStats, ...]
    eager: EagerOps
    jitted: JittedFunctions = JittedFunctions()

    def columns(self) -> dict[str, list[object]]:
        """Return one row per tf.function; the other tables are `eager.table` and `jitted.table`."""
        rows = self.functions
        return {
            "function": [row.name for row in rows],
            "calls": [row.call_count for row in rows],
            **{f"{key}_calls": [row.calls.get(mode, 0) for row in rows] for key, mode in _MODES.items()},
            "tracing_count": [row.tracing_count or None for row in rows],
            "compiler": ["XLA" if row.is_compiled else "" for row in rows],
            "compiling_calls": [row.compiling_calls for row in rows],
            "self_ms": [row.total_self_ps / PS_PER_MS for row in rows],
            "expensive_call_percent": [row.expensive_percent for row in rows],
        }


def analyze(host: Host) -> Functions:
    """Sum the calls of tf.functions and of jitted functions, and the ops that Python ran eagerly."""
    trace, steps = host.trace, host["steps"].steps
    calls = count_calls(trace)
    if any(map(is_jitted_call, trace.names)):
        from tfperf.trace.jax.jax_calls import find_jax_calls  # few traces are of JAX

        jitted = find_jax_calls(trace)
        if jitted is not None:
            found = Functions(calls, single_ops(trace, jitted, steps), jitted_functions(jitted, steps))
            if trace.device_kind == "tpu":
                found = replace(found, jitted=replace(found.jitted, barriers=find_barriers(trace, jitted)))
            return _with_changes(trace, found)
    return _with_changes(trace, Functions(calls, find_eager_ops(trace, steps)))


_MOST_PROGRAMS = 4
"""So many programs of a function are compared: reading one takes milliseconds."""


def _with_changes(trace: HostTrace, functions: Functions) -> Functions:
    """Add what differs between the programs of functions that XLA compiles more than once."""
    if trace.hlo_protos is None:
        return functions

    def changed(name: str, compiling_calls: int) -> str:
        return changed_arguments(_programs_of(trace, name)) if compiling_calls > 1 else ""

    jitted = tuple(
        replace(each, changed=changed(each.name, each.compiling_calls)) for each in functions.jitted.functions
    )
    called = tuple(replace(each, changed=changed(each.name, each.compiling_calls)) for each in functions.functions)
    return replace(functions, functions=called, jitted=replace(functions.jitted, functions=jitted))


def _programs_of(trace: HostTrace, function: str) -> list[bytes]:
    """Return serialized programs of a function of JAX or TensorFlow, or of the step of Keras that it runs."""
    name = re.escape(canonical(function))
    names = f"{name}|one_step_on_data" if runs_keras_function(function) else name
    wanted = re.compile(rf"(?:jit_|a_inference_)(?:{names})(?:_\d+__.*)?$")
    matching = sorted(key for key, program in trace.programs.items() if wanted.match(program.module))
    return [(trace.hlo_protos or {})[key] for key in matching[:_MOST_PROGRAMS]]


def changed_arguments(programs: list[bytes]) -> str:
    """Say in which argument, and how, programs of one function differ: its shapes; empty where nothing tells.

    Programs with the same shapes are of other static values, or of a function that is made anew.
    """
    from tfperf.formats.hlo.hlo_proto import read_proto
    from tfperf.formats.hlo.model import ProgramError

    arguments: list[list[tuple[str, str]]] = []
    for data in programs:
        try:
            entry = read_proto(data).entry
        except ProgramError:
            return ""
        found = [entry.instructions[at] for at in entry.parameters]
        texts = (f"{each.shape.type}[{','.join(map(str, each.shape.dims))}]" for each in found)
        arguments.append([(each.metadata.op_name, text) for each, text in zip(found, texts, strict=True)])
    if len(arguments) < _SEVERAL or len({len(each) for each in arguments}) > 1:
        return ""
    for versions in zip(*arguments, strict=True):
        shapes = list(dict.fromkeys(shape for _, shape in versions))
        if len(shapes) > 1:
            name = versions[0][0]
            return f"{name if name not in _NAMELESS else 'an argument'} is {' or '.join(shapes[:_NAMED])}"
    return "its arguments have the same shapes, so a static value changes, or the function is made anew"


_SEVERAL, _NAMED = 2, 3
_NAMELESS = ("", "XLA_Args")
"""What XLA calls the arguments of TensorFlow."""


def combine(parts: list[Functions]) -> Functions:
    """Add up what several hosts called."""
    calls = sum_calls(function for part in parts for function in part.functions)
    eager = sum_eager_ops([part.eager for part in parts])
    return Functions(calls, eager, sum_jitted([part.jitted for part in parts]))


def narrow(functions: Functions, _: Breakdown, after: Breakdown) -> Functions:
    """Count the ops run eagerly in the steps of `after` alone; calls of functions are those of the whole capture."""
    eager = functions.eager
    return replace(functions, eager=replace(eager, steps=eager.steps.counting(after)))


def shorten(functions: Functions, most: int) -> Functions:
    """Return so many functions and types of ops, those that take most time, and one row for all others of each."""
    jitted, eager = functions.jitted, functions.eager
    if max(len(functions.functions), len(eager.op_types), len(jitted.functions)) <= most:
        return functions
    return Functions(
        sum_calls((*functions.functions[:most], *(_as_other(each) for each in functions.functions[most:]))),
        shorten_eager_ops(eager, most),
        shorten_jitted(jitted, most),
    )


def _as_other(function: FunctionStats) -> FunctionStats:
    # How often several functions were traced is no number of one.
    return replace(function, name=OTHER_FUNCTIONS, tracing_count=0, is_made_anew=False, changed="")


class FunctionStats(Struct, frozen=True):
    """One tf.function; times in picoseconds, `calls` and `self_ps` by mode as the trace names it."""

    name: str
    calls: dict[str, int]
    self_ps: dict[str, int]
    tracing_count: int
    """How often the function had been traced since the program started, at the end of the capture; 0: not recorded."""
    is_compiled: bool
    """Whether XLA compiled it, in any call."""
    compiling_calls: int = 0
    """Calls, in no other call, in which XLA compiled: of this function, or of one that it calls."""
    is_made_anew: bool = False
    """Whether several functions of this name were traced: one function counts its tracings."""
    changed: str = ""
    """What differs between the programs that XLA compiled for it; empty: unknown."""

    @property
    def call_count(self) -> int:
        """Return the number of calls."""
        return sum(self.calls.values())

    @property
    def unknown_count(self) -> int:
        """Return the number of calls whose mode is none that TensorFlow writes."""
        return self.call_count - sum(self.calls.get(mode, 0) for mode in _MODES.values())

    @property
    def total_self_ps(self) -> int:
        """Return the self time of all calls."""
        return sum(self.self_ps.values())

    @property
    def expensive_percent(self) -> float:
        """Return the part of the self time spent in calls that trace or run eagerly."""
        expensive = self.self_ps.get("traced", 0) + self.self_ps.get("eager", 0)
        return 100.0 * expensive / self.total_self_ps if self.total_self_ps else 0.0


def count_calls(trace: HostTrace) -> tuple[FunctionStats, ...]:
    """Sum the tf.function calls of a host, nested calls apart from the call around them."""
    stat = trace.stat("tf_function_call")
    rows = stat.event.astype(np.int64)
    around = parents(trace, rows)
    self_ps = self_time(trace.duration_ps[rows], around)
    compiles = (around < 0) & touches(xla_compilations(trace), trace.start_ps[rows], trace.end_ps[rows])
    keys = trace.name[rows], stat.value, trace.number_at("tracing_count", rows), compiles.astype(np.int64)
    parts = []
    for (name, text, tracing_count, compiling), (count, total_ps, _, _) in group_sums(self_ps, keys):
        mode, _, compiler = stat.texts[text].partition("-")
        sums = {mode: count}, {mode: total_ps}
        anew = mode == _MODES["traced"] and tracing_count > 0 and count >= _SEVERAL_FUNCTIONS
        parts.append(FunctionStats(trace.names[name], *sums, tracing_count, compiler == "xla", compiling * count, anew))
    return sum_calls(parts)


def sum_calls(parts: Iterable[FunctionStats]) -> tuple[FunctionStats, ...]:
    """Add up what belongs to one function; the one with the largest self time comes first."""
    sums: dict[str, FunctionStats] = {}
    for part in parts:
        before = sums.get(part.name, FunctionStats(part.name, {}, {}, 0, False))
        sums[part.name] = FunctionStats(
            part.name,
            dict(Counter(before.calls) + Counter(part.calls)),
            dict(Counter(before.self_ps) + Counter(part.self_ps)),
            max(before.tracing_count, part.tracing_count),
            before.is_compiled or part.is_compiled,
            before.compiling_calls + part.compiling_calls,
            before.is_made_anew or part.is_made_anew,
            before.changed or part.changed,
        )
    return tuple(sorted(sums.values(), key=lambda function: (-function.total_self_ps, function.name)))
