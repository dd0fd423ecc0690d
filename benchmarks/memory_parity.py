"""Compare what tfperf says about memory with XProf's memory profile and memory viewer of the same captures.

    python benchmarks/memory_parity.py FILE.xplane.pb ...

Needs xprof. Works on copies, because XProf writes beside the trace. Prints matched/total, and each difference; exits
with 1 if a peak or a capacity differs, or if XProf's lifetime peak is the higher one. For programs, it compares the
bytes in use at the peak, the planned bytes, and those of temporaries and other parts in the main memory.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tfperf
from tfperf.formats.hlo.buffers import Plan
from tfperf.sections.memory.analysis import Allocator

MIB = 1 << 20
Check = tuple[str, float | None, float | None]
"""What is compared, what tfperf says, and what XProf says."""


def xprof_allocators(path: Path) -> dict[str, Any]:
    """Return XProf's memory profile of each allocator."""
    from xprof.convert import raw_to_tool_data

    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(path, folder)
        data, _ = raw_to_tool_data.xspace_to_tool_data([copy], "memory_profile", {})
    allocators: dict[str, Any] = json.loads(data).get("memoryProfilePerAllocator", {})
    return allocators


def checks(allocator: Allocator, theirs: dict[str, Any]) -> Iterator[Check]:
    """Yield the figures of one allocator."""
    summary, peak = theirs["profileSummary"], theirs["profileSummary"]["peakStats"]
    fragmentation = float(peak["fragmentation"])
    yield "peak", allocator.peak_bytes, int(peak["heapAllocatedBytes"]) + int(peak["stackReservedBytes"])
    yield "lifetime peak", allocator.lifetime_peak_bytes, int(summary["peakBytesUsageLifetime"])
    yield "capacity", allocator.capacity_bytes, int(summary["memoryCapacity"])
    yield "fragmentation", allocator.fragmentation_percent, None if math.isnan(fragmentation) else 100.0 * fragmentation


def xprof_programs(path: Path, names: Iterable[str]) -> dict[str, Any]:
    """Return XProf's memory viewer of programs, `NAME(ID)`, without those that it cannot show."""
    from xprof.convert import raw_to_tool_data

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(path, folder)
        raw_to_tool_data.xspace_to_tool_names([copy])  # writes the programs
        for name in names:
            params = {"module_name": name, "memory_space": "0"}
            data, _ = raw_to_tool_data.xspace_to_tool_data([copy], "memory_viewer", params)
            if data:
                found[name] = json.loads(data)
    return found


def program_checks(plan: Plan, theirs: dict[str, Any]) -> Iterator[Check]:
    """Yield the figures of one program."""
    sums = Counter[str]()
    for each in plan.buffers:
        sums[each.kind] += each.bytes
    if plan.live or "temporary" not in sums:  # otherwise XProf's peak is without temporaries
        yield "peak", plan.total_bytes - sums["unused"], round(theirs["peakHeapMib"] * MIB)
    yield "total", plan.total_bytes, round(theirs["totalBufferAllocationMib"] * MIB)
    parameters = round(theirs["entryComputationParametersMib"] * MIB)
    yield "parameters", sums["parameter"], parameters
    if "temporary" in sums:
        ours = sums["temporary"] + sums["unused"]
        yield (
            "temporaries",
            ours,
            round((theirs["totalBufferAllocationMib"] - theirs["indefiniteBufferAllocationMib"]) * MIB),
        )


def main(paths: list[str]) -> int:
    """Compare all files; return the exit code."""
    matched = total = wrong = 0
    for path in map(Path, paths):
        memory = tfperf.load(path, sections=["memory"])["memory"]
        allocators = {allocator.name: allocator for allocator in memory.allocators}
        for name, theirs in xprof_allocators(path).items():
            ours_of = allocators.get(name) or allocators[f"TPU:{name}"]
            for what, ours, expected in checks(ours_of, theirs):
                same = ours == expected
                if ours is not None and expected is not None:
                    same = math.isclose(ours, expected, rel_tol=1e-5)
                matched, total = matched + same, total + 1
                # A lower lifetime peak there is the recorded one of a thread that ended early.
                explained = what == "fragmentation" or (what == "lifetime peak" and (ours or 0) > (expected or 0))
                wrong += not (same or explained)
                if not same:
                    print(f"{path.parent.name}: {name}: {what}: {ours}, XProf {expected}")
        xla = tfperf.load(path, sections=["xla"])["xla"]
        # The name of the main memory is the first one: device memory, HBM or memory.
        plans = {
            f"{module.module}({module.program_id})": next(iter(module.plans.values()))
            for module in xla.modules
            if module.plans
        }
        for name, theirs in xprof_programs(path, plans).items():
            for what, ours, expected in program_checks(plans[name], theirs):
                same = ours == expected
                matched, total, wrong = matched + same, total + 1, wrong + (not same)
                if not same:
                    print(f"{path.parent.name}: {name}: {what}: {ours}, XProf {expected}")
    print(f"{matched}/{total} figures agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
