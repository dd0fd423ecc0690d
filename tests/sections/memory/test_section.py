"""The section about memory says how full allocators became, and what lay in them then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from sections.memory.made import GIB, allocator, memory, on_chip, tpu_memory

from tfperf.analysis.load import with_short_tables
from tfperf.analysis.registry import HostResults, Results
from tfperf.base.units import format_bytes
from tfperf.report.model import Report, Section, Sparkline
from tfperf.report.render.charts import sparkline_text
from tfperf.report.shown import Detail, shown
from tfperf.sections.batch.analysis import Conclusion, HostBatch
from tfperf.sections.memory.analysis import Allocator, Memory, MemoryTimeline
from tfperf.sections.memory.section import build, findings_of, sparkline
from tfperf.trace.logdir import Run
from tfperf.trace.steps.steps import Confidence


def built(memory: Memory) -> Section:
    """The whole section, as programs get it."""
    host = HostResults("a", True, {"memory": memory})
    return build(Results(Run("run", Path("run"), ()), "corrected", (host,), ("memory",)))


def in_whole_report(memory: Memory, top: int | None = None) -> Section:
    return shown(Report({}, {}, (built(memory),)), Detail("brief", "brief", top)).sections[0]


def alone(memory: Memory, top: int | None = None) -> Section:
    return shown(Report({}, {}, (built(memory),)), Detail("full", "full", top)).sections[0]


def names(section: Section) -> list[str]:
    return [table.name for table in section.tables]


# --- chips of a TPU ---


def test_chips_that_are_equally_full_share_a_row_and_none_is_the_fullest(tmp_path: Path) -> None:
    """Sizes of chips 0 to 2 differ by a few bytes; to programs each has a row."""
    events = [on_chip(chip, 1 + chip, 600_000, 10 + chip) for chip in range(3)]
    of_all = tpu_memory(tmp_path, *events, chips=3)
    section = alone(of_all)
    assert section.findings[0].text == (
        "No problem found: TPU:0, TPU:1, TPU:2 each peak at 600 kB, 60.0% of their capacity of 1.00 MB."
    )
    assert [(fact.key, fact.value) for fact in section.facts] == [("stack", 600_000), ("heap", 12)]
    assert section.facts[1].note == "peak since the program started: 12 B on TPU:2"
    (chart,) = section.charts
    assert isinstance(chart, Sparkline)
    assert chart.title.startswith("TPU:0, TPU:1, TPU:2: 600 kB")
    assert list(section.tables[0].data["allocator"]) == ["TPU:2"]
    assert section.tables[0].note == "Equal allocators in one row: TPU:0, TPU:1, TPU:2."
    assert list(built(of_all).tables[0].data["allocator"]) == ["TPU:2", "TPU:1", "TPU:0"]


def test_a_chip_that_is_fuller_is_the_fullest(tmp_path: Path) -> None:
    section = alone(tpu_memory(tmp_path, on_chip(0, 1, 600_000, 10), on_chip(1, 1, 700_000, 10)))
    assert section.findings[0].text.startswith("No problem found: TPU:1, the fullest, peaks at 700 kB, 70.0% of its")
    assert list(section.tables[0].data["allocator"]) == ["TPU:1", "TPU:0"]


# --- tables ---


def test_programs_get_every_table() -> None:
    section = built(memory(allocator(), allocator(name="gpu_host_bfc")))
    assert names(section) == ["memory_allocators", "memory_alive", "memory_by_op", "memory_by_scope", "memory_timeline"]
    assert [type(chart) for chart in section.charts] == [Sparkline] * 2
    alive = section.tables[1]
    assert list(alive.data["allocator"]) == ["GPU_0_bfc", "GPU_0_bfc", "gpu_host_bfc", "gpu_host_bfc"]
    assert list(alive.data["op"]) == ["net/dense_1/MatMul", None] * 2
    assert list(alive.data["peak_percent"]) == [50.0] * 4
    assert len(section.tables[4]) == 6


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 100])
def test_of_many_hosts_only_the_allocators_of_the_first_rows_are_listed(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole tables of thousands of hosts have more rows than memory can hold; they say how many."""
    of_all = memory(allocator(), allocator(name="b"), allocator(name="c"))
    whole = built(of_all)
    monkeypatch.setattr("tfperf.sections.memory.section.MANY_HOSTS", 0)
    for module in ("sections.memory.section", "analysis.many_hosts", "analysis.load"):
        monkeypatch.setattr(f"tfperf.{module}.MOST_ROWS", most)
    first = built(of_all)
    assert [table.total_rows for table in first.tables] == [table.total_rows for table in whole.tables]
    assert all(len(table) < most + 3 for table in first.tables[1:])
    short, expected = with_short_tables(first).tables, with_short_tables(whole).tables
    assert [dict(table.data) for table in short] == [dict(table.data) for table in expected]
    assert [table.note for table in short] == [table.note for table in expected]


