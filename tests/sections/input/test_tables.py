from __future__ import annotations

from pathlib import Path

from builders import event, host, results_of, trace_of

from tfperf.base.units import percent
from tfperf.sections.input import INPUT_CLASSES, INPUT_HOSTS, INPUT_PART_TITLES, INPUT_STEPS, TABLES
from tfperf.sections.input.analysis import INPUT_PARTS


def test_every_class_has_a_title() -> None:
    assert tuple(INPUT_PART_TITLES) == INPUT_PARTS


def test_a_share_of_nothing_is_unknown() -> None:
    assert (percent(1, 4), percent(0, 0)) == (25, None)


def test_a_class_without_ops_has_no_times(tmp_path: Path) -> None:
    """Its work may merely not be recorded."""
    results = results_of(trace_of(tmp_path, host(event("Iterator::Root::Map", 0, 10))), sections=["input"])
    data = INPUT_CLASSES.data(results)
    assert data is not None
    assert list(data["ops"]) == [0, 0, 1, 0, 0]
    assert list(data["wall_percent"]) == [None, None, 100, None, None]
    assert list(data["scaled_ms"]) == [None, None, 0.01, None, None]


def test_what_a_profile_does_not_show_has_no_table(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, host(event("train", 0, 10))), sections=["input"])
    assert [table.data(results) for table in TABLES] == [None] * len(TABLES)


def test_hosts_are_compared_where_there_are_several(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(*(event("train", 10 * step, 10, step_num=step) for step in range(4))))
    assert INPUT_HOSTS.data(results_of(trace, sections=["input"])) is None
    both = results_of(trace, trace, sections=["input"])
    data = INPUT_HOSTS.data(both)
    assert data is not None
    assert list(data["input_percent"]) == [None, None]
    assert INPUT_STEPS.data(both) is None, "no step shows its input"
