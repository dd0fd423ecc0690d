"""When runs are compared per example, and what their times become."""

from __future__ import annotations

import pytest
from judge.example_runs import host_of, ranking_of, run_of

from tfperf.judge.run_summary import RankedEntry, as_compared, choose_per


@pytest.mark.parametrize(
    ("examples", "per"),
    [
        ([100, 200], "example"),
        ([100, 100], "step"),
        ([None, 200], "step"),
        ([None, None], "step"),
        ([100, 100, 200], "example"),
        ([100, 200, None], "step"),
    ],
)
def test_examples_are_compared_where_all_runs_know_them_and_they_differ(examples: list[int | None], per: str) -> None:
    assert choose_per([run_of(examples_per_step=count) for count in examples]) == per


def test_times_become_those_of_a_thousand_examples() -> None:
    rankings = {
        "host_ops": ranking_of(RankedEntry("MatMul", "MatMul", 2.0, 3.0, 7.0)),
        "copies": ranking_of(("H2D", None)),
    }
    run = run_of(hosts=[host_of((10.0, 20.0))], rankings=rankings, examples_per_step=250)
    compared = as_compared(run, "example")
    (host,) = compared.hosts
    assert host.step_ms == (40.0, 80.0)
    assert (host.category_ms["input"], host.category_ms["output"]) == (30.0, None)
    assert compared.ranking("host_ops").rows == (RankedEntry("MatMul", "MatMul", 8.0, 12.0, 7.0),)
    assert compared.ranking("copies").rows[0].ms is None


def test_per_step_nothing_changes() -> None:
    run = run_of(examples_per_step=250)
    assert as_compared(run, "step") is run
