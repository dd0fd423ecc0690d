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
    parse_op,
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


@pytest.mark.parametrize(
    "name", ["gradient_tape/d/MatMul:MatMul", "x/adam/Sub:Sub", "u/ResourceApplyAdam:ResourceApplyAdam"]
)
def test_gradient_and_optimizer_ops(name: str) -> None:
    assert is_gradient(name)


def test_an_op_that_only_sounds_like_an_optimizer_is_none() -> None:
    assert not is_gradient("model/adamant/MatMul:MatMul")


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
