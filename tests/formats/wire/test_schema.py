"""Messages as tables: parts of them, and the descriptors made of both."""

from __future__ import annotations

import pytest
from protobytes import field

from tfperf.formats.wire.schema import PROFILER, Schema, parts_of, read_message

WHOLE = {"Tree": "name 1 bytes, size 2 int32, trees 7 []Tree, root 9 Tree"}


def test_a_part_has_the_numbers_and_types_of_the_whole_unless_others_are_asked_for() -> None:
    parts = parts_of(WHOLE, {"Tree": "name trees=[]bytes", "Leaf of Tree": "size root=Tree"})
    assert parts == {"Tree": "name 1 bytes, trees 7 []bytes", "Leaf": "size 2 int32, root 9 Tree"}


def test_a_part_reads_what_the_whole_wrote() -> None:
    written = Schema("tests.whole", WHOLE).message_class("Tree")(name=b"oak", size=3, trees=[{"name": b"twig"}])
    part = Schema("tests.part", parts_of(WHOLE, {"Tree": "size trees=[]Twig", "Twig of Tree": "name"}))
    read = part.message_class("Tree").FromString(written.SerializeToString())
    assert (read.size, [twig.name for twig in read.trees]) == (3, [b"twig"])


@pytest.mark.parametrize("fields", [{"Tree": "colour"}, {"Bush": "name"}, {"Tree of Bush": "name"}])
def test_what_the_whole_does_not_have_is_an_error(fields: dict[str, str]) -> None:
    with pytest.raises(KeyError):
        parts_of(WHOLE, fields)


def test_a_reply_with_fields_that_are_not_declared() -> None:
    reply = read_message("ProfileResponse", field(2, b"unknown") + field(7, 1) + field(8, b"trace"))
    assert (reply.empty_trace, reply.xspace) == (True, b"trace")


def test_a_request_is_what_tensorflow_reads() -> None:
    levels = PROFILER.message_class("ProfileOptions")(version=1, host_tracer_level=2)
    request = PROFILER.message_class("ProfileRequest")(duration_ms=300, opts=levels, session_id="s", emit_xspace=True)
    assert request.SerializeToString() == (
        field(1, 300) + field(4, field(2, 2) + field(5, 1)) + field(6, b"s") + field(9, 1)
    )


@pytest.mark.parametrize("data", [b"\xff\xff\xff", field(8, b"trace")[:-1]])
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a ProfileResponse"):
        read_message("ProfileResponse", data)
