"""Sequences of calls: which of them make a step? Gradients are G, forward programs F, all others small letters."""

from __future__ import annotations

import csv
from pathlib import Path

import hlo_builders
import pytest
from builders import Event, event, line, plane, trace_of
from jax_builders import FORWARD, GRADIENT, OTHER, Instructions, call, jax_trace, program, programs, run
from places import SHARED

from tfperf.trace.host_trace import HostTrace
from tfperf.trace.read import read_host
from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.steps import PARTIAL, RETRACE, Steps

TRACES = SHARED / "traces"
US = 1_000_000


def called(folder: Path, text: str) -> HostTrace:
    """One call of 5 us every 10 us for each letter, each done when it returns."""
    keys = {letter: number for number, letter in enumerate(dict.fromkeys(text), 1)}
    classes: dict[str, Instructions] = {"G": (GRADIENT,), "F": (FORWARD,)}
    modules = {key: (f"jit_{letter}", classes.get(letter, (OTHER,))) for letter, key in keys.items()}
    python, worker = [], []
    for at, letter in enumerate(text):
        python += call(letter, 10 * at, 5)
        worker += run(at, keys[letter], 10 * at + 1, 3)
    return jax_trace(folder, modules, python, worker)


def summary(steps: Steps) -> tuple[dict[str, int], str]:
    return {kind: steps.kinds.count(kind) for kind in sorted(set(steps.kinds))}, steps.confidence


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("G" * 8, ({"train": 8}, "high")),
        ("abG" * 5, ({"train": 5}, "high")),
        ("GaGbGbz" * 4, ({"train": 4}, "high")),  # micro-batches, then an update
        ("G" * 6 + "F" * 4, ({"eval": 4, "train": 6}, "high")),
        ("GGGGF" * 4, ({"eval": 4, "train": 16}, "high")),
        ("GGGGs" * 4, ({"train": 4}, "high")),  # four micro-batches, then an update
        ("FG" * 6, ({"train": 6}, "high")),  # a teacher, or a policy: part of each step
        ("aFG" * 6, ({"train": 6}, "high")),
        ("GabGGaccG", ({"train": 4}, "medium")),  # nothing repeats: each gradient is a step
        ("F" * 7, ({"iteration": 7}, "medium")),
        ("aFb" * 4, ({"iteration": 4}, "medium")),
        ("FabFF", ({"iteration": 3}, "low")),
    ],
)
def test_calls_make_steps(tmp_path: Path, text: str, expected: tuple[dict[str, int], str]) -> None:
    steps = find_steps(called(tmp_path, text))
    assert steps.source == "jitted calls"
    assert summary(steps) == expected


@pytest.mark.parametrize(("dims", "count"), [((), 16), ((8,), 4)])
def test_a_scalar_that_is_computed_now_and_then_is_a_report_and_no_update(
    tmp_path: Path, dims: tuple[int, ...], count: int
) -> None:
    """Four calls that compute gradients, then one of another function, four times."""
    root = hlo_builders.instruction(1, "add", "add", hlo_builders.shape(hlo_builders.F32, *dims))
    other = hlo_builders.program(hlo_builders.computation("main", root))
    known = {"jit_G(1)": {"program_id": 1, "Hlo Proto": program("jit_G", GRADIENT)}}
    known["jit_step(2)"] = {"program_id": 2, "Hlo Proto": other}
    python, worker = [], []
    for at, letter in enumerate("GGGGs" * 4):
        python += call("G" if letter == "G" else "step", 10 * at, 5)
        worker += run(at, 1 if letter == "G" else 2, 10 * at + 1, 3)
    host = plane("/host:CPU", line("python", *python, id=1), line("worker", *worker, id=2))
    steps = find_steps(trace_of(tmp_path, plane("/host:metadata", name_stats=known), host))
    assert steps.kinds == ("train",) * count


