from __future__ import annotations

import pytest

from tfperf.sections.memory.data_types import type_name


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0, ""),
        (1, "float32"),
        (3, "int32"),
        (14, "bfloat16"),
        (19, "float16"),
        (101, "float32"),
        (77, "type 77"),
        (-5, "type -5"),
    ],
)
def test_types(number: int, name: str) -> None:
    assert type_name(number) == name
