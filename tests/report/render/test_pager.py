"""The pager: which one, and that a report is seen whatever becomes of it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tfperf.report.render import write
from tfperf.report.render.screen import Screen, is_longer, pager_command, show_in_pager

TEXT = "".join(f"line {number} é\n" for number in range(50_000))
SMALL = Screen(width=80, height=10, pages=True)


def program(folder: Path, code: str) -> dict[str, str]:
    """Return an environment whose PAGER runs this code."""
    (folder / "my pager.py").write_text(code)
    return {**os.environ, "PAGER": f"'{sys.executable}' '{folder / 'my pager.py'}'"}


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ("more", ["more"]),
        ("less -S", ["less", "-S"]),
        ("'/my tools/less' -S", ["/my tools/less", "-S"]),
        ("", []),
        ("cat", []),
        ("less '", []),
    ],
)
def test_the_pager_is_what_the_user_chose(chosen: str, words: list[str]) -> None:
    assert pager_command({"PAGER": chosen}) == words


def test_without_a_choice_it_is_less_where_it_is() -> None:
    assert pager_command({}) == (["less"] if shutil.which("less") else [])


def test_the_pager_gets_the_whole_text_and_options_for_less(tmp_path: Path) -> None:
    code = f"import os, sys; open({str(tmp_path / 'got')!r}, 'w').write(os.environ['LESS'] + sys.stdin.read())"
    environment = program(tmp_path, code) | {"PYTHONIOENCODING": "utf-8", "PYTHONUTF8": "1"}
    environment.pop("LESS", None)
    assert show_in_pager(TEXT, environment)
    assert (tmp_path / "got").read_text(encoding="utf-8") == "FRX" + TEXT
    assert show_in_pager(TEXT, {**environment, "LESS": "-S"})
    assert (tmp_path / "got").read_text(encoding="utf-8") == "-S" + TEXT


def test_a_pager_that_is_left_early_is_no_error(tmp_path: Path) -> None:
    assert show_in_pager(TEXT, program(tmp_path, "import sys; sys.stdin.readline()"))


def test_ctrl_c_is_for_the_pager(tmp_path: Path) -> None:
    code = "import os, signal, sys; sys.stdin.read(); os.kill(os.getppid(), signal.SIGINT)"
    assert show_in_pager(TEXT, program(tmp_path, code))


@pytest.mark.parametrize("pager", ["no-such-pager-anywhere", "/", "sh -c 'exit 127'", ""])
def test_a_report_is_printed_where_there_is_no_pager(
    pager: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAGER", pager)
    write(TEXT, None, screen=SMALL)
    assert capsys.readouterr().out == TEXT


@pytest.mark.parametrize(
    ("screen", "destination"), [(replace(SMALL, pages=False), None), (SMALL, Path("-")), (None, None)]
)
def test_pipes_and_an_explicit_stdout_have_no_pager(
    screen: Screen | None,
    destination: Path | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PAGER", program(tmp_path, "raise SystemExit(0)")["PAGER"])
    write(TEXT, destination, screen=screen)
    assert capsys.readouterr().out == TEXT


@pytest.mark.parametrize(
    ("text", "longer"),
    [("", False), ("x\n" * 9, False), ("x\n" * 10, True), ("x" * 700 + "\n", False), ("x" * 721 + "\n", True)],
)
def test_longer_than_the_window(text: str, longer: bool) -> None:
    assert is_longer(text, SMALL.width, SMALL.height) == longer
