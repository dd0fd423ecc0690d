"""What fusions read and write: each rule by hand."""

from __future__ import annotations

import pytest
from hlo_modules import computation as named
from hlo_modules import module, of_one, op

from tfperf.formats.hlo.cost import Counting, cost_of
from tfperf.formats.hlo.model import FoundInstruction, Module

BIG, ROW = "f32[128,1000]", "f32[1000]"
BOTH: tuple[Counting, ...] = ("xla", "corrected")


def fusion(result: str, operands: list[str], *inside: FoundInstruction) -> Module:
    """A fusion of these instructions; its parameters inside are p0, p1, ..."""
    parameters = [op(f"p{at}", "parameter", each, parameter=at) for at, each in enumerate(operands)]
    names = [chr(97 + at) for at in range(len(operands))]
    fused = op("r", "fusion", result, *names, calls=["fused"], fusion_kind="kLoop")
    return of_one(fused, *operands, called=[named("fused", *parameters, *inside)])


def moved(made: Module, counting: Counting = "xla") -> int | None:
    return cost_of(made, counting).by_name["r"].bytes


def test_results_inside_stay_inside() -> None:
    made = fusion(ROW, [ROW, ROW], op("x", "add", ROW, "p0", "p1"), op("y", "multiply", ROW, "x", "p0"))
    assert (moved(made), cost_of(made).by_name["r"].flops) == (12_000, 2000)


def test_a_slice_reads_what_it_takes() -> None:
    inside = op("x", "slice", "f32[64,1000]", "p0"), op("y", "negate", "f32[64,1000]", "x")
    assert moved(fusion("f32[64,1000]", [BIG], *inside)) == 2 * 256_000


def test_a_parameter_is_read_for_each_broadcast_and_once_for_all_others() -> None:
    inside = [op(name, "broadcast", BIG, "p0") for name in ("x", "y")]
    inside += [op("n", "negate", ROW, "p0"), op("m", "tanh", ROW, "p0"), op("t", "tuple", f"({BIG},{BIG})", "x", "y")]
    assert moved(fusion(f"({BIG},{BIG})", [ROW], *inside)) == 2 * 512_000 + 3 * 4000


def test_an_update_writes_only_what_it_changes() -> None:
    update = op("r0", "dynamic-update-slice", BIG, "p0", "p1", "p2", "p2")
    assert moved(fusion(BIG, [BIG, "f32[8,1000]", "s32[]"], update)) == 2 * 32_000 + 4


def test_several_results_and_an_update_among_them() -> None:
    update = op("u", "dynamic-update-slice", BIG, "p0", "p1", "p2", "p2")
    inside = update, op("n", "negate", ROW, "p1"), op("t", "tuple", f"({BIG},{ROW})", "u", "n")
    assert moved(fusion(f"({BIG},{ROW})", [BIG, ROW, "s32[]"], *inside)) == (4000 + 4000) + (4000 + 4)


@pytest.mark.parametrize(("elements", "xla", "corrected"), [(1, 0, 0), (2, 8, 0), (8, 32, 0), (9, 36, 36)])
def test_constants_are_read_if_they_are_large(elements: int, xla: int, corrected: int) -> None:
    shape = f"f32[{elements}]"
    made = fusion(shape, [shape], op("k", "constant", shape), op("y", "add", shape, "k", "p0"))
    assert [(moved(made, each) or 0) - 8 * elements for each in BOTH] == [xla, corrected]


TABLE, ROWS = "f32[50000,256]", "f32[512,256]"


def test_a_gather_reads_the_rows_that_it_takes() -> None:
    """XLA counts the whole table, which the corrected counting does not."""
    inside = op("x", "gather", ROWS, "p0", "p1"), op("y", "negate", ROWS, "x")
    made = fusion(ROWS, [TABLE, "s32[512,1]"], *inside)
    assert [moved(made, each) for each in BOTH] == [51_200_000 + 524_288 + 2048, 2 * 524_288 + 2048]


def test_a_table_that_something_else_reads_too_is_read_whole() -> None:
    inside = op("x", "gather", ROWS, "p0", "p1"), op("n", "negate", TABLE, "p0")
    made = fusion(TABLE, [TABLE, "s32[512,1]"], *inside)
    assert moved(made, "corrected") == 2 * 51_200_000 + 2048


def test_a_parameter_that_is_the_result_is_read() -> None:
    made = fusion(ROW, [ROW])
    assert [moved(made, each) for each in BOTH] == [4000, 8000]


def test_a_tuple_is_read_by_its_parts() -> None:
    pair = f"({ROW},{BIG})"
    first = op("x", "get-tuple-element", ROW, "p0")
    assert moved(fusion(ROW, [pair], first, op("y", "negate", ROW, "x"))) == 8000


def test_fusions_inside_of_fusions_read_through() -> None:
    inner = named(
        "inner", op("q0", "parameter", BIG), op("q1", "parameter", ROW, parameter=1), op("s", "slice", ROW, "q0")
    )
    outer = named(
        "outer",
        op("p0", "parameter", BIG),
        op("p1", "parameter", ROW, parameter=1),
        op("f", "fusion", ROW, "p0", "p1", calls=["inner"]),
    )
    parameters = op("a", "parameter", BIG), op("b", "parameter", ROW, parameter=1)
    made = module(inner, outer, named("main", *parameters, op("r", "fusion", ROW, "a", "b", calls=["outer"])))
    assert moved(made) == 4000 + 4000
