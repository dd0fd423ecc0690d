"""`tfperf doctor` as a command: what it prints, and its exit code."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from capture.handmade import listening, silent
from printed import Run


def test_it_prints_a_table(run_tfperf: Run, tmp_path: Path) -> None:
    done = run_tfperf("doctor", "--logdir", tmp_path)
    assert done.exit_code == 0, done.output
    assert "Profiling on this machine" in done.output
    assert "log folder" in done.output
    assert list(tmp_path.iterdir()) == []


def test_json_for_scripts(run_tfperf: Run, tmp_path: Path) -> None:
    done = run_tfperf("doctor", "--logdir", tmp_path, "--format", "json")
    document = json.loads(done.output)
    rows = document["sections"]["doctor"]["tables"]["checks"]["rows"]
    assert set(document["summary"]) == {"ok", "warn", "fail", "status"}
    assert len(rows) == sum(document["summary"][status] for status in ("ok", "warn", "fail"))
    assert set(rows[0]) == {"check", "status", "found", "fix"}


def test_a_fail_is_exit_code_1_after_the_report(run_tfperf: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_tfperf("doctor", "--logdir", tmp_path / "file", "--format", "json")
    assert done.exit_code == 1
    assert json.loads(done.output)["summary"]["status"] == "fail"


def test_a_job_that_is_not_there(run_tfperf: Run, tmp_path: Path) -> None:
    done = run_tfperf("doctor", "--worker", f"unix:{tmp_path}/none", "--logdir", tmp_path, "-o", tmp_path / "out.json")
    assert done.exit_code == 1, done.output
    assert "no server listens" in (tmp_path / "out.json").read_text()


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    """It must be there at once, and not touch a GPU."""
    code = (
        "import sys; from tfperf.cli import main; main(['doctor'], standalone_mode=False);"
        "heavy = {'tensorflow', 'keras', 'grpc', 'numpy', 'pandas', 'pyarrow', 'google.protobuf'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_ctrl_c_is_exit_code_130(tmp_path: Path) -> None:
    """While it waits for a job that takes connections and says nothing."""
    accepted = threading.Event()

    def handle(connection: socket.socket) -> None:
        accepted.set()
        silent(connection)

    with listening(handle) as port:
        command = [sys.executable, "-m", "tfperf", "doctor", "--port", str(port), "--logdir", str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert accepted.wait(60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "Interrupted\n")
