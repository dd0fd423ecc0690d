"""Options are the same wherever a run is read."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from builders import event, host, logdir_of, space
from printed import Run

from tfperf.base.errors import TfperfWarning
from tfperf.cli import main

READING = {"--run", "--host", "--hosts", "--strict"}
COMMANDS = ("analyze", "check", "diff", "query", "timeline", "flamegraph", "export-csv", "export-parquet", "anonymize")
COPIES = {"anonymize"}
"""A copy has all selected hosts, and needs no workers of a cluster."""


def options_of(name: str) -> dict[str, click.Option]:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return {word: option for option in command.params if isinstance(option, click.Option) for word in option.opts}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_that_reads_a_run_selects_it_alike(name: str) -> None:
    options, usual = options_of(name), options_of("analyze")
    spread = {"--jobs"} if name in COPIES else {"--jobs", "--cluster", "--sample-hosts", "--steps"}
    assert READING | spread <= options.keys()
    for word in (READING | spread) - {"--run"}:
        assert options[word].help == usual[word].help, word


def test_top_has_one_default() -> None:
    def tops() -> Iterator[tuple[str, click.Option]]:
        for name in main.list_commands(click.Context(main)):
            option = options_of(name).get("--top")
            if option is not None:
                yield name, option
        tfprof = main.get_command(click.Context(main), "tfprof")
        assert isinstance(tfprof, click.Group)
        context = click.Context(tfprof)
        for name in tfprof.list_commands(context):
            command = tfprof.get_command(context, name)
            assert command is not None
            found = (each for each in command.params if isinstance(each, click.Option) and "--top" in each.opts)
            yield from ((f"tfprof {name}", each) for each in found)

    helps = {name: str(option.help) for name, option in tops()}
    assert {"analyze", "diff", "lint", "query", "tfprof scope", "tfprof params"} <= helps.keys()
    # The rows of a query are in the order of its SQL, which can limit them.
    assert len({text for name, text in helps.items() if name != "query"}) == 1


JOB = space(host(*(event("train", 10 * number, 8, step_num=number) for number in range(6))))


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """A run of two hosts; the file of a third is not complete, and that of a fourth is damaged."""
    logdir = logdir_of(tmp_path, a=JOB, b=JOB)
    (run,) = (logdir / "plugins" / "profile").iterdir()
    (run / "c.xplane.pb.tmp").write_bytes(JOB[:40])
    return logdir


@pytest.mark.usefixtures("asked_here")
@pytest.mark.parametrize(
    "command",
    [
        ("analyze", "{logdir}"),
        ("query", "{logdir}", "select count(*) as n from events"),
        ("query", "{logdir}", "select count(*) as n from steps"),
        ("timeline", "{logdir}", "-o", "{logdir}/o.json"),
        ("anonymize", "{logdir}", "-o", "{logdir}/copy"),
    ],
)
@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_host_that_cannot_be_read_is_missing_or_an_error(
    command: tuple[str, ...], is_damaged: bool, logdir: Path, run_tfperf: Run
) -> None:
    if is_damaged:
        if command[0] == "anonymize":
            pytest.skip("a damaged host is always an error: a copy is whole")
        (run,) = (logdir / "plugins" / "profile").iterdir()
        (run / "d.xplane.pb").write_bytes(JOB[:-3])
    words = [word.format(logdir=logdir) for word in command]
    count = 4 if is_damaged else 3
    strict = run_tfperf(*words, "--strict")
    assert strict.exit_code == 1
    assert f"Error: only 2 of {count} hosts are readable, excluding " in strict.stderr
    assert not list(logdir.glob("*.json"))
    with warnings.catch_warnings():
        warnings.simplefilter("always", TfperfWarning)  # not errors, as in other tests
        result = run_tfperf(*words)
    assert result.exit_code == 0, result.stderr
    said = re.findall("Warning: (.*)", result.stderr)
    assert [text.partition(",")[0] for text in said] == [f"only 2 of {count} hosts are readable"]


def test_hosts_are_selected_in_copies(logdir: Path, run_tfperf: Run) -> None:
    result = run_tfperf("anonymize", str(logdir), "-o", str(logdir / "copy"), "--hosts", "b*", "--strict")
    assert "wrote 1 host to" in result.stderr


def test_runs_of_one_logdir_are_compared_by_name(tmp_path: Path, run_tfperf: Run) -> None:
    logdir = logdir_of(tmp_path, a=JOB)
    profiles = logdir / "plugins" / "profile"
    (first,) = profiles.iterdir()
    for name in ("2026_01_02_00_00_00", "2026_01_03_00_00_00"):
        (profiles / name).mkdir()
        (profiles / name / "a.xplane.pb").write_bytes(JOB)

    def compared(*names: str) -> str:
        result = run_tfperf(
            "diff", str(logdir), *(word for name in names for word in ("--run", name)), "-s", "overview"
        )
        assert result.exit_code == 0, result.stderr
        return " ".join(result.stdout.split())

    names = [first.name, "2026_01_02_00_00_00", "2026_01_03_00_00_00"]
    assert names[1] in compared()
    assert names[0] not in compared()
    assert names[0] in compared(names[0])
    assert names[1] not in compared(names[0])
    assert all(name in compared(*names) for name in names)
    newest = run_tfperf("diff", str(logdir), "--run", names[2])
    assert (newest.exit_code, "is the newest run: pass another --run" in newest.stderr) == (2, True)
