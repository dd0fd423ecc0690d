from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, event
from sections.memory.made import alloc, allocator_of, free


def job(leak: int, steps: int = 6) -> list[Event]:
    """Steps of 100 us that take 300 and give back all but `leak`."""
    events: list[Event] = []
    for n in range(steps):
        kept = n * leak
        events.append(event("train", 100 * n, 100, step_num=n))
        events.append(alloc(100 * n + 10, 300, kept + 300, 1))
        events.append(free(100 * n + 50, 300, kept, 1))
        events += [alloc(100 * n + 60, leak, kept + leak, 100 + n)] * bool(leak)
    return events


def test_growth_per_step(tmp_path: Path) -> None:
    """The least of each step: 0, 10, 20, ... where it has given back its 300."""
    allocator = allocator_of(tmp_path, *job(leak=10))
    assert allocator.growth_bytes_per_step == pytest.approx(10)
    assert allocator.growth_steps == 6
    assert allocator.allocations_per_step == pytest.approx(2.0)
    assert allocator.allocated_bytes_per_step == pytest.approx(310.0)
    assert allocator.peak_step == 5


def test_steps_that_give_everything_back_do_not_grow(tmp_path: Path) -> None:
    assert allocator_of(tmp_path, *job(leak=0)).growth_bytes_per_step == 0.0


def test_few_steps_do_not_tell(tmp_path: Path) -> None:
    assert allocator_of(tmp_path, *job(leak=10, steps=3)).growth_bytes_per_step is None


def test_without_steps_nothing_is_known_per_step(tmp_path: Path) -> None:
    allocator = allocator_of(tmp_path, alloc(1, 100, 100, 1))
    assert (allocator.peak_step, allocator.allocations_per_step) == (None, None)
    assert (allocator.allocated_bytes_per_step, allocator.growth_bytes_per_step) == (None, None)
