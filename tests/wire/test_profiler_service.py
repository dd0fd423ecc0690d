"""Replies of a profiler server, split without a copy, against protobuf's own parser."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from protobytes import field

from tfperf.errors import CaptureError
from tfperf.wire.profiler_service import message_class, split_reply


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("xspace", [None, b"", b"abc", bytes(100_000)])
def test_a_reply_is_split(xspace: bytes | None, empty: bool) -> None:
    fields = (field(7, 1) if empty else b"") + (b"" if xspace is None else field(8, xspace))
    reply = split_reply(field(2, b"unknown") + fields)
    assert reply.empty_trace == empty
    assert (None if reply.xspace is None else bytes(reply.xspace)) == xspace


def test_the_trace_is_not_copied() -> None:
    data = field(8, b"trace")
    found = split_reply(data).xspace
    assert found is not None
    assert found.obj is data


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 7, 8, 9, 100]), st.one_of(st.binary(max_size=20), st.integers(0, 2**64 - 1)))
    ),
    st.data(),
)
def test_like_protobuf(fields: list[tuple[int, bytes | int]], data: st.DataObject) -> None:
    """Equal to protobuf's own parse where that accepts the bytes; damaged ones are refused, never misread as whole."""
    whole = b"".join(field(number, value) for number, value in fields if number)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    try:
        expected = message_class("ProfileResponse").FromString(cut)
    except DecodeError:
        with pytest.raises(CaptureError, match="damaged"):
            split_reply(cut)
        return
    found = split_reply(cut)
    assert found.empty_trace == expected.empty_trace
    assert bytes(found.xspace or b"") == expected.xspace


@given(st.binary(max_size=60))
def test_any_bytes_are_split_or_refused(data: bytes) -> None:
    try:
        reply = split_reply(data)
    except CaptureError:
        return
    assert reply.xspace is None or len(reply.xspace) <= len(data)
