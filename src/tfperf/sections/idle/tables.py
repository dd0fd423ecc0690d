"""The tables of the section about idle devices, and the causes of idle time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from tfperf.report.model import Column, Data
from tfperf.sections.spec import TableSpec

if TYPE_CHECKING:
    from tfperf.sections.results import Results

Cause = Literal["input", "compile", "synchronise", "copy", "launch", "python", "host_compute", "unknown"]
CAUSES: tuple[Cause, ...] = get_args(Cause)
"""In the order in which they are shown where they are equal."""
CAUSE_TITLES: dict[Cause, str] = {
    "input": "Waiting for input",
    "compile": "Tracing, compiling",
    "synchronise": "Synchronising",
    "copy": "Copying",
    "launch": "Launching",
    "python": "Python between calls",
    "host_compute": "Other host compute",
    "unknown": "Unknown",
}
CAUSE_MEANINGS: dict[Cause, str] = {
    "input": "the step waits for tf.data",
    "compile": "tracing or compiling functions",
    "synchronise": "the program waits for a result",
    "copy": "handing tensors to the device",
    "launch": "preparing and launching work",
    "python": "the program is in no call",
    "host_compute": "ops on host threads",
    "unknown": "not shown by the trace",
}
_SHORT_TITLES: dict[Cause, str] = {
    "input": "Input",
    "compile": "Compile",
    "synchronise": "Sync",
    "copy": "Copy",
    "launch": "Launch",
    "python": "Python",
    "host_compute": "Compute",
    "unknown": "Unknown",
}


def _causes(results: Results) -> Data | None:
    idle = results["idle"]
    if idle is None or not idle.devices:
        return None
    return {
        **idle.columns(),
        "cause": [CAUSE_TITLES[cause] for cause in idle.ranked],
        "meaning": [CAUSE_MEANINGS[cause] for cause in idle.ranked],
    }


def _devices(results: Results) -> Data | None:
    idle = results["idle"]
    return idle.device_columns() if idle is not None and idle.devices else None


def _gaps(results: Results) -> Data | None:
    idle = results["idle"]
    if idle is None or not idle.gaps:
        return None
    return {**idle.gap_columns(), "cause": [CAUSE_TITLES[gap.cause] for gap in idle.gaps]}


IDLE_CAUSES = TableSpec(
    name="idle_causes",
    title="What the host does while the device is idle",
    row="what the host does while a device is idle",
    details=(
        "What the host did while devices were idle: one row per cause, averaged over devices. [Where the "
        "device waits](idle.md) explains the causes."
    ),
    columns=(
        Column("cause", "While the device is idle", str, "", "what the host was doing"),
        Column("total_ms", "Total", float, "ms", "time in all averaged steps, summed over devices", level="data"),
        Column("per_step_ms", "Per step", float, "ms", "time in an average step of a device"),
        Column("step_percent", "Of step", float, "%", "share of the step time, average over devices"),
        Column("idle_percent", "Of idle", float, "%", "share of the idle time"),
        Column("gaps", "Gaps", int, "count", "gaps with time of this cause", over_steps=True),
        Column("meaning", "Meaning", str, "", "what the cause stands for"),
    ),
    data=_causes,
    name_key="cause",
    about_steps=True,
)
IDLE_DEVICES = TableSpec(
    name="idle_devices",
    title="Idle time of each device",
    row="idle time of each device, by cause",
    details="The same for each device.",
    columns=(
        Column("host", "Host", str, "", "name of the trace file"),
        Column("device", "Device", str, "", "name of the device"),
        Column("steps", "Steps", int, "count", "averaged steps", level="data"),
        Column("step_ms", "Step", float, "ms", "average step time"),
        Column("idle_ms", "Idle", float, "ms", "idle time in an average step"),
        Column("idle_percent", "Idle", float, "%", "share of the step time"),
        Column("gaps", "Gaps", int, "count", "gaps in averaged steps", level="data", over_steps=True),
        *(
            Column(f"{cause}_percent", title, float, "%", f"share of the step time: {CAUSE_MEANINGS[cause]}")
            for cause, title in _SHORT_TITLES.items()
        ),
    ),
    data=_devices,
    name_key="device",
    about_steps=True,
)
IDLE_GAPS = TableSpec(
    name="idle_gaps",
    title="Longest gaps",
    row="the longest gaps of devices",
    details="The longest gaps, at most 1000.",
    columns=(
        Column("host", "Host", str, "", "name of the trace file"),
        Column("device", "Device", str, "", "name of the device"),
        Column("step", "Step", int, "", "number of the step"),
        Column("flag", "Flag", str, "", "why the step is left out of averages", level="data"),
        Column("start_ms", "Start", float, "ms", "start on the clock of the trace"),
        Column("duration_ms", "Duration", float, "ms", "duration, cut at the edges of the step"),
        Column("cause", "Mostly", str, "", "cause of the largest part of the gap"),
        Column("cause_percent", "Share", float, "%", "share of the gap with that cause", level="data"),
        Column("thread_name", "Thread", str, "", "host thread that was at work for that cause the longest"),
        Column("thread", "Full thread", str, "", "its name with the number that makes it unique", level="data"),
        Column("event", "Event", str, "", "event of that thread"),
        Column(
            "launched_before_ms",
            "Launched",
            float,
            "ms",
            "from the call that launched the next work to that work",
            level="data",
        ),
        Column("before", "After", str, "", "work of the device before the gap", level="data"),
        Column("after", "Before", str, "", "work of the device after the gap", level="data"),
    ),
    data=_gaps,
    name_key="cause",
)
TABLES = (IDLE_CAUSES, IDLE_DEVICES, IDLE_GAPS)
