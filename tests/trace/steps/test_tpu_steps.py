"""Steps on TPU cores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import Plane, event, line, plane, trace_of
from synthetic_tpu import Offload, offload_tpu

from tfperf.trace.read import read_host
from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.tpu_steps import core_steps, has_categories, has_ops, in_step_time

US = 1_000_000


def core(number: int, *steps: tuple[float, float], category: str = "loop fusion") -> Plane:
    named = [event(str(index), *times) for index, times in enumerate(steps)]
    ops = line("XLA Ops", *(event("fusion", *times) for times in steps), id=2)
    name_stats = {"fusion": {"hlo_category": category}} if category else {}
    return plane(f"/device:TPU:{number}", line("Steps", *named, id=1), ops, name_stats=name_stats)


def windows(tmp_path: Path, *cores: Plane) -> list[list[tuple[int, int]]]:
    trace = trace_of(tmp_path, *cores)
    found = core_steps(trace, find_steps(trace))
    return [list(zip((each.start_ps // US).tolist(), (each.end_ps // US).tolist(), strict=True)) for each in found]


def test_a_step_lasts_as_long_as_its_longest_core(tmp_path: Path) -> None:
    first, second = core(0, (0, 80), (100, 95)), core(1, (10, 90), (110, 70))
    assert windows(tmp_path, first, second) == [[(0, 90), (100, 195)], [(10, 100), (110, 205)]]


def test_no_step_reaches_into_the_next_one_of_its_core(tmp_path: Path) -> None:
    assert windows(tmp_path, core(0, (0, 50), (60, 50)), core(1, (0, 90), (90, 50))) == [
        [(0, 60), (60, 110)],
        [(0, 90), (90, 140)],
    ]


def test_only_steps_of_all_cores_count(tmp_path: Path) -> None:
    assert windows(tmp_path, core(0, (0, 50), (60, 50)), core(1, (0, 50))) == [[(0, 50)], [(0, 50)]]


def test_a_core_without_steps_of_its_own_is_left_out(tmp_path: Path) -> None:
    bare = plane("/device:TPU:0", line("XLA Ops", event("fusion", 0, 100), id=2))
    assert windows(tmp_path, bare, core(1, (0, 50), (60, 50))) == [[(0, 50), (60, 110)]]


@pytest.mark.parametrize("category", ["infeed", ""])
def test_ops_may_lack_categories(tmp_path: Path, category: str) -> None:
    trace = trace_of(tmp_path, core(0, (0, 50), (60, 50), category=category))
    assert has_ops(trace)
    assert has_categories(trace) == bool(category)


def test_a_core_may_lack_ops(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, plane("/device:TPU:0", line("Steps", event("0", 0, 9), event("1", 9, 9), id=1)))
    assert not has_ops(trace)


def test_what_a_core_does_in_a_window_of_its_own_counts_in_that_step(tmp_path: Path) -> None:
    """The clock of the cores is 0.4 ms behind, and all but the first run begin before the end of the one before."""
    path = tmp_path / "made.xplane.pb"
    path.write_bytes(offload_tpu(Offload(early=0.4)))
    trace = read_host(path)
    steps = find_steps(trace)
    ops = [each for each in trace.lines if each.name == "XLA Ops"]
    assert len(ops) == 2
    for each in ops:
        start = trace.start_ps[each.start : each.stop]
        at = in_step_time(trace, steps, np.full(len(start), each.plane), start)
        step = np.searchsorted(steps.start_ps, at, side="right") - 1
        # Ten ops in each of five runs; before them, those of other programs.
        assert np.bincount(step[step >= 0]).tolist() == [10] * 5
        assert (at < steps.end_ps[-1]).all()
