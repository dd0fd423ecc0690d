"""`tfperf analyze`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfperf.cli.options import chosen_format, load_analysis, refuse_existing, report_options, show, trace_options
from tfperf.cli.parameters import REGEX, SECTION

if TYPE_CHECKING:
    from tfperf.analysis import Analysis
    from tfperf.report.model import Report


@click.command("analyze", short_help="Say where the step time goes and what to change.")
@trace_options
@click.option("-s", "--section", "sections", type=SECTION, multiple=True, help="Only this section (repeatable).")
@report_options
@click.option(
    "--top", type=click.IntRange(min=1), help="Rows of long tables (default: 10 for table and markdown, else all)."
)
@click.option(
    "--by",
    type=click.Choice(("op", "type", "scope", "layer")),
    default="op",
    show_default=True,
    help="Group the ops (-s ops).",
)
@click.option(
    "--filter",
    "filters",
    type=REGEX,
    metavar="REGEX",
    multiple=True,
    help="Only ops with this in their name or type (repeatable: any of them).",
)
@click.option(
    "--save-baseline",
    "baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write what `tfperf check --baseline` and `tfperf diff` compare with (JSON).",
)
@click.option("--skip-first", type=click.IntRange(min=0), metavar="N", help="Omit the first N steps from the baseline.")
@click.option("--list", "list_runs", is_flag=True, help="List the runs and hosts of PATH instead.")
def command(path: Path, format_name: str | None, output: Path | None, force: bool, **options: Any) -> None:
    """Say where the step time goes, whether the job is input-bound, and what to change.

    PATH is a logdir, a run folder or one *.xplane.pb file. Of a logdir, the newest run is analyzed; all hosts of a run
    are combined.

    \b
    Example:
      tfperf analyze logs/
      tfperf analyze logs/ -s overview -s recommendations
      tfperf analyze logs/ -s ops --by layer
      tfperf analyze logs/ -o report.html
      tfperf analyze logs/ --format json -o report.json
      tfperf analyze logs/ --save-baseline baseline.json
    """
    format_name = chosen_format(format_name, output)
    baseline: Path | None = options["baseline"]
    if options["list_runs"] and baseline:
        raise click.UsageError("--list analyzes nothing, so there is no baseline to save")
    if options["skip_first"] is not None and baseline is None:
        raise click.UsageError("--skip-first is about the baseline: pass --save-baseline FILE too")
    refuse_existing(output, force=force)
    refuse_existing(baseline, force=force)
    report = _runs(path) if options["list_runs"] else _report(path, force=force, **options)
    show(report, format_name, output, force=force, is_whole=not options["sections"], top=options["top"])


def _runs(path: Path) -> Report:
    from tfperf.run_list import runs_report
    from tfperf.trace.logdir import find_runs

    return runs_report(path, find_runs(path))


def _report(path: Path, *, force: bool, **options: Any) -> Report:
    sections, baseline = options["sections"], options["baseline"]
    reading = {key: options[key] for key in ("run", "hosts", "attribution", "step_marker")}
    analysis = load_analysis(path, sections=() if baseline else sections, **reading)
    report = analysis.report(sections, by=options["by"], filters=options["filters"])
    if baseline:
        _save(analysis, path, baseline, options["skip_first"] or 0, force=force)
    return report


def _save(analysis: Analysis, path: Path, baseline: Path, skip_first: int, *, force: bool) -> None:
    """Write what later runs are compared with."""
    from tfperf.compare.baseline_file import baseline_text
    from tfperf.compare.summarize import summarize_run
    from tfperf.render.output import write

    write(baseline_text(summarize_run(analysis, str(path), skip_first=skip_first)), baseline, force=force)
