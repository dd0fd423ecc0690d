"""What could be changed, and estimates worked out by hand, on a host with a device: the cores are the pipeline's."""

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
    main_of,
    repeat,
    small_elements,
    steps,
    waiting_job,
)

from tfperf.sections.tfdata.analysis import TfData
from tfperf.sections.tfdata.pipeline import Pipeline
from tfperf.sections.tfdata.step_model import OVERLAP, PARALLEL_EFFICIENCY, STEADIEST, Load, with_noise
from tfperf.sections.tfdata.whatif import (
    LAUNCH_PS,
    LOCK_SLOWDOWN,
    Change,
    Estimate,
    NoOutlook,
    Outlook,
    possible_changes,
)
from tfperf.units import PS_PER_MS


def outlook_of(tmp_path: Path, *lines: Line, has_device: bool = True) -> Outlook | None:
    # A short kernel at the very end is enough to have a device, and changes nothing else.
    device = [plane("/device:GPU:0", line("Stream #1", event("gemm", 499, 1)))] if has_device else []
    trace = trace_of(tmp_path, plane("/host:CPU", *lines), *device)
    result: Outlook | None = host_of(trace, "tfdata")["tfdata"].outlook
    return result


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
    assert outlook.free.assumption.endswith("a step takes up to 10 % more or less at another moment")


def test_on_the_cpu_step_and_pipeline_share_the_cores(tmp_path: Path) -> None:
    lines = inline_map(60)
    device = by_change(outlook_of(tmp_path, *lines))["prefetch"]
    host = by_change(outlook_of(tmp_path, *lines, has_device=False))["prefetch"]
    assert host.low_ms >= device.low_ms
    assert host.high_ms >= device.high_ms


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


def load_of(pipeline: Pipeline, consumer_ms: float) -> Load:
    """What a step costs that takes one element, and computes for so long itself."""
    work = [(segment.kind, segment.element_ps / PS_PER_MS, segment.workers) for segment in pipeline.segments]
    return Load(
        consumer_ms=consumer_ms,
        inline_ms=sum(ms for kind, ms, _ in work if kind == "consumer"),
        segments=tuple((ms, workers) for kind, ms, workers in work if kind != "consumer"),
        cpu_ms=sum(ms for _, ms, _ in work),
    )


def changes_of(pipeline: Pipeline, consumer_ms: float = 0.04) -> dict[str, Change]:
    changes = possible_changes(pipeline, load_of(pipeline, consumer_ms), elements_per_step=1, cores=4)
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


def test_python_and_files_may_gain_nothing(tmp_path: Path) -> None:
    python = main_of(tmp_path, *inline_map(60, "EagerPyFunc"))
    reader = main_of(tmp_path, *behind_a_reader(100, 40))
    for pipeline, kind in ((python, "parallel_map"), (reader, "parallel_read")):
        assert changes_of(pipeline)[kind].worst == load_of(pipeline, 0.04)


def test_a_cache_removes_its_stage_and_all_before_it(tmp_path: Path) -> None:
    cache = changes_of(main_of(tmp_path, *behind_a_reader(100, 40)))["cache"]
    assert cache.best.cpu_ms == pytest.approx(0)
    assert [ms for ms, _ in cache.best.segments] == pytest.approx([0])


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


def test_what_is_in_memory_gains_nothing_from_several_readers(tmp_path: Path) -> None:
    for stage, expected in (("TFRecord", True), ("Generator", True), ("TensorSlice", False)):
        pipeline = main_of(tmp_path, *waiting_job("BatchV2", stage))
        assert ("parallel_read" in changes_of(pipeline)) == expected


def test_what_is_done_already_is_not_proposed(tmp_path: Path) -> None:
    interleaved = main_of(tmp_path, *waiting_job("ParallelInterleaveV4", "TFRecord", parallelism=4))
    assert "parallel_read" not in changes_of(interleaved)
    assert "prefetch" not in changes_of(interleaved), "an interleave has threads of its own"
    assert "cache" not in changes_of(main_of(tmp_path, *waiting_job("MemoryCacheImpl", "Map", op="Cast")))
    assert "parallel_map" not in changes_of(main_of(tmp_path, *waiting_job("ParallelMapV2", parallelism=4)))


def test_what_workers_send_is_not_kept(tmp_path: Path) -> None:
    assert "cache" not in changes_of(main_of(tmp_path, *waiting_job("BatchV2", "DataServiceV4")))


def test_a_cache_that_is_not_full_will_spare_what_is_before_it(tmp_path: Path) -> None:
    filling = changes_of(main_of(tmp_path, *waiting_job("BatchV2", "MemoryCache", "MemoryCacheImpl", "Map", op="Cast")))
    full = main_of(tmp_path, *waiting_job("Map", "MemoryCache", "MemoryCacheImpl", op="Cast"))
    assert filling["warm_cache"].stage == 3, "the part of it that asks the map"
    assert filling["warm_cache"].best == filling["warm_cache"].worst
    assert filling["warm_cache"].best.inline_ms == pytest.approx(0.0)
    assert "warm_cache" not in changes_of(full), "nothing is asked for what it holds"


def test_a_cache_behind_random_ops_says_so(tmp_path: Path) -> None:
    cache = changes_of(main_of(tmp_path, *waiting_job("Map", op="RandomUniform")))["cache"]
    assert cache.assumption.endswith("its random ops give the same in every epoch")


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
