"""The gate as a whole: small jobs whose figures can be seen, and what becomes of each limit."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest
from builders import Event, event, host, iterator_call, logdir_of, ref, space
from tfperf.gate.model import Judged, Outcome
from tfperf.session import Trace

import tfperf
from tfperf.gate.check import check
from tfperf.gate.limits import named_limit, parse_limit


def job(wait: float = 30.0, steps: int = 5, length: float = 100.0, kind: str = "train") -> bytes:
    """Steps that wait `wait` us for input and compute for the rest of `length`."""
    events: list[Event] = []
    for n in range(steps):
        begin = length * n
        events += [
            event(kind, begin, length, step_num=n),
            event("IteratorGetNextOp::DoCompute", begin, wait),
            event("MatMul:MatMul", begin + wait, length - wait),
        ]
    return space(host(*events))


def load(tmp_path: Path, **hosts: bytes) -> Trace:
    return tfperf.load(logdir_of(tmp_path, **hosts))


def one(outcome: Outcome) -> Judged:
    (judged,) = outcome.judged
    return judged


# --- the cases of a gate ---


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("input_bound <= 30%", "pass"),  # exactly at the bound
        ("input_bound < 30%", "breach"),
        ("input_bound >= 30%", "pass"),
        ("input_bound > 30%", "breach"),
        (f"input_bound <= {math.nextafter(30.0, 0)!r}%", "breach"),
        (f"input_bound <= {math.nextafter(30.0, 99)!r}%", "pass"),
        ("step_time <= 0.1ms", "pass"),
        ("step_time <= 99us", "breach"),
        ("p95(step_time) <= 100us", "pass"),
        ("max(step_time) < 100us", "breach"),
        ("kernel_launch <= 100%", "unknown"),  # no device
        ("device_busy >= 0%", "unknown"),
        ("memory < 1GiB", "unknown"),
        ("retraces <= 5", "unknown"),
        ("skew <= 100%", "unknown"),  # one host
        ("kernels.total_us < 5", "unknown"),  # no such table in this profile
        ("steps.step_time_ms <= 0.1", "pass"),
        ("steps.step_time_ms[kind=eval] <= 0.1", "unknown"),  # no row
        ("count(steps.step[kind=eval]) <= 0", "pass"),
    ],
)
def test_limits_are_judged_unrounded(tmp_path: Path, text: str, status: str) -> None:
    judged = one(check(load(tmp_path, a=job(30)), [parse_limit(text)]))
    assert judged.status == status
    assert (judged.measured is None) == (status == "unknown")
    assert judged.host == ""
    assert judged.why.endswith(".")


def test_what_an_outcome_holds(tmp_path: Path) -> None:
    found = check(load(tmp_path, a=job(30)), [named_limit("max-input-bound", "10%"), parse_limit("step_time < 1ms")])
    assert [(own.title, own.measured, own.unit, own.status) for own in found.judged] == [
        ("Input-bound", 30.0, "%", "breach"),
        ("Step time (mean)", 0.1, "ms", "pass"),
    ]
    assert (found.run, found.hosts, found.step_count, found.exit_code) == ("2026_01_01_00_00_00", ("a",), 5, 3)
    assert found.folder.endswith("2026_01_01_00_00_00")
    assert found.judged[0].why == "over 5 train steps."


def test_nothing_asked_is_nothing_judged(tmp_path: Path) -> None:
    assert check(load(tmp_path, a=job()), []).exit_code == 1


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_too_few_steps_are_no_pass(tmp_path: Path, steps: int) -> None:
    found = check(load(tmp_path, a=job(30, steps)), [named_limit("max-input-bound", "99%")])
    judged = one(found)
    assert (judged.status, judged.measured, found.exit_code, found.step_count) == ("unknown", None, 1, steps)
    assert f"{steps} whole step" in judged.why
    assert "--min-steps asks for 3: profile longer." in judged.why


def test_fewer_steps_are_enough_if_asked_for(tmp_path: Path) -> None:
    trace, limits = load(tmp_path, a=job(30, 2)), [named_limit("max-input-bound", "99%")]
    assert check(trace, limits, min_steps=2).exit_code == 0
    assert check(trace, limits, min_steps=0).exit_code == 0
    assert check(load(tmp_path / "2", a=job(30, 0)), limits, min_steps=0).exit_code == 1  # none is never enough


def test_input_that_is_not_visible_is_unknown(tmp_path: Path) -> None:
    marks = [event("train", 100 * n, 100, step_num=n) for n in range(5)]
    judged = one(check(load(tmp_path, a=space(host(*marks))), [named_limit("max-input-bound", "99%")]))
    assert (judged.status, judged.measured) == ("unknown", None)
    assert "does not show where input comes from" in judged.why


def test_the_statistic_of_step_times_can_be_chosen(tmp_path: Path) -> None:
    """Steps of 100, 100, 100 and 200 us."""
    begins = [0, 100, 200, 300, 500]
    marks = [event("train", begins[n], begins[n + 1] - begins[n], step_num=n) for n in range(4)]
    trace = load(tmp_path, a=space(host(*marks)))
    limits = [named_limit("max-step-time", "1ms"), parse_limit("max(step_time) < 1ms")]
    found = {stat: check(trace, limits, stat=stat).judged for stat in ("mean", "median", "p95")}
    assert {stat: own[0].measured for stat, own in found.items()} == {
        "mean": 0.125, "median": 0.1, "p95": pytest.approx(0.185),  # 100 + 0.85 * 100
    }  # fmt: skip
    assert found["p95"][0].title == "Step time (p95)"
    assert (found["p95"][1].title, found["p95"][1].measured) == ("Step time (max)", 0.2)


def test_first_steps_can_be_skipped(tmp_path: Path) -> None:
    """The first step takes 150 us, four others 100 us."""
    marks = [event("train", 0, 150, step_num=0), *(event("train", 50 + 100 * n, 100, step_num=n) for n in range(1, 5))]
    trace = load(tmp_path, a=space(host(*marks)))
    found = check(trace, [parse_limit("max(step_time) <= 100us"), parse_limit("steps.step_time_ms <= 0.1")],
                  skip_first=1)  # fmt: skip
    assert (found.exit_code, found.step_count) == (0, 4)
    assert found.notes[0] == "Skipped: the first 1 step."
    assert check(trace, [parse_limit("max(step_time) <= 100us")], skip_first=0).exit_code == 3
    assert check(trace, [parse_limit("max(step_time) <= 100us")], skip_first=10**9).exit_code == 1


# --- several hosts ---


def test_the_worst_host_decides_and_is_named(tmp_path: Path) -> None:
    trace = load(tmp_path, a=job(10), b=job(30), c=job(20))
    upper = one(check(trace, [named_limit("max-input-bound", "25%")]))
    assert (upper.status, upper.host, upper.measured) == ("breach", "b", 30.0)
    lower = one(check(trace, [parse_limit("input_bound >= 5%")]))
    assert (lower.status, lower.host, lower.measured) == ("pass", "a", 10.0)
    rows = one(check(trace, [parse_limit("input_steps.input_percent <= 20%")]))
    assert (rows.status, rows.host, rows.measured) == ("breach", "b", 30.0)


def test_one_host_without_steps_is_no_pass(tmp_path: Path) -> None:
    trace = load(tmp_path, a=job(10), b=space(host(event("idle", 0, 10))))
    found = check(trace, [named_limit("max-input-bound", "25%")])
    assert (one(found).status, one(found).host, found.step_count, found.exit_code) == ("unknown", "", 0, 1)
    assert one(found).why.startswith("host b: there are 0 whole steps")
    assert "choose the hosts that count with --host" in one(found).why
    # Left out, it says nothing any more.
    alone = tfperf.load(tmp_path / "logs", hosts=["a"])
    assert check(alone, [named_limit("max-input-bound", "25%")]).exit_code == 0


def test_a_breach_on_one_host_is_one_whatever_the_others_tell(tmp_path: Path) -> None:
    trace = load(tmp_path, a=space(host(event("idle", 0, 10))), b=job(30), c=job(10, steps=1))
    judged = one(check(trace, [named_limit("max-input-bound", "25%")]))
    assert (judged.status, judged.host, judged.measured) == ("breach", "b", 30.0)
    unknown = one(check(trace, [named_limit("max-input-bound", "35%")]))
    assert unknown.status == "unknown"
    assert "so it is on 1 more" in unknown.why


def test_skew_is_the_slowest_host_over_the_median(tmp_path: Path) -> None:
    trace = load(tmp_path, a=job(length=100), b=job(length=130), c=job(length=100))
    judged = one(check(trace, [named_limit("max-skew", "25%")]))
    assert (judged.status, judged.host) == ("breach", "b")
    assert judged.measured == pytest.approx(30.0)
    assert judged.why == "its steps take 0.13 ms, the median of 3 hosts is 0.1 ms."
    assert one(check(trace, [named_limit("max-skew", "31%")])).status == "pass"


def test_skew_needs_steps_on_every_host(tmp_path: Path) -> None:
    trace = load(tmp_path, a=job(length=100), b=job(length=130), c=job(steps=1))
    judged = one(check(trace, [named_limit("max-skew", "1%")]))
    assert (judged.status, judged.measured) == ("unknown", None)
    assert judged.why.startswith("host c: there is 1 whole step that count")


def test_tables_over_hosts_are_measured_once(tmp_path: Path) -> None:
    trace = load(tmp_path, a=job(length=100), b=job(length=130))
    judged = one(check(trace, [parse_limit("steps_by_host.average_ms <= 0.12ms")]))
    assert (judged.status, judged.host, judged.measured) == ("breach", "b", 0.13)
    assert judged.why == "host b, the worst of 2 rows."


# --- evidence ---


def piped(wait: float) -> bytes:
    """Steps of 1 ms that wait for a Map inside a Prefetch-less pipeline."""
    events: list[Event] = []
    for n in range(6):
        begin = 1000.0 * n
        events += [
            event("train", begin, 1000, step_num=n),
            event("IteratorGetNextOp::DoCompute", begin, wait),
            iterator_call("Root", begin, wait, 1),
            iterator_call("Root::Map", begin, wait - 1, 2, 1),
            event("MatMul:MatMul", begin + wait, 1000 - wait),
        ]
    return space(host(*events))


def test_a_breach_of_input_names_the_stage_that_blocks(tmp_path: Path) -> None:
    judged = one(check(load(tmp_path, a=piped(400)), [named_limit("max-input-bound", "10%")]))
    assert judged.status == "breach"
    assert judged.evidence[0].code == "wait_for_input"
    assert "The stage waited for most is Map (map() in code)" in judged.evidence[0].text
    assert judged.evidence[0].action


def test_so_does_one_too_small_for_advice(tmp_path: Path) -> None:
    """4 % of the step time are below what the report advises about, and may be above a limit."""
    judged = one(check(load(tmp_path, a=piped(40)), [named_limit("max-input-bound", "2%")]))
    assert (judged.status, [own.code for own in judged.evidence]) == ("breach", ["input_share"])
    assert judged.evidence[0].text.startswith("Waiting for tf.data takes 4.0% of the step time")


def test_a_breach_of_retraces_names_the_functions(tmp_path: Path) -> None:
    made = [
        event("train_step", 10.0 * n, 5, tf_function_call=ref("traced-nonXla"), tracing_count=n + 1) for n in range(3)
    ]
    judged = one(check(load(tmp_path, a=space(host(*made))), [named_limit("max-retraces", "0")]))
    assert (judged.status, judged.measured) == ("breach", 2.0)  # without any step: it is about the whole capture
    assert judged.evidence[0].text == "Traced again in the capture: train_step (2 times)."


def test_other_breaches_have_the_advice_of_the_report(tmp_path: Path) -> None:
    marks = [event("train", 100 * n, 100, step_num=n) for n in range(5)]
    trace = load(tmp_path, a=space(host(*marks)))
    judged = check(trace, [named_limit("max-all-others", "1%"), named_limit("max-step-time", "1us")]).judged
    assert [[own.code for own in found.evidence] for found in judged] == [["all_others"], ["all_others"]]


def test_names_from_the_trace_stay_short(tmp_path: Path) -> None:
    name = "x" * 100_000 + "\x1b[31m"
    made = [event(name, 10.0 * n, 5, tf_function_call=ref("traced-nonXla"), tracing_count=n + 1) for n in range(3)]
    trace = load(tmp_path, a=space(host(*made)))
    limits = [named_limit("max-retraces", "0"), parse_limit("functions.traced_calls < 1")]
    for judged in check(trace, limits).judged:
        assert len(judged.why) < 300
        assert len(judged.evidence[0].text) < 300


# --- against a baseline ---


def noisy(length: float, steps: int = 40) -> bytes:
    """Steps of `length` us, 1 us more and less in turn."""
    begins = [sum(length + (-1) ** k for k in range(n)) for n in range(steps + 1)]
    return space(host(*(event("train", begins[n], begins[n + 1] - begins[n], step_num=n) for n in range(steps))))


def test_a_regression_is_a_breach(tmp_path: Path) -> None:
    from tfperf.compare.summarize import summarize_run

    before, after = load(tmp_path / "1", a=noisy(100)), load(tmp_path / "2", a=noisy(120))
    found = check(after, [], baselines=[summarize_run(before, "before")])
    judged = one(found)
    assert (judged.status, found.exit_code, judged.title, judged.unit) == ("breach", 3, "Regression", "%")
    assert judged.limit.text == "max-regression 5%"
    assert judged.measured == pytest.approx(20.0)
    assert judged.comparison is not None
    assert judged.comparison.verdict == "slower"
    assert [own.code for own in judged.evidence] == ["all_others"]
    looser = check(after, [], baselines=[summarize_run(before, "before")], max_regression=0.25)
    assert (one(looser).status, one(looser).limit.bound, looser.exit_code) == ("pass", 25.0, 0)


def test_the_same_run_is_no_regression(tmp_path: Path) -> None:
    from tfperf.compare.summarize import summarize_run

    trace = load(tmp_path, a=noisy(100))
    assert check(trace, [], baselines=[summarize_run(trace, "same")]).exit_code == 0


def test_too_few_steps_cannot_tell(tmp_path: Path) -> None:
    from tfperf.compare.summarize import summarize_run

    trace = load(tmp_path, a=noisy(100, steps=4))
    judged = one(check(trace, [], baselines=[summarize_run(trace, "same")]))
    assert (judged.status, judged.measured) == ("unknown", None)
    assert judged.comparison is not None
    assert judged.why == judged.comparison.why


def test_a_host_without_steps_is_no_pass_of_a_regression(tmp_path: Path) -> None:
    from tfperf.compare.summarize import summarize_run

    trace = load(tmp_path, a=noisy(100), b=space(host(event("idle", 0, 10))))
    judged = one(check(trace, [], baselines=[summarize_run(trace, "same")]))
    assert (judged.status, judged.why[:7]) == ("unknown", "host b:")


def test_what_is_not_the_same_job_is_not_compared(tmp_path: Path) -> None:
    from tfperf.compare.summarize import summarize_run

    before, after = load(tmp_path / "1", a=noisy(100)), load(tmp_path / "2", a=noisy(120), b=noisy(120))
    judged = one(check(after, [], baselines=[summarize_run(before, "before")]))
    assert judged.status == "unknown"
    assert judged.why.startswith("The runs cannot be compared. Hosts: 1 before, 2 now;")


def test_a_tolerance_needs_a_baseline(tmp_path: Path) -> None:
    judged = one(check(load(tmp_path, a=job()), [], max_regression=0.1))
    assert (judged.status, judged.limit.text) == ("unknown", "max-regression 10%")
    assert judged.why == "There is no baseline to compare with."


def test_the_trace_is_not_changed(tmp_path: Path) -> None:
    trace = load(tmp_path, a=job(30), b=job(10))
    before = pickle.dumps(trace.hosts)
    check(trace, [parse_limit("input_bound < 1%"), parse_limit("steps.step_time_ms < 1us")], skip_first=2)
    assert pickle.dumps(trace.hosts) == before
    # So the comparison can fail.
    trace.hosts[0].breakdown.time_ps["input"][0] += 1
    assert pickle.dumps(trace.hosts) != before
