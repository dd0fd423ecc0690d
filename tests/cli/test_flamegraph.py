"""`tfperf flamegraph`: formats, what is said, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import event, host, logdir_of, space
from click.testing import CliRunner, Result

from tfperf.cli import main

STEPS = [event("train", 100 * number, 80, step_num=number) for number in range(4)]
OPS = [event("m/dense/MatMul:MatMul", 100 * number + 5, 20) for number in range(4)]


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    return logdir_of(tmp_path, vm=space(host(*STEPS, *OPS)))


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["flamegraph", *map(str, arguments)])


@pytest.mark.parametrize(
    ("name", "form", "start"),
    [
        ("x.html", "html", "<!DOCTYPE html>"),
        ("x.svg", "svg", "<?xml"),
        ("X.SVG", "svg", "<?xml"),
        ("x.folded", "folded", "host;m;dense;MatMul 80"),
        ("x.speedscope.json", "speedscope", '{"$schema":'),
        ("x.json", "speedscope", '{"$schema":'),
    ],
)
def test_the_suffix_gives_the_format(name: str, form: str, start: str, logdir: Path, tmp_path: Path) -> None:
    output = tmp_path / name
    result = run(logdir, "-o", output)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"wrote {output}: flame graph ({form}): host 0.080 ms in 4 boxes\n"
    assert output.read_text().startswith(start)


def test_text_goes_to_stdout_if_a_format_is_named(logdir: Path) -> None:
    for arguments in ((), ("-o", "-")):
        result = run(logdir, "--format", "folded", *arguments)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "host;m;dense;MatMul 80\n", "")
    assert json.loads(run(logdir, "--format", "speedscope").stdout)["profiles"]


def test_a_comparison_reads_another_run(logdir: Path, tmp_path: Path) -> None:
    slow = [event("m/dense/MatMul:MatMul", 100 * number + 5, 30) for number in range(4)]
    other = logdir_of(tmp_path / "other", vm=space(host(*STEPS, *slow)))
    result = run(logdir, "--diff", other, "--format", "folded")
    assert (result.exit_code, result.stdout) == (0, "host;m;dense;MatMul 30 20\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("-o", "-"), 2, "-o - has no suffix: pass --format html, svg, folded or speedscope"),
        (("-o", "x.svg", "--by", "python", "--on", "device"), 2, "--by python applies only to host threads"),
        (("-o", "x.svg", "--on", "device"), 1, "the profile has no device events"),
    ],
)
def test_what_cannot_be_is_one_line_that_says_what_to_try(
    arguments: tuple[str, ...], code: int, message: str, logdir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(logdir, *arguments)
    assert result.exit_code == code
    assert message in result.stderr.splitlines()[-1]
    assert not (tmp_path / "x.svg").exists()
