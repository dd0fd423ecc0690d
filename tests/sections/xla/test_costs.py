"""What a run computes and moves, by the program; the formulas are tested in tests/programs."""

from __future__ import annotations

import pytest
from hlo_builders import F32, computation, instruction, program, shape
from protobytes import field, message

from tfperf.formats.hlo.hlo_proto import read_proto
from tfperf.sections.xla.instructions import OpCost, ProgramCosts, precision_of

BF16 = 16
CONTRACTING = field(30, message(field(1, 1), field(2, 0)))


def costs_of(*instructions: bytes, root: int, more: bytes = b"") -> tuple[ProgramCosts, dict[str, tuple[int, int]]]:
    parts = (
        (more, computation("main", *instructions, root=root))
        if more
        else (computation("main", *instructions, root=root),)
    )
    module = read_proto(program(*parts))
    return ProgramCosts(module), module.by_name


def test_a_product_is_held_against_the_peak_of_what_it_multiplies() -> None:
    """[4,8] x [8,2] in bfloat16 with a float32 result: 2*4*8*2 operations; 64 + 32 + 32 bytes."""
    costs, at = costs_of(
        instruction(1, "a", "parameter", shape(BF16, 4, 8)),
        instruction(2, "b", "parameter", shape(BF16, 8, 2), extra=field(9, 1)),
        instruction(3, "dot", "dot", shape(F32, 4, 2), [1, 2], extra=CONTRACTING),
        root=3,
    )
    assert costs.of(*at["dot"]) == OpCost(128.0, 128.0, 64.0 + 32 + 32, "bf16")


def test_a_fusion_is_held_against_the_product_inside() -> None:
    inner = computation(
        "fused",
        instruction(11, "p", "parameter", shape(BF16, 4, 8)),
        instruction(12, "q", "parameter", shape(BF16, 8, 2), extra=field(9, 1)),
        instruction(13, "d", "dot", shape(F32, 4, 2), [11, 12], extra=CONTRACTING),
        number=2,
        root=13,
    )
    costs, at = costs_of(
        instruction(1, "a", "parameter", shape(BF16, 4, 8)),
        instruction(2, "b", "parameter", shape(BF16, 8, 2), extra=field(9, 1)),
        instruction(3, "fusion", "fusion", shape(F32, 4, 2), [1, 2], calls=[2]),
        root=3,
        more=inner,
    )
    cost = costs.of(*at["fusion"])
    assert (cost.flops, cost.matrix_flops, cost.precision) == (128, 128, "bf16")


@pytest.mark.parametrize(("kind", "precision"), [(F32, "fp32"), (BF16, "fp32"), (12, "fp64")])
def test_other_work_is_held_against_the_vector_units(kind: int, precision: str) -> None:
    one = instruction(1, "a", "parameter", shape(kind, 8))
    costs, at = costs_of(one, instruction(2, "s", "add", shape(kind, 8), [1, 1]), root=2)
    cost = costs.of(*at["s"])
    assert (cost.flops, cost.matrix_flops, cost.precision) == (8, 0, precision)


def test_calls_that_nobody_knows_stay_unknown_and_loops_have_no_cost_of_their_own() -> None:
    call = instruction(1, "c", "custom-call", shape(F32, 8), extra=field(28, b"mystery"))
    body = computation("body", instruction(11, "p", "parameter", shape(F32, 8)), number=2, root=11)
    costs, at = costs_of(call, instruction(2, "w", "while", shape(F32, 8), [1], calls=[2, 2]), root=2, more=body)
    assert costs.of(*at["c"]).flops is None
    assert costs.of(*at["w"]) == OpCost()


def test_a_program_that_cannot_be_costed_has_no_costs() -> None:
    costs, at = costs_of(instruction(1, "d", "dot", shape(F32, 8)), root=1)
    assert costs.of(*at["d"]) == OpCost()


def test_types_have_the_peaks_that_devices_state() -> None:
    assert [precision_of(name) for name in ("f8e4m3fn", "s8", "f16", "s32", "c64")] == [
        "fp8",
        "int8",
        "fp16",
        None,
        None,
    ]
