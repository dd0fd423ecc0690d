"""Idle: device idle time by host activity, and the longest gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfperf.analysis.registry import SectionSpec, TableSpec, fields, present
from tfperf.base.units import PS_PER_MS, listed
from tfperf.report.model import (
    Column,
    Data,
    Fact,
    Finding,
    Level,
    Quantity,
    Ranked,
    Section,
    Severity,
    Table,
    at_levels,
)
from tfperf.sections.idle.analysis import CAUSE_TEXTS, CAUSES, Cause, Use
from tfperf.trace.device.device_work import device_label

if TYPE_CHECKING:
    from tfperf.analysis.registry import Results
    from tfperf.sections.idle.analysis import Idle

NAMED_PERCENT = 5.0
"""Threshold for a finding about a cause, in percent of step time."""
PROBLEM_PERCENT = 15.0
_TEXTS: dict[Cause, str] = {
    "input": "the step waits for input",
    "compile": "functions are traced or compiled",
    "synchronise": "the program waits for results",
    "copy": "the host issues copies to it (not counting the copies themselves)",
    "launch": "the host launches work",
    "python": "Python runs between framework calls",
    "host_compute": "ops run on host threads",
    "unknown": "no host event explains it (host tracer level 2 records calls of the program)",
}
_CAUSES: dict[Cause, tuple[str, ...]] = {
    "input": ("input_wait", "input_contention"),
    "compile": ("compilation", "warm_up"),
    "synchronise": ("device_sync", "waiting_for_results", "output_copy"),
    "copy": ("input_copy",),
    "launch": ("launch_bound", "small_work_per_step", "eager_ops", "run_eagerly"),
    "python": ("python_between_steps", "small_work_per_step"),
    "host_compute": ("host_ops", "small_work_per_step", "eager_ops", "run_eagerly"),
    "unknown": ("waiting_in_calls",),
}


def idle_findings(idle: Idle) -> tuple[Finding, ...]:
    """Return the causes with at least `NAMED_PERCENT`, largest first, or that there are none; empty if no device."""
    if not idle.devices:
        return ()
    large = [cause for cause in idle.ranked if idle.percents[cause] >= NAMED_PERCENT]
    if large:
        return tuple(_finding(idle, cause) for cause in large)
    share = idle_share(idle)
    text = (
        f"{_subject(idle)} is idle for {share} of {whole_of(idle)}{averaged_over(idle)}; each cause takes less than "
        f"{NAMED_PERCENT:.0f}% of it."
    )
    return (Finding("idle_none", "info", text[0].upper() + text[1:], quantities=(share,)),)


def idle_share(idle: Idle, cause: Cause | None = None) -> Quantity:
    """Return the share of the step in which devices are idle, in total or for one cause."""
    if cause is None:
        return Quantity("idle", idle.idle_percent, of=whole_of(idle))
    return Quantity(f"idle: {cause}", 100.0 * idle.percents[cause] / (idle.idle_percent or 1.0), of="idle time")


def _finding(idle: Idle, cause: Cause) -> Finding:
    """Return a cause by its share of the idle time: the diagnosis states what it costs the step, by its own rules."""
    whole, share = idle_share(idle), idle_share(idle, cause)
    text = f"{share} of the idle time of {_subject(idle)} is while {_TEXTS[cause]}"
    if cause == idle.ranked[0]:
        text = f"{_subject(idle)} is idle for {whole} of {whole_of(idle)}{averaged_over(idle)}; {share} of that while "
        text = f"{text[0].upper()}{text[1:]}{_TEXTS[cause]}"
    # A single gap may be the start or the end of the capture, which no change of the program shortens.
    is_grave = idle.percents[cause] >= PROBLEM_PERCENT and not idle.without_steps and cause != "unknown"
    severity: Severity = "problem" if is_grave else "hint"
    return Finding(f"idle_{cause}", severity, f"{text}.", causes=_CAUSES[cause], quantities=(whole, share))


def _subject(idle: Idle) -> str:
    """Return the device that a sentence is about, by name if it is the only one of several in the averages."""
    if len(idle.listed) == 1 or len(idle.averaged) > 1:
        return "the device"
    (device,) = idle.averaged
    return f"{label_of(idle, device.host, device.device)} (1 of {len(idle.listed)} devices)"


_DISTINCTIONS: dict[Use, str] = {
    "works": "with kernels in the steps",
    "copies": "with activity in the steps",
    "outside": "with recorded work",
    "no kernel": "with recorded work",
}


def only_device(idle: Idle) -> str:
    """Return the name of the device if averages cover only one of several, and the reason."""
    (device,) = idle.averaged
    distinction = "with recorded work" if idle.without_steps else _DISTINCTIONS[device.use]
    return f"{label_of(idle, device.host, device.device)}, the only one of {len(idle.listed)} devices {distinction}"


def averaged_over(idle: Idle) -> str:
    """Return the number of devices that a share is averaged over, as text; empty for one."""
    listed, averaged = len(idle.listed), len(idle.averaged)
    if averaged == 1:
        return ""
    return f", average over {averaged} {f'of {listed} ' if averaged < listed else ''}devices"


def label_of(idle: Idle, host: str, device: str) -> str:
    """Return the short name of a device, with its host if there are several."""
    has_several_hosts = len({name for name, _ in idle.listed}) > 1
    return f"{host} {device_label(device)}" if has_several_hosts else device_label(device)


def whole_of(idle: Idle) -> str:
    """Return the `of` of idle shares."""
    return "the capture" if idle.without_steps else "the step time"


_TITLE = "Device idle time"
_NO_WORK = (
    "The devices in this profile recorded no work with a duration, so idle time is unknown. Run tfperf doctor to "
    "find out why."
)
_SHOWN_CAUSES = 4


def build(results: Results) -> Section:
    """Build the section; a full report has the causes, and the largest as sentences."""
    idle = results["idle"]
    if not idle.devices:
        return Section("idle", _TITLE, notes=(_NO_WORK,))
    first, *others = idle_findings(idle)
    return Section(
        "idle",
        _TITLE,
        findings=(first, *(replace(finding, level="full") for finding in others)),
        facts=_facts(idle),
        tables=_tables(results),
        detail_notes=_notes(results),
        pointer="More: -s idle.",
    )


def _facts(idle: Idle) -> tuple[Fact, ...]:
    """Return the facts; all but the last cover the same devices: those that work."""
    is_one_of_several = len(idle.averaged) == 1 < len(idle.listed)
    which = f" of {only_device(idle)}" if is_one_of_several else averaged_over(idle)
    share = idle_share(idle)
    facts = [
        Fact("idle_percent", "Device idle", share.value, "%", f"of {whole_of(idle)}{which}", quantities=(share,)),
        Fact("gap_count", "Gaps", idle.gap_count, "count", "" if idle.without_steps else "in all steps"),
    ]
    for gap in idle.gaps[:1]:
        where = f"of {label_of(idle, gap.host, gap.device)}" if len(idle.listed) > 1 else ""
        facts.append(Fact("longest_gap", "Longest gap", gap.duration_ps / PS_PER_MS, "ms", where))
    nothing = len(idle.idle_devices)
    if nothing and len(idle.listed) > 1:
        reasons: dict[Use, str] = {
            "silent": "no recorded work: unused or not traced",
            "no kernel": "no recorded kernels",
        }
        texts = [f"{listed(labels)} ({reason})" for use, reason in reasons.items() if (labels := _labels(idle, use))]
        note = f"of {len(idle.listed)}: {'; '.join(texts)}"
        facts.append(Fact("idle_devices", "Devices without recorded kernels", nothing, "count", note))
    return tuple(facts)


def _labels(idle: Idle, use: Use) -> list[str]:
    return [label_of(idle, device.host, device.device) for device in idle.uses if device.use == use]


def _tables(results: Results) -> tuple[Table, ...]:
    idle = results["idle"]
    titles = {"per_step_ms": "Time", "step_percent": "Of capture"} if idle.without_steps else {}
    cause_columns = (replace(column, title=titles.get(column.key, column.title)) for column in IDLE_CAUSES.columns)
    several_devices, shown = len(idle.averaged) > 1, idle.ranked[:_SHOWN_CAUSES]
    device_levels: dict[str, Level] = {f"{cause}_percent": "brief" if cause in shown else "data" for cause in CAUSES}
    host_level: Level = "brief" if results.has_several_hosts else "data"
    gap_levels: dict[str, Level] = {
        "host": host_level,
        "device": "brief" if several_devices else "data",
        "thread_name": "data" if results.has_several_hosts or several_devices else "brief",
        "step": "data" if idle.without_steps else "brief",
    }
    unlisted = idle.gap_count - len(idle.gaps)
    of_devices = IDLE_DEVICES.build(
        results,
        columns=at_levels(IDLE_DEVICES.columns, {**device_levels, "host": host_level}),
        level="full" if several_devices else "data",
        note=f"Shares are of {whole_of(idle)}. All causes are in JSON and CSV.",
    )
    averaged = {id(device) for device in idle.averaged}
    rows = tuple(row for row, device in enumerate(idle.devices) if id(device) in averaged)
    return present(
        IDLE_CAUSES.build(results, columns=tuple(cause_columns), bar_key="idle_percent"),
        of_devices and replace(of_devices, rows_for_people=rows),
        DEVICE_USE.build(
            results,
            columns=at_levels(DEVICE_USE.columns, {"host": host_level}),
            level="full" if len(idle.averaged) < len(idle.listed) else "data",
        ),
        IDLE_GAPS.build(
            results,
            columns=at_levels(IDLE_GAPS.columns, gap_levels),
            level="full",
            note=f"Shorter gaps, not listed here or in JSON and CSV: {unlisted:,}." if unlisted else "",
        ),
    )


def _notes(results: Results) -> tuple[str, ...]:
    idle = results["idle"]
    notes = []
    if idle.without_steps:
        notes.append(
            f"No steps ({idle.without_steps}), so shares are of the whole capture, including its start and end."
        )
    else:
        busy = "no stream of the device computes or copies"
        if results["steps"].on_tpu:
            busy = "the core runs no op (ops that wait for copies count as running)"
        notes.append(f"Idle time is the part of the step in which {busy}.")
        omitted, steps = max((int((~device.counted).sum()), len(device.counted)) for device in idle.devices)
        if omitted:
            notes.append(
                f"Shares exclude flagged steps and steps of other kinds ({omitted} of {steps}); the gap list includes "
                "them."
            )
    if len(idle.averaged) > 1:
        notes.append(f"Shares are means over devices: idle time of the device / {whole_of(idle)} of its host.")
    if any(device.use == "works" for device in idle.uses):
        reasons: dict[Use, str] = {
            "copies": "only copy in the averaged steps",
            "outside": "run kernels only outside of the averaged steps",
        }
        for use, reason in reasons.items():
            if labels := _labels(idle, use):
                notes.append(f"Shares and gaps exclude devices that {reason}: {listed(labels)}.")
    without_device = [host.host for host in results.hosts if not host["idle"].devices]
    if without_device:
        recorded_none = f"{len(without_device)} of {len(results.hosts)} hosts recorded no devices"
        notes.append(f"{recorded_none}: {listed(without_device)}.")
    if idle.no_main_thread and "unknown" in idle.ranked:
        notes.append("The profile has no calls of the program, so time in Python counts as unknown.")
    return tuple(notes)


USE_TEXTS: dict[Use, str] = {
    "works": "works",
    "copies": "only copies",
    "outside": "works outside of the steps",
    "no kernel": "nothing but copies outside of the steps",
    "silent": "no work recorded",
}


def _causes(results: Results) -> Data | None:
    idle = results["idle"]
    if not idle.devices:
        return None
    return {
        **idle.columns(),
        "cause": [CAUSE_TEXTS[cause].title for cause in idle.ranked],
        "meaning": [CAUSE_TEXTS[cause].meaning for cause in idle.ranked],
    }


_USE_COLUMNS = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column("device", "Device", str, "", "name of the device"),
    Column("use", "Use", str, "", "activity of the device in the averaged steps, and outside of them"),
    Column("busy_percent", "Busy", float, "%", "share of the averaged steps in which it computes, exchanges or copies"),
    Column(
        "compute_percent", "Compute", float, "%", "share of the averaged steps in which kernels run, except collectives"
    ),
)
IDLE_CAUSES = TableSpec(
    name="idle_causes",
    title="Host activity while the device is idle",
    row="host activity while a device is idle",
    details=(
        "Host activity while devices are idle: one row per cause, averaged over the devices that work in the "
        "steps. [Device idle time](idle.md) explains the causes."
    ),
    columns=(
        Column("cause", "Host activity", str, "", "host activity"),
        Column("total_ms", "Total", float, "ms", "time in all averaged steps, summed over devices", level="data"),
        Column("per_step_ms", "Per step", float, "ms", "mean time per step and device"),
        Column("step_percent", "Of step", float, "%", "share of the step time, mean over devices", level="data"),
        Column("idle_percent", "Of idle", float, "%", "share of the idle time"),
        Column("gaps", "Gaps", int, "count", "gaps with time of this cause", over_steps=True),
        Column("meaning", "Meaning", str, "", "meaning of the cause"),
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
    details="The same causes, per device with recorded work.",
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
        Column(
            "waited_percent",
            "After waits",
            float,
            "%",
            "share of the step time after CUDA or HIP calls that wait for the device; part of the other shares",
            level="data",
        ),
    ),
    data=lambda results: results["idle"].device_columns() if results["idle"].devices else None,
    name_key="device",
    ranked=Ranked("idle_percent", each="devices"),
    about_steps=True,
)
DEVICE_USE = TableSpec(
    name="device_use",
    title="Use of each device",
    row="activity of each listed device in the steps",
    details=(
        "One row per device that the profile lists, including unused devices. A device without recorded work is "
        "unused or was not traced; its shares are unknown."
    ),
    columns=_USE_COLUMNS,
    data=lambda results: (
        {
            **fields(_USE_COLUMNS, results["idle"].uses),
            "device": [device.label for device in results["idle"].uses],
            "use": [USE_TEXTS[device.use] for device in results["idle"].uses],
        }
        if results["idle"].devices
        else None
    ),
    name_key="device",
    ranked=Ranked("busy_percent", each="devices", least_is_worst=True),
    about_steps=True,
)
IDLE_GAPS = TableSpec(
    name="idle_gaps",
    title="Longest gaps",
    row="the longest gaps of devices",
    details="The longest gaps (at most 1000) of the devices that work in the steps.",
    columns=(
        Column("host", "Host", str, "", "name of the trace file"),
        Column("device", "Device", str, "", "name of the device"),
        Column("step", "Step", int, "", "number of the step"),
        Column("flag", "Flag", str, "", "why the step is excluded from the averages", level="data"),
        Column("start_ms", "Start", float, "ms", "start on the clock of the trace"),
        Column("duration_ms", "Duration", float, "ms", "duration, cut at step boundaries"),
        Column("cause", "Mostly", str, "", "cause of the largest part of the gap"),
        Column("cause_percent", "Share", float, "%", "share of the gap with that cause", level="data"),
        Column("thread_name", "Thread", str, "", "host thread with the most time for that cause"),
        Column("thread", "Full thread", str, "", "name of the thread with its unique number", level="data"),
        Column("event", "Event", str, "", "event of that thread"),
        Column("launched_before_ms", "Launched", float, "ms", "from the launch of the next work to its start", "data"),
        Column("before", "Work before", str, "", "work of the device before the gap", level="data"),
        Column("after", "Work after", str, "", "work of the device after the gap", level="data"),
    ),
    data=lambda results: (
        {**results["idle"].gap_columns(), "cause": [CAUSE_TEXTS[gap.cause].title for gap in results["idle"].gaps]}
        if results["idle"].gaps
        else None
    ),
    name_key="cause",
    ranked=Ranked("duration_ms"),
)
TABLES = (IDLE_CAUSES, IDLE_DEVICES, DEVICE_USE, IDLE_GAPS)


SECTION = SectionSpec(
    name="idle",
    title="Device idle time",
    rests_on=("steps", "overview"),
    analyze="tfperf.sections.idle.analysis:analyze",
    combine="tfperf.sections.idle.analysis:combine",
    combines_in_tree=True,
    narrow="tfperf.sections.idle.analysis:narrow",
    build="tfperf.sections.idle:build",
    tables=TABLES,
    without_device=(
        "The profile has only host events, so there is no device idle time. If the job uses a GPU, run tfperf "
        "doctor to find out why it is missing."
    ),
)
