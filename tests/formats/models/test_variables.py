from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from tfprof_builders import graph, message, shape
from tfprof_builders import node as graph_node

from tfperf.formats.models.checkpoint import Tensor
from tfperf.formats.models.graph_def import read_graph
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.formats.models.variables import (
    COUNTER,
    OPTIMIZER,
    GraphVariables,
    Variable,
    checkpoint_variables,
    graph_variables,
    judged,
    named,
    saved_variables,
    without_slots,
)

FLOAT, INT64, RESOURCE = 1, 9, 20


def variable(path: str, shape: tuple[int, ...] | None = (2, 3), dtype: str = "float32") -> Variable:
    return named(path, shape, dtype)


def apart(*paths: str) -> dict[str, str]:
    return {each.path: each.apart for each in without_slots([variable(path, (1,)) for path in paths]) if each.apart}


def test_the_last_part_of_a_path_is_the_name_in_its_layer() -> None:
    kernel = variable("encoder/hidden1/kernel:0")
    assert (kernel.layer, kernel.name, kernel.path) == ("encoder/hidden1", "kernel", "encoder/hidden1/kernel")
    assert variable("w").layer == ""
    assert variable("w").path == "w"


@pytest.mark.parametrize(
    ("shape", "dtype", "elements", "size"),
    [
        ((2, 3), "float32", 6, 24),
        ((2, 3), "bfloat16", 6, 12),
        ((2, 3), "int4", 6, 6),
        ((), "float64", 1, 8),
        ((0, 7), "float32", 0, 0),
        ((2, 3), "", 6, None),
        ((2, 3), "string", 6, None),
        ((2, 3), "no such type", 6, None),
        (None, "float32", None, None),
        ((1 << 40, 1 << 40), "float32", None, None),
    ],
)
def test_elements_and_bytes(shape: tuple[int, ...] | None, dtype: str, elements: int | None, size: int | None) -> None:
    assert variable("w", shape, dtype).elements == elements
    assert variable("w", shape, dtype).bytes == size


@pytest.mark.parametrize(
    ("dtypes", "apart"),
    [
        ("int64 int32 uint32 bool string resource int16", COUNTER),
        ("float32 bfloat16 float8_e4m3fn complex64 int8 uint8 qint8 int4", ""),
    ],
)
def test_whole_numbers_count_or_seed_something_and_others_are_parameters(dtypes: str, apart: str) -> None:
    found = judged([variable(dtype, (), dtype) for dtype in dtypes.split()])
    assert {each.name: each.apart for each in found} == dict.fromkeys(dtypes.split(), apart)
    assert not judged([variable("dense/kernel", dtype="")])[0].apart


def test_statistics_are_not_trained_and_of_others_nothing_is_known() -> None:
    found = judged([variable("bn/moving_mean"), variable("bn/gamma")])
    assert trainable(found) == {"bn/moving_mean": False, "bn/gamma": None}


def test_what_is_named_below_a_variable_belongs_to_an_optimizer() -> None:
    assert apart(
        "a/kernel", "a/kernel/Adam", "a/kernel/Adam_1", "train/a/kernel/m", "w", "w/Momentum"
    ) == dict.fromkeys(("a/kernel/Adam", "a/kernel/Adam_1", "train/a/kernel/m", "w/Momentum"), OPTIMIZER)


def test_layers_of_the_same_names_are_not_slots_of_each_other() -> None:
    assert apart("dense/kernel", "tower/dense/kernel", "kernel", "other/kernel/scale") == {}


def test_numbers_of_optimizers_are_told_by_their_names() -> None:
    assert apart("beta1_power", "beta2_power_1", "learning_rate", "temperature") == dict.fromkeys(
        ("beta1_power", "beta2_power_1", "learning_rate"), OPTIMIZER
    )


Objects = Mapping[str, Any]


def node(children: Mapping[str, int] = {}, **fields: Any) -> Objects:
    return {"children": [{"local_name": name.encode(), "node_id": to} for name, to in children.items()], **fields}


def saved(name: str, dims: tuple[int, ...] = (2, 3), *, dtype: int = 1, trainable: bool = True) -> Objects:
    fields = {"name": name.encode(), "dtype": dtype, "shape": shape(dims), "trainable": int(trainable)}
    return {"variable": fields}


