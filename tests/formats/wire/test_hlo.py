"""XLA programs in a profile: where they are, and by which id."""

from __future__ import annotations

from pathlib import Path

import pytest
from protobytes import field, message

from tfperf.trace.read import read_host


def program(module: bytes = b"jit_step") -> bytes:
    """A module with one instruction that has a source, and one that has none."""
    source = field(7, message(field(1, b"MatMul"), field(2, b"model/dense/MatMul")))
    dot = field(2, message(field(1, b"dot.1"), field(2, b"dot"), source))
    copy = field(2, message(field(1, b"copy.2"), field(2, b"copy")))
    return field(1, message(field(1, module), field(3, message(field(1, b"main"), dot, copy))))


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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made.xplane.pb"


def test_the_program_id_is_a_stat_or_the_key(path: Path) -> None:
    """An id above 2^63 is kept as the signed number that events have for it."""
    stat = field(5, message(field(1, 2), field(3, (1 << 64) - 5)))
    path.write_bytes(plane_with(entry(7, blob(program(b"a"))), entry(8, blob(program(b"b")), stat)))
    programs = read_host(path).programs
    assert {key: each.module for key, each in programs.items()} == {7: "a", -5: "b"}


def test_bytes_that_are_no_program_are_left_out(path: Path) -> None:
    path.write_bytes(plane_with(entry(7, blob(b"\xff\xff\xff")), entry(8)))
    assert read_host(path).programs == {}
