"""How stdout looks: by what the user asks for, by variables, by the terminal, in this order."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tfperf.report.render import write
from tfperf.report.render.screen import (
    Screen,
    Terminal,
    is_longer,
    pager_command,
    screen,
    screen_of,
    show_in_pager,
    without_links,
)

PIPE = Terminal()
WINDOW = Terminal(stdin=True, stdout=True, columns=100, lines=30)
XTERM = {"TERM": "xterm", "WT_SESSION": "1"}


@pytest.mark.parametrize(
    ("environment", "terminal", "asked", "colour"),
    [
        ({}, PIPE, "auto", False),
        (XTERM, WINDOW, "auto", True),
        ({**XTERM, "TERM": "dumb"}, WINDOW, "auto", False),
        ({**XTERM, "NO_COLOR": "1"}, WINDOW, "auto", False),
        ({**XTERM, "NO_COLOR": "0"}, WINDOW, "auto", False),
        ({**XTERM, "NO_COLOR": ""}, WINDOW, "auto", True),
        ({"FORCE_COLOR": "1"}, PIPE, "auto", True),
        ({"FORCE_COLOR": "yes", "TERM": "dumb"}, PIPE, "auto", True),
        ({"FORCE_COLOR": ""}, PIPE, "auto", False),
        ({"FORCE_COLOR": "0"}, PIPE, "auto", False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, WINDOW, "auto", False),
        ({"NO_COLOR": "1", "TERM": "dumb"}, PIPE, "always", True),
        ({**XTERM, "FORCE_COLOR": "1"}, WINDOW, "never", False),
    ],
)
def test_colour(environment: dict[str, str], terminal: Terminal, asked: Any, colour: bool) -> None:
    assert screen_of(environment, terminal, colour=asked).colour == colour


@pytest.mark.parametrize(
    ("columns", "terminal", "width"),
    [
        (None, PIPE, 80),
        ("120", PIPE, 120),
        ("", PIPE, 80),
        ("0", PIPE, 80),
        ("-5", PIPE, 80),
        ("wide", PIPE, 80),
        ("²", PIPE, 80),
        ("9" * 5000, PIPE, 80),
        ("5", PIPE, 40),
        ("1000", PIPE, 200),
        (None, WINDOW, 100),
        ("70", WINDOW, 70),
        (None, replace(WINDOW, columns=0), 80),
        (None, replace(WINDOW, columns=12), 40),
        (None, replace(WINDOW, columns=500), 200),
    ],
)
def test_width(columns: str | None, terminal: Terminal, width: int) -> None:
    assert screen_of({} if columns is None else {"COLUMNS": columns}, terminal).width == width


@pytest.mark.parametrize(
    ("environment", "terminal", "pager", "pages"),
    [
        ({}, WINDOW, True, True),
        ({}, WINDOW, False, False),
        ({}, PIPE, True, False),
        ({}, replace(WINDOW, stdin=False), True, False),
        ({}, replace(WINDOW, stdout=False), True, False),
        ({"TERM": "dumb"}, WINDOW, True, False),
        ({"CI": "true"}, WINDOW, True, False),
        ({"CI": ""}, WINDOW, True, True),
    ],
)
def test_pager(environment: dict[str, str], terminal: Terminal, pager: bool, pages: bool) -> None:
    assert screen_of(environment, terminal, pager=pager).pages == pages


@pytest.mark.parametrize(
    ("encoding", "interactive"), [("utf-8", True), ("ascii", False), ("latin-1", False), ("?", False)]
)
def test_a_terminal_that_lacks_the_signs_is_treated_as_a_pipe(encoding: str, interactive: bool) -> None:
    assert screen_of({}, replace(WINDOW, encoding=encoding)).interactive == interactive


def test_a_process_without_streams_has_the_screen_of_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    monkeypatch.setattr("sys.stdout", None)
    assert screen() == Screen()


# --- the pager ---


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


@pytest.mark.parametrize(
    ("environment", "colours", "links"),
    [
        ({}, "16", False),
        ({"TERM": "xterm-256color"}, "256", False),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "truecolor", False),
        ({"TERM": "xterm-kitty"}, "truecolor", True),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/a"}, "truecolor", False),
        ({"TERM_PROGRAM": "iTerm.app"}, "truecolor", True),
        ({"VTE_VERSION": "6003", "TERM": "xterm-256color"}, "256", True),
        ({"VTE_VERSION": "6003", "TERM": "dumb"}, "16", False),
        ({"FORCE_COLOR": "2"}, "256", False),
        ({"FORCE_COLOR": "3", "FORCE_HYPERLINK": "1"}, "truecolor", True),
        ({"TERM": "xterm-kitty", "FORCE_HYPERLINK": "0"}, "truecolor", False),
    ],
)
def test_colours_and_links(environment: dict[str, str], colours: str, links: bool) -> None:
    seen = screen_of(environment, WINDOW)
    assert (seen.colours, seen.links) == (colours, links)


def test_a_pager_gets_no_links() -> None:
    text = "\x1b]8;;https://keras.io\x1b\\try\x1b]8;;\x1b\\: a"
    assert without_links(text) == "try: a"
    assert not is_longer(text, 6, 3)
