"""The section of steps: a chart and tables of them, and the nine categories of their time."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from tfperf.report.model import Column, Data, Level, Section, StepChart, at_levels
from tfperf.sections.registry import TableSpec, present
from tfperf.sections.results import Results
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    from tfperf.sections.steps.breakdown import Breakdown

CATEGORY_MEANINGS = {
    "compilation": "tracing or compiling functions",
    "output": "copies from device to host",
    "input": "waiting for tf.data, copying in",
    "kernel_launch": "preparing and launching kernels",
    "host_compute": "ops or runtime on host threads",
    "device_collectives": "all-reduce and the like",
    "device_to_device": "copies between or inside devices",
    "device_compute": "kernels on the device",
    "all_others": "none of these: Python, I/O, idle",
}
"""The nine categories, in the order in which they are shown, and what counts in each."""
TPU_MEANINGS = {
    "output": "outfeed, waiting for copies to the host",
    "input": "infeed, or waiting for the host",
    "host_to_device": "waiting for copies from host memory",
    "device_collectives": "all-reduce and the like, barriers",
    "device_to_device": "waiting for copies on the chip, other chips",
    "device_compute": "other ops on the cores",
    "all_others": "none of these: cores run no op",
}
"""The same for the steps of a TPU, where they differ."""
CATEGORIES = tuple(CATEGORY_MEANINGS)
WITH_COPIES = (*CATEGORIES[:3], "host_to_device", *CATEGORIES[3:])
"""The categories of steps whose copies to the device are no input, so that they are a category of their own."""
CATEGORY_TITLES = {key: key.replace("_", " ").capitalize() for key in WITH_COPIES}
DEVICE_CATEGORIES = ("output", "kernel_launch", "device_collectives", "device_to_device", "device_compute")
"""Categories that are unknown where no device recorded anything."""
HOST_CATEGORIES = ("compilation", "kernel_launch", "host_compute")
"""Categories that only events of host threads show."""
_ALWAYS_SHOWN = frozenset({"input", "host_compute", "device_compute", "all_others"})
_LEAST_SHARE = 0.01
"""People see the column of a category that takes this share of the time of all steps."""

_COPIED = "part of input: batches copied to the device"
_STEP_COLUMNS = (
    Column("step", "Step", int, "", "step number: the program's own where it counted, else from 0"),
    Column("step_name", "Name", str, "", "what the step is called", level="data"),
    Column("kind", "Kind", str, "", "train, eval, or step where nothing tells"),
    Column("flag", "Flag", str, "", "why the step is omitted from averages"),
    Column("averaged", "Averaged", bool, "", "whether the step counts in averages", level="data"),
    Column("batches", "Batches", int, "count", "tf.data elements in the step", level="data"),
    Column("start_ms", "Start", float, "ms", "start on the clock of the trace", level="data"),
    Column("step_time_ms", "Step time", float, "ms", "from the start of the step to the start of the next"),
    *(
        Column(f"{key}_ms", title, float, "ms", CATEGORY_MEANINGS[key], "brief" if key in _ALWAYS_SHOWN else "data")
        for key, title in CATEGORY_TITLES.items()
        if key in CATEGORIES
    ),
    Column("input_wait_ms", "Input wait", float, "ms", "part of input: waiting for tf.data", level="data"),
    Column("host_to_device_ms", "Host to device", float, "ms", _COPIED, level="data"),
)
_FOR_OTHER_HOSTS = Column(
    "waiting_for_hosts_ms",
    "For other hosts",
    float,
    "ms",
    "part of device collectives and host compute: waiting in collectives for the last host",
    level="data",
)


def _steps(results: Results) -> Data | None:
    breakdown = results["steps"]
    if not len(breakdown.steps):
        return None
    return {**breakdown.columns(), _FOR_OTHER_HOSTS.key: _waiting_for_hosts(results, breakdown)}


def _waiting_for_hosts(results: Results, breakdown: Breakdown) -> list[float | None]:
    """Return how long hosts wait for others in each step, on average; None where that is unknown."""
    late = results["hosts"].late if "hosts" in results.sections and breakdown.attribution == "corrected" else None
    if late is None:
        return [None] * len(breakdown.steps)
    return [None if ps < 0 else ps / PS_PER_MS for ps in late.mean_waited_ps(breakdown.steps.numbers).tolist()]


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
    row="steps, averaged over hosts, and where their time goes",
    details=(
        "One row per step. The nine categories, from `compilation_ms` to `all_others_ms`, add up to "
        "`step_time_ms`, and `input_ms` is `input_wait_ms` plus `host_to_device_ms`. With several hosts, each "
        "number is the average over hosts; `waiting_for_hosts_ms` is the part of `device_collectives_ms` and "
        "`host_compute_ms` in which hosts wait in collectives for the last one.\n\n"
        "In the steps of a TPU, `host_to_device_ms` can be waiting for arrays that the program itself keeps in the "
        "memory of the host. It is not a part of `input_ms` then, but a tenth category.\n\n"
        "A category that the profile cannot show is empty: input where neither a fetch nor a copy to a device is "
        "visible, and those of the host in the steps of a TPU, or where no host thread recorded anything. In this file "
        "only, those of a device are 0 in a job without one, so that rows add up; `categories.csv` leaves them empty."
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
    row="steps of each host on its own, with exact start and end",
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
        "Only if there is time between steps that belongs to none: a checkpoint, the end of an epoch, a "
        "change from train to eval."
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


def _levels(breakdown: Breakdown) -> dict[str, Level]:
    """Return who sees the columns of categories: people those that count in this profile, and none that is unknown."""
    total_ps = max(int(breakdown.steps.duration_ps.sum()), 1)
    keys = breakdown.categories
    counts = {key for key in keys if int(breakdown.time_ps[key].sum()) >= _LEAST_SHARE * total_ps}
    return {f"{key}_ms": "brief" if key in (counts | _ALWAYS_SHOWN) - breakdown.unknown else "data" for key in keys}


def build(results: Results) -> Section:
    """Build the section."""
    breakdown: Breakdown = results["steps"]
    steps = breakdown.steps
    if not len(steps):
        return Section("steps", "Steps", notes=(f"No steps: {steps.explanation}.",))
    table = STEPS.build(results)
    levels = _levels(breakdown)
    if table is not None and any(table.data[_FOR_OTHER_HOSTS.key]):
        levels[_FOR_OTHER_HOSTS.key] = "brief"
    columns = at_levels(STEPS.columns, levels)
    notes = (f"Steps: {steps.explanation} (confidence {steps.confidence}).", *steps.notes, *steps.other_loops)
    if any(flag and counted for flag, counted in zip(steps.flags, breakdown.averaged.tolist(), strict=True)):
        notes += ("Fewer than three steps are without a flag, so flagged ones count in the averages too.",)
    series = {CATEGORY_TITLES[key]: (breakdown.time_ps[key] / PS_PER_MS).tolist() for key in breakdown.categories}
    labels = tuple(str(number) for number in steps.numbers.tolist())
    return Section(
        "steps",
        "Steps",
        charts=(StepChart("Step time (ms)", labels, series, steps.flags, steps.kinds_told_apart),),
        tables=present(STEPS.build(results, columns=columns), PAUSES.build(results)),
        notes=notes,
    )
