"""Steps: the time of each step by category."""

from __future__ import annotations

from itertools import chain

from msgspec.structs import replace

from tfperf.analysis.registry import Host, Results, SectionSpec, TableSpec, present
from tfperf.base.units import PS_PER_MS
from tfperf.report.model import Column, Data, Level, Section, StepChart, at_levels
from tfperf.trace.known_stats import TASK
from tfperf.trace.steps.breakdown import Breakdown, as_tensorflow, attribute, combine
from tfperf.trace.steps.categories import CATEGORIES, CATEGORY_MEANINGS, CATEGORY_TITLES
from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.missing_events import missing_events
from tfperf.trace.steps.steps import no_steps

_ALWAYS_SHOWN = frozenset({"input", "host_compute", "device_compute", "all_others"})
_LEAST_SHARE = 0.01
"""Minimum share of the time of all steps for a visible category column."""

_COPIED = "part of input: batches copied to the device"
_STEP_COLUMNS = (
    Column("step", "Step", int, "", "step number: the program's own, or counted from 0 if it has none"),
    Column("step_name", "Name", str, "", "name of the step", level="data"),
    Column("kind", "Kind", str, "", "train, eval, inference, iteration, or step if unknown"),
    Column("flag", "Flag", str, "", "why the step is excluded from the averages"),
    Column("averaged", "Averaged", bool, "", "whether the step is averaged", level="data"),
    Column("batches", "Batches", int, "count", "tf.data elements in the step", level="data"),
    Column("start_ms", "Start", float, "ms", "start on the clock of the trace", level="data"),
    Column("step_time_ms", "Step time", float, "ms", "from the start of the step to the start of the next step"),
    *(
        Column(f"{key}_ms", title, float, "ms", CATEGORY_MEANINGS[key], "brief" if key in _ALWAYS_SHOWN else "data")
        for key, title in CATEGORY_TITLES.items()
        if key in CATEGORIES
    ),
    Column("input_wait_ms", "Input wait", float, "ms", "part of input: waiting for input", level="data"),
    Column("host_to_device_ms", "Host to device", float, "ms", _COPIED, level="data"),
)
_FOR_OTHER_HOSTS = Column(
    "waiting_for_hosts_ms",
    "Waiting for hosts",
    float,
    "ms",
    "part of device collectives and host compute: waiting in collectives for the last host",
    level="data",
)


def analyze(host: Host) -> Breakdown:
    """Find the steps of a host and attribute their time."""
    missing = missing_events(host.trace, lambda: host.launch_links)
    if host.as_tensorflow:
        return replace(as_tensorflow(host.trace), missing=missing)
    task = host.task
    if task.is_helper:
        steps = no_steps(f"{task.described} has no steps of its own")
    else:
        steps = find_steps(host.trace, host.step_marker)
    breakdown = attribute(host.trace, steps, host.busy_times)
    if breakdown.time_ps["compilation"].any():  # Python events of function tracing are recorded at any level
        missing = tuple(replace(flaw, hides=flaw.hides - {"compilation"}) for flaw in missing)
    # The visible part of a partly recorded category is not reported.
    hidden = frozenset[str]().union(*(flaw.hides for flaw in missing))
    time_ps = {category: ps * (category not in hidden) for category, ps in breakdown.time_ps.items()}
    return replace(breakdown, time_ps=time_ps, task=task, clock_start_ns=host.trace.clock_start_ns, missing=missing)


def _steps(results: Results) -> Data | None:
    breakdown = results["steps"]
    if not len(breakdown.steps):
        return None
    # Average waiting of hosts for others in each step, -1 if unknown.
    late = results["hosts"].late if "hosts" in results.sections and breakdown.attribution == "corrected" else None
    waits = [-1] * len(breakdown.steps) if late is None else late.mean_waited_ps(breakdown.steps.numbers).tolist()
    return {**breakdown.columns(), _FOR_OTHER_HOSTS.key: [None if ps < 0 else ps / PS_PER_MS for ps in waits]}


def _host_steps(results: Results) -> Data | None:
    hosts = [(host.host, host["steps"]) for host in results.hosts]
    columns = [breakdown.columns() for _, breakdown in hosts]
    if not any(len(breakdown.steps) for _, breakdown in hosts):
        return None
    return {
        "host": [name for name, breakdown in hosts for _ in range(len(breakdown.steps))],
        "start_ps": list(chain.from_iterable(breakdown.steps.start_ps.tolist() for _, breakdown in hosts)),
        "end_ps": list(chain.from_iterable(breakdown.steps.end_ps.tolist() for _, breakdown in hosts)),
        **{column.key: [value for data in columns for value in data[column.key]] for column in _STEP_COLUMNS},
    }


