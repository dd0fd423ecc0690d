"""What stages are called in code, and which rule a stage gets; what each rule says is in test_actions.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import event, line
from builders import iterator_call as call
from sections.tfdata.made_pipelines import STEPS, each_step, main_of, steps, waiting_job

from tfperf.sections.tfdata.advice import change_in_code, in_code, rule_for, rule_of_change, words
from tfperf.sections.tfdata.pipeline import Pipeline


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("MapAndBatch", "map().batch()"),
        ("ParallelMapV2", "map()"),
        ("MemoryCacheImpl", "cache()"),
        ("SomethingNew", "SomethingNew"),
    ],
)
def test_stages_have_the_names_of_the_program(stage: str, expected: str) -> None:
    assert in_code(stage) == expected


@pytest.mark.parametrize(
    ("change", "stage", "expected"),
    [
        ("prefetch", None, "prefetch() at the end"),
        ("parallel_read", "TFRecordV2", "interleave() several TFRecordDataset"),
        ("cache", "ShuffleAndRepeat", "cache() after shuffle().repeat()"),
    ],
)
def test_a_change_is_named_as_the_user_makes_it(change: str, stage: str | None, expected: str) -> None:
    assert change_in_code(change, stage) == expected


@pytest.mark.parametrize(
    ("stage", "op", "code"),
    [
        ("Map", "DecodeJpeg", "parallel_map"),
        ("Map", "EagerPyFunc", "python_function"),
        ("Generator", "PyFunc", "generator"),
        ("ParallelInterleaveV4", "", "interleave"),
        ("PaddedBatch", "", "serial_transformation"),
        ("ParallelBatch", "", "copying"),
        ("Root", "", None),
        ("SomethingNew", "", None),
    ],
)
def test_the_name_and_the_function_of_a_stage_decide(stage: str, op: str, code: str | None, tmp_path: Path) -> None:
    rule = rule_for(main_of(tmp_path, *waiting_job(stage, op=op)), 1)
    assert (rule.code if rule else None) == code


def test_a_map_that_is_parallel_already_is_told_to_do_less(tmp_path: Path) -> None:
    main = main_of(tmp_path, *waiting_job("ParallelMapV2", autotune="true"))
    rule = rule_for(main, 1)
    assert rule is not None
    assert rule.code == "heavy_map"


@pytest.mark.parametrize(("run_us", "code"), [(0.2, "vectorize"), (5, "heavy_map"), (60, "heavy_map")])
def test_short_runs_that_are_waited_for_much_longer_than_they_work_are_overhead(
    run_us: float, code: str, tmp_path: Path
) -> None:
    """Steps wait for 80 us; ten runs of the function work for 2, 50 or more of them."""
    python = line(
        "python",
        *steps(),
        *each_step(
            call("Root", 0, 80, 1),
            call("Root::BatchV2", 0, 80, 2, 1, batch_size=10),
            call("Root::BatchV2::ParallelMapV2", 1, 78, 3, 2, autotune="true"),
        ),
    )
    runner, pool = [], []
    for turn in range(10 * STEPS):
        at, run = 10 * turn, 70 + turn
        runner += [
            event("ParallelMapProduce", at, 0.2),
            event("InstantiatedCapturedFunction::RunAsync", at, 0.1, id=run),
        ]
        runner.append(call("Root::BatchV2::ParallelMapV2::Range", at + 0.15, 0.01, 4, 3))
        pool.append(event("ExecutorState::Process", at + 0.2, run_us, id=run))
    main = main_of(tmp_path, python, line("runner", *runner), line("pool", *pool))
    rule = rule_for(main, 2)
    assert rule is not None
    assert rule.code == code


def reading(tmp_path: Path, *consumers: str, **stats: Any) -> Pipeline:
    return main_of(tmp_path, *waiting_job(*consumers, "TFRecord", **stats))


def test_files_that_are_read_several_at_a_time_are_not_to_be_interleaved_again(tmp_path: Path) -> None:
    for consumer, code in (("BatchV2", "parallel_read"), ("ParallelInterleaveV4", "interleave")):
        rule = rule_for(reading(tmp_path, consumer), 2)
        assert rule is not None
        assert rule.code == code


@pytest.mark.parametrize(("deterministic", "expected"), [("true", True), ("false", False)])
def test_an_order_that_is_given_up_already_is_not_to_be_given_up(
    deterministic: str, expected: bool, tmp_path: Path
) -> None:
    pipeline = main_of(tmp_path, *waiting_job("ParallelInterleaveV4", deterministic=deterministic))
    assert ("deterministic=False" in words(pipeline, 1)["unordered"]) == expected


def test_each_estimate_has_words_of_its_own(tmp_path: Path) -> None:
    plain, python = (main_of(tmp_path, *waiting_job("Map", op=op)) for op in ("Cast", "EagerPyFunc"))
    assert rule_of_change(plain, "parallel_map", 1) is not rule_of_change(python, "parallel_map", 1)
    for pipeline, change in ((plain, "cache"), (plain, "vectorize"), (python, "parallel_map"), (plain, "prefetch")):
        assert rule_of_change(pipeline, change, 1).code == change
    generator = main_of(tmp_path, *waiting_job("Generator", op="PyFunc"))
    assert "from_generator" in rule_of_change(generator, "parallel_read", 1).action
    assert "list_files" in rule_of_change(plain, "parallel_read", 1).action


def test_words_of_the_whole_pipeline_name_its_outermost_stage(tmp_path: Path) -> None:
    pipeline = main_of(tmp_path, *waiting_job("BatchV2", "Map", op="Cast"))
    assert [words(pipeline, index)["code"] for index in (None, 2)] == ["batch()", "map()"]
