"""`tfperf.load`: what a script or a notebook gets."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from builders import Event, event, host, logdir_of, space

import tfperf


def job(wait: float) -> bytes:
    """Five steps of 100 us that wait for input and compute for the rest."""
    events: list[Event] = []
    for n in range(5):
        events += [
            event("train", 100 * n, 100, step_num=n),
            event("IteratorGetNextOp::DoCompute", 100 * n, wait),
            event("MatMul:MatMul", 100 * n + wait, 100 - wait),
        ]
    return space(host(*events))


def test_results_are_typed_and_have_dataframes(tmp_path: Path) -> None:
    trace = tfperf.load(logdir_of(tmp_path, a=job(30)))
    assert trace.overview().input_percent == pytest.approx(30.0)
    assert list(trace.steps.table["input_ms"]) == pytest.approx([0.03] * 5)
    assert list(trace.ops().host.table["op_name"]) == ["MatMul"]
    assert trace.functions().table.empty
    assert trace.input().table.empty
    assert [finding.code for section in trace.report(["overview"]).sections for finding in section.findings] == [
        "input_high"
    ]


def test_each_host_can_be_seen_alone(tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, a=job(30), b=job(10))
    assert [analysis.host for analysis in tfperf.load(logdir).hosts] == ["a", "b"]
    assert tfperf.load(logdir, hosts=["b"]).overview().input_percent == pytest.approx(10.0)


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_hosts_can_be_analysed_anywhere(
    tmp_path: Path, pool: type[ThreadPoolExecutor] | type[ProcessPoolExecutor]
) -> None:
    logdir = logdir_of(tmp_path, a=job(30), b=job(10))
    with pool(2) as executor:
        spread = tfperf.load(logdir, executor=executor)
    assert spread.report().summary == tfperf.load(logdir).report().summary


def test_progress_counts_bytes_over_all_hosts(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    logdir = logdir_of(tmp_path, a=job(30), b=job(10))
    tfperf.load(logdir, progress=lambda done, total: seen.append((done, total)))
    size = sum(file.stat().st_size for file in logdir.rglob("*.pb"))
    assert all(total == size and 0 < done <= size for done, total in seen)
    assert seen == sorted(seen)
    assert len(seen) >= 2


def test_a_marker_has_no_meaning_for_tensorflows_own_steps(tmp_path: Path) -> None:
    with pytest.raises(tfperf.TfperfError, match="takes its own steps"):
        tfperf.load(logdir_of(tmp_path, a=job(30)), attribution="tensorflow", step_marker="train")


def test_a_missing_run_names_those_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(tfperf.TraceNotFoundError, match="2026_01_01_00_00_00"):
        tfperf.load(logdir_of(tmp_path, a=job(30)), run="2025")