def kept(name: str, key: str) -> Objects:
    names = {"name": b"VARIABLE_VALUE", "full_name": name.encode(), "checkpoint_key": key.encode()}
    return {"attributes": [names]}


@pytest.fixture
def file(tmp_path: Path) -> InputFile:
    (tmp_path / "x.index").write_bytes(b"\xff\0\1")
    return InputFile(tmp_path / "x.index", "checkpoint")


def variables(file: InputFile, *nodes: Objects) -> list[Variable]:
    return saved_variables(file, message("ObjectGraph", nodes=nodes))


def trainable(found: list[Variable]) -> dict[str, bool | None]:
    return {each.path: each.trainable for each in found if not each.apart}


def test_an_export_of_keras_writes_each_variable_twice_and_lists_which_are_trained(file: InputFile) -> None:
    found = variables(
        file,
        node({"variables": 1, "trainable_variables": 2, "_all_variables": 3}),
        node({"0": 4, "1": 5, "2": 6}),
        node({"0": 4}),
        node({"0": 7, "1": 8}),
        saved("a/kernel"),
        saved("frozen/kernel"),
        saved("seed", (2,), dtype=9, trainable=False),
        saved("a/kernel"),
        saved("frozen/kernel"),
    )
    assert trainable(found) == {"a/kernel": True, "frozen/kernel": False}
    assert [each.path for each in found if each.apart == COUNTER] == ["seed"]


def test_what_is_in_one_of_both_lists_only_is_kept(file: InputFile) -> None:
    lists = node({"variables": 1, "_all_variables": 2})
    found = variables(file, lists, node({"0": 3}), node({"0": 4}), saved("a"), saved("b"))
    assert sorted(trainable(found)) == ["a", "b"]


def test_variables_of_one_name_are_told_apart_by_their_place(file: InputFile) -> None:
    both = [node({"left": 1, "right": 2}), node({"w": 3}), node({"w": 4})]
    found = variables(file, *both, saved("Variable:0"), saved("Variable:0"))
    assert sorted(trainable(found)) == ["left/w", "right/w"]


def test_the_flag_of_a_variable_counts_but_below_layers_of_keras_which_have_their_own(file: InputFile) -> None:
    root, layer = node({"w": 1, "layer": 2}), node({"kernel": 3, "mean": 4, "_inbound_nodes": 5})
    mean = saved("layer/mean", trainable=False)
    found = variables(file, root, saved("w"), layer, saved("layer/kernel"), mean, node())
    assert trainable(found) == {"w": True, "layer/kernel": None, "layer/mean": False}


def test_an_optimizer_keeps_its_own_and_lists_what_it_trains(file: InputFile) -> None:
    optimizer = node({"_iterations": 4, "_learning_rate": 5, "_variables": 6, "_trainable_variables": 7})
    found = variables(
        file,
        node({"layer": 1, "any_name": 2}),
        node({"kernel": 3, "frozen": 9, "_inbound_nodes": 10}),
        optimizer,
        saved("layer/kernel"),
        saved("adam/iteration", (), dtype=9, trainable=False),
        saved("adam/learning_rate", (), trainable=False),
        node({"0": 4, "1": 5, "2": 8}),
        node({"0": 3}),
        saved("adam/layer_kernel_momentum", trainable=False),
        saved("layer/frozen"),
        node(),
    )
    assert trainable(found) == {"layer/kernel": True, "layer/frozen": None}
    kept_by_it = {each.path for each in found if each.apart == OPTIMIZER}
    assert kept_by_it == {"adam/iteration", "adam/learning_rate", "adam/layer_kernel_momentum"}


def test_slots_of_older_optimizers_hang_on_no_child(file: InputFile) -> None:
    optimizer = node(slot_variables=[{"slot_variable_node_id": 3}])
    found = variables(file, node({"w": 1, "optimizer": 2}), saved("w"), optimizer, saved("w/m"))
    assert trainable(found) == {"w": True}
    assert [each.path for each in found if each.apart] == ["w/m"]


