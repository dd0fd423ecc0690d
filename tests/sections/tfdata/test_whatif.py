"""Estimates worked out by hand, on a host with a device: the cores are the pipeline's."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Event, Line, event, known, line
from builders import iterator_call as call
from hypothesis import given
from hypothesis import strategies as st
from sections.tfdata.made_pipelines import (
    STEPS,
    analyzed,
    behind_a_reader,
    each_step,
    inline_map,
    main_of,
    parallel_map,
    small_elements,
    steps,
    waiting_job,
)

from tfperf.base.arrays import Intervals
from tfperf.base.units import PS_PER_MS
from tfperf.sections.tfdata.advice import actions_of
from tfperf.sections.tfdata.pipeline import Pipeline
from tfperf.sections.tfdata.whatif import (
    COLD,
    FASTEST,
    LAUNCH_PS,
    LOCK,
    LOCK_SLOWDOWN,
    NOISE,
    OVERLAP,
    PARALLEL_EFFICIENCY,
    SHARING,
    STEADIEST,
    TURNS,
    Change,
    Estimate,
    HostLimits,
    Load,
    NoOutlook,
    Outlook,
    Rivals,
    StepModel,
    faster_without,
    find_rivals,
    possible_changes,
    with_noise,
)
from tfperf.trace.tfdata import FUNCTION, StageWork


def outlook_of(tmp_path: Path, *lines: Line, has_device: bool = True) -> Outlook:
    return known(analyzed(tmp_path, *lines, has_device=has_device).outlook)


def by_change(outlook: Outlook) -> dict[str, Estimate]:
    assert len({estimate.change for estimate in outlook.estimates}) == len(outlook.estimates)
    return {estimate.change: estimate for estimate in outlook.estimates}


def us(estimate: Estimate) -> tuple[float, float]:
    return estimate.low_ms * 1e3, estimate.high_ms * 1e3


def test_what_is_known_of_the_step(tmp_path: Path) -> None:
    outlook = outlook_of(tmp_path, *inline_map(60))
    assert (outlook.step_ms * 1e3, outlook.wait_ms * 1e3) == (100, 60)
    assert (outlook.input_percent, outlook.keeps_up) == (60, False)


def test_each_change_of_a_map_leaves_a_part_of_the_step(tmp_path: Path) -> None:
    found = by_change(outlook_of(tmp_path, *inline_map(60)))
    low, high = with_noise(40, 40)
    assert us(found["cache"]) == pytest.approx((low, high)), "the step alone"
    input_percent = found["cache"].low_input_percent, found["cache"].high_input_percent
    assert input_percent == pytest.approx((0, 100 * (1 - 40 / high)))
    expected = with_noise(STEADIEST * 60, 60 + (1 - OVERLAP) * 40)
    assert us(found["prefetch"]) == pytest.approx(expected), "40 us of the step are hidden behind the pipeline"
    expected = with_noise(40, 40 + (1 - OVERLAP) * 60 / (4 * PARALLEL_EFFICIENCY))
    assert us(found["parallel_map"]) == pytest.approx(expected), "60 us on four cores are less than the 40 of the step"


def test_python_may_gain_nothing_and_even_lose(tmp_path: Path) -> None:
    parallel = by_change(outlook_of(tmp_path, *inline_map(60, "EagerPyFunc")))["parallel_map"]
    assert us(parallel)[1] == pytest.approx(with_noise(40, 100 * LOCK_SLOWDOWN)[1])
    assert "if it computes, there is no gain, and contention for the GIL" in parallel.assumption


def test_reading_can_be_spread_over_files(tmp_path: Path) -> None:
    low, _ = us(by_change(outlook_of(tmp_path, *behind_a_reader(100, 40)))["parallel_read"])
    assert low == pytest.approx(with_noise(60, 100)[0]), "two files at once take 50 us for an element, the step 60"


def test_on_batches_only_the_work_that_grows_is_left(tmp_path: Path) -> None:
    # Five runs of 18 us are 90 for a step; the op takes 8 of each, 5 of which do not depend on the size.
    low, high = us(by_change(outlook_of(tmp_path, *small_elements(5, 8)))["vectorize"])
    assert 10 < low < 20, "5 x 3 us and one fixed part: less than the step's own 20"
    assert high < 100


def test_without_input_work_only_the_step_is_left(tmp_path: Path) -> None:
    outlook = outlook_of(tmp_path, *inline_map(60))
    assert outlook.free.change == "free_input"
    assert us(outlook.free) == pytest.approx(with_noise(40, 40))
    assert "over time" not in outlook.free.assumption
    assert (outlook.slowed_ms, outlook.slowed_percent) == ((0, 0), (0, 0)), "the step computes on a device"
    assert outlook.free not in outlook.gains


def test_a_range_above_the_step_of_today_says_why(tmp_path: Path) -> None:
    outlook = outlook_of(tmp_path, *inline_map(3))
    assert us(outlook.free) == pytest.approx(with_noise(97, 97))
    assert outlook.free.assumption.endswith("step times vary by up to 12% over time")


def test_on_the_cpu_step_and_pipeline_share_the_cores(tmp_path: Path) -> None:
    lines = inline_map(60, cores=1)
    low, high = us(by_change(outlook_of(tmp_path, *lines))["prefetch"])
    assert low < 60 < high < 80, "the step computes on the device"
    _, high = us(by_change(outlook_of(tmp_path, *lines, has_device=False))["prefetch"])
    assert high > 90, "they take turns"


def test_where_steps_hardly_wait_nothing_may_change(tmp_path: Path) -> None:
    outlook = outlook_of(tmp_path, *inline_map(3))
    for estimate in by_change(outlook).values():
        low, high = us(estimate)
        assert low < 100 < high
        assert "over time" in estimate.assumption
    assert (outlook.keeps_up, outlook.gains) == (True, ())


def test_gains_are_what_promises_a_faster_step(tmp_path: Path) -> None:
    outlook = outlook_of(tmp_path, *inline_map(20, "EagerPyFunc"))
    assert [estimate.change for estimate in outlook.estimates] == ["prefetch", "cache", "parallel_map"]
    assert [estimate.change for estimate in outlook.gains] == ["prefetch", "cache"], (
        "Python may lose more than it gains"
    )


def test_of_changes_that_promise_the_same_a_cache_comes_last(tmp_path: Path) -> None:
    outlook = outlook_of(tmp_path, *inline_map(10, "Cast"))
    assert [estimate.change for estimate in outlook.estimates] == ["parallel_map", "prefetch", "cache"]
    parallel, _, cache = (estimate.low_ms + estimate.high_ms for estimate in outlook.estimates)
    assert cache < parallel < cache + 2 * 0.05 * outlook.step_ms, "it is a little better"
    much = outlook_of(tmp_path, *inline_map(90))
    assert much.estimates[0].change == "cache"


def test_what_an_outlook_lacks(tmp_path: Path) -> None:
    def lacking(*events: Event) -> NoOutlook | None:
        result = analyzed(tmp_path, line("python", *events))
        assert result.outlook is None
        return result.no_outlook

    asked = [call("Root", 10, 5, 1), call("Root", 900, 5, 1)]
    assert lacking(*asked) == NoOutlook()
    assert lacking(*asked, *(event("train", 100 * n, 100, step_num=n) for n in (2, 3, 4))) == NoOutlook(3, 1, 1)
    assert lacking(event("train", 0, 10, step_num=1)) is None, "there is no pipeline"


@pytest.mark.parametrize(("stats", "is_known"), [({}, False), ({"cpu_budget": 2}, True)])
def test_without_a_number_of_cores_it_is_unknown_what_rivals_take(
    tmp_path: Path, stats: dict[str, int], is_known: bool
) -> None:
    asked = each_step(call("Root", 0, 2, 1, **stats), call("Root::Prefetch", 0, 2, 2, 1))
    reader = each_step(event("PrefetchProduce", 0, 100), call("Root::Prefetch::TFRecord", 0, 100, 3, 2))
    outlook = outlook_of(tmp_path, line("python", *steps(), *asked), line("reader", *reader), has_device=False)
    assert outlook.threads == pytest.approx(1.0)
    assert (outlook.slowed_percent is not None) == is_known
    assert ("8 cores (assumed)" in outlook.free.assumption) != is_known


def test_a_thread_that_waits_for_another_stage_is_no_rival(tmp_path: Path) -> None:
    asked = each_step(call("Root", 0, 2, 1, cpu_budget=2), call("Root::Prefetch", 0, 2, 2, 1))
    reader = each_step(event("PrefetchProduce", 0, 100), call("Root::Prefetch::MapAndBatch", 0, 100, 3, 2))
    runner = each_step(call("Root::Prefetch::MapAndBatch::Range", 2, 49, 4, 3))
    lines = line("python", *steps(), *asked), line("reader", *reader), line("runner", *runner)
    outlook = outlook_of(tmp_path, *lines, has_device=False)
    assert outlook.threads == pytest.approx(0.5), "49 us of the 98 in which the step works"


def epochs(*, made_us: float | None, wait_us: float, usual_us: float = 2) -> list[Event]:
    """Five steps that wait for a batch; in the second one the program has made a new iterator, and waits longer."""
    asked = []
    for turn in range(STEPS):
        times = 100 * turn, wait_us if turn == 1 else usual_us
        root = 1 if turn < 1 else 2
        asked += [call("Root", *times, root), call("Root::Prefetch", *times, 10 + root, root)]
    return [*steps(), *asked, *([] if made_us is None else [event("MakeIterator::RootDataset", made_us, 5)])]


@pytest.mark.parametrize(
    ("made_us", "usual_us", "is_at_start"), [(90, 2, True), (None, 2, False), (150, 2, False), (90, 30, False)]
)
def test_the_wait_for_the_first_batch_of_an_epoch_is_no_slow_pipeline(
    tmp_path: Path, made_us: float | None, usual_us: float, is_at_start: bool
) -> None:
    outlook = outlook_of(tmp_path, line("python", *epochs(made_us=made_us, wait_us=60, usual_us=usual_us)))
    assert outlook.waits_at_epoch_start == outlook.keeps_up == is_at_start
    if made_us == 90:
        assert outlook.first_percent == pytest.approx(100 * 60 / (60 + 4 * usual_us))


def test_a_function_that_does_not_run_in_parallel_is_taken_as_it_runs(tmp_path: Path) -> None:
    """Eight calls may run at a time, and the trace shows one: no change is measured against eight."""
    threads = parallel_map(function_us=90, read_us=1, parallelism=8)
    outlook = outlook_of(tmp_path, line("marks", *steps()), *threads)
    assert outlook.unchanged_ms == pytest.approx(0.8 * 0.091, rel=0.1), "four elements in five steps"


@pytest.mark.parametrize(
    ("making_us", "fills"), [(0, True), (25, True), (35, False)], ids=["no iterator", "less", "more than the work"]
)
def test_a_buffer_that_fills_first_is_the_work_of_stages(tmp_path: Path, making_us: float, fills: bool) -> None:
    """The first batch waits for the map that fills a shuffle buffer: that may be made faster, or the buffer smaller."""
    asked = []
    for turn in range(STEPS):
        times, root = (100 * turn, 60 if turn == 1 else 2), 10 * min(turn, 1)
        asked += [call("Root", *times, root + 1), call("Root::Shuffle", *times, root + 2, root + 1)]
        asked += [call("Root::Shuffle::Map", *times, root + 3, root + 2)]
    made = [event("MakeIterator::RootDataset", 90, 5)]
    if making_us:
        made.append(event("MakeIterator::RangeDataset", 101, making_us))
    tfdata = analyzed(tmp_path, line("python", *steps(), *asked, *made), has_device=True)
    outlook = known(tfdata.outlook)
    assert (outlook.is_at_epoch_start, outlook.keeps_up) == (True, not fills)
    assert outlook.waits_at_epoch_start == (not fills)
    if fills:
        action = next(action for action in actions_of(tfdata) if action.code == "shuffle")
        assert (action.stage, action.low_ms) == ("Shuffle", None)
        assert action.text.startswith("use a smaller shuffle buffer, or shuffle file names")


def test_making_an_iterator_is_not_the_work_of_the_stage_that_does_so(tmp_path: Path) -> None:
    """The shuffle makes its input in the first call, for 50 of 60 us; no change of a stage makes that faster."""
    made = event("MakeIterator::MapDataset", 5, 50), event("MakeIterator::RangeDataset", 6, 10)
    asked = each_step(call("Root", 0, 60, 1), call("Root::Shuffle", 0, 60, 2, 1), *made)
    outlook = outlook_of(tmp_path, line("python", *steps(), *asked))
    shuffle = next(stage for stage in outlook.pipeline.stages if stage.name == "Shuffle")
    assert (shuffle.element_ps, shuffle.blocked_ps) == (10e6, 5 * 10e6)
    assert outlook.pipeline.unattributed_ps == 5 * 50e6
    assert us(outlook.free) == pytest.approx(with_noise(90, 90))
    assert "; iterators are created as now" in outlook.free.assumption


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
    assert half.alone_ms == pytest.approx((middle / math.sqrt(ratio), 30)), "at most as long as now"
    assert half.free_ms() == with_noise(*half.alone_ms)


def test_work_that_no_change_touches_keeps_a_part_of_its_time() -> None:
    many = model(Rivals(native=9.0, python=1.0), consumer_ms=40)
    assert 40 / many.slowdowns[1] < 10
    assert many.alone_ms[0] == FASTEST * 40
    assert many.free_ms()[0] == many.range_ms(load(0, 40), load(0, 40))[0] == FASTEST * 40
    of_device = model(Rivals(native=9.0), consumer_ms=40, has_device=True)
    assert of_device.alone_ms == (40, 40), "work on a device takes as long as now"


def test_the_rest_of_a_step_gets_faster_with_what_goes_away() -> None:
    assert faster_without(0.0, 60.0) == 60.0
    assert faster_without(0.5, 30.0) == pytest.approx(30.0 * (1.0 - COLD[1] / 2.0))
    assert faster_without(0.9, 30.0) == FASTEST * 30.0


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
    busy = model(TWO, consumer_ms=50)  # it waits for a sixth of the step
    (least, most), (warm, warmest) = busy.slowdowns, (1 - COLD[0] / 6, 1 - COLD[1] / 6)
    low, high = busy.alone_ms
    assert low * high == pytest.approx(50 * (1 - sum(COLD) / 12) / least * 50 * (1 - sum(COLD) / 12) / most)
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


# --- what could be changed, and what a step costs then ---


def load_of(pipeline: Pipeline, consumer_ms: float) -> Load:
    """What a step costs that takes one element, and computes for so long itself."""
    work = [(segment.kind, segment.element_ps / PS_PER_MS, segment.workers) for segment in pipeline.segments]
    return Load(
        consumer_ms=consumer_ms,
        inline_ms=sum(ms for kind, ms, _ in work if kind == "consumer"),
        segments=tuple((ms, workers) for kind, ms, workers in work if kind != "consumer"),
        cpu_ms=sum(ms for _, ms, _ in work),
    )


def changes_of(pipeline: Pipeline, consumer_ms: float = 0.04, python_computes: float = 1.0) -> dict[str, Change]:
    limits = HostLimits(4, python_computes)
    changes = possible_changes(pipeline, load_of(pipeline, consumer_ms), limits, elements_per_step=1)
    return {change.kind: change for change in changes}


def test_a_prefetch_moves_what_the_step_does_to_a_thread(tmp_path: Path) -> None:
    changes = changes_of(main_of(tmp_path, *inline_map(60)))
    assert list(changes) == ["prefetch", "parallel_map", "cache"]
    prefetch = changes["prefetch"].best
    assert (prefetch.inline_ms, prefetch.segments, prefetch.cpu_ms) == (0, ((0.06, 1),), 0.06)


def test_a_function_is_spread_over_the_cores(tmp_path: Path) -> None:
    change = changes_of(main_of(tmp_path, *inline_map(60)))["parallel_map"]
    assert change.stage == 1
    ((work_ms, workers),) = change.best.segments
    assert (change.best.inline_ms, workers, change.best.cpu_ms) == (0, 4, 0.06)
    assert work_ms == pytest.approx(0.06)
    assert change.worst == change.best


def test_python_gains_as_much_as_it_waits(tmp_path: Path) -> None:
    pipeline = main_of(tmp_path, *inline_map(60, "EagerPyFunc"))
    change = changes_of(pipeline)["parallel_map"]
    assert (change.worst, change.slowdown) == (load_of(pipeline, 0.04), LOCK_SLOWDOWN)
    change = changes_of(pipeline, python_computes=0.25)["parallel_map"]
    assert change.worst.inline_ms == 0, "it works beside the step"
    (computing, all_of_it) = change.worst.segments
    assert computing == pytest.approx((0.06 * 0.25, 1)), "one computes at a time"
    assert all_of_it == pytest.approx((0.06, 4))
    assert change.slowdown == pytest.approx(1 + (LOCK_SLOWDOWN - 1) / 4)
    assert "waits for at least 75% of its time" in change.assumption


def test_a_reader_of_several_files_or_of_a_cache(tmp_path: Path) -> None:
    changes = changes_of(main_of(tmp_path, *behind_a_reader(100, 40)))
    worst = changes["parallel_read"].worst
    assert max(ms for ms, _ in worst.segments) == pytest.approx(0.1), "one disk may read no faster"
    cache = changes["cache"].best
    assert cache.cpu_ms == pytest.approx(0), "it removes its stage, and all before it"
    assert [ms for ms, _ in cache.segments] == pytest.approx([0])


def test_what_a_parallel_map_asks_works_beside_the_step_too(tmp_path: Path) -> None:
    asked = each_step(call("Root", 0, 60, 1), call("Root::Map", 0, 60, 2, 1), call("Root::Map::TFRecord", 0, 20, 3, 2))
    runs, pool = (
        [event(name, 100 * turn + 20, 40, id=70 + turn) for turn in range(STEPS)]
        for name in ("InstantiatedCapturedFunction::Run", "ExecutorState::Process")
    )
    pipeline = main_of(tmp_path, line("python", *steps(), *asked, *runs), line("pool", *pool))
    best = changes_of(pipeline)["parallel_map"].best
    assert (best.inline_ms, best.cpu_ms) == pytest.approx((0, 0.06))
    (reading, function) = best.segments
    assert reading == pytest.approx((0.02, 1))
    assert function == pytest.approx((0.04, 4))


def test_on_batches_each_op_starts_once(tmp_path: Path) -> None:
    # Five runs of 18 us for an element; the op takes 8 us of each, 5 of which do not depend on the size.
    pipeline = main_of(tmp_path, *small_elements(5, 8))
    change = changes_of(pipeline)["vectorize"]
    stage = pipeline.stages[change.stage or 0]
    assert (stage.name, LAUNCH_PS) == ("MapAndBatch", 5_000_000)
    work_ms = (stage.element_held_ps or 0.0) / PS_PER_MS
    grows, per_run = 25 * 3e-3 * work_ms * PS_PER_MS / stage.held_ps, work_ms / 25
    removed = load_of(pipeline, 0.04).cpu_ms - change.best.cpu_ms
    assert removed == pytest.approx(work_ms - grows - per_run)


def test_stages_that_hardly_work_are_left_alone(tmp_path: Path) -> None:
    changes = changes_of(main_of(tmp_path, *inline_map(1)), consumer_ms=1.0)
    assert not {"parallel_map", "cache"} & changes.keys()


@pytest.mark.parametrize(
    ("path", "stats", "change", "expected"),
    [
        ("BatchV2 TFRecord", {}, "parallel_read", True),
        ("BatchV2 Generator", {}, "parallel_read", True),
        ("BatchV2 TensorSlice", {}, "parallel_read", False),  # in memory
        ("ParallelInterleaveV4 TFRecord", {"parallelism": 4}, "parallel_read", False),
        ("ParallelInterleaveV4 TFRecord", {"parallelism": 4}, "prefetch", False),  # it has threads of its own
        ("MemoryCacheImpl Map", {"op": "Cast"}, "cache", False),
        ("ParallelMapV2", {"parallelism": 4}, "parallel_map", False),
        ("BatchV2 DataServiceV4", {}, "cache", False),  # what workers send is not kept
        ("Map", {"op": "RandomUniform"}, "cache", False),
        # A cheap random op leaves no event: then its function is known by the names of other ops.
        ("Map", {"op": "random_flip_left_right/then/_0/ReverseV2:ReverseV2"}, "cache", False),
    ],
)
def test_only_what_can_gain_is_proposed(
    path: str, stats: dict[str, Any], change: str, *, expected: bool, tmp_path: Path
) -> None:
    assert (change in changes_of(main_of(tmp_path, *waiting_job(*path.split(), **stats)))) == expected


def test_a_cache_that_is_not_full_will_spare_what_is_before_it(tmp_path: Path) -> None:
    filling = changes_of(main_of(tmp_path, *waiting_job("BatchV2", "MemoryCache", "MemoryCacheImpl", "Map", op="Cast")))
    full = main_of(tmp_path, *waiting_job("Map", "MemoryCache", "MemoryCacheImpl", op="Cast"))
    assert filling["warm_cache"].stage == 3, "the part of it that asks the map"
    assert filling["warm_cache"].best == filling["warm_cache"].worst
    assert filling["warm_cache"].best.inline_ms == pytest.approx(0.0)
    assert "warm_cache" not in changes_of(full), "nothing is asked for what it holds"


def test_what_nobody_waits_for_gains_nothing_from_more_threads(tmp_path: Path) -> None:
    """The step waits for the batch stage; the reader behind the prefetch works as long, and is ready in time."""
    path = "Root::BatchV2::Prefetch"
    asked = each_step(call("Root", 0, 60, 1), call("Root::BatchV2", 0, 60, 2, 1), call(path, 0, 1, 3, 2))
    reading = each_step(event("PrefetchProduce", 2, 90), call(f"{path}::TFRecord", 2, 90, 4, 3))
    python, reader = line("python", *steps(), *asked), line("reader", *reading)
    assert "parallel_read" not in changes_of(main_of(tmp_path, python, reader))


# --- threads of the pipeline that compete with the step for cores ---

TWO_STEPS = Intervals(np.array([0, 100]), np.array([100, 200]))
"""Two steps of 100; each waits for the first 40."""
WAITS = Intervals(np.array([0, 100]), np.array([40, 140]))


def work(*stretches: tuple[int, int, int]) -> StageWork:
    """Stretches of work: stage, start and end."""
    stage, start, end = (np.array(column, np.int64) for column in zip(*stretches, strict=True))
    rows, places = np.arange(len(stage), dtype=np.int32), np.full(len(stage), FUNCTION, np.uint8)
    return StageWork(stage.astype(np.int32), places, rows, start, end)


def rivals(found: StageWork, python: tuple[int, ...] = (), busy_cores: float | None = None) -> Rivals:
    return find_rivals(found, TWO_STEPS, WAITS, python_stages=list(python), busy_cores=busy_cores)


def test_threads_beside_the_work_of_the_step_are_rivals() -> None:
    # Of the 120 outside the waits: one thread for 60, another one for 30 of these, and work that belongs to no stage.
    found = work((-1, 40, 100), (1, 0, 100), (2, 70, 130))
    assert rivals(found) == Rivals(native=(60 + 30) / 120)
    assert rivals(found).threads == 0.75


def test_python_counts_apart() -> None:
    found = work((1, 40, 100), (2, 40, 70))
    assert rivals(found, python=(2,)) == Rivals(native=0.5, python=0.25)


def test_python_that_waits_is_no_rival() -> None:
    # It runs all the time, and so does the step for 60 % of it.
    found = work((1, 0, 200))
    assert rivals(found, python=(1,), busy_cores=1.2) == Rivals(python=1.0), "that may be both of them"
    step_alone = rivals(found, python=(1,), busy_cores=0.6)
    assert step_alone == Rivals(python=0.0, python_computes=0.6), "the step alone keeps so many cores busy"
    some = rivals(found, python=(1,), busy_cores=0.8)
    assert (some.python, some.python_computes) == pytest.approx((0.2, 0.8))


def test_how_much_python_computes_is_certain_or_unknown() -> None:
    # Both run in the waits alone, which are 40 % of the step: what it does itself may need no core at all.
    inline = work((1, 0, 40), (1, 100, 140))
    for busy_cores, expected in ((1.0, 1.0), (0.4, 1.0), (0.3, 0.75), (0.1, 0.25)):
        found = rivals(inline, python=(1,), busy_cores=busy_cores)
        assert found.python == 0
        assert found.python_computes == pytest.approx(expected)
    two = work((1, 0, 200), (2, 0, 200))
    assert rivals(two, python=(1, 2), busy_cores=0.5).python_computes == 1.0, "one of them may do all the work"
    assert rivals(two, python=(1, 1), busy_cores=0.5).python_computes == 0.5, "one function with two ops"


def test_steps_that_only_wait_have_none() -> None:
    waits = Intervals(np.array([0]), np.array([200]))
    assert find_rivals(work((1, 0, 200)), TWO_STEPS, waits, python_stages=[], busy_cores=None) == Rivals()
