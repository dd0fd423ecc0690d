"""Texts as TensorFlow 2.2 and 2.21 write them."""

from __future__ import annotations

import pytest

from tfperf.sections.roofline.analysis import Tensor, broadcast, bytes_of, parse_shapes


def test_shapes_are_read_as_tensorflow_writes_them() -> None:
    assert parse_shapes("(half[4,384,1024];int32[2];;float[])") == (
        Tensor("half", (4, 384, 1024)),
        Tensor("int32", (2,)),
        None,
        Tensor("float", ()),
    )


@pytest.mark.parametrize(
    "text", ["", "half[4]", "(half[4]", "(half)", "(half[4,])", "(half[-1])", "(HALF[4])", "(f[x])"]
)
def test_anything_else_is_no_shape(text: str) -> None:
    assert parse_shapes(text) is None


def test_a_number_that_is_no_size_and_a_text_that_was_cut_are_no_shapes() -> None:
    assert parse_shapes(f"(half[{10**30}])") is None
    assert parse_shapes("(" + ";".join(["half[1]"] * 2000) + ")") is None


def test_sizes() -> None:
    assert Tensor("half", (4, 384)).bytes == 3072
    assert Tensor("float", ()).bytes == 4
    assert Tensor("string", (2,)).bytes is None
    assert bytes_of(Tensor("float", (3,)), Tensor("bool", (3,))) == 15
    assert bytes_of(Tensor("float", (3,)), Tensor("string", ())) is None


def test_shapes_of_elementwise_ops() -> None:
    assert broadcast((4, 1, 3), (5, 1), ()) == (4, 5, 3)
    assert broadcast((4,), (5,)) is None
    assert broadcast((0,), (1,)) == (0,)
