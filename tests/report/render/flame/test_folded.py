"""Folded stacks: one line for each, with a whole number at its end."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tfperf.export.flamegraph.document import folded_text
from tfperf.report.flame_tree import FlameScale, Stack, flame_tree
from tfperf.report.render.flame.stacks import Flame

PS = FlameScale(unit="ms", divisor=10**9)


def flame_of(now: dict[Stack, int], before: dict[Stack, int] | None = None, scale: FlameScale = PS) -> Flame:
    other = None if before is None else flame_tree(before)
    return Flame(name="host", title="Host", scale=scale, tree=flame_tree(now, before), other=other)


def test_times_are_microseconds() -> None:
    text = folded_text([flame_of({("m", "MatMul"): 2_400_000, ("loss",): 1_000_000})])
    assert text == "host;m;MatMul 2\nhost;loss 1\n"


def test_the_sum_of_many_short_stacks_stays() -> None:
    """Each of 40 takes 0.3 us: 12 us in all, though none has a whole one."""
    lines = folded_text([flame_of({(f"op{n}",): 300_000 for n in range(40)})]).splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == 12


def test_counts_are_whole_numbers_of_them() -> None:
    calls = FlameScale(unit="count", divisor=1_000_000)
    assert folded_text([flame_of({("a",): 7_000_000}, scale=calls)]) == "host;a 7\n"


def test_a_comparison_has_what_was_before_first() -> None:
    text = folded_text([flame_of({("a",): 5_000_000, ("new",): 1_000_000}, {("a",): 2_000_000, ("gone",): 3_000_000})])
    assert sorted(text.splitlines()) == ["host;a 2 5", "host;gone 3 0", "host;new 0 1"]


def test_names_cannot_part_stacks_or_lines() -> None:
    assert folded_text([flame_of({("a;b\nc 5",): 1_000_000})]) == "host;a:b\\nc 5 1\n"


def test_stacks_that_read_the_same_are_one_line() -> None:
    assert folded_text([flame_of({("a;b",): 1_000_000, ("a:b",): 2_000_000})]) == "host;a:b 3\n"


@given(
    st.dictionaries(
        st.lists(st.text(max_size=8), min_size=1, max_size=4).map(tuple), st.integers(0, 10**12), max_size=20
    )
)
def test_each_stack_is_one_line_and_the_lines_add_up(now: dict[Stack, int]) -> None:
    text = folded_text([flame_of(now)])
    lines = text.split("\n")[:-1]
    found = [re.fullmatch(r"(host(?:;[^;]+)+) (\d+)", line) for line in lines]
    assert all(found)
    assert len({match[1] for match in found if match}) == len(lines)
    total = sum(int(match[2]) for match in found if match)
    assert abs(2 * (total * 10**6 - sum(now.values()))) <= 10**6
