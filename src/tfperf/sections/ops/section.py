"""The section of ops: which take the time on the device and on the host, alone and in groups, and what idles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfperf.sections.ops.groups import By, GroupTable, group, matching
from tfperf.sections.ops.analysis import Ops, OpTable

from tfperf.report.model import BarChart, Column, Fact, Section, Table
from tfperf.reports import ops_columns
from tfperf.reports.profile import WHOLE, View
from tfperf.trace.activities import Attribution
from tfperf.units import PS_PER_MS, format_ms

_BARS = 7
_TITLE = "Ops"
_NO_OPS = "The trace holds no ops."
_SHARES = (
    "Shares are of op time, summed over parallel threads, streams and devices; they are not shares of step time. "
    "With idle: JSON and CSV."
)
_SIDE_TITLES = {"device": "Device", "host": "Host"}
_BY_TITLES = {"op": "op", "type": "type", "scope": "name scope", "layer": "layer"}
_GROUP_NAMES: dict[By, str] = {"type": "op_types", "scope": "op_scopes", "layer": "op_layers"}


def ops_section(ops: Ops, view: View = WHOLE, attribution: Attribution = "corrected") -> Section:
    """Build the section; `view.top` is for people: it cuts tables, draws charts, and shows one grouping only.

    Without it there are all tables: ops of each side, and types, scopes and layers of both, which a page shows apart.
    `view.filters` keep the ops that any of them is found in; shares, ranks and charts stay those of all ops.
    """
    patterns, by, top = view.filters, view.by, view.top
    sides = [side for side in (ops.device, ops.host) if side is not None and len(side)]
    facts = _facts(ops, attribution)
    if not sides:
        return Section("ops", _TITLE, facts=facts, notes=(_NO_OPS,))
    notes = (_matches(sides, patterns), _SHARES) if patterns else (_SHARES,)
    if top is None:
        groups = _groups_apart(sides, patterns) if view.page else _all_groups(sides, patterns)
        tables = [*(op_table(side, patterns) for side in sides), *groups]
        return Section("ops", _TITLE, facts=facts, tables=tuple(tables), notes=notes)
    if by == "op":
        tables = [op_table(side, patterns) for side in sides]
    else:
        tables = [_group_table(group(side, by, matching(side, patterns)), by) for side in sides]
    charts = tuple(chart for side in sides for chart in _charts(side) if not patterns and by in ("op", "type"))
    return Section("ops", _TITLE, (), facts, charts, tuple(table.head(top) for table in tables), notes)


def brief_ops_section(ops: Ops, top: int | None) -> Section:
    """Build what stands in a whole report for people: the ops that take most, on the device if there is one."""
    side = ops.device if ops.device is not None and len(ops.device) else ops.host
    if not len(side):
        return Section("ops", "Top ops", notes=(_NO_OPS,))
    compiled = any(key.hlo_op for key in side.keys)
    table = replace(op_table(side), columns=ops_columns.brief_columns(hlo=compiled))
    shown = table if top is None else table.head(top)
    return Section("ops", "Top ops", tables=(shown,), notes=(_SHARES, "More: -s ops, --by type, scope or layer."))


def op_table(side: OpTable, patterns: Sequence[re.Pattern[str]] = ()) -> Table:
    """Return the table of one side; ranks and shares are those of all its ops."""
    data: dict[str, Any] = side.columns()
    keep = matching(side, patterns).tolist()
    data = {key: [value for value, kept in zip(values, keep, strict=True) if kept] for key, values in data.items()}
    declared = ops_columns.op_columns(
        tensor_cores=any(value is not None for value in data["tensor_core_percent"]),
        hlo=any(value is not None for value in data["hlo_op"]),
    )
    return _table(f"{side.side}_ops", f"{_SIDE_TITLES[side.side]} ops by self time", declared, data, "self_percent")


def _table(name: str, title: str, declared: tuple[Column, ...], data: dict[str, Any], bar_key: str = "") -> Table:
    rows = len(data[declared[0].key])
    return Table(name, title, declared, {own.key: data[own.key] for own in declared}, rows, bar_key=bar_key)


def _group_table(found: GroupTable, by: By) -> Table:
    title = f"{_SIDE_TITLES[found.side]} ops by {_BY_TITLES[by]}"
    return _table(f"{found.side}_op_{by}s", title, ops_columns.group_columns(by), found.columns(), "self_percent")


def _all_groups(sides: Sequence[OpTable], patterns: Sequence[re.Pattern[str]]) -> list[Table]:
    """Return types, scopes and layers, each one table of both sides."""
    tables = []
    for by, name in _GROUP_NAMES.items():
        found = [group(side, by, matching(side, patterns)).columns() for side in sides]
        data = {key: [value for own in found for value in own[key]] for key in found[0]}
        tables.append(_table(name, f"Ops by {_BY_TITLES[by]}", ops_columns.group_columns(by), data))
    return tables


def _groups_apart(sides: Sequence[OpTable], patterns: Sequence[re.Pattern[str]]) -> list[Table]:
    """Return types, scopes and layers of each side."""
    return [_group_table(group(side, by, matching(side, patterns)), by) for side in sides for by in _GROUP_NAMES]


def _charts(side: OpTable) -> list[BarChart]:
    """Return how self time is distributed over types and over ops; without a bar for each, the rest is one."""
    title = _SIDE_TITLES[side.side]
    types = group(side, "type")
    return [
        _bars(f"{title} op time by type", types.names, (100 * types.share).tolist()),
        _bars(f"{title} op time by op", side.names, (100 * side.share).tolist()),
    ]


def _bars(title: str, names: Sequence[str], percent: Sequence[float]) -> BarChart:
    if len(names) <= _BARS + 1:
        return BarChart(title, "%", tuple(names), tuple(percent))
    rest = f"{len(names) - _BARS:,} others"
    return BarChart(title, "%", (*names[:_BARS], rest), (*percent[:_BARS], sum(percent[_BARS:])))


def _matches(sides: Sequence[OpTable], patterns: Sequence[re.Pattern[str]]) -> str:
    counts = [f"{int(matching(side, patterns).sum()):,} of {len(side):,} {side.side} ops" for side in sides]
    wanted = " or ".join(pattern.pattern for pattern in patterns)
    return f"Only what {wanted} is found in, in name, type or HLO op: {' and '.join(counts)}. Shares stay of all ops."


def _facts(ops: Ops, attribution: Attribution) -> tuple[Fact, ...]:
    """Return how long ops took, and how long none ran, per side."""
    sides = [side for side in (ops.device, ops.host) if side is not None]
    return tuple(fact for side in sides for fact in _side_facts(side, _idle_meaning(side, attribution)))


def _side_facts(side: OpTable, idle_meaning: str) -> list[Fact]:
    title, name = _SIDE_TITLES[side.side], side.side
    busy = float(side.self_ps.sum(dtype=float)) / PS_PER_MS
    threads = "1 thread" if side.places == 1 else f"{side.places} threads"
    where = "streams and devices" if name == "device" else threads
    facts = [Fact(f"{name}_op_time", f"{title} op time", busy, "ms", f"{len(side):,} ops, summed over {where}")]
    if side.idle_share is not None and side.idle_ps is not None and side.time_ps is not None:
        idle, whole = (format_ms(value / PS_PER_MS) for value in (side.idle_ps, side.time_ps))
        note = f"{idle} of {whole} ms: {idle_meaning}"
        facts.append(Fact(f"{name}_idle", f"{title} idle", 100 * side.idle_share, "%", note))
    return facts


def _idle_meaning(side: OpTable, attribution: Attribution) -> str:
    if side.side == "host":
        return "between the first and the last op of each thread"
    devices = "1 device" if side.places == 1 else f"{side.places} devices"
    if attribution == "tensorflow":
        return f"{devices}, first to last event, less the sum of ops"
    return f"{devices} without kernels and copies"
