"""Results of profiling jobs, and their reports."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest
from builders import event, host, known, space
from capture.double import replies, response, serving
from capture.handmade import listening, saying
from live.fake_jobs import marked_steps
from msgspec.structs import replace

import tfperf
from tfperf.base.errors import CaptureError, TfperfError, TraceFormatError
from tfperf.capture.address import Address
from tfperf.capture.outcomes import Captured, Check
from tfperf.capture.remote import CaptureRequest
from tfperf.cli.doctor import doctor_report
from tfperf.live.sampling import Sampled, longest_step_s, sample_continuously, steps_of
from tfperf.report.render import render

CHECKS = (
    Check("Python", "ok", "3.11.2"),
    Check("GPU", "warn", "hidden", "unset CUDA_VISIBLE_DEVICES"),
    Check("libcupti", "fail", "not found", "pip install it"),
    Check("port", "ok", "taken", "tfperf doctor --port 6009"),
)


def test_the_table_keeps_the_order_of_the_checks() -> None:
    (table,) = doctor_report(CHECKS).tables()
    assert list(table.rows()) == [(check.name, check.status, check.found, check.fix) for check in CHECKS]


def test_what_to_act_on_stands_above_the_worst_first() -> None:
    findings = doctor_report(CHECKS).sections[0].findings
    assert [(finding.severity, finding.text, finding.action) for finding in findings] == [
        ("problem", "libcupti: not found", "pip install it"),
        ("hint", "GPU: hidden", "unset CUDA_VISIBLE_DEVICES"),
        ("info", "port: taken", "tfperf doctor --port 6009"),
    ]


def test_the_summary_counts_and_names_the_worst() -> None:
    assert doctor_report(CHECKS).summary == {"ok": 2, "warn": 1, "fail": 1, "status": "fail"}
    assert doctor_report(CHECKS[:2]).summary["status"] == "warn"
    assert doctor_report(CHECKS[:1]).summary == {"ok": 1, "warn": 0, "fail": 0, "status": "ok"}


STEPS = space(host(*marked_steps(*[10] * 5)))


def saved(folder: Path, name: str, data: bytes) -> Captured:
    path = folder / f"{name}.xplane.pb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return Captured(worker=name, path=path, size_bytes=len(data), event_count=5)


def test_a_sample_is_analyzed_only_when_asked_to(tmp_path: Path) -> None:
    with serving({"Profile": replies(STEPS)}) as port:
        sampled = tfperf.sample(f"127.0.0.1:{port}", logdir=tmp_path, duration_s=0.01)
    assert len(sampled.kept) == 1
    assert (sampled.analysis, sampled.report().summary["captured_steps"]) == (None, None)
    assert [sampled.folder] == [trace.parent for trace in tmp_path.rglob("*.xplane.pb")]
    analyzed = sampled.analyzed()
    assert analyzed.report().summary["captured_steps"] == 5
    assert [section.name for section in analyzed.report().sections][:2] == ["capture", "diagnosis"]


def test_a_worker_that_fails_is_an_entry_and_a_problem(tmp_path: Path) -> None:
    web_server = listening(saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with web_server as web_port, serving({"Profile": replies(STEPS)}) as port:
        workers = [f"127.0.0.1:{number}" for number in (web_port, port)]
        sampled = tfperf.sample(*workers, logdir=tmp_path, duration_s=0.01)
    assert [result.reason for result in sampled.captured] == ["not_a_profiler", ""]
    assert len(sampled.kept) == 1
    with pytest.raises(CaptureError, match=str(web_port)) as caught:
        sampled.raise_problem()
    assert caught.value.reason == "not_a_profiler"


def test_the_only_worker_is_no_table_where_nothing_is_wrong_with_it(tmp_path: Path) -> None:
    fine, other = saved(tmp_path, "a", STEPS), saved(tmp_path, "b", STEPS)
    assert render(Sampled(tmp_path, (fine,)).analyzed().report(), "table").split() == (
        render(tfperf.load(tmp_path / "a.xplane.pb").report(), "table").split()
    )
    for captured in ((fine, other), (replace(fine, reason="gpu_missing", message="no events of a GPU"),)):
        assert "Workers" in render(Sampled(tmp_path, captured).analyzed().report(), "table")
    assert "Workers" in render(Sampled(tmp_path, (fine,)).report(), "table"), "there is nothing else to say"


def test_pictures_are_made_where_they_are_asked_for(tmp_path: Path) -> None:
    sampled = Sampled(tmp_path, (saved(tmp_path, "a", STEPS),))
    assert sampled.with_pictures() is sampled, "it is not analyzed"
    analyzed = sampled.analyzed()
    assert "timeline" not in {section.name for section in analyzed.report().sections}
    drawn = analyzed.with_pictures()
    assert "timeline" in {section.name for section in drawn.report().sections}
    (tmp_path / "a.xplane.pb").unlink()
    assert analyzed.with_pictures() is analyzed, "the trace is gone"


def test_a_trace_that_cannot_be_analyzed_is_reported_without_analysis(tmp_path: Path) -> None:
    sampled = Sampled(tmp_path, (saved(tmp_path, "w", b"not a trace"),)).analyzed()
    assert sampled.analysis is None
    assert [section.name for section in sampled.report().sections] == ["capture"]
    assert sampled.report().summary["captured_steps"] is None
    assert sampled.lines[-1] == sampled.error != ""
    with pytest.raises(TfperfError, match=r"w\.xplane\.pb"):
        sampled.raise_problem()


def test_the_newest_of_several_runs_is_analyzed(tmp_path: Path) -> None:
    old = saved(tmp_path / "1", "w", STEPS)
    new = saved(tmp_path / "2", "w", space(host(event("train", 0, 9, step_num=0, _r=1))))
    sampled = Sampled(tmp_path, (old, new)).analyzed()
    assert known(sampled.analysis).run.folder == tmp_path / "2"
    rows = list(next(iter(sampled.report().tables())).rows())
    assert [row[3] for row in rows] == [5, 1]


def test_without_a_trace_there_is_nothing_to_analyze(tmp_path: Path) -> None:
    sampled = Sampled(tmp_path, (Captured(worker="w", reason="idle", message="idle"),)).analyzed()
    assert (sampled.analysis, sampled.error) == (None, "")
    assert sampled.lines == ("no profile was captured: idle",)


def written(folder: Path, *durations_us: float) -> Path:
    path = folder / "w.xplane.pb"
    path.write_bytes(space(host(*marked_steps(*durations_us) or [event("op", 0, 1)])))
    return path


def test_steps_are_counted_and_the_longest_is_found(tmp_path: Path) -> None:
    trace = written(tmp_path, 10, 10, 30_000, 10)
    assert len(steps_of(trace)) == 4
    assert longest_step_s(trace) == pytest.approx(0.030)


def test_what_has_no_steps(tmp_path: Path) -> None:
    assert longest_step_s(written(tmp_path)) == 0
    (tmp_path / "w.xplane.pb").write_bytes(b"not a trace")
    with pytest.raises(TraceFormatError):
        longest_step_s(tmp_path / "w.xplane.pb")


# --- the flight recorder: what it keeps, and that nothing stays of what it does not ---


def steps(*durations_ms: float) -> bytes:
    return space(host(*marked_steps(*(1000 * duration for duration in durations_ms))))


def record(logdir: Path, snapshot: Callable[[int], bytes | None], **options: Any) -> tuple[Sampled, list[str]]:
    """Record from a server that gives these traces, and is gone after them; return the result and what was said."""
    numbers, lines = count(), list[str]()

    def give(request: Any, context: grpc.ServicerContext) -> bytes:
        trace = snapshot(next(numbers))
        if trace is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "no more")
        return response(trace)

    names = ("StartContinuousProfiling", "StopContinuousProfiling")
    answers = {**dict.fromkeys(names, lambda request, context: b""), "GetSnapshot": give}
    with serving(answers) as port:
        request = CaptureRequest(workers=[Address("127.0.0.1", port)], duration_s=0.0)
        return sample_continuously(request, logdir, lines.append, **options), lines


def of(traces: list[bytes]) -> Callable[[int], bytes | None]:
    return lambda number: traces[number] if number < len(traces) else None


def test_the_last_recordings_are_kept(tmp_path: Path) -> None:
    sampled, lines = record(tmp_path, of([steps(1, 1), steps(2, 2), steps(3, 3), steps(4, 4)]), keep=2)
    paths = [result.path for result in sampled.kept]
    assert [path.read_bytes() for path in paths if path] == [steps(3, 3), steps(4, 4)]
    assert sorted(tmp_path.rglob("*.xplane.pb")) == sorted(path for path in paths if path)
    assert len(list((tmp_path / "plugins/profile").iterdir())) == 2, "no empty folders of those that went"
    assert len([line for line in lines if line.startswith("kept ")]) == 4
    assert sampled.captured[-1].reason == "refused", "the end of the server"


def test_an_idle_job_gives_nothing_to_keep_and_is_no_failure(tmp_path: Path) -> None:
    sampled, _ = record(tmp_path, of([steps(), steps(5), steps()]))
    assert [result.event_count for result in sampled.kept] == [1]


def test_only_recordings_with_a_slow_step_are_kept(tmp_path: Path) -> None:
    fast, slow = steps(10, 10, 10, 10), steps(10, 10, 60, 10)
    sampled, _ = record(tmp_path, of([fast, slow, fast, slow, fast]), slow_step_s=0.05)
    assert [result.path.read_bytes() for result in sampled.kept if result.path] == [slow, slow]
    assert len(list((tmp_path / "plugins/profile").iterdir())) == 2
    sampled, _ = record(tmp_path / "logs", of([fast] * 3), slow_step_s=0.05)
    assert (sampled.kept, (tmp_path / "logs").exists()) == ((), False)


@pytest.mark.stress
@pytest.mark.parametrize("slow_step_s", [None, 0.05], ids=["all", "slow"])
def test_many_recordings_take_no_memory_and_no_disk(tmp_path: Path, slow_step_s: float | None) -> None:
    """Of all recordings, 3 are on disk at any time; after the 30th, memory grows by little more."""
    first, last = 30, 80
    held_bytes, most_files, trace = dict[int, int](), 0, steps(*[10] * 1000, 60, 10)

    def snapshot(number: int) -> bytes | None:
        nonlocal most_files
        if number in (first, last):
            gc.collect()
            held_bytes[number], _ = tracemalloc.get_traced_memory()
            most_files = max(most_files, len(list(tmp_path.rglob("*"))))
        return trace if number < last else None

    tracemalloc.start()
    try:
        sampled, _ = record(tmp_path, snapshot, keep=3, slow_step_s=slow_step_s)
    finally:
        tracemalloc.stop()
    assert len(sampled.kept) == 3
    assert most_files <= 2 + 2 * 4, "plugins, profile; a folder and a file each"
    grown = held_bytes[last] - held_bytes[first]
    assert grown < (last - first) * 15_000, "a trace has 30 kB, the analysis of its steps 140 kB"
