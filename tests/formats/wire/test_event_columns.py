"""Columns of events: rows left out and put in order with their stats, pieces joined."""

from __future__ import annotations

import numpy as np
import pytest
from builders import known
from msgspec.structs import replace

from tfperf.formats.wire.event_columns import STEPS_LINE, EventColumns, Line, Stat, StatKind, StatRows, join_columns


def numbers(rows: list[int], values: list[int]) -> Stat:
    return Stat(np.array(rows, np.int32), np.array(values, np.int64))


def texts(rows: list[int], values: list[str]) -> Stat:
    return Stat(np.array(rows, np.int32), np.arange(len(values)), "text", tuple(values))


def reals(rows: list[int], values: list[float]) -> Stat:
    return Stat(np.array(rows, np.int32), np.array(values).view(np.int64), "real")


def shown(stat: Stat) -> list[tuple[int, str]]:
    """Row and text of each value."""
    return [(row, stat.text(position)) for position, row in enumerate(stat.event.tolist())]


def events(*lines: Line, stats: dict[str, Stat] | None = None, continued: bool = False) -> EventColumns:
    """Events that start at 0, 10, 20, ... and are named by their row."""
    count = lines[-1].stop
    return EventColumns(
        lines=lines,
        name=np.arange(count, dtype=np.int32),
        start_ps=10 * np.arange(count),
        duration_ps=np.full(count, 5),
        aggregated=np.zeros(count, np.bool_),
        stats=stats or {},
        continued=continued,
    )


def test_rows_left_out_take_their_stats_along() -> None:
    columns = events(Line(0, 1, "a", 0, 2), Line(0, 2, "b", 2, 4), stats={"n": numbers([0, 1, 3], [7, 8, 9])})
    kept = columns.only(np.array([True, False, False, True]))
    assert kept.name.tolist() == [0, 3]
    assert (kept.stats["n"].event.tolist(), kept.stats["n"].value.tolist()) == ([0, 1], [7, 9])
    assert [(line.start, line.stop) for line in kept.lines] == [(0, 1), (1, 2)]


def test_without_any_row_the_lines_stay() -> None:
    kept = events(Line(0, 1, "a", 0, 2), stats={"n": numbers([0], [7])}).only(np.zeros(2, np.bool_))
    assert (kept.name.tolist(), kept.stats, [line.stop for line in kept.lines]) == ([], {}, [0])


def test_another_order_keeps_stats_ascending() -> None:
    columns = events(Line(0, 1, "a", 0, 3), stats={"t": texts([0, 2], ["first", "last"])})
    ordered = columns.ordered(np.array([2, 0, 1]), columns.lines)
    assert ordered.name.tolist() == [2, 0, 1]
    assert shown(ordered.stats["t"]) == [(0, "last"), (1, "first")]


def test_joined_pieces_share_texts_and_go_on_counting_rows() -> None:
    parts = [
        events(Line(0, 1, "a", 0, 2), stats={"t": texts([0, 1], ["x", "y"])}),
        events(Line(1, 5, "b", 0, 1), stats={"t": texts([0], ["x"]), "n": numbers([0], [3])}),
    ]
    joined = join_columns(parts)
    assert parts == [], "or every column is held twice"
    assert shown(joined.stats["t"]) == [(0, "x"), (1, "y"), (2, "x")]
    assert joined.stats["t"].texts == ("x", "y")
    assert joined.stats["n"].event.tolist() == [2]
    assert [(line.plane, line.start, line.stop) for line in joined.lines] == [(0, 0, 2), (1, 2, 3)]


def test_lines_are_joined_in_another_order_with_all_their_pieces_and_stats() -> None:
    parts = [
        events(Line(0, 9, "b", 0, 1), Line(0, 7, "a", 1, 3), stats={"n": numbers([0, 2], [10, 12])}),
        events(Line(0, 7, "a", 0, 2), Line(0, 8, "c", 2, 3), stats={"n": numbers([1, 2], [21, 22])}, continued=True),
    ]
    joined = join_columns(parts, [1, 2, 0])
    assert [(line.id, line.start, line.stop) for line in joined.lines] == [(7, 0, 4), (8, 4, 5), (9, 5, 6)]
    assert joined.name.tolist() == [1, 2, 0, 1, 2, 0]
    assert dict(zip(joined.stats["n"].event.tolist(), joined.stats["n"].value.tolist(), strict=True)) == {
        1: 12, 3: 21, 4: 22, 5: 10,
    }  # fmt: skip


def test_a_piece_goes_on_with_the_line_before_and_may_know_it_better() -> None:
    first = events(Line(0, 7, "a", 0, 2))
    second = events(Line(0, 0, "", 0, 3, display_name="shown", timestamp_ns=9), continued=True)
    (line,) = join_columns([first, second]).lines
    assert line == Line(0, 7, "a", 0, 5, display_name="shown", timestamp_ns=9)
    assert line.name == "shown"


def test_nothing_joined_is_nothing() -> None:
    joined = join_columns([])
    assert (joined.lines, joined.name.tolist(), joined.stats, joined.every) == ((), [], {}, None)


@pytest.mark.parametrize(
    ("second", "kind", "expected"),
    [
        (numbers([0], [2]), "number", [1, 2]),
        (reals([0], [0.5]), "real", [1.0, 0.5]),
        (texts([0], ["two"]), "text", ["1", "two"]),
    ],
)
def test_of_several_types_the_widest_holds_for_all(second: Stat, kind: str, expected: list[object]) -> None:
    parts = [events(Line(0, 1, "a", 0, 1), stats={"s": stat}) for stat in (numbers([0], [1]), second)]
    stat = join_columns(parts).stats["s"]
    assert stat.type == kind
    values = stat.value.view(np.float64) if kind == "real" else stat.value
    assert ([stat.texts[value] for value in stat.value] if kind == "text" else values.tolist()) == expected


def test_all_stats_are_joined_by_name_and_text() -> None:
    def rows(key: str, text: str) -> StatRows:
        column = np.zeros(1, np.int32)
        return StatRows(column, column, np.array([StatKind.TEXT], np.uint8), np.zeros(1, np.int64), (key,), (text,))

    parts = [replace(events(Line(0, 1, "a", 0, 1)), every=rows(*pair)) for pair in (("k", "x"), ("l", "x"), ("k", "y"))]
    every = known(join_columns(parts).every)
    assert (every.keys, every.texts) == (("k", "l"), ("x", "y"))
    assert (every.event.tolist(), every.key.tolist(), every.value.tolist()) == ([0, 1, 2], [0, 1, 0], [0, 0, 1])


@pytest.mark.parametrize(("line_id", "derived"), [(STEPS_LINE, True), (STEPS_LINE + 389, True), (7, False)])
def test_ids_of_derived_lines_are_reserved(line_id: int, derived: bool) -> None:
    assert Line(0, line_id, "", 0, 0).derived == derived