def test_a_checkpoint_has_shapes_by_key_and_no_flags(file: InputFile) -> None:
    tensors = {"w/.ATTRIBUTES/VARIABLE_VALUE": Tensor((4, 5), "float16")}
    nodes = (node({"w": 1}), kept("dense/kernel", "w/.ATTRIBUTES/VARIABLE_VALUE"))
    found = checkpoint_variables(file, message("ObjectGraph", nodes=nodes), tensors)
    assert found == [Variable(layer="dense", name="kernel", shape=(4, 5), dtype="float16")]
    with pytest.raises(TfprofInputError, match="the missing tensor w"):
        checkpoint_variables(file, message("ObjectGraph", nodes=nodes), {})


def test_circles_end_and_links_to_nowhere_are_refused(file: InputFile) -> None:
    assert len(variables(file, node({"self": 0, "w": 1}), {**node({"back": 0}), **saved("w")})) == 1
    assert variables(file) == []
    with pytest.raises(TfprofInputError, match="dangling links"):
        variables(file, node({"w": 5}))
    with pytest.raises(TfprofInputError, match="not a valid ObjectGraph"):
        saved_variables(file, b"\x0a\xff")


def of_graph(*nodes: bytes, trainable: Collection[str] | None = None) -> GraphVariables:
    return graph_variables(read_graph(InputFile(Path("graph.pb"), "GraphDef", graph(*nodes))), trainable)


def counted(found: GraphVariables) -> dict[str, tuple[tuple[int, ...] | None, bool | None]]:
    return {each.path: (each.shape, each.trainable) for each in found.variables if not each.apart}


def set_apart(found: GraphVariables) -> dict[str, str]:
    return {each.path: each.apart for each in found.variables if each.apart}


def test_variables_of_a_session_and_what_ops_that_train_say_of_them() -> None:
    found = of_graph(
        graph_node("a/kernel", "VariableV2", variable=(3, 4), dtype=FLOAT),
        graph_node("a/bias", "VarHandleOp", variable=(4,), dtype=FLOAT),
        graph_node("a/moving_mean", "VariableV2", variable=(4,), dtype=FLOAT),
        graph_node("m", "VarHandleOp", variable=(3, 4), dtype=FLOAT),
        graph_node("beta1_power", "VariableV2", variable=None, dtype=FLOAT),
        graph_node("global_step", "VarHandleOp", variable=(1,), dtype=INT64),
        graph_node("x", "Placeholder", variable=(7, 3), dtype=FLOAT),
        graph_node("train/update", "ApplyAdam", "a/kernel", "m", "x"),
        graph_node("train/update_1", "ResourceApplyGradientDescent", "a/bias", "x"),
    )
    assert not found.is_function
    assert counted(found) == {
        "a/kernel": ((3, 4), True),
        "a/bias": ((4,), True),
        "a/moving_mean": ((4,), False),
        "beta1_power": (None, None),
    }
    assert set_apart(found) == {"m": OPTIMIZER, "global_step": COUNTER}


def test_a_list_of_what_is_trained_counts_more_than_guesses() -> None:
    nodes = [graph_node(name, "VariableV2", variable=(2,), dtype=FLOAT) for name in ("w", "v", "w/Adam")]
    found = of_graph(*nodes, trainable={"w"})
    assert counted(found) == {"w": ((2,), True), "v": ((2,), False)}
    assert set_apart(found) == {"w/Adam": OPTIMIZER}


def handle(name: str) -> bytes:
    return graph_node(f"{name}/ReadVariableOp/resource", "Placeholder", dtype=RESOURCE, outputs=[()])


def read(name: str, dims: tuple[int, ...] | None, *inputs: str, dtype: int = FLOAT) -> bytes:
    source = inputs or (f"{name}/ReadVariableOp/resource",)
    return graph_node(f"{name}/ReadVariableOp", "ReadVariableOp", *source, outputs=[dims], dtype=dtype)


def captured(name: str, dims: tuple[int, ...] | None, dtype: int = FLOAT) -> tuple[bytes, bytes]:
    """Return the nodes by which a function reads a variable."""
    return handle(name), read(name, dims, dtype=dtype)


def test_a_function_reads_variables_whose_shapes_stand_at_the_op_that_reads() -> None:
    found = of_graph(
        graph_node("x", "Placeholder", variable=(7, 3), dtype=FLOAT),
        *captured("model/hidden1/MatMul", (3, 4)),
        *captured("model/dropout", (2,), INT64),
        *captured("model/odd/Add", None),
    )
    assert found.is_function
    assert counted(found) == {"model/hidden1/MatMul": ((3, 4), None), "model/odd/Add": (None, None)}
    assert set_apart(found) == {"model/dropout": COUNTER}
    assert found.hidden == 0


