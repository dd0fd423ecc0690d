from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.sections.tfdata.whatif import (
    COLD,
    LOCK,
    NOISE,
    OVERLAP,
    PARALLEL_EFFICIENCY,
    SHARING,
    STEADIEST,
    TURNS,
    Load,
    Rivals,
    StepModel,
    faster_without,
    with_noise,
)


def load(pipeline_ms: float, consumer_ms: float = 60) -> Load:
    """A step of so much work of its own beside two threads of a pipeline that share this work."""
    return Load(consumer_ms=consumer_ms, inline_ms=0, segments=((pipeline_ms, 2),), cpu_ms=pipeline_ms)


def model(rivals: Rivals, *, consumer_ms: float = 60, cores: int = 4, has_device: bool = False) -> StepModel:
    """A step of 60 ms today, beside a pipeline of 80."""
    return StepModel(now=load(80, consumer_ms), step_ms=60, cores=cores, rivals=rivals, has_device=has_device)


TWO = Rivals(native=2.0)


def test_a_step_is_slowed_by_the_rivals_for_its_cores() -> None:
    least, most = model(TWO).slowdowns
    assert (least, most) == pytest.approx((1 + SHARING[0] * 2 / 4, 1 + SHARING[1] * 2 / 4))
    assert model(TWO, cores=2).slowdowns > (least, most), "two cores less to share"
    assert model(Rivals(python=1.0)).slowdowns == pytest.approx((1 + LOCK[0], 1 + LOCK[1]))
    assert model(TWO, has_device=True).slowdowns == (1, 1), "the step computes elsewhere"


def test_without_input_the_step_has_its_cores_for_itself() -> None:
    low, high = model(TWO).alone_ms
    assert (low, high) == pytest.approx((60 / (1 + SHARING[1] / 2), 60 / (1 + SHARING[0] / 2)))
    assert model(TWO).free_ms() == with_noise(low, high)
    assert model(Rivals()).free_ms() == with_noise(60, 60), "nothing but noise"


def test_noise_and_other_errors_add_up_as_squares() -> None:
    low, high = with_noise(100, 100)
    assert (low, high) == pytest.approx((100 / math.exp(NOISE), 100 * math.exp(NOISE)))
    low, high = with_noise(50, 200)
    assert math.log(high / 100) == pytest.approx(math.hypot(math.log(2), NOISE))
    assert low * high == pytest.approx(100 * 100)
    assert with_noise(0, 5) == (0, 5)


def test_work_after_waiting_is_slower() -> None:
    half = model(Rivals(), consumer_ms=30)
    middle, ratio = 30 * (1 - sum(COLD) / 2 / 2), (1 - COLD[0] / 2) / (1 - COLD[1] / 2)
    assert half.alone_ms == pytest.approx((middle / math.sqrt(ratio), middle * math.sqrt(ratio)))


def test_the_rest_of_a_step_gets_faster_with_what_goes_away() -> None:
    assert faster_without(0.0, 60.0) == 60.0
    assert faster_without(0.5, 30.0) == pytest.approx(30.0 * (1.0 - COLD[1] / 2.0))


def test_input_adds_what_rivals_take_and_what_work_after_waiting_takes_longer() -> None:
    half = model(TWO, consumer_ms=30)
    low, high = half.slowed_ms
    assert low == pytest.approx(30 - 30 / half.slowdowns[0]), "rivals alone, at least"
    assert high == pytest.approx(30 - half.alone_ms[0])
    low, high = model(Rivals(), consumer_ms=30).slowed_ms
    assert low == 0 < high


def test_rivals_beyond_one_for_each_other_core_take_turns() -> None:
    few, many = model(Rivals(native=3.0)), model(Rivals(native=5.0))
    assert few.slowdowns[1] == pytest.approx(1 + SHARING[1] * 3 / 4)
    assert many.slowdowns[1] == pytest.approx(1 + SHARING[1] * 5 / 4 + 2 * TURNS)


