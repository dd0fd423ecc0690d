"""Steps from the runs of programs on TPU chips."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import Event, Plane, event, line, plane, read_back, trace_of
from jax_builders import FORWARD, GRADIENT, OTHER, Instructions, call, programs
from places import SHARED
from synthetic_tpu import JUMP, Offload, offload_tpu
from tpu_twin import STEPS_US, tpu_twin

from tfperf.trace.host_trace import HostTrace
from tfperf.trace.read import read_host
from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.steps import Steps
from tfperf.trace.steps.tpu_steps import core_steps

US, MS = 1_000_000, 1_000_000_000
REAL = SHARED / "traces" / "tpu_v6e"


def chip(*runs: tuple[str, float, float], number: int = 0) -> Plane:
    return plane(f"/device:TPU:{number}", line("XLA Modules", *(event(*each) for each in runs)))


def linked(runs: Sequence[tuple[str, float, float]], called: Sequence[float]) -> tuple[Plane, Plane]:
    """A chip, and a host that calls each run at a time of its own for 5 us."""
    made = [event(*run, _c=nth, _ct=12) for nth, run in enumerate(runs)]
    calls = [
        each
        for nth, ((name, _, _), at) in enumerate(zip(runs, called, strict=True))
        for each in call(name[4:-3], at, 5, event("DoEnqueueProgram", at + 1, 1, _p=nth, _pt=12))
    ]
    return plane("/device:TPU:0", line("XLA Modules", *made)), plane("/host:CPU", line("python", *calls))


def beside(threads: Plane, *events: Event) -> Plane:
    """The thread of a host with more events."""
    both = [*threads.lines[0].events, *events]
    return plane("/host:CPU", line("python", *sorted(both, key=lambda each: (each.start_us, -each.duration_us))))


def windows(steps: Steps) -> list[tuple[float, float]]:
    return [*zip((steps.start_ps / US).tolist(), (steps.end_ps / US).tolist(), strict=True)]


def of_cores(trace: HostTrace, steps: Steps) -> list[list[tuple[float, float]]]:
    found = core_steps(trace, steps)
    return [[*zip((each.start_ps / US).tolist(), (each.end_ps / US).tolist(), strict=True)] for each in found]


def test_a_step_lasts_from_run_to_run_on_each_chip_and_the_slowest_one_sets_the_steps(tmp_path: Path) -> None:
    runs = [("jit_f(1)", 100 * nth, 80) for nth in range(3)]
    slower = [("jit_f(1)", 5 + 101 * nth, 90) for nth in range(3)]
    trace = trace_of(tmp_path, chip(*runs), chip(*slower, number=1))
    steps = find_steps(trace)
    assert (steps.source, set(steps.flags)) == ("program runs", {""})
    assert windows(steps) == [(5, 106), (106, 207), (207, 297)]
    assert of_cores(trace, steps) == [[(0, 100), (100, 200), (200, 280)], [(5, 106), (106, 207), (207, 297)]]


def test_runs_that_not_all_chips_have_are_no_steps(tmp_path: Path) -> None:
    runs = [("jit_f(1)", 100 * nth, 80) for nth in range(4)]
    trace = trace_of(tmp_path, chip(*runs), chip(*runs[1:], number=1))
    steps = find_steps(trace)
    assert windows(steps) == [(100, 200), (200, 300), (300, 380)]
    assert "1 step of 4 did not run on all TPU cores within the capture (omitted)." in steps.notes


def test_a_chip_that_runs_another_program_has_the_windows_of_the_steps(tmp_path: Path) -> None:
    runs = [("jit_f(1)", 100 * nth, 80) for nth in range(3)]
    trace = trace_of(tmp_path, chip(*runs), chip(("jit_g(2)", 50, 60), number=1))
    assert of_cores(trace, find_steps(trace)) == [[(0, 100), (100, 200), (200, 280)]] * 2


def test_a_pause_between_runs_is_in_no_step_of_any_chip(tmp_path: Path) -> None:
    runs = [("jit_f(1)", at, 80) for at in (0, 100, 1200, 1300)]
    trace = trace_of(tmp_path, chip(*runs), chip(*((name, at + 5, us) for name, at, us in runs), number=1))
    steps = find_steps(trace)
    assert windows(steps) == [(0, 100), (100, 180), (1200, 1300), (1300, 1380)]
    assert of_cores(trace, steps)[1] == [(5, 105), (105, 185), (1205, 1305), (1305, 1385)]


def known(**made: Instructions) -> Plane:
    return programs({nth: (f"jit_{name}", ops) for nth, (name, ops) in enumerate(made.items(), 1)})


def test_programs_that_take_turns_are_steps_and_those_that_compute_forward_are_evaluation(tmp_path: Path) -> None:
    names = ["jit_grads(1)", "jit_update(2)"] * 4 + ["jit_loss(3)"] * 2 + ["jit_grads(1)", "jit_update(2)"] * 4
    runs = [(name, 20 * nth, 15) for nth, name in enumerate(names)]
    made = known(grads=(GRADIENT,), update=(OTHER, OTHER), loss=(FORWARD,))
    steps = find_steps(trace_of(tmp_path, chip(*runs), made))
    assert steps.kinds == ("train",) * 4 + ("eval",) * 2 + ("train",) * 4
    assert windows(steps)[:2] == [(0, 40), (40, 80)]
    assert windows(steps)[4] == (160, 180)
    assert "runs of jit_grads (program computes gradients), 2 runs per step" in steps.explanation
    assert steps.confidence == "high"


def test_set_up_before_the_steps_is_in_none(tmp_path: Path) -> None:
    runs = [("jit_psum(2)", 0, 300), *(("jit_f(1)", 400 + 100 * nth, 80) for nth in range(4))]
    steps = find_steps(trace_of(tmp_path, chip(*runs)))
    assert windows(steps)[0] == (400, 500)
    assert "4 iterations of jit_f;" in steps.explanation


def test_a_long_program_that_runs_once_is_not_the_main_one(tmp_path: Path) -> None:
    runs = [("jit_psum(2)", 0, 5000), *(("jit_f(1)", 6000 + 100 * nth, 80) for nth in range(4))]
    chips = [chip(*runs, number=number) for number in (0, 1)]
    assert [end - start for start, end in windows(find_steps(trace_of(tmp_path, *chips)))] == [100, 100, 100, 80]


def test_a_program_that_runs_ahead_has_steps_from_run_to_run(tmp_path: Path) -> None:
    runs = [("jit_f(1)", 100 * nth + 50, 99) for nth in range(4)]
    steps = find_steps(trace_of(tmp_path, *linked(runs, [0, 10, 20, 30]), programs({})))
    assert windows(steps) == [(50, 150), (150, 250), (250, 350), (350, 449)]
    assert steps.explanation.endswith("times are from run to run on the TPU")


def test_a_program_that_waits_has_steps_from_call_to_call(tmp_path: Path) -> None:
    """The last one lasts until nothing waits any more, as far as that begins before the run is over."""
    runs = [("jit_f(1)", 100 * nth + 50, 20) for nth in range(4)]
    made, threads = linked(runs, [0, 100, 200, 300])
    waits = [event("block_until_ready", 100 * nth + 6, 80) for nth in range(4)]
    read_later = event("np.asarray(jax.Array)", 395, 1000)
    steps = find_steps(trace_of(tmp_path, made, beside(threads, *waits, read_later), programs({})))
    assert windows(steps) == [(0, 100), (100, 200), (200, 300), (300, 386)]
    assert steps.flags == ("", "", "", "end estimated")


@pytest.mark.parametrize(("waits", "window"), [(True, (0, 286)), (False, (200, 220))])
def test_a_single_run_is_a_step_from_its_call_only_if_the_program_waits(
    tmp_path: Path, waits: bool, window: tuple[float, float]
) -> None:
    made, threads = linked([("jit_f(1)", 200, 20)], [0])
    awaited = [event("block_until_ready", 6, 280)] * waits
    steps = find_steps(trace_of(tmp_path, made, beside(threads, *awaited), programs({})))
    assert windows(steps) == [window]


def test_a_first_call_among_few_is_cold_and_does_not_count(tmp_path: Path) -> None:
    runs = [("jit_f(1)", at + 20, 20) for at in (0, 300, 400)]
    steps = find_steps(trace_of(tmp_path, *linked(runs, [0, 300, 400]), programs({})))
    assert steps.flags == ("slow first step", "", "end estimated")
    assert steps.averaged.tolist() == [False, True, False]
    assert steps.confidence == "low"


def test_a_step_in_which_the_chip_waits_for_a_compilation_does_not_count(tmp_path: Path) -> None:
    runs = [("jit_f(1)", at, 100) for at in (50, 150, 250, 410, 510, 610)]
    made, threads = linked(runs, [0, 10, 20, 30, 405, 406])
    compiling = beside(threads, event("backend_compile", 340, 60))
    steps = find_steps(trace_of(tmp_path, made, compiling, programs({})))
    assert steps.flags == ("", "", "retrace", "", "", "")


def test_a_run_that_an_end_of_the_capture_cuts_does_not_count(tmp_path: Path) -> None:
    runs = [("jit_f(1)", 60, 30), *(("jit_f(1)", 100 * nth, 90) for nth in range(1, 6)), ("jit_f(1)", 600, 20)]
    assert find_steps(trace_of(tmp_path, chip(*runs))).flags == ("partial", *[""] * 5, "partial")


@pytest.mark.parametrize("pattern", ["jit_f*", "jit_f", "jit_f(1)"])
def test_a_marker_may_be_the_name_of_a_program(tmp_path: Path, pattern: str) -> None:
    runs = [(name, 50 * nth, 40) for nth, name in enumerate(["jit_f(1)", "jit_g(2)"] * 3)]
    steps = find_steps(trace_of(tmp_path, chip(*runs)), pattern)
    assert (steps.source, windows(steps)) == ("markers", [(0, 100), (100, 200), (200, 240)])
    assert steps.kinds == ("step",) * 3
    assert find_steps(trace_of(tmp_path, chip(*runs)), "jit_*").kinds == ("jit_f", "jit_g") * 3


def test_marks_of_a_program_that_runs_ahead_have_the_times_of_their_runs(tmp_path: Path) -> None:
    """A mark may be called for what runs after the capture."""
    runs = [("jit_f(1)", 100 * nth + 50, 99) for nth in range(4)]
    made, threads = linked([*runs, ("jit_f(1)", 9000, 1)], [0, 10, 20, 30, 40])
    made = plane(made.name, line("XLA Modules", *made.lines[0].events[:-1]))
    marks = [event("train", 10 * nth, 8, step_num=nth) for nth in range(5)]
    steps = find_steps(trace_of(tmp_path, made, beside(threads, *marks), programs({})))
    assert steps.source == "markers"
    assert steps.numbers.tolist() == [0, 1, 2, 3]
    assert windows(steps) == [(50, 150), (150, 250), (250, 350), (350, 449)]
    assert "1 step of 5 did not run" in steps.notes[0]


def test_calls_of_another_thread_are_another_loop(tmp_path: Path) -> None:
    trains = [("jit_f(1)", 100 * nth + 50, 60) for nth in range(6)]
    others = [("jit_g(2)", 100 * nth + 115, 20) for nth in range(6)]
    one, two = linked(trains, [100 * nth for nth in range(6)]), linked(others, [100 * nth + 2 for nth in range(6)])
    moved = [
        replace(each, stats={key: value + 50 * (key in ("_c", "_p")) for key, value in each.stats.items()})
        for each in (*two[0].lines[0].events, *two[1].lines[0].events)
    ]
    runs = sorted([*one[0].lines[0].events, *moved[:6]], key=lambda each: each.start_us)
    threads = plane("/host:CPU", line("python", *one[1].lines[0].events, id=1), line("worker", *moved[6:], id=2))
    steps = find_steps(trace_of(tmp_path, plane("/device:TPU:0", line("XLA Modules", *runs)), threads, programs({})))
    assert len(steps) == 6
    assert "6 iterations of jit_f;" in steps.explanation
    assert "(PjitFunction(g): 6 times, median 0.005 ms)" in steps.other_loops[0]


def test_jumps_of_the_clock_of_events_do_not_change_steps(tmp_path: Path) -> None:
    trace = read_back(tmp_path, offload_tpu(Offload(jumps=(JUMP,))))
    steps = find_steps(trace)
    times = np.concatenate([each.end_ps - each.start_ps for each in core_steps(trace, steps)]) / MS
    assert times.tolist() == pytest.approx([800] * 10, abs=0.01)
    (note,) = steps.notes
    assert note.startswith(
        "The first call of f takes 400 ms until its program runs: 99.0 ms to compile it and up to 299 ms"
    )


def test_steps_of_a_program_that_waits_and_whose_chip_seems_early_are_from_call_to_call(tmp_path: Path) -> None:
    steps = find_steps(read_back(tmp_path, tpu_twin()))
    assert (steps.duration_ps / US).tolist() == pytest.approx(STEPS_US, abs=0.05)
    assert steps.flags == ("slow first step", "", "end estimated")


@pytest.mark.skipif(not REAL.exists(), reason="needs ../shared")
@pytest.mark.parametrize("marker", [None, "jit_f*"])
def test_steps_of_a_real_profile(marker: str | None) -> None:
    expected = json.loads((REAL / "reference" / "expected.json").read_text())["A"]["steps"]
    trace = read_host(REAL / "offload" / "tpu.xplane.pb")
    steps = find_steps(trace, marker)
    cores = core_steps(trace, steps)
    by_core = {trace.planes[each.plane].name[8:]: (each.end_ps - each.start_ps) / MS for each in cores}
    assert {name: round(float(times.mean()), 3) for name, times in by_core.items()} == expected["by_core_mean_ms"]
    every = np.concatenate([*by_core.values()])
    assert (len(steps), len(every), set(steps.flags)) == (expected["count"], 400, {""})
    assert [round(float(each), 3) for each in (every.mean(), every.min(), every.max())] == [
        expected[key] for key in ("mean_ms", "min_ms", "max_ms")
    ]
