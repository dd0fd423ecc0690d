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
    Column("cause", "While the device is idle", "", "what the host was doing"),
    Column("total_ms", "Total", "ms", "time in all averaged steps, summed over devices", compact=False),
    Column("per_step_ms", "Per step", "ms", "time in an average step of a device"),
    Column("step_percent", "Of step", "%", "share of the step time, average over devices"),
    Column("idle_percent", "Of idle", "%", "share of the idle time"),
    Column("gaps", "Gaps", "count", "gaps with time of this cause"),
    Column("meaning", "Meaning", "", "what the cause stands for"),
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
    Column("host", "Host", "", "name of the trace file", compact=False),
    Column("device", "Device", "", "name of the device"),
    Column("steps", "Steps", "count", "averaged steps", compact=False),
    Column("step_ms", "Step", "ms", "average step time"),
    Column("idle_ms", "Idle", "ms", "idle time in an average step"),
    Column("idle_percent", "Idle", "%", "share of the step time"),
    Column("gaps", "Gaps", "count", "gaps in averaged steps", compact=False),
    *(Column(f"{cause}_percent", short, "%", f"share of the step time: {CAUSE_MEANINGS[cause]}")
      for cause, short in _SHORT.items()),
)  # fmt: skip

GAPS = (
    Column("host", "Host", "", "name of the trace file", compact=False),
    Column("device", "Device", "", "name of the device", compact=False),
    Column("step", "Step", "", "number of the step"),
    Column("flag", "Flag", "", "why the step is left out of averages", compact=False),
    Column("start_ms", "Begin", "ms", "begin on the clock of the trace"),
    Column("length_ms", "Length", "ms", "length, cut at the edges of the step"),
    Column("cause", "Mostly", "", "cause of the largest part of the gap"),
    Column("cause_percent", "Share", "%", "share of the gap with that cause", compact=False),
    Column("thread", "Thread", "", "host thread that was at work for that cause the longest"),
    Column("event", "Event", "", "event of that thread"),
    Column("launched_before_ms", "Launched", "ms", "from the call that launched the next work to that work",
           compact=False),
    Column("before", "After", "", "work of the device before the gap", compact=False),
    Column("after", "Before", "", "work of the device after the gap", compact=False),
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
