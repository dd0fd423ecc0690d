"""Limits on the causes of the diagnosis: named or not, what they cost, and what cannot be judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Event, Plane, event, host, line, plane, ref, space
from judge.example_jobs import (
    FETCH,
    OP,
    analysis_of,
    compiling_job,
    input_job,
    job_without_steps,
    judged_by,
    only_host,
    outcome_of,
    steps,
    two_kinds_job,
)
from judge.example_runs import job as pipeline_job
from msgspec.structs import replace

import tfperf
from tfperf.judge.check import check_profile, needed_sections
from tfperf.judge.config import CheckConfig
from tfperf.judge.limits import named_limit
from tfperf.judge.measure import measure
from tfperf.judge.outcome import Outcome, check_report, sentence
from tfperf.report.render import render
from tfperf.sections.diagnosis.cause import Range
from tfperf.sections.diagnosis.diagnose import NEEDS

EXCHANGE = "CollectiveReduceV2:CollectiveReduceV2"


def fails_on(analysis: tfperf.Analysis, code: str, **settings: Any) -> str:
    return judged_by(analysis, "fail-on", code, **settings).status


def gpu(*kernels: Event) -> Plane:
    capability = {"compute_cap_major": 7, "compute_cap_minor": 5}
    return plane("/device:GPU:0", line("Stream #1(Compute)", *kernels), stats=capability)


def each_step(name: str, begin: float, duration: float, count: int = 5, **stats: Any) -> list[Event]:
    """An event at the same time of each of the first steps."""
    return [event(name, 100 * number + begin, duration, **stats) for number in range(count)]


@pytest.mark.parametrize(
    ("name", "value", "status", "measured"),
    [
        ("fail-on", "compilation", "breach", 1.0),
        ("fail-on", "input_wait", "unknown", None),  # there is no fetch
        ("fail-on", "eager_ops", "unknown", None),  # no event of running anything from Python
        ("fail-on", "python_between_steps", "pass", 0.0),
        ("fail-on", "launch_bound", "unknown", None),  # no device
        ("max-cost", "compilation=40%", "pass", 40.0),
        ("max-cost", "compilation=39.9%", "breach", 40.0),
        ("max-cost", "python_between_steps=10%", "pass", 0.0),
        ("max-cost", "launch_bound=10%", "unknown", None),
    ],
)
def test_a_cause_is_named_or_absent_or_unknown(
    tmp_path: Path, name: str, value: str, status: str, measured: float | None
) -> None:
    judged = judged_by(analysis_of(tmp_path, a=compiling_job(40)), name, value)
    assert (judged.status, judged.measured) == (status, measured)
    assert judged.why.endswith(".")


def test_a_breach_shows_the_cause_and_its_first_action(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=pipeline_job(wait=400, step=1000))
    outcome = outcome_of(analysis, ("fail-on", "input_wait"), ("max-cost", "input_wait=1%"))
    named, costly = outcome.judged
    assert named.evidence == costly.evidence
    (finding,) = named.evidence
    assert finding.text == "Waiting for input takes 40.0% of the step: the blocking tf.data stage is Map."
    assert finding.action
    assert sentence(named) == "The diagnosis reports the cause input_wait."
    assert sentence(costly) == "Cost of input_wait is 40.0%; the limit is at most 1.0%."
    text = render(check_report(outcome), "table")
    assert text.count("the blocking tf.data stage is Map") == 1, "what explains both is said once"
    assert max(map(len, text.splitlines())) <= 80


def test_a_limit_that_a_cause_is_named_can_be_breached_too(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=compiling_job(0))
    judged = judged_by(analysis, "cause[compilation] >= 1")
    assert (judged.status, sentence(judged)) == ("breach", "The diagnosis does not report the cause compilation.")
    (row,) = check_report(Outcome(judged=(judged,))).sections[0].tables[0].data["measured_text"]
    assert row == "not reported"


def test_an_absent_cause_says_what_absent_means(tmp_path: Path) -> None:
    """Graphs are built for 1 % of the step, which is no cause."""
    judged = judged_by(analysis_of(tmp_path, a=compiling_job(1)), "max-cost", "compilation=5%")
    assert (judged.status, judged.measured) == ("pass", 0.0)
    assert judged.why == "not reported: it takes less than 2% of the step or the wall time, over 5 training steps."


def test_without_steps_no_cause_passes(tmp_path: Path) -> None:
    for folder, data in (("1", job_without_steps()), ("2", compiling_job(0, count=2))):
        outcome = outcome_of(analysis_of(tmp_path / folder, a=data), *(("fail-on", code) for code in NEEDS))
        assert [one.limit.text for one in outcome.judged if one.status != "unknown"] == []
        assert all("--min-steps is 3" in one.why for one in outcome.judged)


def test_a_breach_counts_whatever_is_unknown(tmp_path: Path) -> None:
    """Exchanges on devices are unknown, those on the host are seen."""
    data = space(host(*steps((EXCHANGE, 40), (OP, 60))))
    analysis = analysis_of(tmp_path, a=data)
    assert fails_on(analysis, "collectives") == "breach"
    assert judged_by(analysis, "max-cost", "collectives=50%").status == "unknown", "it may cost more than is seen"


def test_the_high_end_of_a_cost_counts(tmp_path: Path) -> None:
    """Of each step, 20 us are surely a product in 32 bit, and 15 perhaps."""
    sure, perhaps = each_step("sgemm", 0, 20, tf_op="m/a/Conv2D:Conv2D"), each_step("fusion", 20, 15)
    analysis = analysis_of(tmp_path, a=space(host(*steps((OP, 10))), gpu(*sure, *perhaps)))
    judged = judged_by(analysis, "max-cost", "device_compute_32bit=30%")
    assert (judged.status, judged.measured) == ("breach", 35.0)
    assert judged.why.startswith("the high end of 20.0 to 35.0%, over 5")
    assert judged_by(analysis, "max-cost", "device_compute_32bit=35%").status == "pass"


def test_a_cause_whose_cost_is_no_share_of_the_step_cannot_be_judged_by_it(tmp_path: Path) -> None:
    working, silent = gpu(*each_step("sgemm", 0, 90)), plane("/device:GPU:1")
    idle = analysis_of(tmp_path, a=space(host(*steps((OP, 10))), working, silent))
    judged = judged_by(idle, "max-cost", "idle_devices=10%")
    assert (judged.status, judged.measured) == ("unknown", None)
    assert judged.why.endswith("but its share of the step is unknown: use --fail-on idle_devices.")
    assert fails_on(idle, "idle_devices") == "breach"
    busy = analysis_of(tmp_path / "2", a=space(host(*steps((OP, 10))), working))
    assert judged_by(busy, "max-cost", "idle_devices=10%").measured == 0.0
    assert fails_on(busy, "idle_devices") == "pass"


@pytest.mark.parametrize(("bound", "status"), [("30%", "pass"), ("29.9%", "breach")])
def test_the_cost_of_input_is_limited(tmp_path: Path, bound: str, status: str) -> None:
    judged = judged_by(analysis_of(tmp_path, a=input_job(30)), "max-input-cost", bound)
    assert (judged.status, judged.measured, judged.title) == (status, 30.0, "Input cost")
    assert [finding.code for finding in judged.evidence] == ["input_wait"] * (status == "breach")


def test_the_low_end_of_the_cost_of_input_counts(tmp_path: Path) -> None:
    """A cost of 20 to 60 % breaches 19 %, and not 20 %."""
    judged = only_host(tmp_path, input_job(30))
    judged.results["diagnosis"]
    judged.results._combined["diagnosis"] = replace(judged.results["diagnosis"], input_cost_percent=Range(20.0, 60.0))
    for bound, status in (("20%", "pass"), ("19%", "breach")):
        limit = named_limit("max-input-cost", bound)
        measurement = measure(limit, judged)
        assert measurement.status(limit) == status
        assert measurement.why == "the low end of 20.0 to 60.0%, over 5 training steps"


def test_causes_are_those_of_the_kind_that_is_judged(tmp_path: Path) -> None:
    """Training steps wait for 1 % of their time, evaluation steps for 70 %."""
    analysis = analysis_of(tmp_path, a=two_kinds_job(train_wait_us=1))
    train = judged_by(analysis, "max-cost", "input_wait=10%")
    assert (train.status, train.measured) == ("pass", 0.0)
    assert train.why.endswith("over 5 training steps; 4 evaluation steps are not checked: --by-kind eval.")
    evaluation = outcome_of(analysis, ("fail-on", "input_wait"), ("max-cost", "input_wait=10%"), by_kind="eval")
    assert [(each.status, each.measured) for each in evaluation.judged] == [("breach", 1.0), ("breach", 70.0)]
    assert evaluation.judged[0].evidence[0].text.startswith("Evaluation steps: Waiting for input takes 70.0% of the ")
    assert judged_by(analysis, "max-input-cost", "60%", by_kind="eval").status == "breach"


def test_skipped_steps_are_the_cause_of_nothing(tmp_path: Path) -> None:
    """In the first 3 of 6 steps, Python is in a call for half of the time and runs ops for 40 %; then in calls only."""
    calls = {"tf_function_call": ref("notTraced-nonXla")}
    events = steps(count=6) + [event("FunctionRun", 100 * number, 1, id=number + 1) for number in range(6)]
    events += each_step("f", 0, 50, count=3, **calls) + [event("f", 100 * n, 100, **calls) for n in range(3, 6)]
    events += each_step("EagerExecute", 0, 40, count=3, is_func=0, eager_op=ref("Add"))
    analysis = analysis_of(tmp_path, a=space(host(*events)))
    codes = ("eager_ops", "python_between_steps")
    assert [fails_on(analysis, code) for code in codes] == ["breach", "breach"]
    assert judged_by(analysis, "max-cost", "eager_ops=19%").measured == pytest.approx(20.0)
    assert [fails_on(analysis, code, skip_first=3) for code in codes] == ["pass", "pass"]


def test_kernels_of_skipped_steps_do_not_count(tmp_path: Path) -> None:
    """A product in 32 bit takes half of the first two steps, and nothing of the others."""
    product = each_step("sgemm", 0, 50, count=2, tf_op="m/a/Conv2D:Conv2D")
    others = each_step("add", 50, 40, tf_op="m/b/Add:Add")
    analysis = analysis_of(tmp_path, a=space(host(*steps((OP, 10))), gpu(*product, *others)))
    assert judged_by(analysis, "max-cost", "device_compute_32bit=10%").measured == pytest.approx(20.0)
    assert fails_on(analysis, "device_compute_32bit", skip_first=2) == "pass"


def test_advice_for_other_steps_promises_no_step_time(tmp_path: Path) -> None:
    """What tf.data would gain was estimated for all six steps."""
    analysis = analysis_of(tmp_path, a=pipeline_job(wait=400, step=1000))
    all_steps, fewer = (judged_by(analysis, "fail-on", "input_wait", skip_first=skipped) for skipped in (0, 2))
    assert "(step 1.00 -> " in all_steps.evidence[0].action
    assert "(step 1.00 -> " not in fewer.evidence[0].action


def test_several_hosts_are_judged_together_and_the_pace_setter_is_named(tmp_path: Path) -> None:
    """Host `a` waits for `b`, which waits for its input."""
    waiting = space(host(*steps((OP, 10), (EXCHANGE, 90))))
    slow = space(host(*steps((FETCH, 80), (OP, 10), (EXCHANGE, 10))))
    analysis = analysis_of(tmp_path, a=waiting, b=slow)
    judged = judged_by(analysis, "max-cost", "input_wait=10%")
    assert (judged.status, judged.measured, judged.host) == ("breach", 80.0, "b")
    assert judged.evidence[0].text.startswith("Waiting for input takes 80.0% of the step")
    assert fails_on(analysis, "straggler") == "pass", "what makes it slow has a name"


def test_a_host_with_too_few_steps_is_never_a_pass(tmp_path: Path) -> None:
    judged = judged_by(analysis_of(tmp_path, a=compiling_job(0), b=job_without_steps()), "fail-on", "compilation")
    assert (judged.status, judged.why.startswith("host b: 0 whole steps count")) == ("unknown", True)


def test_the_diagnosis_is_analyzed_only_when_it_is_asked_for() -> None:
    def needed(*limits: tuple[str, str]) -> tuple[str, ...]:
        return needed_sections(CheckConfig(limits=tuple(named_limit(*limit) for limit in limits)))

    assert needed(("max-input-bound", "10%"), ("max-step-time", "1s")) == ("steps",)
    for limit in (("fail-on", "eager_ops"), ("max-cost", "eager_ops=1%"), ("max-input-cost", "10%")):
        assert needed(limit) == ("steps", "diagnosis")


def test_the_library_takes_one_cause_or_several(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=compiling_job(40))
    outcome = check_profile(analysis, fail_on="compilation", max_cost=["compilation=50%", "python_between_steps=1%"])
    assert [(each.limit.text, each.status) for each in outcome.judged] == [
        ("fail-on compilation", "breach"),
        ("max-cost compilation=50%", "pass"),
        ("max-cost python_between_steps=1%", "pass"),
    ]
    assert outcome.judged[0].limit.origin == "tfperf.check"
