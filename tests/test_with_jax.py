"""Against JAX itself: captures made here by one process. Their numbers of steps are facts; times are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_environment import run_python, with_jax

import tfperf

pytestmark = with_jax
JOB = Path(__file__).parent / "jax_job.py"


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jax")
    run_python(JOB, folder)
    return folder


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("scan", {"train": 6}),
        ("accumulation", {"train": 6}),
        ("two_devices", {"train": 12}),
        ("pmapped", {"train": 11}),
        ("several_functions", {"train": 10}),
        ("donated", {"train": 15}),
        ("evaluation", {"train": 12, "eval": 6}),
        ("marked", {"train": 9}),
        ("without_jit", {"iteration": 8}),
        ("inference", {"inference": 14}),
        ("compile_inside", {"train": 10}),
    ],
)
def test_steps_of_a_program(captures: Path, name: str, kinds: dict[str, int]) -> None:
    steps = tfperf.load(captures / name)["steps"].steps
    assert {kind: steps.kinds.count(kind) for kind in dict.fromkeys(steps.kinds)} == kinds
    assert steps.source == ("markers" if name == "marked" else "jitted calls")


@pytest.mark.parametrize(("name", "function"), [("two_devices", "update"), ("pmapped", "_fun")])
def test_the_work_of_two_devices_belongs_to_the_calls(captures: Path, name: str, function: str) -> None:
    functions = tfperf.load(captures / name)["functions"].jitted.functions
    (found,) = [each for each in functions if each.computes == "gradients"]
    assert found.name == function
    assert found.work_ps


def test_a_job_that_serves_its_profiler_is_captured_from_outside(captures: Path) -> None:
    steps = tfperf.load(captures / "served")["steps"].steps
    assert {*steps.kinds} == {"train"}
    assert (steps.source, len(steps) > 1) == ("jitted calls", True)


def test_a_scan_says_how_many_steps_a_call_has(captures: Path) -> None:
    assert tfperf.load(captures / "scan")["steps"].steps.notes[0] == "Each call of scan runs its loop 3 times."


def test_markers_keep_their_numbers(captures: Path) -> None:
    assert tfperf.load(captures / "marked")["steps"].steps.numbers.tolist() == list(range(100, 109))


def test_steps_that_compile_are_flagged(captures: Path) -> None:
    flags = tfperf.load(captures / "compile_inside")["steps"].steps.flags
    assert [step for step, flag in enumerate(flags) if flag == "retrace"] == [0, 5]
