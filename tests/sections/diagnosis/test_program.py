"""The API of a program, when its thread is in no call, and how it spends the steps of a TPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, event, host, known, line, marks, plane, repeat, result_of
from jax_builders import call

from tfperf.sections.diagnosis.program import HostLoop, Program, ProgramTimes, combine, pace_setter


def program(tmp_path: Path, *names: str) -> Program:
    """Return the program of two steps of 100 us whose call, of 60 us, has such a name."""
    calls = repeat(4, *(event(name, 20, 60) for name in names))
    found: ProgramTimes = result_of(tmp_path, "diagnosis", host(*marks(4), *calls))
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
    assert program(tmp_path, "MatMul:MatMul").outside_calls_percent is None, "no call is recorded"


def test_hosts_of_one_job_run_the_same_program() -> None:
    of_keras = Program(api="keras", outside_calls_percent=10.0), Program(api="keras")
    programs = [*of_keras, Program(api="tensorflow", outside_calls_percent=30.0)]
    assert combine(programs) == Program(api="keras", outside_calls_percent=20.0)


def test_ops_and_collectives_are_told_from_what_runs_them(tmp_path: Path) -> None:
    found = program(tmp_path, "CollectiveReduceV2:CollectiveReduceV2", "CollectiveExecutor::RunClosure")
    assert found.collective_percent == pytest.approx(60.0)
    assert program(tmp_path, "MatMul:MatMul").op_percent == pytest.approx(60.0)
    assert program(tmp_path, "ThunkExecutor::Execute").op_percent == pytest.approx(60.0)
    assert program(tmp_path, "ExecutorState::Process").op_percent is None
    assert program(tmp_path, "EagerService:Enqueue").op_percent is None, "a request of another process"


def test_the_host_that_waits_least_sets_the_pace() -> None:
    def waiting(*shares: float) -> list[Program]:
        return [Program(api="keras", collective_percent=share) for share in shares]

    assert pace_setter(waiting(90.0, 10.0, 80.0)) == 1
    assert pace_setter(waiting(90.0, 0.0)) is None, "a host that does not take part sets no pace"
    assert pace_setter(waiting(50.0)) is None


LOOP_US, CALL_US, WAIT_US = 100, 10, 70


def loop_of(tmp_path: Path, *waits: Event, ahead: bool = False) -> HostLoop | None:
    """What the thread does in four steps: a call, and what waits, by times from the start of a step."""
    python, runs = [], []
    for nth in range(4):
        begin = nth if ahead else LOOP_US * nth
        python += call(
            "f", begin, 0.5 if ahead else CALL_US, event("DoEnqueueProgram", begin + 0.1, 0.1, _p=nth, _pt=12)
        )
        python += [event(each.name, begin + each.start_us, each.duration_us) for each in waits]
        runs.append(event("jit_f(1)", LOOP_US * nth + CALL_US, 60, _c=nth, _ct=12))
    chip = plane("/device:TPU:0", line("XLA Modules", *runs))
    found: ProgramTimes = result_of(tmp_path, "diagnosis", chip, host(*python))
    return found.program.host_loop


def test_calling_and_waiting_are_shares_of_the_steps(tmp_path: Path) -> None:
    loop = known(loop_of(tmp_path, event("np.asarray(jax.Array)", CALL_US, WAIT_US)))
    assert (loop.calling, loop.waiting) == pytest.approx((10, 70))
    assert (loop.function, loop.waits_by, loop.place) == ("f", "np.asarray(jax.Array)", "")
    assert (loop.late(80), loop.calling_share) == pytest.approx((10, 1 / 3))


def test_the_function_that_waits_is_the_first_one_that_is_not_of_jax(tmp_path: Path) -> None:
    frames = (
        event("$bench.py:12 measure", CALL_US, WAIT_US),
        event("$api.py:2794 block_until_ready", CALL_US + 1, WAIT_US - 2),
        event("$array.py:655 block_until_ready", CALL_US + 2, WAIT_US - 4),
    )
    loop = known(loop_of(tmp_path, *frames))
    assert (loop.waits_by, loop.place) == ("block_until_ready", "in bench.py:12 measure")
    assert loop.waiting == pytest.approx(WAIT_US - 2)


def test_a_program_that_runs_ahead_has_no_such_loop(tmp_path: Path) -> None:
    assert loop_of(tmp_path, ahead=True) is None
    never_waits = known(loop_of(tmp_path))
    assert (never_waits.waiting, never_waits.waits_by) == (0.0, "")
