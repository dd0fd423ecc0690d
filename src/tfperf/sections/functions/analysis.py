"""Calls of tf.functions and jitted functions, and eager ops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from operator import add
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Host, Tabular
from tfperf.base.arrays import (
    EMPTY,
    MOST,
    Bools,
    Int64s,
    Intervals,
    difference,
    distinct,
    distinct_index,
    group_sums,
    lookup,
    overlap,
    touches,
    union,
    union_all,
)
from tfperf.base.units import PS_PER_MS
from tfperf.report.model import Data
from tfperf.sections.functions.eager import (
    BESIDE_READS,
    FETCHES,
    EagerOps,
    find_eager_ops,
    joined,
    shorten_eager_ops,
    sum_eager_ops,
    with_python_around,
    with_python_beside,
)
from tfperf.trace.device.device_work import device_label
from tfperf.trace.event_names import HOST_CALLBACK, canonical, is_jitted_call, mask, runs_keras_function
from tfperf.trace.host.activities import xla_compilations
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import last_around, outermost, parents, self_time
from tfperf.trace.steps.breakdown import Breakdown, CountedSteps
from tfperf.trace.steps.steps import Steps

if TYPE_CHECKING:
    from tfperf.trace.jax import JaxCalls, Work

_MODES = {"traced": "traced", "not_traced": "notTraced", "eager": "eager", "concrete": "concrete"}
"""Modes of calls: name in columns -> name in traces."""
_SEVERAL_FUNCTIONS = 3
"""At least this many calls that are each the nth tracing mean that a program creates functions in a loop."""


_COMPUTES = {"gradient": "gradients", "forward": "forward only", "other": "neither"}


class FunctionStats(Struct, frozen=True):
    """One tf.function. Times are in picoseconds; `calls` and `self_ps` are by mode, as named in the trace."""

    name: str
    calls: dict[str, int]
    self_ps: dict[str, int]
    tracing_count: int
    """Tracings since the program started, at the end of the capture; 0 if not recorded."""
    is_compiled: bool
    compiling_calls: int = 0
    """Outermost calls in which XLA compiled this function or one that it calls."""
    is_made_anew: bool = False
    """Whether several functions of this name were traced; each function counts its own tracings."""
    changed: str = ""
    """Difference between the programs that XLA compiled for it; empty if unknown."""
    most_traced: int = 0
    """Calls that traced, on the host with most of them."""

    @property
    def call_count(self) -> int:
        """Return the number of calls."""
        return sum(self.calls.values())

    @property
    def unknown_count(self) -> int:
        """Return the number of calls with a mode that TensorFlow does not document."""
        return self.call_count - sum(self.calls.get(mode, 0) for mode in _MODES.values())

    @property
    def total_self_ps(self) -> int:
        """Return the self time of all calls."""
        return sum(self.self_ps.values())

    @property
    def expensive_percent(self) -> float:
        """Return the share of self time in calls that trace or run eagerly, in percent."""
        expensive = self.self_ps.get("traced", 0) + self.self_ps.get("eager", 0)
        return 100.0 * expensive / self.total_self_ps if self.total_self_ps else 0.0


class JittedFunction(Struct, frozen=True):
    """One jitted function; `computes` is empty if its program is not in the trace. Times are in picoseconds.

    `work_ps` sums the time from the first to the last op of each run, averaged over the chips of a TPU; None if the
    trace contains no run.
    """

    name: str
    computes: str
    calls: int
    compiling_calls: int
    total_ps: int
    compiling_ps: int
    work_ps: int | None
    most_compiling: int
    """Calls that compiled, on the host with most of them."""
    changed: str = ""


class Barriers(Struct, frozen=True):
    """Waits of TPU chips for each other in the calls of a function, in picoseconds.

    `total_ps` sums the longest wait of each call; `longest_ps` is the longest wait of all, on the chip `longest_on`.
    """

    function: str
    calls: int
    total_ps: int
    longest_ps: int
    longest_on: str


class JittedFunctions(Tabular, frozen=True):
    """Jitted functions, the largest total time of calls first, and calls per step (None if unknown)."""

    home = ("functions", "jitted_functions")

    functions: tuple[JittedFunction, ...] = ()
    calls_per_step: float | None = None
    barriers: tuple[Barriers, ...] = ()

    @property
    def most_compiled(self) -> JittedFunction | None:
        """Return the function with the largest compilation time; None if nothing compiles."""
        compiled = [function for function in self.functions if function.compiling_calls]
        return max(compiled, key=lambda function: function.compiling_ps, default=None)

    def _data(self) -> Data:
        return self.columns()

    def columns(self) -> dict[str, list[object]]:
        """Return one row per function."""
        rows = self.functions
        return {
            "function": [row.name for row in rows],
            "computes": [row.computes for row in rows],
            "calls": [row.calls for row in rows],
            "compiling_calls": [row.compiling_calls for row in rows],
            "total_ms": [row.total_ps / PS_PER_MS for row in rows],
            "compiling_ms": [row.compiling_ps / PS_PER_MS for row in rows],
            "work_ms": [None if row.work_ps is None else row.work_ps / PS_PER_MS for row in rows],
        }


class Functions(Tabular, frozen=True):
    """The tf.functions that were called, the largest self time first; eager ops; jitted functions."""

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
    """Sum the calls of tf.functions and jitted functions, and the eager ops."""
    trace, steps = host.trace, host["steps"].steps
    calls = count_calls(trace)
    if any(map(is_jitted_call, trace.names)):
        from tfperf.trace.jax import find_jax_calls  # few traces are of JAX

        jitted = find_jax_calls(trace)
        if jitted is not None:
            found = Functions(calls, single_ops(trace, jitted, steps), jitted_functions(jitted, steps))
            if trace.device_kind == "tpu":
                found = replace(found, jitted=replace(found.jitted, barriers=find_barriers(trace, jitted)))
            return _with_changes(trace, found)
    return _with_changes(trace, Functions(calls, find_eager_ops(trace, steps)))


_MOST_PROGRAMS = 4
"""Maximum number of programs compared per function, because reading one takes milliseconds."""


def _with_changes(trace: HostTrace, functions: Functions) -> Functions:
    protos = trace.hlo_protos
    if protos is None:
        return functions

    def changed(name: str, compiling_calls: int) -> str:
        if compiling_calls <= 1:
            return ""
        # Keras runs its own step in a function with the name of the program.
        names = re.escape(canonical(name)) + "|one_step_on_data" * runs_keras_function(name)
        wanted = re.compile(rf"(?:jit_|a_inference_)(?:{names})(?:_\d+__.*)?$")
        matching = sorted(key for key, program in trace.programs.items() if wanted.match(program.module))
        return changed_arguments([protos[key] for key in matching[:_MOST_PROGRAMS]])

    rows = functions.jitted.functions
    jitted = tuple(replace(each, changed=changed(each.name, each.compiling_calls)) for each in rows)
    called = tuple(replace(each, changed=changed(each.name, each.compiling_calls)) for each in functions.functions)
    return replace(functions, functions=called, jitted=replace(functions.jitted, functions=jitted))


def changed_arguments(programs: list[bytes]) -> str:
    """Return which argument shapes of the programs of one function differ, as text; empty if unknown.

    Programs with equal shapes differ in static values, or belong to a function that is created again.
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
    if len(arguments) < 2 or len({len(each) for each in arguments}) > 1:
        return ""
    for versions in zip(*arguments, strict=True):
        shapes = list(dict.fromkeys(shape for _, shape in versions))
        if len(shapes) > 1:
            name = versions[0][0]
            return f"{name if name not in _NAMELESS else 'an argument'} is {' or '.join(shapes[:_NAMED])}"
    return "its arguments have the same shapes, so a static argument changes, or the function is recreated"


