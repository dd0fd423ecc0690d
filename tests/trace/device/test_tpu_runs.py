"""Runs of programs on TPU chips, and the calls that led to them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Event, Plane, event, known, line, plane, read_back, trace_of, u64
from jax_builders import GRADIENT, call, programs
from places import SHARED
from protobytes import field, message
from synthetic_tpu import F_ID, Offload, offload_tpu, signed
from tpu_twin import PROGRAM_ID, tpu_twin

from tfperf.trace.device.tpu_runs import (
    TpuChips,
    TpuRuns,
    barrier_waits,
    enqueue_links,
    find_chips,
    find_runs,
    join_chips,
    module_name,
    ranges_of,
    recorded_twice,
)
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.read import read_host

US = 1_000_000
REAL = SHARED / "traces" / "tpu_v6e"


def calls_of(trace: HostTrace, runs: TpuRuns) -> list[str | None]:
    """The call of each run and when it begins, in microseconds."""
    return [
        f"{trace.names[trace.name[row]]} at {trace.start_ps[row] / US:g}" if row >= 0 else None
        for row in runs.call.tolist()
    ]


def chip(number: int, *runs: Event) -> Plane:
    return plane(f"/device:TPU:{number}", line("XLA Modules", *runs))


def host(**threads: list[Event]) -> Plane:
    return plane("/host:CPU", *(line(name, *events, id=id) for id, (name, events) in enumerate(threads.items(), 1)))


def test_the_way_from_a_run_to_its_call_leads_over_flows_and_events_around(tmp_path: Path) -> None:
    """Ids of flows need all 64 bits, and a flow of another type with the same id is another flow."""
    large = u64((1 << 63) + 5)
    python = [*call("step", 0, 10, event("Execute", 1, 5, _p=large, _pt=5)), *call("other", 20, 10)]
    pool = [event("Scheduled", 30, 10, _c=large, _ct=5), event("System::Execute", 31, 5, _p=8, _pt=7)]
    stranger = event("Notify", 32, 1, _p=9, _pt=7)
    queue = [event("Issue", 50, 9, _c=8, _ct=7), event("DoEnqueueProgram", 51, 2, _p=9, _pt=12)]
    run = event("jit_step(7)", 60, 5, _c=9, _ct=12)
    trace = trace_of(tmp_path, chip(0, run), host(python=python, pool=[*pool, stranger], queue=queue))
    runs = find_runs(trace)
    assert calls_of(trace, runs) == ["PjitFunction(step) at 0"]
    assert trace.names[trace.name[runs.enqueue[0]]] == "DoEnqueueProgram"


def enqueue(start: float, call_flow: int, **ids: Any) -> list[Event]:
    return [event("Issue", start, 9, _c=call_flow, _ct=7), event("DoEnqueueProgram", start + 1, 2, **ids)]


def test_without_a_flow_a_run_is_enqueued_under_its_id_on_its_chip(tmp_path: Path) -> None:
    """Run ids count per chip: the second run of chip 0 has the id of the first one of chip 1."""
    python = [
        each for nth in (0, 1) for each in call("f", 20 * nth, 10, event("Execute", 20 * nth + 1, 5, _p=nth, _pt=7))
    ]
    numbers = ((0, 0, 3), (0, 1, 2), (1, 0, 4), (1, 1, 3))
    queue = [
        each
        for at, (nth, tpu, id) in enumerate(numbers)
        for each in enqueue(100 + 20 * at, nth, device_ordinal=tpu, run_id=id)
    ]
    chips = [
        chip(tpu, *(event("jit_f(7)", 200 + 20 * nth, 5, run_id=3 - tpu + nth) for nth in (0, 1))) for tpu in (0, 1)
    ]
    trace = trace_of(tmp_path, *chips, host(python=python, queue=queue))
    runs = find_runs(trace)
    assert calls_of(trace, runs) == ["PjitFunction(f) at 0", "PjitFunction(f) at 20"] * 2
    assert runs.launch.tolist() == [0, 1, 0, 1]
    assert runs.run_id.tolist() == [3, 4, 2, 3]


def test_the_outermost_call_counts_and_a_way_that_ends_elsewhere_leads_to_none(tmp_path: Path) -> None:
    inner = [*call("add", 2, 5, event("DoEnqueueProgram", 3, 1, _p=1, _pt=12))]
    other = [event("Worker", 40, 10), event("DoEnqueueProgram", 41, 1, _p=2, _pt=12)]
    runs = [event("jit_add(7)", 60, 5, _c=1, _ct=12), event("jit_add(7)", 70, 5, _c=2, _ct=12)]
    trace = trace_of(tmp_path, chip(0, *runs), host(python=call("f", 0, 20, *inner), worker=other))
    assert calls_of(trace, find_runs(trace)) == ["PjitFunction(f) at 0", None]


def test_a_flow_of_several_producers_leads_nowhere(tmp_path: Path) -> None:
    python = [event("DoEnqueueProgram", at, 1, _p=1, _pt=12) for at in (0, 5)]
    trace = trace_of(tmp_path, chip(0, event("jit_f(7)", 60, 5, _c=1, _ct=12)), host(python=python))
    assert find_runs(trace).enqueue.tolist() == [-1]


@pytest.mark.parametrize("waits", [False, True], ids=["ahead", "waiting"])
@pytest.mark.parametrize("flows", [True, False], ids=["flows", "order"])
def test_runs_of_an_odd_profile(tmp_path: Path, *, flows: bool, waits: bool) -> None:
    """Its runs have shifted ids; without flows, nothing leads from the thread that enqueues to the call."""
    trace = read_back(tmp_path, offload_tpu(Offload(flows=flows, waits=waits)))
    runs = find_runs(trace)
    names = [module_name(runs.names[name]) for name in runs.name.tolist()]
    assert names == ["jit_broadcast_in_dim", "jit__psum", *["jit_f"] * 5, "jit__psum", *["jit_f"] * 5]
    assert set(runs.program[runs.name == runs.names.index(f"jit_f({F_ID})")].tolist()) == {signed(F_ID)}
    assert runs.known.all()
    assert (runs.enqueue >= 0).all()
    called = [trace.names[trace.name[row]] for row in runs.call.tolist()]
    assert called == [f"PjitFunction({name.removeprefix('jit_')})" for name in names]
    assert (trace.start_ps[runs.call] < runs.start_ps).all()
    assert runs.launch.tolist() == [0, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6]


def test_runs_of_the_twin_are_linked_by_their_ids(tmp_path: Path) -> None:
    trace = read_back(tmp_path, tpu_twin())
    runs = find_runs(trace)
    assert [at.split(" at ")[0] for at in calls_of(trace, runs) if at] == ["PjitFunction(matmul_optimized)"] * 3
    assert runs.program.view("uint64").tolist() == [PROGRAM_ID] * 3


def without_links(tmp_path: Path, calls: tuple[float, ...], *chips: tuple[float, ...]) -> list[str | None]:
    """The calls of runs of 10 us that begin at these times on each chip, where nothing links them."""
    runs = [chip(number, *(event("jit_f(1)", start, 10) for start in starts)) for number, starts in enumerate(chips)]
    python = [each for start in calls for each in call("f", start, 5)]
    trace = trace_of(tmp_path, *runs, host(python=python), programs({1: ("jit_f", (GRADIENT,))}))
    return calls_of(trace, find_runs(trace))


def test_without_links_runs_and_calls_are_in_one_order(tmp_path: Path) -> None:
    assert without_links(tmp_path, (5000, 7000), (4999, 7010)) == ["PjitFunction(f) at 5000", "PjitFunction(f) at 7000"]
    # What began long before its call was called before the capture.
    assert without_links(tmp_path, (5000, 7000), (2000, 7010)) == [None, "PjitFunction(f) at 5000"]


def test_runs_of_chips_that_lack_the_first_one_belong_to_the_nearest_ones(tmp_path: Path) -> None:
    calls = ["PjitFunction(f) at 5000", "PjitFunction(f) at 7000"]
    assert without_links(tmp_path, (5000, 7000), (5010, 7010), (7020,)) == [*calls, calls[1]]


def test_a_program_without_an_id_is_unknown(tmp_path: Path) -> None:
    names = ("jit_f", f"jit_f({1 << 64})", f"jit_f({(1 << 64) - 1})")
    runs = find_runs(trace_of(tmp_path, chip(0, *(event(name, 10 * at, 5) for at, name in enumerate(names)))))
    assert runs.known.tolist() == [False, False, True]
    assert runs.program[2] == -1


def test_a_trace_without_the_line_of_programs_has_no_runs(tmp_path: Path) -> None:
    assert len(find_runs(trace_of(tmp_path, plane("/device:TPU:0", line("XLA Ops", event("fusion", 0, 5)))))) == 0


@pytest.mark.skipif(not REAL.exists(), reason="needs ../shared")
def test_runs_of_a_real_profile() -> None:
    trace = read_host(REAL / "offload" / "tpu.xplane.pb")
    runs = find_runs(trace)
    with (REAL / "reference" / "calls.csv").open() as file:
        expected = {
            (row["device_ordinal"], row["run_id"]): (
                row["program"],
                row["function"],
                float(row["call_start_ms"]),
                row["call"],
            )
            for row in csv.DictReader(file)
            if row["file"] == "A" and row["run_id"]
        }
    assert len(runs) == len(expected) == 414
    launch_of_call: dict[str, set[int]] = {}
    for at in range(len(runs)):
        chip_number = trace.planes[runs.plane[at]].name.rpartition(":")[2]
        program, function, start_ms, number = expected[chip_number, str(runs.run_id[at])]
        assert module_name(runs.names[runs.name[at]]) == program
        assert trace.names[trace.name[runs.call[at]]] == f"PjitFunction({function})"
        assert trace.start_ps[runs.call[at]] / 1e9 == pytest.approx(start_ms, abs=1e-6)
        launch_of_call.setdefault(number, set()).add(int(runs.launch[at]))
    assert len(launch_of_call) == 105
    assert all(len(launches) == 1 for launches in launch_of_call.values())


def test_ops_are_linked_to_what_enqueued_the_run_around_them(tmp_path: Path) -> None:
    """Two runs of chip 1; an op between them is of no run, and the run of chip 0 has no op."""
    ops = line("XLA Ops", event("a", 100, 2), event("b", 104, 1), event("c", 107, 1), event("a", 110, 5), id=3)
    runs = line("XLA Modules", event("jit_f(7)", 100, 5, run_id=1), event("jit_f(7)", 110, 5, run_id=2), id=2)
    queue = [event("DoEnqueueProgram", 10 * id, 2, device_ordinal=1, run_id=id) for id in (1, 2)]
    trace = trace_of(
        tmp_path, chip(0, event("jit_f(7)", 100, 5, run_id=1)), plane("/device:TPU:1", runs, ops), host(queue=queue)
    )
    rows = np.flatnonzero([trace.lines[line].name == "XLA Ops" for line in trace.line_of])
    launched = enqueue_links(trace, rows).of(rows)
    assert [trace.start_ps[row] // US if row >= 0 else None for row in launched.tolist()] == [10, 10, None, 20]


def test_waits_at_barriers_are_those_of_the_run_around_them(tmp_path: Path) -> None:
    marks = [event("barrier-cores", 100, 3), event("dependency-wait", 103, 9), event("barrier-cores", 140, 1)]
    runs = line("XLA Modules", event("jit_f(7)", 100, 20), event("jit_f(7)", 120, 5), id=2)
    trace = trace_of(tmp_path, plane("/device:TPU:0", runs, line("XLA TraceMe", *marks, id=6)))
    assert barrier_waits(trace, find_runs(trace)).tolist() == [3 * US, 0]


@pytest.mark.parametrize(
    ("kind", "starts", "is_same"),
    [
        (14, (1, 11, 21), True),
        (14, (1, 11, 25), False),  # the last call ends after the event that makes it
        (7, (1, 11, 21), False),  # flows of this type lead to other threads
    ],
)
def test_a_thread_that_two_libraries_record(
    kind: int, starts: tuple[int, ...], tmp_path: Path, *, is_same: bool
) -> None:
    python = [event("linkage", 10 * nth, 8, _p=nth, _pt=kind) for nth in range(3)]
    library = [event("Execute", start, 6, _c=nth, _ct=kind) for nth, start in enumerate(starts)]
    trace = trace_of(tmp_path, chip(0, event("jit_f(7)", 100, 5)), host(python=python, main=library))
    same = {one.name: other.name for one, other in recorded_twice(trace).items()}
    assert same == ({"main": "python"} if is_same else {})


# --- which chips of a TPU a trace has, and on which its main program runs ---


@pytest.mark.parametrize("large_ids", [True, False])
def test_chips_of_the_main_program_that_are_on_another_host(large_ids: bool, tmp_path: Path) -> None:
    chips = known(find_chips(read_back(tmp_path, offload_tpu(Offload(large_ids=large_ids)))))
    assert chips == TpuChips(2, (2, 3), True, "jit_f", (0, 1, 2, 3))
    assert (chips.missing, chips.noun) == (2, "chip")
    assert chips.sentence.startswith("the profile has only 2 of the 4 chips of jit_f; the others (0 to 1) are on ")


def test_hosts_that_have_all_chips_together(tmp_path: Path) -> None:
    second = find_chips(read_back(tmp_path, offload_tpu()))
    whole = known(join_chips([TpuChips(2, (0, 1), True, "jit_f", (0, 1, 2, 3)), second, None]))
    assert (whole.recorded, whole.numbers, whole.missing, whole.sentence) == (4, (0, 1, 2, 3), 0, "")
    assert join_chips([None]) is None


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ([field(5, 0) + field(6, 0), field(5, 0) + field(6, 1)], ((0, 1), False)),  # two cores of a chip
        ([b"", b""], ((), True)),  # the same number twice says nothing
        ([b"\xff\xff", b"\x0a\x01x"], ((), True)),
    ],
)
def test_planes_say_which_core_of_which_chip_they_are(
    details: list[bytes], expected: tuple[tuple[int, ...], bool], tmp_path: Path
) -> None:
    cores = [
        plane(f"/device:TPU:{at}", line("XLA Modules", event("jit_f(9)", 0, 1)), stats={"core_details": message(each)})
        for at, each in enumerate(details)
    ]
    chips = find_chips(trace_of(tmp_path, *cores))
    numbers, are_chips = expected
    assert chips == TpuChips(2, numbers, are_chips, "jit_f", ())
    assert chips.sentence == ""


def test_without_a_tpu_there_are_no_chips(tmp_path: Path) -> None:
    assert find_chips(trace_of(tmp_path, plane("/host:CPU", line("python", event("a", 0, 1))))) is None


def test_numbers_in_words() -> None:
    assert ranges_of([0, 1, 2, 5, 7, 8]) == "0 to 2, 5, 7 to 8"
    assert ranges_of([]) == ""