def test_alone_people_see_what_lay_in_the_fullest_allocator() -> None:
    section = alone(memory(allocator(), allocator(name="gpu_host_bfc")), top=1)
    assert names(section) == ["memory_allocators", "memory_by_op", "memory_by_scope"]
    assert [(len(table), table.total_rows) for table in section.tables] == [(2, 2), (1, 2), (1, 2)]
    assert section.tables[1].note.startswith("Text and Markdown show only GPU_0_bfc;")
    assert len(section.charts) == 2
    assert alone(memory(allocator())).tables[1].note == "", "a single allocator needs none"


def test_ops_that_add_up_are_told_by_a_star() -> None:
    alive = replace(allocator().alive, kind=("tensor", "tensor"), op=("net/dense_1/MatMul", "net/dense_2/MatMul"))
    table = alone(memory(allocator(alive=replace(alive, shape=("[1]", "[1]"), data_type=("", ""))))).tables[1]
    assert list(table.data["what"]) == ["net/dense_*/MatMul"]
    assert table.note.startswith("* replaces numbers")


def test_without_names_there_is_no_table_of_scopes_for_people() -> None:
    nameless = allocator(alive=replace(allocator().alive, op=("", "")))
    assert names(alone(memory(nameless))) == ["memory_allocators", "memory_by_op"]
    assert "memory_by_scope" in names(built(memory(nameless)))


def test_what_is_unknown_is_a_row_and_a_note() -> None:
    section = alone(memory(allocator()))
    assert list(section.tables[1].data["what"]) == ["(allocated before the capture)", "net/dense_1/MatMul"]
    assert section.notes[0].startswith("50.0% of the peak of GPU_0_bfc was allocated before the capture")


def test_hosts_are_shown_where_there_are_several() -> None:
    one_host, two_hosts = (
        [column.key for column in alone(memory(allocator(), host_count=count)).tables[0].columns] for count in (1, 2)
    )
    assert "host" not in one_host
    assert {"frees", "fragmentation_percent"} <= set(one_host)
    assert two_hosts[0] == "host"
    assert not {"frees", "fragmentation_percent"} & set(two_hosts)


def test_a_whole_report_has_the_findings_and_the_fullest() -> None:
    allocators: list[Allocator] = [allocator(name=f"GPU_{n}_bfc") for n in range(8)]
    section = in_whole_report(memory(*allocators), top=4)
    assert names(section) == ["memory_allocators", "memory_allocators_percentiles"]
    assert (len(section.tables[0]), section.tables[0].total_rows) == (5, 8)
    assert [finding.code for finding in section.findings] == ["memory_fine"]
    assert section.charts == ()
    assert section.notes == ("More: -s memory.",)


# --- what is missing ---


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "Memory use is unknown: the profile has no allocations."),
        ({"hosts_without_threads": ("a",)}, "Memory use is unknown: host threads record allocations"),
        ({"malformed_events": 3}, "The 3 allocator events do not record the memory in use."),
    ],
)
def test_without_allocators_a_sentence_says_why(changes: dict[str, Any], expected: str) -> None:
    silent = memory(silent_hosts=("a",), **changes)
    for section in (built(silent), in_whole_report(silent), alone(silent)):
        (note,) = section.notes
        assert note.startswith(expected)
    assert findings_of(silent) == ()


def test_silent_hosts_odd_events_and_contradictions_are_notes() -> None:
    contradicted = allocator(contradictions=2, before_bytes=None)
    section = alone(memory(contradicted, host_count=2, silent_hosts=("b",), malformed_events=1))
    silent, odd, lost = section.notes
    assert silent == "1 of 2 hosts recorded no allocations: b."
    assert odd == "Events omitted because they do not record the memory in use: 1."
    assert lost.startswith("In GPU_0_bfc on a, 2 of 3 events contradict the previous event")