_NAMED = 3
_NAMELESS = ("", "XLA_Args")
"""Names that XLA gives to the arguments of TensorFlow functions."""


def combine(parts: list[Functions]) -> Functions:
    """Add up the calls of several hosts."""
    calls = sum_calls((function for part in parts for function in part.functions), of_hosts=True)
    eager = sum_eager_ops([part.eager for part in parts])
    return Functions(calls, eager, sum_jitted([part.jitted for part in parts]))


def narrow(functions: Functions, _: Breakdown, after: Breakdown) -> Functions:
    """Count only the eager ops in the steps of `after`; function calls remain those of the whole capture."""
    eager = functions.eager
    return replace(functions, eager=replace(eager, steps=eager.steps.counting(after)))


def shorten(functions: Functions, most: int) -> Functions:
    """Return the `most` functions and op types with the largest time, and one row for all others of each."""
    jitted, eager = functions.jitted, functions.eager
    if max(len(functions.functions), len(eager.op_types), len(jitted.functions)) <= most:
        return functions
    # The tracing count of several functions is not a count of one.
    unknown = {"name": OTHER_FUNCTIONS, "tracing_count": 0, "is_made_anew": False, "changed": ""}
    others = (replace(each, **unknown) for each in functions.functions[most:])
    called = sum_calls((*functions.functions[:most], *others))
    return Functions(called, shorten_eager_ops(eager, most), shorten_jitted(jitted, most))


