from __future__ import annotations

import pytest
from judge.example_runs import STEADY, host_of, ranking_of, run_of

from tfperf.judge.changes import category_changes, compare_runs, ranking_changes
from tfperf.judge.run_summary import RankedEntry, Ranking, RankingName

Row = tuple[str, str, float | None, float | None, float | None]


def changes(before: Ranking, after: Ranking, name: RankingName = "kernels") -> list[Row]:
    """(name, state, before, after, change)"""
    rows = ranking_changes(run_of(rankings={name: before}), run_of(rankings={name: after}), name)
    return [(row.entry.name, row.state, row.before_ms, row.after_ms, row.change_ms) for row in rows]


def test_the_largest_change_comes_first() -> None:
    before = ranking_of(("a", 5.0), ("b", 3.0), ("c", 1.0))
    after = ranking_of(("a", 5.5), ("b", 1.0), ("c", 1.0))
    assert changes(before, after) == [("b", "", 3.0, 1.0, -2.0), ("a", "", 5.0, 5.5, 0.5), ("c", "", 1.0, 1.0, 0.0)]


def test_what_is_new_or_gone_is_marked() -> None:
    before, after = ranking_of(("same", 1.0), ("old", 4.0)), ranking_of(("same", 1.0), ("fresh", 3.0))
    assert changes(before, after) == [
        ("old", "gone", 4.0, 0.0, -4.0),
        ("fresh", "new", 0.0, 3.0, 3.0),
        ("same", "", 1.0, 1.0, 0.0),
    ]


def test_what_may_be_among_the_cut_entries_is_neither() -> None:
    before, after = ranking_of(("same", 1.0), ("b", 4.0)), ranking_of(("same", 1.0), cut=7)
    assert changes(before, after) == [("b", "", 4.0, None, None), ("same", "", 1.0, 1.0, 0.0)]
    assert changes(after, before) == [("b", "", None, 4.0, None), ("same", "", 1.0, 1.0, 0.0)]


def test_unknown_times_stay_unknown() -> None:
    assert changes(ranking_of(("a", None)), ranking_of(("a", 2.0))) == [("a", "", None, 2.0, None)]


def test_nothing_is_new_where_a_run_shows_nothing_of_the_kind() -> None:
    assert changes(ranking_of(), ranking_of(("a", 2.0))) == []


def test_numbers_of_layers_do_not_matter_where_only_one_layer_fits() -> None:
    before, after = ranking_of(("model_1/dense_3/MatMul", 1.0)), ranking_of(("model_2/dense/MatMul", 2.0))
    runs = run_of(rankings={"host_ops": before}), run_of(rankings={"host_ops": after})
    assert [(row.entry.name, row.after_name, row.change_ms) for row in ranking_changes(*runs, "host_ops")] == [
        ("model_1/dense_3/MatMul", "model_2/dense/MatMul", 1.0)
    ]


def test_numbers_do_matter_where_several_are_alike() -> None:
    rows = changes(ranking_of(("dense_1", 1.0), ("dense_2", 2.0)), ranking_of(("dense_3", 4.0)))
    assert [row[:2] for row in rows] == [("dense_3", "new"), ("dense_2", "gone"), ("dense_1", "gone")]


def test_ops_of_another_type_are_not_the_same() -> None:
    before, after = ranking_of(RankedEntry("a", "Add", 1.0)), ranking_of(RankedEntry("a", "Mul", 1.0))
    assert [row[1] for row in changes(before, after)] == ["gone", "new"]


def test_a_stage_is_found_again_below_another_stage() -> None:
    """A prefetch at the end changes the paths of all stages."""
    before = ranking_of(RankedEntry("Root::Batch", "Batch", 2.0), RankedEntry("Root::Batch::Map", "Map", 9.0))
    after = ranking_of(
        RankedEntry("Root::Prefetch", "Prefetch", 0.0),
        RankedEntry("Root::Prefetch::Batch", "Batch", 0.5),
        RankedEntry("Root::Prefetch::Batch::Map", "Map", 1.0),
    )
    assert changes(before, after, "stages") == [
        ("Root::Batch::Map", "", 9.0, 1.0, -8.0),
        ("Root::Batch", "", 2.0, 0.5, -1.5),
        ("Root::Prefetch", "new", 0.0, 0.0, 0.0),
    ]


# --- categories ---


def test_categories_add_up_to_the_change_of_the_step() -> None:
    """Half of 10 and of 12 ms is input."""
    rows = category_changes(host_of(), host_of(tuple(1.2 * ms for ms in STEADY)))
    assert [(row.entry.name, row.entry.detail) for row in rows] == [
        ("Host compute", "host_compute"),
        ("Input", "input"),
    ]
    assert sum(row.change_ms or 0.0 for row in rows) == pytest.approx(2.0)


def test_a_category_that_is_unknown_in_one_run_has_no_change() -> None:
    changed = category_changes(host_of(), host_of(category_ms={"input": None, "output": 3.0}))
    rows = {row.entry.detail: (row.before_ms, row.after_ms, row.change_ms) for row in changed}
    assert rows["input"] == (5.0, None, None)
    assert rows["output"] == (None, 3.0, None)
    assert "compilation" not in rows


def test_copies_to_a_device_that_are_no_part_of_input_have_a_change_of_their_own() -> None:
    before, after = (host_of(category_ms={"input": 0.0, "host_to_device": ms, "output": 1.0}) for ms in (4.0, 3.0))
    changed = category_changes(before, after)
    assert next((row.entry.name, row.change_ms) for row in changed) == ("Host to device", -1.0)
    usual = host_of(category_ms={"input": 5.0, "host_to_device": 4.0})
    assert [row.entry.detail for row in category_changes(usual, usual)] == ["input"]


# --- direction ---


@pytest.mark.parametrize(
    ("factor", "direction", "change_ms"),
    [(1.2, "slower", 2.0), (0.8, "faster", -2.0), (1.001, "no clear change", None)],
)
def test_a_change_is_clear_where_the_interval_excludes_1(
    factor: float, direction: str, change_ms: float | None
) -> None:
    comparison = compare_runs([run_of(), run_of(tuple(factor * ms for ms in STEADY))], "mean")
    assert comparison.direction == direction
    assert comparison.mean_change_ms == (None if change_ms is None else pytest.approx(change_ms))


def test_without_steps_the_direction_is_unknown() -> None:
    comparison = compare_runs([run_of(), run_of(())], "mean")
    assert (comparison.direction, comparison.mean_change_ms, comparison.categories) == ("unknown", None, ())
