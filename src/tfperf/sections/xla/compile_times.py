"""How long XLA took to compile programs, as far as the capture shows it."""

from __future__ import annotations

import numpy as np

from tfperf.arrays import MOST
from tfperf.trace.device_work import trace_texts
from tfperf.trace.event_names import compiles_program, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import innermost_around

_WHOLE = "Client::Compile"
"""The end of the name of an event around all that is done to compile one program."""


def compile_times(trace: HostTrace) -> dict[str, int]:
    """Return for how many picoseconds each module was compiled, by its name; modules of one name are added up."""
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
