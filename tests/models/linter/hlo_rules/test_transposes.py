"""Transposes, in the layouts of a TPU."""

from __future__ import annotations

from typing import Any

import pytest
from hlo_modules import op
from hlo_rule_builders import SQUARE, named, rules_in

from tfperf.formats.hlo.model import Shape


@pytest.mark.parametrize(("tiles", "name", "rules"), [
    (((8, 128),), "jit(f)/transpose", ["TPU-TR-1"]),
    ((), "jit(f)/transpose", []),  # the layout of a CPU or GPU
    (((8, 128),), "", []),
    (((8, 128),), "jit(f)/conv_general_dilated", []),  # the compiler's, with an inherited name
])  # fmt: skip
def test_transposes_need_the_layouts_of_a_tpu(tiles: Any, name: str, rules: list[str]) -> None:
    made = op("t", "transpose", "f32[1024,1024]", "x", metadata=named(name))
    made.fields["shape"] = Shape("f32", (1024, 1024), (1, 0), tiles)
    assert rules_in(SQUARE, made) == rules
