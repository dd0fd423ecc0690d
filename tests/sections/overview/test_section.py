"""The verdict: one sentence with its number."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import STEPS_LINE, Event, Plane, event, host, line, marks, plane, results_of, trace_of
from sections.diagnosis.made import FETCH, OP, steps
from sections.diagnosis.test_diagnose import shared_cores

from tfperf.report.model import Finding
from tfperf.sections.overview.section import InputCost, build, input_cost, report_summary, verdict_of


def verdict(tmp_path: Path, *planes: Plane) -> Finding:
    return verdict_of(results_of(trace_of(tmp_path, *planes), sections=["overview"]))


def job(wait: float, compute: float, fetching: int = 5) -> Plane:
    """Five steps of 100 us: waiting for input (the first ones, which fetch it), computing, the rest unexplained."""
    ops = [event("A:A", 100 * n + wait, compute) for n in range(5)]
    return host(*marks(5), *ops, *(event(FETCH, 100 * n, wait) for n in range(fetching)))


@pytest.mark.parametrize(
    ("wait", "compute", "fetching", "sentence"),
    [
        (64, 36, 5, "HIGHLY input-bound: input takes 64.0% of step time (thresholds: 5% moderate, 20% high)."),
        (7, 93, 5, "MODERATELY input-bound: input takes 7.0% of step time (thresholds: 5% moderate, 20% high)."),
        (1, 99, 5, "NOT input-bound: input takes 1.0% of step time (thresholds: 5% moderate, 20% high)."),
        (1, 89, 5, "NOT input-bound: input takes 1.0% of step time (thresholds: 5% moderate, 20% high)."),
        (
            *(2.5, 89, 2),
            "Input takes 1.0% of step time, but "
            "All others takes 10.0% (thresholds: 3% moderate, 15% high), which may hide input read in Python.",
        ),
    ],
)
def test_the_verdict_is_one_sentence_with_its_number(
    tmp_path: Path, wait: float, compute: float, fetching: int, sentence: str
) -> None:
    """Where most steps fetch a batch, what input takes is in the trace: unexplained time hides none."""
    assert verdict(tmp_path, job(wait, compute, fetching)).text == sentence


def test_without_steps_the_verdict_says_why_and_what_to_do(tmp_path: Path) -> None:
    unknown = verdict(tmp_path, host(event("A:A", 0, 5)))
    assert unknown.text.startswith("Input-bound is unknown: no step time was measured")
    assert "--step-marker" in unknown.action


def test_device_compute_of_unknown_precision_is_no_32_bit(tmp_path: Path) -> None:
    """Random numbers in 16 bit have seeds in int32; a fusion tells nothing of its numbers."""
    kernels = (event("Philox<half>", 0, 60, shape="(int32[3])"), event("sgemm", 60, 20), event("fusion_1", 80, 20))
    gpu = plane("/device:GPU:0", line("Stream #1", *kernels))
    results = results_of(trace_of(tmp_path, job(10, 10), gpu), sections=["overview"])
    facts = {fact.title: fact.value for fact in build(results).facts}
    shares = [facts[f"Device compute {kind}"] for kind in ("16-bit", "32-bit", "unknown")]
    assert shares == pytest.approx([60.0, 20.0, 20.0])


def test_one_step_has_no_deviation_anywhere(tmp_path: Path) -> None:
    """Of one step, n - 1 is 0: no number of it is right."""
    one, three = (
        results_of(trace_of(tmp_path, host(*marks(count), event(FETCH, 0, 10))), sections=["overview"])
        for count in (1, 3)
    )
    section = build(one)
    facts = {fact.key: fact.note for fact in section.facts}
    assert (facts["average_step_time"], facts["steps"]) == ("", "of 1 training step")
    assert section.tables[0].data["standard_deviation_ms"] == [None] * 9
    assert report_summary(one)["step_time_ms"]["standard_deviation"] is None
    several = {fact.key: fact.note for fact in build(three).facts}
    assert (several["average_step_time"], several["steps"]) == ("± 0.000 ms over steps", "of 3 training steps")


def gpu(*copies: Event) -> Plane:
    modules = line("XLA Modules", *(event("jit_f", 100 * n, 100) for n in range(4)), id=STEPS_LINE + 2)
    kernels = line("Stream #1", *(event("gemm", 100 * n, 60, correlation_id=n + 1) for n in range(4)), id=2)
    return plane("/device:GPU:0", modules, kernels, line("Stream #2", *copies, id=3))


def test_without_host_threads_only_the_device_is_known(tmp_path: Path) -> None:
    """A copy of 5 us and a kernel of 60 us in each step; what the host does in the other 35 us is not recorded."""
    copies = [event("MemcpyH2D", 100 * n + 60, 5, correlation_id=n + 10) for n in range(4)]
    results = results_of(trace_of(tmp_path, gpu(*copies)), sections=["overview"])
    summary = report_summary(results)
    shown = {key: value for key, value in summary["category_percent"].items() if value is not None}
    assert shown == {"output": 0, "device_collectives": 0, "device_to_device": 0, "device_compute": pytest.approx(60)}
    assert (summary["input_percent"], summary["input_class"]) == (None, "unknown")
    assert (summary["input_wait_percent"], summary["host_to_device_percent"]) == (None, pytest.approx(5))
    assert verdict_of(results).text.startswith("Input-bound is unknown")


def test_the_verdict_on_several_hosts_has_the_shares_of_one(tmp_path: Path) -> None:
    """The second host waits 3 us more, and all others are 7 % of its steps, not 3.5 % as on average."""
    a, b = trace_of(tmp_path, job(0, 100)), trace_of(tmp_path, job(7.5, 90, fetching=2))
    results = results_of(a, b, sections=["overview"])
    assert verdict_of(results).text == (
        "Input takes 3.0% of step time on host host, but "
        "All others takes 7.0% (thresholds: 3% moderate, 15% high), which may hide input read in Python."
    )
    section = build(results)
    assert section.facts[0].note.startswith("average over hosts")
    assert all(fact.note.startswith("average over hosts") for fact in section.facts[1:4])
    assert [table.title for table in section.tables[:1]] == ["Step time by category (average over hosts)"]


def fed(name: str, wait: float, copy: float) -> tuple[Plane, Plane]:
    """A host that waits for a fetch, and its device, to which a batch is copied, if at all."""
    fetches = [event(FETCH, 100 * n, wait) for n in range(4) if wait]
    copies = [event("MemcpyH2D", 100 * n + 60, copy, correlation_id=n + 10) for n in range(4) if copy]
    return host(*marks(4), *fetches, name=name), gpu(*copies)


def test_what_one_host_cannot_show_has_no_average_over_hosts(tmp_path: Path) -> None:
    """Nothing shows how host b gets its input: its copies are not 0, and the average is not 10 %."""
    a, b = trace_of(tmp_path, *fed("a", 10, 20)), trace_of(tmp_path, *fed("b", 0, 0))
    alone = report_summary(results_of(a, sections=["overview"]))
    assert alone["host_to_device_percent"] == pytest.approx(20)
    both = report_summary(results_of(a, b, sections=["overview"]))
    assert both["host_to_device_percent"] is None
    assert both["input_wait_percent"] is None
    assert both["category_percent"]["input"] is None
    assert both["category_percent"]["device_compute"] == pytest.approx(60)
    without_device = trace_of(tmp_path, fed("b", 10, 0)[0])
    summary = report_summary(results_of(a, without_device, sections=["overview"]))
    assert summary["category_percent"]["device_compute"] is None
    assert summary["category_percent"]["host_compute"] == 0


def test_threads_beside_the_step_are_a_part_of_the_cost(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, plane("/host:CPU", *shared_cores())))
    cost = input_cost(results)
    assert cost is not None
    assert cost.waiting == 2.0
    assert (cost.low, cost.high) == pytest.approx((2 + 10.89, 2 + 37.251), abs=0.01)
    assert report_summary(results)["input_cost_percent"] == {"low": cost.low, "high": cost.high}
    (_, finding) = build(results).findings
    assert finding.text.startswith("Input costs 12.9 to 39.3% of the step: 2.0% waiting, the rest CPU contention")


def test_without_rivals_it_is_the_category(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, host(*steps((FETCH, 64), (OP, 36)))))
    cost = input_cost(results)
    assert cost == InputCost(64.0, 0.0, 0.0)
    assert not cost.is_more_than_waiting
    assert len(build(results).findings) == 1


def test_what_the_trace_does_not_show_is_unknown(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, host()))
    assert input_cost(results) is None
    assert report_summary(results)["input_cost_percent"] == {"low": None, "high": None}
