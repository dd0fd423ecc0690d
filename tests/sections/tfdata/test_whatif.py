"""Estimates worked out by hand, on a host with a device: the cores are the pipeline's."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Line, event, host_of, line, plane, trace_of
from builders import iterator_call as call
from sections.tfdata.made_pipelines import (
    STEPS,
    behind_a_reader,
    each_step,
    inline_map,
    parallel_map,
    repeat,
    small_elements,
    steps,
)

from tfperf.sections.tfdata.advice import actions_of
from tfperf.sections.tfdata.analysis import TfData
from tfperf.sections.tfdata.whatif import (
    LOCK_SLOWDOWN,
    OVERLAP,
    PARALLEL_EFFICIENCY,
    STEADIEST,
    Estimate,
    NoOutlook,
    Outlook,
    with_noise,
)


def tfdata_of(tmp_path: Path, *lines: Line, has_device: bool = True) -> TfData:
    # A short kernel at the very end is enough to have a device, and changes nothing else.
    device = [plane("/device:GPU:0", line("Stream #1", event("gemm", 499, 1)))] if has_device else []
    trace = trace_of(tmp_path, plane("/host:CPU", *lines), *device)
    result: TfData = host_of(trace, "tfdata")["tfdata"]
    return result


def outlook_of(tmp_path: Path, *lines: Line, has_device: bool = True) -> Outlook | None:
    return tfdata_of(tmp_path, *lines, has_device=has_device).outlook


def by_change(outlook: Outlook | None) -> dict[str, Estimate]:
    assert outlook is not None
    assert len({estimate.change for estimate in outlook.estimates}) == len(outlook.estimates)
    return {estimate.change: estimate for estimate in outlook.estimates}


def us(estimate: Estimate) -> tuple[float, float]:
    return estimate.low_ms * 1e3, estimate.high_ms * 1e3


def test_what_is_known_of_the_step(tmp_path: Path) -> None:
    outlook = outlook_of(tmp_path, *inline_map(60))
    assert outlook is not None
    assert (outlook.step_ms * 1e3, outlook.wait_ms * 1e3) == (100, 60)
    assert (outlook.input_percent, outlook.keeps_up) == (60, False)


def test_with_a_prefetch_the_longer_of_both_remains(tmp_path: Path) -> None:
    expected = with_noise(STEADIEST * 60, 60 + (1 - OVERLAP) * 40)
    prefetch = by_change(outlook_of(tmp_path, *inline_map(60)))["prefetch"]
    assert us(prefetch) == pytest.approx(expected), "40 us of the step are hidden behind the pipeline"


def test_in_parallel_the_function_takes_a_share_of_its_time(tmp_path: Path) -> None:
    expected = with_noise(40, 40 + (1 - OVERLAP) * 60 / (4 * PARALLEL_EFFICIENCY))
    parallel = by_change(outlook_of(tmp_path, *inline_map(60)))["parallel_map"]
    assert us(parallel) == pytest.approx(expected), "60 us on four cores are less than the 40 of the step"


def test_a_cache_leaves_the_step_alone(tmp_path: Path) -> None:
    cache = by_change(outlook_of(tmp_path, *inline_map(60)))["cache"]
    low, high = with_noise(40, 40)
    assert us(cache) == pytest.approx((low, high))
    assert (cache.low_input_percent, cache.high_input_percent) == pytest.approx((0, 100 * (1 - 40 / high)))


def test_python_may_gain_nothing_and_even_lose(tmp_path: Path) -> None:
    parallel = by_change(outlook_of(tmp_path, *inline_map(60, "EagerPyFunc")))["parallel_map"]
    assert us(parallel)[1] == pytest.approx(with_noise(40, 100 * LOCK_SLOWDOWN)[1])
    assert "Python" in parallel.assumption


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
    assert outlook is not None
    assert outlook.free.change == "free_input"
    assert us(outlook.free) == pytest.approx(with_noise(40, 40))
    assert "at another moment" not in outlook.free.assumption
    assert (outlook.slowed_ms, outlook.slowed_percent) == ((0, 0), (0, 0)), "the step computes on a device"
    assert outlook.free not in outlook.gains


def test_a_range_above_the_step_of_today_says_why(tmp_path: Path) -> None:
    outlook = outlook_of(tmp_path, *inline_map(3))
    assert outlook is not None
    assert us(outlook.free) == pytest.approx(with_noise(97, 97))
    assert outlook.free.assumption.endswith("a step takes up to 12 % more or less at another moment")


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
        assert "at another moment" in estimate.assumption
    assert outlook is not None
    assert (outlook.keeps_up, outlook.gains) == (True, ())


def test_gains_are_what_promises_a_faster_step(tmp_path: Path) -> None:
    outlook = outlook_of(tmp_path, *inline_map(20, "EagerPyFunc"))
    assert outlook is not None
    assert [estimate.change for estimate in outlook.estimates] == ["prefetch", "cache", "parallel_map"]
    assert [estimate.change for estimate in outlook.gains] == ["prefetch", "cache"], (
        "Python may lose more than it gains"
    )


def test_of_changes_that_promise_the_same_a_cache_comes_last(tmp_path: Path) -> None:
    outlook = outlook_of(tmp_path, *inline_map(10, "Cast"))
    assert outlook is not None
    assert [estimate.change for estimate in outlook.estimates] == ["parallel_map", "prefetch", "cache"]
    parallel, _, cache = (estimate.low_ms + estimate.high_ms for estimate in outlook.estimates)
    assert cache < parallel < cache + 2 * 0.05 * outlook.step_ms, "it is a little better"
    much = outlook_of(tmp_path, *inline_map(90))
    assert much is not None
    assert much.estimates[0].change == "cache"


def test_what_an_outlook_lacks(tmp_path: Path) -> None:
    def lacking(*events: Event) -> NoOutlook | None:
        trace = trace_of(tmp_path, plane("/host:CPU", line("python", *events)))
        result: TfData = host_of(trace, "tfdata")["tfdata"]
        assert result.outlook is None
        return result.no_outlook

    asked = [call("Root", 10, 5, 1), call("Root", 900, 5, 1)]
    assert lacking(*asked) == NoOutlook()
    assert lacking(*asked, *(event("train", 100 * n, 100, step_num=n) for n in (2, 3, 4))) == NoOutlook(3, 1, 1)
    assert lacking(event("train", 0, 10, step_num=1)) is None, "there is no pipeline"


def test_without_steps_or_without_a_pipeline_nothing_is_estimated(tmp_path: Path) -> None:
    _, pool = inline_map(60)
    unmarked = line("python", *each_step(call("Root", 0, 10, 1)))
    assert outlook_of(tmp_path, line("python", *steps()), pool) is None
    assert outlook_of(tmp_path, unmarked, has_device=False) is None


def test_the_pipeline_is_the_one_that_the_steps_wait_for(tmp_path: Path) -> None:
    # Validation waits longer, but between the steps.
    train = [event("train", 300 * number, 100, step_num=number) for number in range(STEPS)]
    train += [event("eval", 300 * number + 105, 190, step_num=number) for number in range(STEPS)]
    asked = repeat(STEPS, call("Root", 0, 60, 1), every=300)
    others = repeat(STEPS, call("Root", 110, 180, 2), every=300)
    outlook = outlook_of(tmp_path, line("python", *train, *asked, *others), has_device=False)
    assert outlook is not None
    assert outlook.pipeline.waited_ps == STEPS * 60 * 1_000_000


@pytest.mark.parametrize(("stats", "is_known"), [({}, False), ({"cpu_budget": 2}, True)])
def test_without_a_number_of_cores_it_is_unknown_what_rivals_take(
    tmp_path: Path, stats: dict[str, int], is_known: bool
) -> None:
    asked = each_step(call("Root", 0, 2, 1, **stats), call("Root::Prefetch", 0, 2, 2, 1))
    reader = each_step(event("PrefetchProduce", 0, 100), call("Root::Prefetch::TFRecord", 0, 100, 3, 2))
    outlook = outlook_of(tmp_path, line("python", *steps(), *asked), line("reader", *reader), has_device=False)
    assert outlook is not None
    assert outlook.threads == pytest.approx(1.0)
    assert (outlook.slowed_percent is not None) == is_known
    assert ("8 cores (assumed)" in outlook.free.assumption) != is_known


def test_a_thread_that_waits_for_another_stage_is_no_rival(tmp_path: Path) -> None:
    asked = each_step(call("Root", 0, 2, 1, cpu_budget=2), call("Root::Prefetch", 0, 2, 2, 1))
    reader = each_step(event("PrefetchProduce", 0, 100), call("Root::Prefetch::MapAndBatch", 0, 100, 3, 2))
    runner = each_step(call("Root::Prefetch::MapAndBatch::Range", 2, 49, 4, 3))
    lines = line("python", *steps(), *asked), line("reader", *reader), line("runner", *runner)
    outlook = outlook_of(tmp_path, *lines, has_device=False)
    assert outlook is not None
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
    assert outlook is not None
    assert outlook.waits_at_epoch_start == outlook.keeps_up == is_at_start
    if made_us == 90:
        assert outlook.first_percent == pytest.approx(100 * 60 / (60 + 4 * usual_us))


def test_a_function_that_does_not_run_in_parallel_is_taken_as_it_runs(tmp_path: Path) -> None:
    """Eight calls may run at a time, and the trace shows one: no change is measured against eight."""
    threads = parallel_map(function_us=90, read_us=1, parallelism=8)
    outlook = outlook_of(tmp_path, line("marks", *steps()), *threads)
    assert outlook is not None
    assert outlook.unchanged_ms == pytest.approx(0.8 * 0.091, rel=0.1), "four elements in five steps"


@pytest.mark.parametrize(
    ("making_us", "fills"), [(0, True), (25, True), (35, False)], ids=["no iterator", "less", "more than the work"]
)
def test_a_buffer_that_fills_first_is_the_work_of_stages(tmp_path: Path, making_us: float, fills: bool) -> None:
    """The first batch waits for the map that fills a shuffle buffer: that may be made faster, or the buffer smaller."""
    asked = []
    for turn in range(STEPS):
        start, wait = 100 * turn, 60 if turn == 1 else 2
        asked += [
            call(name, start, wait, 10 * min(turn, 1) + depth, 10 * min(turn, 1) + depth - 1 if depth > 1 else None)
            for depth, name in enumerate(("Root", "Root::Shuffle", "Root::Shuffle::Map"), 1)
        ]
    made = [event("MakeIterator::RootDataset", 90, 5)]
    if making_us:
        made.append(event("MakeIterator::RangeDataset", 101, making_us))
    tfdata = tfdata_of(tmp_path, line("python", *steps(), *asked, *made))
    outlook = tfdata.outlook
    assert outlook is not None
    assert (outlook.is_at_epoch_start, outlook.keeps_up) == (True, not fills)
    assert outlook.waits_at_epoch_start == (not fills)
    if fills:
        action = next(action for action in actions_of(tfdata) if action.code == "shuffle")
        assert (action.stage, action.low_ms) == ("Shuffle", None)
        assert action.text.startswith("use a smaller shuffle buffer, or shuffle file names")


def test_making_an_iterator_is_not_the_work_of_the_stage_that_does_so(tmp_path: Path) -> None:
    """The shuffle makes its input in the first call, for 50 of 60 us; no change of a stage makes that faster."""
    python = line(
        "python",
        *steps(),
        *each_step(
            call("Root", 0, 60, 1),
            call("Root::Shuffle", 0, 60, 2, 1),
            event("MakeIterator::MapDataset", 5, 50),
            event("MakeIterator::RangeDataset", 6, 10),
        ),
    )
    outlook = outlook_of(tmp_path, python)
    assert outlook is not None
    shuffle = next(stage for stage in outlook.pipeline.stages if stage.name == "Shuffle")
    assert (shuffle.element_ps, shuffle.blocked_ps) == (10e6, 5 * 10e6)
    assert outlook.pipeline.unattributed_ps == 5 * 50e6
    low, high = with_noise(90, 90)
    assert us(outlook.free) == pytest.approx((low, high))
    assert "; iterators are made as today" in outlook.free.assumption
