"""Graphs: binary, as text, and inside of other messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from protobytes import field
from tfprof_builders import graph, message, node

from tfperf.formats.models.graph_def import Graph, read_graph
from tfperf.formats.models.input_file import InputFile, TfprofInputError

LAYER = (
    node("x", "Placeholder", outputs=[[4, 8]], variable=[4, 8]),
    node("w", "VariableV2", outputs=[[8, 2]], variable=[8, 2]),
    node("y", "MatMul", "x", "w:0", "^init", outputs=[[4, 2], None]),
    node("z", "Conv2D", "y:1", "gone", "^y", nhwc=True),
)


def read(folder: Path, data: bytes) -> Graph:
    (folder / "graph").write_bytes(data)
    return read_graph(InputFile(folder / "graph", "GraphDef"))


def test_nodes_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = read(tmp_path, graph(*LAYER))
    assert (found.names, found.ops) == (["x", "w", "y", "z"], ["Placeholder", "VariableV2", "MatMul", "Conv2D"])
    assert found.is_nhwc.tolist() == [False, False, False, True]


def test_inputs_have_a_source_and_a_slot(tmp_path: Path) -> None:
    found = read(tmp_path, graph(*LAYER))
    rows = [*zip(found.input_of.tolist(), found.input_source.tolist(), found.input_slot.tolist(), strict=True)]
    assert rows == [(2, 0, 0), (2, 1, 0), (2, -1, -1), (3, 2, 1), (3, -1, 0), (3, 2, -1)]


@pytest.mark.parametrize("slot", ["x:", "x:a", "x:-1", "x:99999999999999999999"])
def test_a_slot_that_is_no_number_is_the_first(tmp_path: Path, slot: str) -> None:
    assert read(tmp_path, graph(node("x", "A"), node("y", "B", slot))).input_slot.tolist() == [0]


def test_shapes_of_variables_and_outputs(tmp_path: Path) -> None:
    found = read(tmp_path, graph(*LAYER))
    assert [found.shape.dims(place) for place in range(4)] == [(4, 8), (8, 2), (), ()]
    assert found.output_first.tolist() == [0, 1, 2, 4, 4]
    assert [found.output_shapes.dims(place) for place in range(4)] == [(4, 8), (8, 2), (4, 2), ()]


def test_a_scalar_has_one_element_and_an_unknown_rank_none(tmp_path: Path) -> None:
    found = read(
        tmp_path, graph(node("a", "V", variable=[]), node("b", "V", variable=None), node("c", "V", variable=[-1]))
    )
    assert [found.shape.dims(place) for place in range(3)] == [(1,), (), (-1,)]
    assert found.shape.elements().tolist() == [1, 0, 0]


def test_a_graph_without_shapes_or_inputs(tmp_path: Path) -> None:
    found = read(tmp_path, graph(node("a", "NoOp")))
    assert (len(found.input_of), found.shape.elements().tolist(), found.output_first.tolist()) == (0, [0], [0, 0])


def test_a_meta_graph_and_a_saved_model_hold_graphs(tmp_path: Path) -> None:
    meta = message("MetaGraphDef", graph_def=[graph(*LAYER)])
    saved = field(1, 1) + message(
        "SavedModel", meta_graphs=[meta, message("MetaGraphDef", graph_def=[graph(LAYER[0])])]
    )
    assert read(tmp_path, meta).names == read(tmp_path, saved).names == ["x", "w", "y", "z"]


TEXT = r"""
# written by tf.io.write_graph
node {
  name: "x" op: "VariableV2" device: "/cpu:0"
  attr { key: "shape" value { shape { dim { size: 4 } dim { size: 8 } } } }
  attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "_output_shapes"
         value { list { shape { dim { size: 4 } dim { size: 8 } } shape { unknown_rank: true } } } }
  attr { key: "_class" value { list { s: "loc:@x" } } }
  experimental_debug_info { original_node_names: "x" }
}
node { name: "y" op: "Conv2D" input: "x" input: "^x" attr { key: "data_format" value { s: "NHWC" } }
  attr { key: "c" value { tensor { dtype: DT_FLOAT tensor_content: "\000\377" } } } }
versions { producer: 27 }
library { function { signature { name: "f" } } }
"""


def test_a_graph_as_text_is_the_same(tmp_path: Path) -> None:
    found = read(tmp_path, TEXT.encode())
    assert (found.names, found.ops, found.is_nhwc.tolist()) == (["x", "y"], ["VariableV2", "Conv2D"], [False, True])
    assert (found.shape.dims(0), found.output_shapes.dims(0), found.output_first.tolist()) == (
        (4, 8),
        (4, 8),
        [0, 2, 2],
    )
    assert (found.input_source.tolist(), found.input_slot.tolist()) == ([0, 0], [0, -1])


def test_a_frozen_graph_has_constants_in_the_place_of_variables(tmp_path: Path) -> None:
    value = {"key": b"value", "value": field(8, field(1, 1))}
    const = message("NodeDef", name=b"w", op=b"Const", attr=[value])
    assert read(tmp_path, graph(const, node("r", "Identity", "w"))).shape.elements().tolist() == [0, 0]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty: it should be a graph"),
        (b"\x0a\x00", "nodes without a name"),
        (graph(), "is empty"),
        (graph(node("a", "A"), node("a", "B")), "two nodes of the name 'a'"),
        (b"\x22\x02\x08\x1b", "a graph without nodes"),
        (b"\n\n    \n  \n\n\n   \n\n", "a graph without nodes"),
        (b"nodes { name: 'x' } and more", "is text, but not a graph in protobuf's text format"),
        (graph(*LAYER)[:-3], "damaged"),
    ],
)
def test_what_is_no_graph(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(TfprofInputError, match=said):
        read(tmp_path, data)
