"""The report section on Python functions and their share of "All others"."""

from __future__ import annotations

from collections.abc import Mapping

from tfperf.analysis.registry import Results, TableSpec, present
from tfperf.base.units import counted, listed
from tfperf.report.model import Fact, Level, Quantity, Section, at_levels
from tfperf.sections.python import PYTHON_FUNCTIONS, PYTHON_PACKAGE_FUNCTIONS, PYTHON_PACKAGES
from tfperf.sections.python.analysis import PythonTimes

_TITLE = "Python functions"
NO_FRAMES = (
    "The profile has no Python frames, so which functions take the time is unknown: take one with `tfperf run "
    "--python-trace train.py`, or of a running job with `tfperf capture --python-trace --port 6009`."
)
_OVERHEAD = (
    "Recording every call slows Python down a lot, small functions most: this is for finding functions, not for "
    "measuring them."
)
_HOW_TO_READ = (
    "Total counts a function that calls itself once. What a function calls in TensorFlow's C++ is its own time; what "
    "TensorFlow runs on other threads meanwhile is not. A function that was open when the capture started or ended "
    "counts from its start, or to its end; one that was open all the time, such as main, is not in the trace."
)
_NAMED = 3
_SHOWN: Mapping[TableSpec, Level] = {
    PYTHON_FUNCTIONS: "brief",
    PYTHON_PACKAGES: "brief",
    PYTHON_PACKAGE_FUNCTIONS: "full",
}
_IN_CAPTURE = ("calls", "self_ms", "total_ms")
_IN_STEPS = ("calls_per_step", "self_per_step_ms", "total_per_step_ms", "total_percent")


def build(results: Results) -> Section:
    """Return the section: the share of Python in "All others", and the functions with the most time."""
    times: PythonTimes = results["python"]
    if not times.functions:
        return Section("python", _TITLE, notes=(NO_FRAMES,), level="full")
    levels: dict[str, Level] = {}
    if not times.step_count:
        levels |= dict.fromkeys(_IN_STEPS, "data")
        levels |= dict.fromkeys(_IN_CAPTURE, "brief")
    if not times.step_count or times.all_others_ps is None:
        levels["all_others_ms"] = "data"
    own, packages, folded = (
        spec.build(results, columns=at_levels(spec.columns, levels), level=level) for spec, level in _SHOWN.items()
    )
    return Section(
        "python",
        _TITLE,
        facts=_facts(times),
        tables=present(own, packages, folded),
        notes=(_OVERHEAD,),
        detail_notes=(_HOW_TO_READ,),
        pointer="More: -s python.",
    )


def _facts(times: PythonTimes) -> tuple[Fact, ...]:
    calls = sum(function.calls for function in times.functions)
    facts = [Fact("python_calls", "Calls of Python", calls, "count", f"of {counted(len(times.functions), 'function')}")]
    share = Quantity("python_of_all_others", times.others_percent)
    if share.value is not None:
        longest = sorted(times.functions, key=lambda function: -function.others_ps)[:_NAMED]
        names = listed([function.function for function in longest if function.others_ps], _NAMED)
        note = "of it in these functions" + (f"; most in {names}" if names else "")
        facts.append(Fact("python_of_all_others_percent", "All others", share.value, "%", note, quantities=(share,)))
    return tuple(facts)
