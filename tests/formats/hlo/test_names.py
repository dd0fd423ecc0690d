"""Names of instructions alone: which op of the framework each comes from."""

from __future__ import annotations

from hlo_builders import F32, computation, instruction, program, shape
from hypothesis import given
from hypothesis import strategies as st
from protobytes import field, message

from tfperf.formats.hlo.messages import NamedInstruction, read_names

SOURCE = field(7, message(field(1, b"MatMul"), field(2, b"model/dense/MatMul")))
DOT = instruction(1, "dot.1", "dot", shape(F32, 8), extra=SOURCE)
PROGRAM = program(computation("main", DOT, instruction(2, "copy.2", "copy", shape(F32, 8), [1])))


def test_instructions_name_their_op() -> None:
    read = read_names(PROGRAM)
    assert read is not None
    assert read.module == "jit_step"
    assert read.instructions == {
        "dot.1": NamedInstruction("dot", "model/dense/MatMul", "MatMul"),
        "copy.2": NamedInstruction("copy", "", ""),
    }


def test_devices_of_a_program_are_those_of_all_partitions() -> None:
    """Two partitions of two replicas; protobuf packs numbers."""
    assignment = message(*(field(3, field(1, bytes(replicas))) for replicas in ([4, 6], [5, 7])))
    read = read_names(program(computation("main", DOT), extra=field(15, assignment)))
    assert read is not None
    assert read.devices == (4, 5, 6, 7)


def test_bytes_that_are_no_program_are_none() -> None:
    assert read_names(b"\xff\xff\xff") is None


@given(st.binary(max_size=60))
def test_any_bytes_are_survived(data: bytes) -> None:
    for candidate in (data, PROGRAM[: len(data)] + data, field(1, data)):
        read = read_names(candidate)
        assert read is None or isinstance(read.instructions, dict)
