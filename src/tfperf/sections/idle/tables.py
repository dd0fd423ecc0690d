"""The tables of the section about idle devices, and the causes of idle time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from msgspec import Struct

from tfperf.analysis.registry import TableSpec, fields
from tfperf.report.model import Column, Data, Ranked

if TYPE_CHECKING:
    from tfperf.analysis.results import Results

Cause = Literal["input", "compile", "synchronise", "copy", "launch", "python", "host_compute", "unknown"]
CAUSES: tuple[Cause, ...] = get_args(Cause)
"""In the order in which they are shown where they are equal."""


class CauseTexts(Struct, frozen=True):
    """A cause of idle time in words: in the table of causes, as a column, and what it stands for."""

    title: str
    short_title: str
    meaning: str


CAUSE_TEXTS: dict[Cause, CauseTexts] = {
    "input": CauseTexts("Waiting for input", "Input", "the step waits for tf.data"),
    "compile": CauseTexts("Tracing, compiling", "Compile", "tracing or compiling functions"),
    "synchronise": CauseTexts("Synchronising", "Sync", "the program waits for a result"),
    "copy": CauseTexts("Copying", "Copy", "copying tensors to the device"),
    "launch": CauseTexts("Launching", "Launch", "preparing and launching work"),
    "python": CauseTexts("Python between calls", "Python", "the program is in no call"),
    "host_compute": CauseTexts("Other host compute", "Compute", "ops on host threads"),
    "unknown": CauseTexts("Unknown", "Unknown", "not shown by the trace"),
}

Use = Literal["works", "copies", "outside", "no kernel", "silent"]
USE_TEXTS: dict[Use, str] = {
    "works": "works",
    "copies": "only copies",
    "outside": "works outside of the steps",
    "no kernel": "nothing but copies outside of the steps",
    "silent": "no work recorded",
}
"""What a device did in the averaged steps, in words."""


def _causes(results: Results) -> Data | None:
    idle = results["idle"]
    if not idle.devices:
        return None
    return {
        **idle.columns(),
        "cause": [CAUSE_TEXTS[cause].title for cause in idle.ranked],
        "meaning": [CAUSE_TEXTS[cause].meaning for cause in idle.ranked],
    }


def _devices(results: Results) -> Data | None:
    idle = results["idle"]
    return idle.device_columns() if idle.devices else None


def _uses(results: Results) -> Data | None:
    idle = results["idle"]
    if not idle.devices:
        return None
    return {**fields(_USE_COLUMNS, idle.uses), "use": [USE_TEXTS[device.use] for device in idle.uses]}


def _gaps(results: Results) -> Data | None:
    idle = results["idle"]
    if not idle.gaps:
        return None
    return {**idle.gap_columns(), "cause": [CAUSE_TEXTS[gap.cause].title for gap in idle.gaps]}


_USE_COLUMNS = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column("device", "Device", str, "", "name of the device"),
    Column("use", "Use", str, "", "what the device did in the averaged steps, and outside of them"),
    Column("busy_percent", "Busy", float, "%", "share of the averaged steps in which it computes or copies"),
    Column("compute_percent", "Compute", float, "%", "share of the averaged steps in which kernels run on it"),
)
IDLE_CAUSES = TableSpec(
    name="idle_causes",
    title="What the host does while the device is idle",
    row="what the host does while a device is idle",
    details=(
        "What the host did while devices were idle: one row per cause, averaged over the devices that work in the "
        "steps. [Where the device waits](idle.md) explains the causes."
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
    ranked=Ranked("step_percent"),
    about_steps=True,
)
IDLE_DEVICES = TableSpec(
    name="idle_devices",
    title="Idle time of each device",
    row="idle time of each device, by cause",
    details="The same for each device that recorded work.",
    columns=(
        Column("host", "Host", str, "", "name of the trace file"),
        Column("device", "Device", str, "", "name of the device"),
        Column("steps", "Steps", int, "count", "averaged steps", level="data"),
        Column("step_ms", "Step", float, "ms", "average step time"),
        Column("idle_ms", "Idle", float, "ms", "idle time in an average step"),
        Column("idle_percent", "Idle", float, "%", "share of the step time"),
        Column("gaps", "Gaps", int, "count", "gaps in averaged steps", level="data", over_steps=True),
        *(
            Column(f"{cause}_percent", texts.short_title, float, "%", f"share of the step time: {texts.meaning}")
            for cause, texts in CAUSE_TEXTS.items()
        ),
    ),
    data=_devices,
    name_key="device",
    ranked=Ranked("idle_percent", each="devices"),
    about_steps=True,
)
DEVICE_USE = TableSpec(
    name="device_use",
    title="What each device does",
    row="what each listed device does in the steps",
    details=(
        "One row per device that the trace lists, also those that do nothing. A device without recorded work is "
        "unused, or was not traced: its shares are unknown."
    ),
    columns=_USE_COLUMNS,
    data=_uses,
    name_key="device",
    ranked=Ranked("busy_percent", each="devices", least_is_worst=True),
    about_steps=True,
)
IDLE_GAPS = TableSpec(
    name="idle_gaps",
    title="Longest gaps",
    row="the longest gaps of devices",
    details="The longest gaps of the devices that work in the steps, at most 1000.",
    columns=(
        Column("host", "Host", str, "", "name of the trace file"),
        Column("device", "Device", str, "", "name of the device"),
        Column("step", "Step", int, "", "number of the step"),
        Column("flag", "Flag", str, "", "why the step is omitted from averages", level="data"),
        Column("start_ms", "Start", float, "ms", "start on the clock of the trace"),
        Column("duration_ms", "Duration", float, "ms", "duration, cut at the edges of the step"),
        Column("cause", "Mostly", str, "", "cause of the largest part of the gap"),
        Column("cause_percent", "Share", float, "%", "share of the gap with that cause", level="data"),
        Column("thread_name", "Thread", str, "", "host thread that was at work for that cause the longest"),
        Column("thread", "Full thread", str, "", "its name with the number that makes it unique", level="data"),
        Column("event", "Event", str, "", "event of that thread"),
        Column("launched_before_ms", "Launched", float, "ms", "from the launch of the next work to its start", "data"),
        Column("before", "Work before", str, "", "work of the device before the gap", level="data"),
        Column("after", "Work after", str, "", "work of the device after the gap", level="data"),
    ),
    data=_gaps,
    name_key="cause",
    ranked=Ranked("duration_ms"),
)
TABLES = (IDLE_CAUSES, IDLE_DEVICES, DEVICE_USE, IDLE_GAPS)
