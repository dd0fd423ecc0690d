"""Sequences of short kernels: four steps of 100 us each. Times in microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Plane, event, gpu, host, host_of, marks, repeat, results_of, rows_of, trace_of
from msgspec.structs import replace

from tfperf.sections.kernels import KERNEL_SEQUENCES
from tfperf.sections.kernels.analysis import kernel_runs
from tfperf.sections.kernels.sequences import combine_sequences, kernel_sequences

VOLTA = {"compute_cap_major": 7, "compute_cap_minor": 0}


def in_steps(*names: str, length: float = 2, every: float = 3, stats: dict[str, Any] = VOLTA) -> Plane:
    """Kernels of these names in each of four steps of 100 us, `every` us from start to start."""
    made = [event(f"ns::{name}<float>(int)", 10 + every * at, length) for at, name in enumerate(names)]
    return gpu(*repeat(4, *made), **stats)


def sequences(tmp_path: Path, *planes: Plane) -> list[tuple[Any, ...]]:
    results = results_of(trace_of(tmp_path, host(*marks(4)), *planes), sections=["kernels"])
    table = KERNEL_SEQUENCES.build(results)
    return [] if table is None else rows_of(table.data, "kernels", "per_step", "kernels_ms", "gaps_ms", "percent")


def test_short_kernels_that_follow_each_other(tmp_path: Path) -> None:
    """Per step: three times `add`, `mul` of 2 us each, with 1 us between; a product stands between them."""
    found = sequences(tmp_path, in_steps(*("add", "mul", "sgemm") * 3))
    assert found == [("add > mul", 3.0, pytest.approx(0.012), pytest.approx(0.003), pytest.approx(15.0))]


def test_a_longer_sequence_takes_its_kernels_from_shorter_ones(tmp_path: Path) -> None:
    """Five kernels once, then the last two of them once more (14 and 5 us); a product stands between."""
    found = sequences(tmp_path, in_steps("a", "b", "c", "d", "e", "sgemm", "d", "e"))
    assert [row[:2] for row in found] == [("a > b > c > d > e", 1.0), ("d > e", 1.0)]
    assert [row[4] for row in found] == [pytest.approx(14.0), pytest.approx(5.0)]
    # With two more, the two kernels take 15 us in all places, more than the five.
    found = sequences(tmp_path, in_steps("a", "b", "c", "d", "e", "sgemm", "d", "e", "sgemm", "d", "e"))
    assert [row[:2] for row in found] == [("d > e", 3.0), ("a > b > c", 1.0)]


def test_equal_kernels_in_a_row_are_counted_without_overlap(tmp_path: Path) -> None:
    """Eleven kernels of XLA, `loop_add_fusion_7` and so on: two sequences of five take more than three of three."""
    found = sequences(tmp_path, in_steps(*(f"loop_add_fusion_{number}" for number in range(11))))
    assert [row[:2] for row in found] == [(" > ".join(["loop_add_fusion"] * 5), 2.0)]


@pytest.mark.parametrize(
    "plane",
    [
        in_steps("add", "mul", length=12, every=13),  # long kernels
        in_steps("add"),  # alone
        in_steps("add", "mul", length=0.2, every=0.3),  # 0.5 % of the step
        in_steps("sgemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),  # nothing that is fused
        gpu(event("add", 10, 2), event("mul", 13, 2)),  # in one step of four
    ],
)
def test_what_is_no_sequence(tmp_path: Path, plane: Plane) -> None:
    assert sequences(tmp_path, plane) == []


def test_hosts_add_up(tmp_path: Path) -> None:
    """A sequence of one host is an average over its steps only."""
    traces = [
        trace_of(tmp_path, host(*marks(4)), in_steps(*names)) for names in (("add", "mul"), ("add", "mul", "exp"))
    ]
    hosts = [host_of(trace, "kernels") for trace in traces]
    of_hosts = [kernel_runs(each.trace, each.device_work) for each in hosts]
    one, other = (
        kernel_sequences(each, [(kernel.name, kernel.op) for kernel in runs.kernels], runs.kernel)
        for each, runs in zip(hosts, of_hosts, strict=True)
    )
    assert [(row.kernels, row.count, row.steps) for row in combine_sequences([*one, *other, *one])] == [
        (("add", "mul"), 8, 8),
        (("add", "mul", "exp"), 4, 4),
    ]
    assert combine_sequences(one) == one == (replace(one[0], ops=("", "")),)
