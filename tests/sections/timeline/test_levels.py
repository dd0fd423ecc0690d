"""Events that are too short to be seen become blocks; nothing is lost from their sums."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfperf.base.arrays import Int64s
from tfperf.report.model import Blocks
from tfperf.sections.timeline.lanes import MOST_BLOCKS, DrawnEvents, levels_of


def events(*rows: tuple[int, int, int, int]) -> DrawnEvents:
    """Return events of (row, start, end, name), in the order that pictures have."""
    ordered = sorted(rows, key=lambda each: (each[0], each[1], -each[2]))
    row, start, end, name = (np.array(column, np.int64) for column in zip(*ordered, strict=True))
    numbers = np.arange(len(ordered), dtype=np.int32)
    return DrawnEvents(
        row=row.astype(np.int32),
        start_ns=start,
        end_ns=end,
        name=name.astype(np.int32),
        self_ns=end - start,
        note=numbers,
    )


def of(level: Blocks) -> list[tuple[int, ...]]:
    columns = (level.row, level.start_ns, level.duration_ns, level.name, level.count, level.self_ns)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_few_events_are_one_level_with_each_of_them() -> None:
    (level,) = levels_of(events((0, 0, 500, 1), (0, 600, 900, 2), (1, 0, 400, 3)), 1_000)
    assert of(level) == [(0, 0, 500, 1, 1, 500), (0, 600, 300, 2, 1, 300), (1, 0, 400, 3, 1, 400)]
    assert level.finest_ns == 0


def test_a_block_of_several_says_how_many_and_has_the_name_that_takes_most() -> None:
    """A step of 1 ms has pixels of 1 us: of three short events in a row, name 7 takes 500 of 900 ns in all."""
    coarse, fine = levels_of(
        events((0, 0, 300, 5), (0, 400, 650, 7), (0, 700, 950, 7), (0, 2_000, 700_000, 8), (0, 700_100, 700_200, 5)),
        1_000_000,
    )
    assert of(coarse) == [(0, 0, 950, 7, 3, 800), (0, 2_000, 698_000, 8, 1, 698_000), (0, 700_100, 100, 5, 1, 100)]
    assert coarse.note.tolist() == [-1, 3, 4]
    assert len(fine.row) == 5


def test_what_is_long_stays_apart_from_what_is_short_around_it() -> None:
    coarse, _ = levels_of(
        events((0, 0, 100, 1), (0, 100, 200, 1), (0, 200, 1_900, 2), (0, 1_900, 1_950, 3), (0, 1_960, 1_990, 3)),
        1_000_000,
    )
    assert [(name, count) for _, _, _, name, count, _ in of(coarse)] == [(1, 2), (2, 1), (3, 2)]


def test_a_million_events_have_three_levels_of_bounded_size() -> None:
    count, duration_ns = 1_000_000, 100_000_000
    start: Int64s = np.arange(count) * 100
    many = DrawnEvents(
        row=np.zeros(count, np.int32),
        start_ns=start,
        end_ns=start + 60,
        name=(np.arange(count) % 5).astype(np.int32),
        self_ns=np.full(count, 60),
        note=np.full(count, -1, np.int32),
    )
    levels = levels_of(many, duration_ns)
    assert len(levels) == 3
    assert len(levels[2].row) > 8 * len(levels[1].row) / 3 > 8 * len(levels[0].row) / 3
    for level, most in zip(levels, MOST_BLOCKS, strict=True):
        assert 250 <= len(level.row) <= most
        assert int(level.count.sum()) == count
        assert int(level.self_ns.sum()) == 60 * count


def test_no_events_are_an_empty_level() -> None:
    empty = events((0, 0, 1, 0))
    nothing = DrawnEvents(**{key: getattr(empty, key)[:0] for key in empty.__struct_fields__})
    assert [len(level.row) for level in levels_of(nothing, 1_000)] == [0]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**6), st.integers(0, 3_000), st.integers(0, 4)), min_size=1)
)
def test_all_levels_add_up_to_the_same(rows: list[tuple[int, int, int, int]]) -> None:
    """Rows of a picture hold events one after the other; whatever they are, no level loses time or events."""
    placed: dict[int, int] = {}
    made = []
    for row, gap, duration, name in rows:
        start = placed.get(row, 0) + gap
        placed[row] = start + duration
        made.append((row, start, start + duration, name))
    whole = max(placed.values())
    levels = levels_of(events(*made), max(whole, 1))
    assert [level.finest_ns for level in levels] == sorted({level.finest_ns for level in levels}, reverse=True)
    for level in levels:
        assert int(level.count.sum()) == len(made)
        assert int(level.self_ns.sum()) == sum(end - start for _, start, end, _ in made)
        assert bool((level.start_ns + level.duration_ns <= whole).all())
        for row in set(level.row.tolist()):
            of_row = level.row == row
            assert bool((np.diff(level.start_ns[of_row]) >= 0).all())
