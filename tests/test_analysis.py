"""`tfperf.load`: what a script or a notebook gets."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from builders import Event, event, fetching, host, logdir_of, marks, ref, space
from synthetic_gpu import synthetic_gpu
from tpu_twin import tpu_twin

import tfperf
from tfperf import TfperfError
from tfperf.analysis.registry import ANALYZED_FIRST, OURS, Host, find_section
from tfperf.trace.read import read_host


def test_results_have_dataframes(tmp_path: Path) -> None:
    analysis = tfperf.load(logdir_of(tmp_path, a=fetching(30)))
    assert analysis["overview"].input_percent == pytest.approx(30.0)
    assert list(analysis["steps"].table["input_ms"]) == pytest.approx([0.03] * 5)
    assert list(analysis["ops"].host.table["op_name"]) == ["MatMul"]
    assert analysis["functions"].table.empty
    assert analysis["input"].table.empty
    assert [finding.code for section in analysis.report(["overview"]).sections for finding in section.findings] == [
        "input_high"
    ]


def test_each_host_can_be_seen_alone(tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, a=fetching(30), b=fetching(10))
    analysis = tfperf.load(logdir)
    assert [(host.host, len(host["steps"].steps)) for host in analysis.hosts] == [("a", 5), ("b", 5)]
    assert tfperf.load(logdir, hosts=["b"])["overview"].input_percent == pytest.approx(10.0)


def test_only_the_sections_asked_for_are_analyzed_and_what_they_rest_on(tmp_path: Path) -> None:
    analysis = tfperf.load(logdir_of(tmp_path, a=fetching(30)), sections=["gaps"])
    assert analysis.sections == ("steps", "overview", "batch", "environment", "gaps")
    with pytest.raises(KeyError, match="'tfdat' is not a section: did you mean tfdata"):
        analysis["tfdat"]
    with pytest.raises(KeyError, match="ops was not analyzed"):
        analysis["ops"]


def test_more_sections_are_read_from_the_files_again(tmp_path: Path) -> None:
    analysis = tfperf.load(logdir_of(tmp_path, a=fetching(30)), sections=["steps"])
    more = analysis.more(["ops"])
    assert list(more["ops"].host.table["op_name"]) == ["MatMul"]
    assert more.more(["ops", "steps"]) is more


def traced_steps() -> list[Event]:
    """Five steps of 100 us, in each of which a function is traced for 50."""
    events: list[Event] = []
    for n in range(5):
        events += [
            event("train", 100 * n, 100, step_num=n),
            event("work", 100 * n, 100, tf_function_call=ref("traced-nonXla"), tracing_count=n + 1),
            event("tf.function-graph_building", 100 * n, 50),
        ]
    return events


def test_findings_name_only_causes_that_the_diagnosis_found(tmp_path: Path) -> None:
    """Where the report has no diagnosis, they name those that they may be evidence for."""
    analysis = tfperf.load(logdir_of(tmp_path, a=space(host(*traced_steps()))))
    (section,) = analysis.report(["functions"]).sections
    assert [finding.causes for finding in section.findings] == [("compilation", "warm_up")]
    diagnosis, section = analysis.report(["diagnosis", "functions"]).sections
    assert diagnosis.findings[0].code == "compilation"
    assert [finding.causes for finding in section.findings] == [("compilation",)]


def test_a_damaged_profile_says_so_first(tmp_path: Path) -> None:
    damaged = space(host(*marks(5), event("work", 5, -1)))
    analysis = tfperf.load(logdir_of(tmp_path, a=damaged, b=space(host(*marks(5)))), sections=["steps"])
    report = analysis.report()
    assert report.sections[0].name == "soundness"
    ((finding,), flaw) = report.sections[0].findings, "1 event of 6 with impossible times (omitted)"
    assert finding.text == f"This profile is damaged: host a: {flaw}. Do not trust its figures."
    assert report.summary["soundness"] == {
        "level": "unsound",
        "flaws": [{"code": "impossible_times", "host": "a", "text": flaw}],
    }
    sound = tfperf.load(logdir_of(tmp_path / "2", a=space(host(*marks(5)))), sections=["steps"]).report()
    assert "soundness" not in [section.name for section in sound.sections]
    assert sound.summary["soundness"] == {"level": "sound", "flaws": []}


def test_a_section_about_devices_is_empty_without_one(tmp_path: Path) -> None:
    analysis = tfperf.load(logdir_of(tmp_path, a=fetching(30)))
    assert analysis["kernels"].table.empty
    (section,) = analysis.report(["kernels"]).sections
    assert (section.level, section.tables) == ("full", ())
    assert "no device" in section.notes[0]


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_hosts_can_be_analyzed_anywhere(
    tmp_path: Path, pool: type[ThreadPoolExecutor] | type[ProcessPoolExecutor]
) -> None:
    logdir = logdir_of(tmp_path, a=fetching(30), b=fetching(10))
    with pool(2) as executor:
        spread = tfperf.load(logdir, executor=executor)
    assert spread.report().summary == tfperf.load(logdir).report().summary


@pytest.mark.parametrize("trace", [synthetic_gpu(), tpu_twin(), fetching(30)], ids=["gpu", "tpu", "cpu"])
def test_sections_go_in_any_order_after_the_first(trace: bytes, tmp_path: Path) -> None:
    """So two processes may analyze a host, each by sections of which the other has no result."""
    (tmp_path / "vm.xplane.pb").write_bytes(trace)
    host = Host(read_host(tmp_path / "vm.xplane.pb"))
    host.analyze(ANALYZED_FIRST)
    for name in OURS:
        if name not in ANALYZED_FIRST and find_section(name).analyze is not None:
            host.result_of(name)


def test_progress_counts_bytes_over_all_hosts(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    logdir = logdir_of(tmp_path, a=fetching(30), b=fetching(10))
    tfperf.load(logdir, progress=lambda done, total: seen.append((done, total)))
    size = sum(file.stat().st_size for file in logdir.rglob("*.pb"))
    assert all(total == size and 0 < done <= size for done, total in seen)
    assert seen == sorted(seen)
    assert len(seen) >= 2


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"sections": ["kernel"]}, TfperfError, "'kernel' is not a section; the sections are diagnosis, overview"),
        ({"attribution": "tensorflow", "step_marker": "train"}, TfperfError, "uses its own steps"),
        ({"run": "2025"}, tfperf.TraceNotFoundError, "2026_01_01_00_00_00"),
    ],
)
def test_what_cannot_be_loaded_is_said(
    tmp_path: Path, asked: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        tfperf.load(logdir_of(tmp_path, a=fetching(30)), **asked)
