"""What rules find in models that Keras saves, beside what a reader of Cloud TPU's notes would find in their layers.

The expected findings were written down from the code of the models and the sentences of the notes, layer by layer,
with the arithmetic of padding by hand.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from job_environment import run_tensorflow

from tfperf.models.linter.engine import LintOptions, LintResult, lint_model, lint_path

pytestmark = pytest.mark.tensorflow

MODELS = """
import sys
import keras
from keras import layers

image = keras.Input((32, 32, 3), name="image")
y = layers.Conv2D(20, 3, padding="same", activation="relu", name="first")(image)
y = layers.MaxPooling2D(2, name="pool")(y)
y = layers.SeparableConv2D(60, 3, padding="same", activation="relu", name="separable")(y)
y = layers.AveragePooling2D(2, name="mean_pool")(y)
y = layers.Conv2D(128, 3, padding="same", name="aligned")(y)
y = layers.Flatten(name="flat")(y)
cnn = keras.Model(image, layers.Dense(10, activation="softmax", name="head")(y))

features = keras.Input((56, 56, 64), name="features")
y = layers.Conv2D(64, 1, use_bias=False, name="reduce")(features)
y = layers.ReLU(name="relu1")(layers.BatchNormalization(name="norm1")(y))
y = layers.Conv2D(64, 3, padding="same", use_bias=False, name="middle")(y)
y = layers.ReLU(name="relu2")(layers.BatchNormalization(name="norm2")(y))
y = layers.Conv2D(250, 1, use_bias=False, name="expand")(y)
y = layers.BatchNormalization(name="norm3")(y)
y = layers.Add(name="add")([y, layers.Conv2D(250, 1, use_bias=False, name="shortcut")(features)])
resnet = keras.Model(features, layers.ReLU(name="out")(y))

tokens = keras.Input((128, 500), name="tokens")
y = layers.LayerNormalization(name="norm1")(tokens)
y = layers.Add(name="add1")([tokens, layers.MultiHeadAttention(8, 64, name="attention")(y, y)])
z = layers.LayerNormalization(name="norm2")(y)
z = layers.Dense(2000, activation="relu", name="wide")(z)
transformer = keras.Model(tokens, layers.Add(name="add2")([y, layers.Dense(500, name="narrow")(z)]))

for name, model in {"cnn": cnn, "resnet": resnet, "transformer": transformer}.items():
    model.export(f"{sys.argv[1]}/{name}", format="tf_saved_model", verbose=False)

import tfperf

alive = tfperf.lint(cnn, batch=32, device="tpu", fail_on=None)
print(*sorted({each.rule for each in alive.violations}))
try:
    tfperf.lint(cnn, batch=32, device="tpu", rules=["TPU-CV-1"])
except AssertionError as error:
    print(str(error).splitlines()[0])
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of the models, and what the job printed."""
    folder = tmp_path_factory.mktemp("models")
    return folder, run_tensorflow("-c", MODELS, folder).stdout.splitlines()


def by_layer(result: LintResult) -> dict[str, list[str]]:
    """Return the rules that found something in each layer, an entry each."""
    found = defaultdict(list)
    for each in result.violations:
        path = re.sub(r"(_\d+)+(?=/|$)", "", each.ops[0]).split("/")
        found[path[1] if path[1:] else path[0]].append(each.rule)
    return {layer: sorted(rules) for layer, rules in found.items()}


def test_a_cnn_with_a_batch_of_32(saved: tuple[Path, list[str]]) -> None:
    # Below 64: batch to a multiple of 8, which 32 is, and features of 128.
    assert by_layer(lint_path(saved[0] / "cnn", LintOptions(batch=32))) == {
        "image": ["TPU-RS-2"],  # 3 channels: at least 10 times as large
        "first": ["TPU-CV-1", "TPU-CV-4"],  # 3 to 20 features; bias and relu are fused
        "pool": ["TPU-PL-1"],  # 20 features, as in the convolution before it
        "separable": ["TPU-CV-1", "TPU-CV-1", "TPU-CV-4"],  # both halves: 20 to 20, 20 to 60
        "mean_pool": ["TPU-PL-1"],  # 60 features
        "aligned": ["TPU-CV-1"],  # 128 features, but 60 at its input
        # flat: 8x8x128 is not padded; head: ten classes, and small
    }


def test_a_block_of_a_resnet_with_a_batch_of_128(saved: tuple[Path, list[str]]) -> None:
    # From 64 on: batch to a multiple of 128, which 128 is, and features of 8.
    assert by_layer(lint_path(saved[0] / "resnet", LintOptions(batch=128))) == {
        "features": ["TPU-RS-2"],  # 64 features beside 56: twice as large in either order
        "norm1": ["TPU-BN-1"],
        "norm2": ["TPU-BN-1"],
        "norm3": ["TPU-BN-1"],
        "expand": ["TPU-CV-1"],  # 250 features
        "shortcut": ["TPU-CV-1"],
    }


def test_a_block_of_a_transformer_with_a_batch_of_100(saved: tuple[Path, list[str]]) -> None:
    heads = ["TPU-RS-1"] * 7  # query, key, value: weights and results to heads of 64; and back once
    assert by_layer(lint_path(saved[0] / "transformer", LintOptions(batch=100))) == {
        "norm1": ["TPU-RD-2"],  # the variance waits for the mean
        "norm2": ["TPU-RD-2"],
        "attention": heads,
        "wide": ["TPU-MM-2"],  # bias and relu are fused
    }


def test_levels_and_numbers_of_a_cnn(saved: tuple[Path, list[str]]) -> None:
    result = lint_path(saved[0] / "cnn", LintOptions(batch=32))
    (first,) = (each for each in result.violations if each.rule == "TPU-CV-1" and "first" in each.ops[0])
    assert (first.level, first.tensors[0].least.padded) == ("high", (32, 32, 32, 128))
    assert round(first.tensors[0].least.ratio, 2) == 42.67
    assert result.unknown == {}


def test_without_a_batch_size_nothing_is_guessed(saved: tuple[Path, list[str]]) -> None:
    result = lint_path(saved[0] / "cnn")
    assert {each.rule for each in result.violations} == {"TPU-CV-4"}
    assert len(result.unknown) >= 7


def test_a_model_in_a_program_gives_what_its_file_gives(saved: tuple[Path, list[str]]) -> None:
    rules, failure = saved[1]
    on_file = {each.rule for each in lint_path(saved[0] / "cnn", LintOptions(batch=32)).violations}
    # Nobody says of a function in a program who passes its arguments.
    assert {*rules.split()} == on_file - {"TPU-RS-2"}
    assert failure.startswith("4 findings in")


def test_a_serialized_graph_is_a_model_too(saved: tuple[Path, list[str]]) -> None:
    data = (saved[0] / "resnet" / "saved_model.pb").read_bytes()
    assert lint_model(data, LintOptions(batch=128)).violations
