"""What metrics rest on."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tfperf.judge.grammar import limit_tables, read_limit
from tfperf.judge.limits import FIGURES, REGRESSION, Metric
from tfperf.judge.measure import RESTS_ON, is_over_steps, parts_of
from tfperf.trace.flaw import EVERYTHING, TIMES
from tfperf.trace.steps.steps import no_steps

MARKED = replace(no_steps(""), source="markers")
FOUND = replace(no_steps(""), source="tf.function calls")


@pytest.mark.parametrize(
    ("limit", "of_marked", "of_found"),
    [
        ("step_time < 1s", {"steps"}, TIMES),
        ("skew < 1%", {"steps"}, TIMES),
        ("input_bound < 1%", TIMES, TIMES),
        ("device_busy > 1%", {"steps", "device"}, TIMES),
        ("retraces < 1", {"calls"}, {"calls"}),
        ("memory < 1GB", {"memory"}, {"memory"}),
        ("cause[compilation] <= 0", TIMES, TIMES),
        ("cause[memory_pressure] <= 0", EVERYTHING, EVERYTHING),
        ("sum(kernels.total_us) < 1s", {"device"}, {"device"}),
        ("max(idle_devices.idle_percent) < 5", {"steps", "device"}, TIMES),
        ("max(tfdata_stages.p95_ms) < 5", {"input"}, {"input"}),
        ("max(steps.step_time_ms) < 5", EVERYTHING, EVERYTHING),
    ],
)
def test_parts_of_a_metric(limit: str, of_marked: object, of_found: object) -> None:
    metric = read_limit(limit).metric
    assert (parts_of(metric, [MARKED]), parts_of(metric, [FOUND])) == (of_marked, of_found)
    assert parts_of(metric, [MARKED, FOUND]) == of_found, "what any host rests on"


def test_a_regression_rests_on_the_steps() -> None:
    assert is_over_steps(Metric(REGRESSION))
    assert parts_of(Metric(REGRESSION), [MARKED]) == {"steps"}


def test_what_a_step_ends_by_counts() -> None:
    metric = Metric("step_time")
    assert parts_of(metric, [replace(MARKED, end_known=False)]) == TIMES
    assert parts_of(metric, [replace(MARKED, source="device steps")]) == {"steps", "device"}


def test_what_is_declared_exists_and_every_figure_is() -> None:
    assert RESTS_ON.keys() <= {*FIGURES, *limit_tables(), REGRESSION}
    assert FIGURES.keys() <= RESTS_ON.keys()
