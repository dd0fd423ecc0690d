"""The report section on XLA programs and their HLO ops."""

from __future__ import annotations

from msgspec.structs import replace

from tfperf.analysis.registry import Results, present
from tfperf.base.units import counted, format_bytes, percent
from tfperf.report.model import Fact, Level, Quantity, Section, Sparkline, Table, at_levels
from tfperf.sections.xla import (
    HLO_BUFFERS,
    HLO_LIVE,
    HLO_MEMORY,
    HLO_MODULES,
    HLO_OPS,
    HLO_PEAK,
    MEMORY_KEYS,
    OP_PROFILE,
    PER_DEVICE,
    RATES,
    plans_of,
    program_ids,
)
from tfperf.sections.xla.analysis import Xla

_TITLE = "XLA programs"
NO_PROGRAMS = "No XLA program ran in this capture."
_UPPER_BOUND = (
    "On the host, an HLO op is timed from its start to its recorded end. This includes waits for threads, and ops "
    "overlap, so times are upper bounds and rates are not shown."
)
_OVERLAP = "HLO ops overlap: the table of programs counts overlapping time once, the other tables add it up."
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
    if notes and sum(op.time_ps for op in xla.ops) > sum(module.time_ps for module in xla.modules):
        notes.append(_OVERLAP)
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
            _peak_of_largest(results),
            HLO_BUFFERS.build(results, level="data"),
            HLO_LIVE.build(results, level="data"),
            _profile(results),
        ),
        charts=_charts(xla),
        notes=tuple(notes),
        pointer="More: -s xla.",
    )


def _peak_of_largest(results: Results) -> Table | None:
    """Return the contents of memories; people see the program and memory with the most bytes."""
    table = HLO_PEAK.build(results, level="full")
    if table is None:
        return None
    if not any(table.data["padding_bytes"]):
        table = replace(table, columns=at_levels(table.columns, {"padding_bytes": "data"}))
    places = [*zip(table.data["program_id"], table.data["memory"], strict=True)]
    program, memory, plan = plans_of(results["xla"])[0]
    shown = (*program_ids([program.program_id]), memory)
    rows = tuple(row for row, place in enumerate(places) if place == shown)
    others = len({*places}) - 1
    more = (
        f"{counted(others, 'more program or memory', 'more programs or memories')} in JSON and CSV." if others else ""
    )
    note = "From the compiler's plan. * replaces numbers. hlo_buffers in JSON and CSV lists each buffer."
    kept = plan.donatable_bytes
    if kept >= _DONATABLE_SHARE * plan.total_bytes:
        note += f" Results of {format_bytes(kept)} have shapes of parameters, but memory of their own (no donation)."
    title = f"Live at the peak of {program.module}: {format_bytes(plan.total_bytes)} of {memory}"
    return replace(table, title=title, note=note, rows_for_people=rows, note_for_people=more)


_DONATABLE_SHARE = 0.05


_MOST_CHARTS = 4


def _charts(xla: Xla) -> tuple[Sparkline, ...]:
    """Return the memory in use over the programs with the most memory, in program order."""
    from tfperf.sections.xla.instructions import SMALL_SHARE

    plans = [each for each in plans_of(xla) if each[2].live]
    # Flags and scalars of a TPU have spaces of their own.
    largest = [each for each in plans[:_MOST_CHARTS] if each[2].total_bytes >= SMALL_SHARE * plans[0][2].total_bytes]
    tops = [format_bytes(max(used for *_, used in plan.live)) for *_, plan in largest]
    return tuple(
        Sparkline(
            title=f"{module.module}: {name} in use in program order, at most {top}",
            times=tuple(float(at) for at, _, _ in plan.live),
            values=tuple(float(used) for _, _, used in plan.live),
            low=0.0,
            high=float(plan.total_bytes),
            unit="bytes",
            x_title="HLO ops that allocate, in program order",
            level="full",
        )
        for (module, name, plan), top in zip(largest, tops, strict=True)
    )


def _profile(results: Results) -> Table | None:
    """Return the op profile: rates and wasted time only where they are known."""
    from tfperf.sections.xla.op_profile import longest_rows

    xla, by = results["xla"], results.view.by
    table = OP_PROFILE.build(results, level="full")
    if table is None:
        return None
    has = {key: any(value is not None for value in values) for key, values in table.data.items()}
    levels: dict[str, Level] = {"recomputed_ms": "brief"} if any(table.data["recomputed_ms"]) else {}
    if not has["wasted_ms"]:
        levels |= dict.fromkeys(("wasted_ms", "wasted_percent", "judged_percent"), "data")
    levels |= {key: "data" for key in ("tflops_per_second", "gb_per_second") if not has[key]}
    levels |= dict.fromkeys(RATES, "data") if xla.place == "cpu" else {}
    columns = at_levels(OP_PROFILE.columns, levels)
    if by in ("scope", "layer"):
        first, *others = columns
        columns = (replace(first, title=f"Program, {by}, HLO op"), *others)
    shown = longest_rows(table.data["total_ms"], xla.whole_ps)
    more = len(table) - len(shown)
    note = f"The {len(shown)} longest of {len(table):,} rows; an HTML report has all." if more else ""
    return replace(table, columns=columns, rows_for_people=shown, note_for_people=note)


def _facts(xla: Xla) -> tuple[Fact, ...]:
    programs = Fact("hlo_modules", "Programs", len(xla.modules), "count", f"{counted(len(xla.ops), 'HLO op')} ran")
    if xla.place == "cpu":
        return (programs,)
    share = Quantity("xla_percent", percent(sum(op.time_ps for op in xla.ops), xla.whole_ps), of="device time")
    return (programs, Fact("xla_percent", "In XLA programs", share.value, "%", "of device time", quantities=(share,)))
