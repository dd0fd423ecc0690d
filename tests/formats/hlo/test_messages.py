from __future__ import annotations

from pathlib import Path

from builders import known
from hlo_builders import F32, computation, instruction, program, shape
from hypothesis import given
from hypothesis import strategies as st
from protobytes import field, message, written

from tfperf.formats.hlo.messages import NamedInstruction, accessed_bytes, read_names
from tfperf.trace.read import read_host


def accessed(*accesses: tuple[int, int, int]) -> str:
    """A breakdown of kind, memory space and size of each access."""
    fields = (message(field(1, kind), field(2, space), field(3, size)) for kind, space, size in accesses)
    return b"".join(field(1, each) for each in fields).decode("latin-1")


def test_bytes_are_added_up_by_memory_and_damaged_ones_are_unknown() -> None:
    breakdown = accessed((1, 1, 100), (2, 1, 300), (1, 2, 7))
    assert (accessed_bytes(breakdown), accessed_bytes(breakdown, space=2), accessed_bytes("")) == (400, 7, 0)
    assert [accessed_bytes(text) for text in ("\x0a\xff", "\u2603", accessed((0, 1, -5)))] == [None] * 3


SOURCE = field(7, message(field(1, b"MatMul"), field(2, b"model/dense/MatMul")))
DOT = instruction(1, "dot.1", "dot", shape(F32, 8), extra=SOURCE)
PROGRAM = program(computation("main", DOT, instruction(2, "copy.2", "copy", shape(F32, 8), [1])))


def test_instructions_name_their_op() -> None:
    read = known(read_names(PROGRAM))
    assert read.module == "jit_step"
    assert read.instructions == {
        "dot.1": NamedInstruction("dot", "model/dense/MatMul", "MatMul"),
        "copy.2": NamedInstruction("copy", "", ""),
    }


def test_devices_of_a_program_are_those_of_all_partitions() -> None:
    """Two partitions of two replicas; protobuf packs numbers."""
    assignment = message(*(field(3, field(1, bytes(replicas))) for replicas in ([4, 6], [5, 7])))
    assert known(read_names(program(computation("main", DOT), extra=field(15, assignment)))).devices == (4, 5, 6, 7)


@given(st.binary(max_size=60))
def test_any_bytes_are_survived(data: bytes) -> None:
    for candidate in (data, PROGRAM[: len(data)] + data, field(1, data)):
        read = read_names(candidate)
        assert read is None or isinstance(read.instructions, dict)


def named(name: str) -> bytes:
    return field(1, message(field(1, name.encode()), field(3, computation("main", DOT))))


def plane_with(*entries: bytes) -> bytes:
    """A metadata plane (and a host plane, since a trace without events is none)."""
    names = [
        field(5, message(field(1, key), field(2, message(field(1, key), field(2, name)))))
        for key, name in ((1, b"Hlo Proto"), (2, b"program_id"))
    ]
    made = field(1, message(field(2, b"/host:metadata"), *entries, *names))
    return made + field(1, message(field(2, b"/host:CPU")))


def entry(key: int, *stats: bytes) -> bytes:
    return field(4, message(field(1, key), field(2, message(field(2, b"jit_step(7)"), *stats))))


def blob(data: bytes) -> bytes:
    return field(5, message(field(1, 1), field(6, data)))


def test_the_program_id_is_a_stat_or_the_key(tmp_path: Path) -> None:
    """An id above 2^63 is kept as the signed number that events have for it."""
    stat = field(5, message(field(1, 2), field(3, (1 << 64) - 5)))
    path = written(tmp_path, plane_with(entry(7, blob(named("a"))), entry(8, blob(named("b")), stat)))
    programs = read_host(path).programs
    assert {key: each.module for key, each in programs.items()} == {7: "a", -5: "b"}


def test_bytes_that_are_no_program_are_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, plane_with(entry(7, blob(b"\xff\xff\xff")), entry(8)))
    assert read_host(path).programs == {}
