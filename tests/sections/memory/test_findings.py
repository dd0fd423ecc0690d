from __future__ import annotations

from msgspec.structs import replace
from sections.memory.made import GIB, allocator, memory

from tfperf.sections.memory.analysis import Allocator
from tfperf.sections.memory.section import findings_of


def codes(*allocators: Allocator) -> list[str]:
    return [finding.code for finding in findings_of(memory(*allocators))]


def test_nothing_wrong() -> None:
    (finding,) = findings_of(memory(allocator()))
    assert (finding.code, finding.severity, finding.action) == ("memory_fine", "info", "")
    assert finding.text == (
        "No problem seen: GPU_0_bfc, the fullest, peaks at 2.15 GB, 20.0% of its capacity of 10.7 GB."
    )


def test_without_allocators_there_is_nothing_to_say() -> None:
    assert findings_of(memory()) == ()


def test_a_device_that_is_nearly_full() -> None:
    (finding,) = findings_of(memory(allocator(peak_bytes=9 * GIB, lifetime_peak_bytes=9 * GIB), allocator()))
    assert (finding.code, finding.severity) == ("memory_full", "problem")
    assert finding.text == "GPU_0_bfc reaches 9.66 GB, 90.0% of its capacity, at 4.00 ms, step 7 (threshold 90%)."
    assert (finding.action, finding.causes) == ("", ("memory_pressure",))


def test_several_full_devices_are_one_finding() -> None:
    full = allocator(peak_bytes=9 * GIB, lifetime_peak_bytes=9 * GIB)
    (finding,) = findings_of(memory(full, replace(full, name="GPU_1_bfc"), host_count=2))
    assert finding.text.startswith("GPU_0_bfc on a reaches")
    assert finding.text.endswith("The same holds for 1 more allocator.")


def test_pinned_memory_has_a_limit_of_its_own() -> None:
    (finding,) = findings_of(memory(allocator(place="pinned host", peak_bytes=9 * GIB, lifetime_peak_bytes=9 * GIB)))
    assert finding.code == "pinned_memory_full"


def test_the_host_is_never_called_full() -> None:
    full = allocator(place="host", name="mklcpu", peak_bytes=10 * GIB, lifetime_peak_bytes=10 * GIB)
    assert codes(full) == ["memory_fine"]


def test_a_device_that_was_full_before() -> None:
    (finding,) = findings_of(memory(allocator(lifetime_peak_bytes=95 * GIB // 10)))
    assert (finding.code, finding.severity) == ("memory_was_full", "hint")
    assert finding.text == (
        "GPU_0_bfc reached 10.2 GB, 95.0% of its capacity, outside the capture; within it, 2.15 GB. What lay there "
        "then, only a capture of that moment shows (the first steps, evaluation, a checkpoint)."
    )


def test_fragmentation_matters_only_where_memory_is_nearly_full() -> None:
    assert codes(allocator(max_fragmentation_percent=80.0)) == ["memory_fine"]
    assert codes(allocator(full_fragmentation_percent=24.9)) == ["memory_fine"]
    assert codes(allocator(full_fragmentation_percent=25.0)) == ["memory_fragmented"]


def test_growth_says_when_memory_is_full() -> None:
    (finding,) = findings_of(memory(allocator(growth_bytes_per_step=float(GIB // 4))))
    assert finding.code == "memory_growth"
    assert finding.text == (
        "GPU_0_bfc grows steadily: over 10 steps, what stays in use grows by 268 MB per step. At that rate it is full "
        "after 32 more steps."
    )


def test_slow_growth_is_no_problem() -> None:
    assert codes(allocator(growth_bytes_per_step=256.0)) == ["memory_fine"]
    assert codes(allocator(growth_bytes_per_step=1024.0, capacity_bytes=None)) == ["memory_fine"]
    assert codes(allocator(growth_bytes_per_step=float(1 << 16), capacity_bytes=None)) == ["memory_growth"]


def test_the_most_severe_comes_first() -> None:
    worst = allocator(peak_bytes=9 * GIB, full_fragmentation_percent=50.0, growth_bytes_per_step=float(GIB))
    was_full = allocator(name="GPU_1_bfc", lifetime_peak_bytes=95 * GIB // 10)
    assert codes(worst, was_full) == ["memory_full", "memory_was_full", "memory_fragmented", "memory_growth"]
