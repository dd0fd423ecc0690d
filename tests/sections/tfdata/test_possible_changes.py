from __future__ import annotations

from pathlib import Path

import pytest
from sections.tfdata.made_pipelines import behind_a_reader, inline_map, main_of, small_elements

from tfperf.sections.tfdata.pipeline import Pipeline
from tfperf.sections.tfdata.possible_changes import LAUNCH_PS, Change, possible_changes
from tfperf.sections.tfdata.step_model import Load
from tfperf.units import PS_PER_MS


def load_of(pipeline: Pipeline, consumer_ms: float) -> Load:
    """What a step costs that takes one element, and computes for so long itself."""
    work = [(segment.kind, segment.element_ps / PS_PER_MS, segment.workers) for segment in pipeline.segments]
    return Load(
        consumer_ms=consumer_ms,
        inline_ms=sum(ms for kind, ms, _ in work if kind == "consumer"),
        segments=tuple((ms, workers) for kind, ms, workers in work if kind != "consumer"),
        cpu_ms=sum(ms for _, ms, _ in work),
        overlapped_ms=0,
        steadiness=1.0,
        busy_threads=0.0,
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
    work_ms = (stage.element_ps or 0.0) / PS_PER_MS
    grows, per_run = 25 * 3e-3 * work_ms * PS_PER_MS / stage.work_ps, work_ms / 25
    removed = load_of(pipeline, 0.04).cpu_ms - change.best.cpu_ms
    assert removed == pytest.approx(work_ms - grows - per_run)


def test_stages_that_hardly_work_are_left_alone(tmp_path: Path) -> None:
    assert "parallel_map" not in changes_of(main_of(tmp_path, *inline_map(1)), consumer_ms=1.0)
