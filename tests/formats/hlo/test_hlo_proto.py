"""Programs from protobuf: what is read, what is resolved, and what is refused in one line."""

from __future__ import annotations

import pytest
from hlo_builders import F32, TUPLE, computation, instruction, layout, module, program, shape
from hypothesis import given
from hypothesis import strategies as st
from protobytes import field, message, nested_groups

from tfperf.formats.hlo.hlo_proto import read_number_types, read_proto
from tfperf.formats.hlo.model import BufferSizes, ConvolutionDims, DotDims, Frame, ProgramError, Shape, WindowDim

VECTOR = shape(F32, 8, layout=layout(0))
BIG = 5 << 32


def one(*fields: bytes, opcode: str = "custom-call", of: bytes = VECTOR, extra: bytes = b"") -> bytes:
    return program(computation("main", instruction(1, "r", opcode, of, extra=message(*fields))), extra=extra)


def test_operands_are_positions_whatever_the_ids_are() -> None:
    parameter, add = instruction(BIG, "a", "parameter", VECTOR), instruction(BIG + 9, "s", "add", VECTOR, [BIG, BIG])
    read = read_proto(program(computation("main", parameter, add, root=BIG + 9)))
    assert (read.name, read.id, read.entry.name) == ("jit_step", 7, "main")
    root = read.entry.root_instruction
    assert (root.name, root.opcode, root.operands) == ("s", "add", (0, 0))
    assert [each.name for each in read.entry.operands_of(root)] == ["a", "a"]
    assert read.entry.users == ((1,), ())
    assert read.by_name == {"a": (0, 0), "s": (0, 1)}


def test_a_module_and_a_snapshot_are_told_from_a_program() -> None:
    inner = computation("main", instruction(1, "r", "iota", VECTOR))
    snapshot = field(1, program(inner)) + field(4, b"Host")
    assert read_proto(module(inner)) == read_proto(program(inner)) == read_proto(snapshot)


def test_a_shape_has_its_size_layout_and_tiles() -> None:
    tiled = shape(16, 100, 20, layout=layout(1, 0, tiles=[[8, 128], [2, 1]]))
    (read,) = read_proto(one(of=tiled)).entry.instructions
    assert read.shape == Shape("bf16", (100, 20), (1, 0), ((8, 128), (2, 1)))
    assert (read.shape.elements, read.shape.bytes) == (2000, 4000)
    assert str(read.shape) == "bf16[100,20]{1,0:T(8,128)(2,1)}"


def test_a_tuple_has_the_bytes_of_its_arrays() -> None:
    pair = shape(TUPLE, parts=[VECTOR, shape(TUPLE, parts=[shape(1, 3), shape(17)])])
    (read,) = read_proto(one(of=pair)).entry.instructions
    assert [leaf.type for leaf in read.shape.leaves()] == ["f32", "pred", "token"]
    assert (read.shape.bytes, str(read.shape)) == (35, "(f32[8]{0}, (pred[3], token[]))")


def test_four_bits_take_a_byte_unless_the_layout_packs_them() -> None:
    packed = shape(21, 3, layout=layout(0) + field(7, 4))
    pair = [read_proto(one(of=of)).entry.root_instruction.shape for of in (shape(21, 3), packed)]
    assert [(str(each), each.bytes) for each in pair] == [("s4[3]", 3), ("s4[3]{0:E(4)}", 2)]


def test_a_dynamic_dimension_has_its_bound_and_room_for_its_length() -> None:
    read = read_proto(one(of=shape(F32, 8, 16) + field(6, 1) + field(6, 0))).entry.root_instruction.shape
    assert (str(read), read.elements, read.bytes) == ("f32[<=8,16]", 128, 128 * 4 + 2 * 4)


