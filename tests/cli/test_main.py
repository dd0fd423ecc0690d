"""What all commands have in common, and the paths that they take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from builders import host, logdir_of, marks, space
from printed import Run


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("analyze", "-h"), ("export-csv", "--help")])
def test_help_shows_an_example(arguments: tuple[str, ...], run_tfperf: Run) -> None:
    result = run_tfperf(*arguments)
    assert result.exit_code == 0
    assert "Example:" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("query", "LOGDIR", "select count(*) from events"), ""),
        (("query", "LOGDIR", "select nme from events"), "Error: Binder Error"),
        (("timeline", "LOGDIR", "-o", "trace.txt"), "Error: trace.txt"),
    ],
)
def test_a_process_of_its_own_says_no_more_than_it_should(
    arguments: tuple[str, ...], said: str, samples: Path, tmp_path: Path
) -> None:
    """Libraries may complain when a process ends, which is seen only in one."""
    words = [str(samples / "input_bound") if word == "LOGDIR" else word for word in arguments]
    program = "from tfperf.cli import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", program, *words], check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == (2 if said else 0)
    lines = done.stderr.splitlines()
    assert not [line for line in lines if line and not line.startswith(("Usage:", "Try ", said or "?"))]


def test_another_c_library_does_not_matter() -> None:
    """Only glibc can be asked to keep memory; elsewhere there is no such function, or no such way to ask."""
    for other in ("lambda _: object()", "None"):
        program = f"import ctypes; ctypes.CDLL = {other}; from tfperf.cli import run; run()"
        done = subprocess.run(
            [sys.executable, "-c", program, "-V"], check=False, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("code", "left"), [("sys.exit(3)", 3), ("1 / 0", 1), ("None", 0)])
def test_what_waits_for_the_end_of_the_process_is_done(code: str, left: int) -> None:
    """Threads have ended, handlers are called and files written, though objects are not freed one by one."""
    program = f"""
import atexit, sys, threading
from tfperf import cli
def command(prog_name):
    threading.Timer(0.2, print, ["thread", "ended"]).start()
    atexit.register(print, "handler", "called", end="")
    {code}
cli.main = command
cli.run()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (left, "thread ended\nhandler called")
    assert ("ZeroDivisionError" in done.stderr) == (code == "1 / 0")


JOB = space(host(*marks(5)))
LOGS_COMMANDS = (("analyze",), ("analyze", "--list"), ("export-csv", "-o", "tables"), ("timeline", "-o", "t.json"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", LOGS_COMMANDS, ids=" ".join)
def test_without_a_path_logs_is_read_and_named(command: tuple[str, ...], folder: Path, run_tfperf: Run) -> None:
    logdir_of(folder / "logs", vm=JOB)
    result = run_tfperf(*command)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines()[0] == "no PATH given: reading ./logs"


@pytest.mark.parametrize("command", LOGS_COMMANDS, ids=" ".join)
def test_without_logs_the_path_is_asked_for(command: tuple[str, ...], folder: Path, run_tfperf: Run) -> None:
    result = run_tfperf(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no PATH given, and ./logs" in result.stderr


def test_a_gate_judges_no_stray_profile(folder: Path, run_tfperf: Run) -> None:
    logdir_of(folder / "logs", vm=JOB)
    result = run_tfperf("check", "--max-step-time", "1h")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Missing argument 'PATH'" in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("analyze",),
        ("check", "--max-retraces", "0"),
        ("diff", "logs"),
        ("export-csv", "-o", "t"),
        ("timeline", "--open"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(("path", "words"), [("/", "too large to search"), ("", "the path is empty")])
def test_what_is_too_broad_is_wrong_usage(
    command: tuple[str, ...], path: str, words: str, folder: Path, run_tfperf: Run
) -> None:
    result = run_tfperf(*command, path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
