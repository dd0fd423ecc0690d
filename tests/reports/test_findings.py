"""Each sentence stands on its number: what is said for which shares."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Plane, event, host, line, logdir_of, plane, ref, space

import tfperf
from tfperf.report.model import Finding, Section


def section(tmp_path: Path, name: str, *planes: Plane) -> Section:
    report = tfperf.load(logdir_of(tmp_path, a=space(*planes))).report([name])
    (found,) = report.sections
    return found


def job(wait: float, compute: float, *, count: int = 5) -> Plane:
    """Steps of 100 us: waiting for input, then computing, the rest unexplained."""
    events: list[Event] = []
    for n in range(count):
        events += [event("train", 100 * n, 100, step_num=n), event("IteratorGetNextOp::DoCompute", 100 * n, wait),
                   event("A:A", 100 * n + wait, compute)]  # fmt: skip
    return host(*events)


@pytest.mark.parametrize(
    ("wait", "compute", "sentence"),
    [
        (64, 36, "HIGHLY input-bound: 64.0% of the step time goes to input (moderate from 5%, high from 20%)."),
        (7, 93, "MODERATELY input-bound: 7.0% of the step time goes to input (moderate from 5%, high from 20%)."),
        (1, 99, "NOT input-bound: 1.0% of the step time goes to input (moderate from 5%, high from 20%)."),
        (1, 89, "POSSIBLY input-bound: 1.0% of the step time goes to input (moderate from 5%, high from 20%), but "
         "10.0% is in 'All others' (moderate from 3%, high from 15%): Python work or I/O?"),
    ],
)  # fmt: skip
def test_the_verdict_is_one_sentence_with_its_number(
    tmp_path: Path, wait: float, compute: float, sentence: str
) -> None:
    assert section(tmp_path, "overview", job(wait, compute)).findings[0].text == sentence


def test_without_steps_the_verdict_says_why_and_what_to_do(tmp_path: Path) -> None:
    (verdict,) = section(tmp_path, "overview", host(event("A:A", 0, 5))).findings
    assert verdict.text.startswith("Cannot tell whether the job is input-bound: no step time was measured")
    assert "--step-marker" in verdict.action


def codes(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.code for finding in findings]


def test_waiting_names_the_stage_to_look_at(tmp_path: Path) -> None:
    stages = line("data", event("Iterator::Root", 0, 50), event("Iterator::Root::Map", 5, 40))
    made = plane("/host:CPU", *job(64, 36).lines, stages)
    (advice,) = section(tmp_path, "recommendations", made).findings
    assert advice.code == "wait_for_input"
    assert "Iterator::Root::Map" in advice.text
    assert "prefetch" in advice.action


def test_unexplained_time_is_worth_a_word(tmp_path: Path) -> None:
    assert codes(section(tmp_path, "recommendations", job(1, 70)).findings) == ["all_others"]


def test_a_job_without_problems_is_left_in_peace(tmp_path: Path) -> None:
    assert codes(section(tmp_path, "recommendations", job(1, 98)).findings) == ["nothing"]


def test_retracing_names_the_function(tmp_path: Path) -> None:
    events = [e for n in range(4) for e in (event("train", 100 * n, 100, step_num=n),
              event("work", 100 * n, 100, tf_function_call=ref("traced-nonXla"), tracing_count=n))]  # fmt: skip
    advice = {finding.code: finding for finding in section(tmp_path, "recommendations", host(*events)).findings}
    assert "work (4 of 4 calls traced, 100.0%)" in advice["retracing"].text


def test_few_steps_are_named_as_weak_ground(tmp_path: Path) -> None:
    assert "short_capture" in codes(section(tmp_path, "recommendations", job(1, 98, count=1)).findings)


def gpu_job(*, kernel: str, launch: float, copy: float) -> tuple[Plane, Plane]:
    """Steps of 100 us on a GPU: copy the batch, launch, compute for 50 us."""
    cpu, kernels, copies = [], [], []
    for n in range(4):
        begin = 100 * n
        cpu += [event("train", begin, 100, step_num=n), event("ExecutorState::Process", begin + copy, launch)]
        copies.append(event("MemcpyH2D", begin, copy))
        kernels.append(event(kernel, begin + 50, 50))
    gpu = plane(
        "/device:GPU:0", line("Stream #1(Compute)", *kernels, id=1), line("Stream #2(MemcpyH2D)", *copies, id=2)
    )
    return host(*cpu), gpu


def test_gpu_advice(tmp_path: Path) -> None:
    found = section(tmp_path, "recommendations", *gpu_job(kernel="sgemm", launch=25, copy=25)).findings
    assert codes(found) == ["copy_to_device", "kernel_launch", "precision"]


def test_half_precision_needs_no_advice(tmp_path: Path) -> None:
    found = section(tmp_path, "recommendations", *gpu_job(kernel="hgemm_fp16", launch=48, copy=2)).findings
    assert "precision" not in codes(found)
