"""The report section on XLA programs and their HLO ops."""

from __future__ import annotations

from tfperf.analysis.registry import Results, present
from tfperf.base.units import counted, percent
from tfperf.report.model import Fact, Level, Quantity, Section, at_levels
from tfperf.sections.xla import HLO_MEMORY, HLO_MODULES, HLO_OPS, MEMORY_KEYS, PER_DEVICE, RATES
from tfperf.sections.xla.analysis import Xla

_TITLE = "XLA programs"
NO_PROGRAMS = "No XLA program ran in this capture."
_UPPER_BOUND = (
    "On the host, an HLO op is timed from its start to its recorded end. This includes waits for threads, and ops "
    "overlap, so times are upper bounds and rates are not shown."
)
_ESTIMATED = "Runs of {} are estimates, so there are no rates: the profile does not show the kernels of one run."
_LOST = "{} missing from the profile or unreadable: shapes and work are unknown."


def build(results: Results) -> Section:
    """Return the section."""
    xla: Xla = results["xla"]
    if not xla.ops:
        return Section("xla", _TITLE, notes=(NO_PROGRAMS,), level="full")
    memory = HLO_MEMORY.build(results)
    names = [module.module for module in xla.modules]
    levels: dict[str, Level] = {} if len(names) > 1 else {"module": "data"}
    levels |= {"program_id": "brief"} if len({*names}) < len(names) else {}
    levels |= {PER_DEVICE.key: "brief"} if xla.device_count > 1 else {}
    levels |= dict.fromkeys(RATES, "data") if xla.place == "cpu" else {}
    of_modules: dict[str, Level] = {**levels, "module": "brief"}
    if memory is not None:
        of_modules |= dict.fromkeys(MEMORY_KEYS, "data")
    estimated = [op for op in xla.ops if op.is_estimated]
    notes = [_UPPER_BOUND] if xla.place == "cpu" else []
    if estimated:
        notes.append(_ESTIMATED.format(counted(len(estimated), "HLO op")))
    if xla.lost:
        notes.append(_LOST.format(counted(len(xla.lost), "program")))
    return Section(
        "xla",
        _TITLE,
        facts=_facts(xla),
        tables=present(
            HLO_OPS.build(results, columns=at_levels(HLO_OPS.columns, levels)),
            HLO_MODULES.build(results, columns=at_levels(HLO_MODULES.columns, of_modules)),
            memory,
        ),
        notes=tuple(notes),
        pointer="More: -s xla.",
    )


def _facts(xla: Xla) -> tuple[Fact, ...]:
    programs = Fact("hlo_modules", "Programs", len(xla.modules), "count", f"{counted(len(xla.ops), 'HLO op')} ran")
    if xla.place == "cpu":
        return (programs,)
    share = Quantity("xla_percent", percent(sum(op.time_ps for op in xla.ops), xla.whole_ps), of="device time")
    return (programs, Fact("xla_percent", "In XLA programs", share.value, "%", "of device time", quantities=(share,)))
