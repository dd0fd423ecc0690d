"""Where hosts are analyzed makes no difference to what is said of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders import fetching, known, logdir_of
from click.testing import Result

import tfperf
from tfperf.analysis.parallel.engine import Engine
from tfperf.report.render import RenderOptions, render

Run = Callable[..., Result]


def job(wait_us: float) -> bytes:
    return fetching(wait_us, 1000, 4)


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """Three hosts that can be read, and two that cannot."""
    hosts = {f"worker-{number}": job(100 + 100 * number) for number in range(3)}
    return logdir_of(tmp_path, **hosts, **{"ps-0": b"", "worker-3": job(100)[:-5]})


def document(analysis: tfperf.Analysis) -> str | bytes:
    return render(analysis.report(), "json", RenderOptions())


def test_the_document_is_the_same_wherever_hosts_are_analyzed(logdir: Path) -> None:
    alone = tfperf.load(logdir, jobs=1)
    with ThreadPoolExecutor(3) as executor:
        assert document(tfperf.load(logdir, executor=executor)) == document(alone)
    pooled = tfperf.load(logdir, jobs=3)
    assert document(pooled) == document(alone)
    assert pooled.more(["ops"]).sections == alone.more(["ops"]).sections


def test_the_only_host_can_be_analyzed_elsewhere(tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, worker=job(100))
    with ThreadPoolExecutor(1) as executor:
        assert document(tfperf.load(logdir, executor=executor)) == document(tfperf.load(logdir))


def test_hosts_that_cannot_be_read_are_named(logdir: Path) -> None:
    analysis = tfperf.load(logdir, sections=["steps"])
    assert [each.host for each in analysis.missing] == ["ps-0", "worker-3"]
    report = analysis.report()
    assert (report.summary["hosts_read"], report.summary["hosts_missing"]) == (3, 2)
    assert report.source["hosts"] == ["worker-0", "worker-1", "worker-2"]
    assert [each["host"] for each in report.source["missing"]] == ["ps-0", "worker-3"]
    assert "is empty" in report.source["missing"][0]["reason"]
    (finding,) = report.sections[0].findings
    assert finding.text.startswith("Only 3 of 5 hosts are readable, excluding ps-0 (")


def test_a_run_without_any_host_that_can_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(tfperf.TraceFormatError, match=r"a.xplane.pb is empty .*; the 1 other host of run"):
        tfperf.load(logdir_of(tmp_path, a=b"", b=b""))
    with pytest.raises(tfperf.TraceFormatError, match="is empty"), ThreadPoolExecutor(1) as executor:
        tfperf.load(logdir_of(tmp_path / "one", a=b""), executor=executor)


def test_only_one_place_can_be_named() -> None:
    for engine, message in (
        (Engine(jobs=2, cluster="tcp://there:8786"), "pass only one of them"),
        (Engine(jobs=0), "jobs is 0"),
    ):
        with pytest.raises(tfperf.TfperfError, match=message), engine.workers(()):
            pass


def test_a_report_warns_and_strict_fails(run_tfperf: Run, logdir: Path) -> None:
    warned = run_tfperf("analyze", logdir, "--format", "json")
    assert warned.exit_code == 0
    assert warned.stderr.startswith("Warning: only 3 of 5 hosts are readable, excluding ps-0 (")
    assert json.loads(warned.stdout)["summary"]["hosts_missing"] == 2
    strict = run_tfperf("analyze", logdir, "--strict")
    assert (strict.exit_code, strict.stdout) == (1, "")
    assert re.match(r"Error: only 3 of 5 hosts .* \(omit --strict to continue without them\)\n$", strict.stderr)


def test_a_host_whose_trace_is_not_finished_is_missing(run_tfperf: Run, tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, a=job(100))
    next(logdir.rglob("a.xplane.pb")).with_name(".b.xplane.pb.Xa3b9Z").write_bytes(job(900))
    missing = "only 1 of 2 hosts are readable, excluding b (.b.xplane.pb.Xa3b9Z is not a complete .xplane.pb file)"
    done = run_tfperf("analyze", logdir, "--format", "json")
    assert (done.exit_code, done.stderr) == (0, f"Warning: {missing}\n")
    assert json.loads(done.stdout)["source"]["missing"][0]["host"] == "b"
    checked = run_tfperf("check", logdir, "--no-config", "--max-input-bound", "90%")
    assert (checked.exit_code, checked.stderr) == (1, f"Warning: {missing}\n")
    listed = " ".join(run_tfperf("analyze", logdir, "--list").stdout.split())
    assert "Host b is missing from run 2026_01_01_00_00_00: .b.xplane.pb.Xa3b9Z" in listed


def test_a_gate_passes_nothing_where_a_host_is_missing(run_tfperf: Run, logdir: Path) -> None:
    limit = ("check", logdir, "--no-config", "--max-input-bound")
    unknown = run_tfperf(*limit, "90%")
    assert unknown.exit_code == 1
    assert "could not be checked: only 3 of 5 hosts" in " ".join(unknown.stdout.split())
    assert run_tfperf(*limit, "1%").exit_code == 3
    assert run_tfperf(*limit, "90%", "--hosts", "*-[012]", "--hosts", "worker-1").exit_code == 1  # ps-0 matches
    assert run_tfperf(*limit, "90%", "--hosts", "worker-[012]").exit_code == 0


def test_hosts_are_chosen_by_name_pattern_and_number(run_tfperf: Run, logdir: Path) -> None:
    def hosts(*options: str) -> list[str]:
        document = json.loads(run_tfperf("analyze", logdir, "--format", "json", *options).stdout)
        return [*document["source"]["hosts"]]

    assert hosts("--hosts", "*-[12]") == ["worker-1", "worker-2"]
    assert hosts("--hosts", "*-2", "--host", "worker-0") == ["worker-0", "worker-2"]
    assert hosts("--hosts", "worker-[0-2]", "--sample-hosts", "1") == ["worker-1"]
    none = run_tfperf("analyze", logdir, "--hosts", "chief*")
    assert none.exit_code == 1
    assert "no host of run 2026_01_01_00_00_00 matches 'chief*'; its hosts are: ps-0, worker-0," in none.stderr
    both = run_tfperf("analyze", logdir, "--jobs", "2", "--cluster", "tcp://there:8786")
    assert both.exit_code == 2


SLOW = """
import sys, time
from tfperf import Section, SectionSpec
def analyze(host):
    sys.stderr.write("busy\\n")
    sys.stderr.flush()
    time.sleep(600)
SECTION = SectionSpec(name="slow", title="Slow", analyze=analyze, build=lambda results: Section("slow", "Slow"))
"""


def test_ctrl_c_ends_the_pool(logdir: Path, tmp_path: Path) -> None:
    """While its workers are in a section of another package, which would take ten minutes."""
    package = tmp_path / "packages" / "slow-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[tfperf.sections]\nslow = slow:SECTION\n")
    (package.parent / "slow.py").write_text(SLOW)
    paths = os.pathsep.join([str(package.parent), *filter(None, sys.path)])
    process = subprocess.Popen(
        [sys.executable, "-m", "tfperf", "analyze", str(logdir), "-s", "slow", "--jobs", "2"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert known(process.stderr).readline() == "busy\n"
    workers = _children(process.pid)
    assert workers
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.replace("busy\n", "")) == (130, "", "Interrupted\n")
    assert not [worker for worker in workers if Path(f"/proc/{worker}").exists()]


def _children(process: int) -> list[int]:
    stats = {int(path.parent.name): path for path in Path("/proc").glob("[0-9]*/stat")}
    found = []
    for number, path in stats.items():
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        found += [number] if parent == process else []
    return found
