from __future__ import annotations

import re

import pytest

from tfperf.trace.event_names import (
    Op,
    concrete_function,
    hands_over_batch,
    is_fetch,
    is_gradient,
    is_root_iterator,
    mask,
    name_of_repeated,
    parse_op,
    pattern_of,
    starred,
    without_frame_mark,
)


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("model/dense/MatMul:MatMul", Op("tensorflow", "model/dense/MatMul", "MatMul")),
        ("model/dense/MatMul_12:", Op("tensorflow", "model/dense/MatMul_12", "MatMul")),
        ("Iterator::Root::Map", Op("tf.data", "Iterator::Root::Map", "Dataset")),
        ("jit(f)/dot:dot_general[x=1]", Op("jax", "jit(f)/dot", "dot_general")),
        ("MemcpyHToD", Op("copy", "MemcpyHToD", "MemcpyHToD")),
        ("MEMCPYDtoH 12", Op("copy", "MEMCPYDtoH 12", "MemcpyDToH")),
        ("MemcpyH2D", Op("", "MemcpyH2D", "")),
        ("EagerLocalExecute: MatMul", Op("", "EagerLocalExecute: MatMul", "")),
        ("FunctionRun", Op("", "FunctionRun", "")),
        ("ThenExecuteCallback:WaitForEvent", Op("", "ThenExecuteCallback:WaitForEvent", "")),
        ("EagerService:Enqueue", Op("", "EagerService:Enqueue", "")),
        ("", Op("", "", "")),
    ],
)
def test_what_an_event_name_says(text: str, op: Op) -> None:
    assert parse_op(text) == op


def test_old_names_knew_no_dash() -> None:
    text = "pool/MaxPool-0-TransposeNHWCToNCHW-LayoutOptimizer:Transpose"
    assert parse_op(text).type == "Transpose"
    assert parse_op(text, old_names=True) == Op("", text, "")


def test_fetches_and_pipelines() -> None:
    assert is_fetch("IteratorGetNextOp::DoCompute")
    assert is_fetch("IteratorGetNextAsOptionalOp::DoCompute")
    assert not is_fetch("IteratorGetNext/_2:_Send")
    assert is_root_iterator("Iterator::Model")
    assert not is_root_iterator("Iterator::Root::Prefetch")


def test_gradient_and_optimizer_ops() -> None:
    names = ("gradient_tape/d/MatMul:MatMul", "x/adam/Sub:Sub", "u/ResourceApplyAdam:ResourceApplyAdam")
    assert all(map(is_gradient, names))
    assert not is_gradient("model/adamant/MatMul:MatMul"), "it only sounds like an optimizer"


def test_concrete_functions() -> None:
    assert concrete_function("EagerLocalExecute: __inference_train_step_12") == "__inference_train_step_12"
    assert concrete_function("EagerExecute") == ""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("IteratorGetNext/_1:_Send", True),
        ("while/IteratorGetNext_2:_HostSend", True),
        ("IteratorGetNext/_1:_Recv", False),
        ("cond/_2:_Send", False),
        ("MemcpyH2D", True),
        ("cuMemcpyHtoDAsync_v2", True),
        ("hipMemcpyDtoDAsync", False),
    ],
)
def test_what_hands_a_batch_to_a_device(name: str, *, expected: bool) -> None:
    assert hands_over_batch(name) == expected


def test_a_function_is_asked_once_for_each_name_unless_its_answer_may_change() -> None:
    names, asked = ["a", "bbb", "a"], list[str]()
    for least, expected in ((1, [True, True, True]), (3, [False, True, False])):

        def is_as_long(name: str, least: int = least) -> bool:
            return len(name) >= least

        assert mask(names, is_as_long).tolist() == expected
        assert mask(names, lambda name: len(name) >= least).tolist() == expected  # noqa: B023
    for _ in range(2):
        mask(names, asked.append)
    assert asked == ["a", "bbb"]
    assert mask(names, "bbb".__eq__).tolist() == mask(names, re.compile("b+").fullmatch).tolist()
    assert mask(names, re.compile("a").fullmatch).tolist() == [True, False, True]


