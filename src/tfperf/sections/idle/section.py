"""The section about idle devices: how long they wait, and for what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfperf.analysis.registry import present
from tfperf.base.units import PS_PER_MS, listed
from tfperf.report.model import Fact, Level, Section, Table, at_levels
from tfperf.sections.idle.findings import averaged_over, idle_findings, idle_share, label_of, only_device, whole_of
from tfperf.sections.idle.tables import CAUSES, DEVICE_USE, IDLE_CAUSES, IDLE_DEVICES, IDLE_GAPS, Use

if TYPE_CHECKING:
    from tfperf.analysis.results import Results
    from tfperf.sections.idle.analysis import Idle

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
    first, *others = idle_findings(idle, results["overview"])
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
    """Return how idle the devices are that work, and which do not: all facts but the last are of the same devices."""
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
        note = f"of {len(idle.listed)}: {_idle_devices(idle)}"
        facts.append(Fact("idle_devices", "Devices without recorded kernels", nothing, "count", note))
    return tuple(facts)


def _idle_devices(idle: Idle) -> str:
    """Name the devices that do nothing, those without recorded work apart."""
    reasons: dict[Use, str] = {"silent": "no work recorded: unused, or not traced", "no kernel": "no kernel recorded"}
    texts = []
    for use, reason in reasons.items():
        labels = [label_of(idle, device.host, device.device) for device in idle.idle_devices if device.use == use]
        if labels:
            texts.append(f"{listed(labels)} ({reason})")
    return "; ".join(texts)


def _tables(results: Results) -> tuple[Table, ...]:
    """Build the tables; of several devices, people see those that work, with the largest causes, and in gaps."""
    idle: Idle = results["idle"]
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
            note=f"Shorter gaps that are not listed, here and in JSON and CSV: {unlisted:,}." if unlisted else "",
        ),
    )


def _notes_on_devices(idle: Idle) -> list[str]:
    """Name the devices that have work and still count in no share, next to others that do."""
    if not any(device.use == "works" for device in idle.uses):
        return []
    reasons: dict[Use, str] = {
        "copies": "run no kernel in the averaged steps and only copy",
        "outside": "run kernels only outside of the averaged steps",
    }
    notes = []
    for use, reason in reasons.items():
        labels = [label_of(idle, device.host, device.device) for device in idle.uses if device.use == use]
        if labels:
            notes.append(f"Devices that {reason} are omitted from shares and gaps: {listed(labels)}.")
    return notes


def _notes(results: Results) -> tuple[str, ...]:
    idle: Idle = results["idle"]
    notes = []
    if idle.without_steps:
        notes.append(
            f"No steps ({idle.without_steps}), so shares are of the whole capture, with its start and its end."
        )
    else:
        on_tpu = results["steps"].on_tpu
        busy = (
            "a core runs ops, also those that wait for copies"
            if on_tpu
            else "any stream of the device computes or copies"
        )
        notes.append(f"Idle is the step less all time in which {busy}.")
        omitted, steps = max((int((~device.counted).sum()), len(device.counted)) for device in idle.devices)
        if omitted:
            notes.append(
                f"Shares omit steps with a flag or of another kind ({omitted} of {steps}); the list of gaps has them."
            )
    if len(idle.averaged) > 1:
        notes.append(f"Shares are averages over devices, each of its idle time / {whole_of(idle)} of its host.")
    notes += _notes_on_devices(idle)
    without_device = [host.host for host in results.hosts if not host["idle"].devices]
    if without_device:
        recorded_none = f"{len(without_device)} of {len(results.hosts)} hosts recorded no device"
        notes.append(f"{recorded_none}: {listed(without_device)}.")
    if idle.no_main_thread and "unknown" in idle.ranked:
        notes.append("No call of the program is recorded, so time in Python counts as unknown.")
    return tuple(notes)
