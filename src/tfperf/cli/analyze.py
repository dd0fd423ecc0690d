"""`tfperf analyze`."""

from __future__ import annotations

from pathlib import Path

import click

from tfperf.cli.options import load_trace, trace_options

SECTIONS = ("overview", "steps", "ops", "functions", "environment", "recommendations", "gaps")
FORMATS = ("table", "json", "csv", "markdown")
_TOP_FOR_PEOPLE = 10


@click.command("analyze", short_help="Say where the step time goes and what to change.")
@trace_options
@click.option(
    "-s", "--section", "sections", type=click.Choice(SECTIONS), multiple=True, help="Only this section (repeatable)."
)
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="Default: by the suffix of -o, else table.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file instead of stdout.")
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
    from tfperf.render import guess_format, options_for_stdout, render
    from tfperf.render.options import RenderOptions
    from tfperf.render.output import write

    format_name = format_name or (guess_format(output) if output else None) or "table"
    if top is None and format_name in ("table", "markdown"):
        top = _TOP_FOR_PEOPLE
    if list_runs:
        from tfperf.reports.runs import runs_report
        from tfperf.trace.logdir import find_runs

        report = runs_report(path, find_runs(path))
    else:
        report = load_trace(path, **options).report(sections, top)
    shown = RenderOptions() if output else options_for_stdout()
    write(render(report, format_name, shown), output, force=force)
