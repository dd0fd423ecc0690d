"""Collectives: the time in which devices and hosts exchange data, by type and size."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tfperf.analysis.registry import Results, SectionSpec, TableSpec, fields, present
from tfperf.base.units import PS_PER_MS, PS_PER_US, counted
from tfperf.base.units import format_ms as format_ms
from tfperf.base.units import format_percent as format_percent
from tfperf.report.model import Column, Data, Finding, Level, Quantity, Ranked, Section, at_levels
from tfperf.trace.known_stats import COLLECTIVES as STATS
from tfperf.trace.known_stats import DEVICE_OPS

if TYPE_CHECKING:
    from tfperf.sections.collectives.analysis import Collectives, Sums

_TYPE = Column(
    "type",
    "Type",
    str,
    "",
    "all-reduce, all-gather, reduce-scatter, all-to-all, permute (send/recv), broadcast, reduce",
)
_COUNT = Column("count", "Count", int, "count", "participations: one per collective and recorded rank")
_TOTAL = partial(Column, "total_ms", "Total", float, "ms", "time of all participations, with waiting")
_PARTS = (
    Column("waits_ms", "Waiting", float, "ms", "waiting for the last rank, in total", level="data"),
    Column("transfer_ms", "Transfer", float, "ms", "time after the last rank begins, in total", level="data"),
)
_EXPOSED = (
    Column("exposed_ms", "Exposed", float, "ms", "time that compute of the device does not overlap", level="data"),
    Column("overlapped_ms", "Overlapped", float, "ms", "time that compute of the device overlaps", level="data"),
    Column("exposed_percent", "Exposed", float, "%", "exposed / time of the participations for which it is known"),
)
_COLUMNS = (
    _TYPE,
    Column("dtype", "Data", str, "", "element types in XLA's notation"),
    Column("size_bytes", "Size", int, "bytes", "input of a rank; all-gather: output (as in nccl-tests)"),
    Column("ranks", "Ranks", int, "count", "ranks of a group"),
    Column("groups", "Groups", int, "count", "groups that exchange data, each for itself", level="data"),
    Column("group_key", "Group", int, "", "TensorFlow's number of the group", level="data"),
    _COUNT,
    _TOTAL(level="data"),
    Column("mean_us", "Mean", float, "us", "total / count"),
    Column("waits_us", "Waits", float, "us", "mean time until the last rank begins"),
    Column("transfer_us", "Transfer", float, "us", "mean time after the last rank begins"),
    *_PARTS,
    Column("algorithm_gb_per_second", "Algorithm", float, "", "size / transfer, in 10^9 bytes per second", "data"),
    Column("bus_gb_per_second", "Bus GB/s", float, "", "algorithm bandwidth x factor of type and ranks (nccl-tests)"),
    Column("is_lower_bound", "At least", bool, "", "whether bandwidths are size / mean, which has waiting", "data"),
    *_EXPOSED,
    Column("why_unknown", "Unknown because", str, "", "why waiting and transfer cannot be separated", level="data"),
)
_DEVICE_COLUMNS = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column("device", "Device", str, "", "device that takes part; CPU: threads of the host"),
    _TYPE,
    _COUNT,
    _TOTAL(),
    *_PARTS,
    Column("waits_percent", "Waits", float, "%", "waiting / time of the participations for which it is known"),
    Column("last_percent", "Last", float, "%", "participations that the other ranks wait for"),
    *_EXPOSED,
)


def _ratio(part: Any, whole: Any, scale: float = 1.0) -> list[float | None]:
    """Return scale x part / whole per row; None where the whole is 0."""
    return [scale * one / every if every else None for one, every in zip(part.tolist(), whole.tolist(), strict=True)]


def _where(count: Any, ps: Any) -> list[float | None]:
    return [each / PS_PER_MS if known else None for known, each in zip(count.tolist(), ps.tolist(), strict=True)]


def _times(sums: Sums) -> dict[str, list[Any]]:
    return {
        "count": sums.count.tolist(),
        "total_ms": (sums.total_ps / PS_PER_MS).tolist(),
        "waits_ms": _where(sums.known, sums.waited_ps),
        "transfer_ms": _where(sums.known, sums.transfer_ps),
        "exposed_ms": _where(sums.shown, sums.exposed_ps),
        "overlapped_ms": _where(sums.shown, sums.shown_ps - sums.exposed_ps),
        "exposed_percent": _ratio(sums.exposed_ps, sums.shown_ps, 100.0),
    }


def _collectives(results: Results) -> Data | None:
    found = results["collectives"]
    sums = found.sums
    if sums is None:
        return None
    mean, waits, transfer = (
        _ratio(ps, count, 1 / PS_PER_US)
        for ps, count in ((sums.total_ps, sums.count), (sums.waited_ps, sums.known), (sums.transfer_ps, sums.known))
    )
    algorithm, bus = [], []
    for exchange, apart_us, mean_us in zip(found.exchanges, transfer, mean, strict=True):
        us, factor = apart_us if apart_us is not None else mean_us, exchange.bus_factor()
        rate = exchange.size_bytes / us / 1e3 if exchange.size_bytes and us else None
        algorithm.append(None if rate is None else float(f"{rate:.4g}"))
        bus.append(None if rate is None or factor is None else float(f"{rate * factor:.4g}"))
    rows = zip(algorithm, transfer, strict=True)
    return {
        **fields(_COLUMNS, found.exchanges),
        **{key: [getattr(each, key) or None for each in found.exchanges] for key in ("type", "dtype")},
        **_times(sums),
        "mean_us": mean,
        "waits_us": waits,
        "transfer_us": transfer,
        "algorithm_gb_per_second": algorithm,
        "bus_gb_per_second": bus,
        "is_lower_bound": [None if rate is None else apart is None for rate, apart in rows],
        "why_unknown": [text or None for text in found.why_unknown],
    }


def _by_device(results: Results) -> Data | None:
    found = results["collectives"]
    sums = found.device_sums
    if sums is None:
        return None
    return {
        "host": [row.host for row in found.device_rows],
        "device": [row.device for row in found.device_rows],
        "type": [row.type or None for row in found.device_rows],
        **_times(sums),
        "waits_percent": _ratio(sums.waited_ps, sums.known_ps, 100.0),
        "last_percent": _ratio(sums.last, sums.known, 100.0),
    }


COLLECTIVES = TableSpec(
    name="collectives",
    title="Collectives by type and size",
    row="collectives by type, data and group: time, waiting, transfer and bandwidth",
    details=(
        "One row per type, element type, size and group, the most time first. [Collectives](collectives.md) explains "
        "the columns."
    ),
    columns=_COLUMNS,
    data=_collectives,
    name_key="type",
    ranked=Ranked("total_ms"),
    empty_means_none=True,
    over_hosts=True,
)
COLLECTIVES_BY_DEVICE = TableSpec(
    name="collectives_by_device",
    title="Collectives of each device",
    row="collectives of each device, by type",
    details="One row per host, device and type.",
    columns=_DEVICE_COLUMNS,
    data=_by_device,
    name_key="device",
    ranked=Ranked("total_ms", each="devices", apart="type"),
    empty_means_none=True,
    over_hosts=True,
)
TABLES = (COLLECTIVES, COLLECTIVES_BY_DEVICE)


def build(results: Results) -> Section:
    """Return the section: the collectives by kind and by device."""
    found = results["collectives"]
    if found.sums is None:
        return Section(
            "collectives", "Collectives", level="full", notes=("The profile has no collectives on devices or hosts.",)
        )
    ms = found.busy_ps / max(found.device_count, 1) / PS_PER_MS
    total = Quantity("collective_time", ms, "ms", "collectives")
    per = " per device on average" if found.device_count > 1 else ""
    clause, quantities = shares(found)
    text = f"Collectives take {total} of the capture{per}{': ' * bool(clause)}{clause}."
    host: Level = "brief" if results.has_several_hosts else "data"
    return Section(
        "collectives",
        "Collectives",
        findings=(Finding("collective_time", "info", text, causes=("collectives",), quantities=(total, *quantities)),),
        tables=present(
            COLLECTIVES.build(results),
            COLLECTIVES_BY_DEVICE.build(
                results, level="full", columns=at_levels(COLLECTIVES_BY_DEVICE.columns, {"host": host})
            ),
        ),
        notes=_notes(found),
    )


def shares(found: Collectives) -> tuple[str, tuple[Quantity, ...]]:
    """Return the shares of waiting and of exposed time as a clause, and its numbers; empty if both are unknown."""
    waited = Quantity("waited", found.waited_percent, of="collectives")
    exposed = Quantity("exposed", found.exposed_percent, of="collectives")
    parts = [f"{waited} of it is waiting for the last rank"] * (waited.value is not None)
    parts += [f"{exposed} does not overlap compute"] * (exposed.value is not None)
    return ", ".join(parts), tuple(each for each in (waited, exposed) if each.value is not None)


def _notes(found: Collectives) -> tuple[str, ...]:
    reasons = [reason for reason in dict.fromkeys(found.why_unknown) if reason]
    notes = [f"Waiting and transfer cannot be separated: {'; '.join(reasons)}."] if reasons else []
    if any(why and each.size_bytes for why, each in zip(found.why_unknown, found.exchanges, strict=True)):
        notes.append("Bandwidth without known waiting is a lower bound: size / mean.")
    if any(each.type and each.size_bytes is None for each in found.exchanges):
        notes.append("The size is known only if XLA compiled the collective and the profile has its program.")
    if found.cut:
        notes.append(f"Omitted: {counted(found.cut, 'participation')}, the last ones of hosts with too many.")
    return tuple(notes)


SECTION = SectionSpec(
    name="collectives",
    title="Collectives",
    rests_on=("steps",),
    analyze="tfperf.sections.collectives.analysis:analyze",
    derive="tfperf.sections.collectives.analysis:compare",
    build="tfperf.sections.collectives:build",
    stats=STATS | DEVICE_OPS,
    tables=TABLES,
)
