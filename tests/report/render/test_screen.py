"""How stdout looks: by what the user asks for, by variables, by the terminal, in this order."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tfperf.report.render.screen import Screen, Terminal, screen, screen_of

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
