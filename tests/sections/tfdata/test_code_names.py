from __future__ import annotations

import pytest

from tfperf.sections.tfdata.code_names import change_in_code, in_code


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
