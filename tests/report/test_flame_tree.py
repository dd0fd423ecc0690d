"""Stacks as a tree, and the boxes that are drawn of it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfperf.report.flame_tree import MOST_LEVELS, FlameScale, flame_chart, flame_tree, placed, widest

MS = FlameScale(unit="ms", divisor=1000, separator="/")
STACKS = st.dictionaries(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=5).map(tuple), st.integers(0, 1 << 40), max_size=30
)


def test_boxes_stand_the_largest_first_with_what_is_in_them() -> None:
    tree = flame_tree({("m", "small"): 10, ("m", "large"): 60, ("loss",): 25, ("m",): 5})
    assert tree.stacks == ((), ("m",), ("m", "large"), ("m", "small"), ("loss",))
    assert tree.total.tolist() == [100, 75, 60, 10, 25]
    assert tree.own.tolist() == [0, 5, 60, 10, 25]
    assert tree.depth.tolist() == [0, 1, 2, 2, 1]
    assert tree.before is None


def test_a_comparison_has_what_boxes_were_before_also_those_that_are_gone() -> None:
    tree = flame_tree({("a",): 10}, {("a",): 4, ("gone", "x"): 3})
    assert tree.stacks == ((), ("a",), ("gone",), ("gone", "x"))
    assert tree.total.tolist() == [10, 10, 0, 0]
    assert tree.before is not None
    assert tree.before.tolist() == [7, 4, 3, 3]


def test_boxes_of_the_other_run_only_are_drawn_with_their_value_there() -> None:
    """The step keeps 10 ps of a, and loses 30 ps of b and c in it."""
    tree = flame_tree({("a",): 10}, {("a",): 20, ("b", "c"): 30})
    chart = flame_chart(tree, "title", FlameScale(unit="count", divisor=1), most=10)
    assert chart.labels == ("all", "a", "b", "c")
    assert chart.widths == (40, 10, 30, 30)
    assert chart.totals == (10, 10, 0, 0)
    assert chart.before == (50, 20, 30, 30)
    assert chart.starts == (0, 0, 10, 10)


def test_what_lies_too_deep_is_joined() -> None:
    tree = flame_tree({tuple(f"level{n}" for n in range(1000)): 7})
    assert len(tree) == MOST_LEVELS
    assert tree.stacks[-1][-1].startswith("level98/level99/")
    assert tree.total.tolist() == [7] * MOST_LEVELS


def test_a_chart_has_the_widest_boxes_and_says_how_many_it_lacks() -> None:
    chart = flame_chart(flame_tree({("m", "a"): 3000, ("m", "b"): 1000, ("c",): 2000}), "t", MS, most=4)
    assert chart.names == ("all", "m", "m/a", "c")
    assert chart.labels == ("all", "m", "a", "c")
    assert chart.starts == (0, 0, 0, 4)
    assert chart.widths == (6, 4, 3, 2)
    assert chart.omitted == 1


def test_a_box_is_named_by_its_own_name_alone_without_a_separator() -> None:
    scale = FlameScale(unit="ms", divisor=1000)
    assert flame_chart(flame_tree({("f", "g"): 1}), "t", scale, most=9).names == ("all", "f", "g")


def test_very_long_names_are_cut() -> None:
    chart = flame_chart(flame_tree({("x" * 4000,): 1}), "t", MS, most=9)
    assert max(map(len, (*chart.names, *chart.labels))) == 500


def test_totals_beyond_any_time_stay_numbers() -> None:
    tree = flame_tree({("a",): 1 << 62, ("b",): 1 << 62})
    assert tree.total.tolist() == [1 << 62] * 3
    start, width = placed(tree.depth, tree.total)
    assert width.tolist() == [1 << 62] * 3
    assert start.tolist() == [0, 0, 1 << 62]


def test_of_equal_boxes_the_outer_ones_are_drawn() -> None:
    assert widest(np.array([5, 5, 5, 0], np.int64), 2).tolist() == [0, 1]


@given(STACKS)
def test_a_box_holds_its_own_value_and_what_is_in_it(stacks: dict[tuple[str, ...], int]) -> None:
    tree = flame_tree(stacks)
    assert int(tree.total[0]) == sum(stacks.values()) == int(tree.own.sum())
    for box, stack in enumerate(tree.stacks):
        inside = [value for other, value in stacks.items() if other[: len(stack)] == stack]
        assert int(tree.total[box]) == sum(inside)
        assert int(tree.own[box]) == stacks.get(stack, 0)
    start, width = placed(tree.depth, tree.total)
    assert width.tolist() == tree.total.tolist()
    assert int((start + width).max()) == int(tree.total[0])


# --- where boxes are: inside the one above, beside their siblings ---


STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 30)), max_size=30)


def boxes(depths: list[int], totals: list[int]) -> tuple[list[int], list[int]]:
    start, width = placed(np.array(depths, np.int64), np.array(totals, np.int64))
    return start.tolist(), width.tolist()


def test_siblings_are_beside_each_other() -> None:
    assert boxes([0, 1, 2, 2, 1], [100, 60, 10, 20, 30]) == ([0, 0, 0, 10, 60], [100, 60, 10, 20, 30])


def test_totals_that_are_no_sum() -> None:
    most = (1 << 63) - 1
    assert boxes([0, 1, 1], [most, most, -7]) == ([0, 0, 1 << 62], [1 << 62, 1 << 62, 0])


@given(STEPS)
def test_boxes_never_overlap(steps: list[tuple[int, int]]) -> None:
    depths, totals = [0], [50]
    for back, total in steps:
        depths.append(max(1, depths[-1] + 1 - back))
        totals.append(total)
    start, width = boxes(depths, totals)
    path: list[int] = []
    free: dict[int, int] = {}
    for row, depth in enumerate(depths):
        del path[depth:]
        end = start[row] + width[row]
        assert width[row] >= max(totals[row], 0)
        if path:
            assert start[path[-1]] <= start[row] <= end <= start[path[-1]] + width[path[-1]]
            assert start[row] >= free.get(path[-1], 0)
            free[path[-1]] = end
        path.append(row)
