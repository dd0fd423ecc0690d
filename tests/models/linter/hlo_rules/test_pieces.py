"""Cuts that do not end where tiles end."""

from __future__ import annotations

import pytest
from hlo_modules import op
from hlo_rule_builders import named, parameter, rules_in

from tfperf.formats.hlo.model import FoundInstruction


def cut(limit: int, name: str = "jit(f)/slice", size: int = 1024) -> list[FoundInstruction]:
    piece = op("s", "slice", f"f32[{size},{limit}]", "x", slices=((0, size, 1), (0, limit, 1)), metadata=named(name))
    return [parameter("x", f"f32[{size},1024]"), piece]


@pytest.mark.parametrize(
    ("instructions", "rules"),
    [(cut(100), ["TPU-CS-1"]), (cut(128), []), (cut(100, name=""), []), (cut(100, size=8), [])],
)
def test_cuts_that_matter_are_large_and_of_the_program(instructions: list[FoundInstruction], rules: list[str]) -> None:
    assert rules_in(*instructions) == rules


def test_concatenations_have_boundaries_too() -> None:
    parts = [parameter("a", "f32[1024,100]"), parameter("b", "f32[1024,300]", 1)]
    whole = op("c", "concatenate", "f32[1024,400]", "a", "b", dimensions=(1,), metadata=named("jit(f)/concat"))
    assert rules_in(*parts, whole) == ["TPU-CS-1"]
