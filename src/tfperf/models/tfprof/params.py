"""`tfperf tfprof params`: the parameters of a model by layer, from whatever it was saved as."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tfperf.base.units import counted, format_percent, listed
from tfperf.models.tfprof.params_source import Found, read_variables
from tfperf.models.tfprof.tensors import shape_text
from tfperf.models.tfprof.variables import Variable
from tfperf.report.model import Column, Fact, Finding, Ranked, Report, Section, Table, table_of

_NO_LAYER = "(no layer)"
_UNKNOWN = "unknown"
_MOST_SHAPES = 4
_NOT_COUNTED_ROWS = 5
_KEYS = {"yes": "trainable_params", "no": "non_trainable_params", _UNKNOWN: "unknown_params"}

_SHARE = Column("params_percent", "%", float, "%", "share of all parameters")
_BYTES = Column("size_bytes", "size", int, "bytes", "bytes of the values")
_SHAPE = Column("shape", "shape", str, meaning="dimensions; of a layer, those of each variable")
_DTYPE = Column("dtype", "type", str, meaning="type of an element")
_TRAINED = Column(
    "trainable",
    "trainable",
    str,
    meaning="yes, no, or unknown, where the source does not say; partly: some variables are",
)
_PARAMS = Column("params", "parameters", int, "count", "elements of the variables; not those of optimizers")
_VARIABLES = Column("variables", "variables", int, "count", "variables in the layer", "data")
_LAYERS = (Column("layer", "layer", str), _PARAMS, _SHARE, _BYTES, _TRAINED, _DTYPE, _SHAPE, _VARIABLES)
_EACH = (
    Column("variable", "variable", str),
    Column("layer", "layer", str),
    _PARAMS,
    _SHARE,
    _BYTES,
    _TRAINED,
    _DTYPE,
    _SHAPE,
)
_APART = (
    Column("variable", "variable", str),
    Column(
        "why", "why", str, meaning="optimizer: it belongs to one; counter or seed: it counts steps or seeds numbers"
    ),
    Column("elements", "elements", int, "count"),
    _BYTES,
    _DTYPE,
    _SHAPE,
)


def params_report(path: Path, op_log: Path | None = None) -> Report:
    """Return the parameters of a model by layer, the largest first.

    `path` is a SavedModel, a `.keras`, `.weights.h5` or `.h5` file, a checkpoint, or a graph; `op_log`, the log of
    tfprof, says which variables of a graph are trained. `summary` holds the totals. Raises TfprofInputError.
    """
    found = read_variables(path, op_log)
    counted_in = [variable for variable in found.variables if not variable.apart]
    apart = [variable for variable in found.variables if variable.apart]
    tables = [_layers_table(counted_in), _variables_table(counted_in)]
    if apart:
        tables.append(_apart_table(apart))
    section = Section(
        "params",
        "Parameters by layer",
        findings=tuple(_findings(found, counted_in)),
        facts=tuple(_facts(counted_in, apart)),
        tables=tuple(tables),
        notes=found.notes,
        is_lead=True,
    )
    return Report({"path": str(path), "kind": found.kind}, _summary(found, counted_in, apart), (section,))


def _elements(variables: Sequence[Variable]) -> int:
    return sum(variable.elements or 0 for variable in variables)


def _size(variables: Sequence[Variable]) -> int | None:
    """Return the bytes of all variables; None if that of one is not known."""
    sizes = [variable.bytes for variable in variables]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _without_shape(variables: Sequence[Variable]) -> int:
    return sum(variable.elements is None for variable in variables)


def _split(variables: Sequence[Variable]) -> dict[str, int]:
    """Return how many parameters are trained, are not, and how many nobody knows that of."""
    split = {"yes": 0, "no": 0, _UNKNOWN: 0}
    for variable in variables:
        split[_trained([variable])] += variable.elements or 0
    return split


def _trained(variables: Sequence[Variable]) -> str:
    said = {variable.trainable for variable in variables}
    if len(said) > 1:
        return _UNKNOWN if None in said else "partly"
    return {True: "yes", False: "no", None: _UNKNOWN}[said.pop()]


def _summary(found: Found, counted_in: Sequence[Variable], apart: Sequence[Variable]) -> dict[str, Any]:
    split = _split(counted_in)
    return {
        "kind": found.kind,
        "params": _elements(counted_in),
        **{_KEYS[said]: number for said, number in split.items()},
        "size_bytes": _size(counted_in),
        "layers": len({variable.layer for variable in counted_in}),
        "variables": len(counted_in),
        "not_counted_variables": len(apart),
        "not_counted_bytes": _size(apart),
        "variables_without_shape": _without_shape(counted_in) + found.hidden,
    }


def _facts(counted_in: Sequence[Variable], apart: Sequence[Variable]) -> Iterator[Fact]:
    total, split = _elements(counted_in), _split(counted_in)
    yield Fact("params", "Parameters", total, "count")
    titles = {"yes": "Trainable", "no": "Non-trainable", _UNKNOWN: "Trainable or not: unknown"}
    for said, title in titles.items():
        if split[said] and total:
            share = format_percent(100 * split[said] / total)
            yield Fact(_KEYS[said], title, split[said], "count", "" if split[said] == total else f"{share}%")
    yield Fact("size_bytes", "Size", _size(counted_in), "bytes")
    if apart:
        why = ", ".join(sorted({variable.apart for variable in apart}))
        yield Fact("not_counted", "Not counted", counted(len(apart), "variable"), note=why)


def _findings(found: Found, counted_in: Sequence[Variable]) -> Iterator[Finding]:
    if unknown := _without_shape(counted_in):
        text = f"the total may be wrong: {counted(unknown, 'variable has', 'variables have')} no shape in the source"
        action = "write the graph with as_graph_def(add_shapes=True), or give the checkpoint"
        yield Finding("params_without_shape", "problem", text, action)
    if found.hidden:
        what = counted(found.hidden, "resource goes", "resources go")
        text = f"the total may be wrong: {what} only into functions (loops, conditions), and may be variables"
        yield Finding("params_hidden", "problem", text, "give the saved model or a checkpoint instead")
    if not counted_in:
        yield Finding("params_none", "hint", "no variable in it is a parameter of a model")


def _layers_table(variables: Sequence[Variable]) -> Table:
    layers: dict[str, list[Variable]] = {}
    for variable in variables:
        layers.setdefault(variable.layer, []).append(variable)
    order = sorted(layers, key=lambda layer: (-_elements(layers[layer]), layer))
    total = _elements(variables)
    rows = [_row(layers[layer], total) | {"layer": layer or _NO_LAYER} for layer in order]
    return _table("params_layers", "Layers", _LAYERS, rows, ranked=Ranked("params"), bar_key="params")


def _variables_table(variables: Sequence[Variable]) -> Table:
    order = sorted(variables, key=lambda variable: (-(variable.elements or 0), variable.path))
    total = _elements(variables)
    rows = [_row([each], total) | {"variable": each.path, "layer": each.layer} for each in order]
    return _table("params_variables", "Variables", _EACH, rows, ranked=Ranked("params"), level="data")


def _apart_table(variables: Sequence[Variable]) -> Table:
    order = sorted(variables, key=lambda variable: (-(variable.elements or 0), variable.path))
    rows = [_row([each], 0) | {"variable": each.path, "why": each.apart, "elements": each.elements} for each in order]
    return _table("params_not_counted", "Not counted", _APART, rows, ranked=Ranked("elements", _NOT_COUNTED_ROWS))


def _row(variables: Sequence[Variable], total: int) -> dict[str, Any]:
    known = all(variable.elements is not None for variable in variables)
    params = _elements(variables) if known else None
    largest_first = sorted(variables, key=lambda variable: -(variable.elements or 0))
    shapes = [_UNKNOWN if each.shape is None else shape_text(each.shape) for each in largest_first]
    return {
        "params": params,
        "params_percent": 100 * params / total if params is not None and total else None,
        "size_bytes": _size(variables),
        "trainable": _trained(variables),
        "dtype": ", ".join(sorted({variable.dtype or _UNKNOWN for variable in variables})),
        "shape": listed(shapes, _MOST_SHAPES),
        "variables": len(variables),
    }


def _table(
    name: str, title: str, columns: tuple[Column, ...], rows: Sequence[dict[str, Any]], **attributes: Any
) -> Table:
    data = {column.key: [row[column.key] for row in rows] for column in columns}
    return table_of(name, title, columns, data, **attributes)
