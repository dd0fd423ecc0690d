"""A view as a tfperf report, with units and shares, and the values of checkpoint variables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.base.units import Unit, counted, format_bytes, format_ms, format_percent
from tfperf.formats.models.checkpoint import Checkpoint, Numbers
from tfperf.formats.models.dtypes import shape_text
from tfperf.formats.models.variables import VARIABLE_OPS
from tfperf.models.tfprof import OptionError
from tfperf.models.tfprof.model import AVERAGE, Model, sum_by
from tfperf.models.tfprof.options import PLACE, TRAINABLE, Options
from tfperf.models.tfprof.reference import ModelText
from tfperf.models.tfprof.step_times import first_step_finding, in_nanos, median_times, nano_values
from tfperf.models.tfprof.views import SCOPE_TYPE, Shown, ShownOps, View, parents, show_ops, show_tree
from tfperf.report.model import (
    ROWS_FOR_PEOPLE,
    Column,
    Data,
    Fact,
    Finding,
    Level,
    Ranked,
    Report,
    Section,
    Table,
    table_of,
)

_TIMES = ("micros", "accelerator_micros", "cpu_micros")
_IN_TEXT = {"bytes": "requested memory", "peak_bytes": "peak memory", "runs": "runs"}


class ReportDetail(Struct, frozen=True, kw_only=True):
    """How a view is reported.

    Unless attributes were `chosen`, the selected attributes that have values are shown. Unless the options say how rows
    are `ordered`, they are sorted by the first attribute that has values. Text shows the `top` rows with the largest
    totals. `every_frame` keeps frames of installed packages in the code view. `notes` explain the numbers.
    """

    chosen: bool = True
    ordered: bool = True
    top: int | None = None
    every_frame: bool = False
    notes: tuple[str, ...] = ()
    checkpoint: Path | None = None
    """Source of the values of variables, for `tensor_value`."""


def view_report(model: Model, view: View, options: Options, detail: ReportDetail) -> Report:
    """Return a view as a report; raises ValueError for a step that was not recorded."""
    model = of_users(model, detail.every_frame)
    values = with_parameters(model, nano_values(model, options.step))
    if not detail.ordered:
        has_values = (name for name in SHOWN_AS if name in options.select and values[PLACE[name]].any())
        options = msgspec.structs.replace(options, order_by=next(has_values, "name"))
    rows = _rows(model, view, in_nanos(options), values)
    attributes = _attributes(rows, options, chosen=detail.chosen)
    table = view_table(model, view, options, rows, attributes, detail.top or ROWS_FOR_PEOPLE)
    source = {"nodes": len(model.names), "step": _step_text(model, options.step)}
    summary = {
        "view": view,
        "step": options.step,
        "steps": [*model.steps],
        **{SHOWN_AS[name].key: in_unit(rows.of_all, name) for name in attributes},
    }
    facts = tuple(_facts(model, options, rows, attributes))
    tables = [table, *_values(model, options, rows, detail.checkpoint)]
    if view == "op" and "input_shapes" in options.select:
        tables.append(inputs_table(model, rows, values))
    section = Section(
        view,
        TITLES[view][0],
        findings=tuple(_findings(model, view, options, rows, attributes)),
        facts=facts,
        tables=tuple(tables),
        notes=(*detail.notes, *_notes(model, values, attributes)),
        is_lead=True,
    )
    return Report(source, summary, (section,))


def of_users(model: Model, every_frame: bool) -> Model:
    """Return the model without frames of installed packages, unless `every_frame` is true."""
    return model if every_frame else msgspec.structs.replace(model, stacks=model.stacks.of_users())


def with_parameters(model: Model, values: Int64s) -> Int64s:
    """Return the values with parameters of trainable variables only, because placeholders have a shape too."""
    values = values.copy()
    values[PLACE["params"], ~trainable(model)] = 0
    return values


def trainable(model: Model) -> Bools:
    """Return which nodes are trainable variables according to the log; all variables if the log lists none."""
    found = np.zeros(len(model.names), np.bool_)
    if TRAINABLE in model.types:
        node, kind = model.type_of
        found[node[kind == model.types.index(TRAINABLE)]] = True
        return found
    found[[number for number, op in enumerate(model.ops) if op in VARIABLE_OPS]] = True
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
    """Return the attributes that have columns, the sort key first."""
    selected = [name for name in SHOWN_AS if name in options.select]
    if "micros" in selected and rows.of_all[PLACE["accelerator_micros"]]:
        selected += [name for name in ("accelerator_micros", "cpu_micros") if name not in selected]
    if "occurrence" in options.select:
        selected += ["runs", "definitions"]
    if not chosen:
        selected = [name for name in selected if rows.of_all[PLACE[name]]] or selected[:1]
    return sorted(selected, key=lambda name: name != options.order_by)


def _step_text(model: Model, step: int) -> str:
    if not model.steps:
        return "none recorded"
    if step != AVERAGE:
        return str(step)
    first, last = min(model.steps), max(model.steps)
    text = f"mean of {counted(len(model.steps), 'recorded step')} ({first} to {last})" if first < last else str(first)
    omitted = "the first" if model.skipped == 1 else f"the first {model.skipped}"
    return f"{text}; --skip-first 0 includes {omitted}" if model.skipped else text


def _values(model: Model, options: Options, rows: Rows, checkpoint: Path | None) -> Iterator[Table]:
    if "tensor_value" not in options.select:
        return
    if checkpoint is None:
        raise OptionError("tensor_value requires the values of variables: pass --checkpoint")
    from tfperf.formats.models.checkpoint import Checkpoint

    names = dict.fromkeys(model.names[node] for nodes in rows.nodes for node in nodes)
    yield table_of("tensor_values", "Values of variables", COLUMNS, values_of(Checkpoint(checkpoint), names))


def _facts(model: Model, options: Options, rows: Rows, attributes: Sequence[str]) -> Iterator[Fact]:
    outermost = np.array(rows.depth, np.int64) == 0
    for name in attributes:
        attribute = SHOWN_AS[name]
        yield Fact(f"all_{attribute.key}", f"All {attribute.title}", in_unit(rows.of_all, name), attribute.unit)
        hidden = int(rows.of_all[PLACE[name]] - rows.total[PLACE[name], outermost].sum())
        if hidden > 0 and options.account_displayed_op_only:
            share = format_percent(100 * hidden / int(rows.of_all[PLACE[name]]))
            text = f"{shown_value(name, hidden)} ({share}%)"
            yield Fact(f"hidden_{attribute.key}", f"Not shown: {attribute.title}", text)


def _findings(model: Model, view: View, options: Options, rows: Rows, attributes: Sequence[str]) -> Iterator[Finding]:
    if not rows.names:
        yield Finding("nothing_shown", "hint", f"no rows match the options ({counted(len(model.names), 'node')})")
    elif attributes and rows.of_all[PLACE[attributes[0]]] > 0:
        yield _largest(model, view, rows, attributes[0])
    if "micros" in attributes and not model.steps:
        text = "no steps were recorded, so times are unknown"
        yield Finding("no_steps", "hint", text, "pass RunMetadata files with --run-meta")
    if "micros" in attributes and (warning := first_step_finding(model, options.step)):
        yield warning


def _largest(model: Model, view: View, rows: Rows, name: str) -> Finding:
    """Return a finding on the row with the largest value outside the rows shown below it (of a leaf: all)."""
    attribute, total = SHOWN_AS[name], rows.total[PLACE[name]]
    above = parents(np.array(rows.depth, np.int64))
    rest = total - sum_by(above[above >= 0], total[above >= 0], len(total))
    row, whole = int(np.argmax(rest)), int(rows.of_all[PLACE[name]])
    share = format_percent(100 * int(rest[row]) / whole)
    of = f"{shown_value(name, int(rest[row]))} of {shown_value(name, whole)}"
    verb = "has" if name == "params" else "takes"
    kind = {"op": "", "code": "line "}.get(view, "")
    text = f"{kind}{rows.names[row]} {verb} {share}% of the {_IN_TEXT.get(name, attribute.title)}: {of}"
    is_itself = int(rest[row]) == int(rows.own[PLACE[name], row])
    kernels = model.ran_as(rows.nodes[row]) if is_itself and name in _TIMES and view != "code" else ""
    if kernels:
        text += f"; it ran as {kernels}, including the ops fused into it"
    return Finding("largest", "info", text)


def _notes(model: Model, values: Int64s, attributes: Sequence[str]) -> Iterator[str]:
    if "params" in attributes and TRAINABLE not in model.types:
        yield (
            "No log lists the trained variables, so all variables of the graph are counted, including counters and "
            "copies in a SavedModel. `tfperf tfprof params` on the saved model counts each variable once."
        )
    if "float_ops" not in attributes:
        return
    yield "Float ops are a lower bound: ops without a known formula (Relu, Cast, fused ops) count as 0."
    not_run = int(values[PLACE["float_ops"], ~model.has_run()].sum())
    if model.steps and not_run:
        yield (
            f"{not_run:,} float ops are from nodes that no step recorded: they were removed from the graph that ran, "
            "or ran as part of another node."
        )


_NS = 1_000_000
TITLES: Mapping[View, tuple[str, str]] = {
    "scope": ("Cost by name scope", "Scopes and nodes"),
    "graph": ("Cost of nodes with their inputs", "Nodes, with inputs one level deeper"),
    "op": ("Cost by op type", "Op types"),
    "code": ("Cost by line of code", "Lines of Python"),
}
_TREES = ("scope", "code")  # the graph view is too deep to show names as a tree


class Attribute(Struct, frozen=True):
    """How a value is displayed: key and title of its column, unit, and divisor of the stored number."""

    key: str
    title: str
    unit: Unit
    divisor: int = 1
    meaning: str = ""


SHOWN_AS: Mapping[str, Attribute] = {
    "micros": Attribute("time_ms", "time", "ms", _NS, "time of accelerator and CPU, which may overlap"),
    "accelerator_micros": Attribute("accelerator_ms", "accelerator", "ms", _NS, "time of kernels"),
    "cpu_micros": Attribute("cpu_ms", "CPU", "ms", _NS, "CPU time of ops; for GPU ops, launch time"),
    "bytes": Attribute("requested_bytes", "requested", "bytes", meaning="memory that the ops requested"),
    "peak_bytes": Attribute("peak_bytes", "peak", "bytes", meaning="sum of the peak memory of each op"),
    "residual_bytes": Attribute("residual_bytes", "residual", "bytes", meaning="memory that the ops left allocated"),
    "output_bytes": Attribute("output_bytes", "output", "bytes", meaning="size of the outputs of the ops"),
    "params": Attribute("params", "parameters", "count", meaning="elements of trainable variables"),
    "float_ops": Attribute("float_ops", "float ops", "count", meaning="float operations, if a formula is known"),
    "runs": Attribute("runs", "runs", "count", meaning="executions"),
    "definitions": Attribute("nodes", "nodes", "count", meaning="nodes of the graph"),
}


class Rows(Struct, frozen=True, kw_only=True):
    """Rows of any view: names, depths, own and total values, and nodes."""

    names: list[str]
    depth: list[int]
    own: Int64s
    total: Int64s
    of_all: Int64s
    """Total of all counted nodes."""
    nodes: list[list[int]]


def view_table(model: Model, view: View, options: Options, rows: Rows, attributes: Sequence[str], top: int) -> Table:
    """Return the table of a view; text shows the `top` rows with the largest totals."""
    columns: list[Column] = []
    data: dict[str, Sequence[Any]] = {"name": _short_names(rows, view), "node": rows.names, "depth": rows.depth}
    title = {"op": "op type", "code": "line of code"}.get(view, "name")
    columns.append(Column("name", title, str, depth_key="depth" if view in _TREES else ""))
    columns.append(Column("node", "full name", str, level="data"))
    level: Level = "brief" if view == "graph" else "data"
    columns.append(Column("depth", "level", int, level=level, meaning="0: outermost"))
    for place, name in enumerate(attributes):
        for column, cells in _value_columns(rows, view, name, is_first=place == 0):
            columns.append(column)
            data[column.key] = cells
    if "micros" in options.select and view in ("scope", "graph") and options.step == AVERAGE and len(model.steps) > 1:
        # For single nodes only: the median of a sum is not the sum of medians.
        medians = np.where(model.has_run(), median_times(model)[0], -1).tolist()
        meaning = "median of the steps that recorded the node"
        columns.append(Column("own_median_ms", "own median", float, "ms", meaning, "data"))
        own = [medians[nodes[0]] if nodes else -1 for nodes in rows.nodes]
        data["own_median_ms"] = [median / _NS if median >= 0 else None for median in own]
    for column, cells in _text_columns(model, view, options, rows):
        columns.append(column)
        data[column.key] = cells
    kept = _largest_rows(rows, attributes, top) if attributes else tuple(range(len(rows.names)))
    left_out = len(rows.names) - len(kept)
    note = f"{counted(left_out, 'smaller row')} omitted; --top {len(rows.names)} shows all" if left_out else ""
    return table_of(view, TITLES[view][1], columns, data, rows_for_people=kept, note_for_people=note)


def _short_names(rows: Rows, view: View) -> list[str]:
    """Return scope names relative to the row above; other names are unchanged."""
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
    """Yield the columns of an attribute: total, share, and own value."""
    attribute, place = SHOWN_AS[name], PLACE[name]
    kind: type[int] | type[float] = int if attribute.divisor == 1 else float
    level: Level = "brief" if is_first else "data"
    below = "" if view == "op" else ", including all rows below"
    meaning = f"{attribute.meaning}{below}"
    yield Column(attribute.key, attribute.title, kind, attribute.unit, meaning), _cells(rows.total[place], attribute)
    whole = int(rows.of_all[place])
    shares = [100 * total / whole if whole else None for total in rows.total[place].tolist()]
    key = attribute.key.removesuffix("_ms").removesuffix("_bytes")
    yield Column(f"{key}_percent", "%", float, "%", "share of the total", level), shares
    if view != "op":
        own = Column(f"own_{attribute.key}", "own", kind, attribute.unit, attribute.meaning, level)
        yield own, _cells(rows.own[place], attribute)


def _cells(values: Int64s, attribute: Attribute) -> list[int] | list[float]:
    if attribute.divisor == 1:
        return [int(value) for value in values.tolist()]
    return [value / attribute.divisor for value in values.tolist()]


def _text_columns(model: Model, view: View, options: Options, rows: Rows) -> Iterator[tuple[Column, Sequence[Any]]]:
    text = ModelText(model)
    if "params" in options.select and view in ("scope", "graph"):
        shapes = [text.shape(nodes[0]) if nodes else "" for nodes in rows.nodes]
        yield Column("shape", "shape", str, level="data", meaning="shape of variables and placeholders"), shapes
    if "device" in options.select:
        yield Column("device", "device", str), [text.devices(nodes).lstrip("|") for nodes in rows.nodes]
    if view != "code" and any(model.kernel):
        meaning = "kernels of another type than the node, which include the time of fused ops"
        yield Column("kernel", "ran as", str, "", meaning, "data"), [model.ran_as(nodes) for nodes in rows.nodes]
    if "op_types" in options.select:
        types = [text.types(nodes) if nodes else "" if view == "code" else SCOPE_TYPE for nodes in rows.nodes]
        yield Column("op_types", "types", str, meaning="op, device, and types from the log"), types
    if "input_shapes" in options.select and view in ("scope", "graph"):
        yield (
            Column("input_shapes", "input shapes", str),
            [text.inputs(nodes[0]) if nodes else "" for nodes in rows.nodes],
        )


_INPUT_COLUMNS = (
    Column("op_type", "op type", str),
    Column("input_shapes", "input shapes", str, meaning="shape of each input; unknown if the graph has none"),
    Column("runs", "runs", int, "count", "executions"),
    Column("nodes", "nodes", int, "count", "nodes of the graph"),
    Column("time_ms", "time", float, "ms", "time of accelerator and CPU, which may overlap"),
)


def inputs_table(model: Model, rows: Rows, values: Int64s) -> Table:
    """Return a row per op type and list of input shapes, the longest time first."""
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
    return table_of("input_shapes", "Op types by input shapes", _INPUT_COLUMNS, data, ranked=Ranked("time_ms"))


def _largest_rows(rows: Rows, attributes: Sequence[str], count: int) -> tuple[int, ...]:
    """Return the rows with the largest totals, and their ancestors; rows without a value are left out."""
    if count >= len(rows.names):
        return tuple(range(len(rows.names)))
    depth = np.array(rows.depth, np.int64)
    order = np.lexsort((np.arange(len(depth)), depth, -rows.total[PLACE[attributes[0]]]))
    costs: Bools = (rows.total[[PLACE[name] for name in attributes]] != 0).any(axis=0)
    return tuple(sorted(order[costs[order]][:count].tolist()))


def in_unit(values: Int64s, name: str) -> int | float:
    """Return the value of an attribute in its display unit."""
    attribute = SHOWN_AS[name]
    value = int(values[PLACE[name]])
    return value if attribute.divisor == 1 else value / attribute.divisor


def shown_value(name: str, value: int) -> str:
    """Format a value of an attribute with its unit."""
    attribute = SHOWN_AS[name]
    if attribute.unit == "ms":
        return f"{format_ms(value / attribute.divisor)} ms"
    return format_bytes(value) if attribute.unit == "bytes" else f"{value:,}"


FIRST = 5  # number of leading values in the table

COLUMNS = (
    Column("name", "Variable", str, meaning="name of the variable"),
    Column("shape", "Shape", str, meaning="dimensions, for example 784x128; `scalar` for none"),
    Column("dtype", "Type", str, meaning="element type", level="full"),
    Column("min", "Min", float, meaning="smallest value, excluding NaN and infinities"),
    Column("max", "Max", float, meaning="largest value, excluding NaN and infinities"),
    Column("mean", "Mean", float, meaning="mean, excluding NaN and infinities"),
    Column("not_finite", "Not finite", int, "count", meaning="values that are NaN or infinite", level="data"),
    Column("first_values", "First values", str, meaning=f"the first {FIRST} values in storage order", level="data"),
)
"""Columns of the table of `values_of`."""


def values_of(checkpoint: Checkpoint, names: Iterable[str] | None = None) -> Data:
    """Return a row per variable in `names` (None: all) that the checkpoint holds, with `COLUMNS` as keys.

    Statistics of types without numbers (strings, float8, complex), and of variables without finite values, are None.
    Raises TfprofInputError.
    """
    wanted = sorted(checkpoint.tensors) if names is None else [name for name in names if name in checkpoint.tensors]
    rows = [_row(checkpoint, name) for name in wanted]
    return {column.key: [row[column.key] for row in rows] for column in COLUMNS}


def _row(checkpoint: Checkpoint, name: str) -> dict[str, Any]:
    tensor = checkpoint.tensors[name]
    row: dict[str, Any] = {"name": name, "shape": shape_text(tensor.shape), "dtype": tensor.dtype}
    row |= dict.fromkeys(("min", "max", "mean", "not_finite", "first_values"))
    if "complex" in tensor.dtype:
        return row
    low, high, total, finite, count, pieces = np.inf, -np.inf, 0.0, 0, 0, 0
    first: Numbers = np.empty(0)
    for _, parts in checkpoint.pieces(name):
        pieces += 1
        for numbers in parts:
            first = first if count else numbers[:FIRST]
            count += len(numbers)
            # The sum of float16 numbers would be float16.
            values = numbers.astype(np.float64, copy=False)
            good = values[np.isfinite(values)]
            finite += len(good)
            low, high = float(good.min(initial=low)), float(good.max(initial=high))
            with np.errstate(over="ignore"):
                total += float(good.sum())
    if count:
        # The first values of the whole tensor may be in several pieces.
        whole = checkpoint.read(name) if pieces > 1 else None
        shown = (first if whole is None else whole.reshape(-1)[:FIRST]).tolist()
        texts = (f"{value:.6g}" if isinstance(value, float) else str(value) for value in shown)
        row |= {"not_finite": count - finite, "first_values": ", ".join(texts)}
    if finite:
        row |= {"min": low, "max": high, "mean": total / finite if math.isfinite(total) else None}
    return row
