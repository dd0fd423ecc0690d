"""What a TPU core says of its steps: shares of input, and its duty cycle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import Plane, event, line, plane, trace_of

from tfperf.sections.steps.breakdown import Breakdown, attribute, combine
from tfperf.sections.steps.tpu_cores import duty_percent
from tfperf.trace.find_steps import find_steps

_CATEGORIES = {"infeed.1": "infeed", "while.2": "while", "fusion.3": "loop fusion", "outfeed.4": "outfeed"}


def core(number: int, *ops: tuple[str, float, float]) -> Plane:
    steps = line("Steps", event("0", 0, 100), event("1", 100, 100), id=1)
    facts = {name: {"hlo_category": category} for name, category in _CATEGORIES.items()}
    return plane(f"/device:TPU:{number}", steps, line("XLA Ops", *(event(*op) for op in ops), id=2), name_stats=facts)


def breakdown(folder: Path, *cores: Plane) -> Breakdown:
    trace = trace_of(folder, *cores)
    return attribute(trace, find_steps(trace))


def test_a_core_has_its_share_of_input_in_each_step_and_its_duty_cycle(tmp_path: Path) -> None:
    """From 10 to 190; the infeed in the loop is waiting, so the loop is on duty for 60 of 70."""
    one = core(0, ("infeed.1", 10, 20), ("while.2", 100, 70), ("infeed.1", 120, 10), ("outfeed.4", 180, 10))
    found = breakdown(tmp_path, one)
    (work,) = found.cores
    assert work.device == "TPU:0"
    assert work.input_percent.tolist() == pytest.approx([20, 10])
    assert (work.duty_ps, work.span_ps) == (60_000_000, 180_000_000)
    assert duty_percent(found.cores) == pytest.approx(100 / 3)


def test_the_duty_cycle_of_several_cores_is_sum_over_sum(tmp_path: Path) -> None:
    found = breakdown(tmp_path, core(0, ("fusion.3", 0, 200)), core(1, ("fusion.3", 0, 25), ("fusion.3", 75, 25)))
    assert duty_percent(found.cores) == pytest.approx(100 * 250 / 300)


def test_some_steps_and_several_hosts_keep_their_cores(tmp_path: Path) -> None:
    found = breakdown(tmp_path, core(0, ("infeed.1", 0, 20), ("infeed.1", 100, 40)))
    (work,) = found.only(np.array([1])).cores
    assert work.input_percent.tolist() == pytest.approx([40])
    assert len(combine([found, found]).cores) == 2


def test_without_ops_there_is_no_duty_cycle(tmp_path: Path) -> None:
    assert duty_percent(breakdown(tmp_path, core(0)).cores) is None
