"""What can be wrong with a trace: one flaw, how bad it is, and which parts of the profile it touches.

`TOUCHES` is one half of the rule by which doubt decides about limits; the other half is what figures rest on
(`gate/rests_on.py`). A figure is doubtful if a flaw touches a part that it rests on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from msgspec import Struct

Level = Literal["sound", "doubtful", "incomplete", "unsound"]
Part = Literal["steps", "calls", "input", "host", "device", "memory"]
"""Of a profile: markers of steps; calls and tracing of functions by Python; calls of tf.data; what host threads do
besides; what devices do; allocations."""
Parts = frozenset[Part]

EVERYTHING: Parts = frozenset(get_args(Part))
TIMES: Parts = EVERYTHING - {"memory"}
"""What the time of a step is divided into: what one part lacks, others get."""

TOUCHES: Mapping[str, Parts] = {
    # Events may be missing, or have wrong times or names, wherever they are.
    **dict.fromkeys(("lost_events", "impossible_times", "repeated_planes", "repeated_events"), EVERYTHING),
    **dict.fromkeys(("copied_host", "other_capture", "other_profiler", "other_program"), EVERYTHING),
    **dict.fromkeys(("host_events_on_device", "nameless_events", "nameless_stats"), EVERYTHING),
    **dict.fromkeys(("run_before_call", "fetch_after_run", "clocks_disagree", "profiler_error"), EVERYTHING),
    **dict.fromkeys(("unused_names", "unused_stats", "misplaced_stats"), EVERYTHING),
    **dict.fromkeys(("lost_tasks", "missing_steps", "silence"), EVERYTHING),
    # Threads of the host may have clocks of their own.
    "late_runs": frozenset({"steps", "calls", "input", "host"}),
    # The last step before a pause ends when the device does.
    "work_before_launch": frozenset({"steps", "device"}),
    "late_work": frozenset({"steps", "device"}),
    "unlaunched_work": frozenset({"calls", "host"}),
    "empty_steps": frozenset({"steps"}),
    "fetches_apart": frozenset({"steps"}),
    "unnumbered_markers": frozenset({"steps"}),
    "overlapping_markers": frozenset({"steps"}),
    "unsure_steps": frozenset({"steps"}),
    "fetches_stop": frozenset({"input"}),
    "uncalled_stages": frozenset({"input"}),
    "unmade_elements": frozenset({"input"}),
    "calls_without_input": frozenset({"input"}),
    "unasked_functions": frozenset({"steps", "input"}),
    "misplaced_calls": frozenset({"calls", "input", "host"}),
    "crossing_events": frozenset({"calls", "input", "host"}),
    "missing_ids": frozenset({"calls", "input", "host"}),
    "timeless_calls": frozenset({"calls", "input", "host"}),
    "uncalled_runs": frozenset({"calls", "input", "host"}),
    "unrun_tasks": frozenset({"calls", "input", "host"}),
    "ops_outside": frozenset({"calls", "host"}),
    "unsaid_calls": frozenset({"calls"}),
    "unnamed_allocators": frozenset({"memory"}),
}
"""Code of a flaw -> the parts that it touches; a code that is not here touches everything.

Flaws of level `incomplete` say in `hides` what is unknown."""


class Flaw(Struct, frozen=True):
    """What is wrong with a trace. `text` is a clause that follows "the profile is damaged:".

    `incomplete`: events are missing that the profiler should have recorded, and `fix` says how to get them.
    """

    code: str
    text: str
    level: Level = "unsound"
    fix: str = ""
    hides: frozenset[str] = frozenset()
    """Categories of the step, and parts of input, that are unknown because of it."""

    def touches(self, parts: Parts) -> bool:
        """Tell whether a figure that rests on these parts is wrong, or may be, because of the flaw."""
        return not parts.isdisjoint(TOUCHES.get(self.code, EVERYTHING))


def level_of(flaws: Iterable[Flaw]) -> Level:
    """Return the gravest level."""
    return max((flaw.level for flaw in flaws), key=get_args(Level).index, default="sound")
