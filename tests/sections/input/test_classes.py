from __future__ import annotations

import pytest

from tfperf.sections.input.analysis import InputPart, part_of
from tfperf.trace.event_names import parse_op


@pytest.mark.parametrize(
    ("name", "corrected", "tensorflow"),
    [
        ("Iterator::Root::Map::TFRecord", "on_demand_read", "on_demand_read"),
        ("Iterator::Root::TextLine", "on_demand_read", "on_demand_read"),
        ("Iterator::Root::Prefetch::Map::TFRecord", "advanced_read", "advanced_read"),
        ("Iterator::Root::Interleave[0]::FixedLengthRecord", "advanced_read", "advanced_read"),
        ("Iterator::Root::ParallelMapV2::RecordIO", "advanced_read", "advanced_read"),
        ("Iterator::Root::ParallelInterleaveV4[1]::FlatMap[0]::TFRecord", "advanced_read", "on_demand_read"),
        ("Iterator::Root::MapAndBatch::TFRecord", "advanced_read", "on_demand_read"),
        ("Iterator::Root::TFRecord::Map", "preprocessing", "preprocessing"),
        ("Iterator::Root::BatchV2", "preprocessing", "preprocessing"),
        ("Iterator::Root::ParallelMapV2", "other", "preprocessing"),
        ("Iterator::Root::MapAndBatch", "other", "preprocessing"),
        ("Iterator::Root::ParseExampleV2", "other", "preprocessing"),
        ("Iterator::Prefetch::Generator", "other", "preprocessing"),
        ("Iterator::Root::Prefetch::Generator", "preprocessing", "preprocessing"),
        ("Iterator::Root::Prefetch", "other", "preprocessing"),
        ("Iterator::Root::Map::ParallelInterleaveV4", "other", "preprocessing"),
        ("train/infeed:InfeedEnqueueTuple", "enqueue", "enqueue"),
        ("MemcpyHToD", "enqueue", "enqueue"),
    ],
)
def test_each_op_has_a_class(name: str, corrected: InputPart, tensorflow: InputPart) -> None:
    op = parse_op(name)
    assert (part_of(op, "corrected"), part_of(op, "tensorflow")) == (corrected, tensorflow)


@pytest.mark.parametrize(
    ("hands_over", "expected"), [(None, "preprocessing"), (False, "preprocessing"), (True, "other")]
)
def test_the_stage_knows_better_than_its_name_whether_it_hands_over(
    hands_over: bool | None, expected: InputPart
) -> None:
    op = parse_op("Iterator::Root::Prefetch::Generator")
    assert part_of(op, "corrected", hands_over=hands_over) == expected
    assert part_of(op, "tensorflow", hands_over=hands_over) == "preprocessing"
