from __future__ import annotations

import pytest
from compare.made import STEADY, host_of, part_of, run_of

from tfperf.compare.changes import category_changes, compare_runs, part_changes
from tfperf.compare.model import Entry, Part

Row = tuple[str, str, float | None, float | None, float | None]


def changes(before: Part, after: Part, part: str = "kernels") -> list[Row]:
    """(name, state, before, after, change)"""
    found = part_changes(run_of(parts={part: before}), run_of(parts={part: after}), part)
    return [(own.name, own.state, own.before_ms, own.after_ms, own.change_ms) for own in found]


def test_the_largest_change_comes_first() -> None:
    before = part_of(("a", 5.0), ("b", 3.0), ("c", 1.0))
    after = part_of(("a", 5.5), ("b", 1.0), ("c", 1.0))
    assert changes(before, after) == [("b", "", 3.0, 1.0, -2.0), ("a", "", 5.0, 5.5, 0.5), ("c", "", 1.0, 1.0, 0.0)]


def test_what_is_new_or_gone_is_marked() -> None:
    before, after = part_of(("same", 1.0), ("old", 4.0)), part_of(("same", 1.0), ("fresh", 3.0))
    assert changes(before, after) == [
        ("old", "gone", 4.0, 0.0, -4.0), ("fresh", "new", 0.0, 3.0, 3.0), ("same", "", 1.0, 1.0, 0.0),
    ]  # fmt: skip


def test_what_may_be_among_the_cut_entries_is_neither() -> None:
    before, after = part_of(("same", 1.0), ("b", 4.0)), part_of(("same", 1.0), cut=7)
    assert changes(before, after) == [("b", "", 4.0, None, None), ("same", "", 1.0, 1.0, 0.0)]
    assert changes(after, before) == [("b", "", None, 4.0, None), ("same", "", 1.0, 1.0, 0.0)]


def test_unknown_times_stay_unknown() -> None:
    assert changes(part_of(("a", None)), part_of(("a", 2.0))) == [("a", "", None, 2.0, None)]


def test_nothing_is_new_where_a_run_shows_nothing_of_the_kind() -> None:
    assert changes(part_of(), part_of(("a", 2.0))) == []
    assert part_changes(run_of(), run_of(parts={"kernels": part_of(("a", 2.0))}), "kernels") == ()


def test_numbers_of_layers_do_not_matter_where_nothing_else_could_be_meant() -> None:
    before, after = part_of(("model_1/dense_3/MatMul", 1.0)), part_of(("model_2/dense/MatMul", 2.0))
    found = part_changes(run_of(parts={"host_ops": before}), run_of(parts={"host_ops": after}), "host_ops")
    assert [(own.name, own.after_name, own.change_ms) for own in found] == [
        ("model_1/dense_3/MatMul", "model_2/dense/MatMul", 1.0)
    ]


def test_numbers_do_matter_where_several_are_alike() -> None:
    found = changes(part_of(("dense_1", 1.0), ("dense_2", 2.0)), part_of(("dense_3", 4.0)))
    assert [row[:2] for row in found] == [("dense_3", "new"), ("dense_2", "gone"), ("dense_1", "gone")]


def test_ops_of_another_type_are_not_the_same() -> None:
    before, after = part_of(Entry("a", "Add", 1.0)), part_of(Entry("a", "Mul", 1.0))
    assert [row[1] for row in changes(before, after)] == ["gone", "new"]


def test_a_stage_is_found_again_below_another_stage() -> None:
    """A prefetch at the end changes the paths of all stages."""
    before = part_of(Entry("Root::Batch", "Batch", 2.0), Entry("Root::Batch::Map", "Map", 9.0))
    after = part_of(
        Entry("Root::Prefetch", "Prefetch", 0.0), Entry("Root::Prefetch::Batch", "Batch", 0.5),
        Entry("Root::Prefetch::Batch::Map", "Map", 1.0),
    )  # fmt: skip
    assert changes(before, after, "stages") == [
        ("Root::Batch::Map", "", 9.0, 1.0, -8.0), ("Root::Batch", "", 2.0, 0.5, -1.5),
        ("Root::Prefetch", "new", 0.0, 0.0, 0.0),
    ]  # fmt: skip


# --- categories ---


def test_categories_add_up_to_the_change_of_the_step() -> None:
    """Half of 10 and of 12 ms is input."""
    found = category_changes(host_of(), host_of(tuple(1.2 * own for own in STEADY)))
    assert [(own.name, own.detail) for own in found] == [("Host compute", "host_compute"), ("Input", "input")]
    assert sum(own.change_ms or 0.0 for own in found) == pytest.approx(2.0)


def test_a_category_that_one_run_does_not_know_has_no_change() -> None:
    found = category_changes(host_of(), host_of(category_ms={"input": None, "output": 3.0}))
    rows = {own.detail: (own.before_ms, own.after_ms, own.change_ms) for own in found}
    assert rows["input"] == (5.0, None, None)
    assert rows["output"] == (None, 3.0, None)
    assert "compilation" not in rows


# --- direction ---


@pytest.mark.parametrize(
    ("factor", "direction", "change"),
    [(1.2, "slower", 2.0), (0.8, "faster", -2.0), (1.001, "no change told", None)],
)
def test_a_change_is_told_where_the_interval_excludes_1(factor: float, direction: str, change: float | None) -> None:
    pair = compare_runs([run_of(), run_of(tuple(factor * own for own in STEADY))], "mean")
    assert pair.direction == direction
    assert pair.mean_change_ms == (None if change is None else pytest.approx(change))


def test_without_steps_nothing_is_told() -> None:
    pair = compare_runs([run_of(), run_of(())], "mean")
    assert (pair.direction, pair.mean_change_ms, pair.categories) == ("unknown", None, ())
