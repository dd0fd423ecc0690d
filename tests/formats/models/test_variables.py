from __future__ import annotations

import pytest

from tfperf.formats.models.variables import COUNTER, OPTIMIZER, Variable, judged, named, without_slots


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
