"""Which events share a track."""

from __future__ import annotations

from export.timeline.example_files import sorted_rows
from hypothesis import given
from hypothesis import strategies as st

from tfperf.export.timeline.tracks import assign_tracks


def lanes(*events: tuple[int, int]) -> list[int]:
    track: list[int] = assign_tracks(*sorted_rows(list(events))).tolist()
    return track


def test_what_nests_stays_on_one_track() -> None:
    assert lanes((0, 10), (0, 10), (2, 3), (5, 5), (10, 4)) == [0] * 5
    assert lanes() == []


def test_a_chain_of_overlaps_takes_two_more_tracks() -> None:
    """Each event crosses the one before: the first stays, the others take turns on two tracks."""
    assert lanes(*((10 * i, 15) for i in range(6))) == [0, 1, 2, 1, 2, 1]


def test_what_is_inside_a_crossing_event_goes_with_it() -> None:
    """b crosses a; c is inside b, and crosses a itself; d is inside c."""
    a, b, c, d = (0, 10), (4, 20), (6, 10), (11, 2)
    assert lanes(a, b, c, d) == [0, 1, 1, 0]


def test_many_overlaps_end() -> None:
    """A thousand events, each of which crosses all others, take a thousand tracks."""
    assert sorted(lanes(*((i, 1000) for i in range(1000)))) == list(range(1000))


EVENTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15)), max_size=40)


@given(EVENTS)
def test_no_two_events_of_a_track_cross(events: list[tuple[int, int]]) -> None:
    start, end = sorted_rows(events)
    track = assign_tracks(start, end)
    for i in range(len(start)):
        for j in range(i):
            assert track[i] != track[j] or not start[j] < start[i] < end[j] < end[i]
