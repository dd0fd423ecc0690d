"""Causes of TPUs that wait for their host."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, event, line, plane, results_of, trace_of
from jax_builders import OTHER, call, programs
from tpu_twin import tpu_twin

from tfperf.sections.diagnosis.cause import Cause, Diagnosis, Range
from tfperf.trace.read import read_host

STEPS = 6


def diagnosis(tmp_path: Path, *, call_us: float, run_us: float, wait_us: float = 0, python_us: float = 0) -> Diagnosis:
    """Of steps that consist of a call, waiting, and Python; the run begins with the end of the call."""
    python, runs, ops = [], list[Event](), list[Event]()
    every = call_us + wait_us + python_us
    for nth in range(STEPS):
        begin, start = every * nth, every * nth + call_us
        python += call("f", begin, call_us, event("DoEnqueueProgram", begin + 1, 1, _p=nth, _pt=12))
        python += [event("np.asarray(jax.Array)", start, wait_us)] if wait_us else []
        runs.append(event("jit_f(1)", start, run_us, _c=nth, _ct=12))
        ops.append(event("fusion.1", start, run_us))
    chip = plane(
        "/device:TPU:0",
        line("XLA Modules", *runs, id=2),
        line("XLA Ops", *ops, id=3),
        name_stats={"fusion.1": {"hlo_category": "loop fusion"}},
    )
    known = programs({1: ("jit_f", (OTHER, OTHER))})
    found: Diagnosis = results_of(trace_of(tmp_path, chip, plane("/host:CPU", line("python", *python)), known))[
        "diagnosis"
    ]
    return found


def causes_of(found: Diagnosis) -> dict[str, Cause]:
    return {cause.code: cause for cause in found.causes if cause.code != "warm_up"}


def percent(cause: Cause) -> float:
    assert isinstance(cause.cost_percent, Range)
    return cause.cost_percent.high


def test_waiting_costs_what_a_step_takes_beyond_the_longer_of_its_run_and_the_rest_of_the_host(tmp_path: Path) -> None:
    """Of 100 us, 30 are the run, and 20 calls and Python: without waiting, a step takes 30."""
    found = causes_of(diagnosis(tmp_path, call_us=10, wait_us=80, python_us=10, run_us=30))
    assert found.keys() == {"waiting_for_results"}
    cause = found["waiting_for_results"]
    assert percent(cause) == pytest.approx(70)
    assert cause.detail == "np.asarray(jax.Array); the TPU is idle for 0.070 ms of 0.100 ms"
    (action,) = cause.actions
    assert action.step_ms is not None
    assert (action.step_ms.low, action.step_ms.high) == pytest.approx((0.030, 0.037))
    assert "a call takes 0.010 ms" in action.assumption


def test_what_waiting_does_not_hide_is_the_time_of_calls_and_of_python(tmp_path: Path) -> None:
    """Of 100 us, 60 are the host's own: 40 in calls and 20 in Python. The TPU works for 15 and could wait for 45."""
    found = causes_of(diagnosis(tmp_path, call_us=40, wait_us=40, python_us=20, run_us=15))
    costs = {code: percent(cause) for code, cause in found.items()}
    assert costs == pytest.approx({"waiting_for_results": 40, "launch_bound": 30, "python_between_steps": 15})
    assert found["launch_bound"].detail == "calling f takes 0.040 ms on the host, and the TPU 0.015 ms"
    assert [action.code for action in found["launch_bound"].actions] == ["loop_in_function", "larger_batch"]


def test_a_program_that_does_not_wait_may_still_call_too_late(tmp_path: Path) -> None:
    found = causes_of(diagnosis(tmp_path, call_us=70, python_us=30, run_us=20))
    assert {code: percent(cause) for code, cause in found.items()} == pytest.approx(
        {"launch_bound": 56, "python_between_steps": 24}
    )


def test_a_busy_tpu_waits_for_nobody(tmp_path: Path) -> None:
    assert not causes_of(diagnosis(tmp_path, call_us=1, wait_us=99, run_us=98.5)).keys() - {"memory_bound"}


def test_such_causes_are_judged_on_a_tpu_only_where_calls_come_when_it_is_done(tmp_path: Path) -> None:
    codes = {"waiting_for_results", "launch_bound", "python_between_steps"}
    assert not codes & diagnosis(tmp_path, call_us=10, wait_us=80, run_us=30).unjudged.keys()
    ahead = [each for nth in range(6) for each in call("f", nth, 0.5)]
    runs = [event("jit_f(1)", 100 + 100 * nth, 80) for nth in range(6)]
    trace = trace_of(
        tmp_path, plane("/device:TPU:0", line("XLA Modules", *runs)), plane("/host:CPU", line("python", *ahead))
    )
    assert codes <= results_of(trace)["diagnosis"].unjudged.keys()


def test_the_twin_waits_for_each_result(tmp_path: Path) -> None:
    path = tmp_path / "twin.xplane.pb"
    path.write_bytes(tpu_twin())
    found: Diagnosis = results_of(read_host(path))["diagnosis"]
    assert found.headline == (
        "Waiting for each result before the next call takes 66.0% of the step: block_until_ready after the call in "
        "pallas_matmul.py:66; the TPU is idle for 0.147 ms of 0.223 ms."
    )
    (action,) = found.causes[0].actions
    assert action.step_ms is not None
    assert action.step_ms.low == pytest.approx(0.076, abs=5e-4)
    assert "a call takes 0.034 ms" in action.assumption
    warm_up = next(cause for cause in found.causes if cause.code == "warm_up")
    assert warm_up.actions[0].assumption == "later calls find their program compiled and loaded"
