"""The size of a batch, carried through a graph as far as it is sure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lint_builders import fed, graph, ints, op

from tfperf.formats.models.dtypes import Dims
from tfperf.formats.models.graph_file import graphs_of
from tfperf.formats.models.input_file import InputFile
from tfperf.models.linter.graph import with_batch


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
        (
            [fed("w", 20, 5), op("y", "Einsum", "x", "w", equation="abcd,de->abce", out=(-1, 28, 28, 5))],
            (32, 28, 28, 5),
        ),
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
