"""Causes between hosts: who is late, in what, and what the exchange itself takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, gpu, host, logdir_of, marks, repeat, results_of, trace_of
from sections.diagnosis.made import bounds
from sections.hosts.jobs import FETCH, OP, host_of_job, job

import tfperf
from tfperf.analysis.load import Analysis
from tfperf.analysis.registry import AnySection
from tfperf.sections.diagnosis.cause import Cause, Range

ALL: tuple[AnySection, ...] = ("diagnosis",)


def causes(analysis: Analysis) -> dict[str, Cause]:
    return {cause.code: cause for cause in analysis["diagnosis"].causes}


def test_a_host_that_computes_for_longer_is_the_first_cause(tmp_path: Path) -> None:
    """Host b computes for 20 ms more than a in steps of 25 ms."""
    analysis = job(tmp_path, sections=ALL, what=OP, a=[0] * 4, b=[20_000] * 4)
    first = analysis["diagnosis"].causes[0]
    assert (first.code, first.host, first.cost_percent) == ("straggler", "b", Range(80.0, 80.0))
    assert first.detail.endswith(
        "4 of 4 steps; the others wait 20.0 ms per step for it: it spends 20.0 ms more per step on host ops"
    )
    assert first.actions[0].code == "look_at_host"
    assert bounds(first.actions[0].step_ms) == pytest.approx((5.0, 15.0))


def test_slow_input_of_one_host_is_blamed_once(tmp_path: Path) -> None:
    analysis = job(tmp_path, sections=ALL, what=FETCH, a=[0] * 4, b=[20_000] * 4)
    found = causes(analysis)
    first = analysis["diagnosis"].causes[0]
    assert (first.code, first.host, first.cost_percent) == ("input_wait", "b", Range(80.0, 80.0))
    assert first.detail.endswith("b is the last host in 4 of 4 steps; the others wait 20.0 ms per step for it")
    assert found["skewed_input"].cost_percent is None, "input_wait has the cost"
    assert found["skewed_input"].detail == "b spends 20.0 ms more per step on input than the others"
    assert found["skewed_input"].actions[0].code == "balance_input"
    assert "straggler" not in found


def test_a_late_host_is_explained_by_python_in_its_graph(tmp_path: Path) -> None:
    analysis = job(tmp_path, sections=ALL, what="PyFunc:PyFunc", a=[0] * 4, b=[20_000] * 4)
    first = analysis["diagnosis"].causes[0]
    assert (first.code, first.host, first.cost_percent) == ("python_in_graph", "b", Range(80.0, 80.0))
    assert first.detail.endswith("b is the last host in 4 of 4 steps; the others wait 20.0 ms per step for it")
    assert causes(analysis)["straggler"].cost_percent is None


def test_python_that_holds_others_up_is_blamed_once(tmp_path: Path) -> None:
    analysis = job(tmp_path, sections=ALL, what="", a=[0] * 4, b=[20_000] * 4)
    found = causes(analysis)
    assert analysis["diagnosis"].causes[0].code == "python_between_steps"
    assert "b is the last host in 4 of 4 steps" in found["python_between_steps"].detail
    assert found["straggler"].cost_percent is None
    assert found["straggler"].detail == "b spends 20.0 ms more per step on Python or I/O between calls than the others"


@pytest.mark.parametrize("delays_us", [(1_000.0, 20_000.0), (20_000.0, 1_000.0)])
def test_python_between_calls_is_that_of_the_late_host(tmp_path: Path, delays_us: tuple[float, float]) -> None:
    """One host computes and the other waits; the first of them in the run is not always the late one."""
    whats = ("$data.py:3 shuffled", "$<unknown> recv_into")
    a, b = (
        host_of_job([delay] * 4, [20_000] * 4, what=what, called=True)
        for delay, what in zip(delays_us, whats, strict=True)
    )
    first = tfperf.load(logdir_of(tmp_path, a=a, b=b), sections=ALL)["diagnosis"].causes[0]
    does, where = ("computes", "data.py:3 shuffled") if delays_us[0] > delays_us[1] else ("waits", "recv_into")
    assert first.title == f"Python between calls, which {does},"
    assert first.detail.startswith(f"100.0% of it in {where}; ")


def test_eager_ops_are_those_of_the_late_host(tmp_path: Path) -> None:
    """Of steps of 25 ms, it runs one for 20 ms, the other host for 1 ms."""
    analysis = job(tmp_path, sections=ALL, what="EagerExecute: Sin", a=[1_000] * 4, b=[20_000] * 4)
    first = analysis["diagnosis"].causes[0]
    assert (first.code, first.host, first.cost_percent) == ("eager_ops", "b", Range(80.0, 80.0))


def test_hosts_that_are_late_in_turn(tmp_path: Path) -> None:
    late = [[20_000 * (number == step) for step in range(4)] for number in range(4)]
    analysis = job(tmp_path, sections=ALL, a=late[0], b=late[1], c=late[2], d=late[3])
    first = analysis["diagnosis"].causes[0]
    assert (first.code, first.host, first.actions[0].code) == ("straggler", "", "even_work")
    assert first.detail.startswith("some host is late in 4 of 4 steps; the others wait 20.0 ms per step for it")


def test_a_late_start_costs_no_step(tmp_path: Path) -> None:
    analysis = job(tmp_path, sections=ALL, what="", a=[0] * 6, b=[500_000, 0, 0, 0, 0, 0])
    cause = causes(analysis)["straggler"]
    assert (cause.cost_percent, cause.gain) == (None, 0.0)
    assert cause.detail == (
        "b is the last host in 1 of 1 step; the others wait 500 ms per step for it: "
        "it spends 500 ms more per step on Python or I/O between calls (not in the averages)"
    )


def test_the_exchange_of_healthy_hosts(tmp_path: Path) -> None:
    """It takes 1 of 5 ms, during which ops could run; nobody waits."""
    found = causes(job(tmp_path, sections=ALL, a=[0] * 4, b=[0] * 4))
    assert bounds(found["collectives"].cost_percent) == pytest.approx((20.0, 20.0))
    assert found["collectives_bound"].cost_percent is None
    assert found["collectives_bound"].detail.startswith("without waiting for hosts, it takes 20.0% of the step")
    assert [each.section for each in found["collectives_bound"].rests_on] == ["hosts", "collectives"]
    assert bounds(found["collectives_bound"].actions[0].step_ms) == pytest.approx((4.0, 5.0))


def test_the_exchange_of_devices_that_compute_could_overlap(tmp_path: Path) -> None:
    """In each step of 100 us, GPU 0 computes for 30 us; then it waits 20 us for GPU 1, and they exchange for 20 us.

    Of the 60 us that both spend in the collective, 20 us are waiting: a third of the 40% of the step.
    """
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(Args)"
    first = repeat(4, event("sgemm", 10, 30), event(name, 40, 40))
    second = repeat(4, event("sgemm", 10, 30), event(name, 60, 20))
    results = results_of(trace_of(tmp_path, host(*marks(4)), gpu(*first), gpu(*second, number=1)))
    found = {cause.code: cause for cause in results["diagnosis"].causes}
    assert bounds(found["barriers"].cost_percent) == pytest.approx((40 / 3, 40 / 3))
    assert found["barriers"].detail == "devices wait in collectives, before the last one calls"
    assert bounds(found["collectives"].cost_percent) == pytest.approx((80 / 3, 80 / 3))
    assert [str(each) for each in found["collectives_bound"].quantities] == ["26.7%", "26.7%"]
    assert found["collectives_bound"].detail == (
        "without waiting, it takes 26.7% of the step; other kernels could overlap 26.7%"
    )
    step_ms = found["collectives_bound"].actions[0].step_ms
    assert bounds(step_ms) == pytest.approx((0.1 * (1 - 4 / 15), 0.1))
    assert {"straggler", "skewed_input"}.isdisjoint(found)
