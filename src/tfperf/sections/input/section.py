"""The section about input: how long steps wait for it, and what the host does to make it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tfperf.sections.input.analysis import PARTS, InputPipeline, Part
from tfperf.sections.steps.breakdown import Breakdown
from tfperf.sections.overview.summary import Statistics, Summary, statistics, summarize

from tfperf.report.model import Column, Fact, Finding, Section, Severity, StepChart, Table
from tfperf.reports import columns
from tfperf.reports.profile import Profile
from tfperf.units import PS_PER_MS, format_percent

_TITLE = "Input pipeline"
_ADVICE_PERCENT = 5.0
_PARTS_OF_INPUT = {"input_wait": "Input wait", "host_to_device": "Host to device"}
_STATISTICS = {
    "average": "Average", "standard_deviation": "Standard deviation", "minimum": "Minimum", "maximum": "Maximum",
    "median": "Median", "p95": "95th percentile",
}  # fmt: skip
_ACTIONS: dict[Part, str] = {
    "on_demand_read": (
        "end the pipeline with .prefetch(tf.data.AUTOTUNE), read several files at once with interleave(), and give the "
        "reader a larger buffer_size"
    ),
    "advanced_read": "raise num_parallel_calls and cycle_length of interleave(), the prefetch buffer, and the reader's "
    "buffer_size; or store the files nearer and in fewer, larger pieces",
    "preprocessing": "give map() num_parallel_calls=tf.data.AUTOTUNE, .cache() what stays the same in every epoch, or "
    "do that work once, before training",
    "enqueue": "hand over fewer, larger chunks: put small tensors together, send smaller types and convert them on the "
    "device",
    "other": "move what the program does between batches into a tf.data pipeline",
}
_NOT_VISIBLE = (
    "Input per step is unknown, not 0: nothing in the trace shows a fetch from tf.data or a copy to a device."
)
_NOT_ON_ALL = "There is no average over hosts: the traces of {} of them show neither fetches nor copies to a device."
_NO_HOST = "What the host does for input is not in the trace: it holds no event of any host thread."
_NO_INPUT_OPS = (
    "The trace holds no op of tf.data. Either the job gets its input in another way (NumPy arrays, a generator), or "
    "the profile was taken with a host tracer level below 2."
)
_FUNCTIONS = (
    "What the functions of map() and the like do on other threads is in no class; -s tfdata shows it stage by stage."
)


def input_section(profile: Profile, verdict: Finding, top: int | None) -> Section:
    """Build the section; `top` is for people: it cuts the ops, and leaves out the table that the chart shows."""
    found = profile.input
    tables = [*_device_tables(profile, with_steps=top is None), *_host_tables(profile)]
    shown = tuple(table if top is None else table.head(top) for table in tables)
    return Section(
        "input", _TITLE, (verdict, *_advice(found, profile.overview)), _facts(profile), _charts(profile.steps), shown,
        (*_not_visible(profile), *_notes(profile)),
    )  # fmt: skip


def brief_input_section(profile: Profile) -> Section:
    """Build what stands in a whole report for people, where the verdict and the steps have their own sections."""
    tables = [_without_gaps(table) for table in _host_tables(profile) if table.name == "input_classes"]
    notes = (*_no_steps(profile), *_not_visible(profile), "More: -s input.")
    return Section("input", _TITLE, (), _facts(profile), (), tuple(tables), notes)


def _without_gaps(table: Table) -> Table:
    """Return the table of classes without those that have no op."""
    rows = [at for at, count in enumerate(table.data["ops"]) if count]
    data = {key: [values[at] for at in rows] for key, values in table.data.items()}
    return replace(table, data=data, total_rows=len(rows))


def _table(name: str, title: str, declared: tuple[Column, ...], data: Mapping[str, Sequence[Any]]) -> Table:
    rows = len(data[declared[0].key])
    return Table(name, title, declared, {column.key: data[column.key] for column in declared}, rows)


# --- the device's side: steps ---


def _is_known(profile: Profile) -> bool:
    return profile.overview.step_time_ms is not None and profile.steps.input_visible


def _no_steps(profile: Profile) -> tuple[str, ...]:
    if profile.overview.step_time_ms is not None:
        return ()
    return (f"Input per step is unknown: no step time was measured ({profile.steps.steps.explanation}).",)


def _not_visible(profile: Profile) -> tuple[str, ...]:
    """Say which half of the section the trace cannot fill, and why."""
    notes = []
    if profile.overview.step_time_ms is not None and not profile.steps.input_visible:
        hidden = sum(not host.input_visible for host in profile.breakdowns)
        notes.append(_NOT_VISIBLE if hidden == len(profile.breakdowns) else _NOT_ON_ALL.format(hidden))
    if not profile.input.has_host_events:
        notes.append(_NO_HOST)
    elif not profile.input.ops:
        notes.append(_NO_INPUT_OPS)
    return tuple(notes)


def _facts(profile: Profile) -> tuple[Fact, ...]:
    facts = []
    if _is_known(profile):
        shown = {"input": "Input per step", "input_wait": "Waiting for tf.data"}
        if profile.steps.has_device:
            shown["host_to_device"] = "Handing over to the device"
        for key, title in shown.items():
            share = format_percent(profile.overview.percent[key])
            average = " (average over hosts)" if len(profile.breakdowns) > 1 else ""
            value = profile.overview.category_ms[key].average
            facts.append(Fact(f"{key}_per_step", title, value, "ms", f"{share}% of the step time{average}"))
    largest = profile.input.largest
    if largest is not None:
        facts.append(Fact("largest_part", "Largest part on the host", columns.INPUT_PART_TITLES[largest], "",
                          f"at work for {_of_capture(profile, largest)}% of the capture"))  # fmt: skip
    return tuple(facts)


def _of_capture(profile: Profile, part: Part) -> str:
    return format_percent(_percent(profile.input.parts[part].wall_ps, _capture_ps(profile)))


def _capture_ps(profile: Profile) -> int:
    return sum(host.duration_ps for host in profile.environments)


def _percent(part: float, whole: float) -> float | None:
    return 100.0 * part / whole if whole else None


def _charts(steps: Breakdown) -> tuple[StepChart, ...]:
    if not len(steps.steps) or not steps.input_visible:
        return ()
    rest = steps.steps.duration_ps - steps.time_ps["input"]
    times = {title: steps.time_ps[key] for key, title in _PARTS_OF_INPUT.items()} | {"Rest of the step": rest}
    series = {title: (values / PS_PER_MS).tolist() for title, values in times.items()}
    labels = tuple(str(number) for number in steps.steps.numbers.tolist())
    return (StepChart("Input per step (ms)", labels, series, steps.steps.flags),)


def _device_tables(profile: Profile, *, with_steps: bool) -> list[Table]:
    several = len(profile.breakdowns) > 1
    tables = []
    if _is_known(profile):
        title = "Input per step" + " (average over hosts)" * several
        tables.append(_table("input_statistics", title, columns.INPUT_STATISTICS, _statistics_data(profile)))
        if with_steps:
            tables.append(_table("input_steps", "Input of each step", columns.INPUT_STEPS, _step_data(profile.steps)))
    if not profile.steps.has_device:
        tables = [_without_device(table) for table in tables]
    if several and profile.overview.step_time_ms is not None:
        tables.append(_table("input_hosts", "Input by host", columns.INPUT_HOSTS, _host_data(profile)))
    return tables


def _without_device(table: Table) -> Table:
    """Return the table without what only a device can tell, as people see it."""
    return replace(table, columns=tuple(
        replace(column, compact=column.compact and column.key != "host_to_device_ms") for column in table.columns
    ))  # fmt: skip


def _statistics_data(profile: Profile) -> dict[str, list[Any]]:
    steps, rows = profile.steps, profile.steps.headline
    share = statistics(np.asarray(_input_percent(steps)[rows], np.float64))
    found = {f"{key}_ms": profile.overview.category_ms[key] for key in ("input", *_PARTS_OF_INPUT)}
    time = profile.overview.step_time_ms
    every: dict[str, Statistics | None] = {"step_time_ms": time, **found, "input_percent": share}
    if not steps.has_device:
        every["host_to_device_ms"] = None
    return {
        "statistic": list(_STATISTICS.values()),
        **{key: [getattr(own, name) if own else None for name in _STATISTICS] for key, own in every.items()},
    }


def _input_percent(steps: Breakdown) -> Any:
    return 100.0 * steps.time_ps["input"] / np.maximum(steps.steps.duration_ps, 1)


def _step_data(steps: Breakdown) -> dict[str, list[Any]]:
    known = steps.columns()
    data = {column.key: known[column.key] for column in columns.INPUT_STEPS if column.key in known}
    unknown = {} if steps.has_device else {"host_to_device_ms": [None] * len(steps.steps)}
    return {**data, **unknown, "input_percent": _input_percent(steps).tolist()}


def _host_data(profile: Profile) -> dict[str, list[Any]]:
    each = [summarize(host) for host in profile.breakdowns]
    data: dict[str, list[Any]] = {
        "host": [host.host for host in profile.environments],
        "input_percent": [own.input_percent for own in each],
        "input_class": [own.input_class for own in each],
        **{f"{key}_percent": [_share(own, key, host) for own, host in zip(each, profile.breakdowns, strict=True)]
           for key in _PARTS_OF_INPUT},
        "part": [], "wall_percent": [],
    }  # fmt: skip
    for found, host in zip(profile.inputs, profile.environments, strict=True):
        part = found.largest
        data["part"].append(columns.INPUT_PART_TITLES[part] if part else None)
        data["wall_percent"].append(_percent(found.parts[part].wall_ps, host.duration_ps) if part else None)
    return data


def _share(own: Summary, key: str, host: Breakdown) -> float | None:
    is_known = host.input_visible and (host.has_device or key != "host_to_device")
    return own.percent.get(key) if is_known else None


# --- the host's side: input ops ---


def _advice(found: InputPipeline, overview: Summary) -> list[Finding]:
    """Return what helps against each class that takes time, unless steps do not wait for input anyway."""
    if overview.input_class == "none":
        return []
    severity: Severity = "hint" if overview.input_class in ("high", "moderate") else "info"
    if overview.percent.get("host_to_device", 0.0) > overview.percent.get("input_wait", 0.0):
        return [_device_advice(overview, severity)]
    advice = []
    for part in PARTS:
        title, own = columns.INPUT_PART_TITLES[part], found.parts[part]
        share = _percent(own.self_ps, found.self_ps) or 0.0
        if part == "other" and own.scaled_ps and not own.self_ps:
            text = "Between one batch handed to the device and the next, no op of tf.data explains the host's time."
            advice.append(Finding("input_other", "hint", text, _ACTIONS[part]))
        elif part != "other" and share >= _ADVICE_PERCENT:
            text = f"{title}: {format_percent(share)}% of the self time of input ops."
            advice.append(Finding(f"input_{part}", severity, text, _ACTIONS[part]))
    return advice


def _device_advice(overview: Summary, severity: Severity) -> Finding:
    copy, wait = (format_percent(overview.percent[key]) for key in ("host_to_device", "input_wait"))
    text = f"Handing batches to the device takes {copy}% of the step time, waiting for tf.data only {wait}%."
    return Finding("input_enqueue", severity, text, _ACTIONS["enqueue"])


def _host_tables(profile: Profile) -> list[Table]:
    found = profile.input
    if not found.ops:
        return []
    data: dict[str, Sequence[Any]] = dict(found.columns())
    data["part"] = [columns.INPUT_PART_TITLES[op.part] for op in found.ops]
    classes = _table("input_classes", "What the host does for input", _class_columns(found), _class_data(profile))
    return [
        replace(classes, note=_class_note(found), bar_key="self_percent"),
        _table("input_ops", "Input ops by self time", columns.INPUT_OPS, data),
    ]


def _class_columns(found: InputPipeline) -> tuple[Column, ...]:
    """Return the columns; people see scaled times only where something was scaled."""
    return tuple(
        replace(column, compact=column.compact and (column.key != "scaled_ms" or bool(found.enqueue_shares)))
        for column in columns.INPUT_CLASSES
    )


def _class_data(profile: Profile) -> dict[str, list[Any]]:
    """Return one row per class; a class without an op has no times, for its work may merely not be recorded."""
    found, capture = profile.input, _capture_ps(profile)
    data: dict[str, list[Any]] = {column.key: [] for column in columns.INPUT_CLASSES}
    for part in PARTS:
        own = found.parts[part]
        row: dict[str, Any] = dict.fromkeys(data)
        row |= {"part": columns.INPUT_PART_TITLES[part], "ops": own.ops}
        if own.ops:
            row |= {"self_ms": own.self_ps / PS_PER_MS, "self_percent": _percent(own.self_ps, found.self_ps),
                    "wall_ms": own.wall_ps / PS_PER_MS, "wall_percent": _percent(own.wall_ps, capture)}  # fmt: skip
        if own.ops or own.scaled_ps:
            row["scaled_ms"] = own.scaled_ps / PS_PER_MS
        for key, value in row.items():
            data[key].append(value)
    return data


def _class_note(found: InputPipeline) -> str:
    if found.threads < 2:
        return "Each op ran on one thread only. Wall is shorter than self where threads worked at the same time."
    return (
        f"Self is summed over threads (up to {found.threads} ran the same op); wall is the time in which at least one "
        "of them is at work."
    )


def _notes(profile: Profile) -> list[str]:
    found = profile.input
    if not found.ops:
        return []
    notes = [_scaling(found), _FUNCTIONS]
    if profile.attribution == "corrected" and found.parts["other"].ops:
        notes.append("Other is waiting: calls of stages such as Prefetch, whose work is done by threads of their own.")
    if len(profile.breakdowns) > 1:
        notes.append("Times of the host's side are summed over hosts, and shares are of all their captures together.")
    return notes


def _scaling(found: InputPipeline) -> str:
    if not found.enqueue_shares:
        return "Nothing was scaled: no op of the host that hands batches to a device is in the trace."
    if not found.parts["enqueue"].ops:
        return "Scaled to 0, as TensorFlow does where no op of the host hands batches to a device."
    shares = ", ".join(f"{format_percent(100.0 * share)}%" for share in found.enqueue_shares)
    return f"Scaled: every class but enqueue, so that enqueue takes {shares} of the host's time, as measured."
