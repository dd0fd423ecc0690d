"""Python: time by Python function, and the time of All others in these functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tfperf.analysis.registry import Results, SectionSpec, TableSpec
from tfperf.base.units import PS_PER_MS, percent
from tfperf.report.model import Column, Data, Ranked, at_levels

if TYPE_CHECKING:
    from tfperf.sections.python.analysis import PythonTime, PythonTimes

_OTHERS = "self time per step on the calling thread, without other recorded events"
_TIMES = (
    Column("calls", "Calls", int, "count", "calls in the capture", level="data"),
    Column("self_ms", "Self", float, "ms", "time in the capture, excluding the functions that it calls", level="data"),
    Column("total_ms", "Total", float, "ms", "time in the capture; recursive calls count once", level="data"),
    Column("calls_per_step", "Calls/step", float, "count", "calls that start in an averaged step", over_steps=True),
    Column("self_per_step_ms", "Self/step", float, "ms", "self time in an averaged step", over_steps=True),
    Column("total_per_step_ms", "Total/step", float, "ms", "total time in an averaged step", over_steps=True),
    Column("self_percent", "Self", float, "%", "self time in averaged steps / step time", "data", over_steps=True),
    Column("total_percent", "Of step", float, "%", "total time in averaged steps / step time", over_steps=True),
    Column("all_others_ms", "All others", float, "ms", _OTHERS, over_steps=True),
)
_FUNCTION = Column("function", "Function", str, "", "file, first line and name; for a C function, its module and name")
_PACKAGE = Column("package", "Package", str, "", "package of the function, from its file or module")


def _functions(of_packages: bool, results: Results) -> Data | None:
    times: PythonTimes = results["python"]
    rows = [function for function in times.functions if bool(function.package) == of_packages]
    return _columns(times, rows) if rows else None


def _packages(results: Results) -> Data | None:
    times: PythonTimes = results["python"]
    if not times.packages:
        return None
    of_package = {
        package.package: sorted(
            (function for function in times.functions if function.package == package.package),
            key=lambda function: -function.self_ps,
        )
        for package in times.packages
    }
    return {
        **_columns(times, times.packages),
        "functions": [len(of_package[package.package]) for package in times.packages],
        "most_self": [of_package[package.package][0].function for package in times.packages],
    }


def _columns(times: PythonTimes, rows: Sequence[PythonTime]) -> Data:
    steps, unknown = times.step_count, times.all_others_ps is None

    def per_step(values: Sequence[int | None]) -> list[float | None]:
        return [value / steps / PS_PER_MS if steps and value is not None else None for value in values]

    totals = [row.totals_ps for row in rows]

    return {
        "function": [row.function for row in rows],
        "package": [row.package for row in rows],
        "calls": [row.calls for row in rows],
        "self_ms": [row.self_ps / PS_PER_MS for row in rows],
        "total_ms": [total and total[0] / PS_PER_MS for total in totals],
        "calls_per_step": [row.step_calls / steps if steps else None for row in rows],
        "self_per_step_ms": per_step([row.step_self_ps for row in rows]),
        "total_per_step_ms": per_step([total and total[1] for total in totals]),
        "self_percent": [percent(row.step_self_ps, times.step_ps) for row in rows],
        "total_percent": [total and percent(total[1], times.step_ps) for total in totals],
        "all_others_ms": [None] * len(rows) if unknown else per_step([row.others_ps for row in rows]),
    }


PYTHON_FUNCTIONS = TableSpec(
    name="python_functions",
    title="Functions of the program, by total time",
    row="Python functions of the program",
    details=(
        "One row per Python function outside of the packages that tfperf recognizes. Only for profiles with Python "
        "frames. Times are summed over threads. A call that is running at the start or end of the capture is "
        "clipped to the capture; a call that runs during the whole capture is not recorded."
    ),
    columns=(_FUNCTION, *_TIMES),
    data=partial(_functions, False),
    name_key="function",
    ranked=Ranked("total_ms"),
)
_PACKAGE_TIMES = at_levels(_TIMES, {"calls_per_step": "data"})
"""Two name columns leave no space for the number of calls."""
PYTHON_PACKAGES = TableSpec(
    name="python_packages",
    title="Functions by package",
    row="packages of Python functions",
    details=(
        "One row per package that tfperf recognizes, with all its functions. [Python "
        "functions](python_functions.md) has the rules."
    ),
    columns=(
        _PACKAGE,
        Column("functions", "Functions", int, "count", "functions of the package that ran", level="data"),
        Column("most_self", "Most in", str, "", "function of the package with the largest self time"),
        *_PACKAGE_TIMES,
    ),
    data=_packages,
    name_key="package",
    ranked=Ranked("total_ms"),
)
PYTHON_PACKAGE_FUNCTIONS = TableSpec(
    name="python_package_functions",
    title="Functions of packages, by total time",
    row="Python functions of packages",
    details="One row per function of the packages in `python_packages`.",
    columns=(_FUNCTION, _PACKAGE, *_PACKAGE_TIMES),
    data=partial(_functions, True),
    name_key="function",
    ranked=Ranked("total_ms"),
)
TABLES = (PYTHON_FUNCTIONS, PYTHON_PACKAGES, PYTHON_PACKAGE_FUNCTIONS)


SECTION = SectionSpec(
    name="python",
    title="Python functions",
    rests_on=("steps", "overview"),
    analyze="tfperf.sections.python.analysis:analyze",
    combine="tfperf.sections.python.analysis:combine",
    combines_in_tree=True,
    shorten="tfperf.sections.python.analysis:shorten",
    build="tfperf.sections.python.section:build",
    tables=TABLES,
)
