"""Which profile a command reads: the one that is named, or what lies in `logs`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from builders import event, host, logdir_of, space
from click.testing import Result

Run = Callable[..., Result]
LOGS_COMMANDS = (("analyze",), ("analyze", "--list"), ("export-csv", "-o", "tables"), ("timeline", "-o", "t.json"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job() -> bytes:
    return space(host(*(event("train", 1000 * n, 1000, step_num=n) for n in range(5))))


@pytest.mark.parametrize("command", LOGS_COMMANDS, ids=" ".join)
def test_without_a_path_logs_is_read_and_named(command: tuple[str, ...], folder: Path, run_tfperf: Run) -> None:
    logdir_of(folder / "logs", vm=job())
    result = run_tfperf(*command)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines()[0] == "no PATH is given: reading logs"


@pytest.mark.parametrize("command", LOGS_COMMANDS, ids=" ".join)
def test_without_logs_the_path_is_asked_for(command: tuple[str, ...], folder: Path, run_tfperf: Run) -> None:
    result = run_tfperf(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no PATH is given, and the folder logs, where tfperf run and capture write, is not here" in result.stderr


def test_a_gate_judges_no_stray_profile(folder: Path, run_tfperf: Run) -> None:
    logdir_of(folder / "logs", vm=job())
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
@pytest.mark.parametrize(("path", "words"), [("/", "too broad to search"), ("", "the path is empty")])
def test_what_is_too_broad_is_wrong_usage(
    command: tuple[str, ...], path: str, words: str, folder: Path, run_tfperf: Run
) -> None:
    result = run_tfperf(*command, path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
