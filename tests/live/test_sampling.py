"""Results of profiling jobs, and their reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, host, space
from capture.double import response, serving
from capture.handmade import listening, saying
from msgspec.structs import replace

import tfperf
from tfperf.base.errors import CaptureError, TfperfError, TraceFormatError
from tfperf.capture.outcomes import Captured, Check
from tfperf.cli.doctor import doctor_report
from tfperf.live.sampling import Sampled, longest_step_s, steps_of
from tfperf.report.render import RenderOptions, render

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


def test_long_texts_are_whole_at_80_columns() -> None:
    check = Check("driver's permission", "warn", "what was found " * 12, "what to try " * 40)
    lines = render(doctor_report([check]), "table", RenderOptions(width=80)).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).count("try") == 41  # Once more, as the mark of the advice.


STEPS = space(host(*(event("train", 10 * number, 9, step_num=number, _r=1) for number in range(5))))


def saved(folder: Path, name: str, data: bytes) -> Captured:
    """Write a trace file as a capture would."""
    path = folder / f"{name}.xplane.pb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return Captured(worker=name, path=path, size_bytes=len(data), event_count=5)


def test_a_sample_is_analyzed_only_when_asked_to(tmp_path: Path) -> None:
    with serving({"Profile": lambda request, context: response(STEPS)}) as port:
        sampled = tfperf.sample(f"127.0.0.1:{port}", logdir=tmp_path, duration_s=0.01)
    assert len(sampled.kept) == 1
    assert (sampled.analysis, sampled.report().summary["captured_steps"]) == (None, None)
    assert [sampled.folder] == [trace.parent for trace in tmp_path.rglob("*.xplane.pb")]
    analyzed = sampled.analyzed()
    assert analyzed.analysis is not None
    assert analyzed.report().summary["captured_steps"] == 5
    assert [section.name for section in analyzed.report().sections][:2] == ["capture", "diagnosis"]


def test_a_worker_that_fails_is_an_entry_and_a_problem(tmp_path: Path) -> None:
    web_server = listening(saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with web_server as web_port, serving({"Profile": lambda *_: response(STEPS)}) as port:
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
    assert sampled.analysis is not None
    assert sampled.analysis.run.folder == tmp_path / "2"
    rows = list(next(iter(sampled.report().tables())).rows())
    assert [row[3] for row in rows] == [5, 1]


def test_without_a_trace_there_is_nothing_to_analyze(tmp_path: Path) -> None:
    sampled = Sampled(tmp_path, (Captured(worker="w", reason="idle", message="idle"),)).analyzed()
    assert (sampled.analysis, sampled.error) == (None, "")
    assert sampled.lines == ("no profile was captured: idle",)


def written(folder: Path, *durations_us: float) -> Path:
    path = folder / "w.xplane.pb"
    starts = [sum(durations_us[:number]) for number in range(len(durations_us))]
    steps = [
        event("train", start, duration, step_num=number, _r=1)
        for number, (start, duration) in enumerate(zip(starts, durations_us, strict=True))
    ]
    path.write_bytes(space(host(*steps or [event("op", 0, 1)])))
    return path


def test_steps_are_counted_and_the_longest_is_found(tmp_path: Path) -> None:
    trace = written(tmp_path, 10, 10, 30_000, 10)
    assert len(steps_of(trace)) == 4
    assert longest_step_s(trace) == pytest.approx(0.030)


def test_a_trace_without_steps(tmp_path: Path) -> None:
    assert longest_step_s(written(tmp_path)) == 0


def test_a_file_that_is_not_a_trace(tmp_path: Path) -> None:
    (tmp_path / "w.xplane.pb").write_bytes(b"not a trace")
    with pytest.raises(TraceFormatError):
        longest_step_s(tmp_path / "w.xplane.pb")
