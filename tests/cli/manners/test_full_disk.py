"""Output that cannot be written whole is exit code 1 and one line, whatever the command, and however Python buffers."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from forks import IMPORTS
from places import SAMPLES

from tfperf.cli import main

LOGS = str(SAMPLES / "input_fixed")
COMMANDS = [
    *((name, "--help") for name in main.list_commands(None)),  # type: ignore[arg-type]
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
    shlex.split("top --worker 127.0.0.1:1 --samples 1 --interval 100ms --duration 10ms --format jsonl"),
]
LONG = ("analyze", LOGS, "--format", "json")
linux_only = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def environment(unbuffered: str) -> dict[str, str]:
    # Where files may not grow, Python would keep half of what it compiles.
    return {**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"}


_EACH_A_FORK = f"""
import os, sys
{IMPORTS}
for number, arguments in enumerate(eval(sys.argv[1])):
    if not (child := os.fork()):
        os.dup2(os.open(str(number) + ".stderr", os.O_WRONLY | os.O_CREAT), 2)
        sys.argv[1:] = arguments
        run()
        sys.exit()
    with open(str(number) + ".code", "w") as file:
        file.write(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""


@pytest.fixture(scope="module", params=["", "1"])
def tried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what came of each command, by its number, buffered or not."""
    folder = tmp_path_factory.mktemp("full")
    with Path("/dev/full").open("wb") as full:
        subprocess.run(
            [sys.executable, "-c", _EACH_A_FORK, repr(COMMANDS)],
            stdout=full,
            stdin=subprocess.DEVNULL,
            env=environment(request.param),
            cwd=folder,
            check=True,
        )
    return folder


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
@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=[" ".join(words)[:20] for words in COMMANDS])
def test_a_full_disk(number: int, tried: Path) -> None:
    assert (tried / f"{number}.code").read_text() == "1"
    text = (tried / f"{number}.stderr").read_text()
    assert text.splitlines()[-1] == "Error: cannot write to stdout: No space left on device"
    assert "Traceback" not in text


@pytest.fixture(scope="module")
def whole() -> bytes:
    """What is printed where there is room."""
    return CliRunner().invoke(main, LONG).stdout_bytes


@pytest.mark.skipif(sys.platform != "linux", reason="needs ulimit -f and pipes of Linux")
class TestCutOutput:
    """A file that may not grow, and a pipe that takes only as much as there is room for."""

    @pytest.mark.parametrize("unbuffered", ["", "1"])
    def test_a_file_that_may_not_grow(self, unbuffered: str, tmp_path: Path) -> None:
        words = [sys.executable, "-m", "tfperf", *LONG]
        command = ["bash", "-c", 'ulimit -f 8; exec "$@" > cut.json', "-", *words]
        done = subprocess.run(command, stderr=subprocess.PIPE, env=environment(unbuffered), cwd=tmp_path, check=False)
        assert done.returncode == 1
        assert done.stderr.decode() == "Error: cannot write to stdout: File too large\n"

    @pytest.mark.parametrize("unbuffered", ["", "1"])
    def test_a_pipe_that_does_not_block(self, unbuffered: str, whole: bytes) -> None:
        ours, theirs = os.pipe()
        os.set_blocking(theirs, False)
        pieces: list[bytes] = []
        with os.fdopen(ours, "rb") as reader:
            process = subprocess.Popen(
                [sys.executable, "-m", "tfperf", *LONG], stdout=theirs, env=environment(unbuffered)
            )
            os.close(theirs)
            collecting = threading.Thread(target=lambda: pieces.append(reader.read()))
            collecting.start()
            assert process.wait(120) == 0
            collecting.join()
        assert len(whole) > 65_536, "it fits into a pipe"
        assert pieces == [whole]
