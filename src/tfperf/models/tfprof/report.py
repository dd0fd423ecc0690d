"""A view as a report of tfperf: a table with units and shares, for every format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.base.units import counted, format_percent
from tfperf.models.tfprof.attributes import PLACE, TRAINABLE, OptionError
from tfperf.models.tfprof.graph_variables import VARIABLE_OPS
from tfperf.models.tfprof.model import AVERAGE, Model, sum_by
from tfperf.models.tfprof.options import Options
from tfperf.models.tfprof.step_times import first_step_finding, in_nanos, nano_values
from tfperf.models.tfprof.tree import Shown, parents
from tfperf.models.tfprof.view_columns import (
    ROWS_FOR_PEOPLE,
    SHOWN_AS,
    TITLES,
    Rows,
    in_unit,
    inputs_table,
    shown_value,
    view_table,
)
from tfperf.models.tfprof.views import ShownOps, View, show_ops, show_tree
from tfperf.report.model import Fact, Finding, Report, Section, Table, table_of

_TIMES = ("micros", "accelerator_micros", "cpu_micros")
_IN_TEXT = {"bytes": "requested memory", "peak_bytes": "peak memory", "runs": "runs"}


class ReportDetail(Struct, frozen=True, kw_only=True):
    """How a view is reported.

    Without attributes that were `chosen`, those of the options that have values are shown. Rows that are not `ordered`
    as the options say are sorted by the first attribute that has values. People see the `top` rows
    with the largest totals. `every_frame` keeps frames of installed packages in the code view. `notes` say what the
    numbers are.
    """

    chosen: bool = True
    ordered: bool = True
    top: int | None = None
    every_frame: bool = False
    notes: tuple[str, ...] = ()
    checkpoint: Path | None = None
    """Where the values of variables are, which `tensor_value` selects."""


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
    section = Section(
        view,
        TITLES[view][0],
        findings=tuple(_findings(model, view, options, rows, attributes)),
        facts=facts,
        tables=(table, *_values(model, options, rows, detail.checkpoint), *_inputs(model, view, options, rows, values)),
        notes=(*detail.notes, *_notes(model, values, attributes)),
        is_lead=True,
    )
    return Report(source, summary, (section,))


def of_users(model: Model, every_frame: bool) -> Model:
    """Return the model without frames of installed packages, unless every frame is asked for."""
    return model if every_frame else msgspec.structs.replace(model, stacks=model.stacks.of_users())


def with_parameters(model: Model, values: Int64s) -> Int64s:
    """Return the values with parameters of trainable variables only: placeholders have a shape too."""
    values = values.copy()
    values[PLACE["params"], ~trainable(model)] = 0
    return values


def trainable(model: Model) -> Bools:
    """Tell which nodes are trainable variables: those that the log calls so; without any, all variables."""
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
    """Return the attributes that have columns, the one that rows are sorted by first."""
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
    return f"mean of {counted(len(model.steps), 'recorded step')} ({first} to {last})" if first < last else str(first)


def _values(model: Model, options: Options, rows: Rows, checkpoint: Path | None) -> Iterator[Table]:
    """Yield the table of the values of variables that the rows are, if it is selected."""
    if "tensor_value" not in options.select:
        return
    if checkpoint is None:
        raise OptionError("tensor_value needs the values of variables: give them with --checkpoint")
    from tfperf.models.tfprof.checkpoint import Checkpoint
    from tfperf.models.tfprof.tensor_values import COLUMNS, values_of

    names = dict.fromkeys(model.names[node] for nodes in rows.nodes for node in nodes)
    yield table_of("tensor_values", "Values of variables", COLUMNS, values_of(Checkpoint(checkpoint), names))


def _inputs(model: Model, view: View, options: Options, rows: Rows, values: Int64s) -> Iterator[Table]:
    """Yield the table of what op types are given, if it is selected."""
    if view == "op" and "input_shapes" in options.select:
        yield inputs_table(model, rows, values)


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
    """Yield the answer first: the row that has the most of what rows are sorted by."""
    if not rows.names:
        yield Finding("nothing_shown", "hint", f"no row of {counted(len(model.names), 'node')} passes the options")
    elif attributes and rows.of_all[PLACE[attributes[0]]] > 0:
        yield _largest(model, view, rows, attributes[0])
    if "micros" in attributes and not model.steps:
        text = "no step was recorded, so there are no times"
        yield Finding("no_steps", "hint", text, "give RunMetadata files with --run-meta")
    if "micros" in attributes and (warning := first_step_finding(model, options.step)):
        yield warning


def _largest(model: Model, view: View, rows: Rows, name: str) -> Finding:
    """Say which row has the most that no row shown below it has: of a leaf that is all, whatever is hidden in it."""
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
        text += f"; it ran as {kernels}, with the ops that were fused into it"
    return Finding("largest", "info", text)


def _notes(model: Model, values: Int64s, attributes: Sequence[str]) -> Iterator[str]:
    if "params" in attributes and TRAINABLE not in model.types:
        yield (
            "No log says which variables are trained, so all variables of the graph count: counters, and copies in a "
            "SavedModel too. `tfperf tfprof params` on the saved model counts each once."
        )
    if "float_ops" not in attributes:
        return
    yield "Float ops are a lower bound: ops without a known formula (Relu, Cast, fused ops) count as 0."
    not_run = int(values[PLACE["float_ops"], ~model.has_run()].sum())
    if model.steps and not_run:
        yield (
            f"{not_run:,} float ops are those of nodes that no step recorded: they were left out of the graph that "
            "ran, or run as a part of another one."
        )
