"""What stages are called in code, and which rule a stage gets; what each rule says is in test_advice.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from sections.tfdata.made_pipelines import main_of, waiting_job

from tfperf.sections.tfdata.stage_rules import change_in_code, in_code, rule_for


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
        ("cache", "ShuffleAndRepeat", "cache() behind shuffle().repeat()"),
    ],
)
def test_a_change_is_named_as_the_user_makes_it(change: str, stage: str | None, expected: str) -> None:
    assert change_in_code(change, stage) == expected


@pytest.mark.parametrize(
    ("stage", "op", "code"),
    [
        ("Map", "DecodeJpeg", "sequential_map"),
        ("Map", "EagerPyFunc", "python_function"),
        ("Generator", "PyFunc", "generator"),
        ("ParallelInterleaveV4", "", "interleave"),
        ("PaddedBatch", "", "serial_transformation"),
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
