"""`tfperf query`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfperf.base.errors import TfperfError
from tfperf.base.storage.remote_path import Location
from tfperf.cli import options

if TYPE_CHECKING:
    from tfperf.report.model import Report


class _WrongSql(click.ClickException):
    """Wrong usage, without the usage of the command: its options are right."""

    exit_code = 2


@click.command("query", short_help="Query a profile with SQL.")
@click.argument("path", type=options.TRACE_PATH, required=False)
@click.argument("sql", required=False)
@click.option("-f", "--file", "script", type=options.PATH, metavar="FILE", help="Read the SQL from this file.")
@click.option("--schema", is_flag=True, help="List tables and columns; with PATH, only the ones of that profile.")
@options.run_option("Query")
@options.read_options
@options.host_options
@options.report_options
@click.option("--top", type=options.AT_LEAST_ONE, help="Maximum rows of the result, which SQL ranks (default: all).")
@click.option(
    "--max-rows",
    type=options.AT_LEAST_ONE,
    default=1_000_000,
    help="Fail if the result has more rows (default: 1,000,000).",
)
@click.option(
    "--memory-limit",
    type=options.SIZE,
    default="2GB",
    show_default=True,
    help="Memory limit of the query, and separately of its result.",
)
@click.option(
    "--timeout", type=options.DURATION, default="60s", show_default=True, help="Stop the query after this time."
)
def command(
    path: Location | None, format_name: str | None, output: Location | None, force: bool, **values: Any
) -> None:
    """Query a profile with DuckDB SQL: one SELECT over events, stats, steps, ops, kernels and more.

    PATH is a logdir, a run folder, one *.xplane.pb file, or a dataset from export-parquet. SQL is the query, or - for
    stdin. A query can only read the profile, not other files or the network. Requires DuckDB: pip install
    'tfperf[sql]'.

    \b
    Example:
      tfperf query --schema
      tfperf query logs/ "select name, count(*), sum(duration_us) from events group by name order by 3 desc limit 5"
      tfperf query logs/ -f slow.sql --format csv -o slow.csv
    """
    sql, script, schema = (values.pop(name) for name in ("sql", "script", "schema"))
    limits = [values.pop(name) for name in ("max_rows", "memory_limit", "timeout", "top")]
    format_name = options.chosen_format(format_name, output)
    is_sql = isinstance(path, Path) and " " in str(path) and not path.exists()
    if sql is None and script is None and not schema and is_sql:
        raise click.UsageError(f"{path} was read as PATH: pass the profile first, tfperf query PATH SQL")
    if schema != (sql is None and script is None) or (sql is not None and script is not None):
        raise click.UsageError("pass exactly one of: a query, -f FILE, --schema")
    if path is None and not schema:
        raise click.UsageError("no profile given: tfperf query PATH SQL")
    options.check_output(output, format_name, force=force)
    text = _text("-" if script == Path("-") else sql, script)
    width = options.suitable_for(output).width if format_name == "table" else None
    report = _report(path, text, limits, width=width, **values)
    options.show(report, format_name, output, force=force)


def _text(sql: str | None, script: Path | None) -> str | None:
    """Return the query; `-` reads stdin."""
    try:
        if sql == "-":
            return sys.stdin.read()
        return sql if script is None else script.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError("the query is not UTF-8 text") from error
    except OSError as error:
        raise TfperfError(f"cannot read the query {script}: {error.strerror or error}; check the path") from error


def _report(path: Location | None, sql: str | None, limits: list[Any], *, width: int | None, **values: Any) -> Report:
    from tfperf.export.query.answer_report import answered, schema_of
    from tfperf.export.query.engine import QueryError, QueryLimits
    from tfperf.report.render.values import for_people, without_commands

    if sql is None or path is None:
        return schema_of(path, **values)
    try:
        return answered(path, sql, QueryLimits(*limits), width=width, **values)
    except QueryError as error:
        raise _WrongSql(without_commands(for_people(str(error)))) from error
