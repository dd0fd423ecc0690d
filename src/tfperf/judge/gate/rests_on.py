"""What a metric rests on: averaged steps, and parts of the profile.

`RESTS_ON` is one half of the rule by which doubt decides; the other half is which parts a flaw touches
(`trace/flaw.py`). A limit on a figure that rests on a doubtful part is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tfperf.judge.gate.grammar import limit_tables
from tfperf.judge.gate.limits import CAUSE, FIGURES, REGRESSION, Metric
from tfperf.trace.flaw import EVERYTHING, TIMES, Parts

if TYPE_CHECKING:
    from tfperf.trace.steps.steps import Steps

_NOTHING: Parts = frozenset()
_CALLS: Parts = frozenset({"calls", "host"})
_DEVICES: Parts = frozenset({"device"})
_MEMORY: Parts = frozenset({"memory"})
_INPUT: Parts = frozenset({"input"})

RESTS_ON: Mapping[str, Parts] = {
    **dict.fromkeys(("step_time", "wall_step_time", "skew", REGRESSION), _NOTHING),
    **dict.fromkeys(("input_bound", "kernel_launch", "all_others", "straggler_loss"), TIMES),
    **dict.fromkeys(("input_cost", "cause_cost", CAUSE), TIMES),
    "device_busy": _DEVICES,
    "memory": _MEMORY,
    "retraces": frozenset({"calls"}),
    **dict.fromkeys(("tfdata_stages", "tfdata_functions", "tfdata_pipelines", "tfdata_code"), _INPUT),
    **dict.fromkeys(("tf_functions", "eager_ops", "jitted_functions"), _CALLS),
    **dict.fromkeys(("python_functions", "python_packages", "python_package_functions"), _CALLS),
    **dict.fromkeys(("kernels", "kernels_by_name", "kernel_regions", "copies", "async_copies"), _DEVICES),
    **dict.fromkeys(("device_time", "compute_precision", "idle_devices", "device_use"), _DEVICES),
    **dict.fromkeys(("memory_allocators", "memory_alive", "memory_by_op", "memory_by_scope"), _MEMORY),
    "memory_timeline": _MEMORY,
}
"""Figure or table -> the parts that it rests on, besides those that show its steps; others rest on everything."""


def rests_on_steps(metric: Metric) -> bool:
    """Tell whether a metric is a figure over steps."""
    return metric.name in FIGURES and not metric.table and "steps" in FIGURES[metric.name].sections


def is_over_steps(metric: Metric) -> bool:
    """Tell whether a metric is a figure or a column over steps."""
    if not metric.table:
        return metric.name == REGRESSION or rests_on_steps(metric)
    table = limit_tables()[metric.table]
    return table.about_steps or any(column.over_steps for column in table.columns if column.key == metric.name)


def parts_of(metric: Metric, steps: Iterable[Steps]) -> Parts:
    """Return the parts of a profile that a metric rests on; `steps` are those of its hosts."""
    parts = RESTS_ON.get(metric.table or metric.name, EVERYTHING)
    if metric.cause == "memory_pressure":
        parts |= _MEMORY
    return parts.union(*(each.rests_on for each in steps)) if is_over_steps(metric) else parts
