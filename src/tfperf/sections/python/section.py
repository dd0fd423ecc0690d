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
    "The profile has no Python frames, so the time of Python functions is unknown: record them with `tfperf run "
    "--python-trace train.py`, or for a running job with `tfperf capture --python-trace --port 6009`."
)
_OVERHEAD = (
    "Recording every call slows Python down a lot, especially small functions: use this profile to find functions, "
    "not to measure them."
)
_HOW_TO_READ = (
    "Total counts recursive calls once. Self time includes calls into TensorFlow's C++, but not its work on other "
    "threads. A function that is running at the start or end of the capture is clipped to the capture; a function "
    "that runs during the whole capture, such as main, is not recorded."
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
    facts = [Fact("python_calls", "Python calls", calls, "count", f"of {counted(len(times.functions), 'function')}")]
    share = Quantity("python_of_all_others", times.others_percent)
    if share.value is not None:
        longest = sorted(times.functions, key=lambda function: -function.others_ps)[:_NAMED]
        names = listed([function.function for function in longest if function.others_ps], _NAMED)
        note = "of it in these functions" + (f"; most in {names}" if names else "")
        facts.append(Fact("python_of_all_others_percent", "All others", share.value, "%", note, quantities=(share,)))
    return tuple(facts)