# --- which numbers in the names of ops stand for replicas and repeated layers, and which do not ---


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("bert/encoder/layer_17/attention/MatMul", "bert/encoder/layer_*/attention/MatMul"),
        ("bert/encoder/layer_._17/attention/MatMul", "bert/encoder/layer_._*/attention/MatMul"),
        ("bert/encoder/layer/17/attention/MatMul", "bert/encoder/layer/*/attention/MatMul"),
        ("transformer/h_._3/attn/c_attn/MatMul", "transformer/h_._*/attn/c_attn/MatMul"),
        ("model/transformer_layer_4/dense/MatMul", "model/transformer_layer_*/dense/MatMul"),
        ("model/transformer_layer/dense/MatMul", "model/transformer_layer_*/dense/MatMul"),
        (
            "jit(f)/transpose(jvp(EncoderBlock_3))/Dense_0/dot_general",
            "jit(f)/transpose(jvp(EncoderBlock_*))/Dense_0/dot_general",
        ),
        ("decoder/blocks_11/mlp/MatMul", "decoder/blocks_*/mlp/MatMul"),
        ("tower_2/conv/Conv2D", "tower_*/conv/Conv2D"),
        ("replica_6/model/dense/MatMul", "model/dense/MatMul"),
        ("gradient_tape/replica_1/model/layer_2/Tile", "gradient_tape/model/layer_*/Tile"),
    ],
)
def test_repeated_scopes(name: str, pattern: str) -> None:
    assert pattern_of(name) == pattern


@pytest.mark.parametrize(
    "name",
    [
        "sequential/dense_1/MatMul",  # Keras numbers all layers of a class, whether they are alike or not
        "sequential/conv2d_2/Conv2D",
        "mobilenet/block_1_expand/Conv2D",
        "model/layer_norm/batchnorm/mul",
        "adam/Mul_3",
        "model/my_layer_3",  # the op's own name, which TensorFlow makes unique by a number
        "cond_4/then/_252/Cast",
        "Iterator::Root::Map",
        "",
        "////",
    ],
)
def test_other_numbers_stay(name: str) -> None:
    assert pattern_of(name) == name


def test_a_star_stands_only_for_numbers_that_differ() -> None:
    first = "replica_6/m/layer_2/MatMul"
    assert name_of_repeated([first, "replica_6/m/layer_10/MatMul"]) == "replica_6/m/layer_*/MatMul"
    assert name_of_repeated([first, "replica_7/m/layer_2/MatMul"]) == "replica_*/m/layer_2/MatMul"


def test_the_first_replica_and_the_first_layer_of_keras_have_no_number() -> None:
    names = ["m/encoder_layer/MatMul", "replica_1/m/encoder_layer/MatMul", "m/encoder_layer_1/MatMul"]
    assert len(set(map(pattern_of, names))) == 1
    assert name_of_repeated(names) == "replica_*/m/encoder_layer_*/MatMul"


def test_numbers_of_any_kind_may_be_starred() -> None:
    assert starred({"m/dense_1/MatMul", "m/dense_12/MatMul"}, re.compile(r"_\d+(?=/|$)")) == "m/dense_*/MatMul"
    assert starred({"m/dense_1/MatMul"}, re.compile(r"_\d+(?=/|$)")) == "m/dense_1/MatMul"


def test_a_hostile_name_takes_no_time() -> None:
    """Very many characters; what looked behind or ahead from each of them would never end."""
    for part in ("layer", "layer_1)", "replica_1/", "layer/", "_._", "1"):
        assert pattern_of(part * (300_000 // len(part)))[:1] in "l*_1"


def test_people_read_frames_without_their_mark() -> None:
    assert without_frame_mark("$api.py:3165 try_to_block") == "api.py:3165 try_to_block"
    assert without_frame_mark("MatMul:MatMul") == "MatMul:MatMul"
