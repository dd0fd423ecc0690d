"""Graphs: binary, as text, and inside of other messages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from job_environment import needs_tensorflow, run_python
from protobytes import field, written
from tfprof_builders import graph, message, node

from tfperf.formats.models.dtypes import shapes
from tfperf.formats.models.graph_def import Graph, read_graph
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.formats.models.messages import TENSORFLOW
from tfperf.formats.wire.schema import fields_of

LAYER = (
    node("x", "Placeholder", outputs=[[4, 8]], variable=[4, 8]),
    node("w", "VariableV2", outputs=[[8, 2]], variable=[8, 2]),
    node("y", "MatMul", "x", "w:0", "^init", outputs=[[4, 2], None]),
    node("z", "Conv2D", "y:1", "gone", "^y", nhwc=True),
)


def read(folder: Path, data: bytes) -> Graph:
    return read_graph(InputFile(written(folder, data), "GraphDef"))


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
    nodes = [node(name, "V", variable=dims) for name, dims in {"a": [], "b": None, "c": [-1]}.items()]
    found = read(tmp_path, graph(*nodes))
    assert [found.shape.dims(place) for place in range(3)] == [(1,), (), (-1,)]
    assert found.shape.elements().tolist() == [1, 0, 0]


def test_a_graph_without_shapes_or_inputs(tmp_path: Path) -> None:
    found = read(tmp_path, graph(node("a", "NoOp")))
    assert (len(found.input_of), found.shape.elements().tolist(), found.output_first.tolist()) == (0, [0], [0, 0])


def test_a_meta_graph_and_a_saved_model_hold_graphs(tmp_path: Path) -> None:
    meta, other = (message("MetaGraphDef", graph_def=[graph(*nodes)]) for nodes in (LAYER, LAYER[:1]))
    saved = field(1, 1) + message("SavedModel", meta_graphs=[meta, other])
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
    assert found.shape.dims(0) == found.output_shapes.dims(0) == (4, 8)
    assert found.output_first.tolist() == [0, 2, 2]
    assert (found.input_source.tolist(), found.input_slot.tolist()) == ([0, 0], [0, -1])


def test_a_frozen_graph_has_constants_in_the_place_of_variables(tmp_path: Path) -> None:
    value = {"key": b"value", "value": field(8, field(1, 1))}
    const = message("NodeDef", name=b"w", op=b"Const", attr=[value])
    assert read(tmp_path, graph(const, node("r", "Identity", "w"))).shape.elements().tolist() == [0, 0]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty, but should be a graph"),
        (b"\x0a\x00", "nodes without a name"),
        (graph(node("a", "A"), node("a", "B")), "two nodes named 'a'"),
        (b"\x22\x02\x08\x1b", "a graph without nodes"),
        (b"\n\n    \n  \n\n\n   \n\n", "a graph without nodes"),
        (b"nodes { name: 'x' } and more", "is text, but not a graph in protobuf's text format"),
        (graph(*LAYER)[:-3], "damaged"),
    ],
)
def test_what_is_no_graph(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(TfprofInputError, match=said):
        read(tmp_path, data)


OTHER_NAMES = {"Shape": "TensorShapeProto", "Dimension": "TensorShapeProto.Dim", "CodeDefTrace": "CodeDef.Trace"}
SAME_NAMES = (
    "GraphDef", "NodeDef", "MetaGraphDef", "SavedModel", "RunMetadata", "StepStats", "DeviceStepStats", "NodeExecStats",
    "AllocatorMemoryUsed", "NodeOutput", "TensorDescription", "AllocationDescription", "MemoryStats", "OpLogProto",
    "OpLogEntry", "CodeDef", "ProfileProto", "ProfileNode", "ExecProfile", "ExecTime", "ExecMemory", "Tuple",
)  # fmt: skip
DUMP = """
import importlib.util, json, sys, types
# The package without its __init__, which would load all of TensorFlow.
package = types.ModuleType("tensorflow")
package.__path__ = importlib.util.find_spec("tensorflow").submodule_search_locations
sys.modules["tensorflow"] = package
from tensorflow.core.framework import graph_pb2, node_def_pb2, step_stats_pb2, tensor_shape_pb2, tensor_description_pb2
from tensorflow.core.framework import allocation_description_pb2
from tensorflow.core.profiler import tfprof_log_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, saved_model_pb2

def add(found, prefix, message):
    found[prefix + message.name] = {field.name: field.number for field in message.fields}
    for nested in message.nested_types:
        add(found, prefix + message.name + ".", nested)

found = {}
modules = (graph_pb2, node_def_pb2, step_stats_pb2, tensor_shape_pb2, tensor_description_pb2,
           allocation_description_pb2, tfprof_log_pb2, config_pb2, meta_graph_pb2, saved_model_pb2)
for module in modules:
    for message in module.DESCRIPTOR.message_types_by_name.values():
        add(found, "", message)
print(json.dumps(found))
"""


@needs_tensorflow
def test_fields_have_the_names_and_numbers_of_tensorflow() -> None:
    theirs = json.loads(run_python("-c", DUMP).stdout.splitlines()[-1])
    different = []
    for kind in (*SAME_NAMES, *OTHER_NAMES):
        of_theirs = theirs[OTHER_NAMES.get(kind, kind)]
        for name, number, *_ in fields_of(TENSORFLOW.messages[kind]):
            if of_theirs.get(name) != number:
                different.append((kind, name, number, of_theirs.get(name)))
    assert not different


def test_all_messages_can_be_built() -> None:
    for name in TENSORFLOW.messages:
        assert TENSORFLOW.message_class(name)().SerializeToString() == b""


def test_elements_are_the_product_of_known_dimensions_that_a_number_holds() -> None:
    some = shapes([[4, 8], None, [1], [3, -1], [], [7, 0, 2], [1 << 40, 1 << 40], [1 << 40, 4]])
    assert some.elements().tolist() == [32, 0, 1, 0, 0, 0, 0, 1 << 42]
    assert shapes([]).elements().tolist() == []


def test_taking_keeps_order_and_knows_what_is_missing() -> None:
    some = shapes([[4, 8], [2], None]).take(np.array([2, 1, -1, 0]))
    assert [some.dims(place) for place in range(4)] == [(), (2,), (), (4, 8)]
    assert some.known.tolist() == [False, True, False, True]
    assert shapes([]).take(np.array([-1, -1])).known.tolist() == [False, False]
