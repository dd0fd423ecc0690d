"""What suits the stdout that there is: width, colour, who reads."""

from __future__ import annotations

import sys

import pytest

from tfperf.render import RenderOptions, options_for_stdout


def test_a_pipe_gets_80_plain_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert options_for_stdout() == RenderOptions(width=80, colour=False, interactive=False)
    assert options_for_stdout(colour=True).colour


def test_a_terminal_gets_its_width_and_colour_unless_the_environment_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "132")
    monkeypatch.setenv("WT_SESSION", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert options_for_stdout() == RenderOptions(width=132, colour=True, interactive=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not options_for_stdout().colour
