"""Files for speedscope: by its schema, and with the sums of the stacks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.render.flame.speedscope_schema import check

from tfperf.base.units import Unit
from tfperf.export.flamegraph.document import speedscope_text
from tfperf.report.flame_tree import FlameScale, Stack, flame_tree
from tfperf.report.render.flame.stacks import Flame

PS = FlameScale(unit="ms", divisor=10**9)


def document(*flames: Flame) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(speedscope_text(flames, "a run", "another run"))
    check(read)
    for profile in read["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] == sum(profile["weights"])
        assert all(frame < len(read["shared"]["frames"]) for sample in profile["samples"] for frame in sample)
    return read


def flame_of(now: dict[Stack, int], before: dict[Stack, int] | None = None, scale: FlameScale = PS) -> Flame:
    other = None if before is None else flame_tree(before)
    return Flame(name="host", title="Host op time", scale=scale, tree=flame_tree(now, before), other=other)


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


@given(
    st.dictionaries(
        st.lists(st.text(max_size=8), min_size=1, max_size=4).map(tuple), st.integers(0, 1 << 62), max_size=20
    )
)
def test_any_names_and_times_are_valid(now: dict[Stack, int]) -> None:
    read = document(flame_of(now))
    assert abs(2 * (read["profiles"][0]["endValue"] * 1000 - sum(now.values()))) <= 1000