def test_dimensions_of_a_dot_and_a_convolution() -> None:
    dot = field(30, message(field(1, 1), field(2, 0), field(3, 2), field(4, 3)))
    numbers = message(*(field(key, key) for key in (3, 4, 6, 7, 8, 9, 10, 11, 12)))
    padded = field(1, message(field(1, 3), field(2, 2), field(3, -1), field(4, 1), field(6, 4)))
    window = field(15, padded)
    (read,) = read_proto(one(dot, field(16, numbers), window, field(50, 4))).entry.instructions
    assert read.dot == DotDims((1,), (0,), (2,), (3,))
    assert read.convolution == ConvolutionDims(7, 8, (11,), 3, 4, (6,), 9, 10, (12,))
    assert read.window == (WindowDim(3, 2, -1, 1, 1, 4),)
    assert (read.feature_groups, read.batch_groups) == (4, 1)
    grouped = field(90, message(field(1, message(field(1, 1), field(2, 1))), field(2, 0), field(3, 0)))
    assert read_proto(one(grouped)).entry.root_instruction.dot == DotDims((1,), (1,), rhs_group=(0,))


@pytest.mark.parametrize(
    ("operands", "algorithm", "allows_tf32"),
    [((), 0, True), ((0, 0), 0, True), ((0, 2), 0, False), ((1, 1), 0, False), ((2, 2), 9, True), ((0, 0), 11, False)],
)
def test_a_product_says_how_precise_it_must_be(operands: tuple[int, ...], algorithm: int, allows_tf32: bool) -> None:
    precision = field(51, message(*(field(1, each) for each in operands), field(2, algorithm)))
    assert read_proto(one(precision, opcode="dot")).entry.root_instruction.precision.allows_tf32 is allows_tf32


def test_the_source_is_the_innermost_frame() -> None:
    """Frames, places and names are counted from 1; a frame names the one that called it."""
    index = message(
        field(1, b"train.py"),
        field(2, b"main"),
        field(2, b"loss"),
        field(3, message(field(1, 1), field(2, 1), field(3, 80))),
        field(3, message(field(1, 1), field(2, 2), field(3, 12))),
        field(4, message(field(1, 1))),
        field(4, message(field(1, 2), field(2, 1))),
    )
    metadata = field(7, message(field(1, b"MatMul"), field(2, b"model/dense"), field(15, 2)))
    (read,) = read_proto(one(metadata, extra=field(17, index))).entry.instructions
    assert (read.metadata.op_type, read.metadata.op_name) == ("MatMul", "model/dense")
    assert read.metadata.stack == (Frame("train.py", 12, "loss"), Frame("train.py", 80, "main"))
    assert str(read.metadata.source) == "train.py:12"


@pytest.mark.parametrize(("place", "source"), [(1, "a.py:5"), (9, "")])
def test_a_stack_that_calls_itself_ends(place: int, source: str) -> None:
    """With a place or without one."""
    frame = field(4, message(field(1, place), field(2, 1)))
    index = message(field(1, b"a.py"), field(3, message(field(1, 1), field(3, 5))), frame)
    metadata = field(7, message(field(15, 1)))
    (read,) = read_proto(one(metadata, extra=field(17, index))).entry.instructions
    assert str(read.metadata.source) == source


def test_the_line_stands_in_the_metadata_of_older_programs() -> None:
    (read,) = read_proto(one(field(7, message(field(3, b"gen.py"), field(4, 41))))).entry.instructions
    assert str(read.metadata.source) == "gen.py:41"


def test_memory_by_the_plan_of_the_compiler() -> None:
    """Parameters, results and what is neither; memory of a thread is a part of another allocation."""
    kinds = [(100, 5), (30, 7), (7, 12), (2, 3), (11, 0)]
    rows = [field(3, message(field(2, size), *([field(kind, 1)] if kind else []))) for size, kind in kinds]
    inner = computation("main", instruction(1, "r", "iota", VECTOR))
    aliased = field(8, field(1, message(field(2, 3))))
    read = read_proto(program(inner, buffers=message(*rows), extra=aliased))
    sizes = BufferSizes(parameters=100, outputs=30, temporaries=11, constants=7)
    assert (read.buffers, sizes.total, read.aliased_parameters) == ({0: sizes}, 148, frozenset({3}))


