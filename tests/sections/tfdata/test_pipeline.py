from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import iterator_call as call
from builders import line, repeat
from msgspec.structs import replace
from sections.tfdata.made_pipelines import main_of, parallel_map, waiting_job

from tfperf.sections.tfdata.pipeline import stage_name, whole_pipelines


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("Prefetch",), 1),
        (("FiniteRepeat", "Model", "ParallelMapV2"), 3),
        (("DataServiceV4",), 1),
        (("BatchV2", "Prefetch"), None),
        (("Map",), None),
    ],
)
def test_only_a_stage_with_threads_at_the_end_decouples(
    path: tuple[str, ...], expected: int | None, tmp_path: Path
) -> None:
    assert main_of(tmp_path, *waiting_job(*path)).final_prefetch == expected


def test_a_zip_of_prefetches_does_not_decouple(tmp_path: Path) -> None:
    calls = [call("Root", 0, 50, 1), call("Root::Zip", 0, 50, 2, 1)]
    calls += [call(f"Root::Zip[{number}]::Prefetch", 1 + 20 * number, 10, 3 + number, 2) for number in range(2)]
    assert main_of(tmp_path, line("python", *calls)).final_prefetch is None


def test_the_cores_of_the_host_are_shared_by_all_threads(tmp_path: Path) -> None:
    main = main_of(tmp_path, *parallel_map(80, 10, 1))
    # In 400 us on two cores, four functions of 80 us, four elements of 11 us.
    assert main.busy_share == pytest.approx(4 * 91 / (2 * 400))
    assert replace(main, cores=None).busy_share is None


@pytest.mark.parametrize(
    ("stage", "stats", "expected"),
    [
        ("Map", {}, True),
        ("ParallelMapV2", {"parallelism": 1}, True),
        ("ParallelMapV2", {"parallelism": 1, "autotune": "true"}, False),
        ("ParallelMapV2", {"parallelism": 4}, False),
    ],
)
def test_one_element_after_the_other(stage: str, stats: dict[str, Any], expected: bool, tmp_path: Path) -> None:
    assert main_of(tmp_path, *waiting_job(stage, **stats)).is_sequential(1) == expected


def test_random_ops_give_another_result_each_time(tmp_path: Path) -> None:
    for op, expected in (("StatelessRandomUniformV2", True), ("DecodeJpeg", False)):
        pipeline = main_of(tmp_path, *waiting_job("Map", op=op))
        assert [stage.is_random for stage in pipeline.stages] == [False, expected]
        assert [stage_name(pipeline, index) for index in (1, None)] == ["Map", None]


def test_a_capture_knows_the_cores_better_than_tf_data(tmp_path: Path) -> None:
    """tf.data counts two; the cgroup of the job grants the time of 3.9."""
    assert main_of(tmp_path, *parallel_map(80, 10, 1), cpu_affinity=8, cpu_quota=3.9).cores == 4


def test_threads_and_consumers_of_a_stage(tmp_path: Path) -> None:
    main = main_of(tmp_path, *parallel_map(80, 10, 8))
    assert [stage.name for stage in main.stages] == ["Root", "ParallelMapV2", "TFRecord"]
    assert [main.workers(stage) for stage in range(3)] == [1, 2, 1]
    assert main.consumers(2) == (2, 1, 0)
    assert max(main.segments, key=lambda segment: segment.limit_ps).kind == "function"


def test_what_the_program_asks_comes_before_what_only_was_recorded(tmp_path: Path) -> None:
    main = main_of(tmp_path, line("python", *repeat(2, call("Root", 0, 10, 1))))
    fetched = replace(main, is_fetched=True)
    assert whole_pipelines((main, fetched)) == (fetched,)
    assert whole_pipelines((main, replace(main, is_cut=True), replace(main, is_device=True))) == (main,)
