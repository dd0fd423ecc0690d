"""`tfperf query`, in process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import pytest
from builders import event, host, logdir_of, space
from click.testing import CliRunner, Result
from tfperf.query.tables import all_tables

from tfperf.cli.query import command
from tfperf.errors import TfperfError

BY_NAME = "select name, count(*) as calls from events group by name order by calls desc"


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    return logdir_of(tmp_path, a=space(host(event("a", 0, 1), event("b", 1, 2), event("a", 3, 1))))


def run(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], input=stdin)


def test_people_get_a_table(logdir: Path) -> None:
    done = run(logdir, BY_NAME)
    assert done.exit_code == 0
    assert done.stdout.endswith("Result\nname  calls\n----  -----\na         2\nb         1\n")


def test_programs_get_all_rows(logdir: Path) -> None:
    assert run(logdir, BY_NAME, "--format", "csv").stdout == "name,calls\na,2\nb,1\n"
    document = json.loads(run(logdir, BY_NAME, "--format", "json").stdout)
    assert document["sections"]["query"]["tables"]["result"]["rows"] == [
        {"name": "a", "calls": 2},
        {"name": "b", "calls": 1},
    ]
    assert "| a" in run(logdir, BY_NAME, "--format", "markdown").stdout


def test_top_cuts_and_says_so(logdir: Path) -> None:
    assert "showing 1 of 2; --top 2 shows all" in run(logdir, BY_NAME, "--top", "1").stdout


def test_the_query_from_a_file_or_from_stdin(logdir: Path, tmp_path: Path) -> None:
    script = tmp_path / "q.sql"
    script.write_text(f"-- calls\n{BY_NAME};\n")
    answers = {
        run(logdir, "-f", script, "--format", "csv").stdout,
        run(logdir, "-", "--format", "csv", stdin=BY_NAME).stdout,
        run(logdir, "-f", "-", "--format", "csv", stdin=BY_NAME).stdout,
    }
    assert answers == {"name,calls\na,2\nb,1\n"}


def test_into_a_file_which_is_kept(logdir: Path, tmp_path: Path) -> None:
    target = tmp_path / "calls.csv"
    assert run(logdir, BY_NAME, "-o", target).exit_code == 0
    assert target.read_bytes() == b"name,calls\r\na,2\r\nb,1\r\n"
    with pytest.raises(TfperfError, match="--force"):
        CliRunner().invoke(command, [str(logdir), "select 1", "-o", str(target)], catch_exceptions=False)
    assert run(logdir, "select 1 as n", "-o", target, "--force").exit_code == 0
    assert target.read_bytes() == b"n\r\n1\r\n"


def test_the_schema_needs_no_profile() -> None:
    done = run("--schema")
    assert done.exit_code == 0
    tables = json.loads(run("--schema", "--format", "json").stdout)["sections"]["columns"]["tables"]
    assert list(tables) == list(all_tables())
    assert all(row["meaning"] for table in tables.values() for row in table["rows"])
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_schema_of_a_profile_has_its_tables_and_rows(logdir: Path) -> None:
    document = json.loads(run(logdir, "--schema", "--format", "json").stdout)
    rows = {row["table"]: row["rows"] for row in document["sections"]["tables"]["tables"]["tables"]["rows"]}
    assert (rows["events"], rows["lines"], rows["stats"]) == (3, 1, 0)
    assert "steps" not in rows
    assert "kernels" not in rows


@pytest.mark.parametrize(("arguments", "told"), [
    (["select nme from events"], 'column "nme" not found'),
    (["copy (select 1) to 'x'"], "COPY is refused"),
    (["from read_csv('/etc/passwd')"], "refused"),
    ([""], "the query is empty"),
    ([], "write one of"),
    (["select 1", "--schema"], "write one of"),
    (["select 1", "-f", "-"], "write one of"),
    (["-f", "-", "--schema"], "write one of"),
])  # fmt: skip
def test_wrong_usage(logdir: Path, arguments: list[str], told: str) -> None:
    done = run(logdir, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr


def test_a_query_needs_a_profile(tmp_path: Path) -> None:
    script = tmp_path / "q.sql"
    script.write_text("select 1")
    done = run("-f", script)
    assert done.exit_code == 2
    assert "name the profile" in done.stderr


def test_a_query_that_is_no_text(logdir: Path, tmp_path: Path) -> None:
    script = tmp_path / "q.sql"
    script.write_bytes(b"select '\xff'")
    done = run(logdir, "-f", script)
    assert (done.exit_code, "UTF-8" in done.stderr) == (2, True)


def test_a_profile_without_the_table(logdir: Path) -> None:
    done = run(logdir, "from kernels")
    assert isinstance(done.exception, TfperfError)
    assert "no table kernels" in str(done.exception)


def test_without_duckdb(logdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert "pip install 'tfperf[sql]'" in str(run(logdir, "select 1").exception)
    assert run("--schema").exit_code == 0


def test_its_examples_are_right(logdir: Path, tmp_path: Path) -> None:
    help_text = command.get_help(click.Context(command, info_name="query"))
    (query,) = [line.split('"')[1] for line in help_text.splitlines() if 'logs/ "' in line]
    assert run(logdir, query).exit_code == 0