def test_memory_spaces_are_apart_and_a_parameter_that_lives_to_the_end_is_an_output_too() -> None:
    inner = computation("main", instruction(1, "r", "iota", VECTOR))
    in_host_memory = field(2, 100) + field(5, 1) + field(7, 1) + field(8, 5)
    rows = [field(3, message(in_host_memory)), field(3, message(field(2, 11))), field(3, message(field(8, 1)))]
    read = read_proto(program(inner, buffers=message(*rows)))
    assert read.buffers == {5: BufferSizes(parameters=100, aliased=100), 0: BufferSizes(temporaries=11)}


A = instruction(1, "a", "parameter", VECTOR)


def copying(number: int, operand: int) -> bytes:
    return instruction(number, f"x{number}", "copy", VECTOR, [operand])


def calling(*calls: int, number: int) -> bytes:
    return computation(f"c{number}", instruction(1, "r", "call", VECTOR, calls=calls), number=number)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an XLA program"),
        (b"hello world, this is text", "not an XLA program"),
        (nested_groups(100_000), "not an XLA program"),
        (program(computation("main", instruction(1, "r", "add", VECTOR, [2]))), "'r' in computation 'main' refers to"),
        (program(computation("main", instruction(1, "r", "call", VECTOR, calls=[5]))), "refers to 5"),
        (program(computation("main", A, root=9)), "has no root"),
        (program(computation("main", A, A)), "two instructions in computation 'main' have the name or id 1"),
        (program(computation("other", A), entry=3), "computation 3 does not exist"),
        (program(computation("main", copying(1, 2), copying(2, 1))), "depend on each other in a cycle"),
        (program(calling(2, number=1), calling(1, number=2)), "call each other in a cycle"),
        (program(*(calling(at + 1, number=at) for at in range(1, 1500)), calling(number=1500)), "1,499 levels deep"),
        (program(computation("main", instruction(1, "r", "iota", shape(99)))), "element type 99"),
        (program(computation("main", instruction(1, "r", "iota", shape(F32, -5)))), "invalid dimensions"),
        (program(computation("main", instruction(1, "r", "iota", shape(F32, *[9] * 65)))), "invalid dimensions"),
        (program(computation("main", A, field(1, b"n") + field(2, b"iota") + field(35, 8))), "has no shape"),
    ],
)  # fmt: skip
def test_what_is_impossible_is_one_line(data: bytes, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        read_proto(data)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_instructions_may_stand_before_their_operands() -> None:
    made = instruction(2, "a", "iota", VECTOR)
    assert read_proto(program(computation("main", copying(1, 2), made))).entry.root_instruction.operands == (1,)


def test_computations_are_in_order_of_their_calls() -> None:
    read = read_proto(program(calling(3, number=1), calling(number=2), calling(2, number=3)))
    assert read.callees_first == (1, 2, 0)


def test_the_size_of_a_shape_with_an_open_dimension_is_not_known() -> None:
    (read,) = read_proto(one(of=shape(F32, -(1 << 63), 4))).entry.instructions
    assert not read.shape.is_known
    assert str(read.shape) == "f32[?,4]"
    with pytest.raises(ProgramError, match="dynamic dimension"):
        _ = read.shape.bytes


def outcome(data: bytes) -> str:
    try:
        return read_proto(data).entry.root_instruction.opcode
    except ProgramError as error:
        return str(error)


@given(st.binary(max_size=60))
def test_number_types_of_any_bytes(data: bytes) -> None:
    whole = one()
    for candidate in (data, whole[: len(data)] + data, field(1, data)):
        assert read_number_types(candidate, ["r"]).keys() <= {"r"}


@given(st.binary(max_size=60))
def test_any_bytes_are_survived(data: bytes) -> None:
    for candidate in (data, field(1, data), field(1, field(3, data))):
        assert "\n" not in outcome(candidate)
