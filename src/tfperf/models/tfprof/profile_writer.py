"""Writes a graph and its runs as tfprof stores them (ProfileProto)."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

from tfperf.models.tfprof.execution_writer import execution_bytes
from tfperf.models.tfprof.graph_def import Graph
from tfperf.models.tfprof.messages import TENSORFLOW
from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.ragged import Shapes


def profile_bytes(graph: Graph, model: Model) -> bytes:
    """Return a ProfileProto. `graph` is the graph of the model, as it was read.

    Memory is written as one record for each node and step, since a model keeps sums.
    """
    place = {name: number for number, name in enumerate(model.names)}
    strings: dict[str, int] = {}
    traces = _traces(model, strings)
    types = _types(model)
    nodes: list[dict[str, Any]] = []
    for number, name in enumerate(model.names):
        nodes.append(
            {
                "name": name.encode(),
                "op": model.ops[number].encode(),
                "id": number,
                "shape": list(model.shape.dims(number)),
                "op_types": [kind.encode() for kind in types[number]],
                "canonical_device": model.device[number].encode(),
                "float_ops": int(model.float_ops[number]),
                "trace": {"traces": traces[number]},
            }
        )
    for own, name in enumerate(graph.names):
        nodes[place[name]]["output_shapes"] = _output_shapes(graph, own)
    _add_inputs(graph, [place[name] for name in graph.names], nodes)
    kind = TENSORFLOW.message_class("ProfileNode")
    pairs = [
        {"key": node["id"], "value": kind(**node).SerializeToString() + execs}
        for node, execs in zip(nodes, execution_bytes(model), strict=True)
    ]
    texts = [{"key": number, "value": text.encode()} for text, number in strings.items()]
    profile = TENSORFLOW.message_class("ProfileProto")(
        nodes=pairs, has_trace=int(bool(strings)), steps=[*model.steps], id_to_string=texts
    )
    return bytes(profile.SerializeToString())


def _types(model: Model) -> list[list[str]]:
    types: list[list[str]] = [[] for _ in model.names]
    node, kind = model.type_of
    for owner, number in zip(node.tolist(), kind.tolist(), strict=True):
        types[owner].append(model.types[number])
    return types


def _traces(model: Model, strings: dict[str, int]) -> list[list[dict[str, int]]]:
    """Return the stack of each node; the texts that its frames name are numbered in `strings`."""
    stacks = model.stacks
    frames = [
        {
            "file_id": strings.setdefault(file, len(strings)),
            "lineno": line,
            "function_id": strings.setdefault(function, len(strings)),
        }
        for file, line, function in zip(stacks.files, stacks.lines, stacks.functions, strict=True)
    ]
    frame = stacks.frame.tolist()
    ends = itertools.pairwise(stacks.ends.tolist())
    return [[frames[number] for number in frame[start:stop]] for start, stop in ends]


def _output_shapes(graph: Graph, node: int) -> list[dict[str, Any]]:
    first, stop = graph.output_first[node : node + 2].tolist()
    return [_entry(slot - first, graph.output_shapes, slot) for slot in range(first, stop)]


def _entry(key: int, shapes: Shapes, row: int) -> dict[str, Any]:
    return {"key": key, "value": {"int64_values": list(shapes.dims(row))}}


def _add_inputs(graph: Graph, place: list[int], nodes: list[dict[str, Any]]) -> None:
    """Give the nodes their inputs: the nodes that these come from, from which of their outputs, and its shape.

    tfprof has room for one output of each source, so what comes from several is known by `input_shapes` alone.
    """
    index: dict[int, int] = defaultdict(int)
    columns = (graph.input_of, graph.input_source, graph.input_slot)
    for own, source, slot in zip(*(column.tolist() for column in columns), strict=True):
        key = index[own]
        index[own] += 1
        slot = max(slot, 0)  # of a control input too
        if source >= 0:
            node = nodes[place[own]]
            node.setdefault("inputs", []).append({"key": key, "value": place[source]})
            node.setdefault("src_output_index", []).append({"key": place[source], "value": slot})
            if slot < graph.output_first[source + 1] - graph.output_first[source]:
                shape = _entry(key, graph.output_shapes, int(graph.output_first[source]) + slot)
                node.setdefault("input_shapes", []).append(shape)
