from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import event, line, plane, trace_of
from hypothesis import given
from hypothesis import strategies as st

from tfperf.trace import nesting
from tfperf.trace.nesting import last_around, nest, nest_on_stack, outermost, parents, self_time


def by_stack(start: list[int], end: list[int]) -> tuple[list[int], list[int]]:
    """The definition: keep a stack, pop until the top includes the event."""
    stack: list[int] = []
    parents, depths = [], []
    for i in range(len(start)):
        while stack and not (start[stack[-1]] <= start[i] and end[i] <= end[stack[-1]]):
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        depths.append(len(stack))
        stack.append(i)
    return parents, depths


def test_self_time_excludes_direct_children_only() -> None:
    # a: 0-100, b in a: 10-50, c in b: 20-30, d in a: 60-70, e after a: 100-120
    start = np.array([0, 10, 20, 60, 100])
    end = np.array([100, 50, 30, 70, 120])
    nested = nest(start, end)
    assert nested.parent.tolist() == [-1, 0, 1, 0, -1]
    assert nested.depth.tolist() == [0, 1, 2, 1, 0]
    assert self_time(end - start, nested.parent).tolist() == [50, 30, 10, 10, 20]


def test_an_instant_at_the_end_of_an_event_is_inside_it() -> None:
    assert nest(np.array([0, 10]), np.array([10, 10])).parent.tolist() == [-1, 0]


def test_rows_nest_among_themselves_and_on_their_own_line(tmp_path: Path) -> None:
    """Of a, b in a, c in b on one line and d on another, at the same time; b is not asked about."""
    one = line("one", event("a", 0, 100), event("b", 10, 50), event("c", 20, 10), id=1)
    trace = trace_of(tmp_path, plane("/host:CPU", one, line("two", event("d", 25, 5), id=2)))
    rows = np.array([0, 2, 3])
    assert parents(trace, rows).tolist() == [-1, 0, -1]
    assert outermost(trace, rows).tolist() == [0, 3]
    assert last_around(trace, np.array([0, 1]), rows).tolist() == [-1, 1, -1]
    assert last_around(trace, rows[:0], rows).tolist() == [-1, -1, -1]


def test_no_events() -> None:
    assert len(nest(np.empty(0, np.int64), np.empty(0, np.int64)).parent) == 0


@pytest.mark.parametrize("peeled", [0, 1, 64])
@given(pairs=st.lists(st.tuples(st.integers(0, 25), st.integers(0, 12)), max_size=40))
def test_agrees_with_the_stack_for_any_events(peeled: int, pairs: list[tuple[int, int]]) -> None:
    """However many levels are peeled before the rest climbs."""
    rows = sorted(pairs, key=lambda pair: (pair[0], -pair[1]))
    start, end = [b for b, _ in rows], [b + d for b, d in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_PEELED_LEVELS", peeled)
        nested = nest(np.array(start, np.int64), np.array(end, np.int64))
    assert (nested.parent.tolist(), nested.depth.tolist()) == by_stack(start, end)


def test_events_two_hundred_thousand_deep_inside_each_other_are_no_hang() -> None:
    count = 200_000
    start = np.arange(count, dtype=np.int64)
    nested = nest(start, 2 * count - start)
    assert nested.parent.tolist() == list(range(-1, count - 1))
    assert nested.depth.tolist() == list(range(count))


def by_walk(start: list[int], end: list[int]) -> tuple[list[int], list[bool]]:
    """What TensorFlow does: walk through starts and ends, pop at an end until its event is nesting."""
    walk = sorted(
        (time, row, is_end) for row, span in enumerate(zip(start, end, strict=True)) for is_end, time in enumerate(span)
    )
    stack: list[int] = []
    parents, kept = [-1] * len(start), [False] * len(start)
    for _, row, is_end in walk:
        if not is_end:
            stack.append(row)
        elif row in stack:
            del stack[stack.index(row) :]
            kept[row], parents[row] = True, stack[-1] if stack else -1
        else:
            stack.clear()
    return parents, kept


@pytest.mark.parametrize(
    ("spans", "kept"),
    [
        ([(0, 9), (1, 8), (2, 5)], [True, True, True]),
        ([(0, 9), (1, 5), (2, 5), (6, 8)], [False, True, False, True]),  # two end together: around them, all is lost
        ([(0, 9), (1, 5), (3, 7), (8, 9)], [False, True, False, False]),  # the end of a lost one takes what is open
        ([(0, 5), (5, 9)], [True, True]),
    ],
)
def test_what_a_stack_loses(spans: list[tuple[int, int]], kept: list[bool]) -> None:
    start, end = np.array(spans, np.int64).T
    assert nest_on_stack(start, end).kept.tolist() == kept


@given(pairs=st.lists(st.tuples(st.integers(0, 25), st.integers(0, 12)), max_size=40))
def test_agrees_with_the_walk_for_any_events(pairs: list[tuple[int, int]]) -> None:
    rows = sorted(pairs, key=lambda pair: (pair[0], -pair[1]))
    start, end = [b for b, _ in rows], [b + d for b, d in rows]
    stacked = nest_on_stack(np.array(start, np.int64), np.array(end, np.int64))
    assert (stacked.parent.tolist(), stacked.kept.tolist()) == by_walk(start, end)
