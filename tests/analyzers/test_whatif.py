"""Estimates worked out by hand, on a host with a device: the step computes there, and the cores are the pipeline's."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Line, event, line, plane, trace_of
from builders import iterator_call as call
from hypothesis import given
from hypothesis import strategies as st

from tfperf.analyzers import step_breakdown, tfdata, whatif
from tfperf.analyzers.whatif import DISTURBED, NOISE, OVERLAP, PARALLEL_EFFICIENCY, UNDISTURBED, Estimate, Load, Outlook
from tfperf.trace.find_steps import find_steps

STEP, COUNT = 100.0, 5
"""Microseconds, and how many."""


def outlook(tmp_path: Path, *lines: Line, has_device: bool = True) -> Outlook | None:
    trace = trace_of(tmp_path, plane("/host:CPU", *lines))
    breakdown = step_breakdown.analyze(trace, find_steps(trace))
    return whatif.estimate(tfdata.analyze(trace), breakdown, has_device=has_device)


def each_step(*events: Event) -> list[Event]:
    return [
        event(own.name, own.start_us + STEP * turn, own.duration_us, **own.stats)
        for turn in range(COUNT) for own in events
    ]  # fmt: skip


def steps() -> list[Event]:
    return [event("train", STEP * number, STEP, step_num=number) for number in range(COUNT)]


def inline_map(map_us: float, op: str = "DecodeJpeg") -> tuple[Line, Line]:
    """A map that works in the step's own thread, and whose function runs in a pool."""
    threads, pool = [], []
    for turn in range(COUNT):
        at = STEP * turn
        threads += [
            call("Root", at, map_us, 1, cpu_budget=4), call("Root::Map", at, map_us, 2, 1),
            event("InstantiatedCapturedFunction::Run", at, map_us, id=70 + turn),
        ]  # fmt: skip
        pool += [event("ExecutorState::Process", at, map_us, id=70 + turn), event(f"{op}:{op}", at, map_us)]
    return line("python", *steps(), *threads), line("pool", *pool)


def by_change(found: Outlook | None) -> dict[str, Estimate]:
    assert found is not None
    assert len({own.change for own in found.estimates}) == len(found.estimates)
    return {own.change: own for own in found.estimates}


def us(estimate: Estimate) -> tuple[float, float]:
    return estimate.low_ms * 1e3, estimate.high_ms * 1e3


def test_what_is_known_of_the_step(tmp_path: Path) -> None:
    found = outlook(tmp_path, *inline_map(60))
    assert found is not None
    assert (found.step_ms * 1e3, found.wait_ms * 1e3, found.elements_per_step) == (100, 60, 1)
    assert (found.cores, found.input_percent) == (4, 60)


def test_with_a_prefetch_the_longer_of_both_remains(tmp_path: Path) -> None:
    low, high = us(by_change(outlook(tmp_path, *inline_map(60)))["prefetch"])
    assert low == pytest.approx(UNDISTURBED * 60), "40 us of the step are hidden behind 60 of the pipeline"
    assert high == pytest.approx(DISTURBED * (60 + (1 - OVERLAP) * 40))


def test_in_parallel_the_function_takes_a_share_of_its_time(tmp_path: Path) -> None:
    low, high = us(by_change(outlook(tmp_path, *inline_map(60)))["parallel_map"])
    assert low == pytest.approx(UNDISTURBED * 40), "60 us on four cores are less than the 40 of the step"
    assert high == pytest.approx(DISTURBED * (40 + (1 - OVERLAP) * 60 / (4 * PARALLEL_EFFICIENCY)))


def test_a_cache_leaves_the_step_alone(tmp_path: Path) -> None:
    cache = by_change(outlook(tmp_path, *inline_map(60)))["cache"]
    assert us(cache) == pytest.approx((UNDISTURBED * 40, DISTURBED * 40))
    assert (cache.low_input_percent, cache.high_input_percent) == pytest.approx((0, 100 * (1 - 1 / DISTURBED)))


def test_python_may_gain_nothing_and_even_lose(tmp_path: Path) -> None:
    parallel = by_change(outlook(tmp_path, *inline_map(60, "EagerPyFunc")))["parallel_map"]
    assert us(parallel) == pytest.approx((UNDISTURBED * 40, NOISE * 100 * whatif.GREED))
    assert "Python" in parallel.assumption


def test_reading_can_be_spread_over_files(tmp_path: Path) -> None:
    python = line(
        "python", *steps(), *each_step(call("Root", 60, 40, 1, cpu_budget=2), call("Root::Prefetch", 60, 40, 2, 1))
    )
    reader = line(
        "reader", *each_step(event("PrefetchProduce", 0, 100), call("Root::Prefetch::TFRecord", 0, 100, 3, 2))
    )
    low, _ = us(by_change(outlook(tmp_path, python, reader))["parallel_read"])
    assert low == pytest.approx(UNDISTURBED * 60), "two files at once take 50 us for an element, the step 60"