def test_the_same_work_keeps_all_cores_busy_as_long_as_today() -> None:
    busy = StepModel(now=load(80), step_ms=60, cores=2, rivals=TWO, has_device=True, busy_ms=110)
    assert busy.longest_ms(load(80), 1.0, 0.0) == pytest.approx(110 / 2 / PARALLEL_EFFICIENCY)
    assert busy.shortest_ms(load(80, 10), 1.0, 0.0) >= STEADIEST * 110 / 2
    assert busy.longest_ms(load(10, 0), 1.0, 0.0) < 55, "how much is left of less work is unknown"


def test_what_is_unknown_of_rivals_and_of_waiting_adds_up_as_squares() -> None:
    half = model(TWO, consumer_ms=30)
    (least, most), (warm, warmest) = half.slowdowns, (1 - COLD[0] / 2, 1 - COLD[1] / 2)
    low, high = half.alone_ms
    assert low * high == pytest.approx(30 * (1 - sum(COLD) / 4) / least * 30 * (1 - sum(COLD) / 4) / most)
    of_rivals, of_waiting = math.log(most / least) / 2, math.log(warm / warmest) / 2
    assert math.log(high / low) / 2 == pytest.approx(math.hypot(of_rivals, of_waiting))


def test_an_unchanged_pipeline_leaves_the_step_as_it_is() -> None:
    for slowed in (1.0, 1.5, 3.0):
        assert model(TWO).shortest_ms(load(80), slowed, 0.5) == pytest.approx(60)
    assert model(TWO).range_ms(load(80), load(80)) == pytest.approx(with_noise(60, 60)), "at most, but for noise"


def test_with_half_of_the_rivals_the_step_is_faster() -> None:
    # Alone it takes 30 ms. With the same work beside it, t = 30 + 30 x 60 / t; with half of it, t = 30 + 30 x 30 / t.
    step_ms = model(TWO).shortest_ms(load(40), 2.0, 0.0)
    assert step_ms == pytest.approx(30 + 30 * 30 / step_ms)


def test_the_slowest_segment_bounds_the_step() -> None:
    now = load(200, 50)
    device = StepModel(now=now, step_ms=100, cores=2, rivals=TWO, has_device=True)
    assert device.shortest_ms(now, 1.0, 0.0) == STEADIEST * 100, "200 ms on two cores"
    assert device.longest_ms(now, 1.0, 0.0) == pytest.approx(200 / (2 * PARALLEL_EFFICIENCY) + (1 - OVERLAP) * 50)
    assert device.shortest_ms(load(60, 50), 1.0, 0.0) == 50, "the step itself"
    host = StepModel(now=now, step_ms=100, cores=2, rivals=Rivals(), has_device=False)
    assert host.shortest_ms(now, 1.0, 0.0) == (STEADIEST * 200 + 50) / 2, "all work on two cores"


def test_what_is_not_the_work_of_the_step_is_input() -> None:
    half = model(Rivals(), consumer_ms=30)
    assert [half.input_percent(step_ms) for step_ms in (60, 30, 20, 0)] == [50, 0, 0, 0]


times = st.just(0.0) | st.floats(1e-9, 1e4)
loads = st.builds(
    Load,
    consumer_ms=times,
    inline_ms=times,
    segments=st.lists(st.tuples(times, st.integers(1, 64)), max_size=4).map(tuple),
    cpu_ms=times,
)
threads = st.floats(0.0, 64.0)
models = st.builds(
    StepModel,
    now=loads,
    step_ms=st.floats(0.001, 1e5),
    cores=st.integers(1, 256),
    rivals=st.builds(Rivals, native=threads, python=threads),
    has_device=st.booleans(),
)


@given(models, loads, loads)
def test_a_range_starts_before_it_ends(model: StepModel, best: Load, worst: Load) -> None:
    low, high = model.range_ms(best, worst)
    assert 0 <= low <= high
    assert 0 <= model.input_percent(low) <= 100
    assert 0 <= model.input_percent(high) <= 100
    low, high = model.free_ms()
    assert 0 <= low <= high
    assert high <= math.exp(NOISE) * model.now.consumer_ms * (1 + 1e-9)
