from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tfprof_builders import message, shape

from tfperf.formats.models.checkpoint import Tensor
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.formats.models.variables import (
    COUNTER,
    OPTIMIZER,
    Variable,
    checkpoint_variables,
    judged,
    named,
    saved_variables,
    without_slots,
)


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


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint32", "bool", "string", "resource", "int16"])
def test_whole_numbers_count_or_seed_something(dtype: str) -> None:
    assert judged([variable("global_step", (), dtype)])[0].apart == COUNTER


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float8_e4m3fn", "complex64", "int8", "uint8", "qint8", "int4", ""]
)
def test_real_and_quantized_numbers_are_parameters(dtype: str) -> None:
    assert not judged([variable("dense/kernel", dtype=dtype)])[0].apart


def test_statistics_are_not_trained_and_of_others_nothing_is_known() -> None:
    judgement = {each.name: each.trainable for each in judged([variable("bn/moving_mean"), variable("bn/gamma")])}
    assert judgement == {"moving_mean": False, "gamma": None}


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
    found = variables(
        file, node({"variables": 1, "_all_variables": 2}), node({"0": 3}), node({"0": 4}), saved("a"), saved("b")
    )
    assert sorted(trainable(found)) == ["a", "b"]


def test_variables_of_one_name_are_told_apart_by_their_place(file: InputFile) -> None:
    found = variables(
        file, node({"left": 1, "right": 2}), node({"w": 3}), node({"w": 4}), saved("Variable:0"), saved("Variable:0")
    )
    assert sorted(trainable(found)) == ["left/w", "right/w"]


def test_the_flag_of_a_variable_counts_but_below_layers_of_keras_which_have_their_own(file: InputFile) -> None:
    layer = node({"kernel": 3, "mean": 4, "_inbound_nodes": 5})
    found = variables(
        file,
        node({"w": 1, "layer": 2}),
        saved("w"),
        layer,
        saved("layer/kernel"),
        saved("layer/mean", trainable=False),
        node(),
    )
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
    assert {each.path for each in found if each.apart == OPTIMIZER} == {
        "adam/iteration",
        "adam/learning_rate",
        "adam/layer_kernel_momentum",
    }


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
