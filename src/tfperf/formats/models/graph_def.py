"""TensorFlow graphs: GraphDef (binary or text), MetaGraphDef, SavedModel."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import numpy as np
from google.protobuf import text_format
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.formats.models.dtypes import Shapes, dtype_number
from tfperf.formats.models.input_file import InputFile
from tfperf.formats.models.messages import TENSORFLOW
from tfperf.formats.wire.decoder import Decoder, items, numbers, offsets, take, texts
from tfperf.formats.wire.other_formats import is_meta_graph, is_saved_model, is_text

_HEAD = 1 << 16
_TYPE = re.compile(r"\b(type|dtype)\s*:\s*DT_(\w+)")
_NHWC = b"\x12\x04NHWC"


class Graph(Struct, frozen=True, kw_only=True):
    """The nodes of a graph in file order, and their inputs, one entry each, in node order."""

    names: list[str]
    ops: list[str]
    shape: Shapes
    """Attribute `shape` of each node; variables and placeholders have one."""
    input_of: Int64s
    """Node of each input."""
    input_source: Int64s
    """Source node of each input; -1 if it is not in the graph."""
    input_slot: Int64s
    """Output index in the source of each input; -1 for a control input."""
    output_first: Int64s
    """Start of each node's outputs in `output_shapes`, plus the end."""
    output_shapes: Shapes
    dtype: Int64s
    """Attribute `dtype` of each node, as a TensorFlow type number; 0 if there is none."""
    is_nhwc: Bools


def read_graph(file: InputFile) -> Graph:
    """Read a graph; raises TfprofInputError."""
    return _graph(file, graph_bytes(file))


def graph_bytes(file: InputFile, text_message: str = "TextGraphDef") -> bytes:
    """Return the serialized GraphDef of a graph, MetaGraphDef or SavedModel; raises TfprofInputError.

    From a text graph, only the fields of `text_message` are kept.
    """
    data, head = file.data, file.data[:_HEAD]
    if not data:
        raise file.refused("is empty, but should be a graph (GraphDef); write it with as_graph_def(add_shapes=True)")
    file.is_none_of_others("MetaGraphDef", "SavedModel", "a text file")
    if is_text(head):
        with suppress(UnicodeDecodeError):  # later bytes may not look like text
            return _from_text(file, data.decode(), text_message)
    graphs = [data]
    if is_saved_model(head):
        metas = texts_of(Decoder(file, 0, TENSORFLOW).one("SavedModel", data), "meta_graphs")
        graphs = [graph for meta in metas[:1] for graph in _graphs_of(file, meta)]
    elif is_meta_graph(head):
        graphs = _graphs_of(file, data)
    return b"".join(graphs)


def _graphs_of(file: InputFile, meta_graph: bytes) -> list[bytes]:
    return texts_of(Decoder(file, 0, TENSORFLOW).one("MetaGraphDef", meta_graph), "graph_def")


def texts_of(batch: Any, field: str) -> list[bytes]:
    """Return a repeated field of the only row, as bytes."""
    return list(items(batch.column(field)).to_pylist())


def _from_text(file: InputFile, text: str, message: str) -> bytes:
    """Return a graph in protobuf text format as bytes, without attributes that `message` does not declare."""
    graph = TENSORFLOW.message_class(message)()
    try:
        text_format.Parse(
            _TYPE.sub(lambda written: f"{written[1]}: {dtype_number(written[2])}", text),
            graph,
            allow_unknown_field=True,
        )
    except (text_format.ParseError, ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())[:200]
        raise file.refused(f"is text, but not a graph in protobuf's text format: {why}") from error
    return bytes(graph.SerializeToString())


