"""Output that cannot be written whole is exit code 1 and one line, whatever the command, and however Python buffers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tfperf.cli import main

SAMPLES = Path(__file__).parents[3] / "sample_traces"
LOGS = str(SAMPLES / "input_fixed")
HELP = [(name, "--help") for name in main.list_commands(None)]  # type: ignore[arg-type]
REPORTS = [
    ("--help",),
    ("--version",),
    ("analyze", LOGS, "--full"),
    ("analyze", LOGS, "--list"),
    ("check", LOGS, "--limit", "input_bound <= 100%"),
    ("completion", "bash"),
    ("diff", LOGS, LOGS),
    ("doctor",),
    ("explain", "input-bound"),
    ("flamegraph", LOGS, "-o", "-", "--format", "folded"),
    ("query", "--schema"),
    ("query", LOGS, "select 1"),
    (
        "top",
        "--worker",
        "127.0.0.1:1",
        "--samples",
        "1",
        "--interval",
        "100ms",
        "--duration",
        "10ms",
        "--format",
        "jsonl",
    ),
]
linux_only = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def environment(unbuffered: str) -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": unbuffered}


@linux_only
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", REPORTS, ids=lambda words: " ".join(words)[:20])
def test_a_full_disk(arguments: tuple[str, ...], unbuffered: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tfperf", *arguments]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command,
            stdout=full,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=environment(unbuffered),
            cwd=tmp_path,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1] == "Error: cannot write to stdout: No space left on device"
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("analyze", "--help"), ("analyze", LOGS)])
def test_a_closed_stdout(arguments: tuple[str, ...]) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "-", sys.executable, "-m", "tfperf", *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == ["Error: cannot write to stdout: it is closed"]


def test_a_closed_stdout_is_not_needed_for_a_file(tmp_path: Path) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "-", sys.executable, "-m", "tfperf", "analyze", LOGS, "-o", "report.txt"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    assert (tmp_path / "report.txt").stat().st_size


@linux_only
def test_a_full_disk_for_the_help_of_every_command() -> None:
    """In one process after another, but without the start of each."""
    code = (
        "import os, sys\nfrom tfperf.cli import run\n"
        "for arguments in eval(sys.argv[1]):\n    if not (child := os.fork()):\n"
        "        sys.argv[1:] = arguments\n        run()\n    assert os.waitpid(child, 0)[1] == 256, arguments\n"
    )
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, repr(HELP)],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment("1"),
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr.decode().splitlines() == ["Error: cannot write to stdout: No space left on device"] * len(HELP)


@pytest.mark.skipif(sys.platform != "linux", reason="needs ulimit -f and pipes of Linux")
class TestCutOutput:
    """A file that may not grow, and a pipe that takes only as much as there is room for."""

    LONG = ("analyze", LOGS, "--format", "json")

    @pytest.mark.parametrize("unbuffered", ["", "1"])
    def test_a_file_that_may_not_grow(self, unbuffered: str, tmp_path: Path) -> None:
        words = [sys.executable, "-m", "tfperf", *self.LONG]
        command = ["bash", "-c", 'ulimit -f 8; exec "$@" > cut.json', "-", *words]
        done = subprocess.run(command, stderr=subprocess.PIPE, env=environment(unbuffered), cwd=tmp_path, check=False)
        assert done.returncode == 1
        assert done.stderr.decode() == "Error: cannot write to stdout: File too large\n"

    @pytest.mark.parametrize("unbuffered", ["", "1"])
    def test_a_pipe_that_does_not_block(self, unbuffered: str) -> None:
        ours, theirs = os.pipe()
        os.set_blocking(theirs, False)
        pieces: list[bytes] = []
        with os.fdopen(ours, "rb") as reader:
            process = subprocess.Popen(
                [sys.executable, "-m", "tfperf", *self.LONG], stdout=theirs, env=environment(unbuffered)
            )
            os.close(theirs)
            collecting = threading.Thread(target=lambda: pieces.append(reader.read()))
            collecting.start()
            assert process.wait(120) == 0
            collecting.join()
        whole = subprocess.run([sys.executable, "-m", "tfperf", *self.LONG], stdout=subprocess.PIPE, check=True).stdout
        assert len(whole) > 65_536, "it fits into a pipe"
        assert pieces == [whole]