def count_calls(trace: HostTrace) -> tuple[FunctionStats, ...]:
    """Sum the tf.function calls of a host; nested calls are separate from the enclosing call."""
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
        parts.append(
            FunctionStats(
                trace.names[name],
                *sums,
                tracing_count,
                compiler == "xla",
                compiling * count,
                anew,
                most_traced=count if mode == _MODES["traced"] else 0,
            )
        )
    return sum_calls(parts)


def sum_calls(parts: Iterable[FunctionStats], *, of_hosts: bool = False) -> tuple[FunctionStats, ...]:
    """Add up the parts of each function, of one host or of several, the largest self time first."""
    most = max if of_hosts else add
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
            most(before.most_traced, part.most_traced),
        )
    return tuple(sorted(sums.values(), key=lambda function: (-function.total_self_ps, function.name)))


# --- jitted functions of JAX: calls and compilations ---
# A call that compiles traces Python, lowers the result and runs the XLA compiler. All of its time counts as
# compilation, except launching the first run and, on a TPU, the time after loading the program.

OTHER_FUNCTIONS = "(other functions)"


def find_barriers(trace: HostTrace, calls: JaxCalls) -> tuple[Barriers, ...]:
    """Return functions whose runs wait at barriers between chips, the longest wait first."""
    from tfperf.trace.device.tpu_runs import barrier_waits, find_runs  # few traces are of TPUs

    runs = find_runs(trace)
    waited, call = barrier_waits(trace, runs), lookup(calls.row, runs.call)
    of_call = np.zeros(len(calls.row), np.int64)
    np.maximum.at(of_call, call[call >= 0], waited[call >= 0])
    found = []
    for name in np.unique(calls.name[of_call > 0]).tolist():
        mine = of_call[calls.name == name]
        of_function = np.flatnonzero((call >= 0) & (np.append(calls.name, -1)[call] == name))
        longest = int(of_function[waited[of_function].argmax()])
        chip = device_label(trace.planes[int(runs.plane[longest])].name)
        found.append(Barriers(calls.names[name], int((mine > 0).sum()), int(mine.sum()), int(waited[longest]), chip))
    return tuple(sorted(found, key=lambda each: -each.total_ps))


