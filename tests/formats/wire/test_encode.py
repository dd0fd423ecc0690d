"""Protobuf messages written with numpy, read back by protobuf."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.export.timeline.perfetto import message_class, tag
from tfperf.formats.wire.encode import below, beside, constant, fixed64, prefixed, sums, varint

INT64S = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64S, max_size=20))
def test_varints_are_those_of_protobuf(numbers: list[int]) -> None:
    fields = beside(constant(tag("DebugAnnotation", "int_value"), len(numbers)), varint(np.array(numbers, np.int64)))
    made = prefixed(tag("TrackEvent", "debug_annotations"), fields).to_bytes()
    event = message_class("TrackEvent").FromString(made)
    assert [one.int_value for one in event.debug_annotations] == numbers
    assert made == event.SerializeToString()


@pytest.mark.parametrize("size", range(1, 10))
def test_sizes_at_the_borders(size: int) -> None:
    border = np.array([(1 << 7 * size) - 1, 1 << 7 * size], np.uint64)
    assert varint(border).size.tolist() == [size, size + 1]


@given(st.lists(st.tuples(st.integers(0, 300), st.lists(INT64S, max_size=3), st.lists(INT64S, max_size=2))))
def test_items_follow_their_heads(rows: list[tuple[int, list[int], list[int]]]) -> None:
    """Two repeated fields behind a single one, in messages of which some have none of them."""
    notes = np.array([number for _, first, _ in rows for number in first], np.int64)
    flows = np.array([number for _, _, second in rows for number in second], np.int64)
    items = prefixed(
        tag("TrackEvent", "debug_annotations"),
        beside(constant(tag("DebugAnnotation", "int_value"), len(notes)), varint(notes)),
    )
    other = beside(constant(tag("TrackEvent", "flow_ids"), len(flows)), fixed64(flows))
    columns = [first for _, first, _ in rows], [second for _, _, second in rows]
    counts = [np.array([*map(len, column)], np.int64) for column in columns]
    extra = sums(counts[0], items) + sums(counts[1], other)
    head = beside(constant(tag("TrackEvent", "type"), len(rows)), varint(np.array([row[0] for row in rows], np.int64)))
    body = prefixed(tag("TracePacket", "track_event"), head, extra)
    trace = message_class("Trace").FromString(
        below(prefixed(tag("Trace", "packet"), body, extra), (counts[0], items), (counts[1], other))
    )
    decoded = [
        (
            one.track_event.type,
            [note.int_value for note in one.track_event.debug_annotations],
            np.array(one.track_event.flow_ids, np.uint64).view(np.int64).tolist(),
        )
        for one in trace.packet
    ]
    assert decoded == [(number, first, second) for number, first, second in rows]


def test_a_part_may_be_left_out_of_rows() -> None:
    part = beside(constant(b"ab", 3), varint(np.array([1, 200, 3])))
    some = part.only(np.array([True, False, True]))
    assert (some.to_bytes(), some.size.tolist()) == (b"ab\x01ab\x03", [3, 0, 3])
