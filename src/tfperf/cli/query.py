"""`tfperf query`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from tfperf.cli.options import ATTRIBUTIONS, chosen_format, refuse_existing, report_options, show, suitable_for

if TYPE_CHECKING:
    from tfperf.report.model import Report


@click.command("query", short_help="Ask a profile in SQL.")
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.argument("sql", required=False)
@click.option("-f", "--file", "script", type=click.File("r", encoding="utf-8"), help="Read the SQL from this file.")
@click.option("--schema", is_flag=True, help="Show tables and columns instead; with PATH, those of that profile.")
@click.option("--run", metavar="NAME", help="Ask this run instead of the newest.")
@click.option("--host", "hosts", metavar="NAME", multiple=True, help="Only this host (repeatable).")
@click.option(
    "--attribution",
    type=click.Choice(ATTRIBUTIONS),
    default="corrected",
    show_default=True,
    help="How tables of the analysis come about.",
)
@click.option("--step-marker", metavar="NAME", help="Events of this name are the steps (* is a wildcard).")
@report_options
@click.option("--top", type=click.IntRange(min=1), help="Show only so many rows (default: all).")
def command(path: Path | None, format_name: str | None, output: Path | None, force: bool, **options: Any) -> None:
    """Ask a profile in SQL, as DuckDB speaks it: one SELECT over events, stats, steps, ops, kernels and more.

    PATH is a logdir, a run folder or one *.xplane.pb file. SQL is the query, or - for stdin. A query only reads the
    profile: it reaches no files and no network. Needs DuckDB: pip install 'tfperf[sql]'.

    \b
    Example:
      tfperf query --schema
      tfperf query logs/ "select name, count(*), sum(duration_us) from events group by name order by 3 desc limit 5"
      tfperf query logs/ -f slow.sql --format csv -o slow.csv
    """
    sql, script, schema, top = (options.pop(name) for name in ("sql", "script", "schema", "top"))
    format_name = chosen_format(format_name, output)
    if schema != (sql is None and script is None) or (sql is not None and script is not None):
        raise click.UsageError("write one of: a query, -f FILE, --schema")
    if path is None and not schema:
        raise click.UsageError("name the profile: tfperf query PATH SQL")
    refuse_existing(output, force=force)
    text = None if schema else _text(script or sys.stdin) if script or sql == "-" else sql
    width = suitable_for(output).width if format_name == "table" else None
    report = _report(path, text, top=top, width=width, **options)
    show(report, format_name, output, force=force)


def _text(file: TextIO) -> str:
    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise click.UsageError("the query is not UTF-8 text") from error


def _report(path: Path | None, sql: str | None, *, top: int | None, width: int | None, **options: Any) -> Report:
    from tfperf.query.answer_report import answered, schema_of
    from tfperf.query.engine import QueryError
    from tfperf.render.safe_text import safe

    if sql is None or path is None:
        return schema_of(path, **options)
    try:
        return answered(path, sql, top=top, width=width, **options)
    except QueryError as error:
        raise click.UsageError(safe(str(error))) from error
