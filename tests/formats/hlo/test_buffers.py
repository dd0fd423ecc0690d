"""The memory of a program when it is fullest, of a buffer assignment that is small enough to check by hand."""

from __future__ import annotations

import pytest
from hlo_builders import (
    ALLOCATE,
    F32,
    FREE,
    SHARE,
    TUPLE,
    allocation,
    computation,
    heap_trace,
    instruction,
    layout,
    named,
    program,
    shape,
    value,
    vector,
)
from protobytes import field, message

from tfperf.formats.hlo.buffers import Plan, read_plans
from tfperf.formats.hlo.hlo_proto import read_proto

FUSED = computation(
    "fused",
    instruction(21, "x", "parameter", vector(4)),
    instruction(22, "m", "multiply", vector(16), [21, 21], extra=named("loss/mul", 9)),
    number=2,
    root=22,
)
MAIN = computation(
    "main",
    instruction(1, "p0", "parameter", vector(4), extra=named("x", 1)),
    instruction(2, "p1", "parameter", vector(8), extra=field(9, 1)),
    instruction(3, "a", "fusion", vector(16), [1], calls=[2]),
    instruction(4, "c", "add", vector(16), [3, 3], extra=named("layer_1/add", 12)),
    instruction(5, "b", "custom-call", shape(TUPLE, parts=[vector(32), vector(2)]), [4]),
    instruction(6, "d", "copy", vector(4), [1]),
    instruction(7, "r", "custom-call", vector(8), [2, 5, 6]),
    root=7,
)
VALUES = (
    value(10, 16, 1),
    value(11, 32, 2),
    value(12, 64, 3),
    value(13, 64, 4),
    value(14, 128, 5, 0),
    value(15, 16, 6),
    value(16, 32, 7),
    value(17, 8, 5, 1),
)
ALLOCATIONS = (
    allocation(16, 10, parameter=1),
    allocation(32, 16, 11, parameter=1, live_out=1),
    allocation(24, 17, live_out=1),
    allocation(256, 12, 13, 14, 15),
    allocation(8, thread=1),
)
EVENTS = (
    (ALLOCATE, 12),  # a: 64
    (SHARE, 13, 12),  # c in the memory of a
    (FREE, 12),
    (ALLOCATE, 14),  # b: 192 in use
    (FREE, 14),
    (ALLOCATE, 15),  # d: 80
    (FREE, 13),
    (FREE, 15),
)


def plans(*buffers: bytes) -> dict[str, Plan]:
    serialized = program(FUSED, MAIN, buffers=message(*buffers))
    return read_plans(serialized, read_proto(serialized), lambda space: f"space {space}")


def test_the_values_alive_at_the_peak_and_what_stays_add_up_to_the_planned_memory() -> None:
    (plan,) = plans(*VALUES, *ALLOCATIONS, heap_trace(*EVENTS)).values()
    found = [(each.kind, each.instruction, each.bytes, each.first, each.last) for each in plan.buffers]
    assert found == [
        ("temporary", "b", 128, 2, 2),
        ("temporary", "c", 64, 0, 3),
        ("unused", "", 64, None, None),
        ("parameter", "p1", 32, None, None),
        ("output", "b", 24, None, None),
        ("parameter", "p0", 16, None, None),
    ]
    assert plan.total_bytes == sum(each.bytes for each in plan.buffers) == 16 + 32 + 24 + 256
    assert plan.live == ((0, "a", 72 + 64), (1, "c", 72 + 64), (2, "b", 72 + 192), (3, "d", 72 + 80))
    assert [each.is_reused for each in plan.buffers] == [False, False, False, True, False, False]


def test_a_buffer_has_the_shape_op_and_line_of_its_value() -> None:
    (plan,) = plans(*VALUES, *ALLOCATIONS, heap_trace((ALLOCATE, 12), (ALLOCATE, 15), (FREE, 12), (FREE, 15))).values()
    found = {each.instruction: each for each in plan.buffers if each.kind == "temporary"}
    fused, copied = found["a"], found["d"]
    assert (fused.opcode, fused.shape, fused.framework_op, fused.source) == (
        "fusion",
        "f32[16]{0}",
        "loss/mul",
        "train.py:9",
    )
    assert (copied.framework_op, copied.source) == ("x", "train.py:1")


def test_padding_is_what_tiles_add_to_the_elements() -> None:
    tiled = shape(F32, 4, 4, layout=layout(1, 0, tiles=[[8, 128]]))
    serialized = program(
        computation("main", instruction(1, "t", "iota", tiled)),
        buffers=message(value(5, 4096, 1), allocation(4096, 5, live_out=1)),
    )
    (plan,) = read_plans(serialized, read_proto(serialized), str).values()
    assert [(each.bytes, each.padding_bytes) for each in plan.buffers] == [(4096, 4096 - 64)]


def test_each_memory_space_has_its_plan() -> None:
    spaces = plans(*VALUES, allocation(16, 10, parameter=1, space=5), allocation(64, 12))
    found = {name: [(each.kind, each.bytes) for each in plan.buffers] for name, plan in spaces.items()}
    assert found == {"space 5": [("parameter", 16)], "space 0": [("temporary", 64)]}


@pytest.mark.parametrize(
    "events",
    [
        ((FREE, 12),),
        ((ALLOCATE, 12), (ALLOCATE, 12)),
        ((ALLOCATE, 12), (FREE, 12), (FREE, 12)),
        ((SHARE, 13, 12),),
        ((ALLOCATE, 12), (ALLOCATE, 13), (ALLOCATE, 14), (ALLOCATE, 15)),  # more than the allocation has
        (),
    ],
)
def test_a_record_that_contradicts_itself_is_not_used(events: tuple[tuple[int, ...], ...]) -> None:
    """Then it is unknown which of the temporaries exist at a time."""
    of_temporaries = allocation(256, 12, 13, 14, 15) if len(events) < 4 else allocation(200, 12, 13, 14, 15)
    (plan,) = plans(*VALUES, of_temporaries, heap_trace(*events)).values()
    assert [(each.kind, each.instruction, each.first) for each in plan.buffers] == [("temporary", "", None)]
    assert plan.live == ()


def test_temporaries_that_replace_each_other_at_one_place_are_known_by_the_largest() -> None:
    (plan,) = plans(*VALUES, allocation(128, 12, 14)).values()
    assert [(each.kind, each.instruction, each.bytes) for each in plan.buffers] == [("temporary", "b", 128)]


def test_of_two_records_of_an_allocation_the_one_with_the_highest_peak_counts() -> None:
    low, high = heap_trace((ALLOCATE, 12), (FREE, 12)), heap_trace((ALLOCATE, 14), (FREE, 14))
    (plan,) = plans(*VALUES, ALLOCATIONS[3], low, high).values()
    assert [(each.kind, each.bytes) for each in plan.buffers] == [("temporary", 128), ("unused", 128)]


def test_small_buffers_are_summed() -> None:
    (plan,) = plans(*VALUES, *ALLOCATIONS, heap_trace(*EVENTS)).values()
    cut = plan.cut(2)
    assert [(each.kind, each.bytes) for each in cut.buffers] == [("others", 136), ("temporary", 128), ("temporary", 64)]
    assert (cut.total_bytes, plan.cut(6)) == (plan.total_bytes, plan)


def test_a_program_without_an_assignment_has_no_plan() -> None:
    serialized = program(FUSED, MAIN)
    assert read_plans(serialized, read_proto(serialized), str) == {}
    assert read_plans(b"\xff", read_proto(serialized), str) == {}
