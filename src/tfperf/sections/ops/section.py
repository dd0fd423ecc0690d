"""The report section on ops: tables, groups and idle time on devices and hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import compress

from msgspec.structs import replace

from tfperf.analysis.many_hosts import MOST_ROWS
from tfperf.analysis.registry import Results, TableSpec, View, present
from tfperf.base.units import PS_PER_MS, format_ms
from tfperf.report.model import BarChart, Chart, Fact, Level, Section, Table, at_levels
from tfperf.sections.ops import GROUP_TABLES, PATTERN_TABLES, SIDE_TABLES
from tfperf.sections.ops.analysis import OTHERS, Ops, OpTable
from tfperf.sections.ops.groups import scope_chart

_BARS = 7
_NO_OPS = "The profile has no ops."
_SHARES = (
    "Shares are of op time, summed over parallel threads, streams and devices; they are not shares of step time. "
    "Shares that include idle time are in JSON and CSV."
)
_SIDE_TITLES = {"device": "Device", "host": "Host"}
_STAR = "* replaces replica and layer numbers: ops that differ only in them share a row (--by op lists each op)."


def build(results: Results) -> Section:
    """Return the section; the parts for people depend on the view of the results.

    By default, a full report shows one table: the ops of the device, else those of the host. With a grouping or
    filters, it shows as much as the section alone. Filters omit rows of tables; ranks and shares stay.
    """
    ops: Ops = results["ops"]
    is_default_view = results.view == View()
    level: Level = "full" if is_default_view else "brief"
    tables_with_facts = [table for table in (ops.device, ops.host) if table.places or table is ops.host]
    facts = tuple(fact for side in tables_with_facts for fact in _facts(results, side, level))
    if not ops.sides:
        return Section("ops", "Ops", facts=facts, notes=(_NO_OPS,))
    tables = _tables(results, level)
    notes: tuple[str, ...] = (_SHARES,)
    filters = results.view.filters
    if filters:
        counts = [f"{int(side.matching(filters).sum()):,} of {len(side):,} {side.side} ops" for side in ops.sides]
        wanted = f"{' or '.join(pattern.text for pattern in filters)} in their name, type or HLO op"
        notes = (f"Only ops with {wanted}: {' and '.join(counts)}. Shares are of all ops.", _SHARES)
    lacking = max(side.lacking_ps for side in ops.sides)
    if lacking:
        text = f"{OTHERS.name} are all but the {MOST_ROWS:,} ops with the most time of each host; a row misses"
        notes = (f"{text} at most {format_ms(lacking / PS_PER_MS)} ms.", *notes)
    return Section(
        "ops",
        "Ops",
        facts=facts,
        charts=() if filters else _charts(results, tables, level),
        tables=tables,
        notes=notes,
        detail_notes=_count_notes(results),
        pointer="More: -s ops, --by op, type, scope or layer." if is_default_view else "",
    )


def _count_notes(results: Results) -> tuple[str, ...]:
    device = results["ops"].device
    count = 0 if results.attribution == "tensorflow" else int(device.counts_kernels.sum())
    if not count:
        return ()
    return (
        f"For {count:,} of {len(device):,} device ops, the count is of kernels and copies: the profile does not "
        "show which kernels one run of the op launched.",
    )


def _facts(results: Results, side: OpTable, level: Level) -> list[Fact]:
    title, name = _SIDE_TITLES[side.side], side.side
    places = f"{side.places} {'thread' if name == 'host' else name}{'s' * (side.places != 1)}"
    if not len(side):
        return []
    busy_ms = float(side.self_ps.sum(dtype=float)) / PS_PER_MS
    note = f"{len(side):,} ops, summed over {'streams and devices' if name == 'device' else places}"
    if name == "device" and side.places > 1:
        note = f"{len(side):,} ops, summed over {places}: {format_ms(busy_ms / side.places)} ms each"
    facts = [Fact(f"{name}_op_time", f"{title} op time", busy_ms, "ms", note, level=level)]
    if side.idle_share is None or side.idle_ps is None or side.time_ps is None:
        return facts
    if name == "host":
        meaning = "between the first and the last op of each thread"
    elif results["steps"].on_tpu:
        meaning = f"from the first to the last op, on {places}"
    elif results.attribution == "tensorflow":
        meaning = f"{places}, first to last event, minus the sum of ops"
    else:
        meaning = f"the capture on {places}"
    idle, whole = (format_ms(value / PS_PER_MS) for value in (side.idle_ps, side.time_ps))
    note = f"{idle} of {whole} ms: {meaning}"
    title = f"{title} idle in the capture" if name == "device" and not results["steps"].on_tpu else f"{title} idle"
    return [*facts, Fact(f"{name}_idle", title, 100 * side.idle_share, "%", note, level=level)]


def _tables(results: Results, level: Level) -> tuple[Table, ...]:
    """Return all tables; people see those of one grouping, and of both sides at the given level.

    Repeated ops share a row, unless each op is requested or no op repeats.
    """
    by = results.view.ops_by
    groups = ((spec, "brief" if group == by else "data") for group, spec in GROUP_TABLES.items())
    tables = []
    for side, side_level in zip(results["ops"].sides, ("brief", level), strict=False):
        patterns = _op_table(PATTERN_TABLES[side.side], results, side_level if by == "pattern" else "data")
        each_is_shown = by == "op" or (by == "pattern" and patterns is None)
        ops = _op_table(SIDE_TABLES[side.side], results, side_level if each_is_shown else "data")
        tables += [patterns and replace(patterns, note=_STAR), ops]
    return present(*tables, *(spec.build(results, level=group_level, split_key="side") for spec, group_level in groups))


def _op_table(spec: TableSpec, results: Results, level: Level) -> Table | None:
    """Return the ops of a side; people see HLO ops instead of running sums, and tensor cores if known."""
    table = spec.build(results, level=level, bar_key="self_percent")
    if table is None:
        return None
    levels: dict[str, Level] = {}
    if any(text is not None for text in table.data["hlo_op"]):
        levels = {"hlo_op": "brief", "cumulative_self_percent": "data"}
    if spec.name in ("device_ops", "device_op_patterns") and results["ops"].device.places > 1:
        levels["device_mean_ms"] = "brief"
    if any(share is not None for share in table.data["tensor_core_percent"]):
        levels["tensor_core_percent"] = "full"
    return replace(table, columns=at_levels(table.columns, levels))


def _charts(results: Results, tables: Sequence[Table], level: Level) -> tuple[Chart, ...]:
    """Return charts of self time per side; people see types and ops by default, and scopes as a tree in its order."""
    by, data = results.view.ops_by, {table.name: table.data for table in tables}
    shown: Level = level if by in ("pattern", "op", "type") else "data"
    charts: list[Chart] = []
    for side in results["ops"].sides:
        types, scopes, layers = (
            {key: list(compress(values, [each == side.side for each in rows["side"]])) for key, values in rows.items()}
            for rows in (data[spec.name] for spec in GROUP_TABLES.values())
        )
        ops = data[SIDE_TABLES[side.side].name]
        if by != "op":
            ops = data.get(PATTERN_TABLES[side.side].name, ops)
        columns = (ops[key] for key in ("op_name", "hlo_op", "op_type"))
        counts = Counter(ops["op_name"])
        names = [
            f"{name} ({hlo_op or op_type})" if counts[name] > 1 else name
            for name, hlo_op, op_type in zip(*columns, strict=True)
        ]
        title = f"{_SIDE_TITLES[side.side]} op time by"
        of_all = f", summed over {side.places} devices" if side.side == "device" and side.places > 1 else ""
        charts += [
            _bars(f"{title} type", types["group"], types["self_percent"], shown),
            _bars(f"{title} op", names, ops["self_percent"], shown),
            _bars(f"{title} name scope", scopes["group"], scopes["self_percent"], "data"),
            *(
                [_bars(f"{title} layer", layers["group"], layers["self_percent"], "data")]
                if any(not group.startswith("(") for group in layers["group"])
                else []
            ),
            scope_chart(side, f"{title} name scope, as a tree{of_all}", level if by == "scope" else "data"),
        ]
    return tuple(charts)


def _bars(title: str, names: Sequence[str], percent: Sequence[float], level: Level) -> BarChart:
    if len(names) <= _BARS + 1:
        return BarChart(title, "%", tuple(names), tuple(percent), level=level)
    labels = (*names[:_BARS], f"{len(names) - _BARS:,} others")
    return BarChart(title, "%", labels, (*percent[:_BARS], sum(percent[_BARS:])), level=level)
