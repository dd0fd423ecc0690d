"""What Python calls in each step: functions, iterators that it makes, and large arrays that it converts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.analysis.results import Host
from tfperf.base.arrays import EMPTY, Int64s, covers, overlap, union
from tfperf.base.units import PS_PER_MS
from tfperf.trace.event_names import JITTED_CALL, is_fetch, is_jitted_call, mask
from tfperf.trace.host.activities import Activity
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import last_around, outermost
from tfperf.trace.steps.counted import CountedSteps
from tfperf.trace.steps.eager_events import NAMED, eager_calls, runs_keras_eagerly
from tfperf.trace.steps.step_calls import find_calls

_MAKES_ITERATOR = "MakeIterator"
_PUTS = "DevicePut"
_TO_TENSOR = frozenset({"tf.constant", "convert_to_tensor"})
_TO_DEVICE = frozenset({_PUTS, "H2D Dispatch"})
"""How JAX copies arrays of the host: the call, and the copy on a thread of the CPU's client."""
_LARGE_BYTES = 1 << 20
_LEAST_COPY_PS = PS_PER_MS
"""What takes JAX less is the overhead of a call, whatever the size of the array."""


class Calls(Struct, frozen=True, kw_only=True):
    """What the steps that count call, per step and in percent of their time."""

    runs_keras_eagerly: bool = False
    """Whether Keras calls no function: `compile(run_eagerly=True)`."""
    fetches: bool = False
    """Whether the program takes its batches from tf.data."""
    function_percent: float = 0.0
    """In which a tf.function that Python calls runs."""
    functions_per_step: float = 0.0
    iterators_per_step: float = 0.0
    """How often a step makes an iterator of a dataset."""
    puts_per_step: float = 0.0
    """How often a step of JAX copies an array of the host to the device."""
    conversion_percent: float = 0.0
    """In which large arrays of NumPy become tensors, or arrays of JAX."""
    conversions_per_step: float = 0.0
    conversion_bytes: int | None = None
    """The largest allocation in one; None: not recorded."""
    conversion_function: str = ""
    """The function in whose calls most of that time goes; empty: outside of calls."""


class CallTimes(Struct, frozen=True, eq=False, kw_only=True):
    """The same of one host for each of its steps, in picoseconds."""

    runs_keras_eagerly: bool
    fetches: bool
    function_ps: Int64s
    functions: Int64s
    iterators: Int64s
    puts: Int64s
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

        def count(times: Int64s) -> Int64s:
            first, last = np.searchsorted(np.sort(times), (steps.start_ps, steps.end_ps))
            return np.asarray(last - first, np.int64)

        def in_steps(start: Int64s, end: Int64s) -> Int64s:
            return overlap(union(start, end), steps.start_ps, steps.end_ps)

        return cls(
            runs_keras_eagerly=runs_keras_eagerly(trace),
            fetches=any(map(is_fetch, trace.names)),
            function_ps=in_steps(functions.start, functions.end),
            functions=count(functions.start),
            iterators=count(trace.start_ps[_made_iterators(trace)]),
            puts=count(trace.start_ps[puts]),
            conversion_ps=in_steps(trace.start_ps[conversions], trace.end_ps[conversions]),
            conversions=count(trace.start_ps[conversions]),
            conversion_bytes=largest,
            conversion_function=_function_around(trace, conversions),
        )

    def counted(self, steps: CountedSteps) -> Calls:
        """Return the same of the steps that count."""
        count = max(steps.count, 1)
        return Calls(
            runs_keras_eagerly=self.runs_keras_eagerly,
            fetches=self.fetches,
            function_percent=steps.percent(self.function_ps) or 0.0,
            functions_per_step=steps.sum(self.functions) / count,
            iterators_per_step=steps.sum(self.iterators) / count,
            puts_per_step=steps.sum(self.puts) / count,
            conversion_percent=steps.percent(self.conversion_ps) or 0.0,
            conversions_per_step=steps.sum(self.conversions) / count,
            conversion_bytes=self.conversion_bytes,
            conversion_function=self.conversion_function,
        )


def combine_calls(calls: Sequence[Calls]) -> Calls:
    """Return the average over hosts."""
    most = max(calls, key=lambda each: each.conversion_percent)
    count = len(calls)
    return Calls(
        runs_keras_eagerly=any(each.runs_keras_eagerly for each in calls),
        fetches=any(each.fetches for each in calls),
        function_percent=sum(each.function_percent for each in calls) / count,
        functions_per_step=sum(each.functions_per_step for each in calls) / count,
        iterators_per_step=sum(each.iterators_per_step for each in calls) / count,
        puts_per_step=sum(each.puts_per_step for each in calls) / count,
        conversion_percent=sum(each.conversion_percent for each in calls) / count,
        conversions_per_step=sum(each.conversions_per_step for each in calls) / count,
        conversion_bytes=most.conversion_bytes,
        conversion_function=most.conversion_function,
    )


def _conversions(host: Host) -> tuple[Int64s, int | None]:
    """Return the rows in which large arrays of NumPy are copied, outside of tracing, and the largest allocation there.

    TensorFlow allocates the tensor meanwhile; of JAX's copies only the time is known.
    """
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


def _function_around(trace: HostTrace, rows: Int64s) -> str:
    """Return the name of the function in whose calls most of the time of these rows is; empty: all is in none."""
    jitted = trace.host_events(mask(trace.names, is_jitted_call))
    calls = np.sort(np.concatenate((trace.stat("tf_function_call").event.astype(np.int64), jitted)))
    around = np.append(calls, -1)[last_around(trace, calls, rows)]
    name = trace.name[around[around >= 0]]
    if not len(name):
        return ""
    most = np.bincount(name, weights=trace.duration_ps[rows[around >= 0]]).argmax()
    return trace.names[int(most)].removeprefix(JITTED_CALL).removesuffix(")")


def _made_iterators(trace: HostTrace) -> Int64s:
    """Return the rows in which Python makes an iterator of a dataset."""
    rows = eager_calls(trace)
    stat = trace.stat("eager_op")
    by_text = np.append(mask(stat.texts, _MAKES_ITERATOR.__eq__), False)[trace.number_at("eager_op", rows, -1)]
    by_name = mask(trace.names, f"{NAMED}{_MAKES_ITERATOR}".__eq__)[trace.name[rows]]
    return rows[by_text | by_name]
