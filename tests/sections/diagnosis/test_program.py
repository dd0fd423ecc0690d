"""The API of a program, and when its thread is in no call."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, host, results_of, trace_of

from tfperf.sections.diagnosis.program import Program, ProgramTimes, combine, pace_setter


def program(tmp_path: Path, *names: str) -> Program:
    """Return the program of two steps of 100 us whose call, of 60 us, has such a name."""
    events = []
    for n in range(4):
        events.append(event("train", 100 * n, 100, step_num=n))
        events += [event(name, 100 * n + 20, 60) for name in names]
    found: ProgramTimes = results_of(trace_of(tmp_path, host(*events))).hosts[0]["diagnosis"]
    return found.program


@pytest.mark.parametrize(
    ("name", "api"),
    [
        ("train_function", "keras"),
        ("one_step_on_data", "keras"),
        ("__inference_multi_step_on_iterator_1234", "keras"),
        ("train_step", "tensorflow"),
        ("my_train_function_of_mine", "tensorflow"),
        ("PjitFunction(step)", "jax"),
        ("jit_train_step(12)", "jax"),
        ("jitter", "tensorflow"),
    ],
)
def test_the_api_is_told_by_the_functions_that_are_called(tmp_path: Path, name: str, api: str) -> None:
    assert program(tmp_path, name).api == api


def test_time_outside_calls_is_that_of_the_thread_that_calls(tmp_path: Path) -> None:
    assert program(tmp_path, "EagerExecute").outside_calls_percent == pytest.approx(40.0)


def test_without_recorded_calls_nobody_knows(tmp_path: Path) -> None:
    assert program(tmp_path, "MatMul:MatMul").outside_calls_percent is None


def test_hosts_of_one_job_run_the_same_program() -> None:
    programs = [
        Program(api="keras", outside_calls_percent=10.0),
        Program(api="keras"),
        Program(api="tensorflow", outside_calls_percent=30.0),
    ]
    assert combine(programs) == Program(api="keras", outside_calls_percent=20.0)


def test_ops_and_collectives_are_told_from_what_runs_them(tmp_path: Path) -> None:
    found = program(tmp_path, "CollectiveReduceV2:CollectiveReduceV2", "CollectiveExecutor::RunClosure")
    assert found.collective_percent == pytest.approx(60.0)
    assert program(tmp_path, "MatMul:MatMul").op_percent == pytest.approx(60.0)
    assert program(tmp_path, "ThunkExecutor::Execute").op_percent == pytest.approx(60.0)
    assert program(tmp_path, "ExecutorState::Process").op_percent is None


def test_the_host_that_waits_least_sets_the_pace() -> None:
    def waiting(*shares: float) -> list[Program]:
        return [Program(api="keras", collective_percent=share) for share in shares]

    assert pace_setter(waiting(90.0, 10.0, 80.0)) == 1
    assert pace_setter(waiting(90.0, 0.0)) is None, "a host that does not take part sets no pace"
    assert pace_setter(waiting(50.0)) is None
