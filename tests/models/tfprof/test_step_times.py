"""Times over steps: nanoseconds, medians, and a first step that is unlike the others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from builders import known
from tfprof_builders import CPU, GPU, STREAMS, model, node, ran, run_metadata

from tfperf.models.tfprof.model import AVERAGE, Model
from tfperf.models.tfprof.options import PLACE, options_from
from tfperf.models.tfprof.step_times import (
    first_step,
    first_step_finding,
    in_nanos,
    median_times,
    nano_values,
    skip_first,
)


def of_steps(folder: Path, *micros: Mapping[str, int]) -> Model:
    """Return nodes a and b that took so long in steps 0, 10, 20, ..."""
    steps = {
        10 * number: run_metadata({CPU: [ran(name, 100, time) for name, time in each.items()]})
        for number, each in enumerate(micros)
    }
    return model(folder, [node("a", "A"), node("b", "B")], steps)


def test_times_are_those_of_nanoseconds_where_they_are_filled(tmp_path: Path) -> None:
    records = {
        GPU: [ran("a", 1, 3, op_end_rel_nanos=2600)],
        STREAMS: [ran("a", 1, 2, op_end_rel_nanos=1500)],
        CPU: [ran("b", 1, 7)],
    }
    of = model(tmp_path, [node("a", "A"), node("b", "B")], {0: run_metadata(records)})
    nanos, micros = nano_values(of, 0), of.values(0)
    for name, expected in (("micros", [4100, 7000]), ("accelerator_micros", [1500, 0]), ("cpu_micros", [2600, 7000])):
        assert nanos[PLACE[name]].tolist() == expected
    assert micros[PLACE["micros"]].tolist() == [5, 7]
    assert nanos[PLACE["runs"]].tolist() == micros[PLACE["runs"]].tolist()


def test_a_mean_is_over_the_steps_that_recorded_the_node(tmp_path: Path) -> None:
    of = of_steps(tmp_path, {"a": 10, "b": 5}, {"a": 11})
    assert nano_values(of, AVERAGE)[PLACE["micros"]].tolist() == [10_500, 5000]
    with pytest.raises(ValueError, match="step 5 was not recorded"):
        nano_values(of, 5)


def test_least_times_are_compared_with_nanoseconds() -> None:
    given = in_nanos(options_from({"min_micros": 3, "min_cpu_micros": 2, "min_bytes": 7}))
    assert (given.min_micros, given.min_cpu_micros, given.min_accelerator_micros, given.min_bytes) == (3000, 2000, 0, 7)


def test_skipped_steps_are_not_there(tmp_path: Path) -> None:
    of = skip_first(of_steps(tmp_path, {"a": 10}, {"a": 20}, {"a": 30}), 2)
    assert ([*of.steps], of.values(AVERAGE)[PLACE["micros"]].tolist(), len(of.hosts)) == ([20], [30, 0], 1)
    assert skip_first(of, 0) is of


@pytest.mark.parametrize("count", [3, 4, -1])
def test_at_least_one_step_is_left(tmp_path: Path, count: int) -> None:
    with pytest.raises(ValueError, match="of 3 steps: at least one step must remain"):
        skip_first(of_steps(tmp_path, {"a": 10}, {"a": 20}, {"a": 30}), count)


def test_medians_are_over_the_steps_that_recorded_the_node(tmp_path: Path) -> None:
    of = of_steps(tmp_path, {"a": 900, "b": 1}, {"a": 10, "b": 4}, {"a": 12})
    assert median_times(of).tolist() == [[12_000, 2500], [0, 0], [12_000, 2500]]
    assert median_times(model(tmp_path, [node("a", "A")])).tolist() == [[0], [0], [0]]


def test_a_first_step_that_is_like_the_others(tmp_path: Path) -> None:
    of = of_steps(tmp_path, {"a": 50, "b": 60}, {"a": 10, "b": 10}, {"a": 12, "b": 8})
    first = known(first_step(of))
    assert (first.step, first.nanos, first.median_nanos, first.nodes, first.is_far) == (0, 110_000, 20_000, [], False)
    assert first_step_finding(of) is None


def test_a_first_step_that_takes_much_longer(tmp_path: Path) -> None:
    of = of_steps(tmp_path, {"a": 4000, "b": 200}, {"a": 10, "b": 10}, {"a": 12, "b": 8})
    first, finding = known(first_step(of)), known(first_step_finding(of))
    assert (first.ratio, first.nodes) == (210.0, [("a", 4_000_000, 11_000), ("b", 200_000, 9000)])
    assert finding.text == "the mean includes the first traced step (0), 4.20 ms, 210 times the median of the others"
    assert "--skip-first 1" in finding.action
    assert first_step_finding(of, step=10) is None
    assert first_step_finding(skip_first(of, 1)) is None
    after_another = of_steps(tmp_path, {"a": 1}, {"a": 2000}, {"a": 10}, {"a": 10})
    assert "--skip-first 2" in known(first_step_finding(skip_first(after_another, 1))).action


def test_a_node_that_takes_much_longer_in_a_step_that_does_not(tmp_path: Path) -> None:
    of = of_steps(tmp_path, {"a": 400, "b": 1000}, {"a": 10, "b": 1000}, {"a": 10, "b": 1000})
    assert known(first_step_finding(of)).text.endswith("(0), in which a took 0.400 ms, 40 times its median")


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([{"a": 40, "b": 9000}, {"a": 1, "b": 9000}], id="a node that costs next to nothing"),
        pytest.param([{"a": 550}], id="one step"),
        pytest.param([], id="no step"),
    ],
)
def test_what_is_no_finding(tmp_path: Path, steps: list[dict[str, int]]) -> None:
    assert first_step_finding(of_steps(tmp_path, *steps)) is None


def test_of_two_steps_the_other_is_the_median(tmp_path: Path) -> None:
    first = known(first_step(of_steps(tmp_path, {"a": 550}, {"a": 50})))
    assert (first.ratio, first.is_far) == (11.0, True)
