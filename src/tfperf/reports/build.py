"""From an analysed profile to a report: one function per section.

A new section is one more entry in `SECTIONS`; no renderer needs to know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfperf.sections.environment.analysis import HostEnvironment
from tfperf.sections.steps.breakdown import CATEGORIES, Breakdown
from tfperf.sections.overview.summary import Summary, by_kind, summarize
from tfperf.report.model import Column, Fact, Finding, Report, Section, StepChart, Table
from tfperf.reports import columns, findings
from tfperf.sections.functions.section import eager_advice, function_advice, functions_section
from tfperf.sections.idle.section import brief_idle_section, idle_findings, idle_section
from tfperf.sections.input.section import brief_input_section, input_section
from tfperf.sections.kernels.section import kernel_advice, kernels_section
from tfperf.sections.memory.section import brief_memory_section, memory_section
from tfperf.sections.memory.section import findings as memory_findings
from tfperf.sections.ops.section import brief_ops_section, ops_section
from tfperf.reports.profile import WHOLE, Profile, View
from tfperf.sections.tfdata.advice import pipeline_advice
from tfperf.sections.tfdata.section import brief_tfdata_section, tfdata_section
from tfperf.trace.steps import UNLABELLED
from tfperf.units import PS_PER_MS

Builder = Callable[[Profile, View], Section]


def build_report(profile: Profile, *, sections: Sequence[str] = (), view: View = WHOLE) -> Report:
    """Build the report of a profile with the named sections (default: all)."""
    whole_for_people = view.top is not None and not sections
    has_device = any(host.device_count for host in profile.environments)
    skipped = _OF_DEVICES if (whole_for_people or (view.page and not sections)) and not has_device else ()
    chosen = tuple(name for name in SECTIONS if name not in skipped and (not sections or name in sections))
    if view.page:
        chosen = tuple(sorted(chosen, key=lambda name: _FIRST_ON_A_PAGE.get(name, len(_FIRST_ON_A_PAGE))))
    builders = {**SECTIONS, **_BRIEF} if whole_for_people else SECTIONS
    return Report(_source(profile), _summary(profile), tuple(builders[name](profile, view) for name in chosen))


def _table(
    name: str, title: str, declared: tuple[Column, ...], data: dict[str, Any], note: str = "", bar_key: str = ""
) -> Table:
    rows = len(data[declared[0].key])
    return Table(name, title, declared, {column.key: data[column.key] for column in declared}, rows, note, bar_key)


def _source(profile: Profile) -> dict[str, Any]:
    return {
        "run": profile.run_name,
        "folder": profile.folder,
        "hosts": [host.host for host in profile.environments],
        "attribution": profile.attribution,
    }


def _summary(profile: Profile) -> dict[str, Any]:
    steps, overview = profile.steps.steps, profile.overview
    return {
        "step_count": len(steps),
        "averaged_step_count": overview.averaged_count,
        "step_kind": overview.kind if len(steps) else None,
        "step_source": steps.source,
        "step_confidence": steps.confidence,
        "step_explanation": steps.explanation,
        "step_notes": list(steps.notes),
        "step_time_ms": _time_dict(overview),
        "input_percent": overview.input_percent,
        "input_class": overview.input_class,
        "verdict": _verdict(profile).text,
        "category_percent": {key: _known(profile.steps, key, overview.percent.get(key)) for key in CATEGORIES},
        "input_wait_percent": overview.percent.get("input_wait") if profile.steps.input_visible else None,
        "host_to_device_percent": _known(profile.steps, "output", overview.percent.get("host_to_device")),
        "kinds": {own.kind: _kind_dict(own) for own in by_kind(profile.steps)},
        "worst_host": profile.environments[overview.worst_host].host if overview.worst_host is not None else None,
    }


def _time_dict(found: Summary) -> dict[str, float | None]:
    keys = ("average", "standard_deviation", "minimum", "maximum", "median", "p95")
    return {key: getattr(found.step_time_ms, key) if found.step_time_ms else None for key in keys}


def _kind_dict(found: Summary) -> dict[str, Any]:
    return {
        "step_count": found.step_count,
        "averaged_step_count": found.averaged_count,
        "step_time_ms": _time_dict(found),
        "input_percent": found.input_percent,
        "input_class": found.input_class,
    }


def _known(steps: Breakdown, key: str, value: float | None) -> float | None:
    """Return the value unless it is about a device and none recorded anything, or about input that is not visible."""
    if key in columns.DEVICE_CATEGORIES and not steps.has_device:
        return None
    return None if key == "input" and not steps.input_visible else value


def _verdict(profile: Profile) -> Finding:
    worst = profile.overview.worst_host
    return findings.verdict(
        profile.overview, profile.steps, profile.environments[worst].host if worst is not None else ""
    )


def _overview(profile: Profile, _: View) -> Section:
    steps, found = profile.steps, profile.overview
    if found.step_time_ms is None:
        return Section("overview", "Overview", (_verdict(profile),))
    data = _category_data(steps, found)
    tables = [_table("categories", "Where a step's time goes", columns.CATEGORIES, data, bar_key="percent")]
    kinds = by_kind(steps)
    if len(kinds) > 1:
        tables.append(
            _table("kinds", "By kind of step", columns.KINDS, {"kind": [k.kind for k in kinds], **_summary_data(kinds)})
        )
    if len(profile.breakdowns) > 1:
        own = [summarize(host) for host in profile.breakdowns]
        names = [host.host for host in profile.environments]
        tables.append(_table("hosts", "By host", columns.HOSTS, {"host": names, **_summary_data(own)}))
    return Section("overview", "Overview", (_verdict(profile),), _step_facts(steps, found), (), tuple(tables))


def _step_facts(steps: Breakdown, found: Summary) -> tuple[Fact, ...]:
    time = found.step_time_ms
    assert time is not None
    batches = int(steps.steps.batches.max())
    precise = steps.compute_16_ps + steps.compute_32_ps
    label = "" if found.kind == UNLABELLED else f"{found.kind} "
    facts = [
        Fact(
            "average_step_time",
            "Average step time",
            time.average,
            "ms",
            f"± {time.standard_deviation:.3g} ms over steps",
        ),
        Fact("minimum_step_time", "Shortest step", time.minimum, "ms"),
        Fact("maximum_step_time", "Longest step", time.maximum, "ms"),
        Fact("steps", "Steps averaged", found.averaged_count, "count", f"of {found.step_count} {label}steps"),
        Fact("step_source", "Steps found by", steps.steps.source, "", f"confidence {steps.steps.confidence}"),
    ]
    if batches > 1:
        facts.append(
            Fact("batch_time", "Average per batch", time.average / batches, "ms", f"{batches} batches in a step")
        )
    if precise:
        facts.append(Fact("compute_16_bit", "Device compute 16-bit", 100.0 * steps.compute_16_ps / precise, "%"))
        facts.append(Fact("compute_32_bit", "Device compute 32-bit", 100.0 * steps.compute_32_ps / precise, "%"))
    return tuple(facts)


def _category_data(steps: Breakdown, found: Summary) -> dict[str, Any]:
    def column(value: Callable[[str], float]) -> list[float | None]:
        return [_known(steps, key, value(key)) for key in CATEGORIES]

    return {
        "category": [columns.CATEGORY_TITLES[key] for key in CATEGORIES],
        "average_ms": column(lambda key: found.category_ms[key].average),
        "standard_deviation_ms": column(lambda key: found.category_ms[key].standard_deviation),
        "percent": column(lambda key: found.percent[key]),
        "meaning": [columns.CATEGORY_MEANINGS[key] for key in CATEGORIES],
    }


def _summary_data(rows: Sequence[Summary]) -> dict[str, list[Any]]:
    times = [_time_dict(row) for row in rows]
    return {
        "steps": [row.step_count for row in rows],
        "averaged_steps": [row.averaged_count for row in rows],
        **{
            f"{key}_ms": [time[key] for time in times]
            for key in ("average", "standard_deviation", "minimum", "maximum")
        },
        "input_percent": [row.input_percent for row in rows],
        "input_class": [row.input_class for row in rows],
    }


def _steps(profile: Profile, view: View) -> Section:
    steps = profile.steps
    found = steps.steps
    if not len(found):
        return Section("steps", "Steps", notes=(f"No steps: {found.explanation}.",))
    series = {columns.CATEGORY_TITLES[key]: (steps.time_ps[key] / PS_PER_MS).tolist() for key in CATEGORIES}
    chart = StepChart("Step time (ms)", tuple(str(n) for n in found.numbers.tolist()), series, found.flags)
    table = _table("steps", "Steps", columns.steps(has_device=steps.has_device), dict(steps.columns()))
    tables = [table if view.top is None else table.head(view.top)]
    if found.pauses:
        tables.append(_table("pauses", "Time outside steps", columns.PAUSES, {
            "after_step": [pause.after_step for pause in found.pauses],
            "start_ms": [pause.start_ps / PS_PER_MS for pause in found.pauses],
            "duration_ms": [(pause.end_ps - pause.start_ps) / PS_PER_MS for pause in found.pauses],
        }))  # fmt: skip
    notes = (f"Steps: {found.explanation} (confidence {found.confidence}).", *found.notes)
    if any(flag and counted for flag, counted in zip(found.flags, steps.averaged.tolist(), strict=True)):
        notes += ("Fewer than three steps are without a flag, so flagged ones count in the averages too.",)
    return Section("steps", "Steps", charts=(chart,), tables=tuple(tables), notes=notes)


def _input(profile: Profile, view: View) -> Section:
    return input_section(profile, _verdict(profile), view.top)


def _functions(profile: Profile, view: View) -> Section:
    return functions_section(profile.functions, profile.eager, view.top)


def _tfdata(profile: Profile, view: View) -> Section:
    return tfdata_section(profile.tfdata, profile.outlook, len(profile.environments), view.top)


def _environment(profile: Profile, _: View) -> Section:
    hosts: Sequence[HostEnvironment] = profile.environments
    keys = ("host", "device_type", "device_model", "device_count", "idle_devices", "device_cores",
            "device_memory_bytes", "event_count", "size_bytes", "path")  # fmt: skip
    data: dict[str, Any] = {key: [getattr(host, key) for host in hosts] for key in keys}
    data["duration_ms"] = [host.duration_ps / PS_PER_MS for host in hosts]
    facts = (
        Fact("hosts", "Hosts", len(hosts), "count"),
        Fact("devices", "Devices", sum(host.device_count for host in hosts), "count", "that recorded events"),
        Fact("attribution", "Attribution", profile.attribution),
    )
    return Section("environment", "Run environment", facts=facts, tables=(
        _table("environment", "Hosts", columns.ENVIRONMENT, data),
    ))  # fmt: skip


def _recommendations(profile: Profile, _: View) -> Section:
    outlook = profile.outlook
    pipeline = pipeline_advice(outlook.pipeline, outlook) if outlook else ()
    sections = (
        *function_advice(profile.functions), *eager_advice(profile.eager), *idle_findings(profile.idle),
        *kernel_advice(profile.kernels), *memory_findings(profile.memory),
    )  # fmt: skip
    advice = findings.recommendations(profile.overview, profile.steps, profile.ops, pipeline, sections)
    return Section("recommendations", "What to do next", advice)


def _gaps(profile: Profile, _: View) -> Section:
    several = len(profile.environments) > 1
    notes = [
        f"{host.host}: {text}" if several else text
        for host, texts in zip(profile.environments, profile.gaps, strict=True)
        for text in texts
    ]
    if len(profile.steps.steps) and not profile.steps.input_visible:
        notes.append(
            "Input: no fetch from tf.data and no copy to a device is in the trace, so input time is unknown, not 0."
        )
    notes.append("Host CPU cores and memory, and the TensorFlow version: the profile does not record them.")
    return Section("gaps", "What this trace cannot tell", notes=tuple(notes))


SECTIONS: dict[str, Builder] = {
    "overview": _overview,
    "steps": _steps,
    "idle": lambda profile, view: idle_section(profile.idle, view.top),
    "input": _input,
    "tfdata": _tfdata,
    "ops": lambda profile, view: ops_section(profile.ops, view, profile.attribution),
    "kernels": lambda profile, view: kernels_section(
        profile.kernels, profile.attribution, len(profile.environments), view.top
    ),
    "functions": _functions,
    "memory": lambda profile, view: memory_section(profile.memory, view.top),
    "environment": _environment,
    "recommendations": _recommendations,
    "gaps": _gaps,
}
"""Section name (for `-s`) to its builder, in the order of the report."""


def _brief_ops(profile: Profile, view: View) -> Section:
    asked = view.by != "op" or view.filters
    return SECTIONS["ops"](profile, view) if asked else brief_ops_section(profile.ops, view.top)


_BRIEF: dict[str, Builder] = {
    "idle": lambda profile, _: brief_idle_section(profile.idle),
    "input": lambda profile, _: brief_input_section(profile),
    "ops": _brief_ops,
    "memory": lambda profile, view: brief_memory_section(profile.memory, view.top),
    "tfdata": lambda profile, _: brief_tfdata_section(profile.tfdata, profile.outlook),
}
"""What stands in a whole report for people instead."""

_FIRST_ON_A_PAGE = {"overview": 0, "recommendations": 1}
"""A page is long, and read from its top; in a terminal the last lines are what one sees."""

_OF_DEVICES = ("idle", "kernels")
"""What a whole report leaves out for people where no device took part; "What this trace cannot tell" says so."""