def test_a_thread_that_evaluates_is_a_loop_of_its_own(tmp_path: Path) -> None:
    modules: dict[int, tuple[str, Instructions]] = {1: ("jit_G", (GRADIENT,)), 2: ("jit_F", (FORWARD,))}
    training = [made for n in range(8) for made in call("G", 100 * n, 60)]
    evaluating = [made for n in range(11) for made in call("F", 70 * n + 13, 60)]
    threads = plane("/host:CPU", line("python", *training, id=1), line("python", *evaluating, id=2))
    steps = find_steps(trace_of(tmp_path, programs(modules), threads))
    assert (steps.kinds, (steps.duration_ps[:-1] / US).tolist()) == (("train",) * 8, [100] * 7)
    assert "(PjitFunction(F): 11 times, median 0.06 ms)" in steps.other_loops[0]


def test_a_program_that_does_not_train_has_iterations(tmp_path: Path) -> None:
    steps = find_steps(called(tmp_path, "aF" * 4))
    assert steps.names == ("iteration 0", "iteration 1", "iteration 2", "iteration 3")
    assert "no program computes gradients, so these are not training steps" in steps.explanation


def test_steps_run_from_call_to_call_where_the_program_waits(tmp_path: Path) -> None:
    steps = find_steps(called(tmp_path, "aG" * 4))
    assert (steps.start_ps / US).tolist() == [0, 20, 40, 60]
    assert (steps.duration_ps / US).tolist() == [20, 20, 20, 15]
    assert "from call to call" in steps.explanation


def asynchronous(*marks: Event) -> tuple[list[Event], list[Event]]:
    """Six calls within 60 us, and runs of 100 us each."""
    python, worker = [*marks], []
    for i in range(6):
        python += call("G", 10 * i, 5)
        worker += run(i, 1, 8 + 100 * i, 100)
    return python, worker


def test_a_step_is_not_only_the_dispatch(tmp_path: Path) -> None:
    steps = find_steps(jax_trace(tmp_path, {1: ("jit_G", (GRADIENT,))}, *asynchronous()))
    assert (steps.duration_ps / US).tolist() == [100.0] * 6
    assert "those of the device's work, since calls return before it is done" in steps.explanation


def test_nor_is_a_marked_one(tmp_path: Path) -> None:
    marks = [event("train", 10 * i - 1, 7, step_num=40 + i) for i in range(6)]
    steps = find_steps(jax_trace(tmp_path, {1: ("jit_G", (GRADIENT,))}, *asynchronous(*marks)))
    assert steps.source == "markers"
    assert steps.numbers.tolist() == [40, 41, 42, 43, 44, 45]
    assert (steps.duration_ps / US).tolist() == [100.0] * 6


def test_work_that_the_capture_does_not_show_leaves_a_part_of_a_step(tmp_path: Path) -> None:
    python, worker = asynchronous()
    steps = find_steps(jax_trace(tmp_path, {1: ("jit_G", (GRADIENT,))}, python, worker[:-2]))
    assert steps.flags == ("",) * 5 + (PARTIAL,)


def test_a_turn_that_is_cut_off_is_partial_and_one_that_compiles_is_flagged(tmp_path: Path) -> None:
    assert find_steps(called(tmp_path, "abG" * 4 + "a")).flags == ("",) * 4 + (PARTIAL,)
    python = [*call("G", 0, 40, event("backend_compile_and_load", 2, 30))]
    for i in range(1, 5):
        python += call("G", 50 * i, 5)
    steps = find_steps(jax_trace(tmp_path, {1: ("jit_G", (GRADIENT,))}, python, []))
    assert steps.flags == (RETRACE, "", "", "", "")


@pytest.mark.skipif(not (TRACES / "xla_reference").is_dir(), reason="the reference traces are not here")
def test_the_steps_of_the_reference_traces() -> None:
    differ = {}
    for row in csv.DictReader((TRACES / "xla_reference" / "steps.csv").read_text().splitlines()):
        if row["trace"].startswith("tf_"):
            continue
        places = (TRACES / "xla_reference" / "captures" / row["trace"], TRACES / "jax_mi300x" / row["trace"])
        path = next(path for place in places for path in place.glob("*.xplane.pb"))
        steps = find_steps(read_host(path, stats=frozenset()))
        evaluations = steps.kinds.count("eval")
        found = (len(steps) - evaluations, evaluations)
        if found != (int(float(row["steps"])), int(row["evaluations"] or 0)):
            differ[row["trace"]] = found
    assert differ == {}
