"""`tfperf timeline`: options, what is said, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders import event, host, logdir_of, space
from capture.conftest import read_until
from click.testing import CliRunner, Result
from export.timeline.perfetto_reader import read_perfetto

from tfperf.cli import main
from tfperf.cli.timeline import command

STEPS = [event("train", 10 * i, 8, step_num=i) for i in range(6)]


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    return logdir_of(tmp_path, vm=space(host(*STEPS, event("short", 1, 1))))


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, list(map(str, arguments)), **main.context_settings)


def test_writes_a_file_and_says_so(logdir: Path, tmp_path: Path) -> None:
    output = tmp_path / "o.pftrace"
    result = run(logdir, "-o", output)
    assert (result.exit_code, result.stdout) == (0, "")
    first, second = result.stderr.splitlines()
    assert first == f"wrote {output} ({output.stat().st_size} B): 2 tracks, 7 events, 6 steps, 0 arrows"
    assert "https://ui.perfetto.dev" in second
    assert len(read_perfetto(output).slices) == 7 + 6


def test_omitted_events_are_counted(logdir: Path, tmp_path: Path) -> None:
    output = tmp_path / "o.json"
    result = run(logdir, "--steps", "0..1", "--min-duration", "2us", "--threads", "py*", "-o", output)
    assert result.exit_code == 0
    assert "omitted 4 of 7 events: outside the selected steps" in result.stderr
    assert "omitted 1 of 7 events: shorter than the minimum duration" in result.stderr
    entries = json.loads(output.read_bytes())["traceEvents"]
    names = [entry["name"] for entry in entries if entry["ph"] == "X"]
    assert names == ["train 0", "train 1", "train", "train"]


def test_ctrl_c_while_the_viewer_is_waited_for_is_exit_code_130(logdir: Path) -> None:
    """On any free port: 9001, the one that the viewer takes files from, may be in use."""
    code = (
        "from tfperf.export.timeline.viewer_server import FileServer\n"
        "FileServer.__init__.__defaults__ = (0,)\n"
        "from tfperf.cli import run\n"
        "run()\n"
    )
    environment = {**os.environ, "SSH_CONNECTION": "no browser"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, "timeline", str(logdir), "--open"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        read_until(process, "(Ctrl-C stops)")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (130, "", "Interrupted\n")
