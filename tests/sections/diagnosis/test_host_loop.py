"""How the thread of a program on a TPU spends its steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, event, host_of, line, plane, trace_of
from jax_builders import call

from tfperf.sections.diagnosis.program import HostLoop

STEP_US, CALL_US, WAIT_US = 100, 10, 70


def loop_of(tmp_path: Path, *waits: Event, ahead: bool = False) -> HostLoop | None:
    """What the thread does in four steps: a call, and what waits, by times from the start of a step."""
    python, runs = [], []
    for nth in range(4):
        begin = nth if ahead else STEP_US * nth
        python += call(
            "f", begin, 0.5 if ahead else CALL_US, event("DoEnqueueProgram", begin + 0.1, 0.1, _p=nth, _pt=12)
        )
        python += [event(each.name, begin + each.start_us, each.duration_us) for each in waits]
        runs.append(event("jit_f(1)", STEP_US * nth + CALL_US, 60, _c=nth, _ct=12))
    chip = plane("/device:TPU:0", line("XLA Modules", *runs))
    trace = trace_of(tmp_path, chip, plane("/host:CPU", line("python", *python)))
    loop: HostLoop | None = host_of(trace, "diagnosis")["diagnosis"].program.host_loop
    return loop


def test_calling_and_waiting_are_shares_of_the_steps(tmp_path: Path) -> None:
    loop = loop_of(tmp_path, event("np.asarray(jax.Array)", CALL_US, WAIT_US))
    assert loop is not None
    assert (loop.calling, loop.waiting) == pytest.approx((10, 70))
    assert (loop.function, loop.waits_by, loop.place) == ("f", "np.asarray(jax.Array)", "")
    assert (loop.late(80), loop.calling_share) == pytest.approx((10, 1 / 3))


def test_the_function_that_waits_is_the_first_one_that_is_not_of_jax(tmp_path: Path) -> None:
    frames = (
        event("$bench.py:12 measure", CALL_US, WAIT_US),
        event("$api.py:2794 block_until_ready", CALL_US + 1, WAIT_US - 2),
        event("$array.py:655 block_until_ready", CALL_US + 2, WAIT_US - 4),
    )
    loop = loop_of(tmp_path, *frames)
    assert loop is not None
    assert (loop.waits_by, loop.place) == ("block_until_ready", "in bench.py:12 measure")
    assert loop.waiting == pytest.approx(WAIT_US - 2)


def test_a_program_that_runs_ahead_has_no_such_loop(tmp_path: Path) -> None:
    assert loop_of(tmp_path, ahead=True) is None


def test_a_thread_that_never_waits(tmp_path: Path) -> None:
    loop = loop_of(tmp_path)
    assert loop is not None
    assert (loop.waiting, loop.waits_by) == (0.0, "")
