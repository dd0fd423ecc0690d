"""The section about memory says how full allocators became, and what to do about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tfperf.sections.memory.analysis import Allocator, Memory, Timeline
from tfperf.sections.memory.alive import Alive
from tfperf.render.sparkline import sparkline_text
from tfperf.report.model import Section, Sparkline
from tfperf.sections.memory.section import (
    brief_memory_section,
    findings,
    memory_section,
    sparkline,
)
from tfperf.units import format_bytes

GIB = 1 << 30


def allocator(**known: Any) -> Allocator:
    """An allocator of 10 GiB that comes to 2 GiB: half of that in one tensor, half from before."""
    size = np.array([GIB, GIB])
    alive = Alive(
        ("tensor", "before the capture"), ("net/dense_1/MatMul", ""), ("[16384,16384]", ""), ("float32", ""),
        ("output", ""), np.array([1, 1]), size, np.array([GIB, -1]), size,
    )  # fmt: skip
    timeline = Timeline(np.array([0.0, 4.0, 8.0]), np.array([GIB, 2 * GIB, GIB]), np.array([9, 8, 9]), np.zeros(3))
    plain = Allocator(
        host="a", name="GPU_0_bfc", place="device", capacity_bytes=10 * GIB, peak_bytes=2 * GIB, peak_ms=4.0,
        peak_step=7, lifetime_peak_bytes=6 * GIB, begin_bytes=GIB, end_bytes=GIB, fragmentation_percent=1.0,
        max_fragmentation_percent=2.0, full_fragmentation_percent=None, allocations=2, frees=1, allocated_bytes=2 * GIB,
        allocations_per_step=1.0, allocated_bytes_per_step=float(GIB), growth_bytes_per_step=0.0, growth_steps=10,
        alive=alive, before_bytes=GIB, contradictions=0, timeline=timeline,
    )  # fmt: skip
    return replace(plain, **known)


def memory(*allocators: Allocator, **known: Any) -> Memory:
    return replace(Memory(allocators, 1, (), (), 0), **known)


def codes(*allocators: Allocator) -> list[str]:
    return [finding.code for finding in findings(memory(*allocators))]


def names(section: Section) -> list[str]:
    return [table.name for table in section.tables]


# --- findings ---


def test_nothing_wrong() -> None:
    (found,) = findings(memory(allocator()))
    assert (found.code, found.severity, found.action) == ("memory_fine", "info", "")
    assert found.text == (
        "No problem seen: GPU_0_bfc, the fullest, peaks at 2.00 GiB, 20.0% of its capacity of 10.0 GiB."
    )


def test_room_for_a_larger_batch() -> None:
    """By the lifetime: an evaluation may need more than the steps that were captured."""
    (found,) = findings(memory(allocator(lifetime_peak_bytes=5 * GIB)))
    assert found.action.startswith("a larger batch")


def test_a_device_that_is_nearly_full() -> None:
    (found,) = findings(memory(allocator(peak_bytes=9 * GIB, lifetime_peak_bytes=9 * GIB), allocator()))
    assert (found.code, found.severity) == ("memory_full", "problem")
    assert found.text == ("GPU_0_bfc comes to 9.00 GiB, 90.0% of its capacity, at 4.00 ms, step 7 (advice from 90%).")
    assert "tf.recompute_grad" in found.action


def test_several_full_devices_are_one_finding() -> None:
    full = allocator(peak_bytes=9 * GIB, lifetime_peak_bytes=9 * GIB)
    (found,) = findings(memory(full, replace(full, name="GPU_1_bfc"), hosts=2))
    assert found.text.startswith("GPU_0_bfc on a comes to")
    assert found.text.endswith("The same holds for 1 more.")


def test_pinned_memory_has_a_limit_of_its_own() -> None:
    (found,) = findings(memory(allocator(place="pinned host", peak_bytes=9 * GIB, lifetime_peak_bytes=9 * GIB)))
    assert "TF_GPU_HOST_MEM_LIMIT_IN_MB" in found.action


def test_the_host_is_never_called_full() -> None:
    assert codes(allocator(place="host", name="mklcpu", peak_bytes=10 * GIB, lifetime_peak_bytes=10 * GIB)) == [
        "memory_fine"
    ]


def test_a_device_that_was_full_before() -> None:
    assert codes(allocator(lifetime_peak_bytes=95 * GIB // 10)) == ["memory_was_full"]


def test_fragmentation_matters_only_where_memory_is_nearly_full() -> None:
    assert codes(allocator(max_fragmentation_percent=80.0)) == ["memory_fine"]
    assert codes(allocator(full_fragmentation_percent=24.9)) == ["memory_fine"]
    assert codes(allocator(full_fragmentation_percent=25.0)) == ["memory_fragmented"]


def test_growth_says_when_memory_is_full() -> None:
    (found,) = findings(memory(allocator(growth_bytes_per_step=float(GIB // 4))))
    assert found.code == "memory_growth"
    assert found.text == (
        "GPU_0_bfc grows steadily: over 10 steps, what stays in use grows by 256 MiB a step. At that rate it is full "
        "after 32 more steps."
    )


def test_slow_growth_is_no_problem() -> None:
    assert codes(allocator(growth_bytes_per_step=256.0)) == ["memory_fine"]
    assert codes(allocator(growth_bytes_per_step=1024.0, capacity_bytes=None)) == ["memory_fine"]
    assert codes(allocator(growth_bytes_per_step=float(1 << 16), capacity_bytes=None)) == ["memory_growth"]


# --- tables ---


def test_programs_get_every_table() -> None:
    found = memory_section(memory(allocator(), allocator(name="gpu_host_bfc")), None)
    assert names(found) == ["memory_allocators", "memory_alive", "memory_by_op", "memory_by_scope", "memory_timeline"]
    assert [type(chart) for chart in found.charts] == [Sparkline] * 2
    alive = found.tables[1]
    assert list(alive.data["allocator"]) == ["GPU_0_bfc", "GPU_0_bfc", "gpu_host_bfc", "gpu_host_bfc"]
    assert list(alive.data["op"]) == ["net/dense_1/MatMul", None] * 2
    assert list(alive.data["peak_percent"]) == [50.0] * 4
    assert len(found.tables[4]) == 6


def test_people_see_the_fullest_allocator_and_what_was_left_out() -> None:
    found = memory_section(memory(allocator(), allocator(name="gpu_host_bfc")), 1)
    assert names(found) == ["memory_allocators", "memory_by_op", "memory_by_scope"]
    assert [table.total_rows for table in found.tables] == [2, 2, 2]
    assert found.tables[1].title == "Alive at the peak of GPU_0_bfc, by op"
    assert "other allocators (1)" in found.tables[1].note
    assert len(found.charts) == 2


def test_what_is_unknown_is_a_row_and_a_note() -> None:
    found = memory_section(memory(allocator()), 10)
    assert list(found.tables[1].data["what"]) == ["(allocated before the capture)", "net/dense_1/MatMul"]
    assert found.notes[0].startswith("50.0% of the peak of GPU_0_bfc was allocated before the capture")


def test_hosts_are_shown_where_there_are_several() -> None:
    one, two = (memory_section(memory(allocator(), hosts=count), 10).tables[0] for count in (1, 2))
    assert not next(column for column in one.columns if column.key == "host").compact
    assert next(column for column in two.columns if column.key == "host").compact


def test_a_whole_report_has_the_findings_and_the_fullest() -> None:
    found = brief_memory_section(memory(*(allocator(name=f"GPU_{n}_bfc") for n in range(8))), 4)
    assert (names(found), len(found.tables[0]), found.tables[0].total_rows) == (["memory_allocators"], 4, 8)
    assert found.notes == ("More: -s memory.",)


# --- what is missing ---


def test_no_events_are_one_sentence() -> None:
    for section in (memory_section, brief_memory_section):
        (note,) = section(memory(silent_hosts=("a",)), None).notes
        assert note.startswith("No allocator noted anything")


def test_no_threads_are_the_reason() -> None:
    (note,) = memory_section(memory(silent_hosts=("a",), threads_missing=("a",)), None).notes
    assert note.startswith("The trace holds no event of any host thread")


def test_events_that_say_nothing_are_the_reason() -> None:
    (note,) = memory_section(memory(silent_hosts=("a",), malformed_events=3), None).notes
    assert note == "The 3 events of allocators do not say how much is in use."


def test_silent_hosts_odd_events_and_contradictions_are_notes() -> None:
    broken = allocator(contradictions=2, before_bytes=None)
    found = memory_section(memory(broken, hosts=2, silent_hosts=("b",), malformed_events=1), None)
    silent, odd, lost = found.notes
    assert silent == "1 of 2 hosts noted nothing about memory: b."
    assert odd.startswith("1 events are left out")
    assert lost.startswith("In GPU_0_bfc on a, 2 of 3 events do not follow from the one before")


# --- how it is shown ---


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "-"), (0, "0 B"), (999, "999 B"), (1024, "1.00 KiB"), (1047000, "1.00 MiB"), (15 * GIB, "15.0 GiB"),
        (300 * GIB, "300 GiB"), (1 << 63, "8.00 EiB"), (1.5, "1.50 B"),
    ],
)  # fmt: skip
def test_sizes(size: float | None, text: str) -> None:
    assert format_bytes(size) == text


def test_the_sparkline_names_its_scale() -> None:
    drawn = sparkline(allocator())
    assert drawn.title == "GPU_0_bfc: 2.00 GiB in use (highest), 1.00 GiB (lowest), 0.000 to 8.00 ms"
    assert sparkline_text(drawn, 4, interactive=True) == "▁▁██"
    assert sparkline_text(drawn, 4, interactive=False) == "__##"


def test_what_hardly_changes_is_drawn_from_zero() -> None:
    steady = Timeline(np.array([0.0, 1.0]), np.array([GIB, GIB + 1]), np.array([1, 0]), np.zeros(2))
    drawn = sparkline(allocator(timeline=steady))
    assert drawn.title == "GPU_0_bfc: 1.00 GiB in use all the time, within 1%, 0.000 to 1.00 ms"
    assert sparkline_text(drawn, 3, interactive=False) == "###"


def test_a_single_point_and_nothing_at_all() -> None:
    single = Timeline(np.array([5.0]), np.array([0]), np.array([1]), np.zeros(1))
    drawn = sparkline(allocator(timeline=single))
    assert sparkline_text(drawn, 2, interactive=False) == "__"
    assert sparkline_text(replace(drawn, times=(), values=()), 5, interactive=False) == ""
