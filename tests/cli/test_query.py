"""`tfperf query`, in process, as are its queries, but those that need a process to be ended."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import pytest
from builders import event, host, logdir_of, space
from cli.example_package import run_with_package
from click.testing import CliRunner, Result
from printed import Run

from tfperf.analysis.parallel.worker_pool import WorkerProcess
from tfperf.base.errors import TfperfError
from tfperf.cli import main
from tfperf.cli.query import command
from tfperf.export.query.engine import QueryError
from tfperf.export.query.sql_tables import every_table

pytestmark = pytest.mark.usefixtures("asked_here")
BY_NAME = "select name, count(*) as calls from events group by name order by calls desc"


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    return logdir_of(tmp_path, a=space(host(event("a", 0, 1), event("b", 1, 2), event("a", 3, 1))))


def run(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(command, list(map(str, arguments)), input=stdin, **main.context_settings)


def test_programs_get_all_rows(logdir: Path) -> None:
    assert run(logdir, BY_NAME, "--format", "csv").stdout == "name,calls\na,2\nb,1\n"
    document = json.loads(run(logdir, BY_NAME, "--format", "json").stdout)
    rows = document["sections"]["query"]["tables"]["result"]["rows"]
    assert rows == [{"name": "a", "calls": 2}, {"name": "b", "calls": 1}]
    assert "| a" in run(logdir, BY_NAME, "--format", "markdown").stdout


def test_top_cuts_and_says_so(logdir: Path) -> None:
    assert "the first 1 row; --top omits the others" in run(logdir, BY_NAME, "--top", "1").stdout
    assert "--top omits" not in run(logdir, BY_NAME, "--top", "2").stdout


def assert_stopped(result: Result, reason: str) -> None:
    assert isinstance(result.exception, TfperfError)
    assert not isinstance(result.exception, QueryError)
    assert reason in str(result.exception)


def test_an_answer_may_have_a_million_rows_or_another_number(logdir: Path) -> None:
    assert_stopped(run(logdir, "from range(10_000_000_000)"), "the result has more than 1,000,000 rows")
    assert_stopped(run(logdir, "from range(5)", "--max-rows", "4"), "the result has more than 4 rows")


@pytest.mark.parametrize(
    ("query", "limits", "reason"),
    [
        ("select list(i) from range(1_000_000_000) t(i)", ("--memory-limit", "50MB"), "exceeds its memory limit"),
        ("select count(*) from range(99_999_999_999) t(i) where i % 7 = 3", ("--timeout", "300ms"), "after 0.3 s"),
    ],
)
def test_a_query_has_limits(
    logdir: Path, query: str, limits: tuple[str, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfperf.export.query.apart.WorkerProcess", WorkerProcess)
    assert_stopped(run(logdir, query, *limits), reason)


def test_top_fetches_no_more(logdir: Path) -> None:
    result = run(logdir, "select range as n from range(10_000_000_000)", "--top", "2", "--format", "csv")
    assert (result.exit_code, result.stdout) == (0, "n\n0\n1\n")


def test_an_answer_goes_into_a_file_which_is_not_replaced(logdir: Path, tmp_path: Path) -> None:
    target = tmp_path / "calls.csv"
    assert run(logdir, BY_NAME, "-o", target).exit_code == 0
    assert target.read_bytes() == b"name,calls\r\na,2\r\nb,1\r\n"
    assert "--force" in str(run(logdir, "select 1", "-o", target).exception)
    assert run(logdir, "select 1 as n", "-o", target, "--force").exit_code == 0
    assert target.read_bytes() == b"n\r\n1\r\n"


def test_a_query_is_read_from_a_file_or_from_stdin(logdir: Path, tmp_path: Path) -> None:
    script = tmp_path / "calls.sql"
    script.write_text(f"-- calls\n{BY_NAME};\n", encoding="utf-8")
    for source, stdin in (("-f", script), None), (("-",), BY_NAME), (("-f", "-"), BY_NAME):
        assert run(logdir, *source, "--format", "csv", stdin=stdin).stdout == "name,calls\na,2\nb,1\n"
    for file, words in ((tmp_path / "missing.sql", "No such file"), (tmp_path, "Is a directory")):
        assert f"cannot read the query {file}: {words}" in str(run(logdir, "-f", file).exception)


def test_the_schema_needs_no_profile() -> None:
    result = run("--schema")
    assert result.exit_code == 0
    tables = json.loads(run("--schema", "--format", "json").stdout)["sections"]["columns"]["tables"]
    assert list(tables) == list(every_table())
    assert all(row["meaning"] for table in tables.values() for row in table["rows"])
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_the_schema_of_a_profile_has_its_tables_and_rows(logdir: Path) -> None:
    document = json.loads(run(logdir, "--schema", "--format", "json").stdout)
    rows = {row["table"]: row["rows"] for row in document["sections"]["tables"]["tables"]["tables"]["rows"]}
    assert (rows["events"], rows["lines"], rows["stats"]) == (3, 1, 0)
    assert "steps" not in rows
    assert "kernels" not in rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["select nme from events"], 'column "nme" not found'),
        (["from read_csv('/etc/passwd')"], "not allowed"),
        (["select 1", "--schema"], "pass exactly one of"),
        (["select 1", "-f", "-"], "pass exactly one of"),
        (["-f", "-", "--schema"], "pass exactly one of"),
        (["select 1", "--attribution", "tensorflow", "--step-marker", "x"], "--step-marker cannot be used with"),
    ],
)
def test_wrong_usage(logdir: Path, arguments: list[str], message: str) -> None:
    result = run(logdir, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_a_query_that_is_not_text_is_wrong_usage(logdir: Path, tmp_path: Path) -> None:
    script = tmp_path / "q.sql"
    script.write_bytes(b"select '\xff'")
    result = run(logdir, "-f", script)
    assert (result.exit_code, "UTF-8" in result.stderr) == (2, True)


def test_without_duckdb(logdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert "pip install 'tfperf[sql]'" in str(run(logdir, "select 1").exception)
    assert run("--schema").exit_code == 0


def test_the_example_of_the_help_can_be_run(logdir: Path, tmp_path: Path) -> None:
    help_text = command.get_help(click.Context(command, info_name="query", help_option_names=["-h", "--help"]))
    (query,) = [line.split('"')[1] for line in help_text.splitlines() if 'logs/ "' in line]
    assert run(logdir, query).exit_code == 0


# --- sections of other packages ---


def test_a_failing_table_of_another_package_is_named_with_its_error(logdir: Path, tmp_path: Path) -> None:
    result = run_with_package(tmp_path, "query", logdir, "select * from acme")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "Error: section acme is omitted: ZeroDivisionError: division by zero\n"
    others = run_with_package(tmp_path, "query", logdir, "select longest_ps from acme_times", "--format", "csv")
    assert others.stdout == "longest_ps\n2000000\n", others.stderr


def test_the_schema_of_a_profile_omits_only_the_failing_table(logdir: Path, tmp_path: Path) -> None:
    result = run_with_package(tmp_path, "query", logdir, "--schema", "--format", "json")
    assert result.stderr == "section acme is omitted: ZeroDivisionError: division by zero\n"
    tables = json.loads(result.stdout)["sections"]["columns"]["tables"]
    assert "acme_times" in tables
    assert "acme" not in tables


def test_wrong_sql_is_one_line(logdir: Path, run_tfperf: Run) -> None:
    result = run_tfperf("query", logdir, "selct 1")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "Usage" not in result.stderr


def test_long_texts_lose_their_middle_for_people(logdir: Path) -> None:
    sql = "select repeat('abc', 300) as x"
    table = run(logdir, sql).stdout
    assert "long texts lose their middle" in table
    assert table.count("abc") < 70
    assert run(logdir, sql, "--format", "csv").stdout.count("abc") == 300


def test_hosts_by_pattern(tmp_path: Path) -> None:
    part = space(host(event("a", 0, 1)))
    logdir = logdir_of(tmp_path, worker0=part, worker1=part, chief=part)
    sql = "select count(*) as n from events"
    assert run(logdir, sql, "--hosts", "worker*", "--format", "csv").stdout == "n\n2\n"
