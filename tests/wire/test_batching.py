"""Where lines are cut: between events, whatever their texts look like."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest
from protobytes import field, message

from tfperf.wire.planes import line_groups, line_pieces
from tfperf.wire.trace_file import Span, TraceFile

LOOKALIKE = message(field(4, field(1, 1) + field(2, 5)), b'{"a": "b"}', b'"' * 20)
EVENTS: dict[str, Callable[[int], bytes]] = {
    "plain": lambda n: message(field(1, n), field(2, 1000 * n), field(3, 7)),
    "aggregated": lambda n: message(field(1, n), field(5, 3)),
    "without offset": lambda n: message(field(1, n), field(3, 7)),
    "texts that look like events": lambda n: message(
        field(1, n), field(2, n), field(4, field(1, 1) + field(5, LOOKALIKE * 3))
    ),
    "longer than a piece": lambda n: message(field(1, n), field(2, n), field(4, field(5, b"x" * 1000))),
    "empty": lambda n: b"",
}


@pytest.mark.parametrize("limit", [1, 50, 333])
@pytest.mark.parametrize("kind", EVENTS)
def test_pieces_hold_whole_events_and_all_bytes(kind: str, limit: int, tmp_path: Path) -> None:
    events = [field(4, EVENTS[kind](n)) for n in range(1, 40)]
    body = message(field(1, 5), field(2, b"python"), *events)
    path = tmp_path / "line"
    path.write_bytes(b"before" + body + b"behind")
    with TraceFile(path) as file:
        pieces = list(line_pieces(file, Span(0, 6, 6 + len(body)), limit))
    assert b"".join(payload for _, payload in pieces) == body
    assert [position for position, _ in pieces] == [*accumulate((len(payload) for _, payload in pieces), initial=6)][
        :-1
    ]
    borders = {0, 2, 10} | {10 + sum(map(len, events[:n])) for n in range(len(events) + 1)}
    assert {position - 6 for position, _ in pieces} <= borders
    assert all(len(payload) <= max(limit, len(events[-1]), 8) for _, payload in pieces)


def test_neighbouring_lines_are_grouped_up_to_the_limit() -> None:
    lines = [Span(0, 2, 10), Span(10, 12, 20), Span(20, 22, 30), Span(30, 33, 90), Span(90, 92, 100)]
    assert list(line_groups(tuple(lines), 20)) == [(0, 20), (20, 30), lines[3], (90, 100)]


def test_lines_with_something_between_them_are_not_grouped() -> None:
    assert list(line_groups((Span(0, 2, 10), Span(15, 17, 20)), 100)) == [(0, 10), (15, 20)]


def test_no_lines_make_no_groups() -> None:
    assert list(line_groups((), 100)) == []
