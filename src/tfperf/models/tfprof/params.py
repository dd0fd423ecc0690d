"""`tfperf tfprof params`: the parameters of a saved model by layer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.units import counted, format_percent, listed
from tfperf.formats.models.checkpoint import Checkpoint, is_checkpoint, message
from tfperf.formats.models.dtypes import shape_text
from tfperf.formats.models.graph_def import read_graph
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.formats.models.keras_files import h5_variables, keras_variables
from tfperf.formats.models.variables import (
    Variable,
    checkpoint_variables,
    graph_variables,
    judged,
    named,
    saved_variables,
    without_slots,
)
from tfperf.formats.wire.other_formats import is_graph, is_meta_graph, is_saved_model, is_text
from tfperf.formats.wire.trace_file import described, open_regular
from tfperf.models.tfprof.op_log import read_op_log
from tfperf.models.tfprof.options import TRAINABLE
from tfperf.report.model import Column, Fact, Finding, Ranked, Report, Section, Table, table_of

_NO_LAYER = "(no layer)"
_UNKNOWN = "unknown"
_MOST_SHAPES = 4
_NOT_COUNTED_ROWS = 5
_KEYS = {"yes": "trainable_params", "no": "non_trainable_params", _UNKNOWN: "unknown_params"}

_SHARE = Column("params_percent", "%", float, "%", "share of all parameters")
_BYTES = Column("size_bytes", "size", int, "bytes", "bytes of the values")
_SHAPE = Column("shape", "shape", str, meaning="dimensions; for a layer, the dimensions of each variable")
_DTYPE = Column("dtype", "type", str, meaning="element type")
_TRAINED = Column(
    "trainable",
    "trainable",
    str,
    meaning="yes, no, or unknown if the source does not record it; partly: only some variables are trained",
)
_PARAMS = Column("params", "parameters", int, "count", "elements of the variables, excluding optimizer variables")
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
    Column("why", "why", str, meaning="optimizer: optimizer variable; counter or seed: step counter or random seed"),
    Column("elements", "elements", int, "count"),
    _BYTES,
    _DTYPE,
    _SHAPE,
)


def params_report(path: Path, op_log: Path | None = None) -> Report:
    """Return the parameters of a model by layer, the largest first.

    `path` is a SavedModel, a `.keras`, `.weights.h5` or `.h5` file, a checkpoint, or a graph; tfprof's `op_log` lists
    the trainable variables of a graph. `summary` holds the totals. Raises TfprofInputError.
    """
    found = read_variables(path, op_log)
    counted_in = [variable for variable in found.variables if not variable.apart]
    apart = [variable for variable in found.variables if variable.apart]
    order = sorted(counted_in, key=lambda variable: (-(variable.elements or 0), variable.path))
    total = _elements(counted_in)
    rows = [_row([each], total) | {"variable": each.path, "layer": each.layer} for each in order]
    layers: dict[str, list[Variable]] = {}
    for variable in counted_in:
        layers.setdefault(variable.layer, []).append(variable)
    largest_first = sorted(layers, key=lambda layer: (-_elements(layers[layer]), layer))
    of_layers = [_row(layers[layer], total) | {"layer": layer or _NO_LAYER} for layer in largest_first]
    tables = [
        _table("params_layers", "Layers", _LAYERS, of_layers, ranked=Ranked("params"), bar_key="params"),
        _table("params_variables", "Variables", _EACH, rows, ranked=Ranked("params"), level="data"),
    ]
    if apart:
        last = sorted(apart, key=lambda variable: (-(variable.elements or 0), variable.path))
        cells = [
            _row([each], 0) | {"variable": each.path, "why": each.apart, "elements": each.elements} for each in last
        ]
        ranked = Ranked("elements", _NOT_COUNTED_ROWS)
        tables.append(_table("params_not_counted", "Excluded", _APART, cells, ranked=ranked))
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
    sizes = [variable.bytes for variable in variables]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _without_shape(variables: Sequence[Variable]) -> int:
    return sum(variable.elements is None for variable in variables)


def _split(variables: Sequence[Variable]) -> dict[str, int]:
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
    titles = {"yes": "Trainable", "no": "Non-trainable", _UNKNOWN: "Trainable unknown"}
    for said, title in titles.items():
        if split[said] and total:
            share = format_percent(100 * split[said] / total)
            yield Fact(_KEYS[said], title, split[said], "count", "" if split[said] == total else f"{share}%")
    yield Fact("size_bytes", "Size", _size(counted_in), "bytes")
    if apart:
        why = ", ".join(sorted({variable.apart for variable in apart}))
        yield Fact("not_counted", "Excluded", counted(len(apart), "variable"), note=why)


def _findings(found: Found, counted_in: Sequence[Variable]) -> Iterator[Finding]:
    if unknown := _without_shape(counted_in):
        text = f"the total may be wrong: {counted(unknown, 'variable has', 'variables have')} no shape in the source"
        action = "write the graph with as_graph_def(add_shapes=True), or pass the checkpoint"
        yield Finding("params_without_shape", "problem", text, action)
    if found.hidden:
        what = counted(found.hidden, "resource goes", "resources go")
        text = f"the total may be wrong: {what} only into functions (loops, conditions) and may be variables"
        yield Finding("params_hidden", "problem", text, "pass the saved model or a checkpoint instead")
    if not counted_in:
        yield Finding("params_none", "hint", "the source has no model parameters")


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


KINDS = "a SavedModel, a .keras, .weights.h5 or .h5 file, a checkpoint, or a graph (GraphDef)"
_HEAD = 1 << 16
_ZIP, _HDF5 = b"PK\x03\x04", b"\x89HDF\r\n\x1a\n"
_TRAINED_KEY, _ALL = b"trainable_variables", b"variables"
_READER_NAMES = (
    "A function graph has no variable names: each variable has the name of the op that first reads it, and its "
    "layer has the name in the graph, with numbers that Keras appended (hidden1_1)."
)
_UNSAID = {
    "weights": "A weights file does not record which variables are trainable; the .keras file of the model does.",
    "graph": "The graph alone does not record which variables are trainable; the tfprof log does (--op-log).",
    "function": "Variables that this graph does not update may be trained or not; a graph of a training step shows it.",
    "checkpoint": "A checkpoint does not record which variables are trainable, except those that an optimizer lists.",
    "named checkpoint": "Names in a checkpoint do not show which variables are trainable; an adjacent .meta file does.",
    "SavedModel": "Keras layers record which variables are trainable only in exports of `model.export`.",
    ".keras": "For custom layers, the file does not record which variables are trainable.",
}


class Found(Struct, frozen=True, kw_only=True):
    """The variables of a source, its kind, and notes for the report."""

    kind: str
    variables: list[Variable]
    hidden: int = 0  # number of resources that may be variables but have no known shape or type
    notes: tuple[str, ...] = ()


def read_variables(path: Path, op_log: Path | None = None) -> Found:
    """Return the variables of a source; `op_log` lists the trainable ones of a graph. Raises TfprofInputError."""
    found = _read(path, op_log)
    if op_log is not None and "graph" not in found.kind:
        raise TfprofInputError(f"{path} is a {found.kind}, which does not use an op log: omit --op-log")
    return found


def _read(path: Path, op_log: Path | None) -> Found:
    if path.is_dir():
        return _of_folder(path, op_log)
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD)
    except OSError:  # for example, the prefix of a checkpoint
        head = b""
    if head.startswith(_ZIP):
        return _found(".keras file", keras_variables(path), ".keras")
    if head.startswith(_HDF5):
        return _found("weights file (HDF5)", h5_variables(path), "weights")
    if is_checkpoint(path) or path.name == "checkpoint":
        return _of_checkpoint(path)
    return _of_graph(path, op_log)


def _of_folder(path: Path, op_log: Path | None) -> Found:
    if (path / "saved_model.pb").is_file():
        return _of_graph(path / "saved_model.pb", op_log)
    if (path / "saved_model.pbtxt").is_file():
        raise TfprofInputError(f"{path} is a text SavedModel: save it in binary form (saved_model.pb)")
    if (path / "checkpoint").is_file():
        return _of_checkpoint(path)
    if (path / "graph.pb").is_file():
        log = path / "tfprof_log"
        return _of_graph(path / "graph.pb", op_log or (log if log.is_file() else None))
    if is_checkpoint(path):
        return _of_checkpoint(path)
    raise TfprofInputError(
        f"{path} has no saved_model.pb, checkpoint or graph.pb: pass a file, or the prefix of a checkpoint such as "
        f"{path / 'model.ckpt'}"
    )


def _found(kind: str, variables: list[Variable], unsaid: str, hidden: int = 0, *notes: str) -> Found:
    """Return the variables, with a note if the source does not record which of them are trainable."""
    if any(not variable.apart and variable.trainable is None for variable in variables):
        notes = (*notes, _UNSAID[unsaid])
    return Found(kind=kind, variables=variables, hidden=hidden, notes=notes)


def _of_checkpoint(path: Path) -> Found:
    checkpoint = Checkpoint(path)
    objects = checkpoint.object_graph()
    if objects is not None:
        variables = checkpoint_variables(checkpoint.file, objects, checkpoint.tensors)
        return _found("checkpoint of objects (tf.train.Checkpoint)", variables, "checkpoint")
    listed = {name: tensor for name, tensor in checkpoint.tensors.items() if tensor.dtype != "string"}
    trained: Collection[str] | None = None
    # The graph is saved in the same folder as the checkpoint, unless a file was moved.
    meta = Path(str(checkpoint.path).removesuffix(".index") + ".meta")
    if meta.is_file():
        with suppress(TfprofInputError):
            file = InputFile(meta, "GraphDef")
            trained = _trained_names(file, message(file, "MetaGraphFacts", file.data))
    variables = without_slots(judged([named(name, each.shape, each.dtype) for name, each in listed.items()]))
    if trained is not None:
        variables = [each if each.apart else replace(each, trainable=each.path in trained) for each in variables]
    return _found("checkpoint", variables, "named checkpoint")


def _of_graph(path: Path, op_log: Path | None) -> Found:
    file = InputFile(path, "GraphDef")
    head = file.data[:_HEAD]
    facts: Any = None
    kind = "graph (GraphDef)"
    if is_saved_model(head):
        kind, metas = "SavedModel", message(file, "SavedModelFacts", file.data).meta_graphs
        objects = next((meta.object_graph_def for meta in metas if meta.object_graph_def), b"")
        if objects:
            return _found(kind, saved_variables(file, objects), "SavedModel")
        kind, facts = "SavedModel of TensorFlow 1 (graph)", metas[0]
    elif is_meta_graph(head):
        kind, facts = "graph (MetaGraphDef)", message(file, "MetaGraphFacts", file.data)
    elif not is_graph(head) and not (file.data and is_text(head)):
        what = described(head).partition(";")[0].removesuffix(", not an XSpace") if head else "empty"
        raise TfprofInputError(f"{path} is {what or 'not in a known format'}: pass {KINDS}")
    trained = None if facts is None else _trained_names(file, facts)
    if op_log is not None:
        log = read_op_log(InputFile(op_log, "OpLogProto"))
        trained = {name for name, types in zip(log.names, log.types, strict=True) if TRAINABLE in types} or None
    graph = graph_variables(read_graph(file), trained)
    if not graph.variables:
        why = (
            "its variables may be constants, as in a frozen graph" if not graph.hidden else "they are inside functions"
        )
        raise file.refused(f"is a graph without variables ({why}): pass the model that it was made from")
    names = (_READER_NAMES,) if graph.is_function else ()
    kind = "graph of a function (GraphDef)" if graph.is_function else kind
    return _found(kind, graph.variables, "function" if graph.is_function else "graph", graph.hidden, *names)


def _trained_names(file: InputFile, meta_graph: Any) -> Collection[str] | None:
    """Return the names in a collection of trainable variables, in graph and checkpoint; None without the collection."""
    collections = {each.key: each.value.bytes_list.value for each in meta_graph.collection_def}
    if _ALL not in collections and _TRAINED_KEY not in collections:
        return None
    names: set[str] = set()
    for serialized in collections.get(_TRAINED_KEY, ()):
        variable = message(file, "VariableDef", serialized)
        for name in (variable.variable_name, variable.save_slice_info_def.full_name):
            names.add(name.decode("utf-8", "replace").removesuffix(":0"))
    return names - {""}
