"""Steps on TPU cores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import Plane, event, host, line, plane, read_back, trace_of
from synthetic_tpu import Offload, offload_tpu

from tfperf.trace.steps.breakdown import Breakdown, attribute, combine
from tfperf.trace.steps.categories import CATEGORIES, WITH_COPIES
from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.tpu_steps import core_steps, duty_percent, has_categories, has_ops, in_step_time

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
    trace = read_back(tmp_path, offload_tpu(Offload(early=0.4)))
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


# --- what a TPU core_of says of its steps: shares of input, and its duty cycle ---

_CATEGORIES = {"infeed.1": "infeed", "while.2": "while", "fusion.3": "loop fusion", "outfeed.4": "outfeed"}


def core_of(number: int, *ops: tuple[str, float, float]) -> Plane:
    steps = line("Steps", event("0", 0, 100), event("1", 100, 100), id=1)
    facts = {name: {"hlo_category": category} for name, category in _CATEGORIES.items()}
    return plane(f"/device:TPU:{number}", steps, line("XLA Ops", *(event(*op) for op in ops), id=2), name_stats=facts)


def breakdown(folder: Path, *cores: Plane) -> Breakdown:
    trace = trace_of(folder, *cores)
    return attribute(trace, find_steps(trace))


def test_a_core_has_its_share_of_input_in_each_step_and_its_duty_cycle(tmp_path: Path) -> None:
    """From 10 to 190; the infeed in the loop is waiting, so the loop is on duty for 60 of 70."""
    one = core_of(0, ("infeed.1", 10, 20), ("while.2", 100, 70), ("infeed.1", 120, 10), ("outfeed.4", 180, 10))
    found = breakdown(tmp_path, one)
    (work,) = found.cores
    assert work.device == "TPU:0"
    assert work.input_percent.tolist() == pytest.approx([20, 10])
    assert (work.duty_ps, work.span_ps) == (60_000_000, 180_000_000)
    assert duty_percent(found.cores) == pytest.approx(100 / 3)


def test_the_duty_cycle_of_several_cores_is_sum_over_sum(tmp_path: Path) -> None:
    found = breakdown(tmp_path, core_of(0, ("fusion.3", 0, 200)), core_of(1, ("fusion.3", 0, 25), ("fusion.3", 75, 25)))
    assert duty_percent(found.cores) == pytest.approx(100 * 250 / 300)


def test_some_steps_and_several_hosts_keep_their_cores(tmp_path: Path) -> None:
    found = breakdown(tmp_path, core_of(0, ("infeed.1", 0, 20), ("infeed.1", 100, 40)))
    (work,) = found.only(np.array([1])).cores
    assert work.input_percent.tolist() == pytest.approx([40])
    assert len(combine([found, found]).cores) == 2


def test_without_ops_there_is_no_duty_cycle(tmp_path: Path) -> None:
    assert duty_percent(breakdown(tmp_path, core_of(0)).cores) is None


def test_transfers_of_the_host_while_cores_are_idle_are_input(tmp_path: Path) -> None:
    """Steps of 100: a core_of is idle for 40, and while it computes, transfers cost nothing."""
    steps = line("Steps", event("0", 0, 100), event("1", 100, 100), id=1)
    ops = line("XLA Ops", *(event("fusion", at, 60, hlo_category="loop fusion") for at in (40, 140)), id=2)
    transfers = [event("tpu::System::TransferToDevice", at, 50, size=4096) for at in (10, 110)]
    found = breakdown(tmp_path, plane("/device:TPU:0", steps, ops), host(*transfers))
    assert found.input_visible
    assert found.copies_are_input
    assert (found.time_ps["input_wait"] // 1_000_000).tolist() == [30, 30]
    assert (found.time_ps["all_others"] // 1_000_000).tolist() == [10, 10]


MS = 10**9


def offload(folder: Path) -> Breakdown:
    trace = read_back(folder, offload_tpu(Offload(own_clock="none", steps_line=True)))
    return attribute(trace, find_steps(trace))


def test_waiting_for_arrays_in_host_memory_is_a_category_of_its_own(tmp_path: Path) -> None:
    """Of 800 ms, cores wait for 480 for copies to the device, for 240 for one to the host, and compute for 80."""
    found = offload(tmp_path)
    per_step = {key: set((ps / MS).tolist()) for key, ps in found.time_ps.items() if ps.any()}
    assert per_step == {"host_to_device": {480.0}, "output": {240.0}, "device_compute": {80.0}}
    assert found.categories == WITH_COPIES
    whole_ps = np.sum([found.time_ps[key] for key in found.categories], axis=0)
    assert whole_ps.tolist() == found.steps.duration_ps.tolist()
    assert found.input_visible
    assert "input" not in found.unknown
    assert combine([found, found]).categories == WITH_COPIES


def test_waiting_for_copies_is_off_duty(tmp_path: Path) -> None:
    """From the first op to the last, at 5,000 ms: the set-up program, the all-reduce and five runs compute."""
    first, second = offload(tmp_path).cores
    assert (first.duty_ps / MS, first.span_ps / MS) == (4 + 20 + 5 * 80, 4900)
    assert (second.duty_ps / MS, second.span_ps / MS) == (20 + 5 * 80, 4690)


def test_barriers_are_a_part_of_collectives(tmp_path: Path) -> None:
    steps = line("Steps", event("0", 0, 100), event("1", 100, 100), id=1)
    reduces = (event("all-reduce", at, 30, hlo_category="all-reduce") for at in (50, 150))
    waits = (event("barrier-cores", at, 50) for at in (0, 100))
    ops, marks = line("XLA Ops", *reduces, id=2), line("XLA TraceMe", *waits, id=3)
    found = breakdown(tmp_path, plane("/device:TPU:0", steps, ops, marks))
    assert found.time_ps["device_collectives"].tolist() == [80_000_000] * 2
    assert found.time_ps["barrier"].tolist() == [50_000_000] * 2
    assert found.categories == CATEGORIES
