"""How often the loops of compiled programs of JAX run (`lax.scan` over steps): by the ops that repeat in one run.

A loop counts if it multiplies matrices or convolves; those in which random numbers are made do not.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from tfperf.base.arrays import Int64s, distinct_index, group_equal
from tfperf.base.units import counted
from tfperf.formats.hlo.names import NamedProgram
from tfperf.trace.event_names import canonical
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.jax.jax_calls import JaxCalls

_BODY = "while/body"
_MATRIX_OP = re.compile(rf"{_BODY}.*(dot_general|conv_general_dilated)")


def loop_notes(trace: HostTrace, calls: JaxCalls) -> tuple[str, ...]:
    """Return a sentence for each called function whose program loops, where all its runs loop equally often."""
    notes: dict[str, None] = {}
    called = {canonical(name): name for name in calls.names}
    stat = trace.stat("run_id")
    rows = stat.event.astype(np.int64)
    program_of, known = trace.known_at("program_id", rows)
    for key, program in trace.programs.items():
        function = called.get(canonical(program.module), "")
        mine = known & (program_of == key)
        looped = _looped(program) if function and mine.any() else frozenset[str]()
        iterations = _iterations(trace, rows[mine], stat.value[mine], looped) if looped else 0
        if iterations > 1:
            notes[f"Each call of {function} runs its loop {counted(iterations, 'time')}."] = None
    return tuple(notes)


def _looped(program: NamedProgram) -> frozenset[str]:
    """Return the instructions of loops that multiply matrices, but for those of loops inside of these."""
    return frozenset(
        name
        for name, item in program.instructions.items()
        if item.op_name.count(_BODY) == 1 and _MATRIX_OP.search(item.op_name)
    )


def _iterations(trace: HostTrace, rows: Int64s, runs: Int64s, looped: frozenset[str]) -> int:
    """Return how often these instructions run, for each time that an instruction outside of loops does, or 0."""
    order, starts = group_equal([runs, trace.name[rows]])
    count = np.diff([*starts, len(rows)])
    is_looped = np.array([trace.names[name] in looped for name in trace.name[rows[order[starts]]].tolist()], np.bool_)
    _, run = distinct_index(runs[order[starts]])
    found: Counter[int] = Counter()
    for groups in np.split(np.argsort(run, kind="stable"), np.cumsum(np.bincount(run))[:-1]):
        repeated = count[groups][is_looped[groups]]
        # Events of no duration are not read, so some ops are seen less often.
        found[int(repeated.max() // count[groups].min()) if len(repeated) else 0] += 1
    iterations, agree = found.most_common(1)[0]
    runs_seen = sum(found.values())
    # The capture may have begun or ended in the midst of one run.
    return iterations if agree >= runs_seen - (runs_seen > 2) else 0
