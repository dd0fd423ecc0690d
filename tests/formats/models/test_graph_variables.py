from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from tfprof_builders import graph, node

from tfperf.formats.models.graph_def import read_graph
from tfperf.formats.models.input_file import InputFile
from tfperf.formats.models.variables import COUNTER, OPTIMIZER, GraphVariables, graph_variables

FLOAT, INT64, RESOURCE = 1, 9, 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "graph.pb"


def variables(path: Path, *nodes: bytes, trainable: Collection[str] | None = None) -> GraphVariables:
    path.write_bytes(graph(*nodes))
    return graph_variables(read_graph(InputFile(path, "GraphDef")), trainable)


def counted(found: GraphVariables) -> dict[str, tuple[tuple[int, ...] | None, bool | None]]:
    return {each.path: (each.shape, each.trainable) for each in found.variables if not each.apart}


def apart(found: GraphVariables) -> dict[str, str]:
    return {each.path: each.apart for each in found.variables if each.apart}


def test_variables_of_a_session_and_what_ops_that_train_say_of_them(path: Path) -> None:
    found = variables(
        path,
        node("a/kernel", "VariableV2", variable=(3, 4), dtype=FLOAT),
        node("a/bias", "VarHandleOp", variable=(4,), dtype=FLOAT),
        node("a/moving_mean", "VariableV2", variable=(4,), dtype=FLOAT),
        node("m", "VarHandleOp", variable=(3, 4), dtype=FLOAT),
        node("beta1_power", "VariableV2", variable=None, dtype=FLOAT),
        node("global_step", "VarHandleOp", variable=(1,), dtype=INT64),
        node("x", "Placeholder", variable=(7, 3), dtype=FLOAT),
        node("train/update", "ApplyAdam", "a/kernel", "m", "x"),
        node("train/update_1", "ResourceApplyGradientDescent", "a/bias", "x"),
    )
    assert not found.is_function
    assert counted(found) == {
        "a/kernel": ((3, 4), True),
        "a/bias": ((4,), True),
        "a/moving_mean": ((4,), False),
        "beta1_power": (None, None),
    }
    assert apart(found) == {"m": OPTIMIZER, "global_step": COUNTER}


def test_a_list_of_what_is_trained_counts_more_than_guesses(path: Path) -> None:
    nodes = [node(name, "VariableV2", variable=(2,), dtype=FLOAT) for name in ("w", "v", "w/Adam")]
    found = variables(path, *nodes, trainable={"w"})
    assert counted(found) == {"w": ((2,), True), "v": ((2,), False)}
    assert apart(found) == {"w/Adam": OPTIMIZER}


def handle(name: str) -> bytes:
    return node(f"{name}/ReadVariableOp/resource", "Placeholder", dtype=RESOURCE, outputs=[()])


def read(name: str, dims: tuple[int, ...] | None, *inputs: str, dtype: int = FLOAT) -> bytes:
    source = inputs or (f"{name}/ReadVariableOp/resource",)
    return node(f"{name}/ReadVariableOp", "ReadVariableOp", *source, outputs=[dims], dtype=dtype)


def captured(name: str, dims: tuple[int, ...] | None, dtype: int = FLOAT) -> tuple[bytes, bytes]:
    """Return the nodes by which a function reads a variable."""
    return handle(name), read(name, dims, dtype=dtype)


def test_a_function_reads_variables_whose_shapes_stand_at_the_op_that_reads(path: Path) -> None:
    found = variables(
        path,
        node("x", "Placeholder", variable=(7, 3), dtype=FLOAT),
        *captured("model/hidden1/MatMul", (3, 4)),
        *captured("model/dropout", (2,), INT64),
        *captured("model/odd/Add", None),
    )
    assert found.is_function
    assert counted(found) == {"model/hidden1/MatMul": ((3, 4), None), "model/odd/Add": (None, None)}
    assert apart(found) == {"model/dropout": COUNTER}
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
        node("model/bn/add", "AddV2", "model/bn/Cast/ReadVariableOp"),
        node("model/bn/AssignVariableOp", "AssignVariableOp", f"model/bn/Cast/{resource}", "model/bn/add"),
        node("loss", "Mean", "model/a/MatMul/ReadVariableOp", "model/frozen/MatMul/ReadVariableOp"),
        node("AssignAddVariableOp", "AssignAddVariableOp", f"Add/{resource}", "loss"),
        node("gradient_tape/model/a/MatMul", "MatMul", "loss"),
        node("sgd/add", "AddV2", "sgd/Mul/ReadVariableOp", "gradient_tape/model/a/MatMul"),
        node("sgd/AssignVariableOp", "AssignVariableOp", f"sgd/Mul/{resource}", "sgd/add"),
        read("sgd/mul_1", (3, 4), f"sgd/Mul/{resource}", "^sgd/AssignVariableOp"),
        node("sgd/mul_1", "Mul", "sgd/mul_1/ReadVariableOp", "sgd/Cast/ReadVariableOp"),
        node("sgd/AssignSubVariableOp", "AssignSubVariableOp", f"model/a/MatMul/{resource}", "sgd/mul_1"),
    ]


def test_a_training_step_says_what_is_trained_and_what_an_optimizer_keeps(path: Path) -> None:
    found = variables(path, *training_step())
    assert counted(found) == {
        "model/a/MatMul": ((3, 4), True),
        "model/bn/Cast": ((4,), False),
        "model/frozen/MatMul": ((4, 4), None),
    }
    assert apart(found) == {"Add": COUNTER, "sgd/Mul": OPTIMIZER, "sgd/Cast": OPTIMIZER, "sgd/Add": OPTIMIZER}


def test_lists_that_a_loop_fills_for_the_gradients_are_no_gradients(path: Path) -> None:
    found = variables(
        path,
        *training_step(),
        node("gradient_tape/size", "Const"),
        node("gradient_tape/accumulator", "EmptyTensorList", "gradient_tape/size"),
        node("model/while", "While", "gradient_tape/accumulator"),
        *captured("model/late/Cast", (9,)),
        node("model/late/update", "AssignVariableOp", "model/late/Cast/ReadVariableOp/resource", "model/while"),
    )
    assert counted(found)["model/late/Cast"] == ((9,), False)


def test_ops_that_train_resources_in_a_function(path: Path) -> None:
    resource = "ReadVariableOp/resource"
    found = variables(
        path,
        *captured("model/a/MatMul", (3, 4)),
        *captured("Adam/m", (3, 4)),
        node("Adam/update", "ResourceApplyAdam", f"model/a/MatMul/{resource}", f"Adam/m/{resource}"),
    )
    assert counted(found) == {"model/a/MatMul": ((3, 4), True)}
    assert apart(found) == {"Adam/m": OPTIMIZER}


def test_resources_that_only_go_into_functions_are_counted_as_hidden(path: Path) -> None:
    loop = node("while", "While", "b/ReadVariableOp/resource")
    found = variables(path, *captured("a/MatMul", (2,)), handle("b"), loop)
    assert counted(found) == {"a/MatMul": ((2,), None)}
    assert found.hidden == 1


def test_a_graph_of_constants_has_no_variables(path: Path) -> None:
    assert variables(path, node("c", "Const", outputs=[(3,)])).variables == []
