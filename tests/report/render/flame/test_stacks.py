"""Stacks with whole numbers: as rows, as folded lines, and as files for speedscope."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.render.flame.speedscope_schema import check

from tfperf.base.units import Unit
from tfperf.export.flamegraph.document import folded_text, speedscope_text
from tfperf.report.flame_tree import FlameScale, Stack, flame_tree
from tfperf.report.render.flame import stacks
from tfperf.report.render.flame.stacks import Flame, StackRow, stack_rows, whole_numbers

STACKS = st.dictionaries(
    st.lists(st.text(max_size=8), min_size=1, max_size=4).map(tuple), st.integers(0, 1 << 62), max_size=20
)


def test_stacks_are_those_with_a_value_of_their_own() -> None:
    tree = flame_tree({("m", "a"): 3, ("m",): 2, ("m", "none"): 0})
    assert stack_rows("host", tree) == [StackRow(("host", "m"), 2), StackRow(("host", "m", "a"), 3)]


def test_very_many_stacks_are_bounded_and_their_sum_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "MOST_STACKS", 2)
    rows = stack_rows("host", flame_tree({(name,): value for name, value in (("a", 9), ("b", 5), ("c", 2), ("d", 1))}))
    assert rows == [StackRow(("host", "a"), 9), StackRow(("host", "b"), 5), StackRow(("host", "(2 other stacks)"), 3)]


def test_names_are_safe() -> None:
    (row,) = stack_rows("host", flame_tree({("a\nb\x1b[1m", ""): 1}))
    assert row.frames == ("host", r"a\nb\x1b[1m", "(no name)")


@given(st.lists(st.integers(0, 1 << 62), max_size=30), st.integers(1, 10**9))
def test_rounding_never_drifts(values: list[int], divisor: int) -> None:
    rounded, until, exact = whole_numbers(values, divisor), 0, 0
    for number, value in zip(rounded, values, strict=True):
        until, exact = until + number, exact + value
        assert number >= 0
        assert abs(2 * (until * divisor - exact)) <= divisor


# --- folded: one line for each stack, with a whole number at its end ---


PS = FlameScale(unit="ms", divisor=10**9)


def flame_of(now: dict[Stack, int], before: dict[Stack, int] | None = None, scale: FlameScale = PS) -> Flame:
    other = None if before is None else flame_tree(before)
    return Flame(name="host", title="Host op time", scale=scale, tree=flame_tree(now, before), other=other)


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


def test_folded_lines_of_a_comparison_have_what_was_before_first() -> None:
    text = folded_text([flame_of({("a",): 5_000_000, ("new",): 1_000_000}, {("a",): 2_000_000, ("gone",): 3_000_000})])
    assert sorted(text.splitlines()) == ["host;a 2 5", "host;gone 3 0", "host;new 0 1"]


def test_names_cannot_part_stacks_or_lines() -> None:
    assert folded_text([flame_of({("a;b\nc 5",): 1_000_000})]) == "host;a:b\\nc 5 1\n"


def test_stacks_that_read_the_same_are_one_line() -> None:
    assert folded_text([flame_of({("a;b",): 1_000_000, ("a:b",): 2_000_000})]) == "host;a:b 3\n"


@given(STACKS)
def test_each_stack_is_one_line_and_the_lines_add_up(now: dict[Stack, int]) -> None:
    text = folded_text([flame_of(now)])
    lines = text.split("\n")[:-1]
    found = [re.fullmatch(r"(host(?:;[^;]+)+) (\d+)", line) for line in lines]
    assert all(found)
    assert len({match[1] for match in found if match}) == len(lines)
    total = sum(int(match[2]) for match in found if match)
    assert abs(2 * (total * 10**6 - sum(now.values()))) <= 10**6


# --- files for speedscope ---


def document(*flames: Flame) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(speedscope_text(flames, "a run", "another run"))
    check(read)
    for profile in read["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] == sum(profile["weights"])
        assert all(frame < len(read["shared"]["frames"]) for sample in profile["samples"] for frame in sample)
    return read


def test_stacks_are_samples_with_weights() -> None:
    read = document(flame_of({("m", "MatMul"): 3000, ("m", "Relu"): 1000}))
    assert read["name"] == "a run"
    assert [frame["name"] for frame in read["shared"]["frames"]] == ["host", "m", "MatMul", "Relu"]
    (profile,) = read["profiles"]
    assert (profile["name"], profile["unit"]) == ("Host op time", "nanoseconds")
    assert (profile["samples"], profile["weights"]) == ([[0, 1, 2], [0, 1, 3]], [3, 1])


def test_a_comparison_is_two_profiles() -> None:
    read = document(flame_of({("a",): 3000}, {("a",): 2000, ("b",): 1000}))
    assert [profile["name"] for profile in read["profiles"]] == ["Host op time", "Host op time (another run)"]
    assert [profile["endValue"] for profile in read["profiles"]] == [3, 3]


@pytest.mark.parametrize(("unit", "named"), [("bytes", "bytes"), ("count", "none")])
def test_other_values_have_their_unit(unit: Unit, named: str) -> None:
    read = document(flame_of({("a",): 12}, scale=FlameScale(unit=unit, divisor=1)))
    assert (read["profiles"][0]["unit"], read["profiles"][0]["weights"]) == (named, [12])


@given(STACKS)
def test_any_names_and_times_are_valid(now: dict[Stack, int]) -> None:
    read = document(flame_of(now))
    assert abs(2 * (read["profiles"][0]["endValue"] * 1000 - sum(now.values()))) <= 1000
