"""Messages as tables: parts of them, and the descriptors made of both."""

from __future__ import annotations

import pytest

from tfperf.formats.wire.schema import Schema, parts_of

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
