"""Graphs as rules see them: functions put in where they are called, shapes, constants, users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lint_builders import HALF, INT, attr, call, fed, function, graph, ints, op
from tfprof_builders import message, shape

from tfperf.formats.models.graph_file import graphs_of, read_graphs
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.formats.models.op_graph import OpGraph, value_of


def graphs(data: bytes) -> list[OpGraph]:
    return graphs_of(InputFile(Path("graph.pb"), "GraphDef", data))


def only(data: bytes) -> OpGraph:
    (found,) = graphs(data)
    return found


def named(found: OpGraph) -> dict[str, int]:
    return {node.name: index for index, node in enumerate(found.nodes)}


def test_nodes_stand_after_their_inputs() -> None:
    found = only(graph(op("b", "Relu", "a", out=(2, 3)), fed("a", 2, 3)))
    assert [node.name for node in found.nodes] == ["a", "b"]
    assert found.input_shape(1, 0) == (2, 3)
    assert found.nodes[0].is_argument


def test_users_are_found_through_ops_that_leave_values_as_they_are() -> None:
    found = only(
        graph(fed("a", 2), op("i", "Identity", "a"), op("c", "Cast", "i"), op("r", "Relu", "c"), op("s", "Neg", "i"))
    )
    at = named(found)
    assert {user for user, _ in found.users(at["a"])} == {at["r"], at["s"]}
    assert found.source(at["r"], 0) == at["a"]


def test_functions_stand_where_they_are_called() -> None:
    inner = function("__inference_inner_5", {"x": (4,)}, [op("y", "Relu", "x", out=(4,))], "y:activations:0")
    outer = function("__inference_outer_7", {"x": (4,)}, [call("c", "__inference_inner_5", "x")], "c:output:0")
    found = only(
        graph(fed("a", 4), call("p", "__inference_outer_7", "a"), op("end", "Neg", "p"), functions=[inner, outer])
    )
    at = named(found)
    relu = next(index for name, index in at.items() if name.endswith("y"))
    assert found.op(relu) == "Relu"
    assert found.source(relu, 0) == at["a"]
    assert found.source(at["end"], 0) == relu


def test_signatures_of_one_function_are_judged_once() -> None:
    body = function("__inference_call_1", {"x": (4,)}, [op("y", "Relu", "x", out=(4,))], "y:activations:0")
    names = [f"__inference_signature_wrapper_call_{n}" for n in (2, 3)]
    inner = [call("c", "__inference_call_1", "x")]
    wrappers = [function(name, {"x": (4,)}, inner, "c:output:0") for name in names]
    saving = function("__inference__traced_save_9", {"x": (4,)}, [op("s", "SaveV2", "x")], "s:0")
    calls = [call(f"p{n}", name, "a") for n, name in enumerate(names)]
    main, model = graphs(graph(fed("a", 4), *calls, functions=[body, *wrappers, saving]))
    assert [node.op for node in main.nodes] == ["Placeholder"]
    assert [node.op for node in model.nodes] == ["_Arg", "Relu"]
    assert model.nodes[0].from_host


def test_a_function_that_calls_itself_is_not_put_in_for_ever() -> None:
    body = [call("c", "f", "x", out=(4,)), op("y", "Relu", "c", out=(4,))]
    found = only(graph(fed("a", 4), call("p", "f", "a"), functions=[function("f", {"x": (4,)}, body, "y:0")]))
    assert [node.op for node in found.nodes] == ["Placeholder", "StatefulPartitionedCall", "Relu"]


def test_outputs_are_found_by_their_names() -> None:
    norm = op("n", "FusedBatchNormV3", "x")
    norm["attr"].append(attr("_output_shapes", list={"shape": [shape(dims) for dims in ((2, 3), (3,), (3,))]}))
    body = [norm, op("m", "Neg", "n:batch_mean:0"), op("y", "Neg", "n:y:0")]
    found = only(graph(fed("a", 2, 3), call("p", "f", "a"), functions=[function("f", {"x": (2, 3)}, body, "m:0")]))
    at = {node.name.rpartition("/")[2]: node for node in found.nodes}
    assert [slot for _, slot in at["m"].inputs] == [1]
    assert [slot for _, slot in at["y"].inputs] == [0]


def test_constants_and_attributes() -> None:
    scalar = {"name": b"s", "op": b"Const", "attr": [attr("value", tensor={"dtype": INT, "int_val": [-1]})]}
    packed = {"dtype": INT, "tensor_shape": shape((2,)), "tensor_content": b"\x03\0\0\0\xff\xff\xff\xff"}
    filled = {"dtype": INT, "tensor_shape": shape((3,)), "int_val": [7]}
    odd = {"dtype": INT, "tensor_shape": shape((3,)), "tensor_content": b"\0"}
    others = [
        {"name": name.encode(), "op": b"Const", "attr": [attr("value", tensor=tensor)]}
        for name, tensor in (("p", packed), ("f", filled), ("o", odd))
    ]
    conv = op("c", "Conv2D", data_format="NCHW", dtype=HALF, groups=2, wide=True)
    found = only(graph(ints("v", 3, 1, 2, 0), scalar, *others, conv))
    at = named(found)
    values = {name: found.constant(index) for name, index in at.items()}
    assert {name: None if value is None else value.reshape(-1).tolist() for name, value in values.items()} == {
        "v": [3, 1, 2, 0], "s": [-1], "p": [3, -1], "f": [7, 7, 7], "o": None, "c": None
    }  # fmt: skip
    assert found.batch_and_features(at["c"], 4) == (0, 1)
    assert (found.dtype(at["c"]), found.element_bytes(at["c"])) == ("float16", 2)
    assert (found.number(at["c"], "groups"), found.flag(at["c"], "wide"), found.text(at["c"], "none")) == (2, True, "")


def test_text_graphs_have_attributes_too(tmp_path: Path) -> None:
    path = tmp_path / "graph.pbtxt"
    path.write_text(
        'node { name: "p" op: "Const" attr { key: "value" value { tensor { dtype: DT_INT32 '
        "tensor_shape { dim { size: 2 } } int_val: 1 int_val: 0 } } } "
        'attr { key: "dtype" value { type: DT_INT32 } } }\n'
        'node { name: "t" op: "Transpose" input: "p" attr { key: "T" value { type: DT_HALF } } '
        'attr { key: "_output_shapes" value { list { shape { unknown_rank: true } shape { dim { size: -1 } } } } } }\n'
    )
    (found,) = read_graphs(path)
    at = named(found)
    assert found.constant_input(at["t"], 0) == [1, 0]
    assert found.dtype(at["t"]) == "float16"
    assert found.nodes[at["t"]].shapes == [None, (-1,)]


def test_where_graphs_are_in_folders(tmp_path: Path) -> None:
    with pytest.raises(TfprofInputError, match=r"has no saved_model.pb or graph.pb"):
        read_graphs(tmp_path)
    (tmp_path / "saved_model.pbtxt").write_text("")
    with pytest.raises(TfprofInputError, match="text SavedModel"):
        read_graphs(tmp_path)
    (tmp_path / "graph.pb").write_bytes(graph(fed("a", 2)))
    assert len(read_graphs(tmp_path)) == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (graph(op("a", "Relu", "b"), op("b", "Relu", "a")), "a cycle of nodes"),
        (graph(fed("a", 2), fed("a", 2)), "two nodes named 'a'"),
        (message("RunMetadata", step_stats=[message("StepStats")]), "."),
        (graph(op("a", "Relu", "gone:7"))[:-3], "damaged"),
    ],
)
def test_what_is_no_graph_is_one_line(data: bytes, why: str) -> None:
    with pytest.raises(TfprofInputError, match=why) as raised:
        graphs(data)
    assert "\n" not in str(raised.value)


def test_inputs_that_are_not_there_are_left_out() -> None:
    assert only(graph(op("a", "Relu", "gone:7"))).nodes[0].inputs == []


X = fed("x", 6, -1, 20)
SHAPE = op("s", "Shape", "x", out=(3,))


def value(*nodes: dict[str, Any]) -> Any:
    """Return what the node `y` holds."""
    found = only(graph(X, SHAPE, *nodes))
    numbers = value_of(found, named(found)["y"])
    return None if numbers is None else numbers.tolist()


def scalar(name: str, number: int) -> dict[str, Any]:
    node = ints(name, number)
    del node["attr"][0]["value"]["tensor"]["tensor_shape"]
    return node


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([op("y", "Identity", "s")], None),
        ([ints("i", 0, 2), op("y", "GatherV2", "s", "i", "i")], [6, 20]),
        ([ints("i", 0, 2), op("g", "GatherV2", "s", "i", "i"), op("y", "Prod", "g", "i")], 120),
        ([ints("i", 0, 1), op("g", "GatherV2", "s", "i", "i"), op("y", "Prod", "g", "i")], -1),
        ([ints("i", 1, 2), ints("j", 5), scalar("a", 0), op("y", "ConcatV2", "i", "j", "a")], [1, 2, 5]),
        ([scalar("a", 7), scalar("b", 3), op("y", "Pack", "a", "b")], [7, 3]),
        ([scalar("a", 7), scalar("b", 3), op("y", "Sub", "a", "b")], 4),
        ([ints("b", 0), ints("e", 2), ints("n", 1), op("y", "StridedSlice", "s", "b", "e", "n")], [6, -1]),
        ([ints("b", 2), ints("n", 1), op("y", "StridedSlice", "s", "b", "n", "n", shrink_axis_mask=1)], 20),
        ([ints("b", 9), ints("n", 1), op("y", "StridedSlice", "s", "b", "n", "n", shrink_axis_mask=1)], None),
        ([ints("i", 1 << 31, 1 << 31, 4), op("y", "Prod", "i", "i")], None),
        ([op("y", "Relu", "x")], None),
    ],
)  # fmt: skip
def test_numbers(nodes: list[dict[str, Any]], expected: Any) -> None:
    assert value(*nodes) == expected


def test_numbers_that_double_do_not_take_for_ever() -> None:
    chain = [op(f"n{n + 1}", "Add", f"n{n}", f"n{n}") for n in range(25)]
    assert value(scalar("n0", 1), *chain, op("y", "Add", "n25", "n25", dtype=INT)) == 1 << 26