def test_allocations_of_unknown_size_are_a_note_and_no_contradiction() -> None:
    unsized = allocator(unsized_allocations=1, unsized_alive=1, allocated_bytes=None, before_bytes=None)
    (note,) = alone(memory(unsized)).notes
    assert note.startswith("In GPU_0_bfc, 1 of 2 allocations have no recorded size, so sums of allocated bytes are unk")


@pytest.mark.parametrize(
    ("capture_us", "note"),
    [
        ((120_000, 2_000_000), "Times are on the clock of the trace; the capture lasts from 120 to 2000 ms."),
        ((1_000, 2_000_000), ""),
        ((0, 0), ""),
    ],
)
def test_a_capture_that_does_not_start_at_0_is_placed_on_its_clock(capture_us: tuple[int, int], note: str) -> None:
    start_us, end_us = capture_us
    section = built(memory(allocator(), captures_ps=((1_000_000 * start_us, 1_000_000 * end_us),)))
    assert section.tables[0].note == note


def test_the_allocator_of_the_host_is_explained() -> None:
    (note,) = alone(memory(allocator(place="host", name="mklcpu", before_bytes=0))).notes
    assert note.startswith("Host allocators (mklcpu)")


# --- how it is shown ---


def drawn(**changes: Any) -> Sparkline:
    return sparkline(allocator(**changes), "GPU_0_bfc")


def test_the_sparkline_names_its_scale() -> None:
    line = drawn()
    assert line.title == "GPU_0_bfc: 2.15 GB in use (highest), 1.07 GB (lowest), 0.000 to 8.00 ms"
    assert sparkline_text(line, 4, interactive=True) == "▁▁██"
    assert sparkline_text(line, 4, interactive=False) == "__##"


def test_what_hardly_changes_is_drawn_from_zero() -> None:
    steady = MemoryTimeline(np.array([0.0, 1.0]), np.array([GIB, GIB + 1]), np.array([1, 0]), np.zeros(2))
    line = drawn(timeline=steady)
    assert line.title == "GPU_0_bfc: 1.07 GB in use during the whole capture, within 1%, 0.000 to 1.00 ms"
    assert sparkline_text(line, 3, interactive=False) == "###"


def test_a_single_point_and_nothing_at_all() -> None:
    single = MemoryTimeline(np.array([5.0]), np.array([0]), np.array([1]), np.zeros(1))
    line = drawn(timeline=single)
    assert sparkline_text(line, 2, interactive=False) == "__"
    assert sparkline_text(replace(line, times=(), values=()), 5, interactive=False) == ""


def codes(*allocators: Allocator) -> list[str]:
    return [finding.code for finding in findings_of(memory(*allocators))]


def test_nothing_wrong() -> None:
    (finding,) = findings_of(memory(allocator()))
    assert (finding.code, finding.severity, finding.action) == ("memory_fine", "info", "")
    assert "GPU_0_bfc, the fullest, peaks at 2.15 GB, 20.0% of its capacity of 10.7 GB." in finding.text


def test_a_device_that_is_nearly_full() -> None:
    (finding,) = findings_of(memory(allocator(peak_bytes=9 * GIB, lifetime_peak_bytes=9 * GIB), allocator()))
    assert (finding.code, finding.severity) == ("memory_full", "problem")
    assert finding.text == (
        "GPU_0_bfc reaches 9.66 GB, 90.0% of its capacity, at 4.00 ms, step 7 (threshold: 90%); the largest: "
        "net/dense_1/MatMul [16384,16384], 11.1%."
    )
    assert (finding.action, finding.causes) == ("", ("memory_pressure",))


def test_several_full_devices_are_one_finding() -> None:
    full = allocator(peak_bytes=9 * GIB, lifetime_peak_bytes=9 * GIB)
    (finding,) = findings_of(memory(full, replace(full, name="GPU_1_bfc"), host_count=2))
    assert finding.text.startswith("GPU_0_bfc on a reaches")
    assert finding.text.endswith("The same applies to 1 more allocator.")


def test_pinned_memory_has_a_limit_of_its_own_and_the_host_none() -> None:
    pinned = allocator(place="pinned host", peak_bytes=9 * GIB, lifetime_peak_bytes=9 * GIB)
    of_host = allocator(place="host", name="mklcpu", peak_bytes=10 * GIB, lifetime_peak_bytes=10 * GIB)
    assert (codes(pinned), codes(of_host)) == (["pinned_memory_full"], ["memory_fine"])


