"""A column of a table of the report as one number: rows are kept by conditions, and a function is taken.

Whether a row is kept can be true, false or not known, since a cell can be not known; a condition that is surely false
drops the row whatever the others are. Text that is not known is empty text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tfperf.arrays import median, percentile
from tfperf.gate.catalogue import NAME_COLUMNS, column_of, type_of
from tfperf.gate.grammar import metric_text
from tfperf.gate.measured import Measured, unknown
from tfperf.gate.model import Condition, Limit
from tfperf.gate.patterns import compiled
from tfperf.render.text import brief

Bools = npt.NDArray[np.bool_]
Float64s = npt.NDArray[np.float64]
Data = Mapping[str, Sequence[Any]]
"""The columns of a table by their keys."""

_LONGEST_LABEL = 120


class _Kept(NamedTuple):
    """Which rows are kept, and of which that is not known."""

    surely: Bools
    perhaps: Bools


def measure_rows(limit: Limit, data: Data) -> Measured:
    """Return what a limit on a table measures in it."""
    metric = limit.metric
    kept = _kept(metric.table, metric.conditions, data, len(data[metric.name]))
    upper = limit.relation.startswith("<")
    if metric.function == "count":
        gap, rows = _not_told(kept.perhaps, "whether they count"), len(kept.surely)
        why = f"of {rows:,} {'row' if rows == 1 else 'rows'}"
        return Measured(float(kept.surely.sum()), why, gap) if upper or not gap else unknown(gap)
    values = numbers(data[metric.name])
    if metric.function in ("", "max" if upper else "min"):
        return _worst(limit, data, values, kept)
    return _of_all(limit, values, kept)


def numbers(values: Sequence[Any]) -> Float64s:
    """Return cells as floats, NaN where they are not known."""
    return np.array([_number(value) for value in values], np.float64)


def _number(value: Any) -> float:
    if value is None or isinstance(value, (str, bool, np.bool_)):
        return math.nan
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        return math.nan
    return number if math.isfinite(number) else math.nan


# --- which rows ---


def _kept(table: str, conditions: Sequence[Condition], data: Data, rows: int) -> _Kept:
    surely, perhaps = np.ones(rows, np.bool_), np.ones(rows, np.bool_)
    for condition in conditions:
        true, told = _matches(table, condition, data[condition.column])
        surely &= true & told
        perhaps &= true | ~told
    return _Kept(surely, perhaps & ~surely)


def _matches(table: str, condition: Condition, values: Sequence[Any]) -> tuple[Bools, Bools]:
    """Return whether the condition holds for each row, and whether that is known."""
    column = column_of(table, condition.column)
    kind = type_of(column) if column else "text"
    wanted = condition.value
    if isinstance(wanted, float):
        cells = numbers(values)
        return _compared(cells, condition.relation, wanted), ~np.isnan(cells)
    if kind == "truth":
        same = np.array([bool(value) == (wanted == "true") for value in values], np.bool_)
        return same ^ (condition.relation == "!="), np.array([value is not None for value in values], np.bool_)
    texts = ["" if value is None else str(value) for value in values]
    if condition.relation in ("~", "!~"):
        pattern = compiled(wanted)
        same = np.array([pattern.search(text) is not None for text in texts], np.bool_)
    else:
        same = np.array([text == wanted for text in texts], np.bool_)
    return same ^ condition.relation.startswith("!"), np.ones(len(texts), np.bool_)


def _compared(cells: Float64s, relation: str, wanted: float) -> Bools:
    if relation in ("=", "!="):
        return np.asarray((cells == wanted) ^ (relation == "!="), np.bool_)
    return np.asarray(
        {"<": cells < wanted, "<=": cells <= wanted, ">": cells > wanted, ">=": cells >= wanted}[relation], np.bool_
    )


# --- one number of them ---


def _worst(limit: Limit, data: Data, values: Float64s, kept: _Kept) -> Measured:
    """Return the largest value for an upper limit, the smallest for a lower one."""
    told = ~np.isnan(values)
    rows = np.flatnonzero(kept.surely & told)
    # A row that may not be meant does no harm if it holds the limit.
    harmless = _compared(values, limit.relation, limit.bound)
    gap = _gap(limit, kept.surely & ~told, kept.perhaps & ~harmless)
    if not len(rows):
        return unknown(gap or (_not_told(kept.perhaps, "whether they are meant") or _no_row(limit)))
    at = int(rows[(values[rows].argmax if limit.relation.startswith("<") else values[rows].argmin)()])
    return Measured(float(values[at]), _which(limit, data, at, len(rows)), gap, _host(limit, data, at))


def _of_all(limit: Limit, values: Float64s, kept: _Kept) -> Measured:
    told = ~np.isnan(values)
    known = values[kept.surely & told]
    gap = _gap(limit, kept.surely & ~told, kept.perhaps)
    if not len(known):
        return unknown(gap or _no_row(limit))
    why = f"over {len(known):,} {'row' if len(known) == 1 else 'rows'}"
    if gap and not _is_bounded(limit, known):
        return unknown(gap)
    return Measured(_taken(limit.metric.function, known), why, gap)


def _is_bounded(limit: Limit, known: Float64s) -> bool:
    """Tell whether more rows could only make it worse: then a breach is one without them."""
    return limit.metric.function == "sum" and limit.relation.startswith("<") and bool((known >= 0).all())


def _taken(function: str, values: Float64s) -> float:
    if function in ("sum", "mean"):
        total = math.fsum(values.tolist())
        return total if function == "sum" else total / len(values)
    if function in ("median", "p95"):
        return median(values) if function == "median" else percentile(values, 0.95)
    return float(values.max() if function == "max" else values.min())


# --- in words ---


def _gap(limit: Limit, without_value: Bools, perhaps: Bools) -> str:
    name = f"{limit.metric.table}.{limit.metric.name}"
    parts = (_not_told(without_value, name), _not_told(perhaps, "whether they are meant"))
    return "; ".join(part for part in parts if part)


def _not_told(which: Bools, what: str) -> str:
    count = int(which.sum())
    return f"{count:,} {'row does' if count == 1 else 'rows do'} not tell {what}" if count else ""


def _no_row(limit: Limit) -> str:
    table = limit.metric.table
    return f"no row of {table} meets the conditions" if limit.metric.conditions else f"the table {table} has no rows"


def _which(limit: Limit, data: Data, at: int, count: int) -> str:
    """Name a row."""
    column = NAME_COLUMNS[limit.metric.table]
    value = data[column][at] if column in data else None
    label = f"row {at + 1}" if value is None or value == "" else f"{column} {brief(str(value), _LONGEST_LABEL)}"
    return label if count == 1 else f"{label}, the worst of {count:,} rows"


def _host(limit: Limit, data: Data, at: int) -> str:
    return str(data["host"][at]) if "host" in data and column_of(limit.metric.table, "host") else ""


def title_of(limit: Limit) -> str:
    """Return what is measured in words: `sum of kernels.total_us[kernel_name~nccl]`."""
    function, text = limit.metric.function, metric_text(limit.metric)
    return f"{function} of {text[len(function) + 1 : -1]}" if function else text