def _pauses(results: Results) -> Data | None:
    pauses = results["steps"].steps.pauses
    if not pauses:
        return None
    return {
        "after_step": [pause.after_step for pause in pauses],
        "start_ms": [pause.start_ps / PS_PER_MS for pause in pauses],
        "duration_ms": [(pause.end_ps - pause.start_ps) / PS_PER_MS for pause in pauses],
    }


STEPS = TableSpec(
    name="steps",
    title="Steps",
    row="steps, averaged over hosts, with their categories",
    details=(
        "One row per step. The nine categories, from `compilation_ms` to `all_others_ms`, add up to "
        "`step_time_ms`, and `input_ms` is `input_wait_ms` plus `host_to_device_ms`. With several hosts, each "
        "number is the mean over hosts; `waiting_for_hosts_ms` is the part of `device_collectives_ms` and "
        "`host_compute_ms` in which hosts wait in collectives for the last host.\n\n"
        "In TPU steps, `host_to_device_ms` can be waiting for arrays that the program itself keeps in host memory. "
        "It is then not part of `input_ms`, but a tenth category.\n\n"
        "Categories that the profile cannot show are empty: input if the profile has neither fetches nor copies to "
        "a device, and host categories in TPU steps or if no host thread recorded events. Only in this file, "
        "device categories are 0 in a job without devices, so that rows add up; in `categories.csv` they are empty."
    ),
    columns=(*_STEP_COLUMNS, _FOR_OTHER_HOSTS),
    data=_steps,
    name_key="step_name",
    brief_rows=10,
    about_steps=True,
)
HOST_STEPS = TableSpec(
    name="host_steps",
    title="Steps of each host",
    row="steps of each host, with exact start and end",
    columns=(
        Column("host", "Host", str, "", "name of the trace file"),
        Column("start_ps", "Start", int, "ps", "start on the clock of the trace of its host"),
        Column("end_ps", "End", int, "ps", "end: start of the next step, or of the pause before it"),
        *_STEP_COLUMNS,
    ),
    data=_host_steps,
    name_key="host",
    about_steps=True,
    in_report=False,
    in_limits=False,
)
PAUSES = TableSpec(
    name="pauses",
    title="Time outside steps",
    row="time outside steps",
    details=(
        "Time between steps that belongs to no step: a checkpoint, the end of an epoch, a change from train to "
        "eval. Only if there is any."
    ),
    columns=(
        Column("after_step", "After step", str, "", "the step before the pause"),
        Column("start_ms", "Start", float, "ms", "start on the clock of the trace"),
        Column("duration_ms", "Duration", float, "ms", "time outside steps"),
    ),
    data=_pauses,
    name_key="after_step",
    brief_rows=10,
    about_steps=True,
    empty_means_none=True,
)
TABLES = (STEPS, HOST_STEPS, PAUSES)


def build(results: Results) -> Section:
    """Build the section."""
    breakdown = results["steps"]
    steps = breakdown.steps
    if not len(steps):
        return Section("steps", "Steps", notes=(f"No steps: {steps.explanation}.",))
    # Visible columns are the known categories with a significant share in this profile.
    least_ps, keys = _LEAST_SHARE * max(int(steps.duration_ps.sum()), 1), breakdown.categories
    shown = _ALWAYS_SHOWN | {key for key in keys if int(breakdown.time_ps[key].sum()) >= least_ps}
    levels: dict[str, Level] = {f"{key}_ms": "brief" if key in shown - breakdown.unknown else "data" for key in keys}
    table = STEPS.build(results)
    if table is not None and any(table.data[_FOR_OTHER_HOSTS.key]):
        levels[_FOR_OTHER_HOSTS.key] = "brief"
    notes = (f"Step detection: {steps.explanation} ({steps.confidence} confidence).", *steps.notes, *steps.other_loops)
    if any(flag and counted for flag, counted in zip(steps.flags, breakdown.averaged.tolist(), strict=True)):
        notes += ("Fewer than three steps have no flag, so the averages include flagged steps.",)
    series = {CATEGORY_TITLES[key]: (breakdown.time_ps[key] / PS_PER_MS).tolist() for key in breakdown.categories}
    labels = tuple(str(number) for number in steps.numbers.tolist())
    return Section(
        "steps",
        "Steps",
        charts=(
            StepChart("Step time (ms)", labels, series, steps.flags, steps.kinds_told_apart, steps.headline.tolist()),
        ),
        tables=present(table and replace(table, columns=at_levels(STEPS.columns, levels)), PAUSES.build(results)),
        notes=notes,
    )


SECTION = SectionSpec(
    name="steps",
    title="Steps",
    analyze=analyze,
    combine=combine,
    stats=TASK,
    narrow=lambda result, before, after: after,
    build=build,
    tables=TABLES,
)