def test_a_device_that_was_full_before() -> None:
    (finding,) = findings_of(memory(allocator(lifetime_peak_bytes=95 * GIB // 10)))
    assert (finding.code, finding.severity) == ("memory_was_full", "hint")
    assert finding.text == (
        "GPU_0_bfc reached 10.2 GB, 95.0% of its capacity, outside the capture; within it, 2.15 GB. To see its "
        "contents, capture that time (the first steps, evaluation, a checkpoint)."
    )


def test_fragmentation_matters_only_where_memory_is_nearly_full() -> None:
    assert codes(allocator(max_fragmentation_percent=80.0)) == ["memory_fine"]
    assert codes(allocator(full_fragmentation_percent=24.9)) == ["memory_fine"]
    assert codes(allocator(full_fragmentation_percent=25.0)) == ["memory_fragmented"]


def test_growth_says_when_memory_is_full() -> None:
    (finding,) = findings_of(memory(allocator(growth_bytes_per_step=float(GIB // 4))))
    assert finding.code == "memory_growth"
    assert finding.text == (
        "GPU_0_bfc grows steadily: over 10 steps, the memory that stays in use grows by 268 MB per step. "
        "At this rate, it is full after 32 more steps."
    )


def test_slow_growth_is_no_problem() -> None:
    assert codes(allocator(growth_bytes_per_step=256.0)) == ["memory_fine"]
    assert codes(allocator(growth_bytes_per_step=1024.0, capacity_bytes=None)) == ["memory_fine"]
    assert codes(allocator(growth_bytes_per_step=float(1 << 16), capacity_bytes=None)) == ["memory_growth"]


def test_the_most_severe_comes_first() -> None:
    worst = allocator(peak_bytes=9 * GIB, full_fragmentation_percent=50.0, growth_bytes_per_step=float(GIB))
    was_full = allocator(name="GPU_1_bfc", lifetime_peak_bytes=95 * GIB // 10)
    assert codes(worst, was_full) == ["memory_full", "memory_was_full", "memory_fragmented", "memory_growth"]


# Room for a larger batch


def room(memory: Memory, size: int | None = 16, confidence: Confidence = "high") -> list[str]:
    """Findings about a larger batch than this one."""
    batch = HostBatch(
        host="a",
        has_steps=True,
        batch=Conclusion(size=size, per_replica=size, confidence=confidence),
        replicas=1,
        batches_per_step=1,
    )
    host = HostResults("a", True, {"memory": memory, "batch": batch})
    section = build(Results(Run("run", Path("run"), ()), "corrected", (host,), ("memory", "batch")))
    return [finding.text for finding in section.findings if finding.code == "larger_batch_fits"]


@pytest.mark.parametrize(
    ("peak", "highest", "tried"),
    [(10, 20, "64 need 80.0%"), (10, 21, "32 need 42.0%"), (40, None, "32 need 80.0%"), (41, 41, None)],
)
def test_a_batch_fits_if_the_highest_use_grows_with_it(peak: int, highest: int | None, tried: str | None) -> None:
    """At most 80% of the capacity, and at most four times as large."""
    sizes = [None if each is None else each * GIB // 10 for each in (peak, highest)]
    found = room(memory(allocator(peak_bytes=sizes[0], lifetime_peak_bytes=sizes[1])))
    most = format_bytes(max(filter(None, sizes)))
    assert found == [
        f"Room for a larger batch: since the program started, 16 examples used at most {most}, "
        f"{max(peak, highest or 0):.1f}% of GPU_0_bfc. If all of this grows with the batch, {tried}."
        for tried in filter(None, [tried])
    ]


def test_room_needs_a_batch_that_is_known_and_a_device_without_problems() -> None:
    assert room(memory(allocator(lifetime_peak_bytes=None)))
    assert not room(memory(allocator(lifetime_peak_bytes=None)), size=None, confidence="none")
    assert not room(memory(allocator(lifetime_peak_bytes=None)), confidence="low")
    assert not room(memory(allocator(lifetime_peak_bytes=None, capacity_bytes=None)))
    assert not room(memory(allocator(lifetime_peak_bytes=None, name="mklcpu", place="host")))
    assert not room(memory(allocator(lifetime_peak_bytes=None, growth_bytes_per_step=1 << 20)))