def jitted_functions(calls: JaxCalls, steps: Steps) -> JittedFunctions:
    """Sum the calls of jitted functions of a host."""
    from tfperf.trace.jax import CLASSES  # few traces are of JAX

    functions = []
    for token in distinct(calls.token).tolist():
        mine = np.flatnonzero(calls.token == token)
        compiling = mine[calls.compiles[mine]]
        ran = mine[calls.work.end[mine] >= 0]
        functions.append(
            JittedFunction(
                name=calls.names[token // len(CLASSES)],
                computes=_COMPUTES.get(CLASSES[token % len(CLASSES)], ""),
                calls=len(mine),
                compiling_calls=len(compiling),
                total_ps=int((calls.end - calls.start)[mine].sum()),
                compiling_ps=int(calls.compile_ps[mine].sum()),
                work_ps=int(calls.work.each_ps[ran].sum()) if len(ran) else None,
                most_compiling=len(compiling),
            )
        )
    at = calls.start
    if steps.on_cores:  # the program calls far ahead, so a call belongs to the step in which it runs
        work = calls.work
        at = np.sort(np.where(work.end >= 0, (work.start + work.end) // 2, at))
    first, last = np.searchsorted(at, (steps.start_ps, steps.end_ps))
    counted = CountedSteps.of(steps)
    per_step = counted.sum(last - first) / counted.count if counted.count else None
    return JittedFunctions(_ordered(functions), per_step)


_LEAST_ARRAYS = 4
"""Reading at least this many arrays between two calls is more than reading losses."""


def _reads_of_arrays(trace: HostTrace, calls: JaxCalls, steps: Steps) -> tuple[Int64s, Int64s]:
    """Return time and number, per step, of reads of many arrays between two calls, without waits for programs.

    The Python time spent on each array counts too, as for variables of TensorFlow. Reads in a callback belong to it.
    """
    rows = outermost(trace, trace.host_events(mask(trace.names, "np.asarray(jax.Array)".__eq__)))
    rows = rows[last_around(trace, trace.host_events(mask(trace.names, HOST_CALLBACK.match)), rows) < 0]
    breaks = np.sort(np.concatenate((calls.start, steps.start_ps)))
    run, of_row = distinct_index(np.searchsorted(breaks, trace.start_ps[rows], side="right"))
    rows = rows[np.bincount(of_row, minlength=len(run))[of_row] >= _LEAST_ARRAYS]
    if not len(rows):
        return np.zeros(len(steps), np.int64), np.zeros(len(steps), np.int64)
    times = joined(trace.start_ps[rows], trace.end_ps[rows], breaks, MOST)
    bounds = np.concatenate((calls.start, rows)), np.concatenate((calls.end, trace.end_ps[rows]))
    times = with_python_around(times, *bounds, BESIDE_READS)
    times = difference(times, _times(calls.work, calls.work.end >= 0))
    first, last = np.searchsorted(trace.start_ps[rows], (steps.start_ps, steps.end_ps))
    return overlap(times, steps.start_ps, steps.end_ps), np.asarray(last - first, np.int64)


def single_ops(trace: HostTrace, calls: JaxCalls, steps: Steps) -> EagerOps:
    """Return calls of single-op programs, and array reads, as eager ops.

    On a CPU the work of these ops counts too, except while another program works; devices have their own categories. A
    step that consists of one such call has no eager op, because that call is its function.
    """
    has_device = bool(trace.devices)
    fetch_ps = np.zeros((len(FETCHES), len(steps)), np.int64)
    fetch_ps[FETCHES.index("arrays")], arrays = _reads_of_arrays(trace, calls, steps)
    first, last = np.searchsorted(calls.start, (steps.start_ps, steps.end_ps))
    is_step = bool(len(steps)) and int((last - first).max(initial=0)) <= 1
    single, works = calls.is_op & (not is_step), calls.work.end >= 0
    alone, others = single & works, ~single & works
    busy = union(calls.start[single], calls.end[single])
    from tfperf.trace.jax import CLASSES  # few traces are of JAX

    # Small functions that JAX itself jits (tanh, mean) also run between ops.
    breaks = calls.start[~single & (calls.kind != CLASSES.index("other"))]
    times = np.sort(np.concatenate((breaks, steps.start_ps)))
    stretches = joined(calls.start[single], calls.end[single], times)
    stretches = union_all([with_python_beside(stretches, calls.start[single], calls.start, calls.end), busy])
    kernels = EMPTY
    if not has_device:
        kernels = difference(_times(calls.work, alone), _times(calls.work, others))
        busy = difference(union_all([busy, _times(calls.work, alone)]), _times(calls.work, others))
        stretches = union_all([difference(stretches, _times(calls.work, others)), busy])
    first, last = np.searchsorted(calls.start[single], (steps.start_ps, steps.end_ps))
    name, duration = calls.name[single], (calls.end - calls.start)[single]
    count = np.bincount(name, minlength=len(calls.names)).astype(np.int64)
    total = np.bincount(name, weights=duration, minlength=len(calls.names)).astype(np.int64)
    called = sorted(np.flatnonzero(count).tolist(), key=lambda index: (-total[index], calls.names[index]))
    order = np.array(called, np.int64)
    return EagerOps(
        op_types=tuple(calls.names[index] for index in called),
        calls=count[order],
        total_ps=total[order],
        steps=CountedSteps.of(steps),
        eager_ps=overlap(busy, steps.start_ps, steps.end_ps),
        fetch_ps=fetch_ps,
        variables=arrays,
        stretch_ps=overlap(stretches, steps.start_ps, steps.end_ps),
        stretch_calls=last - first,
        kernel_ps=overlap(kernels, steps.start_ps, steps.end_ps),
        held_ps=np.zeros(len(steps), np.int64),
        callback_ps=np.zeros(len(steps), np.int64),
        step_calls=last - first,
    )


def _times(work: Work, chosen: Bools) -> Intervals:
    return union(work.start[chosen], work.end[chosen])


def sum_jitted(parts: list[JittedFunctions]) -> JittedFunctions:
    """Add up the calls of several hosts; calls per step are averages over the hosts that call."""
    sums: dict[tuple[str, str], JittedFunction] = {}
    for row in (row for part in parts for row in part.functions):
        key = row.name, row.computes
        sums[key] = _plus(sums[key], row) if key in sums else row
    known = [part.calls_per_step for part in parts if part.calls_per_step is not None]
    barriers = sorted((each for part in parts for each in part.barriers), key=lambda each: -each.total_ps)
    return JittedFunctions(_ordered(sums.values()), sum(known) / len(known) if known else None, tuple(barriers))


def shorten_jitted(jitted: JittedFunctions, most: int) -> JittedFunctions:
    """Return the `most` functions with the largest time in calls, and one row for all others."""
    if len(jitted.functions) <= most:
        return jitted
    others = (replace(function, name=OTHER_FUNCTIONS, computes="") for function in jitted.functions[most:])
    return sum_jitted([replace(jitted, functions=(*jitted.functions[:most], *others))])


def _plus(one: JittedFunction, other: JittedFunction) -> JittedFunction:
    known = [row.work_ps for row in (one, other) if row.work_ps is not None]
    return JittedFunction(
        name=one.name,
        computes=one.computes,
        calls=one.calls + other.calls,
        compiling_calls=one.compiling_calls + other.compiling_calls,
        total_ps=one.total_ps + other.total_ps,
        compiling_ps=one.compiling_ps + other.compiling_ps,
        work_ps=sum(known) if known else None,
        most_compiling=max(one.most_compiling, other.most_compiling),
        changed=one.changed or other.changed,
    )


def _ordered(functions: Iterable[JittedFunction]) -> tuple[JittedFunction, ...]:
    return tuple(sorted(functions, key=lambda row: (-row.total_ps, row.name, row.computes)))
