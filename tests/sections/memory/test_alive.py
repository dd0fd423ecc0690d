from __future__ import annotations

from pathlib import Path

import pytest
from builders import line, u64
from msgspec.structs import replace
from sections.memory.made import alloc, allocator_of, free, memory_of

from tfperf.sections.memory.analysis import shorten_alive, type_name


def test_what_is_alive_at_the_peak(tmp_path: Path) -> None:
    """Of 700, two equal tensors are 400, another one 100; 200 came before. Address 3 was used twice."""
    conv = {"tf_op": "model/conv/Conv2D", "shape": "[2,25]", "data_type": 1, "region_type": "output"}
    allocator = allocator_of(
        tmp_path,
        alloc(1, 50, 250, 3, tf_op="freed"),
        free(2, 50, 200, 3),
        alloc(3, 200, 400, 1, **conv),
        alloc(4, 200, 600, 2, **conv),
        alloc(5, 100, 700, 3, tf_op="sum", shape="[]", data_type=14, requested_bytes=90),
        free(6, 200, 500, 1),
        alloc(7, 10, 510, 4, tf_op="later"),
    )
    alive = allocator.alive
    assert alive.kind == ("tensor", "before the capture", "tensor")
    assert alive.op == ("model/conv/Conv2D", "", "sum")
    assert alive.scope == ("model/conv", "", "")
    assert alive.shape == ("[2,25]", "", "[]")
    assert alive.data_type == ("float32", "", "bfloat16")
    assert alive.region == ("output", "", "")
    assert (alive.count.tolist(), alive.total_bytes.tolist()) == ([2, 1, 1], [400, 200, 100])
    assert allocator.before_bytes == 200
    assert allocator.before_percent == pytest.approx(100 * 200 / 700)
    assert allocator.rounding_bytes == 10
    rows = alive.columns(allocator.peak_bytes)
    assert rows["peak_percent"] == pytest.approx([100 * 4 / 7, 100 * 2 / 7, 100 / 7])
    assert rows["count"] == [2, None, 1]


def test_stack_counts_as_in_use_and_is_a_row(tmp_path: Path) -> None:
    allocator = allocator_of(tmp_path, alloc(10, 100, 100, 1, bytes_reserved=50, bytes_available=850))
    assert (allocator.peak_bytes, allocator.capacity_bytes) == (150, 1000)
    assert allocator.alive.kind == ("tensor", "reserved")
    assert allocator.alive.total_bytes.tolist() == [100, 50]


def test_what_is_freed_without_an_allocation_came_before(tmp_path: Path) -> None:
    """800 before, of which 300 go; then 400 come: at the peak of 900 there are 500 of old."""
    allocator = allocator_of(tmp_path, free(1, 300, 500, 9), alloc(2, 400, 900, 1))
    assert (allocator.start_bytes, allocator.peak_bytes, allocator.before_bytes) == (800, 900, 500)


def test_addresses_beyond_63_bits_match(tmp_path: Path) -> None:
    high = u64((1 << 64) - 256)
    allocator = allocator_of(tmp_path, alloc(1, 100, 100, high), free(2, 100, 0, high), alloc(3, 200, 200, 5))
    assert allocator.alive.total_bytes.tolist() == [200]


# --- sums ---


def test_layers_add_up_and_scopes_too(tmp_path: Path) -> None:
    names = ["net/layer_1/dense/Relu", "net/layer_2/dense/Relu", "net/out_3"]
    events = [alloc(n, 100, 100 + 100 * n, n + 1, tf_op=name, shape="[5]") for n, name in enumerate(names)]
    memory = memory_of(tmp_path, line("t", *events))
    by_op, by_scope = memory.op_columns(), memory.scope_columns()
    assert (by_op["op"], by_op["count"]) == (["net/layer_*/dense/Relu", "net/out_3"], [2, 1])
    assert by_op["total_bytes"] == [200, 100]
    assert by_scope["scope"] == ["net", "net/layer_1/dense", "net/layer_2/dense"]
    assert by_scope["peak_percent"] == pytest.approx([100 / 3] * 3)


def test_only_numbers_that_differ_become_stars(tmp_path: Path) -> None:
    names = ["net_1/layer_1/Relu", "net_1/layer_2/Relu", "net_1/layer/Relu"]
    events = [alloc(n, 100, 100 + 100 * n, n + 1, tf_op=name) for n, name in enumerate(names)]
    by_op = memory_of(tmp_path, line("t", *events)).op_columns()
    assert (by_op["op"], by_op["count"]) == (["net_1/layer_*/Relu", "net_1/layer/Relu"], [2, 1])


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


def test_rows_beyond_the_first_are_one_as_large_as_they_are_together(tmp_path: Path) -> None:
    """300 came before; of four tensors the largest stays, and 30 of the other 240 bytes are rounding."""
    allocator = allocator_of(
        tmp_path,
        alloc(1, 120, 420, 1, tf_op="large"),
        *(alloc(n, 80, 420 + 80 * (n - 1), n, tf_op=f"op{n}", requested_bytes=70) for n in (2, 3, 4)),
    )
    short = shorten_alive(allocator.alive, 2)
    assert short.columns(660) == {
        "kind": ["before the capture", "other tensors", "tensor"],
        "op": [None, None, "large"],
        "scope": [None, None, None],
        "shape": [None, None, None],
        "data_type": [None, None, None],
        "region": [None, None, None],
        "count": [None, None, 1],
        "each_bytes": [None, None, 120],
        "requested_bytes": [None, None, 120],
        "total_bytes": [300, 240, 120],
        "peak_percent": pytest.approx([100 * size / 660 for size in (300, 240, 120)]),
    }
    assert replace(allocator, alive=short).rounding_bytes == allocator.rounding_bytes == 30
    assert shorten_alive(short, 3) is short
