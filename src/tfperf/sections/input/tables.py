"""The tables of input: that of the steps, and what the host does for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfperf.analysis.registry import TableSpec
from tfperf.analysis.results import Results
from tfperf.base.units import PS_PER_MS, percent
from tfperf.report.model import Column, Data, Ranked

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tfperf.trace.steps.breakdown import Breakdown

INPUT_PART_TITLES = {
    "on_demand_read": "On-demand file read",
    "advanced_read": "Advanced file read",
    "preprocessing": "Preprocessing",
    "enqueue": "Enqueue to device",
    "other": "Other",
}
"""Keys and titles of the five classes of input ops, in the order in which they are shown."""
INPUT_TIME_TITLES = {"input_wait": "Input wait", "host_to_device": "Host to device"}
"""Keys and titles of the two parts of the input time of a step."""
STATISTIC_TITLES = {
    "average": "Average",
    "standard_deviation": "Standard deviation",
    "minimum": "Minimum",
    "maximum": "Maximum",
    "median": "Median",
    "p95": "95th percentile",
}

_STEP_TIMES = (
    Column("step_time_ms", "Step", float, "ms", "step time"),
    Column("input_ms", "Input", float, "ms", "waiting for input and copying batches to the device"),
    Column("input_wait_ms", "Waiting", float, "ms", "part of input: waiting for tf.data"),
    Column("host_to_device_ms", "To device", float, "ms", "part of input: copying batches to the device"),
    Column("input_percent", "Input", float, "%", "input / step time of each step"),
)


def is_input_known(results: Results) -> bool:
    """Tell whether the input time of steps is known: on all hosts, and of steps that have any duration."""
    return bool(results["steps"].input_visible) and results["overview"].step_time_ms is not None


def capture_ps(results: Results) -> int:
    """Return the summed duration of the captures of all hosts, in picoseconds."""
    return sum(host.duration_ps for host in results["environment"])


def _input_percent(breakdown: Breakdown) -> npt.NDArray[np.float64]:
    """Return the share of input in each step, in percent."""
    import numpy as np

    return np.asarray(100.0 * breakdown.time_ps["input"] / np.maximum(breakdown.steps.duration_ps, 1), np.float64)


def _shows_copies(breakdown: Breakdown) -> bool:
    """Tell whether copies to the device are known, and a part of input."""
    return breakdown.copies_are_input and "host_to_device" not in breakdown.unknown


def _statistics(results: Results) -> Data | None:
    from tfperf.sections.overview.summary import statistics

    if not is_input_known(results):
        return None
    breakdown, summary = results["steps"], results["overview"]
    over_steps = {
        "step_time_ms": summary.step_time_ms,
        **{f"{key}_ms": summary.category_ms[key] for key in ("input", *INPUT_TIME_TITLES)},
        "input_percent": statistics(_input_percent(breakdown)[breakdown.steps.headline]),
    }
    if not _shows_copies(breakdown):
        over_steps["host_to_device_ms"] = None
    return {
        "statistic": list(STATISTIC_TITLES.values()),
        **{key: [getattr(values, name, None) for name in STATISTIC_TITLES] for key, values in over_steps.items()},
    }


def _steps(results: Results) -> Data | None:
    if not is_input_known(results):
        return None
    breakdown = results["steps"]
    data = {**breakdown.columns(), "input_percent": _input_percent(breakdown).tolist()}
    if not _shows_copies(breakdown):
        data["host_to_device_ms"] = [None] * len(breakdown.steps)
    return data


def _hosts(results: Results) -> Data | None:
    overview = results["overview"]
    if overview.step_time_ms is None or not results.has_several_hosts:
        return None
    rows = []
    for host, summary in zip(results.hosts, overview.by_host, strict=True):
        breakdown, pipeline = host["steps"], host["input"]
        row = {"host": host.host, "input_percent": summary.input_percent, "input_class": summary.input_class}
        if breakdown.input_visible:
            row["input_wait_percent"] = summary.percent.get("input_wait")
            if breakdown.has_device and breakdown.copies_are_input:
                row["host_to_device_percent"] = summary.percent.get("host_to_device")
        if pipeline.largest is not None:
            row["part"] = INPUT_PART_TITLES[pipeline.largest]
            row["wall_percent"] = percent(pipeline.parts[pipeline.largest].wall_ps, host["environment"].duration_ps)
        rows.append(row)
    return {column.key: [row.get(column.key) for row in rows] for column in _HOST_COLUMNS}


def _classes(results: Results) -> Data | None:
    """Return one row per class; a class without an op has no times, for its work may merely not be recorded."""
    pipeline = results["input"]
    if not pipeline.ops:
        return None
    rows = []
    for part, title in INPUT_PART_TITLES.items():
        time = pipeline.parts[part]
        row = {"part": title, "ops": time.ops}
        if time.ops:
            row["self_ms"], row["self_percent"] = time.self_ps / PS_PER_MS, percent(time.self_ps, pipeline.self_ps)
            row["wall_ms"], row["wall_percent"] = time.wall_ps / PS_PER_MS, percent(time.wall_ps, capture_ps(results))
        if time.ops or time.scaled_ps:
            row["scaled_ms"] = time.scaled_ps / PS_PER_MS
        rows.append(row)
    return {column.key: [row.get(column.key) for row in rows] for column in _CLASS_COLUMNS}


def _ops(results: Results) -> Data | None:
    pipeline = results["input"]
    if not pipeline.ops:
        return None
    return {**pipeline.columns(), "part": [INPUT_PART_TITLES[op.part] for op in pipeline.ops]}


_HOST_COLUMNS = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column("input_percent", "Input", float, "%", "share of step time spent on input"),
    Column("input_wait_percent", "Waiting", float, "%", "share of step time spent waiting for tf.data"),
    Column("host_to_device_percent", "To device", float, "%", "share of step time spent copying batches to the device"),
    Column("input_class", "Input-bound", str, "", "high, moderate, possible, none or unknown"),
    Column("part", "Largest part", str, "", "class of input ops that is active for most of the wall time"),
    Column("wall_percent", "Active", float, "%", "wall time of that class / duration of the capture"),
)
_SCALED_MEANING = "self time, scaled to the host's time where enqueuing was recorded"
_CLASS_COLUMNS = (
    Column("part", "Class", str, "", "what the host does"),
    Column("ops", "Ops", int, "count", "different ops of the class", level="data"),
    Column("self_ms", "Self", float, "ms", "time without the ops inside, summed over threads"),
    Column("self_percent", "Self", float, "%", "self time / self time of all input ops"),
    Column("scaled_ms", "Scaled", float, "ms", _SCALED_MEANING, over_steps=True),
    Column("wall_ms", "Wall", float, "ms", "time in which at least one thread is active in the class"),
    Column("wall_percent", "Of capture", float, "%", "wall time / duration of the capture"),
)

_STATISTICS = "average, standard deviation, minimum, maximum, median or 95th percentile"
INPUT_STATISTICS = TableSpec(
    name="input_statistics",
    title="Input per step",
    row="input time over the averaged steps",
    details=(
        "One row per statistic over the averaged steps: average, standard deviation, minimum, maximum, "
        "median, 95th percentile. Missing where the trace shows no steps or no input. [Input](input.md) "
        "explains all tables of this section."
    ),
    columns=(Column("statistic", "Over steps", str, "", _STATISTICS), *_STEP_TIMES),
    data=_statistics,
    name_key="statistic",
    about_steps=True,
)
INPUT_STEPS = TableSpec(
    name="input_steps",
    title="Input of each step",
    row="input time of each step",
    details="The same figures for each step.",
    columns=(
        Column("step", "Step", int, "", "step number, as in the table of steps"),
        Column("flag", "Flag", str, "", "why the step is omitted from averages"),
        *_STEP_TIMES,
    ),
    data=_steps,
    name_key="step",
    about_steps=True,
)
INPUT_HOSTS = TableSpec(
    name="input_hosts",
    title="Input by host",
    row="input time of each host, if there are several",
    details="Only with several hosts: one row per host.",
    columns=_HOST_COLUMNS,
    data=_hosts,
    name_key="host",
    ranked=Ranked("input_percent", each="hosts"),
    about_steps=True,
    over_hosts=True,
)
INPUT_CLASSES = TableSpec(
    name="input_classes",
    title="What the host does for input",
    row="what hosts do for input",
    details=(
        "What the host does for input: one row for each of five classes. Times are empty where the trace "
        "holds no op of the class. With several hosts, times are summed over hosts, wall-clock times too."
    ),
    columns=_CLASS_COLUMNS,
    data=_classes,
    name_key="part",
)
INPUT_OPS = TableSpec(
    name="input_ops",
    title="Input ops by self time",
    row="ops of the input pipeline",
    details="One row per op of the input pipeline, the largest self time first.",
    columns=(
        Column("op_name", "Op", str, "", "name of the input op"),
        Column("part", "Class", str, "", "what the host does in it"),
        Column("count", "Count", int, "count", "how often it ran", level="data"),
        Column("total_ms", "Total", float, "ms", "time with the ops inside, summed over threads", level="data"),
        Column("total_percent", "Total", float, "%", "total time / self time of all input ops", level="data"),
        Column("self_ms", "Self", float, "ms", "time without the ops inside, summed over threads"),
        Column("self_percent", "Self", float, "%", "self time / self time of all input ops"),
        Column("wall_ms", "Wall", float, "ms", "time in which at least one thread runs the op itself"),
        Column("threads", "Threads", int, "count", "threads that ran it"),
    ),
    data=_ops,
    name_key="op_name",
    ranked=Ranked("self_ms"),
)
TABLES = (INPUT_STATISTICS, INPUT_STEPS, INPUT_HOSTS, INPUT_CLASSES, INPUT_OPS)
