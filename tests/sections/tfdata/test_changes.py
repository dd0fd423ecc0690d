"""What could be changed, and what a step costs then."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, line
from builders import iterator_call as call
from sections.tfdata.made_pipelines import (
    STEPS,
    behind_a_reader,
    each_step,
    inline_map,
    main_of,
    small_elements,
    steps,
    waiting_job,
)

from tfperf.base.units import PS_PER_MS
from tfperf.sections.tfdata.pipeline import Pipeline
from tfperf.sections.tfdata.whatif import LAUNCH_PS, LOCK_SLOWDOWN, Change, HostLimits, Load, possible_changes


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


def test_python_may_gain_nothing(tmp_path: Path) -> None:
    pipeline = main_of(tmp_path, *inline_map(60, "EagerPyFunc"))
    change = changes_of(pipeline)["parallel_map"]
    assert (change.worst, change.slowdown) == (load_of(pipeline, 0.04), LOCK_SLOWDOWN)
    assert "if it computes, nothing is gained" in change.assumption


def test_python_that_waits_gains_as_much_as_it_waits(tmp_path: Path) -> None:
    pipeline = main_of(tmp_path, *inline_map(60, "EagerPyFunc"))
    change = changes_of(pipeline, python_computes=0.25)["parallel_map"]
    assert change.worst.inline_ms == 0, "it works beside the step"
    (computing, all_of_it) = change.worst.segments
    assert computing == pytest.approx((0.06 * 0.25, 1)), "one computes at a time"
    assert all_of_it == pytest.approx((0.06, 4))
    assert change.slowdown == pytest.approx(1 + (LOCK_SLOWDOWN - 1) / 4)
    assert "waits for 75 % of its time or more" in change.assumption


def test_one_disk_may_read_no_faster_for_several_files(tmp_path: Path) -> None:
    pipeline = main_of(tmp_path, *behind_a_reader(100, 40))
    change = changes_of(pipeline)["parallel_read"]
    assert max(ms for ms, _ in change.worst.segments) == pytest.approx(0.1)


def test_what_a_parallel_map_asks_works_beside_the_step_too(tmp_path: Path) -> None:
    asked = each_step(call("Root", 0, 60, 1), call("Root::Map", 0, 60, 2, 1), call("Root::Map::TFRecord", 0, 20, 3, 2))
    runs = [event("InstantiatedCapturedFunction::Run", 100 * turn + 20, 40, id=70 + turn) for turn in range(STEPS)]
    pool = [event("ExecutorState::Process", 100 * turn + 20, 40, id=70 + turn) for turn in range(STEPS)]
    pipeline = main_of(tmp_path, line("python", *steps(), *asked, *runs), line("pool", *pool))
    best = changes_of(pipeline)["parallel_map"].best
    assert (best.inline_ms, best.cpu_ms) == pytest.approx((0, 0.06))
    (reading, function) = best.segments
    assert reading == pytest.approx((0.02, 1))
    assert function == pytest.approx((0.04, 4))


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


@pytest.mark.parametrize("op", ["RandomUniform", "random_flip_left_right/then/_0/ReverseV2:ReverseV2"])
def test_random_work_is_not_kept(op: str, tmp_path: Path) -> None:
    """A cheap random op leaves no event: then its function is known by the names of other ops."""
    assert "cache" not in changes_of(main_of(tmp_path, *waiting_job("Map", op=op)))


def test_what_nobody_waits_for_gains_nothing_from_more_threads(tmp_path: Path) -> None:
    """The step waits for the batch stage; the reader behind the prefetch works as long, and is ready in time."""
    python = line(
        "python",
        *steps(),
        *each_step(
            call("Root", 0, 60, 1), call("Root::BatchV2", 0, 60, 2, 1), call("Root::BatchV2::Prefetch", 0, 1, 3, 2)
        ),
    )
    reader = line(
        "reader", *each_step(event("PrefetchProduce", 2, 90), call("Root::BatchV2::Prefetch::TFRecord", 2, 90, 4, 3))
    )
    assert "parallel_read" not in changes_of(main_of(tmp_path, python, reader))
