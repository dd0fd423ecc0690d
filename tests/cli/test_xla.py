"""`tfperf xla`: an HLO op with its neighbors, a whole program, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, gpu, host, logdir_of, programs, ref, space
from click.testing import CliRunner, Result
from hlo_builders import F32, computation, instruction, program, shape

from tfperf.cli import main

VECTOR = shape(F32, 8)
CHAIN = program(
    computation("fused", instruction(1, "inner", "negate", VECTOR), number=2),
    computation(
        "main",
        instruction(1, "a", "parameter", VECTOR),
        instruction(2, "b", "fusion", VECTOR, operands=[1], calls=[2]),
        instruction(3, "c", "negate", VECTOR, operands=[2]),
        instruction(4, "d", "negate", VECTOR, operands=[3]),
        root=4,
    ),
)


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """A program of four ops, one of which runs for 5 us of 10."""
    kernels = [event("k", 0, 5, hlo_op=ref("b"), program_id=7), event("other", 10, 5)]
    return logdir_of(tmp_path, vm=space(host(event("train", 0, 20, step_num=1)), gpu(*kernels), programs(id_7=CHAIN)))


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["xla", *map(str, arguments)])


def names(text: str) -> list[str]:
    """The ops of the lines, the chosen one with its mark."""
    return [line.split(" = ")[0].replace("ROOT ", "").strip() for line in text.splitlines() if " = " in line]


def test_an_op_and_its_neighbors(logdir: Path) -> None:
    result = run(logdir, "--op", "b")
    assert (result.exit_code, names(result.output)) == (0, ["%a", "> %b", "%c"])
    assert "0.005 ms in 1 run, 50.0% of the time" in result.output
    assert "2 ops up to 1 away" in result.output
    assert names(run(logdir, "--op", "b", "--depth", "2").output) == ["%a", "> %b", "%c", "%d"]
    assert names(run(logdir, "--op", "b", "--depth", "0").output) == ["> %b"]


def test_what_an_op_calls(logdir: Path) -> None:
    assert names(run(logdir, "--op", "b", "--depth", "0", "--text").output) == ["> %b", "%inner"]


def test_a_whole_program(logdir: Path, tmp_path: Path) -> None:
    result = run(logdir, "--text", "-o", tmp_path / "p.hlo")
    assert result.exit_code == 0
    assert names((tmp_path / "p.hlo").read_text()) == ["%inner", "%a", "%b", "%c", "%d"]
    assert run(logdir, "--text", "--program", "7").exit_code == 0


def test_an_op_that_did_not_run(logdir: Path) -> None:
    assert "It did not run in the capture" in run(logdir, "--op", "d").output


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((), 2, "pass --op NAME for an HLO op, or --text for the whole program"),
        (("--op", "bb"), 1, "an HLO op 'bb': did you mean b? tfperf analyze PATH -s xla lists programs and HLO ops"),
        (("--text", "--program", "nowhere"), 1, "the profile has no XLA program named 'nowhere'"),
    ],
)
def test_errors(arguments: tuple[str, ...], code: int, text: str, logdir: Path) -> None:
    result = run(logdir, *arguments)
    assert result.exit_code == code
    assert text in result.output
