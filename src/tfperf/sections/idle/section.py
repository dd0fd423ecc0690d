"""The section about idle devices: how long they wait, for what, and what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfperf.report.model import Fact, Level, Section, Table, at_levels
from tfperf.sections.idle.advice import idle_advice, whole_of
from tfperf.sections.idle.tables import CAUSES, IDLE_CAUSES, IDLE_DEVICES, IDLE_GAPS
from tfperf.sections.registry import present
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    from tfperf.sections.idle.analysis import Idle
    from tfperf.sections.results import Results

_TITLE = "Where the device waits"
_NO_WORK = (
    "The devices of this trace recorded no work that takes time, so there is no idle time to attribute. tfperf doctor "
    "says what may be wrong."
)
_SHOWN_CAUSES = 4


def build(results: Results) -> Section:
    """Build the section; a whole report has the causes, and the gravest in words."""
    idle: Idle = results["idle"]
    if not idle.devices:
        return Section("idle", _TITLE, notes=(_NO_WORK,))
    first, *others = idle_advice(idle)
    average = ", average over devices" if len(idle.averaged) > 1 else ""
    facts = (
        Fact("idle_percent", "Device idle", idle.idle_percent, "%", f"of {whole_of(idle)}{average}"),
        Fact("gap_count", "Gaps", idle.gap_count, "count", "" if idle.without_steps else "in all steps"),
        *(Fact("longest_gap", "Longest gap", gap.duration_ps / PS_PER_MS, "ms") for gap in idle.gaps[:1]),
    )
    return Section(
        "idle",
        _TITLE,
        findings=(first, *(replace(finding, level="full") for finding in others)),
        facts=facts,
        tables=_tables(results),
        detail_notes=_notes(results),
        pointer="More: -s idle.",
    )


def _tables(results: Results) -> tuple[Table, ...]:
    """Build the tables; of several devices, people see each with the largest causes, and in the list of gaps."""
    idle: Idle = results["idle"]
    titles = {"per_step_ms": "Time", "step_percent": "Of capture"} if idle.without_steps else {}
    cause_columns = (replace(column, title=titles.get(column.key, column.title)) for column in IDLE_CAUSES.columns)
    several_devices, shown = len(idle.devices) > 1, idle.ranked[:_SHOWN_CAUSES]
    device_levels: dict[str, Level] = {f"{cause}_percent": "brief" if cause in shown else "data" for cause in CAUSES}
    host_level: Level = "brief" if results.has_several_hosts else "data"
    gap_levels: dict[str, Level] = {
        "host": host_level,
        "device": "brief" if several_devices else "data",
        "thread_name": "data" if results.has_several_hosts or several_devices else "brief",
        "step": "data" if idle.without_steps else "brief",
    }
    unlisted = idle.gap_count - len(idle.gaps)
    return present(
        IDLE_CAUSES.build(results, columns=tuple(cause_columns), bar_key="idle_percent"),
        IDLE_DEVICES.build(
            results,
            columns=at_levels(IDLE_DEVICES.columns, {**device_levels, "host": host_level}),
            level="full" if several_devices else "data",
            note=f"Shares are of {whole_of(idle)}. All causes are in JSON and CSV.",
        ),
        IDLE_GAPS.build(
            results,
            columns=at_levels(IDLE_GAPS.columns, gap_levels),
            level="full",
            note=f"Shorter gaps that are not listed, here and in JSON and CSV: {unlisted:,}." if unlisted else "",
        ),
    )


def _notes(results: Results) -> tuple[str, ...]:
    idle: Idle = results["idle"]
    notes = []
    if idle.without_steps:
        notes.append(
            f"No steps ({idle.without_steps}), so shares are of the whole capture, with its start and its end."
        )
    else:
        notes.append("Idle is the step less all time in which any stream of the device computes or copies.")
        omitted, steps = max((int((~device.counted).sum()), len(device.counted)) for device in idle.devices)
        if omitted:
            notes.append(
                f"Shares omit steps with a flag or of another kind ({omitted} of {steps}); the list of gaps has them."
            )
    if len(idle.averaged) > 1:
        notes.append(f"Shares are averages over devices, each of its idle time / {whole_of(idle)} of its host.")
    unused = [device.device for device in idle.devices if not device.is_used]
    if unused and len(unused) < len(idle.devices):
        notes.append(
            f"{len(unused)} of {len(idle.devices)} devices did nothing in the averaged steps, so they are omitted from "
            f"averages: {', '.join(unused[:3])}."
        )
    without_device = [host.host for host in results.hosts if host["idle"] is None or not host["idle"].devices]
    if without_device:
        named = ", ".join(without_device[:3])
        notes.append(f"{len(without_device)} of {len(results.hosts)} hosts recorded no device: {named}.")
    if idle.no_main_thread and "unknown" in idle.ranked:
        notes.append("No call of the program is recorded, so time in Python counts as unknown.")
    return tuple(notes)
