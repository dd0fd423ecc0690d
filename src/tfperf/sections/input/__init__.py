"""Input: the time that steps spend on input, and the host work that prepares it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tfperf.analysis.registry import Results, SectionSpec, TableSpec, present
from tfperf.base.units import PS_PER_MS, format_percent, listed, percent
from tfperf.report.model import (
    Column,
    Data,
    Fact,
    Finding,
    Level,
    Quantity,
    Ranked,
    Section,
    StepChart,
    Table,
    at_levels,
)
from tfperf.sections.input.analysis import InputPart
from tfperf.sections.input.analysis import InputPipeline as InputPipeline
from tfperf.sections.overview.section import verdict_of
from tfperf.sections.overview.summary import Overview as Overview
from tfperf.sections.overview.summary import share_of_step, statistics, time_in_step
from tfperf.trace.known_stats import HOST_OPS, TFDATA
from tfperf.trace.steps.breakdown import Breakdown

_NAMED_PERCENT = 5.0
_WAITING_CAUSES, _COPYING_CAUSES = ("input_wait", "input_contention"), ("input_copy",)
"""Causes of the diagnosis that the findings support."""
_NOT_VISIBLE = "Input per step is unknown, not 0: the profile has neither tf.data fetches nor copies to a device."
_NOT_ON_ALL = "No mean over hosts: the traces of {} of them have neither fetches nor copies to a device."
_NO_HOST = "Host input work is unknown: the profile has no host thread events."
_NO_INPUT_OPS = (
    "The profile has no tf.data ops: the job gets its input in another way (NumPy arrays, a generator), or it was "
    "profiled with a host tracer level below 2."
)
_FUNCTIONS = "Functions of map() and similar stages count as preprocessing, on any thread."
_NO_FUNCTIONS = (
    "Functions of map() and similar stages on other threads are in no class, as in TensorFlow's own analysis."
)
_SHARES_OF_STEPS = (
    "Input (%) is the share of each single step: its average weights short and long steps equally, unlike the "
    "share of the step time."
)
_WAITING = "Other is waiting: calls of stages such as Prefetch take elements of other threads or of the host pipeline."


def build(results: Results) -> Section:
    """Build the section: input time of each step, then classes and ops on the host."""
    pipeline = results["input"]
    findings = (verdict_of(results), *_host_work(results))
    return Section(
        "input",
        "Input pipeline",
        findings=tuple(replace(finding, level="full") for finding in findings),
        facts=_facts(results),
        charts=_charts(results["steps"]),
        tables=_tables(results),
        notes=_missing(results),
        detail_notes=_notes(results) if pipeline.ops else (),
        pointer="More: -s input.",
    )


def _missing(results: Results) -> tuple[str, ...]:
    breakdown, pipeline, notes = results["steps"], results["input"], []
    if results["overview"].step_time_ms is None:
        notes.append(f"Input per step is unknown: no step time was measured ({breakdown.steps.explanation}).")
    elif not breakdown.input_visible:
        hidden = sum(not host.input_visible for host in results.of_hosts("steps"))
        notes.append(_NOT_VISIBLE if hidden == len(results.hosts) else _NOT_ON_ALL.format(hidden))
    if not pipeline.has_host_events:
        notes.append(_NO_HOST)
    elif not pipeline.ops:
        notes.append(_NO_INPUT_OPS)
    return tuple(notes)


def _facts(results: Results) -> tuple[Fact, ...]:
    summary, pipeline, facts = results["overview"], results["input"], []
    if is_input_known(results):
        titles = {"input": "Input per step", "input_wait": "Waiting for input"}
        if results["steps"].has_device and results["steps"].copies_are_input:
            titles["host_to_device"] = "Copying to the device"
        average = " (average over hosts)" if results.has_several_hosts else ""
        for key, title in titles.items():
            time, share = time_in_step(summary, key), share_of_step(summary, key)
            note = f"{share} of the step time{average}"
            facts.append(Fact(f"{key}_per_step", title, time.value, "ms", note, quantities=(time, share)))
    facts += _core_facts(results)
    if pipeline.largest is not None:
        share = _active(results, pipeline.largest)
        title, note = INPUT_PART_TITLES[pipeline.largest], f"active for {share} of the capture"
        facts.append(Fact("largest_part", "Largest part on the host", title, "", note, quantities=(share,)))
    return tuple(facts)


def _core_facts(results: Results) -> list[Fact]:
    """Return the smallest and largest input share per step over TPU cores, if there are several."""
    breakdown = results["steps"]
    counted = breakdown.steps.headline
    if len(breakdown.cores) < 2 or not counted.any() or not is_input_known(results):
        return []
    name = {
        id(core): f"{core.host} {core.device}" if results.has_several_hosts else core.device for core in breakdown.cores
    }
    least, most = (
        choose((choose(core.input_percent[counted]), name[id(core)]) for core in breakdown.cores)
        for choose in (min, max)
    )
    if not most[0]:
        return []
    return [
        Fact(f"{key}_input_share", title, float(share), "%", f"of a step, on {core}")
        for key, title, (share, core) in (
            ("lowest", "Smallest share of a core", least),
            ("highest", "Largest share of a core", most),
        )
    ]


def _active(results: Results, part: InputPart) -> Quantity:
    share = percent(results["input"].parts[part].wall_ps, capture_ps(results))
    return Quantity(f"{part}_active", share, "%", "capture")


def _charts(breakdown: Breakdown) -> tuple[StepChart, ...]:
    steps = breakdown.steps
    if not breakdown.input_visible or not breakdown.time_ps["input"].any():
        return ()
    parts = INPUT_TIME_TITLES if breakdown.copies_are_input else ("input_wait",)
    times_ps = {INPUT_TIME_TITLES[key]: breakdown.time_ps[key] for key in parts}
    times_ps["Rest of the step"] = steps.duration_ps - breakdown.time_ps["input"]
    series = {title: (values / PS_PER_MS).tolist() for title, values in times_ps.items()}
    labels = tuple(str(number) for number in steps.numbers.tolist())
    kinds, averaged = steps.kinds_told_apart, steps.headline.tolist()
    return (StepChart("Input per step (ms)", labels, series, steps.flags, kinds, averaged, level="full"),)


def _tables(results: Results) -> tuple[Table, ...]:
    pipeline = results["input"]
    shows_copies = results["steps"].has_device and results["steps"].copies_are_input
    hidden: dict[str, Level] = {} if shows_copies else {"host_to_device_ms": "data"}
    if not pipeline.enqueue_shares:
        hidden["scaled_ms"] = "data"
    title = INPUT_STATISTICS.title + " (average over hosts)" * results.has_several_hosts
    note = "Each op ran on only one thread. Wall is shorter than self if threads ran at the same time."
    threads = max((op.threads or 0 for op in pipeline.ops), default=0)
    if threads > 1:
        note = (
            f"Self is summed over threads (up to {threads} ran the same op); wall is the time with at least one "
            "active thread."
        )
    return present(
        INPUT_STATISTICS.build(
            results,
            title=title,
            columns=at_levels(INPUT_STATISTICS.columns, hidden),
            note=_SHARES_OF_STEPS,
            level="full",
        ),
        INPUT_STEPS.build(results, columns=at_levels(INPUT_STEPS.columns, hidden), level="data"),
        INPUT_HOSTS.build(results, level="full"),
        INPUT_CLASSES.build(
            results,
            columns=at_levels(INPUT_CLASSES.columns, hidden),
            note=note,
            bar_key="self_percent",
            rows_for_people=tuple(row for row, time in enumerate(pipeline.parts.values()) if time.ops),
        ),
        INPUT_OPS.build(results, level="full"),
    )


def _notes(results: Results) -> tuple[str, ...]:
    pipeline = results["input"]
    if not pipeline.enqueue_shares:
        scaling = "Times are not scaled: the profile has no host op that copies batches to a device."
    elif not pipeline.parts["enqueue"].ops:
        scaling = "Times are scaled to 0, as in TensorFlow's own analysis if no host op copies batches to a device."
    else:
        shares = listed([f"{format_percent(100.0 * share)}%" for share in pipeline.enqueue_shares])
        scaling = f"All classes except enqueue are scaled: enqueue takes {shares} of the host time, as measured."
    is_corrected = results.attribution == "corrected"
    notes = [scaling, _FUNCTIONS if is_corrected else _NO_FUNCTIONS]
    if is_corrected and pipeline.parts["other"].ops:
        notes.append(_WAITING)
    if results.has_several_hosts:
        notes.append("Host times are summed over hosts; shares are of the summed capture durations.")
    return tuple(notes)


def _host_work(results: Results) -> list[Finding]:
    overview = results["overview"]
    pipeline = results["input"]
    if overview.input_class not in ("high", "moderate"):
        return []
    copying, wait = (share_of_step(overview, part) for part in ("host_to_device", "input_wait"))
    if (copying.value or 0.0) > (wait.value or 0.0):
        text = f"Copying batches to the device takes {copying} of the step time, waiting for input only {wait}."
        return [Finding("input_enqueue", "hint", text, causes=_COPYING_CAUSES, quantities=(copying, wait))]
    findings = []
    for part, time in pipeline.parts.items():
        share = _active(results, part)
        if part == "other" and time.scaled_ps and not time.self_ps:
            text = "No tf.data op explains the host time between two copies to the device."
            findings.append(Finding("input_other", "hint", text, causes=_WAITING_CAUSES))
        elif part != "other" and (share.value or 0.0) >= _NAMED_PERCENT:
            text = f"{INPUT_PART_TITLES[part]} is active for {share} of the capture."
            causes = _COPYING_CAUSES if part == "enqueue" else _WAITING_CAUSES
            findings.append(Finding(f"input_{part}", "hint", text, causes=causes, quantities=(share,)))
    return findings


INPUT_PART_TITLES: dict[InputPart, str] = {
    "on_demand_read": "On-demand file read",
    "advanced_read": "Advanced file read",
    "preprocessing": "Preprocessing",
    "enqueue": "Enqueue to device",
    "other": "Other",
}
INPUT_TIME_TITLES = {"input_wait": "Input wait", "host_to_device": "Host to device"}
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
    Column("input_wait_ms", "Waiting", float, "ms", "part of input: waiting for input"),
    Column("host_to_device_ms", "To device", float, "ms", "part of input: copying batches to the device"),
    Column("input_percent", "Input", float, "%", "input / step time of each step"),
)


def is_input_known(results: Results) -> bool:
    """Return whether the input time of steps is known: on all hosts, with steps of non-zero duration."""
    return bool(results["steps"].input_visible) and results["overview"].step_time_ms is not None


def capture_ps(results: Results) -> int:
    """Return the summed duration of the captures of all hosts, in picoseconds."""
    return sum(host.duration_ps for host in results["environment"])


def _input_percent(breakdown: Breakdown) -> npt.NDArray[np.float64]:
    return np.asarray(100.0 * breakdown.time_ps["input"] / np.maximum(breakdown.steps.duration_ps, 1), np.float64)


def _statistics(results: Results) -> Data | None:
    if not is_input_known(results):
        return None
    breakdown, summary = results["steps"], results["overview"]
    over_steps = {
        "step_time_ms": summary.step_time_ms,
        **{f"{key}_ms": summary.category_ms[key] for key in ("input", *INPUT_TIME_TITLES)},
        "input_percent": statistics(_input_percent(breakdown)[breakdown.steps.headline]),
    }
    if not breakdown.copies_are_input or "host_to_device" in breakdown.unknown:
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
    if not breakdown.copies_are_input or "host_to_device" in breakdown.unknown:
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
    """Return one row per class. A class without ops has no times, because its work may be unrecorded."""
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


_HOST_COLUMNS = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column("input_percent", "Input", float, "%", "share of step time spent on input"),
    Column("input_wait_percent", "Waiting", float, "%", "share of step time spent waiting for input"),
    Column("host_to_device_percent", "To device", float, "%", "share of step time spent copying batches to the device"),
    Column("input_class", "Input-bound", str, "", "high, moderate, possible, none or unknown"),
    Column("part", "Largest part", str, "", "class of input ops with the most wall time"),
    Column("wall_percent", "Active", float, "%", "wall time of that class / duration of the capture"),
)
_SCALED_MEANING = "self time, scaled to the host time if enqueuing was recorded"
_CLASS_COLUMNS = (
    Column("part", "Class", str, "", "class of input ops"),
    Column("ops", "Ops", int, "count", "different ops of the class", level="data"),
    Column("self_ms", "Self", float, "ms", "time excluding nested ops, summed over threads"),
    Column("self_percent", "Self", float, "%", "self time / self time of all input ops"),
    Column("scaled_ms", "Scaled", float, "ms", _SCALED_MEANING, over_steps=True),
    Column("wall_ms", "Wall", float, "ms", "time in which at least one thread is active in the class"),
    Column("wall_percent", "Of capture", float, "%", "wall time / duration of the capture"),
)

_STATISTICS = "mean, standard deviation, minimum, maximum, median or 95th percentile"
INPUT_STATISTICS = TableSpec(
    name="input_statistics",
    title="Input per step",
    row="input time over the averaged steps",
    details=(
        "One row per statistic over the averaged steps: mean, standard deviation, minimum, maximum, median, 95th "
        "percentile. Missing if the profile has no steps or no input. [Input](input.md) "
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
    details="The same values for each step.",
    columns=(
        Column("step", "Step", int, "", "step number, as in the table of steps"),
        Column("flag", "Flag", str, "", "why the step is excluded from the averages"),
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
    details="One row per host. Only with several hosts.",
    columns=_HOST_COLUMNS,
    data=_hosts,
    name_key="host",
    ranked=Ranked("input_percent", each="hosts"),
    about_steps=True,
    over_hosts=True,
)
INPUT_CLASSES = TableSpec(
    name="input_classes",
    title="Host input work",
    row="host input work, by class",
    details=(
        "Host input work: one row for each of five classes. Times are empty if the profile has no ops of the "
        "class. With several hosts, times are summed over hosts, including wall times."
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
        Column("part", "Class", str, "", "class of the op"),
        Column("count", "Count", int, "count", "number of runs", level="data"),
        Column("total_ms", "Total", float, "ms", "time including nested ops, summed over threads", level="data"),
        Column("total_percent", "Total", float, "%", "total time / self time of all input ops", level="data"),
        Column("self_ms", "Self", float, "ms", "time excluding nested ops, summed over threads"),
        Column("self_percent", "Self", float, "%", "self time / self time of all input ops"),
        Column("wall_ms", "Wall", float, "ms", "time in which at least one thread runs the op itself"),
        Column("threads", "Threads", int, "count", "threads that ran it"),
    ),
    data=lambda results: (
        {**results["input"].columns(), "part": [INPUT_PART_TITLES[op.part] for op in results["input"].ops]}
        if results["input"].ops
        else None
    ),
    name_key="op_name",
    ranked=Ranked("self_ms"),
)
TABLES = (INPUT_STATISTICS, INPUT_STEPS, INPUT_HOSTS, INPUT_CLASSES, INPUT_OPS)


SECTION = SectionSpec(
    name="input",
    title="Input pipeline",
    rests_on=("steps", "overview", "environment"),
    analyze="tfperf.sections.input.analysis:analyze",
    combine="tfperf.sections.input.analysis:combine",
    combines_in_tree=True,
    stats=HOST_OPS | TFDATA,
    shorten="tfperf.sections.input.analysis:shorten",
    build="tfperf.sections.input:build",
    tables=TABLES,
)
