"""What pooling is rounded up to, and gradients of maxima."""

from __future__ import annotations

from typing import Any

import pytest
from hlo_modules import computation, module, op
from hlo_rule_builders import MAX, ZERO, found_in, named, parameter, rules_in

from tfperf.formats.hlo.model import WindowDim

WINDOW = tuple(WindowDim(size=size) for size in (1, 2, 2, 1))


@pytest.mark.parametrize(("window", "name", "rules"), [
    (WINDOW, "jit(f)/reduce_window_max", ["TPU-PL-1"]),
    (WINDOW, "", []),  # made by the compiler
    ((WindowDim(), WindowDim(), WindowDim(5), WindowDim()), "jit(f)/cumsum", []),
])  # fmt: skip
def test_pooling_is_what_a_program_asks_for(window: Any, name: str, rules: list[str]) -> None:
    pooled = op(
        "p", "reduce-window", "f32[32,32,32,16]", "i", "zero", calls=["max"], window=window, metadata=named(name)
    )
    image = op("i", "broadcast", "f32[32,32,32,16]", "x")
    assert rules_in(parameter("x", "f32[1]"), image, ZERO, pooled, called=[MAX]) == rules


def test_gradients_of_maxima_are_known_by_their_names_too() -> None:
    name = "jit(f)/transpose(jvp())/select_and_scatter_add"
    for op_name, found in ((name, [("TPU-PL-2", name)]), ("jit(f)/at_set", [])):
        scatter = op("s", "scatter", "f32[8]", "x", metadata=named(op_name))
        assert found_in(module(computation("main", parameter("x", "f32[8]"), scatter))) == found