def small_elements(batch: int, op_us: float) -> tuple[Line, ...]:
    """MapAndBatch whose function is one op for each element, every 20 us."""
    python = line(
        "python", *steps(),
        *each_step(call("Root", 0, 80, 1, cpu_budget=2, threadpool_size=2),
                   call("Root::MapAndBatch", 0, 80, 2, 1, batch_size=batch, parallelism=1)),
    )  # fmt: skip
    runner, pool = [], []
    for turn in range(batch * COUNT):
        at = STEP / batch * turn
        runner += [
            event("MapAndBatchProduce", at, 2), call("Root::MapAndBatch::Range", at, 1, 3, 2),
            event("InstantiatedCapturedFunction::RunAsync", at + 1, 1, id=70 + turn),
        ]  # fmt: skip
        pool += [event("ExecutorState::Process", at + 2, 18, id=70 + turn), event("Cast:Cast", at + 3, op_us)]
    return python, line("runner", *runner), line("pool", *pool)


def test_on_batches_only_the_work_that_grows_is_left(tmp_path: Path) -> None:
    # Five runs of 18 us are 90 for a step; the op takes 8 of each, 5 of which do not depend on the size.
    low, high = us(by_change(outlook(tmp_path, *small_elements(5, 8)))["vectorize"])
    assert low == pytest.approx(UNDISTURBED * 20), "5 x 3 us and one fixed part: less than the step's own 20"
    assert high < 100


def test_on_the_cpu_step_and_pipeline_share_the_cores(tmp_path: Path) -> None:
    lines = inline_map(60)
    device = by_change(outlook(tmp_path, *lines))["prefetch"]
    host = by_change(outlook(tmp_path, *lines, has_device=False))["prefetch"]
    assert host.low_ms >= device.low_ms
    assert host.high_ms >= device.high_ms


def test_where_steps_hardly_wait_nothing_may_change(tmp_path: Path) -> None:
    for estimate in by_change(outlook(tmp_path, *inline_map(3))).values():
        assert us(estimate)[1] == pytest.approx(100 * NOISE)


def test_a_thread_is_faster_alone_on_its_core(tmp_path: Path) -> None:
    # Two threads of the pipeline beside a step of one thread, on two cores: without them the step may be faster.
    load = Load(50, 0, ((200, 2),), 200, 100, 1.0, 2.0)
    model = whatif._Model(load, 100, 2, 1.0, has_device=False)
    nothing_left = Load(50, 0, ((0, 2),), 0, 100, 1.0, 2.0)
    assert model._most(nothing_left, 1.0) == pytest.approx(DISTURBED * 50 / 1.5 / (1 + whatif.SIBLING))
    busy = 200 / (2 * PARALLEL_EFFICIENCY) + (1 - OVERLAP) * 50 / 1.5
    assert model._most(load, 1.0) == pytest.approx(DISTURBED * busy)


def test_without_steps_or_without_a_pipeline_nothing_is_estimated(tmp_path: Path) -> None:
    _, pool = inline_map(60)
    unmarked = line("python", *each_step(call("Root", 0, 10, 1)))
    assert outlook(tmp_path, line("python", *steps()), pool) is None
    assert outlook(tmp_path, unmarked) is None


def test_the_pipeline_is_the_one_that_the_steps_wait_for(tmp_path: Path) -> None:
    # Validation waits longer, but between the steps.
    train = [event("train", 300 * n, 100, step_num=n) for n in range(COUNT)]
    train += [event("eval", 300 * n + 105, 190, step_num=n) for n in range(COUNT)]
    asked = [call("Root", 300 * n, 60, 1) for n in range(COUNT)]
    others = [call("Root", 300 * n + 110, 180, 2) for n in range(COUNT)]
    found = outlook(tmp_path, line("python", *train, *asked, *others))
    assert found is not None
    assert found.pipeline.waited_ps == COUNT * 60 * 1_000_000


times = st.floats(0.0, 1e4)
loads = st.builds(
    Load, times, times, st.lists(st.tuples(times, st.integers(1, 64)), max_size=4).map(tuple), times, times,
    st.floats(0.0, 1.0), st.floats(0.0, 64.0),
)  # fmt: skip


@given(loads, loads, loads, st.floats(0.001, 1e5), st.integers(1, 256), st.floats(0.0, 1.0), st.booleans())
def test_a_range_begins_before_it_ends(
    now: Load, best: Load, worst: Load, step: float, cores: int, steadiness: float, has_device: bool
) -> None:
    model = whatif._Model(now, step, cores, steadiness, has_device=has_device)
    found = model.judge("cache", None, best, worst, "")
    assert 0 <= found.low_ms <= found.high_ms
    assert 0 <= found.low_input_percent <= 100
    assert 0 <= found.high_input_percent <= 100
