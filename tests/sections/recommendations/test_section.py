"""Each sentence stands on its number: what is said for which shares."""

from __future__ import annotations

from pathlib import Path

from builders import Event, Plane, event, host, iterator_call, line, plane, ref, results_of, trace_of

from tfperf.report.model import Finding
from tfperf.sections.recommendations.section import build


def advice(tmp_path: Path, *planes: Plane) -> dict[str, Finding]:
    """Return the recommendations by code, in their order."""
    results = results_of(trace_of(tmp_path, *planes))
    return {finding.code: finding for finding in build(results).findings}


def job(wait: float, compute: float, *, count: int = 5) -> Plane:
    """Steps of 100 us: waiting for input, then computing, the rest unexplained."""
    events: list[Event] = []
    for n in range(count):
        events += [
            event("train", 100 * n, 100, step_num=n),
            event("IteratorGetNextOp::DoCompute", 100 * n, wait),
            event("A:A", 100 * n + wait, compute),
        ]
    return host(*events)


def test_waiting_names_the_stage_to_look_at(tmp_path: Path) -> None:
    stages = line("data", event("Iterator::Root", 0, 50), event("Iterator::Root::Map", 5, 40))
    made = plane("/host:CPU", *job(64, 36).lines, stages)
    given = advice(tmp_path, made)
    assert list(given) == ["wait_for_input"]
    assert "Iterator::Root::Map" in given["wait_for_input"].text
    assert "prefetch" in given["wait_for_input"].action


def test_unexplained_time_is_worth_a_word(tmp_path: Path) -> None:
    assert list(advice(tmp_path, job(1, 70))) == ["all_others"]


def test_a_job_without_problems_is_left_in_peace(tmp_path: Path) -> None:
    assert list(advice(tmp_path, job(1, 98))) == ["nothing"]


def test_retracing_names_the_function(tmp_path: Path) -> None:
    events: list[Event] = []
    for n in range(4):
        call = event("work", 100 * n, 100, tf_function_call=ref("traced-nonXla"), tracing_count=n)
        events += [event("train", 100 * n, 100, step_num=n), call]
    assert "work (4 of 4 calls traced, 100.0%)" in advice(tmp_path, host(*events))["retracing"].text


def test_few_steps_are_named_as_weak_ground(tmp_path: Path) -> None:
    assert "short_capture" in list(advice(tmp_path, job(1, 98, count=1)))


def gpu_job(*, kernel: str, launch: float, copy: float) -> tuple[Plane, Plane]:
    """Steps of 100 us on a GPU: copy the batch, launch, compute for 50 us."""
    cpu, kernels, copies = [], [], []
    for n in range(4):
        start = 100 * n
        cpu += [event("train", start, 100, step_num=n), event("ExecutorState::Process", start + copy, launch)]
        copies.append(event("MemcpyH2D", start, copy))
        kernels.append(event(kernel, start + 50, 50))
    gpu = plane(
        "/device:GPU:0", line("Stream #1(Compute)", *kernels, id=1), line("Stream #2(MemcpyH2D)", *copies, id=2)
    )
    return host(*cpu), gpu


def test_gpu_advice(tmp_path: Path) -> None:
    given = advice(tmp_path, *gpu_job(kernel="sgemm", launch=25, copy=25))
    assert list(given) == ["copy_to_device", "kernel_launch", "precision"]


def test_half_precision_needs_no_advice(tmp_path: Path) -> None:
    given = advice(tmp_path, *gpu_job(kernel="hgemm_fp16", launch=48, copy=2))
    assert given
    assert "precision" not in given


def test_the_pipeline_that_steps_wait_for_is_named_and_where_to_read_more(tmp_path: Path) -> None:
    calls = [iterator_call("Prefetch", 100 * n, 64, n + 1) for n in range(5)]
    made = plane("/host:CPU", *job(64, 36).lines, line("data", *calls))
    assert advice(tmp_path, made)["wait_for_input"].text.startswith("Steps wait 64.0% of their time for tf.data.")


def test_ops_that_python_runs_one_by_one_are_advised_on(tmp_path: Path) -> None:
    events: list[Event] = []
    for n in range(5):
        ops = [event("EagerExecute: Add", 100 * n + 10 * k, 9) for k in range(9)]
        events += [event("train", 100 * n, 100, step_num=n), *ops]
    assert advice(tmp_path, host(*events))["eager"].severity == "problem"
