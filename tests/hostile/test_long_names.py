"""Names of half a megabyte in a profile: whatever tfperf tells a person is cut, wherever the name stands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from builders import event, host, line, plane, space
from click.testing import Result

Run = Callable[..., Result]

_MOST_CHARACTERS = 60_000


def profile(folder: Path, letter: str, kernel_us: float) -> Path:
    """Write a profile of ten steps, whose function, op, kernel and stage have names of 500,000 letters."""
    long = letter * 500_000
    steps, kernels = [], []
    for number in range(10):
        at = 1000.0 * number
        steps.append(event("train", at, 900, step_num=number, _r=1))
        steps.append(event(f"{long}/op:{long}", at + 10, 400))
        kernels.append(event(f"{long}_kernel", at + 20, kernel_us, tf_op=f"{long}/op:{long}"))
    folder.mkdir()
    path = folder / "host.xplane.pb"
    path.write_bytes(space(host(*steps), plane("/device:GPU:0", line("Stream #1", *kernels, id=1))))
    return path


@pytest.mark.parametrize("format_name", ["table", "markdown"])
def test_reports_cut_long_names(tmp_path: Path, run_tfperf: Run, format_name: str) -> None:
    before, after = profile(tmp_path / "before", "x", 50), profile(tmp_path / "after", "y", 700)
    limits = ("--limit", "max(kernels.total_us) < 1us", "--limit", "host_ops.self_ms < 0.001ms")
    for command in (
        ("diff", before, after),
        ("check", after, *limits),
        ("analyze", after),
        ("analyze", after, "--full"),
    ):
        result = run_tfperf(*command, "--format", format_name)
        assert result.exit_code in (0, 3)
        shown = (result.stdout + result.stderr).replace("\n", "")
        assert len(shown) < _MOST_CHARACTERS, command
        assert not any(letter * 500 in shown for letter in "xy"), command


@pytest.mark.parametrize("option", ["--host", "--run", "--step-marker", "--filter"])
def test_errors_cut_long_names(samples: Path, run_tfperf: Run, option: str) -> None:
    result = run_tfperf("analyze", samples / "input_bound", option, "(" * 100_000)
    assert len(result.stderr) < 5000
