"""The messages of the profiler server, written and read."""

from __future__ import annotations

import pytest
from protobytes import field

from tfperf.formats.wire.schema import PROFILER, read_message


@pytest.fixture(scope="module", autouse=True)
def decoder_name() -> None:
    """Nothing is decoded here."""


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
