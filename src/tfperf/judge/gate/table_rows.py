"""A column of a table as one number: conditions choose rows, and a function combines them.

Whether a row is chosen is true, false or unknown, since a cell can be unknown; one condition that is known to be false
drops the row, whatever the others are. Unknown text counts as empty text.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Float64s, median, percentile
from tfperf.base.patterns import pattern
from tfperf.base.units import counted
from tfperf.judge.gate.grammar import column_of, limit_tables, metric_text
from tfperf.judge.gate.limits import RELATIONS, Condition, Limit, Measurement, unknown
from tfperf.report.model import Data
from tfperf.report.render.values import brief

_LONGEST_LABEL = 120
_KERNEL_TABLES = ("kernels", "kernels_by_name")


class _Kept(Struct, frozen=True):
    """Which rows are known to be chosen, and of which that is unknown."""

    surely: Bools
    perhaps: Bools


def measure_rows(limit: Limit, data: Data) -> Measurement:
    """Return what a limit measures in the columns of its table."""
    metric = limit.metric
    kept = _kept(metric.table, metric.conditions, data, len(data[metric.name]))
    is_upper = limit.relation.startswith("<")
    if metric.function == "count":
        gap, why = _undecided(kept.perhaps), f"of {_rows(len(kept.surely))}"
        return Measurement(float(kept.surely.sum()), why, gap) if is_upper or not gap else unknown(gap)
    values = numbers(data[metric.name])
    if metric.function in ("", "max" if is_upper else "min"):
        return _worst(limit, data, values, kept)
    return _of_all(limit, values, kept)


def numbers(values: Sequence[Any]) -> Float64s:
    """Return cells as floats, NaN where they are unknown."""

    def number(value: Any) -> float:
        try:
            return math.nan if isinstance(value, (str, bool, np.bool_)) else float(value)
        except (OverflowError, TypeError, ValueError):
            return math.nan

    cells = np.array([number(value) for value in values], np.float64)
    return np.where(np.isfinite(cells), cells, np.nan)


def _kept(table: str, conditions: Sequence[Condition], data: Data, rows: int) -> _Kept:
    surely, possibly = np.ones(rows, np.bool_), np.ones(rows, np.bool_)
    for condition in conditions:
        true, is_known = _matches(table, condition, data[condition.column])
        surely &= true & is_known
        possibly &= true | ~is_known
    return _Kept(surely, possibly & ~surely)


def _matches(table: str, condition: Condition, cells: Sequence[Any]) -> tuple[Bools, Bools]:
    """Return whether the condition holds for each row, and whether that is known."""
    column = column_of(table, condition.column)
    value = condition.value
    if isinstance(value, float):
        cell_values = numbers(cells)
        return _compared(cell_values, condition.relation, value), ~np.isnan(cell_values)
    if column is not None and column.dtype is bool:
        same = np.array([bool(cell) == (value == "true") for cell in cells], np.bool_)
        return same ^ (condition.relation == "!="), np.array([cell is not None for cell in cells], np.bool_)
    texts = ["" if cell is None else str(cell) for cell in cells]
    is_search = "~" in condition.relation
    same = pattern(value).found_in(texts) if is_search else np.array([text == value for text in texts], np.bool_)
    return same ^ condition.relation.startswith("!"), np.ones(len(texts), np.bool_)


def _compared(cells: Float64s, relation: str, value: float) -> Bools:
    compare = {"=": operator.eq, "!=": operator.ne, **RELATIONS}[relation]
    return np.asarray(compare(cells, value), np.bool_)


def _worst(limit: Limit, data: Data, values: Float64s, kept: _Kept) -> Measurement:
    """Return the largest value for an upper limit, the smallest for a lower one."""
    is_known = ~np.isnan(values)
    rows = np.flatnonzero(kept.surely & is_known)
    # A row that is perhaps chosen does not matter if it holds the limit.
    harmless = _compared(values, limit.relation, limit.bound)
    gap = _gap(limit, kept.surely & ~is_known, kept.perhaps & ~harmless)
    if not len(rows):
        gap = gap or _undecided(kept.perhaps)
        return unknown(gap) if gap else _nothing(limit)
    worst = values[rows].argmax() if limit.relation.startswith("<") else values[rows].argmin()
    row = int(rows[worst])
    host = str(data["host"][row]) if "host" in data and column_of(limit.metric.table, "host") else ""
    return Measurement(float(values[row]), _which(limit, data, row, len(rows)), gap, host)


def _of_all(limit: Limit, values: Float64s, kept: _Kept) -> Measurement:
    is_known = ~np.isnan(values)
    known_values = values[kept.surely & is_known]
    gap = _gap(limit, kept.surely & ~is_known, kept.perhaps)
    if not len(known_values):
        return unknown(gap) if gap else _nothing(limit)
    # More rows could only enlarge a sum of non-negative numbers: if it is breached without them, it is with them.
    is_least = limit.metric.function == "sum" and limit.relation.startswith("<") and bool((known_values >= 0).all())
    if gap and not is_least:
        return unknown(gap)
    value = _FUNCTIONS[limit.metric.function](known_values)
    return Measurement(value, f"over {_rows(len(known_values))}", gap)


_FUNCTIONS: Mapping[str, Callable[[Float64s], float]] = {
    "sum": math.fsum,
    "mean": lambda values: math.fsum(values) / len(values),
    "median": median,
    "p95": lambda values: percentile(values, 0.95),
    "max": lambda values: float(values.max()),
    "min": lambda values: float(values.min()),
}


def _gap(limit: Limit, without_value: Bools, perhaps: Bools) -> str:
    count = int(without_value.sum())
    missing = f"{limit.metric.table}.{limit.metric.name} is unknown in {_rows(count)}" if count else ""
    return "; ".join(part for part in (missing, _undecided(perhaps)) if part)


def _undecided(perhaps: Bools) -> str:
    count = int(perhaps.sum())
    return f"it is unknown whether {_rows(count)} {'meets' if count == 1 else 'meet'} the conditions" if count else ""


def _rows(count: int) -> str:
    return counted(count, "row")


def _nothing(limit: Limit) -> Measurement:
    """Return what a limit measures where it is known that no row is chosen."""
    table = limit.metric.table
    why = f"no row of {table} meets the conditions" if limit.metric.conditions else f"the table {table} has no rows"
    if table in _KERNEL_TABLES:
        why = "no such kernel ran" if limit.metric.conditions else "no kernel ran"
    if limit.or_none:
        return Measurement(None, why, is_none=True)
    return unknown(f"{why}; if that is fine, end the limit in: or none")


def _which(limit: Limit, data: Data, row: int, count: int) -> str:
    column = limit_tables()[limit.metric.table].name_key
    value = data[column][row] if column in data else None
    label = f"row {row + 1}" if value is None or value == "" else f"{column} {brief(str(value), _LONGEST_LABEL)}"
    return label if count == 1 else f"{label}, the worst of {count:,} rows"


def metric_title(limit: Limit) -> str:
    """Return what is measured in words: `sum of kernels.total_us[kernel_name~nccl]`."""
    function, text = limit.metric.function, metric_text(limit.metric)
    return f"{function} of {text[len(function) + 1 : -1]}" if function else text
