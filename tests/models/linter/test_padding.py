"""What padding costs: the worked examples of the fact sheet, to the digit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lint_builders import fed, graph, ints, op

from tfperf.formats.models.dtypes import Dims
from tfperf.formats.models.graph_file import graphs_of
from tfperf.formats.models.input_file import InputFile
from tfperf.models.linter.graph import with_batch
from tfperf.models.linter.padding import (
    MIB,
    Level,
    both_orders,
    convolution_multiples,
    level_of,
    pad,
    padding,
    with_multiples,
)


@pytest.mark.parametrize(
    ("dims", "of_dim", "elements", "padded", "waste", "ratio"),
    [
        ((30, 28, 28, 20), {0: 8, 3: 128}, 470_400, 3_211_264, 85.35, 6.83),
        ((30, 28, 28, 20), {0: 128, 3: 8}, 470_400, 2_408_448, 80.47, 5.12),
        ((100, 56, 56, 64), {0: 128, 3: 8}, 20_070_400, 25_690_112, 21.88, 1.28),
        ((128, 224, 224, 3), {0: 128, 3: 8}, 19_267_584, 51_380_224, 62.50, 2.67),
        ((128, 224, 224, 3), {0: 8, 3: 128}, 19_267_584, 822_083_584, 97.66, 42.67),
        ((100, 784), {0: 8, 1: 128}, 78_400, 93_184, 15.87, 1.19),
        ((784, 128), {0: 8, 1: 128}, 100_352, 100_352, 0.0, 1.0),
        ((32, 10), {0: 8, 1: 128}, 320, 4_096, 92.19, 12.8),
        ((3, 3, 3, 20), {2: 8, 3: 128}, 540, 9_216, 94.14, 17.07),
        ((3, 3, 3, 20), {2: 128, 3: 8}, 540, 27_648, 98.05, 51.2),
    ],
)
def test_worked_examples(
    dims: tuple[int, ...], of_dim: dict[int, int], elements: int, padded: int, waste: float, ratio: float
) -> None:
    found = with_multiples(dims, of_dim)
    assert (found.elements, found.padded_elements) == (elements, padded)
    assert (round(100 * found.waste, 2), round(found.ratio, 2)) == (waste, ratio)


@pytest.mark.parametrize(
    ("batch", "forward", "kernel_gradient"),
    [(30, (8, 128), (128, 8)), (63, (8, 128), (128, 8)), (64, (128, 8), (8, 128)), (128, (128, 8), (8, 128))],
)
def test_multiples_of_convolutions(batch: int, forward: tuple[int, int], kernel_gradient: tuple[int, int]) -> None:
    assert convolution_multiples(batch) == forward
    assert convolution_multiples(batch, kernel_gradient=True) == kernel_gradient


def test_without_a_layout_there_is_a_range() -> None:
    head = both_orders("result", (2048, 10), 4)
    assert (head.least.ratio, head.most.ratio) == (1.6, 12.8)
    assert head.least.padded == (2048, 16)
    assert head.padded_bytes == 2048 * 16 * 4
    assert head.wasted_bytes == 2048 * 6 * 4


@pytest.mark.parametrize(
    ("ratio", "padded_bytes", "level"),
    [(2.0, MIB, "high"), (50.0, MIB - 1, "medium"), (1.25, 1 << 40, "medium"), (1.24, 1 << 40, "info")],
)
def test_small_tensors_never_rank_high(ratio: float, padded_bytes: int, level: Level) -> None:
    assert level_of(ratio, padded_bytes) == level


def test_dimensions_that_are_not_known_have_no_padding() -> None:
    with pytest.raises(ValueError, match="are unknown"):
        padding((-1, 28), (8, 128))
    with pytest.raises(ValueError, match="not 1"):
        padding((1, 2), (8,))


def test_nothing_wastes_nothing_and_huge_dimensions_are_exact() -> None:
    assert (padding((0, 10), (8, 128)).ratio, padding((0, 10), (8, 128)).waste) == (1.0, 0.0)
    assert padding((2**62, 2**62 + 1), (8, 128)).padded == (2**62, 2**62 + 128)


@given(size=st.integers(0, 2**40), multiple=st.integers(1, 1024))
def test_a_size_is_rounded_up_to_the_next_multiple(size: int, multiple: int) -> None:
    found = pad(size, multiple)
    assert found % multiple == 0
    assert size <= found < size + multiple


def shape_of(last: str, *nodes: dict[str, Any], batch: int = 32) -> Dims | None:
    """Return the dimensions of a node when the batch size is known."""
    (found,) = graphs_of(InputFile(Path("graph.pb"), "GraphDef", graph(*nodes)))
    with_batch(found, batch)
    return next(found.shape(index) for index, node in enumerate(found.nodes) if node.name == last)


IMAGE = fed("x", -1, 28, 28, 20)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([fed("k", 3, 3, 20, 8), op("y", "Conv2D", "x", "k", out=(-1, 28, 28, 8))], (32, 28, 28, 8)),
        ([fed("b", 20), op("y", "BiasAdd", "x", "b", out=(-1, 28, 28, 20))], (32, 28, 28, 20)),
        ([fed("b", 1, 28, 28, 20), op("y", "AddV2", "b", "x", out=(-1, 28, 28, 20))], (32, 28, 28, 20)),
        ([ints("to", -1, 15680), op("y", "Reshape", "x", "to", out=(-1, 15680))], (32, 15680)),
        ([ints("to", -1, 20), op("y", "Reshape", "x", "to", out=(-1, 20))], (25088, 20)),
        ([ints("p", 1, 2, 0, 3), op("y", "Transpose", "x", "p", out=(28, 28, -1, 20))], (28, 28, 32, 20)),
        ([ints("a", 1, 2), op("y", "Mean", "x", "a", out=(-1, 20))], (32, 20)),
        ([ints("a", -1), op("y", "ConcatV2", "x", "x", "a", out=(-1, 28, 28, 40))], (32, 28, 28, 40)),
        ([fed("w", 20, 5), op("y", "Einsum", "x", "w", equation="abcd,de->abce", out=(-1, 1, 1, 5))], (32, 1, 1, 5)),
    ],
)
def test_the_batch_is_carried_on(nodes: list[dict[str, Any]], expected: Dims) -> None:
    assert shape_of("y", IMAGE, *nodes) == expected


@pytest.mark.parametrize(
    "nodes",
    [
        [ints("a", 0), op("y", "Mean", "x", "a", out=(-1, 28, 20))],
        [ints("a", 0), op("y", "ConcatV2", "x", "x", "a", out=(-1, 28, 28, 20))],
        [fed("b", -1, 28, 28, 20), op("w", "Where", "x", out=(-1, 4)), op("y", "Unique", "w", out=(-1, 4))],
        [op("y", "Reshape", "x", "x", out=(-1, -1))],
        [ints("to", -1, 19), op("y", "Reshape", "x", "to", out=(-1, 19))],
        [op("y", "MatMul", "x", "x", out=(-1, 3), transpose_a=True)],
    ],
)
def test_what_is_not_sure_stays_open(nodes: list[dict[str, Any]]) -> None:
    found = shape_of("y", IMAGE, *nodes)
    assert found is not None
    assert -1 in found


def test_different_sizes_do_not_mix() -> None:
    assert shape_of("y", fed("x", -1, 4), fed("z", 7, 4), op("y", "AddV2", "x", "z", out=(-1, 4))) == (-1, 4)
