"""OpenMetrics text, read back by the parser of prometheus-client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from live.views import EVIL, gone, measured, sample, worker
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tfperf.capture.address import Address
from tfperf.live.board import WorkerView
from tfperf.live.openmetrics import COUNTERS, FAMILIES, metrics_text
from tfperf.live.sample import FirstCause

Values = dict[tuple[str, str], float]


def values_of(workers: Iterable[WorkerView]) -> Values:
    """Return each value by the name of its sample, and its labels but the worker."""
    parse: Any = text_string_to_metric_families
    families = list(parse(metrics_text(list(workers))))
    assert [family.name for family in families] == [*FAMILIES]
    return {
        (each.name, ",".join(value for key, value in each.labels.items() if key != "worker")): each.value
        for family in families
        for each in family.samples
    }


def test_all_that_is_known() -> None:
    values = values_of([worker(6009, sample(measured(), slowdown_percent=3.0), failures=2)])
    assert values == {
        ("tfperf_worker_up", ""): 1.0,
        ("tfperf_samples_total", ""): 3.0,
        ("tfperf_sample_failures_total", ""): 2.0,
        ("tfperf_sample_timestamp_seconds", ""): 1_799_999_998.0,
        ("tfperf_profiled_ratio", ""): 0.1,
        ("tfperf_slowdown_ratio", ""): 0.03,
        ("tfperf_step_time_seconds", ""): 0.02,
        ("tfperf_steps_per_second", ""): 50.0,
        ("tfperf_examples_per_second", ""): 1600.0,
        ("tfperf_category_ratio", "input"): 0.66,
        ("tfperf_category_ratio", "host_compute"): 0.24,
        ("tfperf_category_ratio", "all_others"): 0.1,
        ("tfperf_input_ratio", ""): 0.66,
        ("tfperf_input_cost_ratio", "low"): 0.66,
        ("tfperf_input_cost_ratio", "high"): pytest.approx(0.784),
        ("tfperf_device_busy_ratio", ""): 0.125,
        ("tfperf_memory_used_ratio", ""): 0.75,
        ("tfperf_cause_gain_ratio", "input_wait"): 0.6,
    }


def test_what_is_unknown_is_absent() -> None:
    values = values_of([worker(6009, sample(measured(step_ms=None, input_percent=float("nan"))))])
    assert not {name for name, _ in values} & {
        "tfperf_step_time_seconds",
        "tfperf_input_ratio",
        "tfperf_slowdown_ratio",
    }


def test_a_worker_that_is_gone_is_down_and_has_no_figures() -> None:
    values = values_of([gone()])
    assert values[("tfperf_worker_up", "")] == 0.0
    assert ("tfperf_step_time_seconds", "") not in values


def test_before_the_first_sample_nothing_is_claimed() -> None:
    assert set(values_of([worker(samples=0)])) == {("tfperf_samples_total", ""), ("tfperf_sample_failures_total", "")}
    assert values_of([]) == {}


def test_hostile_labels_are_escaped() -> None:
    cause = FirstCause('a"b\\c\n', "", "", "", 10.0)
    values = values_of([worker(address=Address(EVIL, 1), last=sample(measured(causes=(cause,))))])
    assert values[("tfperf_cause_gain_ratio", 'a"b\\c\n')] == 0.1


def test_the_page_lists_every_metric(root: Path, compare_gold: Callable[[Path, str], None]) -> None:
    page = root / "docs" / "top.md"
    rows = ""
    for name, help in FAMILIES.items():
        shown = f"`{name}_total` | counter" if name in COUNTERS else f"`{name}` | gauge"
        rows += f"| {shown} | {help} |\n"
    before, start, rest = page.read_text(encoding="utf-8").partition("<!-- metrics -->\n")
    _, end, after = rest.partition("<!-- end -->")
    compare_gold(page, f"{before}{start}| metric | type | meaning |\n|---|---|---|\n{rows}{end}{after}")
