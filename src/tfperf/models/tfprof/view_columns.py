"""The table of a view: its columns, their units, and which rows people see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.base.units import Unit, counted, format_bytes, format_ms
from tfperf.models.tfprof.attributes import PLACE
from tfperf.models.tfprof.model import AVERAGE, Model
from tfperf.models.tfprof.options import Options
from tfperf.models.tfprof.reference_text import ModelText
from tfperf.models.tfprof.step_times import median_times
from tfperf.models.tfprof.views import SCOPE_TYPE, View
from tfperf.report.model import Column, Level, Ranked, Table, table_of

ROWS_FOR_PEOPLE = 40
_NS = 1_000_000
"""Nanoseconds in a millisecond: times are kept in nanoseconds here."""
TITLES: Mapping[View, tuple[str, str]] = {
    "scope": ("Cost by name scope", "Scopes and nodes"),
    "graph": ("Cost of nodes with what feeds them", "Nodes, what feeds them one level deeper"),
    "op": ("Cost by op type", "Op types"),
    "code": ("Cost by line of code", "Lines of Python"),
}
_TREES = ("scope", "code")
"""Views whose names stand as a tree; what feeds what goes too deep for that."""


class Attribute(Struct, frozen=True):
    """How a value is shown: the key and title of its column, its unit, and what the stored number is divided by."""

    key: str
    title: str
    unit: Unit
    divisor: int = 1
    meaning: str = ""


SHOWN_AS: Mapping[str, Attribute] = {
    "micros": Attribute("time_ms", "time", "ms", _NS, "time of accelerator and CPU; both may run at once"),
    "accelerator_micros": Attribute("accelerator_ms", "accelerator", "ms", _NS, "time of kernels"),
    "cpu_micros": Attribute("cpu_ms", "CPU", "ms", _NS, "time of ops on the CPU; of a GPU's ops, of launching them"),
    "bytes": Attribute("requested_bytes", "requested", "bytes", meaning="memory that the ops asked for"),
    "peak_bytes": Attribute("peak_bytes", "peak", "bytes", meaning="sum of the most that each op held at once"),
    "residual_bytes": Attribute("residual_bytes", "residual", "bytes", meaning="memory that the ops left allocated"),
    "output_bytes": Attribute("output_bytes", "output", "bytes", meaning="size of what the ops put out"),
    "params": Attribute("params", "parameters", "count", meaning="elements of trainable variables"),
    "float_ops": Attribute("float_ops", "float ops", "count", meaning="float operations, where a formula is known"),
    "runs": Attribute("runs", "runs", "count", meaning="executions"),
    "definitions": Attribute("nodes", "nodes", "count", meaning="nodes of the graph"),
}


class Rows(Struct, frozen=True, kw_only=True):
    """The rows of any view: their names, how deep they stand, own and total values, and the nodes of each."""

    names: list[str]
    depth: list[int]
    own: Int64s
    total: Int64s
    of_all: Int64s
    """The total of all that counts."""
    nodes: list[list[int]]


def view_table(model: Model, view: View, options: Options, rows: Rows, attributes: Sequence[str], top: int) -> Table:
    """Return the table of a view; people see the `top` rows with the largest totals."""
    columns: list[Column] = []
    data: dict[str, Sequence[Any]] = {"name": _short_names(rows, view), "node": rows.names, "depth": rows.depth}
    title = {"op": "op type", "code": "line of code"}.get(view, "name")
    columns.append(Column("name", title, str, depth_key="depth" if view in _TREES else ""))
    columns.append(Column("node", "whole name", str, level="data"))
    level: Level = "brief" if view == "graph" else "data"
    columns.append(Column("depth", "level", int, level=level, meaning="0: the outermost"))
    for place, name in enumerate(attributes):
        for column, cells in _value_columns(rows, view, name, is_first=place == 0):
            columns.append(column)
            data[column.key] = cells
    for column, cells in (*_median(model, view, options, rows), *_text_columns(model, view, options, rows)):
        columns.append(column)
        data[column.key] = cells
    kept = _largest(rows, attributes, top) if attributes else tuple(range(len(rows.names)))
    left_out = len(rows.names) - len(kept)
    note = f"{counted(left_out, 'smaller row')} left out; --top {len(rows.names)} shows all" if left_out else ""
    return table_of(view, TITLES[view][1], columns, data, note=note, rows_for_people=kept)


def _short_names(rows: Rows, view: View) -> list[str]:
    """Return what a scope adds to the name of the row above it; other names as they are."""
    if view != "scope":
        return rows.names
    above: list[str] = []
    short = []
    for name, depth in zip(rows.names, rows.depth, strict=True):
        del above[depth:]
        prefix = f"{above[-1]}/" if above else ""
        short.append(name.removeprefix(prefix) if name != prefix else name)
        above.append(name)
    return short


def _value_columns(rows: Rows, view: View, name: str, *, is_first: bool) -> Iterator[tuple[Column, Sequence[Any]]]:
    """Yield the columns of an attribute: with all below, as share, and its own."""
    attribute, place = SHOWN_AS[name], PLACE[name]
    kind: type[int] | type[float] = int if attribute.divisor == 1 else float
    level: Level = "brief" if is_first else "data"
    below = "" if view == "op" else ", with all below"
    meaning = f"{attribute.meaning}{below}"
    yield Column(attribute.key, attribute.title, kind, attribute.unit, meaning), _cells(rows.total[place], attribute)
    whole = int(rows.of_all[place])
    shares = [100 * total / whole if whole else None for total in rows.total[place].tolist()]
    key = attribute.key.removesuffix("_ms").removesuffix("_bytes")
    yield Column(f"{key}_percent", "%", float, "%", "share of all that counts", level), shares
    if view != "op":
        own = Column(f"own_{attribute.key}", "own", kind, attribute.unit, attribute.meaning, level)
        yield own, _cells(rows.own[place], attribute)


def _cells(values: Int64s, attribute: Attribute) -> list[int] | list[float]:
    if attribute.divisor == 1:
        return [int(value) for value in values.tolist()]
    return [value / attribute.divisor for value in values.tolist()]


def _median(model: Model, view: View, options: Options, rows: Rows) -> Iterator[tuple[Column, Sequence[Any]]]:
    """Yield the median over steps of the time of single nodes: that of a sum is not the sum of medians."""
    if "micros" in options.select and view in ("scope", "graph") and options.step == AVERAGE and len(model.steps) > 1:
        medians = np.where(model.has_run(), median_times(model)[0], -1).tolist()
        meaning = "median over the steps that recorded the node"
        column = Column("own_median_ms", "own median", float, "ms", meaning, "data")
        of = [medians[nodes[0]] if nodes else -1 for nodes in rows.nodes]
        yield column, [median / _NS if median >= 0 else None for median in of]


def _kernels(model: Model, view: View, rows: Rows) -> Iterator[tuple[Column, Sequence[Any]]]:
    """Yield what ran in the place of nodes, where that is not what the graph says."""
    if view != "code" and any(model.kernel):
        meaning = "kernels of another type than the node: they hold the time of ops that were fused into it"
        yield Column("kernel", "ran as", str, "", meaning, "data"), [model.ran_as(nodes) for nodes in rows.nodes]


def _text_columns(model: Model, view: View, options: Options, rows: Rows) -> Iterator[tuple[Column, Sequence[Any]]]:
    text = ModelText(model)
    if "params" in options.select and view in ("scope", "graph"):
        shapes = [text.shape(nodes[0]) if nodes else "" for nodes in rows.nodes]
        yield Column("shape", "shape", str, level="data", meaning="of variables and placeholders"), shapes
    if "device" in options.select:
        yield Column("device", "device", str), [text.devices(nodes).lstrip("|") for nodes in rows.nodes]
    yield from _kernels(model, view, rows)
    if "op_types" in options.select:
        types = [text.types(nodes) if nodes else "" if view == "code" else SCOPE_TYPE for nodes in rows.nodes]
        yield Column("op_types", "types", str, meaning="op, device, and what the log says"), types
    if "input_shapes" in options.select and view in ("scope", "graph"):
        yield (
            Column("input_shapes", "input shapes", str),
            [text.inputs(nodes[0]) if nodes else "" for nodes in rows.nodes],
        )


_INPUT_COLUMNS = (
    Column("op_type", "op type", str),
    Column("input_shapes", "input shapes", str, meaning="of each input; unknown where the graph has no shape"),
    Column("runs", "runs", int, "count", "executions"),
    Column("nodes", "nodes", int, "count", "nodes of the graph"),
    Column("time_ms", "time", float, "ms", "time of accelerator and CPU; both may run at once"),
)


def inputs_table(model: Model, rows: Rows, values: Int64s) -> Table:
    """Return a row for each op type and list of input shapes, what took longest first."""
    text = ModelText(model)
    found = []
    for name, nodes in zip(rows.names, rows.nodes, strict=True):
        by_shapes: dict[str, list[int]] = {}
        for node in nodes:
            by_shapes.setdefault(text.inputs(node, ", "), []).append(node)
        for shapes, of in by_shapes.items():
            runs, count, nanos = (int(values[PLACE[key], of].sum()) for key in ("runs", "definitions", "micros"))
            found.append((name, shapes or "none", runs, count, nanos / _NS))
    found.sort(key=lambda row: -row[-1])
    columns = zip(*found, strict=True) if found else [()] * len(_INPUT_COLUMNS)
    data = {column.key: list(cells) for column, cells in zip(_INPUT_COLUMNS, columns, strict=True)}
    return table_of("input_shapes", "What op types are given", _INPUT_COLUMNS, data, ranked=Ranked("time_ms"))


def _largest(rows: Rows, attributes: Sequence[str], count: int) -> tuple[int, ...]:
    """Return the rows with the largest totals, which have all above them among them; rows without any are left out."""
    if count >= len(rows.names):
        return tuple(range(len(rows.names)))
    depth = np.array(rows.depth, np.int64)
    order = np.lexsort((np.arange(len(depth)), depth, -rows.total[PLACE[attributes[0]]]))
    costs: Bools = (rows.total[[PLACE[name] for name in attributes]] != 0).any(axis=0)
    return tuple(sorted(order[costs[order]][:count].tolist()))


def in_unit(values: Int64s, name: str) -> int | float:
    """Return the value of an attribute in the unit that it is shown in."""
    attribute = SHOWN_AS[name]
    value = int(values[PLACE[name]])
    return value if attribute.divisor == 1 else value / attribute.divisor


def shown_value(name: str, value: int) -> str:
    """Return a value of an attribute for people, with its unit."""
    attribute = SHOWN_AS[name]
    if attribute.unit == "ms":
        return f"{format_ms(value / attribute.divisor)} ms"
    return format_bytes(value) if attribute.unit == "bytes" else f"{value:,}"
