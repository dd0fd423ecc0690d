"""How long XLA took to compile programs, as far as the capture shows it.

The event of a compilation names the program on hosts with CPUs and GPUs. On those with TPUs it does not: the call of
the jitted function around it does.
"""

from __future__ import annotations

import re

import numpy as np

from tfperf.base.arrays import MOST
from tfperf.trace.device.device_work import trace_texts
from tfperf.trace.event_names import JITTED_CALL, compiles_program, is_jitted_call, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import innermost_around

_WHOLE = "Client::Compile"
"""The end of the name of an event around all that is done to compile one program."""
_OF_CALL = "backend_compile"
"""The event that JAX has around it."""
_NOT_IN_MODULE = re.compile(r"[^\w.-]")
"""What JAX replaces in the name of a function to get that of its program."""


def compile_times(trace: HostTrace) -> dict[str, int]:
    """Return for how many picoseconds each module was compiled, by its name; modules of one name are added up."""
    if trace.device_kind == "tpu":
        return _of_calls(trace)
    backends = trace.host_events(mask(trace.names, compiles_program))
    whole = trace.host_events(mask(trace.names, lambda name: name.endswith(_WHOLE)))
    texts = trace_texts(trace, "name")
    times: dict[str, int] = {}
    for line in trace.host_lines:
        inside, outer = (rows[(rows >= line.start) & (rows < line.stop)] for rows in (backends, whole))
        if not len(inside):
            continue
        around = innermost_around(trace, outer, inside) if len(outer) else np.full(len(inside), -1, np.int64)
        time_ps = trace.duration_ps[np.where(around >= 0, around, inside)]
        for text, each in zip(trace.number_at("name", inside, -1).tolist(), time_ps.tolist(), strict=True):
            times[texts[text]] = min(times.get(texts[text], 0) + each, MOST)
    return {name: time_ps for name, time_ps in times.items() if name}


def _of_calls(trace: HostTrace) -> dict[str, int]:
    """Return the times of compilations in calls of jitted functions, by the program of the innermost call around."""
    compilations = trace.host_events(mask(trace.names, lambda name: name == _OF_CALL))
    calls = trace.host_events(mask(trace.names, is_jitted_call))
    times: dict[str, int] = {}
    for line in trace.host_lines:
        inside, outer = (rows[(rows >= line.start) & (rows < line.stop)] for rows in (compilations, calls))
        if not len(inside) or not len(outer):
            continue
        around = innermost_around(trace, outer, inside)
        for call, time_ps in zip(around.tolist(), trace.duration_ps[inside].tolist(), strict=True):
            if call >= 0:
                function = trace.names[trace.name[call]].removeprefix(JITTED_CALL).removesuffix(")")
                program = f"jit_{_NOT_IN_MODULE.sub('_', function)}"
                times[program] = min(times.get(program, 0) + time_ps, MOST)
    return times
