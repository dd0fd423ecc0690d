"""Requests on traces small enough to check by hand: latency, percentiles, waits, padding, and what is no request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax_builders as jax
import numpy as np
import pytest
from builders import (
    Event,
    Plane,
    event,
    gpu,
    host,
    known,
    line,
    logdir_of,
    marks,
    plane,
    ref,
    results_of,
    rows_of,
    space,
    trace_of,
)
from sections.requests.jobs import server

import tfperf
from tfperf.analysis.registry import Results
from tfperf.report.model import Section
from tfperf.sections.diagnosis.section import build as first_screen
from tfperf.sections.requests import BATCHES_TABLE, REQUESTS_TABLE, build
from tfperf.sections.requests.analysis import AllRequests, combine, percentile_ms
from tfperf.trace.steps.find_steps import find_steps

_MS = 1000


def call(function: str, start_us: float, duration_us: float, mode: str = "notTraced-nonXla") -> Event:
    return event(function, start_us, duration_us, tf_function_call=ref(mode), tracing_count=1)


def requests_of(tmp_path: Path, *planes: Plane) -> tuple[AllRequests, Results]:
    results = results_of(trace_of(tmp_path, *planes), sections=["requests"])
    return results["requests"], results


def test_a_server_has_requests_that_wait_for_padded_batches(tmp_path: Path) -> None:
    found, results = requests_of(tmp_path, server())
    assert rows_of(known(REQUESTS_TABLE.data(results)), "request", "kind", "count", "p50_ms", "p95_ms", "p99_ms") == [
        ("SessionRun", "inference", 2, 0.09, None, None)
    ]
    keys = ("batch_size", "count", "average_ms", "padding", "padding_percent", "requests", "wait_ms")
    assert rows_of(known(BATCHES_TABLE.data(results)), *keys) == [(4, 1, pytest.approx(0.03), 2, 50.0, 2, 0.05)]
    assert (found.waited_ps.tolist(), found.behind_ps) == ([45 * 10**6, 55 * 10**6], 0)
    section = build(results)
    assert [(fact.key, fact.value) for fact in section.facts] == [("latency", 0.09), ("wait", 0.05), ("padding", 50.0)]
    assert "maximum 0.100 ms" in section.facts[0].note
    assert [finding.code for finding in section.findings] == ["request_queue", "request_padding"]
    # 45 + 55 of 90 + 100 us.
    assert section.findings[0].text.startswith("Requests wait 52.6% of their latency for a batch; in 0.0% of that time")
    assert "batch_timeout_micros" in section.findings[0].action


def test_more_padding_than_rows_is_unknown(tmp_path: Path) -> None:
    sizes = event("ConcatInputTensors", 61, 1, batch_size_after_padding=4, padding_amount=5)
    batch = event("ProcessBatch", 60, 30, _c=1, _ct=4)
    found, results = requests_of(tmp_path, host(event("SessionRun", 0, 95, model_id="m"), batch, sizes))
    assert [(each.rows, each.padding) for each in found.batches] == [(None, 0)]
    assert not build(results).findings


def test_the_first_screen_of_a_server_is_about_requests(tmp_path: Path) -> None:
    screen = first_screen(results_of(trace_of(tmp_path, server())))
    assert screen.findings[0].text == "The job is a server: 2 requests of SessionRun, 100,000 per second."
    assert [finding.code for finding in screen.findings[1:]] == ["request_queue", "request_padding"]
    assert [fact.key for fact in screen.facts] == ["latency", "wait", "padding"]


def test_waiting_for_other_batches_has_other_advice(tmp_path: Path) -> None:
    busy = plane("/host:CPU", *server().lines, line("batch_threads 2", event("ProcessBatch", 0, 59, _c=9, _ct=4), id=5))
    found, results = requests_of(tmp_path, busy)
    # Of 5 to 60 and 15 to 60 us, the other batch runs until 59.
    assert found.behind_ps == (54 + 44) * 10**6
    finding = build(results).findings[0]
    assert "in 98.0% of that time" in finding.text
    assert "replicas" in finding.action


@pytest.mark.parametrize(
    ("name", "stats", "expected"),
    [
        ("TfrtModelRun", {"model_id": "resnet:3"}, "resnet:3"),
        ("ServingModelRun", {}, "ServingModelRun"),
        ("BatchingSessionRun", {}, "BatchingSessionRun"),
        ("SessionRun", {"model_id": "resnet:3"}, "resnet:3"),
        ("SessionRun", {}, ""),  # a job of TensorFlow 1 of any kind
    ],
)
def test_requests_are_events_of_servers(tmp_path: Path, name: str, stats: dict[str, Any], expected: str) -> None:
    trace = trace_of(tmp_path, host(*(event(name, 100 * number, 60, id=number, **stats) for number in range(3))))
    found = results_of(trace, sections=["requests"])["requests"].requests
    assert [(each.name, each.count, each.latency_ps.tolist()) for each in found] == (
        [(expected, 3, 3 * [60 * 10**6])] if expected else []
    )
    assert (find_steps(trace).source == "none") == bool(expected)


def test_an_event_of_the_program_does_not_make_it_a_server(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(*marks(4), *(event("ProcessBatch", 100 * number, 50) for number in range(4))))
    assert find_steps(trace).source == "markers"
    assert results_of(trace, sections=["requests"])["requests"].batches == ()


def test_a_run_inside_a_batch_is_not_another_request(tmp_path: Path) -> None:
    *clients, batches = server().lines
    inner = line("batch_threads", *batches.events, event("SessionRun", 70, 9), id=4)
    assert [each.count for each in requests_of(tmp_path, plane("/host:CPU", *clients, inner))[0].requests] == [2]


@pytest.mark.parametrize("name", ["SessionRun", "TfrtModelRun"])
def test_a_job_that_trains_is_no_server(tmp_path: Path, name: str) -> None:
    gradient = event("gradients/dense/MatMul_grad/MatMul:MatMul", 50, 5)
    found, results = requests_of(tmp_path, plane("/host:CPU", *server(name).lines, line("op", gradient, id=9)))
    assert not found.requests
    assert not found.batches
    assert build(results) == Section("requests", "Requests", level="full", notes=("The profile has no requests.",))


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("predict_function", "inference"),  # Keras 2
        ("one_step_on_data_distributed", "inference"),  # Keras 3
        ("serve", "inference"),
        ("test_function", "step"),
        ("one_step_on_iterator", "step"),
        ("predict_and_eval", "step"),
        ("preserve", "step"),
    ],
)
def test_predict_is_inference_and_evaluation_is_not(tmp_path: Path, function: str, kind: str) -> None:
    # The first call traces; the others take 50 us.
    calls = [call(function, 0, 90, "traced-nonXla"), *(call(function, 100 * number, 50) for number in range(1, 4))]
    ops = [event("MatMul:MatMul", 100 * number + 5, 9) for number in range(4)]
    trace = trace_of(tmp_path, host(*calls, *ops), links=True)
    assert {*find_steps(trace).kinds} == {kind}
    found = results_of(trace, sections=["requests"])["requests"].requests
    expected = "predict" if function != "serve" else function
    rows = [(expected, 4, 1, 3 * [50 * 10**6])] if kind == "inference" else []
    as_tensorflow = results_of(trace, sections=["requests"], attribution="tensorflow")["requests"].requests
    assert [(each.name, each.count) for each in as_tensorflow] == [(each.name, each.count) for each in found]
    assert [(each.name, each.count, each.compiling, each.latency_ps.tolist()) for each in found] == rows


def test_predict_beside_training_is_not_training(tmp_path: Path) -> None:
    events = []
    for number in range(8):
        function = "train_function" if number < 4 else "predict_function"
        op = "gradient_tape/dense/MatMul:MatMul" if number < 4 else "dense/MatMul:MatMul"
        run = event(f"EagerExecute: __inference_{function}_{1 + number // 4}", 100 * number + 1, 80)
        events += [call(function, 100 * number, 90), run, event(op, 100 * number + 5, 20)]
    trace = trace_of(tmp_path, host(*events))
    assert find_steps(trace).kinds == ("train",) * 4 + ("inference",) * 4
    found = results_of(trace, sections=["requests"])["requests"].requests
    assert [(each.name, each.count) for each in found] == [("predict", 4)]


def test_a_call_on_a_gpu_lasts_until_its_kernel_is_done(tmp_path: Path) -> None:
    calls = [call("predict_function", 100 * number, 20) for number in range(3)]
    launches = [event("cuLaunchKernel", 100 * number + 5, 5, correlation_id=number + 1) for number in range(2)]
    kernels = [event("gemm", 100 * number + 15, 45, correlation_id=number + 1) for number in range(2)]
    found, results = requests_of(tmp_path, host(*calls, *launches), gpu(*kernels))
    # The third call launches nothing, so when its result is ready is unknown.
    assert found.requests[0].latency_ps.tolist() == 2 * [60 * 10**6]
    section = build(results)
    assert section.notes == ("The latency of 1 batch of predict is unknown.",)
    assert section.facts[0].title == "Batch time", "the caller of predict waits longer"


def test_calls_whose_kernels_may_be_missing_have_no_latency(tmp_path: Path) -> None:
    calls = [call("predict_function", 100 * number, 20) for number in range(10)]
    launches = [event("cuLaunchKernel", 100 * number + 5, 5, correlation_id=number + 1) for number in range(10)]
    kernels = [event("gemm", 100 * number + 15, 45, correlation_id=number + 1) for number in range(5, 10)]
    planes = host(*calls, *launches), gpu(*kernels)
    assert build(requests_of(tmp_path, *planes)[1]).notes == ("The latency of 10 batches of predict is unknown.",)
    outcome = tfperf.check(logdir_of(tmp_path, a=space(*planes)), max_p50="1ms")
    assert (outcome.exit_code, "device events are missing" in outcome.judged[0].why) == (1, True)


@pytest.mark.parametrize(
    ("function", "made", "step_kind", "kind"),
    [
        ("predict", jax.FORWARD, "inference", "inference"),
        ("model", jax.FORWARD, "iteration", "unknown"),
        ("eval_step", jax.FORWARD, "iteration", None),
        ("scale", jax.OTHER, "iteration", None),
        ("predict", jax.GRADIENT, "train", None),
    ],
)
def test_calls_of_jitted_functions(
    tmp_path: Path, function: str, made: tuple[str, str], step_kind: str, kind: str | None
) -> None:
    calls = [each for number in range(4) for each in jax.call(function, 100 * number, 20)]
    runs = [each for number in range(4) for each in jax.run(number, 1, 100 * number + 10, 50, f"{made[0]}.0")]
    trace = jax.jax_trace(tmp_path, {1: (f"jit_{function}", (made,))}, calls, runs)
    assert {*find_steps(trace).kinds} == {step_kind}
    results = results_of(trace, sections=["requests"])
    rows = [(function, kind, 4, 0.06)] if kind else []
    data = REQUESTS_TABLE.data(results)
    assert (rows_of(data, "request", "kind", "count", "p50_ms") if data else []) == rows
    # What may be evaluation is only shown on request, and never as inference.
    assert build(results).level == ("brief" if kind == "inference" else "full")
    assert [fact.key for fact in build(results).facts] == (["latency"] if kind == "inference" else [])


def test_a_mark_is_a_request_with_its_work(tmp_path: Path) -> None:
    steps = [event("inference", 100 * number, 30, step_num=number) for number in range(4)]
    calls = [each for number in range(4) for each in jax.call("model", 100 * number + 5, 20)]
    runs = [each for number in range(4) for each in jax.run(number, 1, 100 * number + 10, 50, "dot.0")]
    trace = jax.jax_trace(tmp_path, {1: ("jit_model", (jax.FORWARD,))}, steps + calls, runs)
    assert {*find_steps(trace).kinds} == {"inference"}
    found = results_of(trace, sections=["requests"])["requests"].requests
    assert [(each.name, each.source, each.latency_ps.tolist()) for each in found] == [
        ("inference", "markers", 4 * [60 * 10**6])
    ]


def test_which_work_belongs_to_calls_at_a_time_is_unknown(tmp_path: Path) -> None:
    threads = [
        line(
            f"python {at}", *(each for number in range(4) for each in jax.call("predict", 100 * number + at, 20)), id=at
        )
        for at in (1, 2)
    ]
    runs = [each for number in range(8) for each in jax.run(number, 1, 50 * number + 10, 30, "dot.0")]
    worker = line("tf_XLAPjRtCpuClient/2", *runs, id=3)
    made = jax.programs({1: ("jit_predict", (jax.FORWARD,))})
    found = requests_of(tmp_path, made, plane("/host:CPU", *threads, worker))[0].requests
    assert [(each.count, each.latency_ps.tolist()) for each in found] == [(8, [])]


def test_a_mark_on_a_gpu_without_a_call_has_no_known_end(tmp_path: Path) -> None:
    steps = [event("inference", 100 * number, 30, step_num=number) for number in range(4)]
    found = requests_of(tmp_path, host(*steps), gpu(event("gemm", 20, 60)))[0].requests
    assert [(each.count, each.latency_ps.tolist()) for each in found] == [(4, [])]


def test_a_request_that_a_range_of_steps_may_cut_is_not_measured(tmp_path: Path) -> None:
    calls = [call("predict_function", 100 * number, 100) for number in range(6)]
    found = tfperf.load(logdir_of(tmp_path, a=space(host(*calls))), steps=(1, 3))["requests"].requests
    assert [(each.count, each.latency_ps.tolist()) for each in found] == [(3, 2 * [100 * 10**6])]


def test_causes_of_loops_are_not_causes_of_inference(tmp_path: Path) -> None:
    """Requests need their results, and the time between them depends on callers."""
    texts = []
    for function in ("predict", "model"):
        calls = [each for number in range(9) for each in jax.call(function, 2000 * number, 90)]
        runs = [each for number in range(9) for each in jax.run(number, 1, 2000 * number + 10, 50, "dot.0")]
        (tmp_path / function).mkdir()
        trace = jax.jax_trace(tmp_path / function, {1: (f"jit_{function}", (jax.FORWARD,))}, calls, runs)
        texts.append([finding.code for finding in first_screen(results_of(trace)).findings])
    assert "small_work_per_step" in texts[1]
    assert "small_work_per_step" not in texts[0]


def test_time_between_requests_is_no_problem_of_the_program(tmp_path: Path) -> None:
    calls = [each for number in range(9) for each in jax.call("predict", 2000 * number, 90)]
    runs = [each for number in range(9) for each in jax.run(number, 1, 2000 * number + 10, 50, "dot.0")]
    trace = jax.jax_trace(tmp_path, {1: ("jit_predict", (jax.FORWARD,))}, calls, runs)
    found = results_of(trace)["diagnosis"]
    (cause,) = [each for each in found.causes if each.code == "python_between_steps"]
    assert (cause.title, cause.actions, cause.gain_ms) == ("Time between requests", (), 0.0)
    assert cause.detail.startswith("waiting for callers, or ")
    assert found.headline.startswith("No cause worth fixing")


def test_limits_on_latency_judge_inference_rather_than_other_calls(tmp_path: Path) -> None:
    made = [("predict", 2000 * number) for number in range(20)] + [("model", 50_000)]
    calls = [each for function, at in made for each in jax.call(function, at, 90)]
    runs = [
        each
        for number, (function, at) in enumerate(made)
        for each in jax.run(number, 1 + (function == "model"), at + 10, 50, "dot.0")
    ]
    programs = {1: ("jit_predict", (jax.FORWARD,)), 2: ("jit_model", (jax.FORWARD,))}
    jax.jax_trace(tmp_path, programs, calls, runs)
    outcome = tfperf.check(next(tmp_path.rglob("*.xplane.pb")), max_p95="1ms")
    assert (outcome.exit_code, outcome.judged[0].why) == (0, "of 20 calls of predict.")


def test_training_marks_are_no_requests(tmp_path: Path) -> None:
    assert requests_of(tmp_path, host(*marks(4)))[0].requests == ()


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        *((1, (None, None, None)), (2, (1, None, None)), (19, (10, None, None)), (20, (10, 19, None))),
        *((99, (50, 95, None)), (100, (50, 95, 99)), (1000, (500, 950, 990))),
    ],
)
def test_a_percentile_is_a_measured_latency_of_enough_requests(count: int, expected: tuple[int | None, ...]) -> None:
    times = np.arange(1, count + 1, dtype=np.int64) * 10**9
    assert tuple(percentile_ms(times, percent) for percent in (50, 95, 99)) == expected


def test_hosts_add_up(tmp_path: Path) -> None:
    found = requests_of(tmp_path, server())[0]
    both = combine([found, found])
    assert [(each.count, each.latency_ps.tolist()) for each in both.requests] == [
        (4, [90 * 10**6, 90 * 10**6, 100 * 10**6, 100 * 10**6])
    ]
    assert both.requests[0].per_second == 2 * known(found.requests[0].per_second) == 200_000
    assert (both.batches[0].count, both.batches[0].padding, len(both.waited_ps)) == (2, 4, 4)


@pytest.mark.parametrize(
    ("count", "limit", "code", "text"),
    [
        (100, {"max_p99": "3ms"}, 0, "of 100 requests of resnet:3"),
        (100, {"max_p99": "1ms"}, 3, "of 100 requests of resnet:3"),
        (100, {"max_p50": "2ms", "max_p95": "2ms"}, 0, "of 100 requests of resnet:3"),
        (99, {"max_p99": "3ms"}, 1, "p99 needs 100 requests, but the profile measures 99 requests of resnet:3"),
        (0, {"max_p99": "3ms"}, 1, "the profile has no requests"),
    ],
)
def test_limits_on_latency(tmp_path: Path, count: int, limit: dict[str, Any], code: int, text: str) -> None:
    events = [event("TfrtModelRun", 3 * _MS * each, 2 * _MS, model_id="resnet:3") for each in range(count)]
    path = logdir_of(tmp_path, a=space(host(*events, event("other", 0, 1))))
    outcome = tfperf.check(path, **limit)
    assert outcome.exit_code == code
    assert all(text in judged.why for judged in outcome.judged)
