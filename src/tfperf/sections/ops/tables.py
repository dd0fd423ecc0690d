"""The tables of ops: those of each side, both in one, and ops taken together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfperf.report.model import Column, Data, Level
from tfperf.sections.registry import TableSpec

if TYPE_CHECKING:
    from tfperf.sections.ops.op_table import Side
    from tfperf.sections.results import By, Results

_SIDE = Column("side", "Side", str, "", "device or host", level="data")
_RANK = Column("rank", "#", int, "count", "rank by self time among the ops of this side")
_SHARE = Column("self_percent", "Self", float, "%", "self time / self time of all ops of this side")
_WITH_IDLE = "self time / (duration of the capture x devices); host: / (op time + time between ops on the same threads)"
_CUMULATIVE = Column("cumulative_self_percent", "Cum.", float, "%", "running sum of self %")

_OP_COLUMNS = (
    _RANK,
    _SHARE,
    _CUMULATIVE,
    Column("op_type", "Type", str, "", "op type; Dataset for a tf.data stage"),
    Column("op_name", "Name", str, "", "name of the op, with its scope"),
    Column("occurrences", "Count", int, "count", "how often it ran", level="full"),
    Column("count_of", "Count of", str, "", "runs of the op; kernels: of its kernels and copies, runs unknown", "data"),
    Column("total_ms", "Total", float, "ms", "time including nested ops", level="data"),
    Column("average_ms", "Mean total", float, "ms", "total time / count", level="data"),
    Column("self_ms", "Self", float, "ms", "time excluding nested ops", level="data"),
    Column("average_self_ms", "Mean", float, "ms", "self time / count", level="full"),
    Column("self_with_idle_percent", "With idle", float, "%", _WITH_IDLE, level="data"),
    Column("execution", "Run as", str, "", "eager: from Python; function: in a graph; empty: unknown", level="data"),
    Column("tensor_core_percent", "TC", float, "%", "kernel time on tensor cores / of all; empty: unknown", "data"),
    Column("hlo_op", "HLO op", str, "", "what XLA calls the op, if it compiled it", level="data"),
    Column("hlo_module", "HLO module", str, "", "the compiled program, if known", level="data"),
)


def _group_table(by: By, group: str, details: str = "") -> TableSpec:
    """Declare the table of ops in groups; of layers, people see the forward and the backward pass apart."""
    passes_level: Level = "brief" if by == "layer" else "data"
    sums_level: Level = "data" if by == "layer" else "brief"
    columns = (
        _SIDE,
        _RANK,
        _SHARE,
        replace(_CUMULATIVE, level=sums_level),
        Column("group", group.capitalize(), str, "", "what the ops have in common"),
        Column("ops", "Ops", int, "count", "distinct ops"),
        Column("occurrences", "Count", int, "count", "how often they ran in total", level=sums_level),
        Column("total_ms", "Total", float, "ms", "sum of times including nested ops, which count again", level="data"),
        Column("self_ms", "Self", float, "ms", "time excluding nested ops"),
        Column("forward_self_ms", "Forward", float, "ms", "self time outside the backward pass", level=passes_level),
        Column("backward_self_ms", "Backward", float, "ms", "self time in the backward pass", level=passes_level),
        Column("self_with_idle_percent", "With idle", float, "%", _WITH_IDLE, level="data"),
    )
    return TableSpec(
        name=f"op_{by}s",
        title=f"Ops by {group}",
        row=f"ops added up by {group}",
        details=details,
        columns=columns,
        data=partial(_groups, by),
        name_key="group",
    )


def _ops_of(sides: tuple[Side, ...], results: Results) -> Data | None:
    """Return the ops of some sides that the filters match; ranks and shares are those among all ops of a side."""
    parts = []
    for table in results["ops"].sides:
        if table.side in sides:
            columns = table.columns(table.matching(results.view.filters))
            parts.append({"side": [table.side] * len(columns["rank"]), **columns})
    return _stacked(parts)


def _groups(by: By, results: Results) -> Data | None:
    from tfperf.sections.ops.groups import group_ops

    sides = results["ops"].sides
    return _stacked([group_ops(table, by, table.matching(results.view.filters)).columns() for table in sides])


def _stacked(parts: Sequence[Data]) -> Data | None:
    """Return the rows of all parts, one below the other; None without parts."""
    if not parts:
        return None
    return {key: [value for part in parts for value in part[key]] for key in parts[0]}


DEVICE_OPS = TableSpec(
    name="device_ops",
    title="Device ops by self time",
    row="ops by self time on devices",
    details=(
        "One row per op, the largest self time first. Device ops exist only if a device recorded something. "
        "Times are sums over parallel threads, streams and devices: shares are of op time, not of step time."
    ),
    columns=_OP_COLUMNS,
    data=partial(_ops_of, ("device",)),
    name_key="op_name",
)
HOST_OPS = TableSpec(
    name="host_ops",
    title="Host ops by self time",
    row="ops by self time on host threads",
    columns=_OP_COLUMNS,
    data=partial(_ops_of, ("host",)),
    name_key="op_name",
)
OPS = TableSpec(
    name="ops",
    title="Ops by self time",
    row="device_ops and host_ops in one",
    columns=(_SIDE, *_OP_COLUMNS),
    data=partial(_ops_of, ("device", "host")),
    name_key="op_name",
    in_report=False,
)
OP_TYPES = _group_table(
    "type", "type", "The ops of both sides, added up by type, by name scope, or by layer. [Ops](ops.md) has the rules."
)
OP_SCOPES, OP_LAYERS = _group_table("scope", "name scope"), _group_table("layer", "layer")
GROUP_TABLES: dict[By, TableSpec] = {"type": OP_TYPES, "scope": OP_SCOPES, "layer": OP_LAYERS}
TABLES = (OPS, DEVICE_OPS, HOST_OPS, OP_TYPES, OP_SCOPES, OP_LAYERS)
