"""Critical path: the chain of host and device work that bounds the median step."""

from __future__ import annotations

from tfperf.analysis.registry import Results, SectionSpec, TableSpec, fields, present
from tfperf.base.units import PS_PER_MS, percent
from tfperf.report.model import Column, Data, Fact, Quantity, Ranked, Section
from tfperf.trace.known_stats import DEVICE_OPS

_TITLE = "Critical path of the median step"
_KINDS = {"device": "on devices", "host": "on host threads", "unknown": "not shown by the profile"}
_NOTE = "A chain by time, not by data: work in it may have waited for less than the chain shows."
_COLUMNS = (
    Column("kind", "Kind", str, "", "device, host, or unknown: time without a recorded op or event", level="data"),
    Column("place", "Place", str, "", "stream with its device, or thread"),
    Column("name", "Op or event", str, "", "HLO op, framework op or kernel; on a thread, the innermost event"),
    Column("pieces", "Pieces", int, "count", "pieces of the chain"),
    Column("total_ms", "Time", float, "ms", "time in the chain"),
    Column("percent", "Of step", float, "%", "share of the step; all rows add up to 100%"),
)
_STRETCH_COLUMNS = (
    Column("number", "#", int, "", "number, in time order"),
    Column("start_in_step_ms", "Start", float, "ms", "time from the start of the step"),
    Column("total_ms", "Time", float, "ms", "duration; all rows add up to the step"),
    Column("place", "Place", str, "", "stream with its device, or thread"),
    Column("name", "Mostly", str, "", "op or event with most of the time"),
    Column("pieces", "Pieces", int, "count", "pieces of the chain", level="data"),
)


def _parts(results: Results) -> Data | None:
    path = results["critical_path"]
    if not path.parts:
        return None
    return {
        **fields(_COLUMNS, path.parts),
        "total_ms": [part.total_ps / PS_PER_MS for part in path.parts],
        "percent": [percent(part.total_ps, path.step_ps) for part in path.parts],
    }


def _stretches(results: Results) -> Data | None:
    stretches = results["critical_path"].stretches
    if not stretches:
        return None
    return {
        **fields(_STRETCH_COLUMNS, stretches),
        "number": list(range(1, len(stretches) + 1)),
        "start_in_step_ms": [each.start_ps / PS_PER_MS for each in stretches],
        "total_ms": [each.total_ps / PS_PER_MS for each in stretches],
    }


CRITICAL_PATH = TableSpec(
    name="critical_path",
    title="By op and event",
    row="ops and events on the critical path of the median step",
    details="One row per place and op or event, the largest time first. The rows add up to the step.",
    columns=_COLUMNS,
    data=_parts,
    name_key="name",
    ranked=Ranked("total_ms"),
    about_steps=True,
    counts_all_steps=True,
)
CRITICAL_PATH_STRETCHES = TableSpec(
    name="critical_path_stretches",
    title="In time order",
    row="the critical path of the median step in time order: where it is, and for how long",
    details="One row per change of the place, from the start of the step. The rows add up to the step.",
    columns=_STRETCH_COLUMNS,
    data=_stretches,
    name_key="place",
    brief_rows=20,
    about_steps=True,
    counts_all_steps=True,
)


def build(results: Results) -> Section:
    """Return the section."""
    path = results["critical_path"]
    if not path.parts:
        return Section("critical_path", _TITLE, notes=(f"No chain: {path.why_none}.",), level="full")
    of = f"step {path.step}" + (f" of {path.host}" if results.has_several_hosts else "")
    facts = [Fact("step", "Step", path.step_ps / PS_PER_MS, "ms", f"{of}, the median step")]
    for kind, title in _KINDS.items():
        total_ps = sum(part.total_ps for part in path.parts if part.kind == kind)
        key, total_ms = f"critical_path: {kind}", total_ps / PS_PER_MS
        share, time = Quantity(key, percent(total_ps, path.step_ps), of=of), Quantity(key, total_ms, "ms", of)
        note, quantities = f"{share} of it", (time, share)
        facts.append(Fact(f"{kind}_ms", title.capitalize(), total_ms, "ms", note, quantities=quantities))
    return Section(
        "critical_path",
        _TITLE,
        facts=tuple(facts),
        tables=present(
            CRITICAL_PATH.build(results, bar_key="percent"), CRITICAL_PATH_STRETCHES.build(results, level="full")
        ),
        notes=(_NOTE,),
        pointer="More: -s critical_path.",
    )


SECTION = SectionSpec(
    name="critical_path",
    title="Critical path",
    rests_on=("steps",),
    stats=DEVICE_OPS,
    analyze="tfperf.sections.critical_path.analysis:analyze",
    combine="tfperf.sections.critical_path.analysis:combine",
    combines_in_tree=True,
    shorten="tfperf.sections.critical_path.analysis:shorten",
    build="tfperf.sections.critical_path:build",
    tables=(CRITICAL_PATH, CRITICAL_PATH_STRETCHES),
    without_device="No critical path: the profile has no device events.",
)
