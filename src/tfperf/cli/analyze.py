"""`tfperf analyze`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfperf.cli.options import (
    chosen_format,
    default_top,
    load_trace,
    refuse_existing,
    report_options,
    show,
    trace_options,
)
from tfperf.cli.parameters import REGEX

if TYPE_CHECKING:
    from tfperf.analyzers.op_groups import By
    from tfperf.session import Trace

SECTIONS = (
    "overview", "steps", "idle", "input", "tfdata", "ops", "kernels", "functions", "memory", "environment",
    "recommendations", "gaps",
)  # fmt: skip


@click.command("analyze", short_help="Say where the step time goes and what to change.")
@trace_options
@click.option(
    "-s", "--section", "sections", type=click.Choice(SECTIONS), multiple=True, help="Only this section (repeatable)."
)
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
    "--save-baseline", "baseline", type=click.Path(path_type=Path), metavar="FILE",
    help="Also write what `tfperf check --baseline` and `tfperf diff` compare with (JSON).",
)  # fmt: skip
@click.option(
    "--skip-first", type=click.IntRange(min=0), metavar="N", help="Leave the first N steps out of the baseline."
)
@click.option("--list", "list_runs", is_flag=True, help="List the runs and hosts of PATH instead.")
def command(
    path: Path,
    sections: tuple[str, ...],
    format_name: str | None,
    output: Path | None,
    top: int | None,
    by: By,
    filters: tuple[str, ...],
    baseline: Path | None,
    skip_first: int | None,
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
      tfperf analyze logs/ -s ops --by layer
      tfperf analyze logs/ -o report.html
      tfperf analyze logs/ --format json -o report.json
      tfperf analyze logs/ --save-baseline baseline.json
    """
    format_name = chosen_format(format_name, output)
    top = top or default_top(format_name)
    if list_runs and baseline:
        raise click.UsageError("--list analyzes nothing, so there is no baseline to save")
    if skip_first is not None and baseline is None:
        raise click.UsageError("--skip-first is about the baseline: pass --save-baseline FILE too")
    refuse_existing(output, force=force)
    refuse_existing(baseline, force=force)
    if list_runs:
        from tfperf.reports.runs import runs_report
        from tfperf.trace.logdir import find_runs

        report = runs_report(path, find_runs(path))
    else:
        trace = load_trace(path, **options)
        report = trace.report(sections, top, by=by, filters=filters, page=format_name == "html")
        if baseline:
            _save(trace, path, baseline, skip_first or 0, force=force)
    show(report, format_name, output, force=force)


def _save(trace: Trace, path: Path, baseline: Path, skip_first: int, *, force: bool) -> None:
    """Write what later runs are compared with."""
    from tfperf.compare.baseline_file import baseline_text
    from tfperf.compare.summarize import summarize_run
    from tfperf.render.output import write

    write(baseline_text(summarize_run(trace, str(path), skip_first=skip_first)), baseline, force=force)
