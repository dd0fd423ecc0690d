from __future__ import annotations

from protobytes import field, message

from tfperf.formats.hlo.messages import accessed_bytes


def test_bytes_are_added_up_by_memory() -> None:
    accesses = [(1, 1, 100), (2, 1, 300), (1, 2, 7)]
    breakdown = b"".join(
        field(1, message(field(1, kind), field(2, space), field(3, size))) for kind, space, size in accesses
    ).decode("latin-1")
    assert (accessed_bytes(breakdown), accessed_bytes(breakdown, space=2)) == (400, 7)


def test_an_empty_one_says_that_nothing_is_touched_and_a_damaged_one_nothing() -> None:
    assert accessed_bytes("") == 0
    assert accessed_bytes("\x0a\xff") is None
    assert accessed_bytes("\u2603") is None
    negative = field(1, message(field(2, 1), field(3, -5))).decode("latin-1")
    assert accessed_bytes(negative) is None
