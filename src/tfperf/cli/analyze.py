"""`tfperf analyze`."""

from __future__ import annotations

from pathlib import Path

import click

from tfperf.cli.options import chosen_format, default_top, load_trace, report_options, show, trace_options

SECTIONS = ("overview", "steps", "input", "tfdata", "ops", "functions", "memory", "environment", "recommendations",
            "gaps")  # fmt: skip


@click.command("analyze", short_help="Say where the step time goes and what to change.")
@trace_options
@click.option(
    "-s", "--section", "sections", type=click.Choice(SECTIONS), multiple=True, help="Only this section (repeatable)."
)
@report_options
@click.option(
    "--top", type=click.IntRange(min=1), help="Rows of long tables (default: 10 for table and markdown, else all)."
)
@click.option("--list", "list_runs", is_flag=True, help="List the runs and hosts of PATH instead.")
def command(
    path: Path,
    sections: tuple[str, ...],
    format_name: str | None,
    output: Path | None,
    top: int | None,
    list_runs: bool,
    force: bool,
    **options: object,
) -> None:
    """Say where the step time goes, whether the job is input-bound, and what to change.

    PATH is a logdir, a run folder or one *.xplane.pb file. Of a logdir, the newest run is analyzed; all hosts of a run
    are combined.

    \b
    Example:
      tfperf analyze logs/
      tfperf analyze logs/ -s overview -s recommendations
      tfperf analyze logs/ --format json -o report.json
    """
    format_name = chosen_format(format_name, output)
    top = top or default_top(format_name)
    if list_runs:
        from tfperf.reports.runs import runs_report
        from tfperf.trace.logdir import find_runs

        report = runs_report(path, find_runs(path))
    else:
        report = load_trace(path, **options).report(sections, top)
    show(report, format_name, output, force=force)
