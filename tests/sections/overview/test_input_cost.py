"""What input costs: its category, and what its threads take from the step."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import host, plane, results_of, trace_of
from sections.diagnosis.test_diagnose import FETCH, OP, shared_cores, steps

from tfperf.sections.overview.section import InputCost, build, input_cost, report_summary


def test_threads_beside_the_step_are_a_part_of_the_cost(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, plane("/host:CPU", *shared_cores())))
    cost = input_cost(results)
    assert cost is not None
    assert cost.waiting == 2.0
    assert (cost.low, cost.high) == pytest.approx((2 + 10.89, 2 + 37.398), abs=0.01)
    assert report_summary(results)["input_cost_percent"] == {"low": cost.low, "high": cost.high}
    (_, finding) = build(results).findings
    assert finding.text == (
        "Input costs 12.9 to 39.4% of the step: 2.0% waiting, the rest because its threads use the cores that the "
        "step needs."
    )


def test_without_rivals_it_is_the_category(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, host(*steps((FETCH, 64), (OP, 36)))))
    cost = input_cost(results)
    assert cost == InputCost(64.0, 0.0, 0.0)
    assert not cost.is_more_than_waiting
    assert len(build(results).findings) == 1


def test_what_the_trace_does_not_show_is_unknown(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, host()))
    assert input_cost(results) is None
    assert report_summary(results)["input_cost_percent"] == {"low": None, "high": None}