def training_step() -> list[bytes]:
    """Return a step as Keras writes it: batch normalization, a metric, and an optimizer with momentum."""
    resource = "ReadVariableOp/resource"
    return [
        *captured("model/a/MatMul", (3, 4)),
        *captured("model/bn/Cast", (4,)),
        *captured("Add", ()),
        *captured("sgd/Mul", (3, 4)),
        *captured("sgd/Cast", ()),
        *captured("sgd/Add", (), INT64),
        *captured("model/frozen/MatMul", (4, 4)),
        graph_node("model/bn/add", "AddV2", "model/bn/Cast/ReadVariableOp"),
        graph_node("model/bn/AssignVariableOp", "AssignVariableOp", f"model/bn/Cast/{resource}", "model/bn/add"),
        graph_node("loss", "Mean", "model/a/MatMul/ReadVariableOp", "model/frozen/MatMul/ReadVariableOp"),
        graph_node("AssignAddVariableOp", "AssignAddVariableOp", f"Add/{resource}", "loss"),
        graph_node("gradient_tape/model/a/MatMul", "MatMul", "loss"),
        graph_node("sgd/add", "AddV2", "sgd/Mul/ReadVariableOp", "gradient_tape/model/a/MatMul"),
        graph_node("sgd/AssignVariableOp", "AssignVariableOp", f"sgd/Mul/{resource}", "sgd/add"),
        read("sgd/mul_1", (3, 4), f"sgd/Mul/{resource}", "^sgd/AssignVariableOp"),
        graph_node("sgd/mul_1", "Mul", "sgd/mul_1/ReadVariableOp", "sgd/Cast/ReadVariableOp"),
        graph_node("sgd/AssignSubVariableOp", "AssignSubVariableOp", f"model/a/MatMul/{resource}", "sgd/mul_1"),
    ]


def test_a_training_step_says_what_is_trained_and_what_an_optimizer_keeps() -> None:
    found = of_graph(*training_step())
    assert counted(found) == {
        "model/a/MatMul": ((3, 4), True),
        "model/bn/Cast": ((4,), False),
        "model/frozen/MatMul": ((4, 4), None),
    }
    assert set_apart(found) == {"Add": COUNTER, "sgd/Mul": OPTIMIZER, "sgd/Cast": OPTIMIZER, "sgd/Add": OPTIMIZER}


def test_lists_that_a_loop_fills_for_the_gradients_are_no_gradients() -> None:
    found = of_graph(
        *training_step(),
        graph_node("gradient_tape/size", "Const"),
        graph_node("gradient_tape/accumulator", "EmptyTensorList", "gradient_tape/size"),
        graph_node("model/while", "While", "gradient_tape/accumulator"),
        *captured("model/late/Cast", (9,)),
        graph_node("model/late/update", "AssignVariableOp", "model/late/Cast/ReadVariableOp/resource", "model/while"),
    )
    assert counted(found)["model/late/Cast"] == ((9,), False)


def test_ops_that_train_resources_in_a_function() -> None:
    resource = "ReadVariableOp/resource"
    found = of_graph(
        *captured("model/a/MatMul", (3, 4)),
        *captured("Adam/m", (3, 4)),
        graph_node("Adam/update", "ResourceApplyAdam", f"model/a/MatMul/{resource}", f"Adam/m/{resource}"),
    )
    assert counted(found) == {"model/a/MatMul": ((3, 4), True)}
    assert set_apart(found) == {"Adam/m": OPTIMIZER}


def test_resources_that_only_go_into_functions_are_counted_as_hidden() -> None:
    loop = graph_node("while", "While", "b/ReadVariableOp/resource")
    found = of_graph(*captured("a/MatMul", (2,)), handle("b"), loop)
    assert counted(found) == {"a/MatMul": ((2,), None)}
    assert found.hidden == 1


def test_a_graph_of_constants_has_no_variables() -> None:
    assert of_graph(graph_node("c", "Const", outputs=[(3,)])).variables == []
