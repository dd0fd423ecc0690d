"""A view as a report of tfperf: a table with units and shares, for every format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from tfperf.arrays import Bools, Int64s
from tfperf.report.model import Column, Fact, Finding, Level, Report, Section, Table, table_of
from tfperf.tfprof.model import AVERAGE, PLACE, Model
from tfperf.tfprof.options import Options
from tfperf.tfprof.reference_text import ModelText
from tfperf.tfprof.tree import Shown
from tfperf.tfprof.views import SCOPE_TYPE, ShownOps, View, show_ops, show_tree
from tfperf.units import Unit, counted, format_bytes, format_ms, format_percent

_ROWS_FOR_PEOPLE = 40
_TRAINABLE = "_trainable_variables"
_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp", "AutoReloadVariable"})
_TITLES: Mapping[View, tuple[str, str]] = {
    "scope": ("Cost by name scope", "Scopes and nodes"),
    "graph": ("Cost of nodes with what feeds them", "Nodes, what feeds them one level deeper"),
    "op": ("Cost by op type", "Op types"),
    "code": ("Cost by line of code", "Lines that built the graph"),
}
_TREES = ("scope", "code")
"""Views whose names stand as a tree; what feeds what goes too deep for that."""


class _Attribute(Struct, frozen=True):
    """How a value is shown: the key and title of its column, its unit, and what the stored number is divided by."""

    key: str
    title: str
    unit: Unit
    divisor: int = 1
    meaning: str = ""


_ATTRIBUTES: Mapping[str, _Attribute] = {
    "micros": _Attribute("time_ms", "time", "ms", 1000, "time of accelerator and CPU; both may run at once"),
    "accelerator_micros": _Attribute("accelerator_ms", "accelerator", "ms", 1000, "time of kernels"),
    "cpu_micros": _Attribute("cpu_ms", "CPU", "ms", 1000, "time of ops on the CPU; of a GPU's ops, of launching them"),
    "bytes": _Attribute("requested_bytes", "requested", "bytes", meaning="memory that the ops asked for"),
    "peak_bytes": _Attribute("peak_bytes", "peak", "bytes", meaning="sum of the most that each op held at once"),
    "residual_bytes": _Attribute("residual_bytes", "residual", "bytes", meaning="memory that the ops left allocated"),
    "output_bytes": _Attribute("output_bytes", "output", "bytes", meaning="size of what the ops put out"),
    "params": _Attribute("params", "parameters", "count", meaning="elements of trainable variables"),
    "float_ops": _Attribute("float_ops", "float ops", "count", meaning="float operations, where a formula is known"),
    "runs": _Attribute("runs", "runs", "count", meaning="executions"),
    "definitions": _Attribute("nodes", "nodes", "count", meaning="nodes of the graph"),
}


_IN_TEXT = {"bytes": "requested memory", "peak_bytes": "peak memory", "runs": "runs"}


class Rows(Struct, frozen=True, kw_only=True):
    """The rows of any view: their names, how deep they stand, own and total values, and the nodes of each."""

    names: list[str]
    depth: list[int]
    own: Int64s
    total: Int64s
    of_all: Int64s
    """The total of all that counts."""
    nodes: list[list[int]]


def view_report(
    model: Model,
    view: View,
    options: Options,
    *,
    chosen: bool = True,
    top: int | None = None,
    every_frame: bool = False,
) -> Report:
    """Return a view as a report; without attributes that were `chosen`, those of the options that have values.

    People see the `top` rows with the largest totals. `every_frame` keeps frames of installed packages in the code
    view. Raises ValueError for a step that was not recorded.
    """
    check_step(model, options.step)
    if options.order_by == "name" and not chosen:
        options = msgspec.structs.replace(options, order_by="micros" if model.steps else "params")
    model = of_users(model, every_frame)
    values = with_parameters(model, model.values(options.step))
    rows = _rows(model, view, options, values)
    attributes = _attributes(rows, options, chosen=chosen)
    table = _table(model, view, options, rows, attributes, top or _ROWS_FOR_PEOPLE)
    source = {"nodes": len(model.names), "step": _step_text(model, options.step)}
    summary = {
        "view": view,
        "step": options.step,
        "steps": [*model.steps],
        **{_ATTRIBUTES[name].key: _scaled(rows.of_all, name) for name in attributes},
    }
    facts = tuple(_facts(model, options, rows, attributes))
    section = Section(
        view,
        _TITLES[view][0],
        findings=tuple(_findings(model, view, rows, attributes)),
        facts=facts,
        tables=(table,),
        notes=_notes(attributes),
        is_lead=True,
    )
    return Report(source, summary, (section,))


def of_users(model: Model, every_frame: bool) -> Model:
    """Return the model without frames of installed packages, unless every frame is asked for."""
    return model if every_frame else msgspec.structs.replace(model, stacks=model.stacks.of_users())


def check_step(model: Model, step: int) -> None:
    """Raise ValueError for a step that was not recorded."""
    if step != AVERAGE and step not in model.steps:
        recorded = ", ".join(map(str, [*model.steps][:10])) or "none"
        more = f" and {len(model.steps) - 10} more" if len(model.steps) > 10 else ""
        raise ValueError(f"step {step} was not recorded; recorded steps: {recorded}{more}")


def with_parameters(model: Model, values: Int64s) -> Int64s:
    """Return the values with parameters of trainable variables only: placeholders have a shape too."""
    values = values.copy()
    values[PLACE["params"], ~trainable(model)] = 0
    return values


def trainable(model: Model) -> Bools:
    """Tell which nodes are trainable variables: those that the log calls so; without any, all variables."""
    found = np.zeros(len(model.names), np.bool_)
    if _TRAINABLE in model.types:
        node, kind = model.type_of
        found[node[kind == model.types.index(_TRAINABLE)]] = True
        return found
    found[[number for number, op in enumerate(model.ops) if op in _VARIABLES]] = True
    return found


def _rows(model: Model, view: View, options: Options, values: Int64s) -> Rows:
    if view == "op":
        ops: ShownOps = show_ops(model, options, values)
        return Rows(
            names=ops.names,
            depth=[0] * len(ops.names),
            own=ops.own,
            total=ops.own,
            of_all=ops.all_total,
            nodes=[nodes.tolist() for nodes in ops.nodes],
        )
    shown: Shown = show_tree(model, view, options, values)
    tree = shown.tree
    nodes = [[node] if node >= 0 else [] for node in tree.node.tolist()]
    if view == "code":
        nodes = [shown.built.get(frame, []) for frame in tree.node.tolist()]
    return Rows(
        names=tree.names[1:],
        depth=(tree.depth[1:] - 1).tolist(),
        own=np.where(tree.accounted, tree.own, 0)[:, 1:],
        total=shown.total[:, 1:],
        of_all=shown.root_total,
        nodes=nodes[1:],
    )


def _attributes(rows: Rows, options: Options, *, chosen: bool) -> list[str]:
    """Return the attributes that have columns, the one that rows are sorted by first."""
    selected = [name for name in _ATTRIBUTES if name in options.select]
    if "micros" in selected and rows.of_all[PLACE["accelerator_micros"]]:
        selected += [name for name in ("accelerator_micros", "cpu_micros") if name not in selected]
    if "occurrence" in options.select:
        selected += ["runs", "definitions"]
    if not chosen:
        selected = [name for name in selected if rows.of_all[PLACE[name]]] or selected[:1]
    return sorted(selected, key=lambda name: name != options.order_by)


def _table(model: Model, view: View, options: Options, rows: Rows, attributes: Sequence[str], top: int) -> Table:
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
    for column, cells in _text_columns(model, view, options, rows):
        columns.append(column)
        data[column.key] = cells
    kept = _largest(rows, attributes, top) if attributes else tuple(range(len(rows.names)))
    left_out = len(rows.names) - len(kept)
    note = f"{counted(left_out, 'smaller row')} left out; --top {len(rows.names)} shows all" if left_out else ""
    return table_of(view, _TITLES[view][1], columns, data, note=note, rows_for_people=kept)


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
    attribute, place = _ATTRIBUTES[name], PLACE[name]
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


def _cells(values: Int64s, attribute: _Attribute) -> list[int] | list[float]:
    if attribute.divisor == 1:
        return [int(value) for value in values.tolist()]
    return [value / attribute.divisor for value in values.tolist()]


def _text_columns(model: Model, view: View, options: Options, rows: Rows) -> Iterator[tuple[Column, Sequence[Any]]]:
    text = ModelText(model)
    if "params" in options.select and view in ("scope", "graph"):
        shapes = [text.shape(nodes[0]) if nodes else "" for nodes in rows.nodes]
        yield Column("shape", "shape", str, level="data", meaning="of variables and placeholders"), shapes
    if "device" in options.select:
        yield Column("device", "device", str), [text.devices(nodes).lstrip("|") for nodes in rows.nodes]
    if "op_types" in options.select:
        types = [text.types(nodes) if nodes else "" if view == "code" else SCOPE_TYPE for nodes in rows.nodes]
        yield Column("op_types", "types", str, meaning="op, device, and what the log says"), types
    if "input_shapes" in options.select and view in ("scope", "graph"):
        yield (
            Column("input_shapes", "input shapes", str),
            [text.inputs(nodes[0]) if nodes else "" for nodes in rows.nodes],
        )


def _largest(rows: Rows, attributes: Sequence[str], count: int) -> tuple[int, ...]:
    """Return the rows with the largest totals, which have all above them among them; rows without any are left out."""
    if count >= len(rows.names):
        return tuple(range(len(rows.names)))
    depth = np.array(rows.depth, np.int64)
    order = np.lexsort((np.arange(len(depth)), depth, -rows.total[PLACE[attributes[0]]]))
    costs: Bools = (rows.total[[PLACE[name] for name in attributes]] != 0).any(axis=0)
    return tuple(sorted(order[costs[order]][:count].tolist()))


def _scaled(values: Int64s, name: str) -> int | float:
    attribute = _ATTRIBUTES[name]
    value = int(values[PLACE[name]])
    return value if attribute.divisor == 1 else value / attribute.divisor


def shown_value(name: str, value: int) -> str:
    """Return a value of an attribute for people, with its unit."""
    attribute = _ATTRIBUTES[name]
    if attribute.unit == "ms":
        return f"{format_ms(value / attribute.divisor)} ms"
    return format_bytes(value) if attribute.unit == "bytes" else f"{value:,}"


def _step_text(model: Model, step: int) -> str:
    if not model.steps:
        return "none recorded"
    if step != AVERAGE:
        return str(step)
    first, last = min(model.steps), max(model.steps)
    return f"mean of {counted(len(model.steps), 'recorded step')} ({first} to {last})" if first < last else str(first)


def _facts(model: Model, options: Options, rows: Rows, attributes: Sequence[str]) -> Iterator[Fact]:
    for name in attributes:
        attribute = _ATTRIBUTES[name]
        yield Fact(f"all_{attribute.key}", f"All {attribute.title}", _scaled(rows.of_all, name), attribute.unit)
        hidden = int(rows.of_all[PLACE[name]] - rows.own[PLACE[name]].sum())
        if hidden > 0 and options.account_displayed_op_only:
            share = format_percent(100 * hidden / int(rows.of_all[PLACE[name]]))
            text = f"{shown_value(name, hidden)} ({share}%)"
            yield Fact(f"hidden_{attribute.key}", f"Not shown: {attribute.title}", text)


def _findings(model: Model, view: View, rows: Rows, attributes: Sequence[str]) -> Iterator[Finding]:
    """Yield the answer first: the row that itself has the most of what rows are sorted by."""
    if not rows.names:
        yield Finding("nothing_shown", "hint", f"no row of {counted(len(model.names), 'node')} passes the options")
    elif attributes and rows.of_all[PLACE[attributes[0]]] > 0:
        yield _largest_own(view, rows, attributes[0])
    if "micros" in attributes and not model.steps:
        text = "no step was recorded, so there are no times"
        yield Finding("no_steps", "hint", text, "give RunMetadata files with --run-meta")


def _largest_own(view: View, rows: Rows, name: str) -> Finding:
    attribute, own = _ATTRIBUTES[name], rows.own[PLACE[name]]
    row, whole = int(np.argmax(own)), int(rows.of_all[PLACE[name]])
    share = format_percent(100 * int(own[row]) / whole)
    of = f"{shown_value(name, int(own[row]))} of {shown_value(name, whole)}"
    verb = "has" if name == "params" else "takes"
    kind = {"op": "", "code": "line "}.get(view, "")
    text = f"{kind}{rows.names[row]} {verb} {share}% of the {_IN_TEXT.get(name, attribute.title)}: {of}"
    return Finding("largest", "info", text)


def _notes(attributes: Sequence[str]) -> tuple[str, ...]:
    if "float_ops" not in attributes:
        return ()
    return ("Float ops are a lower bound: ops without a known formula (Relu, Cast, fused ops) count as 0.",)
