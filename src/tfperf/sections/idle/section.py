"""The section about idle devices: how long they wait, for what, and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tfperf.sections.idle.analysis import Idle
from tfperf.sections.idle.pieces import Cause

from tfperf.report.model import Column, Fact, Finding, Section, Table
from tfperf.reports import idle_columns
from tfperf.units import PS_PER_MS, format_percent

ADVICE_PERCENT = 5.0
"""There is advice about a cause from this share of the step time."""
PROBLEM_PERCENT = 15.0
_SHOWN_CAUSES = 4

_TITLE = "Where the device waits"
_NO_DEVICE = (
    "Only the host recorded anything, so no idle time of a device can be told: nothing to attribute. Where a GPU did "
    "take part, tfperf doctor tells why it is missing."
)
_TEXTS: dict[Cause, str] = {
    "input": "waits for input",
    "compile": "waits while functions are traced or compiled",
    "synchronise": "waits while the program waits for results",
    "copy": "waits while the host hands tensors over",
    "launch": "waits for launches",
    "python": "waits for Python between calls",
    "host_compute": "waits for ops on host threads",
    "unknown": "waits for something that the trace does not show",
}
_ACTIONS: dict[Cause, str] = {
    "input": "make the tf.data pipeline faster: -s tfdata tells which stage to change",
    "compile": (
        "keep shapes and Python arguments of tf.functions constant (input_signature, reduce_retracing=True); profile "
        "after warm-up"
    ),
    "synchronise": "read losses and metrics only every so many steps (.numpy(), float(), print, callbacks)",
    "copy": (
        "hand batches over while the step before still runs (tf.data.experimental.prefetch_to_device, or a distributed "
        "dataset); send smaller types, and fewer, larger tensors"
    ),
    "launch": (
        "give the device more work per launch: larger batches, tf.function(jit_compile=True), or "
        "compile(steps_per_execution=10) in Keras; CUDA graphs where XLA uses them"
    ),
    "python": (
        "put the whole step into one tf.function; do less in callbacks and logging; raise steps_per_execution in "
        "Keras compile()"
    ),
    "host_compute": (
        "move these ops to the device (dtype, tf.device), or into the tf.data pipeline, which works ahead of the step"
    ),
    "unknown": "profile with the host tracer at level 2, which records what the program calls",
}


def idle_section(found: Idle, top: int | None) -> Section:
    """Build the section; `top` is for people: it cuts the list of gaps."""
    if not found.devices:
        return Section("idle", _TITLE, notes=(_NO_DEVICE,))
    tables = [_causes_table(found)]
    if len(found.devices) > 1 or top is None:
        tables.append(_devices_table(found))
    if found.gaps:
        tables.append(_gaps_table(found, for_people=top is not None))
    shown = tuple(table if top is None else table.head(top) for table in tables)
    return Section("idle", _TITLE, idle_findings(found), _facts(found), (), shown, _notes(found))


def brief_idle_section(found: Idle) -> Section:
    """Build what stands in a whole report for people: the causes, and the gravest in words."""
    if not found.devices:
        return Section("idle", _TITLE, notes=(_NO_DEVICE,))
    table = _causes_table(found)
    return Section("idle", _TITLE, idle_findings(found)[:1], _facts(found), (), (table,), ("More: -s idle.",))


def idle_findings(found: Idle) -> tuple[Finding, ...]:
    """Return the causes with a share of the step from `ADVICE_PERCENT` on, the largest first; else that there is none.

    Without a device there is nothing to say.
    """
    if not found.devices:
        return ()
    large = [cause for cause in found.ranked if found.percent(cause) >= ADVICE_PERCENT]
    if large:
        return tuple(_finding(found, cause) for cause in large)
    whole = format_percent(found.idle_percent)
    text = f"The device is idle for {whole}% of {_whole(found)}; no cause takes {ADVICE_PERCENT:.0f}% of it."
    return (Finding("idle_none", "info", text),)


def _finding(found: Idle, cause: Cause) -> Finding:
    share = found.percent(cause)
    average = ", averaged over devices" if len(found.averaged) > 1 else ""
    text = (
        f"The device {_TEXTS[cause]}: {format_percent(share)}% of {_whole(found)}{average} (advice from "
        f"{ADVICE_PERCENT:.0f}%)."
    )
    # One gap alone may be the begin or the end of the capture, which no change of the program shortens.
    is_grave = share >= PROBLEM_PERCENT and not found.without_steps and cause != "unknown"
    return Finding(f"idle_{cause}", "problem" if is_grave else "hint", text, _ACTIONS[cause])


def _whole(found: Idle) -> str:
    return "the capture" if found.without_steps else "the step time"


def _facts(found: Idle) -> tuple[Fact, ...]:
    longest = max((gap.length_ps for gap in found.gaps), default=0)
    average = ", average over devices" if len(found.averaged) > 1 else ""
    facts = [Fact("idle_percent", "Device idle", found.idle_percent, "%", f"of {_whole(found)}{average}")]
    facts.append(Fact("gap_count", "Gaps", found.gap_count, "count", "in all steps" if not found.without_steps else ""))
    if longest:
        facts.append(Fact("longest_gap", "Longest gap", longest / PS_PER_MS, "ms"))
    return tuple(facts)


# --- tables ---


def _table(
    name: str, title: str, declared: tuple[Column, ...], data: Mapping[str, Sequence[Any]], note: str = ""
) -> Table:
    rows = len(data[declared[0].key])
    return Table(name, title, declared, {column.key: data[column.key] for column in declared}, rows, note)


def _causes_table(found: Idle) -> Table:
    data: dict[str, Sequence[Any]] = dict(found.columns())
    data["meaning"] = [idle_columns.CAUSE_MEANINGS[cause] for cause in found.ranked]
    data["cause"] = [idle_columns.CAUSE_TITLES[cause] for cause in found.ranked]
    columns = idle_columns.causes(has_steps=not found.without_steps)
    table = _table("idle_causes", "What the host does while the device is idle", columns, data)
    return replace(table, bar_key="idle_percent")


def _devices_table(found: Idle) -> Table:
    several = found.hosts > 1
    columns = idle_columns.devices(found.ranked[:_SHOWN_CAUSES], several_hosts=several)
    note = f"Shares are of {_whole(found)}. All causes are in JSON and CSV."
    return _table("idle_devices", "Idle time of each device", columns, found.device_columns(), note)


def _gaps_table(found: Idle, *, for_people: bool) -> Table:
    data: dict[str, Sequence[Any]] = dict(found.gap_columns())
    titles = idle_columns.CAUSE_TITLES
    data["cause"] = [titles[gap.cause] for gap in found.gaps]
    if for_people:
        data |= {"thread": [_thread(gap.thread) for gap in found.gaps], "event": [gap.event or None for gap in
                 found.gaps]}  # fmt: skip
    columns = idle_columns.gaps(
        several_hosts=found.hosts > 1, several_devices=len(found.devices) > 1, has_steps=not found.without_steps
    )
    listed = len(found.gaps)
    left = f"{found.gap_count - listed:,} shorter gaps are not listed, here and in JSON and CSV." if (
        found.gap_count > listed
    ) else ""  # fmt: skip
    return _table("idle_gaps", "Longest gaps", columns, data, left)


def _thread(name: str) -> str | None:
    """Return the name of a thread without the number that makes it unique."""
    return name.partition("/")[0] or None


# --- notes ---


def _notes(found: Idle) -> tuple[str, ...]:
    notes = []
    if found.without_steps:
        notes.append(
            f"No steps ({found.without_steps}), so shares are of the whole capture, with its begin and its end."
        )
    else:
        notes.append("Idle is the step less all time in which any stream of the device computes or copies.")
        notes += _left_out(found)
    if len(found.averaged) > 1:
        notes.append(f"Shares are averages over devices, each of its idle time / {_whole(found)} of its host.")
    unused = [own.device for own in found.devices if not own.is_used]
    if unused and len(unused) < len(found.devices):
        notes.append(
            f"{len(unused)} of {len(found.devices)} devices did nothing in the averaged steps, so they are left out of "
            f"averages: {', '.join(unused[:3])}."
        )
    if found.hosts_without_device:
        named = ", ".join(found.hosts_without_device[:3])
        notes.append(f"{len(found.hosts_without_device)} of {found.hosts} hosts recorded no device: {named}.")
    if found.no_main_thread and "unknown" in found.ranked:
        notes.append("No call of the program is recorded, so time in Python is among the unknown.")
    return tuple(notes)


def _left_out(found: Idle) -> list[str]:
    flagged = max(int((~own.counted).sum()) for own in found.devices)
    if not flagged:
        return []
    return [f"{flagged} steps with a flag, or of another kind, are left out of shares; the list of gaps has them too."]
