"""Ops: time by op on devices and on host threads, and idle time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfperf.analysis.registry import SectionSpec, TableSpec
from tfperf.report.model import Column, Data, Level, Ranked
from tfperf.trace import known_stats

if TYPE_CHECKING:
    from tfperf.analysis.registry import Grouping, Results
    from tfperf.sections.ops.analysis import Side

_SIDE = Column("side", "Side", str, "", "device or host", level="data")
_RANK = Column("rank", "#", int, "count", "rank by self time among host ops or device ops")
_SHARE = Column("self_percent", "Self", float, "%", "self time / self time of all host ops or device ops")
_WITH_IDLE = "self time / (duration of the capture x devices); host: / (op time + time between ops on the same threads)"
_CUMULATIVE = Column("cumulative_self_percent", "Cum.", float, "%", "running sum of self %")

_OP_COLUMNS = (
    _RANK,
    _SHARE,
    _CUMULATIVE,
    Column("op_type", "Type", str, "", "op type; Dataset for a tf.data stage"),
    Column("op_name", "Name", str, "", "name of the op, with its scope"),
    Column("occurrences", "Count", int, "count", "number of runs", level="full"),
    Column(
        "count_of",
        "Count of",
        str,
        "",
        "runs of the op; kernels: runs of its kernels and copies, because op runs are unknown",
        "data",
    ),
    Column("total_ms", "Total", float, "ms", "time including nested ops", level="full"),
    Column("average_ms", "Mean total", float, "ms", "total time / count", level="data"),
    Column("self_ms", "Self", float, "ms", "time excluding nested ops", level="full"),
    Column("average_self_ms", "Mean", float, "ms", "self time / count", level="data"),
    Column("self_with_idle_percent", "With idle", float, "%", _WITH_IDLE, level="data"),
    Column("execution", "Run as", str, "", "eager: from Python; function: in a graph; empty: unknown", level="data"),
    Column(
        "tensor_core_percent", "TC", float, "%", "kernel time on tensor cores / kernel time; empty: unknown", "data"
    ),
    Column("hlo_op", "HLO op", str, "", "XLA's name of the op, if compiled by XLA", level="data"),
    Column("hlo_module", "HLO module", str, "", "the compiled program, if known", level="data"),
)
_PATTERN_COLUMNS = (*_OP_COLUMNS[:3], Column("ops", "Ops", int, "count", "distinct ops in the row"), *_OP_COLUMNS[3:])
_PER_DEVICE = Column(
    "device_mean_ms", "Per device", float, "ms", "self time / devices that compute in the capture", "data"
)
_RANKED, _RANKED_BY_SIDE = Ranked("self_percent"), Ranked("self_percent", apart="side")


def _group_table(by: Grouping, group: str, details: str = "") -> TableSpec:
    passes_level: Level = "brief" if by == "layer" else "data"
    sums_level: Level = "data" if by == "layer" else "brief"
    columns = (
        _SIDE,
        _RANK,
        _SHARE,
        replace(_CUMULATIVE, level=sums_level),
        Column("group", group.capitalize(), str, "", "common part of the ops"),
        Column("ops", "Ops", int, "count", "distinct ops"),
        Column("occurrences", "Count", int, "count", "total number of runs", level=sums_level),
        Column(
            "total_ms", "Total", float, "ms", "sum of times including nested ops, which count repeatedly", level="data"
        ),
        Column("self_ms", "Self", float, "ms", "time excluding nested ops"),
        Column("forward_self_ms", "Forward", float, "ms", "self time outside the backward pass", level="data"),
        Column("backward_self_ms", "Backward", float, "ms", "self time in the backward pass", level=passes_level),
        Column("self_with_idle_percent", "With idle", float, "%", _WITH_IDLE, level="data"),
    )
    return TableSpec(
        name=f"op_{by}s",
        title=f"Ops by {group}",
        row=f"ops summed by {group}",
        details=details,
        columns=columns,
        data=partial(_groups, by),
        name_key="group",
        ranked=_RANKED_BY_SIDE,
    )


def _ops_of(sides: tuple[Side, ...], results: Results) -> Data | None:
    """Return the ops of these sides that match the filters; ranks and shares are those among all ops of a side."""
    parts: list[Data] = []
    for table in results["ops"].sides:
        if table.side in sides:
            columns = table.columns(table.matching(results.view.filters))
            parts.append({"side": [table.side] * len(columns["rank"]), **columns})
    return _stacked(parts)


def _repeats(side: Side, results: Results) -> Data | None:
    from tfperf.sections.ops.groups import repeated_ops

    tables = (table for table in results["ops"].sides if table.side == side)
    return next((repeated_ops(table, table.matching(results.view.filters)) for table in tables), None)


def _groups(by: Grouping, results: Results) -> Data | None:
    from tfperf.sections.ops.groups import group_ops

    sides = results["ops"].sides
    return _stacked([group_ops(table, by, table.matching(results.view.filters)).columns() for table in sides])


def _stacked(parts: Sequence[Data]) -> Data | None:
    if not parts:
        return None
    return {key: [value for part in parts for value in part[key]] for key in parts[0]}


_REPEATS = (
    "One row per group of ops that differ only in replica and layer numbers, with the sums of the single ops in "
    "the files above. Only if ops repeat. [Ops](ops.md) has the rules."
)


def _side_tables(side: Side, details: str = "") -> tuple[TableSpec, TableSpec]:
    title = f"{side.capitalize()} ops by self time"
    of_side = (_PER_DEVICE,) if side == "device" else ()
    row = f"ops by self time on {'devices' if side == 'device' else 'host threads'}"
    single = TableSpec(
        name=f"{side}_ops",
        title=title,
        row=row,
        details=details,
        columns=(*_OP_COLUMNS, *of_side),
        data=partial(_ops_of, (side,)),
        name_key="op_name",
        ranked=_RANKED,
    )
    repeats = TableSpec(
        name=f"{side}_op_patterns",
        title=f"{title}, one row per repeated layer",
        row=f"{row}, with replicas and repeated layers summed",
        details=_REPEATS if details else "",
        columns=(*_PATTERN_COLUMNS, *of_side),
        data=partial(_repeats, side),
        name_key="op_name",
        in_limits=False,
        ranked=_RANKED,
    )
    return single, repeats


DEVICE_OPS, DEVICE_OP_PATTERNS = _side_tables(
    "device",
    "One row per op, the largest self time first. Device ops exist only if a device recorded events. Times are "
    "sums over parallel threads, streams and devices: shares are of op time, not of step time.",
)
HOST_OPS, HOST_OP_PATTERNS = _side_tables("host")
OPS = TableSpec(
    name="ops",
    title="Ops by self time",
    row="device_ops and host_ops in one table",
    columns=(_SIDE, *_OP_COLUMNS),
    data=partial(_ops_of, ("device", "host")),
    name_key="op_name",
    ranked=_RANKED_BY_SIDE,
    in_report=False,
)
OP_TYPES = _group_table(
    "type", "type", "The ops of both sides, summed by type, by name scope, or by layer. [Ops](ops.md) has the rules."
)
OP_SCOPES, OP_LAYERS = _group_table("scope", "name scope"), _group_table("layer", "layer")
SIDE_TABLES: dict[Side, TableSpec] = {"device": DEVICE_OPS, "host": HOST_OPS}
PATTERN_TABLES: dict[Side, TableSpec] = {"device": DEVICE_OP_PATTERNS, "host": HOST_OP_PATTERNS}
GROUP_TABLES: dict[Grouping, TableSpec] = {"type": OP_TYPES, "scope": OP_SCOPES, "layer": OP_LAYERS}
TABLES = (OPS, DEVICE_OPS, HOST_OPS, DEVICE_OP_PATTERNS, HOST_OP_PATTERNS, OP_TYPES, OP_SCOPES, OP_LAYERS)


SECTION = SectionSpec(
    name="ops",
    title="Ops",
    analyze="tfperf.sections.ops.analysis:analyze",
    combine="tfperf.sections.ops.analysis:combine",
    combines_in_tree=True,
    shorten="tfperf.sections.ops.analysis:shorten",
    stats=known_stats.HOST_OPS | known_stats.DEVICE_OPS,
    build="tfperf.sections.ops.section:build",
    tables=TABLES,
)
