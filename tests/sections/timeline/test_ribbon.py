"""The ribbon of a step has the intervals that the table of steps adds up."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from builders import event, host, host_of, trace_of
from hypothesis import given
from hypothesis import strategies as st
from sections.timeline.pictures import US, gpu_host
from synthetic_tpu import synthetic_tpu

from tfperf.analysis.registry import Host
from tfperf.report.model import Ribbon
from tfperf.sections.timeline.analysis import categories_ns, longest_places, ribbons
from tfperf.sections.timeline.lanes import PARTS, TITLES
from tfperf.trace.read import read_host
from tfperf.trace.steps.categories import CATEGORY_TITLES


def stretches(ribbon: Ribbon) -> list[tuple[str, int, int]]:
    columns = zip(ribbon.category.tolist(), ribbon.start_ns.tolist(), ribbon.end_ns.tolist(), strict=True)
    return [(ribbon.titles[category], start // US, end // US) for category, start, end in columns]


def totals_ns(ribbon: Ribbon) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for category, start, end in zip(ribbon.category, ribbon.start_ns, ribbon.end_ns, strict=True):
        totals[ribbon.titles[category]] += int(end - start)
    return totals


def check_against_table(analyzed: Host) -> None:
    """The ribbon covers each step from its start to its end, and holds what the table says."""
    breakdown = analyzed["steps"]
    for row in range(len(breakdown.steps)):
        (ribbon,) = ribbons(analyzed, row)
        totals = totals_ns(ribbon)
        for key, title in TITLES.items():
            if key != "input" and key not in breakdown.unknown:
                assert totals.get(title, 0) == pytest.approx(
                    int(breakdown.time_ps[key][row]) / 1000, abs=len(ribbon.category)
                )
        if not breakdown.unknown:
            assert ribbon.start_ns[0] == 0
            assert bool((ribbon.start_ns[1:] == ribbon.end_ns[:-1]).all())


def test_a_step_on_two_devices(tmp_path: Path) -> None:
    analyzed = gpu_host(tmp_path, "steps")
    (ribbon,) = ribbons(analyzed, 0)
    assert stretches(ribbon) == [
        ("Input wait", 0, 200), ("All others", 200, 210), ("Kernel launch", 210, 220), ("Host to device", 220, 300),
        ("Device compute", 300, 720), ("Device collectives", 720, 800), ("Host compute", 800, 810),
        ("Output", 810, 850), ("Host compute", 850, 890), ("All others", 890, 1000),
    ]  # fmt: skip
    check_against_table(analyzed)
    assert categories_ns(analyzed, 0)["Device compute"] == 420 * US


def test_each_core_of_a_tpu_has_a_ribbon_and_the_table_their_average(tmp_path: Path) -> None:
    path = tmp_path / "tpu.xplane.pb"
    path.write_bytes(synthetic_tpu())
    analyzed = host_of(read_host(path), "steps")
    both = ribbons(analyzed, 1)
    assert [ribbon.title for ribbon in both] == ["Step of TPU:0 by category", "Step of TPU:1 by category"]
    table = analyzed["steps"].time_ps
    for key in ("device_compute", "input_wait", "device_collectives"):
        mean = np.mean([totals_ns(ribbon).get(TITLES[key], 0) for ribbon in both])
        assert mean == pytest.approx(int(table[key][1]) / 1000, abs=20)


def test_very_many_stretches_are_few_and_add_up_to_the_same(tmp_path: Path) -> None:
    """A step of 20,000 ops: with a gap after each there are 40,000 stretches."""
    steps = [event("train", 100_000 * n, 100_000, step_num=n) for n in range(3)]
    ops = [event("a:MatMul", 100_000 + 5 * n, 2 + n % 3) for n in range(20_000)]
    analyzed = host_of(trace_of(tmp_path, host(*steps, *ops)), "steps")
    (ribbon,) = ribbons(analyzed, 1)
    assert len(ribbon.category) <= 3 * 1_000
    totals = totals_ns(ribbon)
    assert totals["Host compute"] == pytest.approx(sum(2 + n % 3 for n in range(20_000)) * US, abs=len(ribbon.category))
    assert sum(totals.values()) == 100_000 * US


def test_a_place_is_the_longest_stretch_of_a_category(tmp_path: Path) -> None:
    steps = [event("train", 1000 * n, 1000, step_num=n) for n in range(4)]
    ops = [event("a:MatMul", 1000 * n + 100, 200) for n in range(4)] + [
        event("b:MatMul", 1000 * n + 500, 300) for n in range(4)
    ]
    analyzed = host_of(trace_of(tmp_path, host(*steps, *ops)), "steps")
    (ribbon,) = ribbons(analyzed, 0)
    assert longest_places(ribbon, {"host_ops": ("host_compute",), "output_copy": ("output",)}) == {
        "host_ops": (500 * US, 800 * US, 500 * US)
    }


@given(st.lists(st.tuples(st.sampled_from(["x:MatMul", "IteratorGetNextOp::DoCompute", "tf.function-graph_building"]),
                          st.integers(0, 4_000), st.integers(0, 900)), max_size=30))  # fmt: skip
def test_ribbons_of_random_traces_equal_the_table(
    tmp_path_factory: pytest.TempPathFactory, busy: list[tuple[str, int, int]]
) -> None:
    steps = [event("train", 1000 * n, 1000, step_num=n) for n in range(4)]
    planes = host(*steps, *(event(name, start, duration) for name, start, duration in busy))
    check_against_table(host_of(trace_of(tmp_path_factory.mktemp("ribbon"), planes), "steps"))


def test_titles_are_those_of_the_table_and_of_the_parts_of_input() -> None:
    assert {*TITLES} == {*CATEGORY_TITLES, *PARTS}
