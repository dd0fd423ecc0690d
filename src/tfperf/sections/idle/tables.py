"""The columns of the tables about idle devices."""

from __future__ import annotations

from dataclasses import replace

from tfperf.report.model import Column

CAUSE_TITLES = {
    "input": "Waiting for input",
    "compile": "Tracing, compiling",
    "synchronise": "Synchronising",
    "copy": "Copying",
    "launch": "Launching",
    "python": "Python between calls",
    "host_compute": "Other host compute",
    "unknown": "Unknown",
}
CAUSE_MEANINGS = {
    "input": "the step waits for tf.data",
    "compile": "tracing or compiling functions",
    "synchronise": "the program waits for a result",
    "copy": "handing tensors to the device",
    "launch": "preparing and launching work",
    "python": "the program is in no call",
    "host_compute": "ops on host threads",
    "unknown": "the trace does not tell",
}

CAUSES = (
    Column("cause", "While the device is idle", str, "", "what the host was doing"),
    Column("total_ms", "Total", float, "ms", "time in all averaged steps, summed over devices", level="data"),
    Column("per_step_ms", "Per step", float, "ms", "time in an average step of a device"),
    Column("step_percent", "Of step", float, "%", "share of the step time, average over devices"),
    Column("idle_percent", "Of idle", float, "%", "share of the idle time"),
    Column("gaps", "Gaps", int, "count", "gaps with time of this cause"),
    Column("meaning", "Meaning", str, "", "what the cause stands for"),
)


def causes(*, has_steps: bool) -> tuple[Column, ...]:
    """Return the columns of the table of causes; without steps, all is of the capture."""
    if has_steps:
        return CAUSES
    titles = {"per_step_ms": "Time", "step_percent": "Of capture"}
    return tuple(replace(column, title=titles.get(column.key, column.title)) for column in CAUSES)


_SHORT = {
    "input": "Input", "compile": "Compile", "synchronise": "Sync", "copy": "Copy", "launch": "Launch",
    "python": "Python", "host_compute": "Compute", "unknown": "Unknown",
}  # fmt: skip

DEVICES = (
    Column("host", "Host", str, "", "name of the trace file", level="data"),
    Column("device", "Device", str, "", "name of the device"),
    Column("steps", "Steps", int, "count", "averaged steps", level="data"),
    Column("step_ms", "Step", float, "ms", "average step time"),
    Column("idle_ms", "Idle", float, "ms", "idle time in an average step"),
    Column("idle_percent", "Idle", float, "%", "share of the step time"),
    Column("gaps", "Gaps", int, "count", "gaps in averaged steps", level="data"),
    *(Column(f"{cause}_percent", short, float, "%", f"share of the step time: {CAUSE_MEANINGS[cause]}")
      for cause, short in _SHORT.items()),
)  # fmt: skip

GAPS = (
    Column("host", "Host", str, "", "name of the trace file", level="data"),
    Column("device", "Device", str, "", "name of the device", level="data"),
    Column("step", "Step", int, "", "number of the step"),
    Column("flag", "Flag", str, "", "why the step is left out of averages", level="data"),
    Column("start_ms", "Begin", float, "ms", "begin on the clock of the trace"),
    Column("length_ms", "Length", float, "ms", "length, cut at the edges of the step"),
    Column("cause", "Mostly", str, "", "cause of the largest part of the gap"),
    Column("cause_percent", "Share", float, "%", "share of the gap with that cause", level="data"),
    Column("thread", "Thread", str, "", "host thread that was at work for that cause the longest"),
    Column("event", "Event", str, "", "event of that thread"),
    Column("launched_before_ms", "Launched", float, "ms", "from the call that launched the next work to that work",
           level="data"),
    Column("before", "After", str, "", "work of the device before the gap", level="data"),
    Column("after", "Before", str, "", "work of the device after the gap", level="data"),
)  # fmt: skip


def devices(shown: tuple[str, ...], *, several_hosts: bool) -> tuple[Column, ...]:
    """Return the columns of the table of devices; people see the `shown` causes, and hosts if there are several."""
    causes = {f"{cause}_percent": cause in shown for cause in CAUSE_TITLES}
    seen = {**causes, "host": several_hosts}
    return tuple(replace(column, compact=seen.get(column.key, column.compact)) for column in DEVICES)


def gaps(*, several_hosts: bool, several_devices: bool, has_steps: bool) -> tuple[Column, ...]:
    """Return the columns of the list of gaps; people see the device instead of the thread if there are several."""
    shown = {
        "host": several_hosts, "device": several_devices, "thread": not (several_hosts or several_devices),
        "step": has_steps,
    }  # fmt: skip
    return tuple(replace(column, compact=shown.get(column.key, column.compact)) for column in GAPS)
