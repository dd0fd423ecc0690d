"""The verdict: one sentence with its number."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Plane, event, host, results_of, trace_of

from tfperf.report.model import Finding
from tfperf.sections.overview.summary import verdict_of


def verdict(tmp_path: Path, *planes: Plane) -> Finding:
    return verdict_of(results_of(trace_of(tmp_path, *planes), sections=["overview"]))


def job(wait: float, compute: float) -> Plane:
    """Steps of 100 us: waiting for input, then computing, the rest unexplained."""
    events: list[Event] = []
    for n in range(5):
        events += [
            event("train", 100 * n, 100, step_num=n),
            event("IteratorGetNextOp::DoCompute", 100 * n, wait),
            event("A:A", 100 * n + wait, compute),
        ]
    return host(*events)


@pytest.mark.parametrize(
    ("wait", "compute", "sentence"),
    [
        (64, 36, "HIGHLY input-bound: 64.0% of the step time goes to input (moderate from 5%, high from 20%)."),
        (7, 93, "MODERATELY input-bound: 7.0% of the step time goes to input (moderate from 5%, high from 20%)."),
        (1, 99, "NOT input-bound: 1.0% of the step time goes to input (moderate from 5%, high from 20%)."),
        (
            1,
            89,
            "POSSIBLY input-bound: 1.0% of the step time goes to input (moderate from 5%, high from 20%), but "
            "10.0% is in 'All others' (moderate from 3%, high from 15%): Python work or I/O?",
        ),
    ],
)
def test_the_verdict_is_one_sentence_with_its_number(
    tmp_path: Path, wait: float, compute: float, sentence: str
) -> None:
    assert verdict(tmp_path, job(wait, compute)).text == sentence


def test_without_steps_the_verdict_says_why_and_what_to_do(tmp_path: Path) -> None:
    unknown = verdict(tmp_path, host(event("A:A", 0, 5)))
    assert unknown.text.startswith("Cannot tell whether the job is input-bound: no step time was measured")
    assert "--step-marker" in unknown.action
