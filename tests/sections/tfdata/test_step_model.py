from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.sections.tfdata.step_model import DISTURBED, OVERLAP, PARALLEL_EFFICIENCY, SIBLING, Load, StepModel


def load(pipeline_ms: float) -> Load:
    """A step of 50 ms beside two threads of a pipeline that share this work."""
    return Load(
        consumer_ms=50,
        inline_ms=0,
        segments=((pipeline_ms, 2),),
        cpu_ms=pipeline_ms,
        overlapped_ms=100,
        steadiness=1.0,
        busy_threads=2.0,
    )


def test_a_thread_is_faster_alone_on_its_core() -> None:
    # Two threads of the pipeline beside a step of one thread, on two cores: without them the step may be faster.
    model = StepModel(now=load(200), step_ms=100, cores=2, steadiness=1.0, has_device=False)
    assert model.longest_ms(load(0), 1.0) == pytest.approx(DISTURBED * 50 / 1.5 / (1 + SIBLING))
    busy = 200 / (2 * PARALLEL_EFFICIENCY) + (1 - OVERLAP) * 50 / 1.5
    assert model.longest_ms(load(200), 1.0) == pytest.approx(DISTURBED * busy)


def test_beside_a_device_the_cores_are_those_of_the_pipeline() -> None:
    model = StepModel(now=load(200), step_ms=100, cores=2, steadiness=1.0, has_device=True)
    assert model.shortest_ms(load(200), 0.0) == 100, "200 ms on two cores"
    assert model.shortest_ms(load(60), 0.0) == 50, "the step itself"


def test_what_is_not_the_work_of_the_step_is_input() -> None:
    model = StepModel(now=load(200), step_ms=100, cores=2, steadiness=1.0, has_device=True)
    assert [model.input_percent(step_ms) for step_ms in (100, 50, 40, 0)] == [50, 0, 0, 0]


times = st.floats(0.0, 1e4)
loads = st.builds(
    Load,
    consumer_ms=times,
    inline_ms=times,
    segments=st.lists(st.tuples(times, st.integers(1, 64)), max_size=4).map(tuple),
    cpu_ms=times,
    overlapped_ms=times,
    steadiness=st.floats(0.0, 1.0),
    busy_threads=st.floats(0.0, 64.0),
)
models = st.builds(
    StepModel,
    now=loads,
    step_ms=st.floats(0.001, 1e5),
    cores=st.integers(1, 256),
    steadiness=st.floats(0.0, 1.0),
    has_device=st.booleans(),
)


@given(models, loads, loads)
def test_a_range_starts_before_it_ends(model: StepModel, best: Load, worst: Load) -> None:
    low, high = model.range_ms(best, worst, 1.0)
    assert 0 <= low <= high
    assert 0 <= model.input_percent(low) <= 100
    assert 0 <= model.input_percent(high) <= 100
