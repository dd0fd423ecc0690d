"""The variables of a model, whatever it was saved as: what a file is, and who reads it."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tfperf.formats.wire.other_formats import is_graph, is_meta_graph, is_saved_model, is_text
from tfperf.formats.wire.trace_file import described, open_regular
from tfperf.models.tfprof.attributes import TRAINABLE
from tfperf.models.tfprof.checkpoint import Checkpoint, is_checkpoint
from tfperf.models.tfprof.graph_def import read_graph
from tfperf.models.tfprof.graph_variables import graph_variables
from tfperf.models.tfprof.input_file import InputFile, TfprofInputError
from tfperf.models.tfprof.keras_files import h5_variables, keras_variables
from tfperf.models.tfprof.object_graph import checkpoint_variables, saved_variables
from tfperf.models.tfprof.op_log import read_op_log
from tfperf.models.tfprof.tensors import message
from tfperf.models.tfprof.variables import Variable, judged, named, without_slots

KINDS = "a SavedModel, a .keras, .weights.h5 or .h5 file, a checkpoint, or a graph (GraphDef)"
_HEAD = 1 << 16
_ZIP, _HDF5 = b"PK\x03\x04", b"\x89HDF\r\n\x1a\n"
_TRAINED, _ALL = b"trainable_variables", b"variables"
_READER_NAMES = (
    "The graph of a function knows no names of variables: each is named after the op that first reads it, and its "
    "layer as in the graph, with numbers that Keras appended (hidden1_1)."
)
_UNSAID = {
    "weights": "A weights file does not say which variables are trainable; the .keras file of the model does.",
    "graph": "The graph alone does not say which variables are trainable; the log of tfprof does (--op-log).",
    "function": "What is not updated in this graph may be trained or not: the graph of a training step would say.",
    "checkpoint": "A checkpoint does not say which variables are trainable, but for those that an optimizer lists.",
    "named checkpoint": "Names in a checkpoint do not say which variables are trainable; a .meta file beside it does.",
    "SavedModel": "Layers of Keras say only in the exports of `model.export` which of their variables are trainable.",
    ".keras": "Of layers that are not Keras's own, the file does not say which variables are trainable.",
}


class Found(Struct, frozen=True, kw_only=True):
    """The variables of a source: what it is, and what people should know about it."""

    kind: str
    variables: list[Variable]
    hidden: int = 0
    """Resources that may be variables, of which nothing is known."""
    notes: tuple[str, ...] = ()


def read_variables(path: Path, op_log: Path | None = None) -> Found:
    """Return the variables of a source; `op_log` says which of a graph are trainable. Raises TfprofInputError."""
    found = _read(path, op_log)
    if op_log is not None and "graph" not in found.kind:
        raise TfprofInputError(f"{path} is a {found.kind}, which needs no op log: leave --op-log out")
    return found


def _read(path: Path, op_log: Path | None) -> Found:
    if path.is_dir():
        return _of_folder(path, op_log)
    head = _head(path)
    if head.startswith(_ZIP):
        return _found(".keras file", keras_variables(path), ".keras")
    if head.startswith(_HDF5):
        return _found("weights file (HDF5)", h5_variables(path), "weights")
    if is_checkpoint(path) or path.name == "checkpoint":
        return _of_checkpoint(path)
    return _of_graph(path, op_log)


def _head(path: Path) -> bytes:
    """Return how a file starts; nothing if it cannot be read, as the prefix of a checkpoint."""
    try:
        with open_regular(path) as file:
            return file.read(_HEAD)
    except OSError:
        return b""


def _of_folder(path: Path, op_log: Path | None) -> Found:
    if (path / "saved_model.pb").is_file():
        return _of_graph(path / "saved_model.pb", op_log)
    if (path / "saved_model.pbtxt").is_file():
        raise TfprofInputError(f"{path} is a SavedModel in text: save it again in binary form (saved_model.pb)")
    if (path / "checkpoint").is_file():
        return _of_checkpoint(path)
    if (path / "graph.pb").is_file():
        log = path / "tfprof_log"
        return _of_graph(path / "graph.pb", op_log or (log if log.is_file() else None))
    if is_checkpoint(path):
        return _of_checkpoint(path)
    raise TfprofInputError(
        f"{path} holds no saved_model.pb, checkpoint or graph.pb: name a file, or the prefix of a checkpoint such as "
        f"{path / 'model.ckpt'}"
    )


def _found(kind: str, variables: list[Variable], unsaid: str, hidden: int = 0, *notes: str) -> Found:
    """Return what was found, with a note where the source does not say what is trained."""
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
    # Beside it lies the graph that was saved with it, if nobody moved it.
    meta = Path(str(checkpoint.path).removesuffix(".index") + ".meta")
    if meta.is_file():
        with suppress(TfprofInputError):
            file = InputFile(meta, "GraphDef")
            trained = _trained(file, message(file, "MetaGraphFacts", file.data))
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
        raise TfprofInputError(f"{path} is {what or 'of no format that is known'}: give {KINDS}")
    trained = None if facts is None else _trained(file, facts)
    if op_log is not None:
        trained = _trained_in_log(op_log)
    graph = graph_variables(read_graph(file), trained)
    if not graph.variables:
        why = "its variables may be constants, as in a frozen graph" if not graph.hidden else "functions hide them"
        raise file.refused(f"is a graph without variables ({why}): give the model that it was made of")
    names = (_READER_NAMES,) if graph.is_function else ()
    kind = "graph of a function (GraphDef)" if graph.is_function else kind
    return _found(kind, graph.variables, "function" if graph.is_function else "graph", graph.hidden, *names)


def _trained(file: InputFile, meta_graph: Any) -> Collection[str] | None:
    """Return the names of variables that a collection says are trainable, in graph and checkpoint; None: no list."""
    collections = {each.key: each.value.bytes_list.value for each in meta_graph.collection_def}
    if _ALL not in collections and _TRAINED not in collections:
        return None
    names: set[str] = set()
    for serialized in collections.get(_TRAINED, ()):
        variable = message(file, "VariableDef", serialized)
        for name in (variable.variable_name, variable.save_slice_info_def.full_name):
            names.add(name.decode("utf-8", "replace").removesuffix(":0"))
    return names - {""}


def _trained_in_log(path: Path) -> Collection[str] | None:
    log = read_op_log(InputFile(path, "OpLogProto"))
    trained = {name for name, types in zip(log.names, log.types, strict=True) if TRAINABLE in types}
    return trained or None
