from __future__ import annotations

from pathlib import Path

from builders import event
from jax_builders import GRADIENT, call, jax_trace

from tfperf.trace.host_trace import HostTrace
from tfperf.trace.jax import find_jax_calls, loop_notes


def looped(folder: Path, *times: int, op: str = "dot_general") -> HostTrace:
    """A call for each number: a program with one op before its loop, and one inside that runs so often."""
    python, worker = [], []
    for number, count in enumerate(times):
        at = 100.0 * number
        python += call("scan_steps", at, 90)
        ids = {"program_id": 3, "run_id": number}
        worker.append(event("copy.1", at + 1, 4, hlo_op="copy.1", **ids))
        worker += [event("dot.2", at + 10 + 10 * i, 5, hlo_op="dot.2", **ids) for i in range(count)]
    made = (GRADIENT, ("copy", ""), ("dot", f"jit(scan_steps)/while/body/{op}"))
    return jax_trace(folder, {3: ("jit_scan_steps", made)}, python, worker)


def notes(trace: HostTrace) -> tuple[str, ...]:
    calls = find_jax_calls(trace)
    assert calls is not None
    return loop_notes(trace, calls)


def test_a_loop_is_counted_by_its_ops(tmp_path: Path) -> None:
    assert notes(looped(tmp_path, 4, 4)) == ("Each call of scan_steps runs its loop 4 times.",)


def test_one_run_may_be_cut_off(tmp_path: Path) -> None:
    assert notes(looped(tmp_path, 2, 4, 4, 4)) == ("Each call of scan_steps runs its loop 4 times.",)


def test_nothing_is_said_where_runs_differ_or_of_loops_that_make_random_numbers(tmp_path: Path) -> None:
    assert notes(looped(tmp_path, 4, 3)) == ()
    assert notes(looped(tmp_path, 4, 4, op="threefry2x32")) == ()
