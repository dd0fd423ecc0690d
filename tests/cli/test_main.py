"""`tfperf` itself: help, version, commands."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import Result

import tfperf

Run = Callable[..., Result]


def test_version(run_tfperf: Run) -> None:
    result = run_tfperf("--version")
    assert (result.exit_code, result.stdout) == (0, f"tfperf, version {tfperf.__version__}\n")


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("analyze", "-h"), ("export-csv", "--help")])
def test_help_shows_an_example(arguments: tuple[str, ...], run_tfperf: Run) -> None:
    result = run_tfperf(*arguments)
    assert result.exit_code == 0
    assert "Example:" in result.stdout


def test_unknown_command_is_wrong_usage(run_tfperf: Run) -> None:
    result = run_tfperf("analyse", "logs")
    assert (result.exit_code, result.stdout) == (2, "")
