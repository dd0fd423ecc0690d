"""Whole numbers that follow from constants and known shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lint_builders import INT, fed, graph, ints, op

from tfperf.formats.models.graph_file import graphs_of
from tfperf.formats.models.input_file import InputFile
from tfperf.formats.models.op_graph import value_of

X = fed("x", 6, -1, 20)
SHAPE = op("s", "Shape", "x", out=(3,))


def value(*nodes: dict[str, Any]) -> Any:
    """Return what the node `y` holds."""
    (found,) = graphs_of(InputFile(Path("graph.pb"), "GraphDef", graph(X, SHAPE, *nodes)))
    index = next(index for index, node in enumerate(found.nodes) if node.name == "y")
    numbers = value_of(found, index)
    return None if numbers is None else numbers.tolist()


def scalar(name: str, number: int) -> dict[str, Any]:
    node = ints(name, number)
    del node["attr"][0]["value"]["tensor"]["tensor_shape"]
    return node


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([op("y", "Identity", "s")], None),
        ([ints("i", 0, 2), op("y", "GatherV2", "s", "i", "i")], [6, 20]),
        ([ints("i", 0, 2), op("g", "GatherV2", "s", "i", "i"), op("y", "Prod", "g", "i")], 120),
        ([ints("i", 0, 1), op("g", "GatherV2", "s", "i", "i"), op("y", "Prod", "g", "i")], -1),
        ([ints("i", 1, 2), ints("j", 5), scalar("a", 0), op("y", "ConcatV2", "i", "j", "a")], [1, 2, 5]),
        ([scalar("a", 7), scalar("b", 3), op("y", "Pack", "a", "b")], [7, 3]),
        ([scalar("a", 7), scalar("b", 3), op("y", "Sub", "a", "b")], 4),
        ([ints("b", 0), ints("e", 2), ints("n", 1), op("y", "StridedSlice", "s", "b", "e", "n")], [6, -1]),
        ([ints("b", 2), ints("n", 1), op("y", "StridedSlice", "s", "b", "n", "n", shrink_axis_mask=1)], 20),
        ([ints("b", 9), ints("n", 1), op("y", "StridedSlice", "s", "b", "n", "n", shrink_axis_mask=1)], None),
        ([ints("i", 1 << 31, 1 << 31, 4), op("y", "Prod", "i", "i")], None),
        ([op("y", "Relu", "x")], None),
    ],
)  # fmt: skip
def test_numbers(nodes: list[dict[str, Any]], expected: Any) -> None:
    assert value(*nodes) == expected


def test_numbers_that_double_do_not_take_for_ever() -> None:
    chain = [op(f"n{n + 1}", "Add", f"n{n}", f"n{n}") for n in range(25)]
    assert value(scalar("n0", 1), *chain, op("y", "Add", "n25", "n25", dtype=INT)) == 1 << 26
