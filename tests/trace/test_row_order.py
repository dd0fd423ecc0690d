"""Rows of a trace: lines on one clock, events in order, lines of one timeline merged."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, host, line, plane, trace_of
from protobytes import field, message
from trace_rows import lines, numbers, read_bytes, rows

DAY_NS = 86_400 * 10**9
NOW_NS = 1_700_000_000 * 10**9


def test_rows_and_lines_in_the_order_of_the_file(tmp_path: Path) -> None:
    two = line("one", event("a", 1, 2), event("b", 5, 1)), line("two", event("c", 0, 9))
    trace = trace_of(tmp_path, plane("/host:CPU", *two))
    assert rows(trace) == [("a", 1, 2), ("b", 5, 1), ("c", 0, 9)]
    assert lines(trace) == [(1, "one", ["a", "b"]), (2, "two", ["c"])]
    assert trace.event_count == 3


def test_an_unsorted_line_is_sorted_with_its_stats_the_longer_first(tmp_path: Path) -> None:
    events = event("late", 9, 1, step_num=9), event("short", 1, 2, step_num=2), event("long", 1, 5, step_num=5)
    trace = trace_of(tmp_path, host(*events))
    assert rows(trace) == [("long", 1, 5), ("short", 1, 2), ("late", 9, 1)]
    assert numbers(trace, "step_num") == {0: 5, 1: 2, 2: 9}


def test_lines_with_the_same_id_are_one_timeline(tmp_path: Path) -> None:
    parts = (
        line("thread", event("a", 0, 1, step_num=1), event("d", 6, 1, step_num=4), id=7),
        line("other", event("b", 2, 1, step_num=2), id=8),
        line("again", event("c", 4, 1, step_num=3), id=7),
    )
    trace = trace_of(tmp_path, plane("/host:CPU", *parts))
    assert lines(trace) == [(7, "thread", ["a", "c", "d"]), (8, "other", ["b"])]
    assert numbers(trace, "step_num") == {0: 1, 1: 3, 2: 4, 3: 2}


def test_the_same_line_id_on_two_planes_is_two_timelines(tmp_path: Path) -> None:
    gpus = [plane(f"/device:GPU:{n}", line("stream", event(f"k{n}", n, 1), id=14)) for n in range(2)]
    assert lines(trace_of(tmp_path, *gpus)) == [(14, "stream", ["k0"]), (14, "stream", ["k1"])]


def test_the_longest_times_allowed_do_not_overflow(tmp_path: Path) -> None:
    most, latest_ns = (1 << 60) - 1, (1 << 60) // 1000 - 1
    events = [field(4, message(field(2, start), field(3, most))) for start in (-most, most)]
    both = [field(3, message(field(1, n), field(3, stamp), *events)) for n, stamp in enumerate((-latest_ns, latest_ns))]
    trace = read_bytes(tmp_path, field(1, message(field(2, b"/host:CPU"), *both)))
    first, last = -most - 1000 * latest_ns, 2 * most + 1000 * latest_ns
    assert (int(trace.start_ps.min()), int(trace.end_ps.max())) == (first, last)
    assert int(trace.end_ps.max() - trace.start_ps.min()) == last - first


def starts(tmp_path: Path, *stamps_ns: int) -> list[float]:
    """Start (us) of one event per line, 5 us after the timestamp of its line."""
    made = [line(f"line {n}", event("a", 5, 1), timestamp_ns=stamp) for n, stamp in enumerate(stamps_ns)]
    return [start for _, start, _ in rows(trace_of(tmp_path, plane("/host:CPU", *made)))]


def test_lines_start_at_their_timestamps(tmp_path: Path) -> None:
    assert starts(tmp_path, 0, 3000, 1000) == [5, 8, 6]


def test_timestamps_since_1970_are_counted_from_the_earliest(tmp_path: Path) -> None:
    assert starts(tmp_path, NOW_NS + 3000, NOW_NS, NOW_NS + 1000) == [8, 5, 6]


def test_lines_without_events_do_not_set_the_clock(tmp_path: Path) -> None:
    made = plane("/host:CPU", line("empty", timestamp_ns=1), line("full", event("a", 5, 1), timestamp_ns=NOW_NS))
    assert rows(trace_of(tmp_path, made)) == [("a", 5, 1)]


def test_lines_on_different_clocks_each_count_from_their_own_earliest(tmp_path: Path) -> None:
    assert starts(tmp_path, 2000, NOW_NS, NOW_NS + 1000, 0) == [7, 5, 6, 5]
    assert starts(tmp_path, -(1 << 62), 0) == [5, 5]


def test_a_clock_that_counts_from_boot_stays_one_clock(tmp_path: Path) -> None:
    assert starts(tmp_path, 20 * DAY_NS, 20 * DAY_NS + 4000) == [5, 9]
    assert starts(tmp_path, 10 * DAY_NS, 10 * DAY_NS + 4000) == pytest.approx([864e9 + 5, 864e9 + 9], abs=0.1, rel=0)
