"""The three ways to look: of servers that are doubles, and of a real job whose input becomes slow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from capture.conftest import free_port, start_job, start_tfperf
from click.testing import Result
from live.fake_jobs import AnalystHere, FakeJob, fake_job, gives, steps_trace
from live.test_terminal import Terminal

from tfperf.live.top import KEYS

QUICK = ("--duration", "10ms", "--interval", "100ms")


@pytest.fixture(autouse=True)
def analyst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfperf.live.watcher.Analyst", AnalystHere)


@pytest.fixture
def job() -> Iterator[FakeJob]:
    with fake_job(gives(steps_trace(2000))) as job:
        yield job


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    return start_tfperf(folder, "top", *arguments, env={**os.environ, "TMPDIR": str(folder)})


def test_one_screen_as_text(job: FakeJob, run_tfperf: Callable[..., Result]) -> None:
    done = run_tfperf("top", "--port", job.port, "--once", "--duration", "10ms")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("tfperf top: 1 worker ")
    assert any(line.startswith(f"  localhost:{job.port}  ") and " 2.00 " in line for line in lines)
    assert done.stdout.isascii()
    assert max(map(len, lines)) <= 80
    assert job.asked == 1


def test_lines_of_json(job: FakeJob, run_tfperf: Callable[..., Result]) -> None:
    done = run_tfperf("top", "--port", job.port, *QUICK, "--format", "jsonl", "--samples", "3")
    assert done.exit_code == 0, done.stderr
    samples = [json.loads(line) for line in done.stdout.splitlines()]
    assert [sample["sample"] for sample in samples] == [1, 2, 3]
    assert {tuple(sample) for sample in samples} == {tuple(KEYS)}
    assert [sample["step_time_ms"] for sample in samples] == pytest.approx([2.0] * 3)
    assert job.asked == 3


def test_lines_of_a_job_that_never_answers_are_written_and_the_exit_code_is_1(
    run_tfperf: Callable[..., Result],
) -> None:
    done = run_tfperf("top", "--worker", "127.0.0.1:1", *QUICK, "--format", "jsonl", "--samples", "2")
    assert done.exit_code == 1
    assert [json.loads(line)["reason"] for line in done.stdout.splitlines()] == ["not_listening"] * 2


def test_ctrl_c_ends_lines_of_json_and_without_a_port_for_metrics_nothing_listens(job: FakeJob, tmp_path: Path) -> None:
    process = start(tmp_path, "--port", job.port, *QUICK, "--format", "jsonl")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    if sys.platform == "linux":
        sockets = {str(path.readlink()) for path in Path(f"/proc/{process.pid}/fd").iterdir() if path.is_symlink()}
        tables = (Path("/proc/net") / name for name in ("tcp", "tcp6"))
        rows = [row.split() for table in tables if table.exists() for row in table.read_text().splitlines()[1:]]
        assert sockets, "or this test looks at the wrong process"
        assert not sockets & {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert all(json.loads(line)["ok"] for line in [*lines, *rest.splitlines()])
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_leaves_ends_it(job: FakeJob, tmp_path: Path) -> None:
    process = start(tmp_path, "--port", job.port, *QUICK, "--format", "jsonl")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()


def test_metrics_are_served_beside_the_lines(job: FakeJob, tmp_path: Path) -> None:
    port = free_port()
    process = start(tmp_path, "--port", job.port, *QUICK, "--format", "jsonl", "--metrics-port", port)
    assert process.stdout is not None
    process.stdout.readline()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert f'tfperf_step_time_seconds{{worker="localhost:{job.port}"}} 0.002' in text
    assert text.endswith("# EOF\n")


def test_every_sample_is_recorded_if_asked(job: FakeJob, tmp_path: Path, run_tfperf: Callable[..., Result]) -> None:
    asked = ("--format", "jsonl", "--samples", "2", "--record", "--logdir", tmp_path / "logs")
    assert run_tfperf("top", "--port", job.port, *QUICK, *asked).exit_code == 0
    assert len(list((tmp_path / "logs").rglob("*.xplane.pb"))) == 2


@pytest.mark.tensorflow
@pytest.mark.timing
def test_input_that_becomes_slow_is_on_the_screen_within_two_samples(tmp_path: Path) -> None:
    """A step then waits for a batch that takes 100 ms, and computes next to nothing besides."""
    slow = tmp_path / "slow"
    job = start_job("slower", slow)
    try:
        job.wait_until_ready()
        terminal = Terminal(tmp_path, "--port", job.port, "--interval", "1s", columns=100)
        terminal.wait_for(": 2 samples")
        slow.touch()
        terminal.wait_for(": 4 samples")
        terminal.child.expect(r"step ([\d.]+) ms over")
        assert float(terminal.child.match[1]) >= 90.0
        # The advice is of the last six samples, so it changes later than the step.
        terminal.wait_for("Waiting for input takes")
        assert ": 9 samples" not in terminal.child.before
        terminal.quit()
        assert job.process.poll() is None, "the job goes on"
    finally:
        job.end()