def _graph(file: InputFile, data: bytes) -> Graph:
    decoder = Decoder(file, 0, TENSORFLOW)
    serialized = items(decoder.one("GraphDef", data).column("node"))
    if not len(serialized):
        raise file.damaged(0, "a graph without nodes")
    nodes = decoder.all("NodeDef", serialized)
    names, ops = texts(nodes.column("name")), texts(nodes.column("op"))
    if not all(names) or not any(ops):
        raise file.damaged(0, "nodes without a name")
    file.named_once(names)
    input_of, source, slot = _inputs(nodes, names)
    attr = nodes.column("attr")
    owner = np.repeat(np.arange(len(names)), np.diff(offsets(attr)))
    pairs = items(attr)
    keys, values = pairs.field("key"), pairs.field("value")
    rows = _with_key(keys, b"shape")
    ends, size = _dims(decoder.all("ShapeAttr", take(values, rows)).column("shape"))
    row = np.full(len(names), -1, np.int64)
    row[owner[rows]] = np.arange(len(rows))
    shape = Shapes(ends, size, np.ones(len(rows), np.bool_)).take(row)
    rows = _with_key(keys, b"_output_shapes")
    first, output_shapes = _output_shapes(decoder, take(values, rows), owner[rows], len(names))
    typed = _with_key(keys, b"dtype")
    dtype = np.zeros(len(names), np.int64)
    dtype[owner[typed]] = numbers(decoder.all("TypeAttr", take(values, typed)).column("type"))
    return Graph(
        names=names,
        ops=ops,
        shape=shape,
        input_of=input_of,
        input_source=source,
        input_slot=slot,
        output_first=first,
        output_shapes=output_shapes,
        dtype=dtype,
        is_nhwc=with_nhwc(attr),
    )


def with_nhwc(attr: Any) -> Bools:
    """Return for each list of attributes whether `data_format` is NHWC."""
    pairs = items(attr)
    owner = np.repeat(np.arange(len(attr)), np.diff(offsets(attr)))
    rows = _with_key(pairs.field("key"), b"data_format")
    is_nhwc = np.zeros(len(attr), np.bool_)
    is_nhwc[owner[rows]] = [value == _NHWC for value in take(pairs.field("value"), rows).to_pylist()]
    return is_nhwc


def _with_key(keys: Any, key: bytes) -> Int64s:
    from pyarrow import compute

    return np.flatnonzero(compute.equal(keys, key).to_numpy(zero_copy_only=False))


def _inputs(nodes: Any, names: list[str]) -> tuple[Int64s, Int64s, Int64s]:
    """Return each input's node, its source node, and the output index in the source."""
    import pyarrow
    from pyarrow import compute

    lists = nodes.column("input")
    input_of = np.repeat(np.arange(len(names)), np.diff(offsets(lists)))
    written = items(lists)
    known = pyarrow.array([name.encode("utf-8", "replace") for name in names], pyarrow.binary())
    source = compute.fill_null(compute.index_in(written, known), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    slot = np.zeros(len(source), np.int64)
    odd = np.flatnonzero(source < 0)
    place = {name: index for index, name in enumerate(names)}
    for row, text in zip(odd.tolist(), texts(take(written, odd)), strict=True):
        name, _, number = text.removeprefix("^").partition(":")
        source[row] = place.get(name, -1)
        slot[row] = -1 if text.startswith("^") else int(number) if number.isdecimal() and len(number) < 10 else 0
    return input_of, source, slot


def _dims(shapes: Any) -> tuple[Int64s, Int64s]:
    """Return the ends and dimensions of an array of `Shape`; a known rank of 0 becomes one dimension of size 1."""
    dims = shapes.field("dim")
    start = offsets(dims).astype(np.int64)
    size = numbers(items(dims).field("size")).astype(np.int64)
    scalar = (np.diff(start) == 0) & (numbers(shapes.field("unknown_rank")) == 0)
    size = np.insert(size, start[:-1][scalar] - start[0], 1)
    return np.concatenate(([0], np.cumsum(np.diff(start) + scalar))), size


def _output_shapes(decoder: Decoder, values: Any, owner: Int64s, count: int) -> tuple[Int64s, Shapes]:
    """Return the starts of all nodes' outputs, and their shapes, from the serialized attributes of some nodes."""
    lists = decoder.all("ShapeAttr", values).column("list").field("shape")
    each = np.zeros(count, np.int64)
    each[owner] = np.diff(offsets(lists))
    found = items(lists)
    ends, size = _dims(found)
    known = numbers(found.field("unknown_rank")) == 0
    return np.concatenate(([0], np.cumsum(each))), Shapes(ends, size, known)
